"""The window as a whole, driven as a user does: runs, toggles, files, errors, keys, the end."""

import errno
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QFileDialog, QLabel, QLineEdit, QMessageBox

from syncscope.app.gui.actions import ACTIONS
from syncscope.app.gui.command_palette import CommandPalette
from syncscope.app.gui.key_sheet import KeySheet
from syncscope.app.gui.main_window import DOCKS, MainWindow
from syncscope.app.gui.settings import Settings
from syncscope.app.gui.span_log import CALL
from syncscope.app.gui.theme import DARK, LIGHT
from syncscope.app.gui.timeline_keys import BINDINGS
from syncscope.app.gui.turns import take_short_turns
from syncscope.app.gui.view_state import NOTHING
from syncscope.app.live import OVER
from syncscope.app.trace_changes import SWITCH_SITE
from syncscope.sched_core.passes.registry import PASSES
from syncscope.sched_core.pattern import plan_pattern

Button = QMessageBox.StandardButton
TOKENS = 6
SECONDS_MS = 20_000


@pytest.fixture
def make_window(qtbot, tmp_path, monkeypatch):
    """Return a function that makes windows with the same settings and spool folder."""
    made = []
    interval = sys.getswitchinterval()
    take_short_turns()

    def make():
        window = MainWindow(Settings(tmp_path / "settings.ini"), tmp_path / "runs")
        window.run_bar.tokens.setValue(TOKENS)
        made.append(window)
        window.show()
        qtbot.waitExposed(window)
        return window

    yield make
    sys.setswitchinterval(interval)
    monkeypatch.setattr(QMessageBox, "question", lambda *_: Button.Discard)
    for window in made:
        window.close()
        window.deleteLater()


@pytest.fixture
def window(make_window):
    return make_window()


def answer(monkeypatch, button):
    """Answer every question with a button; return the questions asked."""
    asked = []

    def question(parent, title, text, *_):
        asked.append(text)
        return button

    monkeypatch.setattr(QMessageBox, "question", question)
    return asked


def choose(monkeypatch, path):
    """Answer every question for a file to write."""
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))


def wait_idle(qtbot, window):
    qtbot.waitUntil(lambda: not window.tasks.running, timeout=SECONDS_MS)


def run_to_end(qtbot, window):
    window.actions_by_id["run"].trigger()
    qtbot.waitUntil(lambda: window.controller.state in OVER, timeout=SECONDS_MS)
    wait_idle(qtbot, window)
    assert window.controller.state == "finished"


