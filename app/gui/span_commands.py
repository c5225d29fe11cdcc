"""What keys do with the selected span: go on from it, zoom to it, measure and mark it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncscope.app.gui.categories import CATEGORIES
from syncscope.app.gui.navigation import Navigation
from syncscope.app.gui.row_source import RowSource, Spot, find_span
from syncscope.app.gui.view_state import NOTHING, ViewState

ANY_CATEGORY = (1 << len(CATEGORIES)) - 1


class SpanCommands:
    """Commands on the selection of a ViewState.

    Parameters
    ----------
    state : ViewState
    source : function
        Returns the rows of the recording.
    navigation : Navigation
    pointer_time : function
        Returns the time under the pointer.
    """

    def __init__(
        self,
        state: ViewState,
        source: Callable[[], RowSource],
        navigation: Navigation,
        pointer_time: Callable[[], int],
    ) -> None:
        self._state = state
        self._source = source
        self._navigation = navigation
        self._pointer_time = pointer_time
        self.commands: Mapping[str, Callable[[], None]] = {
            "focus_selection": self.focus,
            "fit_selection": self.fit,
            "zoom_to_range": self.zoom_to_range,
            "next_span": lambda: self.step_in_lane(1),
            "previous_span": lambda: self.step_in_lane(-1),
            "next_dependency": lambda: self.step_along(1, 0),
            "last_dependency": lambda: self.step_along(1, -1),
            "previous_dependency": lambda: self.step_along(-1, 0),
            "first_dependency": lambda: self.step_along(-1, -1),
            "measure_selection": self.measure,
            "mark": self.mark,
            "unmark": lambda: state.set_marks(state.marks[:-1]),
            "clear": self.clear,
        }

    def selected(self) -> Spot | None:
        """Return the selected span; None if there is none, or no longer."""
        return find_span(self._source().rows, self._state.selection)

    def clear(self) -> None:
        """Select and measure nothing."""
        self._state.select(NOTHING)
        self._state.set_path(())
        self._state.measure(None)

    def focus(self) -> None:
        """Centre the selection; zoom to it if it is centred."""
        spot = self.selected()
        if spot is None:
            return
        before = self._state.range
        self._navigation.centre((spot.begin_ns + spot.end_ns) // 2)
        if self._state.range == before:
            self.fit()

    def fit(self) -> None:
        """Zoom to the selection."""
        spot = self.selected()
        if spot is not None:
            self._navigation.fit(spot.begin_ns, spot.end_ns)

    def zoom_to_range(self) -> None:
        """Zoom to what is measured, or else to the selection."""
        if self._state.measured is not None:
            self._navigation.fit(*self._state.measured)
        else:
            self.fit()

    def step_in_lane(self, direction: int) -> None:
        """Select the span after (1) or before (-1) the selected one."""
        spot = self.selected()
        if spot is not None:
            lane = self._source().rows[spot.row].lanes[spot.lane]
            index = lane.neighbour(spot.index, direction, ANY_CATEGORY)
            if index >= 0:
                self._state.select(lane.get(index)[5])

    def step_along(self, direction: int, which: int) -> None:
        """Select what is joined to the selection: the nearest (0) or the last (-1) that way."""
        spot = self.selected()
        if spot is None:
            return
        path = self._state.path
        refs = path if spot.ref in path else self._source().links(spot.ref)
        found = [find_span(self._source().rows, ref) for ref in refs if ref != spot.ref]
        others = sorted(
            (each for each in found if each is not None),
            key=lambda each: (each.begin_ns, each.ref),
            reverse=direction < 0,
        )
        here = (spot.begin_ns, spot.ref)
        later = direction > 0
        there = [each for each in others if ((each.begin_ns, each.ref) > here) == later]
        if there:
            self._state.select(there[which].ref)

    def measure(self) -> None:
        """Measure the selection."""
        spot = self.selected()
        if spot is not None:
            self._state.measure((spot.begin_ns, spot.end_ns))

    def mark(self) -> None:
        """Keep what is measured, or what is selected, or where the pointer is."""
        spot = self.selected()
        if self._state.measured is not None:
            mark = self._state.measured
        elif spot is not None:
            mark = (spot.begin_ns, spot.end_ns)
        else:
            mark = (self._pointer_time(),) * 2
        if mark not in self._state.marks:
            self._state.set_marks((*self._state.marks, mark))
