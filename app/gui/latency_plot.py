"""The plot of the time per token: areas, figures as lines, changes of plan, a token to choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QPointF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QWidget

from syncscope.app.gui.axes import dress, set_label
from syncscope.app.gui.latency_model import TOKEN
from syncscope.app.gui.latency_text import Segment, change_labels, columns_text, us
from syncscope.app.gui.origin import origin_word
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.split_bar import blocked_colour, busy_colour, idle_colour
from syncscope.app.gui.theme import label_font
from syncscope.app.gui.token_columns import n_beyond, token_columns, top_us
from syncscope.app.gui.view_state import ViewState

MAX_COLUMNS = 512
MAX_CHANGES = 64
"""So many of the newest changes of plan are marked."""

MAX_LABELS = 24
HEADROOM = 1.3
"""Room above what is drawn, for the names of plans."""

MIN_STEPS = 4
"""So many steps fill the plot when it is zoomed in most."""

PAGE = 10
"""Tokens that PgUp and PgDown go."""

CLICK_PX = 4


class LatencyPlot(pg.PlotWidget):
    """Draws the tokens of a recording, and lets one be chosen.

    `chosen` tells the step that was clicked or entered, `pointed` the token that is marked, `noted`
    what of the tokens cannot be seen.

    Left and right choose a token, PgUp and PgDn ten on, Home and End the first and the last; Enter
    shows it on the timeline, 0 shows all tokens.  The wheel zooms, a drag moves.
    """

    chosen = Signal(object)
    pointed = Signal(object)
    noted = Signal(str)

    def __init__(self, state: ViewState, parent: QWidget | None = None) -> None:
        super().__init__(parent, background=None)
        self._state = state
        self._tokens: npt.NDArray[Any] = np.zeros(0, TOKEN)
        self._recording: Recording | None = None
        self._segments: Sequence[Segment] = ()
        self._window: tuple[float, float] | None = None
        self._press: QPointF | None = None
        self.cursor_step: int | None = None
        self.setObjectName("latency_plot")
        self.setAccessibleName("Time per token")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.box = self.getPlotItem().getViewBox()
        self.box.setMouseEnabled(x=True, y=False)
        self.box.setMenuEnabled(False)
        self.box.disableAutoRange()
        self.box.setLimits(minXRange=MIN_STEPS)
        self.getPlotItem().hideButtons()
        self.getPlotItem().setMenuEnabled(False)
        self.period = pg.PlotCurveItem([0], [], stepMode="center", fillLevel=0)
        self.busy = pg.PlotCurveItem([0], [], stepMode="center", fillLevel=0)
        self.blocked = pg.PlotCurveItem([0], [], stepMode="center", connect="finite")
        self.longest = pg.PlotCurveItem([0], [], stepMode="center", connect="finite")
        self.medians = pg.PlotCurveItem(connect="pairs")
        self.p99s = pg.PlotCurveItem(connect="pairs")
        self.changes = pg.PlotCurveItem(connect="pairs")
        self.cursor = pg.InfiniteLine(angle=90, movable=False)
        self.cursor.hide()
        self.median_label = pg.TextItem(anchor=(1, 0))
        self.p99_label = pg.TextItem(anchor=(1, 1))
        self.change_labels = [pg.TextItem(anchor=(0, 0)) for _ in range(MAX_LABELS)]
        curves = (self.period, self.busy, self.longest, self.blocked, self.changes)
        lines = (self.p99s, self.medians, self.cursor, self.median_label, self.p99_label)
        for each in (*curves, *lines, *self.change_labels):
            self.addItem(each, ignoreBounds=True)
        for each in (self.median_label, self.p99_label, *self.change_labels):
            each.hide()
        self._redraw = QTimer(self)
        self._redraw.setSingleShot(True)
        self._redraw.timeout.connect(self._draw)
        self.box.sigRangeChangedManually.connect(self._moved)
        self.box.sigResized.connect(lambda _: self._redraw.start())
        self.show_theme()

    # ---- what is shown --------------------------------------------------------------------------

    def show_theme(self) -> None:
        """Take the colours of the theme."""
        theme = self._state.theme
        self.period.setBrush(QColor(idle_colour(theme)))
        self.period.setPen(None)
        self.busy.setBrush(QColor(busy_colour(theme)))
        self.busy.setPen(None)
        self.blocked.setPen(pg.mkPen(blocked_colour(theme), width=2))
        self.longest.setPen(pg.mkPen(theme.faint, width=1))
        self.medians.setPen(pg.mkPen(theme.text, width=2))
        self.p99s.setPen(pg.mkPen(theme.text, width=2, style=Qt.PenStyle.DashLine))
        self.changes.setPen(pg.mkPen(theme.faint, width=1, style=Qt.PenStyle.DashLine))
        self.cursor.setPen(pg.mkPen(theme.hazard, width=1))
        for each in (self.median_label, self.p99_label, *self.change_labels):
            each.setColor(theme.text)
            each.setFont(label_font())
            fill = QColor(theme.background)
            fill.setAlpha(200)
            each.fill = pg.mkBrush(fill)
        for side in ("left", "bottom"):
            dress(self.getAxis(side), theme)
        self.setBackground(theme.background)
        self._draw()

    def show_tokens(self, recording: Recording | None, found: Sequence[Segment]) -> None:
        """Show how things stand."""
        if recording is not self._recording:
            self._window = None
            self.set_cursor(None)
        self._recording, self._segments = recording, found
        self._tokens = np.zeros(0, TOKEN) if recording is None else recording.latency.tokens()
        self._draw()

    @property
    def _extent(self) -> tuple[int, int]:
        """First and last step that there is."""
        if not len(self._tokens):
            return 0, 1
        return int(self._tokens["step"][0]), int(self._tokens["step"][-1])

    def show_all(self) -> None:
        """Show all tokens, and those to come."""
        self._window = None
        self._draw()

    def _moved(self, _: Any = None) -> None:
        """Note what the user zoomed or moved to; at the newest token it goes on with the run."""
        (x0, x1), (first, last) = self.box.viewRange()[0], self._extent
        wide = x1 - x0 >= last + 1 - first
        self._window = None if wide else (x0, x1)
        self._redraw.start()

    def _draw(self) -> None:
        recording = self._recording
        header = {} if recording is None else recording.header
        how = f" ({origin_word(header)})" if header else ""
        first, last = self._extent
        x0, x1 = self._window or (float(first), float(last + 1))
        shown = (max(first, int(x0)), min(last, int(np.ceil(x1))))
        most = min(max(int(self.box.width()), 2), MAX_COLUMNS)
        columns = token_columns(self._tokens, *shown, most)
        now = self._segments[-1].figures.period_ns / 1000 if self._segments else 0.0
        top = top_us(columns, now)
        for curve, values in ((self.period, columns.period_us), (self.busy, columns.busy_us)):
            curve.setData(columns.edges, np.nan_to_num(values))
        for curve, values in (
            (self.blocked, columns.blocked_us),
            (self.longest, columns.longest_us),
        ):
            curve.setData(columns.edges, values)
        self.box.setXRange(x0, x1, padding=0)
        self.box.setYRange(0, top * HEADROOM, padding=0)
        self._draw_figures(x0, x1)
        self._draw_changes(x0, x1, top * HEADROOM)
        beyond = n_beyond(columns, top * HEADROOM)
        set_label(self.getAxis("left"), f"µs{how}", self._state.theme)
        set_label(self.getAxis("bottom"), "step", self._state.theme)
        self.noted.emit(columns_text(columns.steps_per_column, beyond))

    def _draw_figures(self, x0: float, x1: float) -> None:
        """Draw median and p99 over the steps of each plan; the newest have labels."""
        xs = [x for each in self._segments for x in (each.step, each.end)]
        for curve, name in ((self.medians, "period_ns"), (self.p99s, "p99_ns")):
            ys = [getattr(each.figures, name) / 1000 for each in self._segments]
            curve.setData(np.array(xs, float), np.repeat(np.array(ys, float), 2))
        labels = (self.median_label, self.p99_label)
        for label in labels:
            label.setVisible(bool(self._segments))
        if self._segments:
            figures = self._segments[-1].figures
            texts = (f"median {us(figures.period_ns)} µs", f"p99 {us(figures.p99_ns)} µs")
            values = (figures.period_ns, figures.p99_ns)
            right = min(x1, float(self._segments[-1].end))
            for label, text, value in zip(labels, texts, values, strict=True):
                label.setText(text)
                label.setPos(max(right, x0 + 0.2 * (x1 - x0)), value / 1000)

    def _draw_changes(self, x0: float, x1: float, top: float) -> None:
        """Mark where plans begin, and name as many as there is room for."""
        recording = self._recording
        every = () if recording is None else recording.changes[-MAX_CHANGES:]
        seen = [each for each in every if x0 <= each.step < x1]
        running = [each for each in every if each.step < x0][-1:]
        steps = np.repeat(np.array([each.step for each in seen], float), 2)
        self.changes.setData(steps, np.tile([0.0, top], len(seen)))
        named = [*running, *seen]
        texts = [each.planned.variant.id for each in named]
        metrics = QFontMetricsF(label_font())
        scale = max(self.box.width(), 1) / (x1 - x0)
        places = [(max(each.step, x0) - x0) * scale for each in named]
        widths = [metrics.horizontalAdvance(text) + 8 for text in texts]
        kept = change_labels(places, widths)[-MAX_LABELS:]
        for label, i in zip(self.change_labels, kept, strict=False):
            label.setText(texts[i])
            label.setPos(x0 + places[i] / scale, top)
        for number, label in enumerate(self.change_labels):
            label.setVisible(number < len(kept))

    # ---- choosing a token -----------------------------------------------------------------------

    def token_at(self, x: float) -> Any | None:
        """Return the token nearest to a step; None if there is none."""
        if not len(self._tokens):
            return None
        steps = self._tokens["step"]
        at = int(np.clip(np.searchsorted(steps, x, side="right") - 1, 0, len(steps) - 1))
        return self._tokens[at]

    def set_cursor(self, step: int | None) -> None:
        """Mark the token of a step."""
        self.cursor_step = step
        self.cursor.setVisible(step is not None)
        if step is None:
            self.setAccessibleDescription("")
            self.pointed.emit(None)
            return
        self.cursor.setValue(step + 0.5)
        token = self.token_at(step)
        self.pointed.emit(token)

    def _go(self, by: int) -> None:
        if not len(self._tokens):
            return
        steps = self._tokens["step"]
        if self.cursor_step is None:
            at = len(steps) - 1
        else:
            at = int(np.searchsorted(steps, self.cursor_step)) + by
        step = int(steps[min(max(at, 0), len(steps) - 1)])
        if self._window is not None:
            (x0, x1), length = self._window, self._window[1] - self._window[0]
            if not x0 <= step < x1:
                self._window = (step - length / 2, step + length / 2)
                self._draw()
        self.set_cursor(step)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Choose a token, show it on the timeline, or show all tokens."""
        n = len(self._tokens)
        moves = {
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_PageUp: -PAGE,
            Qt.Key.Key_PageDown: PAGE,
            Qt.Key.Key_Home: -n,
            Qt.Key.Key_End: n,
        }
        key = Qt.Key(event.key())
        if key in moves:
            self._go(moves[key])
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.cursor_step is not None:
            self.chosen.emit(self.cursor_step)
        elif key == Qt.Key.Key_0:
            self.show_all()
        else:
            event.ignore()
            return
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin a click or a drag."""
        self._press = event.position()
        super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Choose the token that was clicked."""
        super().mouseReleaseEvent(event)
        press, self._press = self._press, None
        if press is None or event.button() != Qt.MouseButton.LeftButton:
            return
        if (event.position() - press).manhattanLength() < CLICK_PX:
            at = self.box.mapSceneToView(self.mapToScene(event.position().toPoint()))
            token = self.token_at(at.x())
            if token is not None:
                self.set_cursor(int(token["step"]))
                self.chosen.emit(self.cursor_step)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Show all tokens."""
        self.show_all()
