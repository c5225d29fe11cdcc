"""Two runs, one above the other, aligned by step; and how they differ site by site."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QSortFilterProxyModel, Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QLabel,
    QScrollBar,
    QSplitter,
    QStackedLayout,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from syncscope.app.gui.compare_model import Comparison, compare, side
from syncscope.app.gui.compare_text import (
    NUMBERS,
    TIPS,
    TITLES,
    WIDTHS,
    alignment_text,
    difference_rows,
    run_name,
    step_text,
)
from syncscope.app.gui.follower import Follower
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.tasks import Progress, Tasks
from syncscope.app.gui.text_table import TextTable, TextTableView
from syncscope.app.gui.timeline_view import TimelineView
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState

REFRESH_MS = 1000
"""How often a run that goes on is compared anew."""

MIN_ROWS_PX = 28
TITLE = "compare two runs"
NOTHING = (
    "Nothing to compare yet. Open a second recording with File, Compare with… (Ctrl+Shift+O), "
    "or drop two recordings onto the window."
)
NO_FIRST = "Run something or open a recording: it is then compared with the second one."


class CompareView(QWidget):
    """Shows the recording of the window above another one.

    Parameters
    ----------
    state : ViewState
    variant : VariantState
    parent : QWidget or None
    tasks : Tasks or None
        Where comparisons are made; if None, there are tasks for them alone.

    Attributes
    ----------
    tasks : Tasks
    other : ViewState
        What is shown of the second run; its window of time moves with that of the first.
    comparison : Comparison or None
        What is shown.
    """

    def __init__(
        self,
        state: ViewState,
        variant: VariantState,
        parent: QWidget | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("compare_view")
        self._view = state
        self.other = ViewState(self)
        self.tasks = tasks or Tasks(self)
        self.comparison: Comparison | None = None
        self.follower = Follower(state, self.other, self)
        self.step = self._label("compare_step", "Time per token of both runs")
        self.aligned = self._label("compare_aligned", "Alignment")
        self.names: dict[str, QLabel] = {}
        self.first = self._timeline(state, "first")
        self.second = self._timeline(self.other, "second")
        self.model = TextTable(TITLES, NUMBERS, TIPS, self)
        self.sorter = QSortFilterProxyModel(self)
        self.sorter.setSourceModel(self.model)
        self.sorter.setSortRole(Qt.ItemDataRole.UserRole)
        self.table = TextTableView("compare_table", "Differences by site")
        self.table.setModel(self.sorter)
        self.table.setSortingEnabled(True)
        self.table.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        for i, width in enumerate(WIDTHS):
            self.table.setColumnWidth(i, width)
        self.hint = self._label("compare_hint", "What to do")
        self.hint.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self._refresh_if_done)
        state.grown.connect(self._refresh_soon)
        state.recording_changed.connect(self.refresh)
        state.theme_changed.connect(self._show_theme)
        state.rows_changed.connect(self._arrange)
        self.follower.moved.connect(self._show_alignment)
        self._show_theme()
        self.refresh()

    def _label(self, name: str, title: str) -> QLabel:
        label = QLabel()
        label.setObjectName(name)
        label.setAccessibleName(title)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(True)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        return label

    def _timeline(self, state: ViewState, which: str) -> TimelineView:
        """Make a timeline without what both share, following and moving in time; with its name."""
        view = TimelineView(state)
        view.setObjectName(f"compare_{which}")
        view.plot.setAccessibleName(f"The {which} run")
        view.plot.setMinimumHeight(MIN_ROWS_PX)
        self.names[which] = self._label(f"compare_name_{which}", f"Name of the {which} run")
        layout = view.layout()
        assert isinstance(layout, QGridLayout)
        layout.addWidget(self.names[which], 0, 0)
        for each in view.findChildren(QToolButton):
            each.hide()
        for bar in view.findChildren(QScrollBar):
            if bar.orientation() == Qt.Orientation.Horizontal:
                bar.hide()
        return view

    def _lay_out(self) -> None:
        stacked = QSplitter(Qt.Orientation.Vertical)
        stacked.setChildrenCollapsible(False)
        stacked.addWidget(self.first)
        stacked.addWidget(self.second)
        across = QSplitter(Qt.Orientation.Horizontal)
        across.setChildrenCollapsible(False)
        across.addWidget(stacked)
        across.addWidget(self.table)
        across.setStretchFactor(0, 1)
        across.setSizes([460, 440])
        both = QWidget()
        column = QVBoxLayout(both)
        column.setContentsMargins(4, 4, 4, 4)
        column.setSpacing(2)
        column.addWidget(self.step)
        column.addWidget(across, 1)
        column.addWidget(self.aligned)
        self._pages = QStackedLayout(self)
        self._pages.addWidget(self.hint)
        self._pages.addWidget(both)

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came in while nothing was to be seen."""
        super().showEvent(event)
        self._refresh_soon()

    def set_other(self, recording: Recording | None) -> None:
        """Compare with another recording; None: with none."""
        self.comparison = None
        self.follower.set_second(recording)
        self.refresh()

    def _refresh_soon(self) -> None:
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def _refresh_if_done(self) -> None:
        """Compare anew once the comparison before is made."""
        if any(each.title == TITLE for each in self.tasks.running):
            self._timer.start()
        else:
            self.refresh()

    def refresh(self) -> None:
        """Compare both runs as they stand; the result comes later, by `_show`."""
        first, second = self._view.recording, self.other.recording
        if first is None or second is None:
            self.hint.setText(NOTHING if second is None else NO_FIRST)
            self._pages.setCurrentIndex(0)
            self.comparison = None
            self.follower.set_alignment(None)
            return
        self._pages.setCurrentIndex(1)
        for which, each in (("first", first), ("second", second)):
            self.names[which].setText(f"{which}: {run_name(each)}")
        sides = side(first), side(second)

        def work(_: Progress) -> Comparison:
            return compare(*sides)

        self.tasks.start(TITLE, work, partial(self._show, first, second), self.step.setText)

    def _show(self, first: Recording, second: Recording, found: Comparison) -> None:
        """Show a comparison, if its runs are still those that are shown."""
        if first is not self._view.recording or second is not self.other.recording:
            return
        self.comparison = found
        self.step.setText(step_text(found.step, (first.header, second.header)))
        self.model.set_rows(difference_rows(found.sites, self._view.theme))
        self.follower.set_alignment(found.alignment)

    def _show_alignment(self) -> None:
        found = self.comparison
        text = "" if found is None else alignment_text(found.alignment, self.follower.step)
        self.aligned.setText(text)

    def _show_theme(self) -> None:
        theme = self._view.theme
        self.other.set_theme(theme)
        self.step.setStyleSheet("font-weight: bold;")
        for each in (*self.names.values(), self.aligned, self.hint):
            each.setStyleSheet(f"color: {theme.faint};")
        if self.comparison is not None:
            self.model.set_rows(difference_rows(self.comparison.sites, theme))

    def _arrange(self) -> None:
        self.other.arrange(self._view.arrangement)
