"""Find a command by typing a part of its name."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QDialog, QLineEdit, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

MOVES = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)


def matches(query: str, text: str) -> bool:
    """Whether each word of a query is in a text, in any order, letters large or small."""
    return all(word in text.casefold() for word in query.casefold().split())


class CommandPalette(QDialog):
    """A line to type in and the commands that match; Enter carries out the one that is marked."""

    def __init__(self, actions: Iterable[QAction], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Commands")
        self.setObjectName("command_palette")
        self._line = QLineEdit(placeholderText="type a part of a command")
        self._line.setAccessibleName("Command")
        self._list = QListWidget()
        self._list.setAccessibleName("Matching commands")
        layout = QVBoxLayout(self)
        layout.addWidget(self._line)
        layout.addWidget(self._list)
        self.resize(520, 360)
        for action in actions:
            keys = action.shortcut().toString()
            title = action.text().replace("&", "").rstrip("…")
            item = QListWidgetItem(f"{title}    {keys}" if keys else title, self._list)
            item.setToolTip(action.toolTip())
            item.setData(Qt.ItemDataRole.UserRole, action)
            item.setFlags(item.flags() if action.isEnabled() else Qt.ItemFlag.NoItemFlags)
        self._line.textChanged.connect(self._filter)
        self._line.installEventFilter(self)
        self._list.itemActivated.connect(self._run)
        self._filter("")

    def _filter(self, query: str) -> None:
        first = None
        for i in range(self._list.count()):
            item = self._list.item(i)
            hidden = not matches(query, f"{item.text()} {item.toolTip()}")
            item.setHidden(hidden)
            if first is None and not hidden and item.flags() & Qt.ItemFlag.ItemIsEnabled:
                first = item
        if first is not None:
            self._list.setCurrentItem(first)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let the arrow keys of the line move in the list, and Enter run."""
        if watched is self._line and isinstance(event, QKeyEvent):
            if event.type() == QEvent.Type.KeyPress and event.key() in MOVES:
                self._list.event(event)
                return True
            if event.type() == QEvent.Type.KeyPress and event.key() in (
                Qt.Key.Key_Return,
                Qt.Key.Key_Enter,
            ):
                self._run(self._list.currentItem())
                return True
        return super().eventFilter(watched, event)

    def _run(self, item: QListWidgetItem | None) -> None:
        if item is None or item.isHidden():
            return
        self.accept()
        item.data(Qt.ItemDataRole.UserRole).trigger()
