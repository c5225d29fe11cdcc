"""What the app remembers from one start to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QSettings

MAX_RECENT = 10
LAYOUT_VERSION = 1
"""A layout of another version is forgotten: its panels were others."""


class Settings:
    """Layout, theme and recent files; a damaged value counts as none.

    Parameters
    ----------
    file : Path or None
        Where they are kept; the user's own place when None.
    """

    def __init__(self, file: Path | None = None) -> None:
        if file is None:
            self._store = QSettings("Syncscope", "syncscope")
        else:
            self._store = QSettings(str(file), QSettings.Format.IniFormat)

    @property
    def theme(self) -> str:
        """Name of the theme."""
        return self._text("theme", "dark")

    @theme.setter
    def theme(self, name: str) -> None:
        self._store.setValue("theme", name)

    @property
    def recent(self) -> tuple[str, ...]:
        """Files opened or saved, the newest first."""
        value: Any = self._store.value("recent", [])
        values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        return tuple(each for each in values if isinstance(each, str))[:MAX_RECENT]

    def add_recent(self, path: str) -> None:
        """Put a file first."""
        others = [each for each in self.recent if each != path]
        self._store.setValue("recent", [path, *others][:MAX_RECENT])

    def forget_recent(self, path: str) -> None:
        """Take a file out: it cannot be opened any more."""
        self._store.setValue("recent", [each for each in self.recent if each != path])

    @property
    def geometry(self) -> QByteArray:
        """Place and size of the window; empty if there is none."""
        return self._bytes("geometry")

    @property
    def layout(self) -> QByteArray:
        """Place of the panels; empty if there is none."""
        return self._bytes(f"layout{LAYOUT_VERSION}")

    def keep_window(self, geometry: QByteArray, layout: QByteArray) -> None:
        """Remember place, size and panels."""
        self._store.setValue("geometry", geometry)
        self._store.setValue(f"layout{LAYOUT_VERSION}", layout)
        self._store.sync()

    def _text(self, key: str, default: str) -> str:
        value: Any = self._store.value(key, default)
        return value if isinstance(value, str) else default

    def _bytes(self, key: str) -> QByteArray:
        value: Any = self._store.value(key)
        return value if isinstance(value, QByteArray) else QByteArray()
