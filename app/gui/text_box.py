"""A few lines of text in a box on the drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from syncscope.app.gui.theme import Theme, label_font
from syncscope.app.gui.time_window import TimeWindow

MARGIN_PX = 7
SWATCH_PX = 8


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, behind a patch of colour if it has one."""

    text: str
    swatch: str = ""


def draw_box(
    painter: QPainter, at: QPointF, lines: Sequence[Line], theme: Theme, window: TimeWindow
) -> QRectF:
    """Draw lines in a box at a point, moved so that it lies in the window; return where it is."""
    font = label_font()
    metrics = QFontMetricsF(font)
    indent = SWATCH_PX + MARGIN_PX if any(each.swatch for each in lines) else 0
    width = indent + max(metrics.horizontalAdvance(each.text) for each in lines) + 2 * MARGIN_PX
    height = len(lines) * metrics.height() + 2 * MARGIN_PX
    x = max(min(at.x(), window.width - width - 1), 0)
    y = max(min(at.y(), window.height - height - 1), 0)
    box = QRectF(x, y, width, height)
    fill = QColor(theme.field)
    fill.setAlpha(240)
    painter.setPen(QPen(QColor(theme.line), 1))
    painter.setBrush(fill)
    painter.drawRoundedRect(box, 3, 3)
    painter.setFont(font)
    for k, line in enumerate(lines):
        top = y + MARGIN_PX + k * metrics.height()
        if line.swatch:
            centre = top + (metrics.height() - SWATCH_PX) / 2
            painter.fillRect(
                QRectF(x + MARGIN_PX, centre, SWATCH_PX, SWATCH_PX), QColor(line.swatch)
            )
        painter.setPen(QColor(theme.text if k == 0 else theme.faint))
        left = x + MARGIN_PX + (indent if line.swatch else 0)
        painter.drawText(QPointF(left, top + metrics.ascent()), line.text)
    return box
