"""Drawing takes no reference from None: where it did (PySide6 6.12 on Python 3.11), apps died."""

import gc
import sys

import pytest
from PySide6.QtCore import QPoint

from helpers.timeline import MadeRecording, MadeRows, move_mouse
from syncscope.app.gui import lane_item
from syncscope.app.gui.theme import THEMES
from syncscope.app.gui.timeline_view import TimelineView
from syncscope.app.gui.view_state import ViewState

FRAMES = 300


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal")
def test_none_keeps_its_references_over_300_frames(qtbot, qapp, monkeypatch):
    drawn = []
    draw = lane_item.draw_overlay
    monkeypatch.setattr(lane_item, "draw_overlay", lambda *each: drawn.append(draw(*each) is None))
    rows = MadeRows()
    for key, kind, category in (
        ("host", "host", "host_api"),
        ("sync", "sync", "sync_redundant"),
        ("stream", "stream", "kernel"),
    ):
        rows.row(key, kind)
        for k in range(40):
            rows.span(key, 1000 * k, 1000 * k + 700, category, f"span.{k}", flags=k % 3)
    rows.joined = [(0, 40, 80)]
    rows.arrow_list = [(1000 * k + 100, 1000 * k + 500, 0, 2) for k in range(40)]
    view = TimelineView(ViewState())
    qtbot.addWidget(view)
    view.resize(800, 300)
    with qtbot.waitExposed(view):
        view.show()
    view.state.set_recording(MadeRecording(rows))

    def frame(k: int) -> None:
        view.state.set_range(100 * (k % 50), 20_000 + 100 * (k % 50))
        view.state.select((k // 5) % 120)
        view.state.measure((k, 3000 + 10 * k))
        view.state.set_theme(list(THEMES.values())[k % 2])
        move_mouse(view.plot.viewport(), QPoint(10 + 2 * k, 40))
        qapp.processEvents()

    for k in range(20):
        frame(k)
    gc.collect()  # what earlier tests left would give its references back during this one
    drawn.clear()
    before = sys.getrefcount(None)
    for k in range(20, 20 + FRAMES):
        frame(k)
    gc.collect()
    lost = before - sys.getrefcount(None)
    assert len(drawn) >= FRAMES
    assert lost < FRAMES  # a call that loses one is made at least once a frame
