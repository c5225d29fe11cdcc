"""How the window of time moves: zoom, pan, fit; every move by hand leaves follow mode."""

from __future__ import annotations

from collections.abc import Callable

from syncscope.app.gui.view_state import MIN_RANGE_NS, Range, ViewState

ZOOM = 0.8
"""What a notch of the wheel or a press of W leaves of the window."""

PAN = 0.1
MARGIN = 0.1
"""Room on either side of what is fitted, as a share of it."""

MOST = 4
"""How many times as long as the recording a window may be."""

LEAD = 0.02
"""Room behind the newest span when following, as a share of the window."""


class Navigation:
    """Moves the range of a ViewState.

    Parameters
    ----------
    state : ViewState
    extent : function
        Returns begin and end of the recording.
    """

    def __init__(self, state: ViewState, extent: Callable[[], Range]) -> None:
        self._state = state
        self._extent = extent

    def show(self, t0: int, t1: int, gesture: str) -> None:
        """Show a window, moved so that some of the recording is in it."""
        begin, end = self._extent()
        length = min(max(t1 - t0, MIN_RANGE_NS), max(MOST * (end - begin), MIN_RANGE_NS))
        if length != t1 - t0:
            t0 = (t0 + t1 - length) // 2
        t0 = min(max(t0, begin - length + length // 20), max(end - length // 20, begin))
        self._state.set_follow(False)
        self._state.set_range(t0, t0 + length, gesture)

    def zoom(self, factor: float, t: int) -> None:
        """Show `factor` times as much, with a time staying where it is."""
        t0, t1 = self._state.range
        self.show(t - round((t - t0) * factor), t + round((t1 - t) * factor), "zoom")

    def pan(self, share: float) -> None:
        """Move by a share of the window, later if it is positive."""
        t0, t1 = self._state.range
        by = round((t1 - t0) * share)
        self.show(t0 + by, t1 + by, "pan")

    def centre(self, t: int) -> None:
        """Put a time into the middle."""
        t0, t1 = self._state.range
        begin = t - (t1 - t0) // 2
        self.show(begin, begin + t1 - t0, "centre")

    def fit(self, t0: int, t1: int) -> None:
        """Show a range and a little beside it."""
        margin = max(round((t1 - t0) * MARGIN), MIN_RANGE_NS)
        self.show(t0 - margin, t1 + margin, "fit")

    def undo(self) -> None:
        """Go back to the window before the last gesture."""
        self._state.set_follow(False)
        self._state.undo_range()

    def redo(self) -> None:
        """Take the last undo back."""
        self._state.set_follow(False)
        self._state.redo_range()

    def show_all(self) -> None:
        """Show the whole recording."""
        begin, end = self._extent()
        self.show(begin, max(end, begin + MIN_RANGE_NS), "all")

    def keep_up(self) -> None:
        """Move to the newest span, if that is what the user wants."""
        if self._state.follow:
            t0, t1 = self._state.range
            end = self._extent()[1] + round((t1 - t0) * LEAD)
            self._state.set_range(end - (t1 - t0), end)
