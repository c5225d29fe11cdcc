"""The histogram of times per token, of the plan that runs and of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFontMetricsF
from PySide6.QtWidgets import QWidget

from syncscope.app.gui.axes import dress, set_label
from syncscope.app.gui.latency_model import histogram
from syncscope.app.gui.theme import label_font
from syncscope.app.gui.view_state import ViewState

N_BINS = 40
HEADROOM = 1.4
"""Room above the highest bar, for the legend."""


class LatencyHistogram(pg.PlotWidget):
    """Draws shares of periods; the plan before as an outline over the filled one that runs."""

    def __init__(self, state: ViewState, parent: QWidget | None = None) -> None:
        super().__init__(parent, background=None)
        self._state = state
        self._lines: Sequence[str] = ()
        self.setObjectName("latency_histogram")
        self.setAccessibleName("Histogram of the time per token")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        item = self.getPlotItem()
        item.setMouseEnabled(False, False)
        item.hideButtons()
        item.setMenuEnabled(False)
        item.getViewBox().disableAutoRange()
        item.getViewBox().sigResized.connect(lambda _: self._draw_legend())
        self.now = pg.PlotCurveItem([0], [], stepMode="center", fillLevel=0)
        self.before = pg.PlotCurveItem([0], [], stepMode="center")
        self.legend = pg.TextItem(anchor=(1, 0))
        for each in (self.now, self.before, self.legend):
            self.addItem(each, ignoreBounds=True)
        self.show_theme()

    def show_theme(self) -> None:
        """Take the colours of the theme."""
        theme = self._state.theme
        fill = QColor(theme.accent)
        fill.setAlpha(150)
        self.now.setBrush(fill)
        self.now.setPen(pg.mkPen(theme.accent, width=1))
        self.before.setPen(pg.mkPen(theme.text, width=1, style=Qt.PenStyle.DashLine))
        self.legend.setColor(theme.text)
        self.legend.setFont(label_font())
        for side in ("left", "bottom"):
            dress(self.getAxis(side), theme)
        self.setBackground(theme.background)

    def show_sets(self, sets: Sequence[npt.NDArray[Any]], names: Sequence[str], how: str) -> None:
        """Show the tokens of one plan, or of two, the one that runs last; say which is which."""
        found = histogram(sets, N_BINS)
        edges = found.edges_ns / 1000
        shares = [100 * each / max(int(each.sum()), 1) for each in found.counts]
        nothing = np.zeros(len(edges) - 1)
        self.now.setData(edges, shares[-1] if shares else nothing)
        self.before.setData(edges, shares[0] if len(shares) > 1 else nothing)
        self.before.setVisible(len(shares) > 1)
        most = max((float(each.max()) for each in shares), default=1.0)
        view = self.getPlotItem().getViewBox()
        view.setXRange(float(edges[0]), float(edges[-1]), padding=0.02)
        top = (most or 1.0) * HEADROOM
        view.setYRange(0, top, padding=0)
        set_label(self.getAxis("bottom"), f"µs ({how})" if how else "µs", self._state.theme)
        set_label(self.getAxis("left"), "% of tokens", self._state.theme)
        lines = [f"{'filled' if i else 'dashed'}: {name}" for i, name in enumerate(names)]
        self._lines = lines[::-1] if len(shares) > 1 else []
        self.setAccessibleDescription(", ".join(self._lines))
        self._draw_legend()

    def _draw_legend(self) -> None:
        """Write which plan is which into the corner, cut to the room there is."""
        (_, right), (_, top) = self.getPlotItem().getViewBox().viewRange()
        metrics, middle = QFontMetricsF(label_font()), Qt.TextElideMode.ElideMiddle
        room = self.getPlotItem().getViewBox().width() - 12
        self.legend.setText(
            "\n".join(metrics.elidedText(each, middle, room) for each in self._lines)
        )
        self.legend.setPos(right, top)
