"""Commands about files: open, compare, save, export; and nothing unsaved is lost unasked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QFileDialog, QMenu, QMessageBox

from syncscope.app.gui.documents import (
    open_recordings,
    save_csv,
    save_image,
    save_recording,
    save_svg,
)
from syncscope.app.gui.recording import Recording
from syncscope.app.spool import SUFFIX, Spool, unfinished
from syncscope.sched_core.errors import FileError

if TYPE_CHECKING:
    from syncscope.app.gui.main_window import MainWindow

TIMELINES = f"Timelines (*.json *.json.gz *{SUFFIX});;All files (*)"
Button = QMessageBox.StandardButton


class FileCommands:
    """What the File menu does."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self.recent_menu = QMenu("Open &recent", window)
        self.recent_menu.aboutToShow.connect(self._fill_recent)

    # ---- opening --------------------------------------------------------------------------------

    def ask_open(self) -> None:
        """Ask for a timeline and show it."""
        path, _ = QFileDialog.getOpenFileName(self._window, "Open", "", TIMELINES)
        if path:
            self.open(Path(path))

    def open(self, path: Path) -> None:
        """Show a timeline once a live run is saved or given up; a second run is compared."""
        self.when_saved(lambda: self._read(path, self._show))

    def ask_compare(self) -> None:
        """Ask for a second timeline."""
        path, _ = QFileDialog.getOpenFileName(self._window, "Compare with", "", TIMELINES)
        if path:
            self.open_to_compare(Path(path))

    def open_to_compare(self, path: Path) -> None:
        """Show a second timeline beside the one that is shown."""
        self._read(path, lambda found: self._compare(found[0]))

    def _read(self, path: Path, then: Callable[[tuple[Recording, ...]], None]) -> None:
        def done(found: tuple[Recording, ...]) -> None:
            self._window.settings.add_recent(str(path))
            then(found)

        def failed(text: str) -> None:
            self._window.settings.forget_recent(str(path))
            self._window.banner.say(text)

        self._window.tasks.start(
            f"reading {path.name}", lambda progress: open_recordings(path, progress), done, failed
        )

    def _show(self, found: tuple[Recording, ...]) -> None:
        window = self._window
        window.controller.end()
        window.controller.release_spool()
        window.banner.clear()
        window.view.set_follow(False)
        window.view.set_recording(found[0])
        if len(found) > 1:
            self._compare(found[1])

    def _compare(self, recording: Recording) -> None:
        self._window.compare_with(recording)

    def close_recording(self) -> None:
        """Show nothing."""

        def close() -> None:
            self._window.controller.end()
            self._window.controller.release_spool()
            self._window.view.set_recording(None)

        self.when_saved(close)

    def _fill_recent(self) -> None:
        self.recent_menu.clear()
        for path in self._window.settings.recent:
            self.recent_menu.addAction(path).triggered.connect(partial(self._open_recent, path))
        self.recent_menu.setEnabled(bool(self._window.settings.recent))

    def _open_recent(self, path: str, _checked: bool) -> None:
        self.open(Path(path))

    # ---- saving ---------------------------------------------------------------------------------

    def ask_save(self) -> None:
        """Ask for a name and save what is shown."""
        self._save(lambda: None)

    def _save(self, then: Callable[[], None]) -> None:
        window = self._window
        recording = window.view.recording
        if recording is None:
            window.banner.say("there is nothing to save: run or open something first")
            return
        path, _ = QFileDialog.getSaveFileName(window, "Save", "timeline.json", TIMELINES)
        if not path:
            return
        spool = window.controller.spool
        source = None if spool is None else spool.path

        def done(_: object) -> None:
            window.settings.add_recent(path)
            window.status.showMessage(f"saved {path}", 5000)
            if not window.controller.is_live:
                window.controller.release_spool()
            then()

        window.tasks.start(
            f"saving {Path(path).name}",
            lambda _: save_recording(recording, source, Path(path)),
            done,
            window.banner.say,
        )

    def ask_csv(self) -> None:
        """Ask for a name and write the measured range, or the window of time, as CSV."""
        window = self._window
        recording = window.view.recording
        if recording is None:
            window.banner.say("there is nothing to export: run or open something first")
            return
        path, _ = QFileDialog.getSaveFileName(window, "Export range", "range.csv", "CSV (*.csv)")
        if not path:
            return
        t0, t1 = window.view.measured or window.view.range
        window.tasks.start(
            f"writing {Path(path).name}",
            lambda progress: save_csv(recording, t0, t1, Path(path), progress),
            lambda _: window.status.showMessage(f"wrote {path}", 5000),
            window.banner.say,
        )

    def ask_image(self) -> None:
        """Ask for a name and write the timeline as a picture."""
        window = self._window
        kinds = "PNG (*.png);;SVG (*.svg)"
        path, _ = QFileDialog.getSaveFileName(window, "Export picture", "timeline.png", kinds)
        if not path:
            return
        try:
            if path.lower().endswith(".svg"):
                save_svg(window.timeline, Path(path))
            else:
                save_image(window.timeline.grab().toImage(), Path(path))
        except FileError as error:
            window.banner.say(str(error))
        else:
            window.status.showMessage(f"wrote {path}", 5000)

    # ---- what is not saved ----------------------------------------------------------------------

    @property
    def is_unsaved(self) -> bool:
        """Whether a run was recorded that is kept nowhere else."""
        return self._window.controller.spool is not None and self._window.view.recording is not None

    def when_saved(self, then: Callable[[], None]) -> None:
        """Do something that forgets the recorded run, once it is saved or given up."""
        if not self.is_unsaved:
            then()
            return
        answer = self._ask_unsaved()
        if answer == Button.Save:
            self._window.controller.end()
            self._save(then)
        elif answer == Button.Discard:
            then()

    def may_forget(self) -> bool:
        """Whether the window may close: nothing is unsaved, or the user lets it go."""
        if not self.is_unsaved:
            return True
        answer = self._ask_unsaved()
        if answer == Button.Save:
            self._window.controller.end()
            self._save(self._close)
        return answer == Button.Discard

    def _close(self) -> None:
        self._window.close()

    def _ask_unsaved(self) -> Button:
        return QMessageBox.question(
            self._window,
            "Not saved",
            "The recorded run is not saved. Save it?",
            Button.Save | Button.Discard | Button.Cancel,
            Button.Save,
        )

    def offer_recovery(self, folder: Path) -> None:
        """Offer what a run that ended in a crash left behind, the newest first."""
        for path in reversed(unfinished(folder)):
            answer = QMessageBox.question(
                self._window,
                "Recover",
                f"A run was recorded and not saved ({path.name}). Open it?",
                Button.Open | Button.Discard | Button.Ignore,
                Button.Open,
            )
            if answer == Button.Ignore:
                return
            try:
                spool = Spool.adopt(path)
                if answer == Button.Discard:
                    spool.discard()
                    continue
            except FileError as error:
                self._window.banner.say(str(error))
                continue
            self._window.controller.spool = spool
            self._read(path, self._show_recovered)
            return

    def _show_recovered(self, found: tuple[Recording, ...]) -> None:
        self._window.view.set_recording(found[0])
        self._window.banner.say("recovered from a run that was not saved: Ctrl+S saves it")
