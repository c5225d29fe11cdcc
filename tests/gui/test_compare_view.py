"""Two runs in the compare panel: aligned by step, subtracted by site, said in words."""

import threading

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from helpers.panels import (
    CLEAN,
    RACY,
    cells,
    cut_labels,
    has_colour,
    live_run,
    picture,
    recorded,
    titles,
    toggled_run,
    without_name,
)
from helpers.recordings import mid_run, whole
from helpers.timeline import drag, turn_wheel
from syncscope.app.gui import compare_view
from syncscope.app.gui.compare_model import align, site_differences
from syncscope.app.gui.compare_view import CompareView
from syncscope.app.gui.follower import Follower
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.theme import CATEGORIES, DARK, LIGHT, apply_theme
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState


@pytest.fixture
def view(qtbot, qapp):
    apply_theme(qapp, DARK)
    view = CompareView(ViewState(), VariantState())
    view.state = view._view
    qtbot.addWidget(view)
    view.resize(1100, 500)
    with qtbot.waitExposed(view):
        view.show()
    yield view
    view.tasks.end_all()
    qtbot.waitUntil(lambda: not view.tasks.running)


def compared(view, qtbot, first, second):
    """Show two runs and wait until they are compared."""
    view.state.set_recording(first)
    view.set_other(second)
    qtbot.waitUntil(lambda: view.comparison is not None and not view.tasks.running)


def us(ns):
    return f"{ns / 1000:,.2f}"


def begin_of(recording, step):
    return int(recording.rows.log.steps[step]["begin_ns"])


def test_time_per_token_of_both_is_said_with_difference_and_speed_up(view, qtbot):
    first, second = recorded(live_run(CLEAN)), recorded(toggled_run())
    compared(view, qtbot, first, second)
    one, two = (each.latency.figures().period_ns for each in (first, second))
    text = view.step.text()
    assert f"first: {us(one)} µs (simulated)" in text
    assert f"second: {us(two)} µs (simulated)" in text
    assert f"difference −{us(one - two)} µs, {one / two:.2f}× as fast" in text
    assert view.names["first"].text() == "first: baseline; simulated (h200)"
    assert view.names["second"].text() == "second: baseline, all; simulated (h200)"


def test_a_measured_run_beside_a_simulated_one_is_pointed_out(view, qtbot):
    header, batches = live_run(CLEAN)
    measured = recorded(({**header, "simulated": False, "device": {"name": "GPU 7"}}, batches))
    compared(view, qtbot, measured, recorded(live_run(CLEAN)))
    assert "(measured)" in view.step.text() and "(simulated)" in view.step.text()
    assert "one is simulated, the other measured" in view.step.text()
    assert view.names["first"].text() == "first: baseline; measured (GPU 7)"


def test_the_table_is_the_difference_of_the_site_tables(view, qtbot):
    first, second = recorded(live_run(CLEAN)), recorded(toggled_run())
    compared(view, qtbot, first, second)
    expected = site_differences(first.table.entries(), second.table.entries())
    shown = [dict(zip(titles(view.table), row, strict=True)) for row in cells(view.table)]
    assert len(shown) == len(expected) > 20
    for row, each in zip(shown, expected, strict=True):
        assert (row["phase"], row["site"], row["kind"]) == (each.phase, each.site, each.kind)
        for title, entry in (("first", each.first), ("second", each.second)):
            if entry is None:
                assert row[title] == row[f"{title} µs"] == "–"
            else:
                assert float(row[title]) == pytest.approx(entry.row.per_step, rel=0.01)
                assert row[f"{title} µs"] == f"{entry.row.wait_us:,.2f}"
        waits = float(row["Δ wait µs"].replace("−", "-").replace(",", ""))
        assert waits == pytest.approx(each.wait_us, abs=0.005)
        word = row["change"].split()[1]
        assert (word == "gone") == (each.second is None)
        assert (word == "new") == (each.first is None)
    assert {row["change"].split()[1] for row in shown} >= {"new", "same"}


