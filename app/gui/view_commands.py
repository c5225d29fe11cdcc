"""Commands that change what is seen: find, buffer rows, palette, keys, about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QInputDialog, QMessageBox

from syncscope import __version__
from syncscope.app.gui.command_palette import CommandPalette
from syncscope.app.gui.key_sheet import KeySheet
from syncscope.app.gui.view_state import NOTHING

if TYPE_CHECKING:
    from syncscope.app.gui.main_window import MainWindow

ABOUT = (
    f"Syncscope {__version__}\n\nShows for every sync of an inference engine whether it is needed, "
    "what it costs, and what goes wrong without it.\n\nMIT licence. Made with Qt (LGPL) through "
    "PySide6, pyqtgraph and numpy."
)


class ViewCommands:
    """What the View and Help menus do."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self._query = ""
        self._hits: list[int] = []

    def ask_find(self) -> None:
        """Ask what to search for, and go to the first hit."""
        text, fine = QInputDialog.getText(
            self._window, "Find", "Site, kind or verdict:", text=self._query
        )
        if fine and text.strip():
            self._query = text.strip()
            self.find(1)

    def find(self, direction: int) -> None:
        """Go to the next hit of the last search, or to the one before."""
        recording = self._window.view.recording
        if recording is None or not self._query:
            return
        hits = recording.rows.search(self._query)
        if not len(hits):
            self._window.status.showMessage(f"nothing found for {self._query}", 5000)
            return
        hits = sorted(int(each) for each in hits)
        selected = self._window.view.selection
        at = hits.index(selected) + direction if selected in hits else 0
        at %= len(hits)
        self._window.view.select(hits[at])
        self._window.timeline.show_selection()
        self._window.status.showMessage(f"{self._query}: {at + 1:,} of {len(hits):,}", 5000)

    def ask_buffers(self) -> None:
        """Ask for a buffer and show who reads and writes it."""
        recording = self._window.view.recording
        if recording is None or not recording.changes:
            self._window.status.showMessage("no plan to take buffers from", 5000)
            return
        names = [each.name for each in recording.changes[-1].planned.plan.buffers]
        name, fine = QInputDialog.getItem(
            self._window, "Buffer rows", "Buffer:", ["(none)", *names], editable=False
        )
        if fine:
            self._window.timeline.show_buffer("" if name == "(none)" else name)

    def show_palette(self) -> None:
        """Find a command by name."""
        CommandPalette(self._window.actions_by_id.values(), self._window).open()

    def show_keys(self) -> None:
        """Show all keys."""
        KeySheet(self._window).open()

    def show_about(self) -> None:
        """Show version and licence."""
        box = QMessageBox(self._window)
        box.setWindowTitle("About Syncscope")
        box.setText(ABOUT)
        box.open()

    def clear(self) -> None:
        """Select nothing."""
        self._window.view.select(NOTHING)
