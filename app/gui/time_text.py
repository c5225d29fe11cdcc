"""Times and durations as people read them, and the ticks of a time axis."""

from __future__ import annotations

from dataclasses import dataclass

UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))
"""Units of time, the largest first, and their nanoseconds."""

_LONGEST = 10**6
"""From so many of its units on a time is written as a base and what comes on top."""


def duration_text(ns: int) -> str:
    """Return a duration with three significant digits: ``850 ns``, ``2.31 µs``, ``12.3 ms``."""
    for unit, size in UNITS:
        if abs(ns) >= size > 1:
            value = ns / size
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:,.{digits}f} {unit}"
    return f"{ns} ns"


def time_text(ns: int) -> str:
    """Return a time since the run's start, exact to the nanosecond: ``12.345678 ms``."""
    for unit, size in UNITS:
        if abs(ns) >= size > 1:
            whole, part = divmod(abs(ns), size)
            digits = f"{part:0{len(str(size)) - 1}d}".rstrip("0")
            return f"{'-' if ns < 0 else ''}{whole:,}{'.' + digits if digits else ''} {unit}"
    return f"{ns} ns"


@dataclass(frozen=True, slots=True)
class Ticks:
    """Marks of a time axis.

    `labels` are (time in ns, text); where the texts begin with a plus they come on top of the time
    that `base` names.
    """

    spacing_ns: int
    labels: tuple[tuple[int, str], ...]
    base: str = ""


def ticks(t0: int, t1: int, most: int) -> Ticks:
    """Return at most `most` round times of the window ``[t0, t1]``, 1, 2 or 5 units apart."""
    spacing = _spacing(t1 - t0, most)
    unit, size = next(each for each in UNITS if spacing >= each[1])
    times = range(-(-t0 // spacing) * spacing, t1 + 1, spacing)
    if max(abs(t0), abs(t1)) < _LONGEST * size:
        return Ticks(spacing, tuple((t, f"{t // size:,} {unit}") for t in times))
    base = t0 // (1000 * size) * 1000 * size
    labels = tuple((t, f"+{(t - base) // size:,} {unit}") for t in times)
    return Ticks(spacing, labels, time_text(base))


def _spacing(length: int, most: int) -> int:
    """Return the smallest round number that fits into `length` at most `most` - 1 times."""
    scale = 1
    while True:
        for step in (1, 2, 5):
            if length // (step * scale) < most:
                return step * scale
        scale *= 10
