"""Ctrl-C that ends a run without losing what it recorded."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


class Interrupts:
    """While active, the first Ctrl-C is noted and calls `stop`; a second one raises.

    Outside the main thread, where Python gets no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.hit = False
        self.stop: Callable[[], None] = lambda: None
        self._before: object = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.hit:
            raise KeyboardInterrupt
        self.hit = True
        self.stop()
