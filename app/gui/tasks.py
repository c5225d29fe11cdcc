"""Long work off the window's thread, with progress, an end before its time, and errors as lines."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from syncscope.sched_core.errors import SyncscopeError

LOOK_MS = 15
"""How often it is looked how far the work is."""


class Cancelled(Exception):
    """The user has had enough."""


class Progress:
    """What work is given: it says how far it is, and learns that it is to end.

    Attributes
    ----------
    position : (int, int)
        What is done, and what there is in all.
    """

    def __init__(self) -> None:
        self.position = (0, 0)
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
        self.position = (done, total)


class Task:
    """One piece of work in a thread of its own.

    The thread touches nothing of Qt: what came of the work is left here, for `Tasks` to find.

    Parameters
    ----------
    title : str
    work : callable
        Called with a `Progress`; what it returns goes to `done`.
    done, failed : callable
        Called in the window's thread, with the result or with one line that says what is wrong.
    """

    def __init__(
        self,
        title: str,
        work: Callable[[Progress], Any],
        done: Callable[[Any], None],
        failed: Callable[[str], None],
    ) -> None:
        self.title = title
        self._work, self._done, self._failed = work, done, failed
        self._progress = Progress()
        self._tell: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name=title, daemon=True)

    @property
    def position(self) -> tuple[int, int]:
        """What is done, and what there is in all."""
        return self._progress.position

    @property
    def is_over(self) -> bool:
        """Whether its thread has ended."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def cancel(self) -> None:
        """Ask the work to end; neither `done` nor `failed` will be called."""
        self._progress.cancelled.set()

    def join(self, seconds: float) -> bool:
        """Wait; return whether it is over."""
        self._thread.join(seconds)
        return self.is_over

    def tell(self) -> None:
        """Hand on what came of it, once it is over, unless it was cancelled."""
        if self._tell is not None and not self._progress.cancelled.is_set():
            self._tell()

    def _run(self) -> None:
        try:
            result = self._work(self._progress)
            self._tell = lambda: self._done(result)
        except Cancelled:
            pass
        except SyncscopeError as error:
            self._fail(str(error))
        except Exception as error:  # a defect of ours: say so, and let the app go on
            traceback.print_exc()
            self._fail(f"{self.title}: {type(error).__name__}: {error}; please report this")

    def _fail(self, text: str) -> None:
        self._tell = lambda: self._failed(text)


class Tasks(QObject):
    """The work in progress: of each title the newest counts.

    The window's thread looks at it, so that no signal comes from a thread that Qt does not know.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.running: list[Task] = []
        self._seen: list[tuple[int, int]] = []
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK_MS)
        self._timer.timeout.connect(self._look)

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
        task = Task(title, work, done, failed)
        self.running.append(task)
        task.start()
        self._timer.start()
        self.changed.emit()
        return task

    def _look(self) -> None:
        """Tell of what is over, and of what got on."""
        over = [each for each in self.running if each.is_over]
        self.running = [each for each in self.running if each not in over]
        positions = [each.position for each in self.running]
        if over or positions != self._seen:
            self._seen = positions
            self.changed.emit()
        for each in over:
            each.tell()
        if not self.running:
            self._timer.stop()

    def end_all(self, seconds: float = 5.0) -> None:
        """Ask all to end and wait for them."""
        for each in self.running:
            each.cancel()
        for each in self.running:
            each.join(seconds)
        self._look()
