"""The timeline: ruler, row titles, drawing area and scroll bars over one ViewState."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QGridLayout, QScrollBar, QToolButton, QWidget

from syncscope.app.gui.lane_item import LaneItem
from syncscope.app.gui.navigation import PAN, ZOOM, Navigation
from syncscope.app.gui.overlay import Scene
from syncscope.app.gui.range_statistics import RangeStatistics, range_statistics
from syncscope.app.gui.row_headers import HEADERS_PX, RowHeaders
from syncscope.app.gui.row_layout import Layout, Place, lay_out
from syncscope.app.gui.row_source import NoRows, Row, RowSource, Spot
from syncscope.app.gui.span_commands import SpanCommands
from syncscope.app.gui.span_labels import SpanLabels
from syncscope.app.gui.theme import CATEGORIES, TITLES, pattern_font
from syncscope.app.gui.time_ruler import TimeRuler
from syncscope.app.gui.time_text import duration_text
from syncscope.app.gui.time_window import TimeWindow
from syncscope.app.gui.timeline_plot import TimelinePlot, scroll_pixels
from syncscope.app.gui.view_state import NOTHING, Range, ViewState

HIT_PX = 2
MIN_STEP_PX = 12
"""Narrower steps have no border: they would cover everything."""

PAGE = 0.8
"""What PgUp and PgDown scroll, as a share of the height."""

BAR_STEPS = 10_000
"""Resolution of the scroll bar of time."""

NO_ROWS = NoRows()


class TimelineView(QWidget):
    """Draws the recording of a ViewState and lets the user move about in it.

    `commands` are what keys, menus and the command palette run; `timeline_keys` lists them.
    """

    def __init__(self, state: ViewState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.state = state
        self.navigation = Navigation(state, self._extent)
        self._spans = SpanCommands(state, lambda: self.source, self.navigation, self._pointer_time)
        self.row_layout = Layout((), 0, 0)
        self._scroll_px = 0
        self._statistics: RangeStatistics | None = None
        self._behind = False
        self._step_labels = SpanLabels(pattern_font())
        self.setObjectName("timeline")
        self.plot = TimelinePlot(self)
        self._item = LaneItem(self._scene)
        self.plot.box.addItem(self._item, ignoreBounds=True)
        self.headers = RowHeaders(state, self)
        self._rows_bar = QScrollBar(Qt.Orientation.Vertical, self)
        self._time_bar = QScrollBar(Qt.Orientation.Horizontal, self)
        self._follow = QToolButton(self)
        self._place_widgets()
        self.commands: Mapping[str, Callable[[], None]] = {
            "zoom_in": lambda: self.navigation.zoom(ZOOM, self._pointer_time()),
            "zoom_out": lambda: self.navigation.zoom(1 / ZOOM, self._pointer_time()),
            "pan_left": lambda: self.navigation.pan(-PAN),
            "pan_right": lambda: self.navigation.pan(PAN),
            "page_up": lambda: self.scroll_rows(-round(self.plot.height() * PAGE)),
            "page_down": lambda: self.scroll_rows(round(self.plot.height() * PAGE)),
            "show_all": self.navigation.show_all,
            "follow": lambda: state.set_follow(True),
            "undo_zoom": self.navigation.undo,
            "redo_zoom": self.navigation.redo,
            "toggle_buffers": lambda: state.arrange(state.arrangement.toggle_buffers()),
            **self._spans.commands,
        }
        self._connect()

    def _place_widgets(self) -> None:
        """Put ruler and titles around the drawing area."""
        self._follow.setText("Follow")
        self._follow.setCheckable(True)
        self._follow.setToolTip("Move with the newest span (Space)")
        self._follow.setAccessibleName("Follow the newest span")
        self._follow.setObjectName("follow")
        self._follow.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._rows_bar.setAccessibleName("Scroll rows")
        self._time_bar.setAccessibleName("Scroll time")
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(0)
        grid.addWidget(self._follow, 0, 0, Qt.AlignmentFlag.AlignCenter)
        grid.addWidget(TimeRuler(self.state, self), 0, 1)
        grid.addWidget(self.headers, 1, 0)
        grid.addWidget(self.plot, 1, 1)
        grid.addWidget(self._rows_bar, 1, 2)
        grid.addWidget(self._time_bar, 2, 1)
        grid.setColumnMinimumWidth(0, HEADERS_PX)
        grid.setColumnStretch(1, 1)
        self.setFocusProxy(self.plot)

    def _connect(self) -> None:
        state = self.state
        state.recording_changed.connect(self._show_recording)
        state.grown.connect(self._grow)
        state.range_changed.connect(self._show_range)
        state.rows_changed.connect(self.lay_out)
        state.selection_changed.connect(self._show_selection)
        for signal in (
            state.theme_changed,
            state.hover_changed,
            state.path_changed,
            state.marks_changed,
            state.watermark_changed,
        ):
            signal.connect(self._redraw)
        state.measured_changed.connect(self._measure)
        state.follow_changed.connect(self._show_follow)
        self.plot.resized.connect(self.lay_out)
        self._follow.clicked.connect(state.set_follow)
        self.headers.wheel.connect(lambda event: self.scroll_rows(scroll_pixels(event)))
        self._rows_bar.valueChanged.connect(lambda y: self.scroll_rows(y - self._scroll_px))
        self._time_bar.valueChanged.connect(self._scroll_time)

    # what is shown

    @property
    def source(self) -> RowSource:
        """Rows of the recording, and what joins their spans."""
        recording = self.state.recording
        rows: RowSource = NO_ROWS if recording is None else recording.rows
        return rows

    @property
    def rows(self) -> Sequence[Row]:
        """Rows in their natural order."""
        return self.source.rows

    def _extent(self) -> Range:
        return self.source.extent()

    def _scene(self, dpr: float) -> Scene:
        """Collect what one frame is drawn from."""
        window = self._window(dpr)
        steps = self.source.steps(window.t0, window.t1)
        return Scene(
            window=window,
            layout=self.row_layout,
            places={place.row: place for place in self.row_layout.uncovered},
            source=self.source,
            n_steps=len(steps),
            steps=tuple(steps) if len(steps) * MIN_STEP_PX <= window.width else (),
            state=self.state,
            statistics=self._statistics,
            pointer=self.plot.pointer,
            step_labels=self._step_labels,
            origin=self._origin(),
        )

    def _origin(self) -> str:
        """Say where times come from; empty before that is known."""
        recording = self.state.recording
        simulated = None if recording is None else recording.header.get("simulated")
        return "" if simulated is None else "simulated" if simulated else "measured"

    def _redraw(self, *_: object) -> None:
        """Draw what lies above the rows again."""
        self._item.update()

    def _show_recording(self) -> None:
        self._scroll_px = 0
        self._measure()
        self._item.changed()
        self.lay_out()
        self.navigation.show_all()

    def _grow(self) -> None:
        """Draw new spans; a hidden timeline catches up when it is shown."""
        self._behind = not self.isVisible()
        if self._behind:
            return
        self._item.changed()
        self.lay_out()
        self._measure()
        self.navigation.keep_up()
        self._set_time_bar()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came in while nothing was to be seen."""
        super().showEvent(event)
        if self._behind:
            self._grow()

    def lay_out(self) -> None:
        """Place the rows."""
        height = self.plot.height()
        layout = lay_out(self.rows, self.state.arrangement, self._scroll_px)
        most = max(layout.content_px - height, 0)
        if self._scroll_px > most:
            self._scroll_px = most
            layout = lay_out(self.rows, self.state.arrangement, most)
        with QSignalBlocker(self._rows_bar):
            self._rows_bar.setRange(0, most)
            self._rows_bar.setPageStep(height)
            self._rows_bar.setValue(self._scroll_px)
        self._rows_bar.setVisible(most > 0)
        self.headers.show_rows(self.rows, layout)
        if layout != self.row_layout:
            self.row_layout = layout
            self._item.update()

    def show_buffer(self, name: str) -> None:
        """Show who writes and who reads a buffer, and the rows of no other; empty for none.

        Raises
        ------
        KeyError
            If no plan that ran has such a buffer.
        """
        wanted = [row.key for row in self.source.buffer_rows(name)] if name else []
        self.state.arrange(self.state.arrangement.show_only(self.rows, wanted))
        self._item.changed()
        self.lay_out()
        for key in wanted:
            self._reveal_row(self.row_layout.of(key))

    def show_selection(self) -> None:
        """Bring the selected span into view."""
        spot = self._spans.selected()
        if spot is not None:
            self._reveal(spot)

    def scroll_rows(self, pixels: int) -> None:
        """Scroll the rows, down if positive."""
        scroll_px = max(self._scroll_px + pixels, 0)
        if scroll_px != self._scroll_px:
            self._scroll_px = scroll_px
            self.lay_out()

    def _show_range(self, t0: int, t1: int) -> None:
        self.plot.box.setXRange(t0, t1, padding=0)
        self._item.update()
        self._set_time_bar()

    def _set_time_bar(self) -> None:
        """Let the scroll bar show which part of the recording is in view."""
        (begin, end), (t0, t1) = self._extent(), self.state.range
        begin, end = min(begin, t0), max(end, t1)
        scale = BAR_STEPS / (end - begin)
        page = max(round((t1 - t0) * scale), 1)
        with QSignalBlocker(self._time_bar):
            self._time_bar.setRange(0, BAR_STEPS - page)
            self._time_bar.setPageStep(page)
            self._time_bar.setSingleStep(max(page // 10, 1))
            self._time_bar.setValue(round((t0 - begin) * scale))

    def _scroll_time(self, value: int) -> None:
        (begin, end), (t0, t1) = self._extent(), self.state.range
        begin, end = min(begin, t0), max(end, t1)
        start = begin + round(value / BAR_STEPS * (end - begin))
        self.navigation.show(start, start + t1 - t0, "bar")

    def _show_follow(self, on: bool) -> None:
        self._follow.setChecked(on)
        self.navigation.keep_up()

    def _measure(self) -> None:
        measured = self.state.measured
        self._statistics = None if measured is None else range_statistics(self.rows, *measured)
        self._item.update()

    # what is where

    def _window(self, dpr: float = 1.0) -> TimeWindow:
        size = self.plot.viewport().size()
        return TimeWindow(*self.state.range, max(size.width(), 1), max(size.height(), 1), dpr)

    def time_at(self, x: float) -> int:
        """Return the time at a pixel of the drawing area."""
        return self._window().t(x)

    def x_at(self, t: int) -> float:
        """Return the pixel of a time."""
        return self._window().x(t)

    def ref_at(self, x: float, y: float) -> int:
        """Return the ref of the span at a pixel, or near it; `NOTHING` if there is none."""
        place = self.row_layout.at(y)
        if place is None:
            return NOTHING
        window = self._window()
        lane = self.rows[place.row].lanes[place.lane_at(y)]
        index = lane.hit(window.t(x), round(window.ns_per_px * HIT_PX))
        return lane.get(index)[5] if index >= 0 else NOTHING

    def _pointer_time(self) -> int:
        """Return the time under the pointer, or in the middle if it is elsewhere."""
        pointer = self.plot.pointer
        return self.time_at(self.plot.width() / 2 if pointer is None else pointer.x())

    # selection

    def run(self, command: str) -> None:
        """Run a command."""
        self.commands[command]()

    def click(self, x: float, y: float) -> None:
        """Select what is at a pixel; on empty ground clear."""
        ref = self.ref_at(x, y)
        if ref == NOTHING:
            self._spans.clear()
        else:
            self.state.select(ref)

    def _show_selection(self, ref: int) -> None:
        """Bring what was selected into view, and tell it to a screen reader."""
        spot = self._spans.selected()
        if spot is not None:
            self._reveal(spot)
            name, title = self.source.names[spot.name], TITLES[CATEGORIES[spot.category]]
            length = duration_text(spot.end_ns - spot.begin_ns)
            self.plot.setAccessibleDescription(f"{name}, {title}, {length} {self._origin()}")
        else:
            self.plot.setAccessibleDescription("")
        self._item.update()

    def _reveal(self, spot: Spot) -> None:
        """Move as little as is needed to see a span."""
        t0, t1 = self.state.range
        if spot.end_ns <= t0 or spot.begin_ns >= t1:
            self.navigation.centre((spot.begin_ns + spot.end_ns) // 2)
        self._reveal_row(next((p for p in self.row_layout.places if p.row == spot.row), None))

    def _reveal_row(self, place: Place | None) -> None:
        """Scroll as little as is needed to see a row."""
        if place is None or place.pinned:
            return
        below = place.y + place.height - self.plot.height()
        above = place.y - self.row_layout.pinned_px
        if above < 0 or below > 0:
            self.scroll_rows(above if above < 0 else min(below, above))
