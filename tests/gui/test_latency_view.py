"""The latency panel as a user sees it: its figures are the model's, its plot shows every token."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest

from helpers.panels import (
    CLEAN,
    cells,
    clean_clipboard,
    cut_labels,
    live_run,
    near,
    picture,
    pixel,
    recorded,
    titles,
    toggled_run,
    without_name,
)
from helpers.timeline import turn_wheel
from helpers.traces import decode_run
from syncscope.app.gui.latency_model import histogram
from syncscope.app.gui.latency_plot import MAX_COLUMNS
from syncscope.app.gui.latency_view import LatencyView
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.split_bar import busy_colour, idle_colour
from syncscope.app.gui.theme import DARK, LIGHT, apply_theme
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState
from syncscope.app.live_batch import LiveBatch


@pytest.fixture
def view(qtbot, qapp):
    apply_theme(qapp, DARK)
    view = LatencyView(ViewState(), VariantState())
    view.state = view._view
    qtbot.addWidget(view)
    view.resize(900, 220)
    with qtbot.waitExposed(view):
        view.show()
    return view


def show(view, recording):
    view.state.set_recording(recording)
    QTest.qWait(50)
    return recording


def made(ends, busy=400, simulated=True, **fields):
    """Record decode steps that end at some times."""
    trace = decode_run(ends, busy)
    recording = Recording({"simulated": simulated, "base_ns": 0, "device": {"name": "GPU 7"}})
    recording.extend(
        LiveBatch(
            "running",
            trace.spans,
            trace.sites,
            trace.phases,
            lanes=trace.lanes,
            steps_done=len(trace.phases),
            **fields,
        )
    )
    return recording


def place(view, step, us):
    """Return the pixel of a step and a time in the plot."""
    plot = view.plot
    return plot.mapFromScene(plot.box.mapViewToScene(QPointF(step, us)))


def us(ns):
    return f"{ns / 1000:,.2f}"


def test_the_figures_shown_are_the_models_of_the_last_two_plans(view):
    recording = show(view, recorded(toggled_run()))
    before, after = (recording.latency.figures(i) for i in (0, 1))
    step = recording.changes[1].step
    assert titles(view.figures) == ["µs, simulated", "baseline @0", f"all @{step}"]
    assert cells(view.figures) == [
        ["median", us(before.period_ns), us(after.period_ns)],
        ["p99", us(before.p99_ns), us(after.p99_ns)],
        ["host-blocked", us(before.blocked_ns), us(after.blocked_ns)],
        ["device busy", us(before.busy_ns), us(after.busy_ns)],
        ["device idle", us(before.idle_ns), us(after.idle_ns)],
        ["tokens", str(before.n_tokens), str(after.n_tokens)],
    ]
    (effect,) = recording.latency.effects()
    text = view.summary.text()
    assert f"all: median {us(after.period_ns)} µs per token, simulated (h200)" in text
    assert f"before, baseline: {us(before.period_ns)} µs" in text
    assert f"−{us(-effect.difference_ns)} µs" in text
    assert f"{before.period_ns / after.period_ns:.2f}× as fast" in text


def test_every_token_is_drawn_where_its_step_is(view):
    recording = show(view, recorded(toggled_run()))
    tokens = recording.latency.tokens()
    curves = view.plot.period, view.plot.busy, view.plot.blocked, view.plot.longest
    for token in tokens:
        at = int(np.searchsorted(curves[0].xData, token["step"]))
        assert curves[0].xData[at] == token["step"]
        period = (token["end_ns"] - token["begin_ns"]) / 1000
        shown = [float(each.yData[at]) for each in curves]
        expected = [period, token["busy_ns"] / 1000, token["blocked_ns"] / 1000, period]
        assert shown == pytest.approx(expected)


def test_busy_and_idle_time_stand_one_on_the_other_in_their_colours(view):
    for theme in (DARK, LIGHT):
        view.state.set_theme(theme)
        show(view, made(range(1000, 41_000, 1000)))
        image = picture(view.plot)
        at = place(view, 20.5, 0.2)
        assert near(pixel(image, at), busy_colour(theme)), theme.name
        at = place(view, 20.5, 0.7)
        assert near(pixel(image, at), idle_colour(theme)), theme.name
        at = place(view, 20.5, 1.15)
        assert near(pixel(image, at), theme.background), theme.name


def test_median_and_p99_are_lines_with_labels_over_the_steps_of_their_plan(view):
    recording = show(view, recorded(toggled_run()))
    step, end = recording.changes[1].step, recording.n_steps
    both = [recording.latency.figures(i) for i in (0, 1)]
    for curve, name in ((view.plot.medians, "period_ns"), (view.plot.p99s, "p99_ns")):
        assert curve.xData.tolist() == [0, step, step, end]
        values = [getattr(each, name) / 1000 for each in both]
        assert curve.yData.tolist() == pytest.approx(np.repeat(values, 2))
    assert view.plot.median_label.toPlainText() == f"median {us(both[1].period_ns)} µs"
    assert view.plot.p99_label.toPlainText() == f"p99 {us(both[1].p99_ns)} µs"
    assert view.plot.median_label.pos().y() == pytest.approx(both[1].period_ns / 1000)


def test_changes_of_plan_are_marked_and_named(view):
    recording = show(view, recorded(toggled_run()))
    step = recording.changes[1].step
    assert view.plot.changes.xData.tolist()[-2:] == [step, step]
    shown = [each for each in view.plot.change_labels if each.isVisible()]
    assert [each.toPlainText() for each in shown] == ["baseline", "all"]
    assert [each.pos().x() for each in shown][-1] == pytest.approx(step)


def test_the_histogram_lays_the_plan_before_over_the_one_that_runs(view):
    recording = show(view, recorded(toggled_run()))
    sets = [recording.latency.steady(i) for i in (0, 1)]
    before, now = histogram(sets, 40).counts
    assert view.histogram.before.isVisible()
    drawn = view.histogram.before.yData, view.histogram.now.yData
    for shares, counts in zip(drawn, (before, now), strict=True):
        assert shares.tolist() == pytest.approx((100 * counts / counts.sum()).tolist())
    assert view.histogram.legend.toPlainText() == "filled: all\ndashed: baseline"


def test_the_split_says_in_words_what_its_bars_show(view):
    recording = show(view, recorded(toggled_run()))
    figures = recording.latency.figures(1)
    text = view.split.accessibleDescription()
    assert f"busy {us(figures.busy_ns)} µs" in text
    assert f"idle {us(figures.idle_ns)} µs, {figures.idle_share:.0%}" in text
    assert f"blocked {us(figures.blocked_ns)} µs" in text
    image = picture(view.split)
    assert near(pixel(image, QPoint(view.split.width() // 2, 2)), busy_colour(DARK))


def test_many_tokens_are_brought_to_few_columns_and_the_panel_says_so(view):
    ends = np.cumsum(np.where(np.arange(5000) == 3777, 1500, 1000))
    show(view, made(ends.tolist()))
    assert len(view.plot.period.yData) <= MAX_COLUMNS
    assert view.note.text() == "downsampled 16:1 (areas: mean, line: longest)"
    assert view.plot.longest.yData.max() == pytest.approx(1.5)
    assert view.plot.period.yData.max() == pytest.approx((15 * 1000 + 1500) / 16 / 1000)


def test_labels_of_axes_stand_in_the_middle_whatever_they_say(view):
    axis = view.histogram.getAxis("bottom")
    for simulated in (True, False, True):
        show(view, made(range(1000, 41_000, 1000), simulated=simulated))
        middle = axis.label.pos().x() + axis.label.boundingRect().width() / 2
        assert abs(middle - axis.size().width() / 2) < 2, axis.labelText


def test_zooming_in_shows_single_tokens_again_and_0_shows_all(view):
    show(view, made(range(1000, 5_001_000, 1000)))
    middle = view.plot.viewport().rect().center()
    for _ in range(40):
        turn_wheel(view.plot.viewport(), middle, dy=120)
    QTest.qWait(30)
    x0, x1 = view.plot.box.viewRange()[0]
    assert x1 - x0 < 200
    assert view.note.text() == ""
    assert view.plot.period.xData[1] - view.plot.period.xData[0] == 1
    QTest.keyClick(view.plot, Qt.Key.Key_0)
    QTest.qWait(30)
    x0, x1 = view.plot.box.viewRange()[0]
    assert x1 - x0 > 4900


def test_one_slow_token_does_not_flatten_the_others_and_is_counted(view):
    ends = np.cumsum(np.where(np.arange(200) == 50, 90_000, 1000))
    show(view, made(ends.tolist()))
    assert view.plot.box.viewRange()[1][1] < 4
    assert view.note.text() == "1 beyond the top"


def test_a_click_on_a_token_shows_its_step_on_the_timeline(view):
    recording = show(view, recorded(toggled_run()))
    view.state.set_follow(True)
    QTest.mouseClick(view.plot.viewport(), Qt.MouseButton.LeftButton, pos=place(view, 30.5, 5))
    row = recording.rows.log.steps[30]
    t0, t1 = view.state.range
    assert t0 < row["begin_ns"] < row["end_ns"] < t1
    assert t1 - t0 < 1.2 * (row["end_ns"] - row["begin_ns"])
    assert not view.state.follow
    token = next(each for each in recording.latency.tokens() if each["step"] == 30)
    period = us(token["end_ns"] - token["begin_ns"])
    assert f"step 30: {period} µs" in view.token.text()
    assert "simulated" in view.token.text()


def test_keys_choose_a_token_and_enter_shows_it(view):
    recording = show(view, recorded(live_run(CLEAN)))
    steps = recording.latency.tokens()["step"].tolist()
    view.plot.setFocus()
    seen = []
    keys = (Qt.Key.Key_End, Qt.Key.Key_Left, Qt.Key.Key_PageUp, Qt.Key.Key_Home, Qt.Key.Key_Right)
    for key in keys:
        QTest.keyClick(view.plot, key)
        seen.append(view.plot.cursor_step)
    n = len(steps)
    assert seen == [steps[n - 1], steps[n - 2], steps[n - 12], steps[0], steps[1]]
    QTest.keyClick(view.plot, Qt.Key.Key_Return)
    row = recording.rows.log.steps[steps[1]]
    assert view.state.range[0] < row["begin_ns"] < row["end_ns"] < view.state.range[1]
    assert (
        QAccessible.queryAccessibleInterface(view.plot)
        .text(QAccessible.Text.Description)
        .startswith(f"step {steps[1]}")
    )


def test_keys_that_are_not_the_plots_go_to_the_window(view, qtbot):
    show(view, recorded(live_run(CLEAN)))
    view.plot.setFocus()
    before = view.plot.cursor_step
    QTest.keyClick(view.plot, Qt.Key.Key_F5)
    assert view.plot.cursor_step == before


def test_it_grows_with_the_run(view, qtbot):
    header, batches = toggled_run()
    recording = Recording(header)
    view.state.set_recording(recording)
    assert "no steady token yet" in view.summary.text()
    for each in batches:
        recording.extend(each)
        view.state.grow()
    n = str(recording.latency.figures(1).n_tokens)
    qtbot.waitUntil(lambda: cells(view.figures)[-1][2] == n)
    assert view.plot.period.xData[-1] == recording.latency.tokens()["step"][-1] + 1


def test_a_hidden_panel_catches_up_when_it_is_shown(view):
    header, batches = live_run(CLEAN)
    recording = Recording(header)
    view.state.set_recording(recording)
    view.hide()
    for each in batches:
        recording.extend(each)
        view.state.grow()
    QTest.qWait(150)
    assert cells(view.figures)[-1][2] == "–"
    view.show()
    assert cells(view.figures)[-1][2] == str(recording.latency.figures(0).n_tokens)


def test_times_of_a_device_are_said_to_be_measured(view):
    show(view, made(range(1000, 41_000, 1000), simulated=False))
    assert "measured (GPU 7)" in view.summary.text()
    assert titles(view.figures)[0] == "µs, measured"
    assert "measured" in view.plot.getAxis("left").labelText
    assert "measured" in view.histogram.getAxis("bottom").labelText


def test_figures_can_be_copied_as_text(view, qapp):
    show(view, recorded(toggled_run()))
    with clean_clipboard(qapp) as clipboard:
        QTest.mouseClick(view.copy, Qt.MouseButton.LeftButton)
        lines = [each.split("\t") for each in clipboard.text().splitlines()]
        assert lines == [titles(view.figures), *cells(view.figures)]
        view.figures.selectRow(1)
        QTest.keyClick(view.figures, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
        lines = [each.split("\t") for each in clipboard.text().splitlines()]
        assert lines == [titles(view.figures), cells(view.figures)[1]]


def test_a_screen_reader_can_read_the_figures(view):
    recording = show(view, recorded(toggled_run()))
    assert without_name(view) == []
    table = QAccessible.queryAccessibleInterface(view.figures)
    spoken = [table.child(i).text(QAccessible.Text.Name) for i in range(table.childCount())]
    assert "median" in spoken
    assert us(recording.latency.figures(1).period_ns) in spoken


def test_another_recording_forgets_the_chosen_token_and_the_zoom(view):
    show(view, made(range(1000, 5_001_000, 1000)))
    view.plot.set_cursor(40)
    turn_wheel(view.plot.viewport(), view.plot.viewport().rect().center(), dy=1200)
    show(view, made(range(1000, 41_000, 1000)))
    assert view.plot.cursor_step is None and not view.plot.cursor.isVisible()
    x0, x1 = view.plot.box.viewRange()[0]
    assert (round(x0), round(x1)) == (1, 40)
    view.state.set_recording(None)
    assert view.summary.text() == "nothing recorded yet"


@pytest.mark.parametrize("size", [(900, 220), (1280, 260), (640, 220)])
def test_no_label_is_cut(view, size):
    view.resize(*size)
    show(view, recorded(toggled_run()))
    view.plot.set_cursor(30)
    QTest.qWait(30)
    assert view.size().toTuple() == size
    assert cut_labels(view) == []


@pytest.mark.skipif("QT_SCALE_FACTOR" in os.environ, reason="is what this test runs")
def test_all_of_this_holds_at_scale_2():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    result = subprocess.run(
        command,
        env={**os.environ, "QT_SCALE_FACTOR": "2"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert "1 skipped" in result.stdout
