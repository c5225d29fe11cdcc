"""The time axis above the rows, with what is measured and marked."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QWidget

from syncscope.app.gui.theme import label_font
from syncscope.app.gui.time_text import Ticks, ticks
from syncscope.app.gui.time_window import TimeWindow
from syncscope.app.gui.view_state import ViewState

RULER_PX = 30
TICK_PX = 110
"""The least distance of two ticks."""

FLAG_PX = 7


def window_ticks(window: TimeWindow) -> Ticks:
    """Return the ticks of a window, as close as their labels allow."""
    return ticks(window.t0, window.t1, max(int(window.width / TICK_PX), 2))


class TimeRuler(QWidget):
    """Shows the times of the window; relative to the run's start."""

    def __init__(self, state: ViewState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.setFixedHeight(RULER_PX)
        self.setAccessibleName("Time axis")
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        for signal in (
            state.range_changed,
            state.measured_changed,
            state.marks_changed,
            state.theme_changed,
        ):
            signal.connect(self.update)

    def sizeHint(self) -> QSize:
        """As wide as there is room."""
        return QSize(400, RULER_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw ticks, their labels, and the ranges."""
        painter = QPainter(self)
        try:
            self._draw(painter)
        finally:
            painter.end()

    def _draw(self, painter: QPainter) -> None:
        theme = self._state.theme
        window = TimeWindow(*self._state.range, self.width(), self.height())
        painter.fillRect(self.rect(), QColor(theme.panel))
        font = label_font()
        painter.setFont(font)
        metrics = QFontMetricsF(font)
        found = window_ticks(window)
        baseline = RULER_PX - 11
        reserved = 0.0
        if found.base:
            painter.setPen(QColor(theme.text))
            painter.drawText(QPointF(4, baseline), found.base)
            reserved = metrics.horizontalAdvance(found.base) + 10
        painter.fillRect(QRectF(0, RULER_PX - 1, window.width, 1), QColor(theme.line))
        dpr = self.devicePixelRatioF()
        for t, text in found.labels:
            x = window.x(t)
            at = int(x * dpr) / dpr
            painter.fillRect(QRectF(at, RULER_PX - 7, 1, 7), QColor(theme.line))
            width = metrics.horizontalAdvance(text)
            if x + 4 >= reserved and x + 4 + width <= window.width:
                painter.setPen(QColor(theme.faint))
                painter.drawText(QPointF(x + 4, baseline), text)
        self._draw_ranges(painter, window)

    def _draw_ranges(self, painter: QPainter, window: TimeWindow) -> None:
        """Draw the measured range as a bar, marks as numbered flags."""
        theme = self._state.theme
        if self._state.measured is not None:
            left, right = (window.x(t) for t in self._state.measured)
            painter.fillRect(QRectF(left, RULER_PX - 4, right - left, 4), QColor(theme.accent))
        painter.setPen(Qt.PenStyle.NoPen)
        for begin, end in self._state.marks:
            left, right = window.x(begin), window.x(end)
            painter.setBrush(QColor(theme.faint))
            painter.drawRect(QRectF(left, 0, max(right - left, 1), 3))
            flag = [QPointF(left, 0), QPointF(left + FLAG_PX, 4), QPointF(left, 8)]
            painter.drawPolygon(QPolygonF(flag))
