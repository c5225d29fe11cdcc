"""Lets the window of a second recording move with that of the first, aligned by step."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from syncscope.app.gui.compare_model import Alignment
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.view_state import ViewState


class Follower(QObject):
    """Keeps two ranges an offset apart: that of the step in the middle of the first window.

    Whichever of the two is moved, the other goes along.

    Attributes
    ----------
    step : int
        The step of the first run whose offset counts, -1 if none does.
    offset_ns : int
        What is added to a time of the second run.
    """

    moved = Signal()

    def __init__(self, first: ViewState, second: ViewState, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._first, self._second = first, second
        self._alignment: Alignment | None = None
        self._moving = False
        self.step = -1
        self.offset_ns = 0
        first.range_changed.connect(lambda *_: self.move_second())
        second.range_changed.connect(lambda *_: self._move_first())

    def set_second(self, recording: Recording | None) -> None:
        """Show another second run; the first window stays where it is."""
        self._moving = True
        self._second.set_recording(recording)
        self._moving = False
        self.set_alignment(None)

    def set_alignment(self, alignment: Alignment | None) -> None:
        """Align by these steps; None: not at all."""
        self._alignment = alignment
        self.move_second()

    def move_second(self) -> None:
        """Show in the second run what goes with the window of the first."""
        if self._moving or self._first.recording is None or self._second.recording is None:
            return
        t0, t1 = self._first.range
        self.step = self._step_at((t0 + t1) // 2)
        self.offset_ns = 0 if self._alignment is None else self._alignment.offset_at(self.step)
        self._moving = True
        self._second.set_range(t0 - self.offset_ns, t1 - self.offset_ns)
        self._moving = False
        self.moved.emit()

    def _move_first(self) -> None:
        """Move the first window as the second was moved, then align by the step that is there."""
        if self._moving or self._first.recording is None:
            return
        t0, t1 = self._second.range
        self._first.set_follow(False)
        self._first.set_range(t0 + self.offset_ns, t1 + self.offset_ns, "compare")

    def _step_at(self, t: int) -> int:
        """Return the step of the first run at a time, or the nearest."""
        found = self._first.recording.rows.log.begun(t, t + 1)
        return int(found[-1]) if len(found) else self._first.recording.base_step