def test_columns_sort_by_their_numbers(view, qtbot):
    compared(view, qtbot, recorded(live_run(CLEAN)), recorded(toggled_run()))
    column = titles(view.table).index("Δ wait µs")
    header = view.table.horizontalHeader()
    at = QPoint(header.sectionViewportPosition(column) + 10, header.height() // 2)
    orders = []
    for _ in range(2):
        QTest.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
        texts = [row[column].replace("−", "-").replace(",", "") for row in cells(view.table)]
        orders.append([float(each) for each in texts])
    assert orders[0] == sorted(orders[0]) != orders[0][::-1]
    assert orders[1] == orders[0][::-1]


def test_steps_that_go_together_stand_above_each_other(view, qtbot):
    first, second = recorded(live_run(CLEAN)), recorded(live_run(RACY))
    compared(view, qtbot, first, second)
    steps = view.comparison.alignment
    for step in steps.first.tolist()[::5]:
        begin = begin_of(first, step)
        view.state.set_range(begin - 20_000, begin + 20_010)
        partner = steps.partner(step)
        assert view.first.x_at(begin) == pytest.approx(
            view.second.x_at(begin_of(second, partner)), abs=1.0
        )
        assert view.aligned.text() == f"step {step} of the first above step {partner} of the second"


def test_moving_either_run_moves_the_other(view, qtbot):
    first, second = recorded(live_run(CLEAN)), recorded(toggled_run())
    compared(view, qtbot, first, second)
    view.state.set_range(begin_of(first, 10), begin_of(first, 14))
    for timeline in (view.first, view.second):
        before = view.state.range, view.other.range
        middle = timeline.plot.viewport().rect().center()
        turn_wheel(
            timeline.plot.viewport(), middle, dy=120, held=Qt.KeyboardModifier.ControlModifier
        )
        drag(timeline.plot.viewport(), middle, middle + QPoint(90, 0), Qt.MouseButton.MiddleButton)
        assert view.state.range[0] != before[0][0] and view.other.range[0] != before[1][0]
        lengths = [b - a for a, b in (view.state.range, view.other.range)]
        assert lengths[0] == lengths[1] < before[0][1] - before[0][0]
        offset = view.comparison.alignment.offset_at(view.follower.step)
        assert view.state.range[0] - view.other.range[0] == offset


def test_opening_the_second_leaves_the_window_of_time_where_it_is(view, qtbot):
    first = recorded(live_run(CLEAN))
    view.state.set_recording(first)
    view.state.set_range(begin_of(first, 5), begin_of(first, 9))
    before = view.state.range
    view.set_other(recorded(toggled_run()))
    qtbot.waitUntil(lambda: view.comparison is not None)
    assert view.state.range == before


def test_both_runs_are_drawn_in_the_colours_of_the_theme(view, qtbot):
    recording = whole(*mid_run())
    compared(view, qtbot, recording, recorded(live_run(CLEAN)))
    view.state.set_range(begin_of(recording, 4), begin_of(recording, 6))
    for theme in (LIGHT, DARK):
        view.state.set_theme(theme)
        QTest.qWait(50)
        for timeline in (view.first, view.second):
            image = picture(timeline.plot)
            assert has_colour(image, theme.categories[CATEGORIES.index("kernel")]), theme.name
            assert has_colour(image, theme.background), theme.name


def test_without_a_second_run_it_says_what_to_do(view, qtbot):
    assert view.hint.isVisible()
    assert "Compare with" in view.hint.text()
    view.set_other(recorded(live_run(CLEAN)))
    assert view.hint.isVisible()
    assert "Run something" in view.hint.text()
    view.state.set_recording(recorded(live_run(CLEAN)))
    assert not view.hint.isVisible()
    qtbot.waitUntil(lambda: view.comparison is not None)
    view.set_other(None)
    assert view.hint.isVisible() and view.comparison is None


def test_runs_are_compared_outside_the_windows_thread(view, qtbot, monkeypatch):
    threads = []

    def noted(*sides):
        threads.append(threading.current_thread())
        return compare(*sides)

    compare = compare_view.compare
    monkeypatch.setattr(compare_view, "compare", noted)
    compared(view, qtbot, recorded(live_run(CLEAN)), recorded(toggled_run()))
    assert threads and threading.main_thread() not in threads


def test_a_run_that_goes_on_is_compared_anew(view, qtbot):
    header, batches = live_run(CLEAN)
    recording = Recording(header)
    recording.extend(batches[0])
    compared(view, qtbot, recording, recorded(live_run(CLEAN)))
    assert "no steady token" in view.step.text()
    for each in batches[1:]:
        recording.extend(each)
        view.state.grow()
    median = us(recording.latency.figures().period_ns)
    qtbot.waitUntil(lambda: f"first: {median} µs" in view.step.text(), timeout=10_000)
    assert len(view.comparison.alignment) == len(recording.phases)


def test_the_comparison_of_runs_that_are_gone_is_not_shown(view, qtbot):
    first, second = recorded(live_run(CLEAN)), recorded(toggled_run())
    compared(view, qtbot, first, second)
    late = view.comparison
    view.set_other(None)
    view._show(first, second, late)
    assert view.comparison is None


def test_everything_has_a_name_and_no_label_is_cut(view, qtbot):
    compared(view, qtbot, recorded(live_run(CLEAN)), recorded(toggled_run()))
    assert without_name(view) == []
    for size in ((900, 220), (1280, 600)):
        view.resize(*size)
        QTest.qWait(50)
        assert view.size().toTuple() == size
        assert cut_labels(view) == []


def test_a_follower_without_an_alignment_shows_the_same_times(qapp):
    first, second = ViewState(), ViewState()
    follower = Follower(first, second)
    first.set_recording(whole(*mid_run()))
    follower.set_second(whole(*mid_run()))
    first.set_range(1000, 90_000)
    assert second.range == (1000, 90_000)
    second.set_range(5000, 94_000)
    assert first.range == (5000, 94_000)


def test_a_follower_stays_by_the_step_in_the_middle(qapp):
    first, second = ViewState(), ViewState()
    follower = Follower(first, second)
    recording = whole(*mid_run())
    first.set_recording(recording)
    follower.set_second(whole(*mid_run()))
    steps = recording.rows.log.steps
    begins = steps.view(steps.head, steps.tail)["begin_ns"]
    follower.set_alignment(align((recording.phases,) * 2, (begins, begins * 2)))
    for step in (3, 5):
        middle = int(begins[step]) + 10
        first.set_range(middle - 1000, middle + 1000)
        assert follower.step == step
        assert second.range[0] == first.range[0] + int(begins[step])
