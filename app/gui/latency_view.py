"""Time per token while a run goes on: plot, split, histogram, and all figures as text."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QSplitter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from syncscope.app.gui.latency_histogram import LatencyHistogram
from syncscope.app.gui.latency_plot import LatencyPlot
from syncscope.app.gui.latency_text import (
    figure_rows,
    figure_titles,
    segments,
    summary_text,
    token_text,
)
from syncscope.app.gui.origin import origin_word
from syncscope.app.gui.split_bar import SplitBar
from syncscope.app.gui.step_range import step_range
from syncscope.app.gui.text_table import TextTable, TextTableView
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState

REFRESH_MS = 100
"""Ten times a second: figures that change faster cannot be read."""

MIN_PX = (160, 120, 200)
SIZES = (420, 190, 280)
STRETCH = (5, 2, 1)
"""Of plot, histogram and figures: least width, width at first, share of more room."""


class LatencyView(QWidget):
    """Shows the latency model of the recording; choosing a token moves the timeline to its step."""

    def __init__(
        self, state: ViewState, variant: VariantState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("latency_view")
        self._view = state
        self.summary = QLabel()
        self.summary.setObjectName("latency_summary")
        self.summary.setAccessibleName("Time per token")
        self.summary.setWordWrap(True)
        self.summary.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.token = QLabel()
        self.token.setObjectName("latency_token")
        self.token.setAccessibleName("Chosen token")
        self.token.setWordWrap(True)
        self.note = QLabel()
        self.note.setObjectName("latency_note")
        self.note.setAccessibleName("What the plot leaves out")
        self.copy = QToolButton()
        self.copy.setText("Copy")
        self.copy.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.copy.setObjectName("latency_copy")
        self.copy.setAccessibleName("Copy the figures as text")
        self.plot = LatencyPlot(state)
        self.histogram = LatencyHistogram(state)
        self.split = SplitBar(state)
        self.model = TextTable(figure_titles((), {}), (1, 2), parent=self)
        self.figures = TextTableView("latency_figures", "Figures of the time per token")
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self.refresh)
        state.grown.connect(self._refresh_soon)
        state.recording_changed.connect(self.refresh)
        state.theme_changed.connect(self._show_theme)
        self.plot.chosen.connect(self._show_step)
        self.plot.pointed.connect(self._show_token)
        self.plot.noted.connect(self.note.setText)
        self.copy.clicked.connect(self.figures.copy)
        self.refresh()

    def _lay_out(self) -> None:
        self.figures.setModel(self.model)
        header = self.figures.horizontalHeader()
        header.setFixedHeight(self.fontMetrics().height() + 4)
        self.figures.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 2)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        header.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        top = QHBoxLayout()
        top.addWidget(self.summary, 1)
        top.addWidget(self.copy)
        texts = QWidget()
        column = QVBoxLayout(texts)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.split)
        column.addWidget(self.figures, 1)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setChildrenCollapsible(False)
        parts: tuple[QWidget, ...] = (self.plot, self.histogram, texts)
        for i, widget in enumerate(parts):
            widget.setMinimumWidth(MIN_PX[i])
            self.splitter.addWidget(widget)
            self.splitter.setStretchFactor(i, STRETCH[i])
        self.splitter.setSizes(list(SIZES))
        outer = QVBoxLayout(self)
        outer.setContentsMargins(4, 4, 4, 4)
        outer.setSpacing(2)
        outer.addLayout(top)
        outer.addWidget(self.splitter, 1)
        bottom = QHBoxLayout()
        bottom.addWidget(self.token, 1)
        bottom.addWidget(self.note)
        outer.addLayout(bottom)

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came in while nothing was to be seen."""
        super().showEvent(event)
        self.refresh()

    def _refresh_soon(self) -> None:
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def refresh(self) -> None:
        """Show how things stand."""
        recording = self._view.recording
        header = {} if recording is None else recording.header
        found = () if recording is None else segments(recording)
        self.summary.setText(summary_text(found, header))
        self.model.set_titles(figure_titles(found, header))
        self.model.set_rows(figure_rows(found))
        self.split.set_figures(found[-1].figures if found else None)
        latency = None if recording is None else recording.latency
        self.plot.show_tokens(recording, found)
        self.histogram.show_sets(
            [] if latency is None else [latency.steady(each.change) for each in found],
            [each.variant for each in found],
            origin_word(header) if header else "",
        )

    def _show_theme(self) -> None:
        self.plot.show_theme()
        self.histogram.show_theme()
        self.refresh()

    def _show_token(self, token: Any) -> None:
        recording = self._view.recording
        text = "" if token is None else token_text(token, recording.header)
        self.token.setText(text or "click a token, or choose one with the arrow keys and Enter")
        self.plot.setAccessibleDescription(text)

    def _show_step(self, step: int) -> None:
        """Show a step on the timeline."""
        window = step_range(self._view.recording, step)
        if window is not None:
            self._view.set_follow(False)
            self._view.set_range(*window, "token")
