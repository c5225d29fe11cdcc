"""How many steps to issue at once: few enough to be stopped soon, no faster than asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from syncscope.sched_core.errors import UsageError

PIECE_SECONDS = 0.01
"""What a piece should take: within it nobody is listened to."""

LONGEST_LAG_SECONDS = 0.25
"""Virtual time that lags further behind than this is not caught up with."""


class Pace:
    """Cuts steps into pieces; holds virtual time back to a share of real time.

    Parameters
    ----------
    speed : float
        Virtual seconds per second; 0: no limit.
    clock : callable
        Seconds of real time.

    Raises
    ------
    UsageError
        For a speed that is no number from 0 on.
    """

    def __init__(self, speed: float, clock: Callable[[], float] = time.perf_counter) -> None:
        if not 0 <= speed < math.inf:
            raise UsageError(f"speed {speed}: must be a number, 0 for no limit")
        self.speed = speed
        self._clock = clock
        self._piece: dict[str, int] = {}
        self._step_ns: dict[str, float] = {}
        self.begin(0)

    def begin(self, now_ns: int) -> None:
        """Count from here: virtual time is `now_ns` now."""
        self._began, self._began_ns = self._clock(), now_ns

    def wait_seconds(self, now_ns: int) -> float:
        """Return how long to wait before the next step, which begins at `now_ns`."""
        return max(0.0, -self._lag_ns(now_ns) / self.speed / 1e9) if self.speed else 0.0

    def steps(self, phase: str, now_ns: int) -> int:
        """Return how many steps of a phase to issue now, at least one."""
        piece = self._piece.get(phase, 1)
        if not self.speed:
            return piece
        lag = self._lag_ns(now_ns)
        if lag > LONGEST_LAG_SECONDS * self.speed * 1e9:
            self.begin(now_ns)
            lag = 0.0
        return min(piece, 1 + int(max(0.0, lag) / max(1.0, self._step_ns.get(phase, 0.0))))

    def note(self, phase: str, steps: int, seconds: float, virtual_ns: int) -> None:
        """Learn from a piece: what its steps took, in real and in virtual time."""
        fits = int(steps * PIECE_SECONDS / max(seconds, 1e-6))
        self._piece[phase] = max(1, min(fits, 2 * steps))
        self._step_ns[phase] = virtual_ns / steps

    def _lag_ns(self, now_ns: int) -> float:
        """Return how far virtual time is behind."""
        return (self._clock() - self._began) * self.speed * 1e9 - (now_ns - self._began_ns)
