"""Arrows between spans: all that are in view as thin lines, single ones as bold curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen, QPolygonF

from syncscope.app.gui.row_layout import Place
from syncscope.app.gui.row_source import RowSource
from syncscope.app.gui.theme import Theme
from syncscope.app.gui.time_window import TimeWindow

MAX_IN_VIEW = 2000
"""From so many arrows on none is drawn: they would cover everything."""

MAX_DRAWN = 300
BIN_PX = 3
"""Of arrows between the same rows that begin within so many pixels, one is drawn."""

HEAD_PX = 6
FEW = 60
"""Up to so many thin arrows are drawn a little stronger."""


def draw_arrows(
    painter: QPainter,
    source: RowSource,
    window: TimeWindow,
    places: Mapping[int, Place],
    theme: Theme,
) -> None:
    """Draw the arrows of a window as thin lines from the edge of one row to that of another."""
    lines = []
    found = thinned(source.arrows(window.t0, window.t1, MAX_IN_VIEW), window)
    for from_ns, from_row, to_ns, to_row in found.tolist():
        begin, end = places.get(from_row), places.get(to_row)
        if begin is None or end is None or begin is end:
            continue
        down = begin.y < end.y
        y0 = begin.y + begin.height if down else begin.y
        y1 = end.y if down else end.y + end.height
        lines.append(QLineF(window.x(from_ns), y0, window.x(to_ns), y1))
    colour = QColor(theme.text)
    colour.setAlpha(120 if len(lines) <= FEW else 60)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(colour, 1))
    painter.drawLines(lines)
    painter.restore()


def thinned(arrows: npt.NDArray[Any], window: TimeWindow) -> npt.NDArray[np.int64]:
    """Keep one arrow of those that nobody could tell apart, at most `MAX_DRAWN`.

    Returns
    -------
    ndarray of int64, shape (n, 4)
        from_ns, from_row, to_ns, to_row.
    """
    columns = [arrows[each] for each in ("from_ns", "from_row", "to_ns", "to_row")]
    table = np.stack([each.astype(np.int64) for each in columns], axis=1)
    column = (table[:, 0] - window.t0) / (window.ns_per_px * BIN_PX)
    seen = np.stack([column.astype(np.int64), table[:, 1], table[:, 3]], axis=1)
    _, first = np.unique(seen, axis=0, return_index=True)
    return table[np.sort(first)[:MAX_DRAWN]]


def draw_arrow(painter: QPainter, begin: QRectF, end: QRectF, colour: str) -> None:
    """Draw one bold arrow from a span to the begin of a later one.

    It leaves where the later span begins, if the earlier one still runs then, and at its end if
    not; between lanes it goes from edge to edge, within one in an arc above it.
    """
    x0 = min(max(end.left(), begin.left()), begin.right())
    x1 = end.left()
    if begin.bottom() <= end.top():
        start, tip, towards = QPointF(x0, begin.bottom()), QPointF(x1, end.top()), 1.0
    elif end.bottom() <= begin.top():
        start, tip, towards = QPointF(x0, begin.top()), QPointF(x1, end.bottom()), -1.0
    else:
        start, tip, towards = QPointF(x0, begin.top()), QPointF(x1, end.top()), 0.0
    bend = QPointF(0, (tip.y() - start.y()) * 0.6 if towards else -begin.height() * 0.7)
    head = QPointF(0, -HEAD_PX * (towards or 1.0))
    path = QPainterPath(start)
    path.cubicTo(start + bend, tip - bend if towards else tip + bend, tip + head)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(colour), 1.6))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPath(path)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(colour))
    side = QPointF(HEAD_PX / 2, 0)
    painter.drawPolygon(QPolygonF([tip, tip + head - side, tip + head + side]))
    painter.restore()