def drop(window, *paths):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    event = QDropEvent(
        QPointF(300, 300),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    window.dropEvent(event)


def save(qtbot, window, monkeypatch, path):
    choose(monkeypatch, path)
    window.actions_by_id["save"].trigger()
    wait_idle(qtbot, window)


def test_a_new_window_says_what_to_do_and_has_all_panels(window):
    assert "F5" in window.banner.line.text()
    assert set(window.docks) == {name for name, _, _ in DOCKS}
    assert all(dock.isVisibleTo(window) for dock in window.docks.values())
    assert (window.width(), window.height()) == (1280, 720)


def test_f5_runs_to_the_end_with_text_and_rows(qtbot, window):
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    qtbot.keyClick(window, Qt.Key.Key_F5)
    qtbot.waitUntil(lambda: window.controller.state in OVER, timeout=SECONDS_MS)
    wait_idle(qtbot, window)
    recording = window.view.recording
    assert recording.n_steps == TOKENS
    assert len(recording.token_ids) == TOKENS
    output = window.panels["output"]
    window.docks["output"].raise_()
    qtbot.waitUntil(lambda: output.text.toPlainText() == recording.text)
    assert recording.text
    titles = [row.title for row in window.timeline.rows if any(len(each) for each in row.lanes)]
    assert "dev0.compute" in titles and "host thread 0: syncs" in titles
    assert "SIMULATED" in window.banner.line.text()
    assert f"{recording.n_spans:,} spans" in window.status.memory.text()
    qtbot.waitUntil(lambda: window.panels["sites"].model.rowCount() > 0)


def test_step_pause_and_stop(qtbot, window):
    window.run_bar.tokens.setValue(200)
    window.run_bar.speed.setCurrentText("1/1,000")
    window.actions_by_id["step"].trigger()
    qtbot.waitUntil(lambda: window.controller.state == "paused", timeout=SECONDS_MS)
    recording = window.view.recording
    assert recording.n_steps == 1
    window.actions_by_id["step"].trigger()
    qtbot.waitUntil(lambda: recording.n_steps == 2, timeout=SECONDS_MS)
    assert window.actions_by_id["pause"].isChecked()
    window.actions_by_id["pause"].trigger()
    qtbot.waitUntil(lambda: recording.n_steps > 4, timeout=SECONDS_MS)
    window.actions_by_id["stop"].trigger()
    qtbot.waitUntil(lambda: not window.controller.is_live, timeout=SECONDS_MS)
    assert window.controller.state == "stopped"
    assert recording.n_steps < 200
    assert not window.actions_by_id["stop"].isEnabled()


class Heartbeat:
    """Measures how long the window's thread was away."""

    def __init__(self, parent):
        self.longest_s, self._last = 0.0, time.perf_counter()
        self.timer = QTimer(parent)
        self.timer.setInterval(1)
        self.timer.timeout.connect(self._beat)
        self.timer.start()

    def _beat(self):
        now = time.perf_counter()
        self.longest_s, self._last = max(self.longest_s, now - self._last), now


def drains(recording):
    """Return at which steps a change of plan was drained for, with how often."""
    wanted = [i for i, each in enumerate(recording.sites) if each.name == SWITCH_SITE]
    spans = recording.spans
    return Counter(spans["step"][np.isin(spans["op"], wanted) & (spans["role"] == CALL)].tolist())


def test_each_pass_toggled_live_changes_the_pattern_after_one_drain(qtbot, window):
    window.run_bar.tokens.setValue(200)
    window.run_bar.repeat.setChecked(True)
    window.run_bar.speed.setCurrentText("1/100")
    window.variant.set_preset("no-graph")
    window.actions_by_id["run"].trigger()
    qtbot.waitUntil(lambda: window.controller.state == "running", timeout=SECONDS_MS)
    wait_idle(qtbot, window)
    panel, recording = window.optimisations, window.view.recording
    heartbeat = Heartbeat(window)
    toggled, steps = [], []
    for name in PASSES:
        wait_idle(qtbot, window)
        row = panel.rows[name]
        if "proved" not in row.line.text():
            continue
        n_changes = len(recording.changes)
        row.toggle.click()
        qtbot.waitUntil(lambda n=n_changes: len(recording.changes) > n, timeout=SECONDS_MS)
        change = recording.changes[-1]
        qtbot.waitUntil(lambda c=change: recording.n_steps > c.step + 1, timeout=SECONDS_MS)
        before, after = (each.planned.plan for each in recording.changes[-2:])
        assert any(each.partition("=")[0] == name for each in after.passes)
        if name != "cuda-graph":
            assert before.phases != after.phases or before.buffers != after.buffers
        steps.append(change.step)
        toggled.append((name, change.patterns.get("decode", "")))
    print(f"longest gap {heartbeat.longest_s * 1000:.0f} ms over {toggled}")
    window.actions_by_id["stop"].trigger()
    qtbot.waitUntil(lambda: not window.controller.is_live, timeout=SECONDS_MS)
    assert len(toggled) >= 4
    assert len({pattern for _, pattern in toggled}) >= 3
    last = recording.changes[-1].planned.plan
    assert recording.changes[-1].patterns["decode"] == plan_pattern(last.phases["decode"])
    assert heartbeat.longest_s < 2.0  # the bar is 0.05: analyses in threads of Python keep it away
    found = drains(recording)
    assert len(found) == len(steps) and set(found.values()) == {1}


def test_a_pass_switched_off_takes_those_that_need_it_along(window):
    needy = next(each for each in PASSES.values() if each.needs and each.needs[0] in PASSES)
    window.variant.set_preset("no-graph")
    window.variant.toggle_pass(needy.needs[0], True)
    window.variant.toggle_pass(needy.id, True)
    window.variant.toggle_pass(needy.needs[0], False)
    assert not window.variant.is_on(needy.id)


def test_a_saved_run_is_the_same_when_opened_or_dropped(qtbot, window, monkeypatch, tmp_path):
    path = tmp_path / "run.json"
    run_to_end(qtbot, window)
    first = window.view.recording
    save(qtbot, window, monkeypatch, path)
    assert not window.files.is_unsaved
    assert list((tmp_path / "runs").glob("*.spool")) == []
    drop(window, path)
    qtbot.waitUntil(lambda: window.view.recording is not first, timeout=SECONDS_MS)
    second = window.view.recording
    assert (second.spans == first.spans).all()
    assert second.sites == first.sites and second.phases == first.phases
    rows = [[each.row.site for each in recording.table.entries()] for recording in (first, second)]
    assert rows[0] == rows[1]
    assert str(path) in window.settings.recent


def test_two_files_dropped_are_compared(qtbot, window, monkeypatch, tmp_path):
    path = tmp_path / "run.json"
    run_to_end(qtbot, window)
    save(qtbot, window, monkeypatch, path)
    other = tmp_path / "other.json"
    other.write_bytes(path.read_bytes())
    drop(window, path, other)
    wait_idle(qtbot, window)
    qtbot.waitUntil(lambda: window.compare.other is not None, timeout=SECONDS_MS)


def test_a_bad_file_is_told_in_one_line_and_the_window_goes_on(qtbot, window, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("this is no timeline")
    drop(window, bad)
    qtbot.waitUntil(lambda: bool(window.banner.message.text()), timeout=SECONDS_MS)
    assert str(bad) in window.banner.message.text()
    assert "\n" not in window.banner.message.text()
    assert window.banner.message.isVisible()
    run_to_end(qtbot, window)


@pytest.mark.parametrize("action", ["save", "export_csv", "export_image"])
def test_a_full_disk_is_told_and_the_window_goes_on(qtbot, window, monkeypatch, tmp_path, action):
    run_to_end(qtbot, window)
    target = tmp_path / "out.file"
    choose(monkeypatch, target)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("syncscope.app.report.atomic.os.write", full)
        window.actions_by_id[action].trigger()
        wait_idle(qtbot, window)
        qtbot.waitUntil(lambda: bool(window.banner.message.text()), timeout=SECONDS_MS)
    assert "No space left" in window.banner.message.text()
    assert not target.exists()
    assert window.files.is_unsaved
    window.actions_by_id[action].trigger()
    wait_idle(qtbot, window)
    assert target.stat().st_size > 0


def test_a_range_is_exported_as_csv(qtbot, window, monkeypatch, tmp_path):
    run_to_end(qtbot, window)
    recording = window.view.recording
    begin, end = recording.steps_range(2, 3)
    window.view.measure((begin, end))
    choose(monkeypatch, tmp_path / "range.csv")
    window.actions_by_id["export_csv"].trigger()
    wait_idle(qtbot, window)
    lines = Path(tmp_path / "range.csv").read_text().splitlines()
    assert len(lines) - 1 == len(recording.refs_between(begin, end)) > 0


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_the_timeline_is_exported_as_picture(qtbot, window, monkeypatch, tmp_path, name, magic):
    run_to_end(qtbot, window)
    choose(monkeypatch, tmp_path / name)
    window.actions_by_id["export_image"].trigger()
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_an_unsaved_run_is_asked_about(qtbot, window, monkeypatch, tmp_path):
    run_to_end(qtbot, window)
    asked = answer(monkeypatch, Button.Cancel)
    assert not window.close()
    assert len(asked) == 1 and window.isVisible()
    asked = answer(monkeypatch, Button.Save)
    choose(monkeypatch, tmp_path / "kept.json")
    window.close()
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=SECONDS_MS)
    assert len(asked) == 1 and (tmp_path / "kept.json").exists()


def test_what_a_crash_left_is_offered(qtbot, make_window, monkeypatch, tmp_path):
    window = make_window()
    run_to_end(qtbot, window)
    n_spans = window.view.recording.n_spans
    window.controller.spool = None  # closed and forgotten, as a process that is gone does
    asked = answer(monkeypatch, Button.Open)
    other = make_window()
    other.files.offer_recovery(tmp_path / "runs")
    qtbot.waitUntil(lambda: other.view.recording is not None, timeout=SECONDS_MS)
    assert len(asked) == 1
    assert other.view.recording.n_spans == n_spans
    assert other.files.is_unsaved and "recovered" in other.banner.message.text()


def test_a_command_is_found_by_a_part_of_its_name(qtbot, window):
    window.actions_by_id["palette"].trigger()
    palette = window.findChild(CommandPalette)
    line = palette.findChild(QLineEdit)
    qtbot.keyClicks(line, "theme light")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert window.view.theme is LIGHT
    assert not palette.isVisible()


def test_the_key_sheet_lists_all_keys(window):
    window.actions_by_id["keys"].trigger()
    sheet = window.findChild(KeySheet)
    texts = {label.text() for label in sheet.findChildren(QLabel)}
    for each in ACTIONS:
        assert not each.keys or ", ".join(each.keys) in texts
    for each in BINDINGS:
        assert ", ".join(each.keys) in texts
    assert sheet.height() <= 720 and sheet.width() <= 1280
    sheet.close()


def test_theme_and_layout_are_remembered(qtbot, make_window):
    window = make_window()
    window.set_theme(LIGHT.name)
    window.docks["why"].hide()
    window.close()
    other = make_window()
    assert other.view.theme is LIGHT
    assert not other.docks["why"].isVisible() and other.docks["sites"].isVisibleTo(other)
    other.actions_by_id["reset_layout"].trigger()
    assert other.docks["why"].isVisible()
    other.set_theme(DARK.name)


def test_search_goes_from_hit_to_hit(qtbot, window, monkeypatch):
    run_to_end(qtbot, window)
    recording = window.view.recording
    monkeypatch.setattr(
        "syncscope.app.gui.view_commands.QInputDialog.getText", lambda *_, **__: ("redundant", True)
    )
    hits = recording.rows.search("redundant")
    assert len(hits) > 2
    seen = []
    for action in ("find", "find_next", "find_next", "find_previous"):
        window.actions_by_id[action].trigger()
        wait_idle(qtbot, window)
        before = seen[-1] if seen else NOTHING
        qtbot.waitUntil(lambda b=before: window.view.selection != b)
        seen.append(window.view.selection)
    assert seen == [hits[0], hits[1], hits[2], hits[1]]
