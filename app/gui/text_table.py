"""Tables of text that can be sorted, read by a screen reader and copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor, QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QAbstractItemView, QTableView, QWidget

Index = QModelIndex | QPersistentModelIndex
_ALIGN = {
    True: Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
    False: Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter,
}


class Cell(NamedTuple):
    """What a cell says, what it is sorted by, its colour if it is not that of all, and its tip."""

    text: str
    key: Any = None
    colour: str = ""
    tip: str = ""


Cells = Sequence[Cell]


class TextTable(QAbstractTableModel):
    """Rows of cells as Qt wants them.

    Parameters
    ----------
    titles : sequence of str
        Of the columns.
    numbers : sequence of int
        Columns that stand at the right.
    tips : sequence of str
        What the columns are, if their titles do not say it.
    """

    def __init__(
        self,
        titles: Sequence[str],
        numbers: Sequence[int] = (),
        tips: Sequence[str] = (),
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.titles = tuple(titles)
        self.tips = tuple(tips)
        self.rows: tuple[Cells, ...] = ()
        self._numbers = frozenset(numbers)

    def set_titles(self, titles: Sequence[str]) -> None:
        """Give the columns, of which there are as many as before, other titles."""
        if tuple(titles) != self.titles:
            self.titles = tuple(titles)
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(titles) - 1)

    def set_rows(self, rows: Sequence[Cells]) -> None:
        """Show other rows; where there are as many as before, what is selected stays so."""
        rows = tuple(rows)
        if rows == self.rows:
            return
        if len(rows) == len(self.rows):
            self.rows = rows
            last = self.index(len(rows) - 1, len(self.titles) - 1)
            self.dataChanged.emit(self.index(0, 0), last)
            return
        self.beginResetModel()
        self.rows = rows
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Return how many rows there are."""
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Return how many columns there are."""
        return 0 if parent.isValid() else len(self.titles)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Return the title of a column."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self.titles[section]
        if role == Qt.ItemDataRole.ToolTipRole and self.tips:
            return self.tips[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _ALIGN[section in self._numbers]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return text, sort key, colour, alignment or tip of a cell."""
        cell = self.rows[index.row()][index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return cell.text
        if role == Qt.ItemDataRole.UserRole:
            return cell.text if cell.key is None else cell.key
        if role == Qt.ItemDataRole.ForegroundRole:
            return QColor(cell.colour) if cell.colour else None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _ALIGN[index.column() in self._numbers]
        if role == Qt.ItemDataRole.ToolTipRole:
            return cell.tip or None
        return None


class TextTableView(QTableView):
    """Shows a table; Ctrl+C copies the selected rows, or all if none is, with the titles."""

    def __init__(self, name: str, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setAccessibleName(title)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setMinimumSectionSize(1)
        self.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 4)
        self.horizontalHeader().setHighlightSections(False)

    def copy_text(self) -> str:
        """Return what Ctrl+C copies: lines of cells with tabs between them."""
        model = self.model()
        chosen = sorted(each.row() for each in self.selectionModel().selectedRows())
        columns = range(model.columnCount())
        title = Qt.Orientation.Horizontal
        lines = [[str(model.headerData(i, title)) for i in columns]]
        for row in chosen or range(model.rowCount()):
            lines.append([str(model.index(row, i).data()) for i in columns])
        return "\n".join("\t".join(each) for each in lines)

    def copy(self) -> None:
        """Copy to the clipboard."""
        QGuiApplication.clipboard().setText(self.copy_text())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Copy whole rows; Qt would copy one cell."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
            event.accept()
        else:
            super().keyPressEvent(event)
