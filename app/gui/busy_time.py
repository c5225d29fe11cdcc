"""How much of any range of time was covered by at least one interval, as intervals come in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.timeline import union

Times = npt.NDArray[np.int64]

CAPACITY = 1 << 19


class BusyTime:
    """Joins intervals that are added in any order; the newest of the joined ones are kept.

    Adding costs what is new and what it touches of what is there.

    Parameters
    ----------
    capacity : int
        So many joined intervals are kept, up to twice as many for a while.  What lies before them
        counts as not covered, and nothing is added there any more.

    Attributes
    ----------
    since_ns : int
        From when on all is known.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._begin, self._end, self._before = np.zeros((3, 2 * capacity), np.int64)
        self._n = 0
        self.since_ns = np.iinfo(np.int64).min

    @property
    def nbytes(self) -> int:
        """Memory reserved."""
        return 3 * self._begin.nbytes

    def add(self, begin_ns: Times, end_ns: Times) -> None:
        """Cover intervals ``[begin, end)``; those that cover nothing change nothing."""
        begin_ns, end_ns = np.maximum(begin_ns, self.since_ns), np.asarray(end_ns)
        some = end_ns > begin_ns
        begin, end = union(begin_ns[some], end_ns[some])
        if not len(begin):
            return
        # only what ends at the first new begin or later can be touched
        place = int(np.searchsorted(self._end[: self._n], begin[0]))
        if place < self._n:
            begin, end = union(
                np.concatenate([self._begin[place : self._n], begin]),
                np.concatenate([self._end[place : self._n], end]),
            )
        if place + len(begin) > len(self._begin):
            place, begin, end = self._evict(place, begin, end)
        self._n = place + len(begin)
        self._begin[place : self._n] = begin
        self._end[place : self._n] = end
        before = self._before[place - 1] + self._end[place - 1] - self._begin[place - 1]
        length = end - begin
        self._before[place : self._n] = np.cumsum(length) - length + (before if place else 0)

    def _evict(self, place: int, begin: Times, end: Times) -> tuple[int, Times, Times]:
        """Forget all but the newest intervals: of those before `place`, then of new ones."""
        gone = place + len(begin) - self._capacity
        kept = max(0, place - gone)
        self.since_ns = int(self._end[gone - 1] if gone <= place else end[gone - place - 1])
        for each in (self._begin, self._end, self._before):
            each[:kept] = each[place - kept : place].copy()
        new = max(0, gone - place)
        return kept, begin[new:], end[new:]

    def until(self, t_ns: npt.ArrayLike) -> Times:
        """Return how much is covered before some times, but for a constant of all of them."""
        t = np.asarray(t_ns, np.int64)
        if not self._n:
            return np.zeros(t.shape, np.int64)
        place = np.searchsorted(self._begin[: self._n], t, side="right") - 1
        at = np.maximum(place, 0)
        inside = np.minimum(t, self._end[at]) - self._begin[at]
        covered: Times = self._before[at] + np.where(place < 0, 0, inside)
        return covered

    def between(self, t0_ns: int, t1_ns: int) -> int:
        """Return how much of a range is covered."""
        begin, end = self.until([t0_ns, t1_ns]).tolist()
        return int(end - begin)
