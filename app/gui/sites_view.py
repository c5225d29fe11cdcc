"""The site table of a run: sort, filter, go to a site on the timeline and back, remove its sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QModelIndex,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
    QTimer,
)
from PySide6.QtGui import QColor
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from syncscope.app.gui.categories import CATEGORIES, verdict_category
from syncscope.app.gui.sites_model import SiteEntry, matching
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import NOTHING, ViewState
from syncscope.app.report.site_table import SYNC_KINDS
from syncscope.sched_core.records import VERDICTS

REFRESH_MS = 250
"""A table that changes 60 times a second can be neither read nor clicked."""

Index = QModelIndex | QPersistentModelIndex
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter

VERDICT_GLYPHS = dict(zip(VERDICTS, ("▮", "↻", "⇄", "▽", "✕", "?"), strict=True))
"""Says a verdict without its colour."""


def verdict_text(verdict: str) -> str:
    """Return a verdict with its glyph."""
    return f"{VERDICT_GLYPHS[verdict]} {verdict}" if verdict in VERDICT_GLYPHS else verdict


def _alone(entry: SiteEntry) -> str:
    safe = entry.row.alone_safe
    return "" if safe is None else "yes" if safe else "no"


Column = tuple[str, Callable[[SiteEntry], str], Callable[[SiteEntry], Any]]

COLUMNS: tuple[Column, ...] = (
    ("phase", lambda e: e.row.phase, lambda e: e.row.phase),
    ("site", lambda e: e.row.site, lambda e: e.row.site),
    ("kind", lambda e: e.row.kind, lambda e: e.row.kind),
    ("per step", lambda e: f"{e.row.per_step:.3g}", lambda e: e.row.per_step),
    ("count", lambda e: f"{e.count:,}", lambda e: e.count),
    ("total µs", lambda e: f"{e.total_ns / 1000:,.1f}", lambda e: e.total_ns),
    ("share of wait", lambda e: f"{e.share:.1%}" if e.share else "", lambda e: e.share),
    ("verdict", lambda e: verdict_text(e.row.verdict or ""), lambda e: e.row.verdict or "~"),
    ("alone safe", _alone, _alone),
    ("covered by", lambda e: ", ".join(e.row.covered_by), lambda e: ", ".join(e.row.covered_by)),
)
"""Title, text and sort key of each column."""

NUMBERS = (3, 4, 5, 6)


class SitesTable(QAbstractTableModel):
    """The rows as Qt wants them; times are the host's in the call."""

    def __init__(self, view: ViewState, parent: QWidget) -> None:
        super().__init__(parent)
        self._view = view
        self.entries: list[SiteEntry] = []

    def set_entries(self, entries: Sequence[SiteEntry]) -> None:
        """Show other rows; where they are the same sites, only the figures change."""
        keys = [_key(each) for each in entries]
        if keys == [_key(each) for each in self.entries]:
            self.entries = list(entries)
            if entries:
                last = self.index(len(entries) - 1, len(COLUMNS) - 1)
                self.dataChanged.emit(self.index(0, 0), last)
            return
        self.beginResetModel()
        self.entries = list(entries)
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Return how many rows there are."""
        return 0 if parent.isValid() else len(self.entries)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Return how many columns there are."""
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Return the title of a column."""
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return COLUMNS[section][0]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return text, colour, alignment, tip or sort key of a cell."""
        entry, column = self.entries[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[column][1](entry)
        if role == Qt.ItemDataRole.UserRole:
            return COLUMNS[column][2](entry)
        if role == Qt.ItemDataRole.TextAlignmentRole and column in NUMBERS:
            return _RIGHT
        if role == Qt.ItemDataRole.ToolTipRole:
            return entry.row.why or None
        if role == Qt.ItemDataRole.ForegroundRole:
            return self._colour(entry, column)
        return None

    def _colour(self, entry: SiteEntry, column: int) -> QColor | None:
        theme = self._view.theme
        if not entry.is_planned:
            return QColor(theme.faint)
        if COLUMNS[column][0] == "verdict" and entry.row.verdict:
            return theme.colour(CATEGORIES.index(verdict_category(entry.row.verdict)))
        return None


def _key(entry: SiteEntry) -> tuple[str, str, str]:
    return entry.row.phase, entry.row.site, entry.row.kind


class SitesView(QWidget):
    """The table with its filter, and what can be done to the selected site."""

    def __init__(
        self, state: ViewState, variant: VariantState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("sites_view")
        self._view, self._variant = state, variant
        self.filter = QLineEdit(placeholderText="filter: phase, site, kind, verdict")
        self.filter.setAccessibleName("Filter sites")
        self.filter.setClearButtonEnabled(True)
        self.how = QLabel()
        self.remove = QPushButton("Remove this sync")
        self.remove.setObjectName("remove_sync")
        self.remove.setEnabled(False)
        self.model = SitesTable(state, self)
        self.sorter = QSortFilterProxyModel(self)
        self.sorter.setSourceModel(self.model)
        self.sorter.setSortRole(Qt.ItemDataRole.UserRole)
        self.table = self._make_table()
        top = QHBoxLayout()
        top.addWidget(self.filter, 1)
        top.addWidget(self.how)
        top.addWidget(self.remove)
        column = QVBoxLayout(self)
        column.setContentsMargins(4, 4, 4, 4)
        column.addLayout(top)
        column.addWidget(self.table, 1)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self.refresh)
        self._following = False
        state.grown.connect(self._refresh_soon)
        state.recording_changed.connect(self.refresh)
        state.selection_changed.connect(self._show_selection)
        state.theme_changed.connect(self.refresh)
        variant.changed.connect(self._show_button)
        self.filter.textChanged.connect(lambda _: self.refresh())
        self.remove.clicked.connect(self._remove)
        self.refresh()

    def _make_table(self) -> QTableView:
        table = QTableView()
        table.setObjectName("sites_table")
        table.setAccessibleName("Sites")
        table.setModel(self.sorter)
        table.setSortingEnabled(True)
        table.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.setAlternatingRowColors(True)
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 6)
        table.horizontalHeader().setHighlightSections(False)
        for i, width in enumerate((86, 146, 88, 64, 58, 76, 92, 120, 74, 300)):
            table.setColumnWidth(i, width)
        table.selectionModel().selectionChanged.connect(self._selected)
        return table

    def _refresh_soon(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def refresh(self) -> None:
        """Show how things stand."""
        recording = self._view.recording
        entries = () if recording is None else recording.table.entries()
        self.model.set_entries(matching(entries, self.filter.text()))
        simulated = recording is not None and recording.header.get("simulated")
        how = "" if recording is None else "simulated times" if simulated else "measured times"
        self.how.setText(how)
        self._show_selection(self._view.selection)
        self._show_button()

    @property
    def selected(self) -> SiteEntry | None:
        """The entry that is selected in the table."""
        rows = self.table.selectionModel().selectedRows()
        return self.model.entries[self.sorter.mapToSource(rows[0]).row()] if rows else None

    def _selected(self, chosen: QItemSelection, _: QItemSelection) -> None:
        """Select the newest span of the chosen site, near the window of time."""
        self._show_button()
        entry, recording = self.selected, self._view.recording
        if entry is None or recording is None or self._following or chosen.isEmpty():
            return
        ref = recording.rows.nearest(entry.ops, *self._view.range)
        if ref != NOTHING:
            self._view.select(ref)

    def _show_selection(self, ref: int) -> None:
        """Mark the row of the span that is selected elsewhere."""
        recording = self._view.recording
        if recording is None or ref == NOTHING or not recording.has(ref):
            return
        op = recording.op_of(ref)
        for i, entry in enumerate(self.model.entries):
            if op in entry.ops:
                at = self.sorter.mapFromSource(self.model.index(i, 0))
                self._following = True
                self.table.selectRow(at.row())
                self._following = False
                return

    def _place(self) -> str:
        entry = self.selected
        if entry is None or entry.row.kind not in SYNC_KINDS:
            return ""
        return f"{entry.row.phase}:{entry.row.site}"

    def _show_button(self) -> None:
        place = self._place()
        self.remove.setEnabled(bool(place))
        dropped = place in self._variant.drop
        self.remove.setText("Put this sync back" if dropped else "Remove this sync")

    def _remove(self) -> None:
        place = self._place()
        if place:
            self._variant.toggle_drop(place)
