"""Brings a window into a state worth a picture: work done, run over, a panel in front."""

from __future__ import annotations

import time

from PySide6.QtWidgets import QApplication, QWidget

from syncscope.app.gui.main_window import MainWindow

STEPS_SHOWN = 3
VERDICTS_SHOWN = ("redundant", "interchangeable", "required")
"""The first of them that is in sight is selected."""


def settle(app: QApplication, window: MainWindow, seconds: float) -> str:
    """Let files be read and the run end; return what is wrong, empty if nothing is."""
    deadline = time.monotonic() + seconds
    while window.tasks.running or window.controller.is_live:
        app.processEvents()
        time.sleep(0.005)
        if time.monotonic() > deadline:
            return f"nothing to show after {seconds:g} s"
    app.processEvents()
    if window.view.recording is None:
        return window.banner.message.text() or "nothing was recorded"
    return ""


def show_panel(app: QApplication, window: MainWindow, name: str) -> QWidget:
    """Bring a panel to the front with something selected in it, and return its widget."""
    window.view.set_follow(False)
    recording = window.view.recording
    first = max(0, recording.n_steps - STEPS_SHOWN - 1)
    begin, end = recording.steps_range(first, first + STEPS_SHOWN)
    window.view.set_range(begin, end)
    for verdict in VERDICTS_SHOWN:
        hits = recording.rows.search(verdict)
        seen = [each for each in hits if begin <= recording.span(int(each)).begin_ns < end]
        if seen:
            window.view.select(int(seen[0]))
            break
    if name in window.docks:
        window.docks[name].raise_()
    for _ in range(10):
        app.processEvents()
    if name == "window":
        return window
    return window.timeline if name == "timeline" else window.panels[name]
