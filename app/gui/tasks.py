"""Long work off the window's thread, with progress, an end before its time, and errors as lines."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal

from syncscope.sched_core.errors import SyncscopeError


class Cancelled(Exception):
    """The user has had enough."""


class Progress:
    """What work is given: it says how far it is, and learns that it is to end.

    Parameters
    ----------
    told : callable
        Called with what is done and what there is in all.
    """

    def __init__(self, told: Callable[[int, int], None]) -> None:
        self._told = told
        self.cancelled = threading.Event()

    def __call__(self, done: int, total: int) -> None:
        """Say how far the work is.

        Raises
        ------
        Cancelled
            If it is to end.
        """
        if self.cancelled.is_set():
            raise Cancelled
        self._told(done, total)


class Task(QObject):
    """One piece of work in a thread of its own; its signals arrive in the window's thread.

    Parameters
    ----------
    title : str
    work : callable
        Called with a `Progress`; what it returns goes to `done`.
    """

    progressed = Signal(int, int)
    done = Signal(object)
    failed = Signal(str)
    ended = Signal()

    def __init__(self, title: str, work: Callable[[Progress], Any], parent: QObject | None) -> None:
        super().__init__(parent)
        self.title = title
        self.position = (0, 0)
        self._work = work
        self._progress = Progress(self.progressed.emit)
        self.progressed.connect(self._note, Qt.ConnectionType.QueuedConnection)
        self._thread = threading.Thread(target=self._run, name=title, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def cancel(self) -> None:
        """Ask the work to end; neither `done` nor `failed` will tell of it."""
        self._progress.cancelled.set()

    def join(self, seconds: float) -> bool:
        """Wait; return whether it is over."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _note(self, done: int, total: int) -> None:
        self.position = (done, total)

    def _run(self) -> None:
        try:
            result = self._work(self._progress)
            if not self._progress.cancelled.is_set():
                self.done.emit(result)
        except Cancelled:
            pass
        except SyncscopeError as error:
            self.failed.emit(str(error))
        except Exception as error:  # a defect of ours: say so, and let the app go on
            traceback.print_exc()
            self.failed.emit(f"{self.title}: {type(error).__name__}: {error}; please report this")
        finally:
            self.ended.emit()


class Tasks(QObject):
    """The work in progress: at most one of each title, the newest."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.running: list[Task] = []

    def start(
        self,
        title: str,
        work: Callable[[Progress], Any],
        done: Callable[[Any], None],
        failed: Callable[[str], None],
    ) -> Task:
        """Begin a piece of work in place of one of the same title."""
        for each in self.running:
            if each.title == title:
                each.cancel()
        task = Task(title, work, self)
        queued = Qt.ConnectionType.QueuedConnection
        task.done.connect(done, queued)
        task.failed.connect(failed, queued)
        task.progressed.connect(lambda *_: self.changed.emit(), queued)
        task.ended.connect(lambda: self._forget(task), queued)
        self.running.append(task)
        self.changed.emit()
        task.start()
        return task

    def _forget(self, task: Task) -> None:
        self.running.remove(task)
        task.deleteLater()
        self.changed.emit()

    def end_all(self, seconds: float = 5.0) -> None:
        """Ask all to end and wait for them."""
        for each in self.running:
            each.cancel()
        for each in self.running:
            each.join(seconds)
