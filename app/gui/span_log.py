"""The newest spans of a recording as they were recorded, and where those of each step are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.sliding import Sliding
from syncscope.sched_core.recorder import ROLES, SPAN

CALL, EXEC = (ROLES.index(role) for role in ("call", "exec"))

EARLIEST, LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

STEP = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("reach_ns", "<i8"),
        ("phase", "<i4"),
        ("first", "<i8", (2,)),
        ("last", "<i8", (2,)),
    ]
)
"""A step: begin of its first call, end of its last span, latest end of it and all before it, and by
role the first and the last ref of its spans, -1 if there is none.  A step of which no call was
recorded begins where the next one does."""

STEPS = 1 << 17
"""So many steps are kept: of the smallest model a few seconds more than spans are."""


class SpanLog:
    """Spans by ref, which counts them from 0 in the order of arrival, and steps by number.

    Parameters
    ----------
    capacity : int
        So many spans are kept.
    n_steps : int
        So many steps are kept.
    """

    def __init__(self, capacity: int, n_steps: int = STEPS) -> None:
        self.spans = Sliding(SPAN, capacity)
        self.steps = Sliding(STEP, n_steps)
        self.phase_names: list[str] = []

    @property
    def nbytes(self) -> int:
        """Memory reserved."""
        return self.spans.nbytes + self.steps.nbytes

    @property
    def phases(self) -> tuple[str, ...]:
        """Phase of each step that is kept."""
        steps = self.steps.view(self.steps.head, self.steps.tail)
        return tuple(map(self.phase_names.__getitem__, steps["phase"].tolist()))

    def phase(self, step: int) -> str:
        """Return the phase of a step; empty if it is not kept."""
        return self.phase_names[self.steps[step]["phase"]] if step in self.steps else ""

    def add_steps(self, phases: Sequence[str]) -> None:
        """Add steps, whose spans follow."""
        for name in dict.fromkeys(phases):
            if name not in self.phase_names:
                self.phase_names.append(name)
        number = {name: i for i, name in enumerate(self.phase_names)}
        rows = np.zeros(len(phases), STEP)
        rows["phase"] = [number[name] for name in phases]
        rows["first"] = rows["last"] = -1
        rows["begin_ns"], rows["end_ns"], rows["reach_ns"] = LATEST, EARLIEST, EARLIEST
        self.steps.append(rows)

    def append(self, spans: npt.NDArray[Any], in_step: npt.NDArray[np.bool_]) -> None:
        """Add spans.

        Parameters
        ----------
        spans : ndarray of SPAN
        in_step : ndarray of bool
            Of each of them whether it belongs to its step, as drains between steps do not.
        """
        first_ref = self.spans.tail
        self.spans.append(spans)
        step = spans["step"]
        mine = np.flatnonzero(in_step & (step >= self.steps.head) & (step < self.steps.tail))
        if not len(mine):
            return
        key = 2 * step[mine].astype(np.int64) + spans["role"][mine]
        if np.any(key[1:] < key[:-1]):
            order = np.argsort(key, kind="stable")
            mine, key = mine[order], key[order]
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        ends = np.append(starts[1:], len(key)) - 1
        begin_ns = np.minimum.reduceat(spans["begin_ns"][mine], starts)
        end_ns = np.maximum.reduceat(spans["end_ns"][mine], starts)
        base = self.steps.head
        rows = self.steps.view(base, self.steps.tail)
        number, role = key[starts] // 2 - base, key[starts] % 2
        np.minimum.at(rows["begin_ns"], number[role == CALL], begin_ns[role == CALL])
        np.maximum.at(rows["end_ns"], number, end_ns)
        known = rows["first"][number, role]
        rows["first"][number, role] = np.where(known < 0, first_ref + mine[starts], known)
        rows["last"][number, role] = first_ref + mine[ends]
        self._keep_sorted(rows, int(number.min()), int(number.max()))

    @staticmethod
    def _keep_sorted(rows: npt.NDArray[Any], first: int, last: int) -> None:
        """Make begins and reaches rise, after steps `first` to `last` have changed."""
        while first and rows["begin_ns"][first - 1] > rows["begin_ns"][first]:
            first -= 1
        begins = rows["begin_ns"][first : last + 1]
        begins[:] = np.minimum.accumulate(begins[::-1])[::-1]
        reach = rows["reach_ns"][first:]
        np.maximum.accumulate(rows["end_ns"][first:], out=reach)
        if first:
            np.maximum(reach, rows["reach_ns"][first - 1], out=reach)

    def of_step(self, step: int, role: int) -> tuple[int, npt.NDArray[Any]]:
        """Return spans among which are all of a role of a step, and the ref of the first."""
        if step not in self.steps:
            return 0, self.spans.view(0, 0)
        row = self.steps[step]
        begin, end = int(row["first"][role]), int(row["last"][role]) + 1
        if begin < 0:
            return 0, self.spans.view(0, 0)
        return self.spans.first(begin), self.spans.view(begin, end)

    def begun(self, t0: int, t1: int) -> npt.NDArray[np.int64]:
        """Return the steps that touch a window, each up to the begin of the next."""
        rows = self.steps.view(self.steps.head, self.steps.tail)
        begin, end = bisect_right(rows["begin_ns"], t0), bisect_left(rows["begin_ns"], t1)
        begin = max(0, begin - 1)
        return self.steps.head + begin + np.flatnonzero(rows["first"][begin:end, CALL] >= 0)

    def touching(self, t0: int, t1: int) -> tuple[int, int]:
        """Return the steps, from first to after the last, whose spans can lie in a window."""
        rows = self.steps.view(self.steps.head, self.steps.tail)
        end = bisect_left(rows["begin_ns"], t1)
        begin = bisect_left(rows["reach_ns"], t0)
        return self.steps.head + min(begin, end), self.steps.head + end

    def count(self, begin: int, end: int) -> int:
        """Return at most how many spans the steps ``[begin, end)`` have."""
        rows = self.steps.view(begin, end)
        if not len(rows):
            return 0
        known = rows["first"] >= 0
        if not known.any():
            return 0
        return int(rows["last"][known].max() - rows["first"][known].min()) + 1
