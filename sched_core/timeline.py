"""Spans of a Trace as sorted columns per lane, for views: what is visible, folded, how busy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.trace import Lane, Trace

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LaneSpans:
    """The spans of one lane, sorted by begin (of equal begins the longest first).

    `reach_ns` is the latest end up to and including each span: it never falls, so that a search
    finds what is still running at a time even where spans nest.
    """

    lane: Lane
    begin_ns: Times
    end_ns: Times
    op: npt.NDArray[np.int32]
    step: npt.NDArray[np.int32]
    role: npt.NDArray[np.uint8]
    nbytes: npt.NDArray[np.uint32]
    reach_ns: Times

    def __len__(self) -> int:
        return len(self.begin_ns)


@dataclass(frozen=True, slots=True)
class Timeline:
    """All lanes of a trace and the time they cover, in nanoseconds from the run's start."""

    lanes: tuple[LaneSpans, ...]
    begin_ns: int
    end_ns: int

    @classmethod
    def from_trace(cls, trace: Trace) -> Timeline:
        """Sort the spans of a trace into lanes; lane numbers stay those of ``trace.lanes``."""
        spans = trace.spans
        order = np.lexsort((-spans["end_ns"], spans["begin_ns"], spans["lane"]))
        spans = spans[order]
        cuts = np.searchsorted(spans["lane"], np.arange(len(trace.lanes) + 1))
        lanes = tuple(
            _lane_spans(lane, spans[cuts[i] : cuts[i + 1]]) for i, lane in enumerate(trace.lanes)
        )
        return cls(
            lanes=lanes,
            begin_ns=int(spans["begin_ns"].min()) if len(spans) else 0,
            end_ns=int(spans["end_ns"].max()) if len(spans) else 0,
        )

    def visible(self, lane: int, t0: int, t1: int) -> slice:
        """Return which spans of a lane may touch the times ``[t0, t1]``.

        Every span that touches it is in the slice; where spans nest, so are those between.
        """
        spans = self.lanes[lane]
        first = int(np.searchsorted(spans.reach_ns, t0, side="left"))
        last = int(np.searchsorted(spans.begin_ns, t1, side="right"))
        return slice(first, max(first, last))


def _lane_spans(lane: Lane, spans: npt.NDArray[Any]) -> LaneSpans:
    """Copy the fields of sorted spans into columns of their own."""
    columns = {
        name: np.ascontiguousarray(spans[name])
        for name in ("begin_ns", "end_ns", "op", "step", "role", "nbytes")
    }
    return LaneSpans(lane=lane, **columns, reach_ns=np.maximum.accumulate(columns["end_ns"]))


def fold(
    begin: Times, end: Times, ns_per_px: float, min_px: float = 3.0
) -> tuple[Times, Times, Times]:
    """Merge neighbours that are too small to see, for drawing at a zoom level.

    Spans narrower than `min_px` pixels merge while the gaps between them are narrower than that
    too; wider spans stay as they are.

    Parameters
    ----------
    begin, end : ndarray of int64
        Sorted and disjoint.
    ns_per_px : float
        Zoom level.
    min_px : float
        Width from which a span is drawn by itself.

    Returns
    -------
    begin, end, count : ndarray of int64
        Of each merged span, and how many spans it stands for; the counts add up to ``len(begin)``.
    """
    if not len(begin):
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    narrow = ns_per_px * min_px
    small = end - begin < narrow
    joins = small[1:] & small[:-1] & (begin[1:] - end[:-1] < narrow)
    first = np.concatenate([[0], np.flatnonzero(~joins) + 1])
    after = np.concatenate([first[1:], [len(begin)]])
    return begin[first], end[after - 1], after - first


def union(begin: Times, end: Times) -> tuple[Times, Times]:
    """Merge intervals, in any order, into the sorted disjoint ones that cover the same times."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.concatenate([[True], begin[1:] > reach[:-1]]) if len(begin) else np.zeros(0, bool)
    starts = np.flatnonzero(first)
    last = np.concatenate([starts[1:], [len(begin)]])[: len(starts)] - 1
    return begin[starts], reach[last]


def busy_ns(begin: Times, end: Times) -> int:
    """Return the time covered by at least one interval."""
    begin, end = union(begin, end)
    return int((end - begin).sum())
