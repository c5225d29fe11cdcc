"""One line across the window: whether times are simulated or measured, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from syncscope.app.gui.theme import Theme, ink


def device_line(header: Mapping[str, Any]) -> str:
    """Say on what a recording was made, and whether its times are real."""
    if not header:
        return "nothing recorded yet: press F5 to run, Ctrl+O to open a timeline"
    device = header.get("device", {})
    why = str(header.get("why_device", ""))
    if header.get("simulated"):
        line = f"SIMULATED times: {device.get('profile', '?')} on {device.get('name', '?')}"
    else:
        line = f"measured on {device.get('name', 'a GPU')}"
    return f"{line}  ·  {why}" if why else line


class Banner(QWidget):
    """The line, and below it a message that stays until it is closed."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("banner")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.line = QLabel(device_line({}))
        self.line.setObjectName("banner.line")
        self.line.setAccessibleName("Device")
        self.hazard = QLabel("HAZARDS ALLOWED")
        self.hazard.setObjectName("banner.hazard")
        self.hazard.hide()
        self.message = QLabel()
        self.message.setObjectName("banner.message")
        self.message.setAccessibleName("Message")
        self.message.setTextFormat(Qt.TextFormat.PlainText)
        self.message.setWordWrap(True)
        self.message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.close_button = QToolButton()
        self.close_button.setText("✕")
        self.close_button.setAccessibleName("Close message")
        self.close_button.clicked.connect(self.clear)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(8, 2, 8, 2)
        layout.addWidget(self.hazard)
        layout.addWidget(self.line)
        layout.addWidget(self.message, 1)
        layout.addWidget(self.close_button)
        self.clear()

    def say(self, text: str) -> None:
        """Show a message until it is closed or another comes."""
        self.message.setText(text)
        self.message.show()
        self.close_button.show()

    def clear(self) -> None:
        """Take the message away."""
        self.message.clear()
        self.message.hide()
        self.close_button.hide()

    def set_theme(self, theme: Theme) -> None:
        """Take the colours of a theme."""
        self.setStyleSheet(
            f"#banner {{ background: {theme.field}; }}"
            f"QLabel {{ color: {theme.text}; }}"
            f"#banner\\.message {{ color: {theme.hazard}; font-weight: bold; }}"
        )
        self.hazard.setStyleSheet(
            f"background: {theme.hazard}; color: {ink(theme.hazard)}; padding: 1px 6px; "
            "font-weight: bold;"
        )
