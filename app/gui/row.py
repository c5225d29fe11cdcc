"""A row of the timeline and the lanes of spans that overlap on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.first_fit import MAX_LANES, first_fit
from syncscope.app.gui.lane_store import LaneStore

LEAST_LOG2 = 13
"""Of the capacity of a lane."""

SPAN_NBYTES = 35
"""What a span in a lane takes at most, with its part of the pyramid."""


class Row:
    """One row; spans that overlap lie in lanes below each other.

    A span goes to the first lane that is free when it begins.  Spans may come late: one that
    begins before what is there already lies in another lane, even if it overlaps nothing.

    Parameters
    ----------
    key, title, kind : str
        As `row_source.Row`.
    order : tuple
        Rows are sorted by it.
    capacity_log2 : int
        Of the first lane.
    later_log2 : int or None
        Of the other ones, if not the same.

    Attributes
    ----------
    unplaced : int
        Spans that found no lane, of `MAX_LANES`.
    """

    def __init__(
        self,
        key: str,
        title: str,
        kind: str,
        order: tuple[int, ...],
        capacity_log2: int,
        later_log2: int | None = None,
    ) -> None:
        self.key, self.title, self.kind, self.order = key, title, kind, order
        self.lanes = [LaneStore(capacity_log2)]
        self.unplaced = 0
        self._later_log2 = capacity_log2 if later_log2 is None else later_log2
        self._last_end_ns = np.full(MAX_LANES, np.iinfo(np.int64).min, np.int64)

    @property
    def nbytes(self) -> int:
        """Memory reserved."""
        return sum(each.nbytes for each in self.lanes)

    @property
    def most_nbytes(self) -> int:
        """What it can come to, but for what painting takes."""
        later = (MAX_LANES - 1) * (SPAN_NBYTES << self._later_log2)
        return SPAN_NBYTES * self.lanes[0].capacity + later

    @property
    def evicted(self) -> int:
        """Spans that made room for newer ones."""
        return sum(each.head for each in self.lanes)

    def append(
        self,
        begin_ns: npt.NDArray[np.int64],
        end_ns: npt.NDArray[np.int64],
        category: npt.NDArray[np.uint8],
        name: npt.NDArray[np.uint32],
        flags: npt.NDArray[np.uint8],
        ref: npt.NDArray[np.int64],
    ) -> None:
        """Add spans in the order of their refs, which rise."""
        lane = first_fit(begin_ns, end_ns, self._last_end_ns)
        if not lane.any():
            self.lanes[0].append(begin_ns, end_ns, category, name, flags, ref)
            return
        columns: tuple[npt.NDArray[Any], ...] = (begin_ns, end_ns, category, name, flags, ref)
        for k in np.flatnonzero(np.bincount(lane)).tolist():
            mine = np.flatnonzero(lane == k)
            if k == MAX_LANES:
                self.unplaced += len(mine)
                continue
            while k >= len(self.lanes):
                self.lanes.append(LaneStore(self._later_log2))
            begin, end, kind, text, bits, number = (each[mine] for each in columns)
            self.lanes[k].append(begin, end, kind, text, bits, number)
