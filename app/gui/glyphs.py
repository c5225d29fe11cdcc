"""Small shapes that say what a colour says: the verdict of a sync, an open row, a pin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPen, QPolygonF

GLYPH_PX = 10
"""Side of a glyph in logical pixels."""


def _bar(painter: QPainter, colour: QColor) -> None:
    painter.fillRect(QRectF(3.5, 0.5, 3, 9), colour)


def _cross(painter: QPainter, colour: QColor) -> None:
    painter.setPen(QPen(colour, 2, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
    painter.drawLine(QPointF(2, 2), QPointF(8, 8))
    painter.drawLine(QPointF(2, 8), QPointF(8, 2))


def _loop(painter: QPainter, colour: QColor) -> None:
    painter.setPen(QPen(colour, 1.6))
    painter.drawArc(QRectF(1.5, 1.5, 7, 7), 40 * 16, 280 * 16)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawPolygon(QPolygonF([QPointF(6.2, 0.8), QPointF(9.8, 1.4), QPointF(8, 4.6)]))


def _swap(painter: QPainter, colour: QColor) -> None:
    painter.setPen(QPen(colour, 1.4))
    painter.drawLine(QPointF(1, 3), QPointF(7, 3))
    painter.drawLine(QPointF(3, 7), QPointF(9, 7))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawPolygon(QPolygonF([QPointF(6.5, 0.6), QPointF(9.6, 3), QPointF(6.5, 5.2)]))
    painter.drawPolygon(QPolygonF([QPointF(3.5, 4.8), QPointF(0.4, 7), QPointF(3.5, 9.4)]))


def _question(painter: QPainter, colour: QColor) -> None:
    painter.setPen(QPen(colour, 1.6, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
    path = QPainterPath(QPointF(3, 3))
    path.cubicTo(QPointF(3, 0.4), QPointF(7.2, 0.4), QPointF(7.2, 2.8))
    path.cubicTo(QPointF(7.2, 4.4), QPointF(5, 4.4), QPointF(5, 6.2))
    painter.drawPath(path)
    painter.fillRect(QRectF(4.1, 7.8, 1.8, 1.8), colour)


def _closed(painter: QPainter, colour: QColor) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawPolygon(QPolygonF([QPointF(3, 1), QPointF(8, 5), QPointF(3, 9)]))


def _open(painter: QPainter, colour: QColor) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawPolygon(QPolygonF([QPointF(1, 3), QPointF(9, 3), QPointF(5, 8)]))


def _pin(painter: QPainter, colour: QColor) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawRect(QRectF(3.2, 0.5, 3.6, 4))
    painter.drawRect(QRectF(1.6, 4.3, 6.8, 1.6))
    painter.drawRect(QRectF(4.5, 5.5, 1, 4.2))


_SHAPES: Mapping[str, Callable[[QPainter, QColor], None]] = {
    "bar": _bar,
    "cross": _cross,
    "loop": _loop,
    "swap": _swap,
    "question": _question,
    "closed": _closed,
    "open": _open,
    "pin": _pin,
}


@lru_cache(maxsize=256)
def glyph(name: str, colour: str, dpr: float = 1.0, size: int = GLYPH_PX) -> QImage:
    """Return a shape on nothing, `size` logical pixels wide and high.

    Parameters
    ----------
    name : str
        A value of `theme.GLYPHS`, ``closed``, ``open`` or ``pin``.
    colour : str
        ``#rrggbb``.
    dpr : float
        Device pixels per logical pixel.
    size : int
    """
    side = round(size * dpr)
    image = QImage(side, side, QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(dpr)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.scale(size / GLYPH_PX, size / GLYPH_PX)
    _SHAPES[name](painter, QColor(colour))
    painter.end()
    return image
