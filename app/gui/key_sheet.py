"""All keys on one sheet."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from syncscope.app.gui.actions import ACTIONS
from syncscope.app.gui.timeline_keys import BINDINGS, MOUSE

Line = tuple[str, str]


def sections() -> tuple[tuple[str, tuple[Line, ...]], ...]:
    """Return the headings of the sheet, each with its keys and what they do."""
    commands = tuple((", ".join(each.keys), each.tip) for each in ACTIONS if each.keys)
    timeline = tuple((", ".join(each.keys), each.text) for each in BINDINGS)
    return (("Timeline", timeline), ("Window", commands), ("Mouse on the timeline", MOUSE))


class KeySheet(QDialog):
    """The sheet; any key closes it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keys")
        self.setObjectName("key_sheet")
        layout = QHBoxLayout(self)
        layout.setSpacing(28)
        keys, window, mouse = (_column(title, lines) for title, lines in sections())
        window.addLayout(mouse)
        layout.addLayout(keys)
        layout.addLayout(window)

    def keyPressEvent(self, event: object) -> None:
        """Close."""
        self.accept()


def _column(title: str, lines: tuple[Line, ...]) -> QVBoxLayout:
    column = QVBoxLayout()
    column.setSpacing(4)
    heading = QLabel(f"<b>{title}</b>")
    column.addWidget(heading)
    grid = QGridLayout()
    grid.setHorizontalSpacing(14)
    grid.setVerticalSpacing(3)
    for i, (keys, tip) in enumerate(lines):
        key = QLabel(keys)
        key.setTextFormat(Qt.TextFormat.PlainText)
        grid.addWidget(key, i, 0)
        grid.addWidget(QLabel(tip), i, 1)
    column.addLayout(grid)
    column.addStretch()
    return column
