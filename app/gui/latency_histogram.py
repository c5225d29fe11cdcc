"""The histogram of times per token, of the plan that runs and of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QWidget

from syncscope.app.gui.latency_model import histogram
from syncscope.app.gui.theme import label_font
from syncscope.app.gui.view_state import ViewState

N_BINS = 40


class LatencyHistogram(pg.PlotWidget):
    """Draws shares of periods; the plan before as an outline over the filled one that runs."""

    def __init__(self, state: ViewState, parent: QWidget | None = None) -> None:
        super().__init__(parent, background=None)
        self._state = state
        self.setObjectName("latency_histogram")
        self.setAccessibleName("Histogram of the time per token")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        item = self.getPlotItem()
        item.setMouseEnabled(False, False)
        item.hideButtons()
        item.setMenuEnabled(False)
        item.getViewBox().disableAutoRange()
        for side in ("left", "bottom"):
            self.getAxis(side).enableAutoSIPrefix(False)
        self.now = pg.PlotCurveItem([0], [], stepMode="center", fillLevel=0)
        self.before = pg.PlotCurveItem([0], [], stepMode="center")
        for each in (self.now, self.before):
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
        for side in ("left", "bottom"):
            axis = self.getAxis(side)
            axis.setPen(theme.line)
            axis.setTextPen(theme.faint)
            axis.setTickFont(label_font())
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
        view.setYRange(0, (most or 1.0) * 1.05, padding=0)
        style = {"color": self._state.theme.faint, "font-size": "11px"}
        legend = f"µs ({how})" if how else "µs"
        if len(shares) > 1:
            legend += f": filled {names[-1]}, dashed {names[0]}"
        self.setLabel("bottom", legend, **style)
        self.setLabel("left", "% of tokens", **style)
        self.setAccessibleDescription(legend)
