"""What the views of a window share: recording, selection, range, theme, rows; and who must know."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, Signal

from syncscope.app.gui.row_layout import Arrangement
from syncscope.app.gui.theme import DARK, Theme

NOTHING = -1
"""The ref of no span."""

MIN_RANGE_NS = 20
"""The shortest window; below it nothing is left to see."""

MAX_HISTORY = 100

Range = tuple[int, int]


class ViewState(QObject):
    """Data that views read, setters that tell them; nothing is drawn or computed here.

    Times are nanoseconds from the run's start.  Refs are numbers of spans in the recording.
    Signals carry Python integers: a C++ int is too short for both.

    Attributes
    ----------
    recording : Recording or None
    selection, hover : int
        Ref of a span, or `NOTHING`.
    path : tuple of int
        Refs that the selected reason leads through, in order.
    range : (int, int)
        The window of time that is shown.
    measured : (int, int) or None
        The range whose statistics are shown.
    marks : tuple of (int, int)
        Ranges that are kept; a moment has equal ends.
    theme : Theme
    follow : bool
        Whether the window moves with the newest span.
    watermark : str
        Written across the drawing, as of a run that is not proved to be right.
    arrangement : Arrangement
        Order, pins and folds of the rows.
    """

    recording_changed = Signal()
    grown = Signal()
    selection_changed = Signal(object)
    hover_changed = Signal(object)
    path_changed = Signal()
    range_changed = Signal(object, object)
    measured_changed = Signal()
    marks_changed = Signal()
    theme_changed = Signal()
    rows_changed = Signal()
    follow_changed = Signal(bool)
    watermark_changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.recording: Any = None
        self.selection = NOTHING
        self.hover = NOTHING
        self.path: tuple[int, ...] = ()
        self.range: Range = (0, 1_000_000)
        self.measured: Range | None = None
        self.marks: tuple[Range, ...] = ()
        self.theme: Theme = DARK
        self.follow = False
        self.watermark = ""
        self.arrangement = Arrangement()
        self._back: list[Range] = []
        self._forward: list[Range] = []
        self._gesture = ""

    def set_recording(self, recording: Any) -> None:
        """Show another recording; what was selected in the old one is forgotten."""
        self.recording = recording
        self.selection = self.hover = NOTHING
        self.path, self.measured, self.marks = (), None, ()
        self._back, self._forward, self._gesture = [], [], ""
        self.recording_changed.emit()

    def grow(self) -> None:
        """Tell that the recording has new spans."""
        self.grown.emit()

    def select(self, ref: int) -> None:
        """Select a span; `NOTHING` clears the selection."""
        if ref != self.selection:
            self.selection = ref
            self.selection_changed.emit(ref)

    def set_hover(self, ref: int) -> None:
        """Say which span is under the pointer."""
        if ref != self.hover:
            self.hover = ref
            self.hover_changed.emit(ref)

    def set_path(self, refs: tuple[int, ...]) -> None:
        """Show the path of a reason."""
        if refs != self.path:
            self.path = refs
            self.path_changed.emit()

    def set_range(self, t0: int, t1: int, gesture: str = "") -> None:
        """Show a window of time.

        Parameters
        ----------
        t0, t1 : int
            Widened to `MIN_RANGE_NS` if it is shorter.
        gesture : str
            What moved it, as ``zoom``; undo goes back to before a run of the same gesture.  Empty:
            not to be undone, as when following.
        """
        if t1 - t0 < MIN_RANGE_NS:
            t0 -= (MIN_RANGE_NS - (t1 - t0)) // 2
            t1 = t0 + MIN_RANGE_NS
        if (t0, t1) == self.range:
            return
        if gesture and gesture != self._gesture:
            self._back = [*self._back[1 - MAX_HISTORY :], self.range]
            self._forward = []
        self._gesture = gesture
        self._show(t0, t1)

    def undo_range(self) -> None:
        """Go back to the window before the last gesture."""
        if self._back:
            self._forward.append(self.range)
            self._gesture = ""
            self._show(*self._back.pop())

    def redo_range(self) -> None:
        """Take the last undo back."""
        if self._forward:
            self._back.append(self.range)
            self._gesture = ""
            self._show(*self._forward.pop())

    def _show(self, t0: int, t1: int) -> None:
        self.range = (t0, t1)
        self.range_changed.emit(t0, t1)

    def measure(self, measured: Range | None) -> None:
        """Measure a range, None for none."""
        if measured is not None:
            measured = (min(measured), max(measured))
        if measured != self.measured:
            self.measured = measured
            self.measured_changed.emit()

    def set_marks(self, marks: tuple[Range, ...]) -> None:
        """Keep these ranges."""
        if marks != self.marks:
            self.marks = marks
            self.marks_changed.emit()

    def set_theme(self, theme: Theme) -> None:
        """Draw in another theme."""
        if theme != self.theme:
            self.theme = theme
            self.theme_changed.emit()

    def set_follow(self, on: bool) -> None:
        """Move the window with the newest span, or leave it where it is."""
        if on != self.follow:
            self.follow = on
            self.follow_changed.emit(on)

    def set_watermark(self, text: str) -> None:
        """Write a text across the drawing; empty for none."""
        if text != self.watermark:
            self.watermark = text
            self.watermark_changed.emit()

    def arrange(self, arrangement: Arrangement) -> None:
        """Order, pin, fold and hide rows."""
        if arrangement != self.arrangement:
            self.arrangement = arrangement
            self.rows_changed.emit()
