"""Commands that change what is seen: find, buffer rows, palette, keys, about."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QInputDialog, QMessageBox

from syncscope import __version__
from syncscope.app.gui.command_palette import CommandPalette
from syncscope.app.gui.key_sheet import KeySheet
from syncscope.app.gui.timeline_keys import BINDINGS
from syncscope.app.gui.view_state import NOTHING

if TYPE_CHECKING:
    from syncscope.app.gui.main_window import MainWindow

ABOUT = (
    f"Syncscope {__version__}\n\nShows for every sync of an inference engine whether it is needed, "
    "what it costs, and what goes wrong without it.\n\nMIT licence. Made with Qt (LGPL) through "
    "PySide6, pyqtgraph and numpy."
)


IN_MENUS = ("show_all", "follow")
"""Commands of the timeline that are also the window's."""


class ViewCommands:
    """What the View and Help menus do."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self._query = ""

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
        window = self._window
        recording = window.view.recording
        if recording is None or not self._query:
            return
        search = recording.rows.searcher(self._query)
        window.tasks.start(
            "searching", lambda _: search(), partial(self._go, direction), window.banner.say
        )

    def _go(self, direction: int, hits: npt.NDArray[np.int64]) -> None:
        """Select the hit before or after the selection; without one, the first or the last."""
        window = self._window
        if not len(hits):
            window.status.showMessage(f"nothing found for {self._query}", 5000)
            return
        at = int(np.searchsorted(hits, window.view.selection))
        if window.view.selection == NOTHING:
            at = 0 if direction > 0 else len(hits) - 1
        elif direction < 0:
            at -= 1
        elif at < len(hits) and hits[at] == window.view.selection:
            at += 1
        at %= len(hits)
        window.view.select(int(hits[at]))
        window.timeline.show_selection()
        window.status.showMessage(f"{self._query}: {at + 1:,} of {len(hits):,}", 5000)

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
        """Find a command by name: the window's, and those of the timeline that have no menu."""
        actions = [*self._window.actions_by_id.values(), *self._timeline_actions()]
        CommandPalette(actions, self._window).open()

    def _timeline_actions(self) -> list[QAction]:
        timeline = self._window.timeline
        actions = []
        for binding in BINDINGS:
            if binding.command not in IN_MENUS:
                action = QAction(binding.text, timeline)
                action.setShortcut(QKeySequence(binding.keys[0]))
                action.triggered.connect(partial(timeline.run, binding.command))
                actions.append(action)
        return actions

    def show_keys(self) -> None:
        """Show all keys."""
        KeySheet(self._window).open()

    def show_about(self) -> None:
        """Show version and licence."""
        box = QMessageBox(self._window)
        box.setWindowTitle("About Syncscope")
        box.setText(ABOUT)
        box.open()
