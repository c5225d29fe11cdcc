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
"""Up to so many thin arrows are drawn stronger and smooth."""


def draw_arrows(
    painter: QPainter,
    source: RowSource,
    window: TimeWindow,
    places: Mapping[int, Place],
    theme: Theme,
) -> None:
    """Draw the arrows of a window as thin lines from the edge of one row to that of another."""
    shown = [row for row in places if not places[row].collapsed]
    found = thinned(source.arrows(window.t0, window.t1, MAX_IN_VIEW), window)
    seen = np.isin(found[:, [1, 3]], shown).all(axis=1) & (found[:, 1] != found[:, 3])
    from_ns, from_row, to_ns, to_row = found[seen].T
    if not len(from_ns):
        return
    top, bottom = np.zeros((2, max(shown) + 1))
    for row in shown:
        top[row], bottom[row] = places[row].y, places[row].y + places[row].height
    down = top[from_row] < top[to_row]
    ends = np.stack(
        [
            (from_ns - window.t0) / window.ns_per_px,
            np.where(down, bottom[from_row], top[from_row]),
            (to_ns - window.t0) / window.ns_per_px,
            np.where(down, top[to_row], bottom[to_row]),
        ],
        axis=1,
    )
    few = len(from_ns) <= FEW
    colour = QColor(theme.text)
    colour.setAlpha(120 if few else 60)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, few)
    painter.setPen(QPen(colour, 1))
    painter.drawLines([QLineF(*each) for each in ends.tolist()])
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)


def thinned(arrows: npt.NDArray[Any], window: TimeWindow) -> npt.NDArray[np.int64]:
    """Keep one arrow of those that nobody could tell apart, at most `MAX_DRAWN`.

    Returns
    -------
    ndarray of int64, shape (n, 4)
        from_ns, from_row, to_ns, to_row.
    """
    columns = [arrows[each] for each in ("from_ns", "from_row", "to_ns", "to_row")]
    table = np.stack([each.astype(np.int64) for each in columns], axis=1)
    column = ((table[:, 0] - window.t0) / (window.ns_per_px * BIN_PX)).astype(np.int64)
    n_rows = int(table[:, [1, 3]].max(initial=0)) + 1
    _, first = np.unique((column * n_rows + table[:, 1]) * n_rows + table[:, 3], return_index=True)
    kept: npt.NDArray[np.int64] = table[np.sort(first)[:MAX_DRAWN]]
    return kept


def draw_arrow(
    painter: QPainter, begin: QRectF, x0: float, end: QRectF, x1: float, colour: str
) -> None:
    """Draw one bold arrow from a span at `x0` to another at `x1`.

    Between lanes it goes from edge to edge, within one in an arc above it.
    """
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
