"""Which span of some sites is nearest to what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.span_log import CALL, SpanLog

PIECE = 1 << 15
"""Spans that are looked at together: most sites are found in the first piece."""

Mask = npt.NDArray[np.bool_]
Test = Callable[[npt.NDArray[Any]], Mask]


def nearest(log: SpanLog, ops: Iterable[int], n_sites: int, t0: int, t1: int) -> int:
    """Return the newest span of some sites that touches a window.

    If there is none: the last one that begins before its end, or else the first one after it.
    Calls go before executions.

    Parameters
    ----------
    log : SpanLog
    ops : iterable of int
        What `op` of their spans is.
    n_sites : int
    t0, t1 : int

    Returns
    -------
    int
        Its ref, -1 if none is in memory.
    """
    wanted = np.zeros(n_sites, np.bool_)
    wanted[list(ops)] = True

    def touches(spans: npt.NDArray[Any]) -> Mask:
        inside: Mask = (spans["begin_ns"] < t1) & (spans["end_ns"] >= t0)
        return inside

    def before(spans: npt.NDArray[Any]) -> Mask:
        early: Mask = spans["begin_ns"] < t1
        return early

    low, high = _refs(log, t0, t1)
    for role in (CALL, 1 - CALL):

        def is_wanted(spans: npt.NDArray[Any], role: int = role) -> Mask:
            mine: Mask = wanted[spans["op"]] & (spans["role"] == role)
            return mine

        for begin, end, also in ((low, high, touches), (log.spans.head, high, before)):
            ref = _last(log, begin, end, is_wanted, also)
            if ref >= 0:
                return ref
        ref = _first(log, low, is_wanted)
        if ref >= 0:
            return ref
    return -1


def _refs(log: SpanLog, t0: int, t1: int) -> tuple[int, int]:
    """Return the refs, from first to after the last, of the steps whose spans touch a window."""
    begin, end = log.touching(t0, t1)
    rows = log.steps.view(begin, end)
    known = rows["first"] >= 0
    if not known.any():
        rows = log.steps.view(log.steps.head, end)
        high = int(rows["last"].max(initial=-1)) + 1
        return high, high
    return int(rows["first"][known].min()), int(rows["last"].max()) + 1


def _last(log: SpanLog, low: int, high: int, is_wanted: Test, also: Test) -> int:
    for end in range(high, low, -PIECE):
        begin = max(low, end - PIECE)
        spans = log.spans.view(begin, end)
        at = np.flatnonzero(is_wanted(spans) & also(spans))
        if len(at):
            return log.spans.first(begin) + int(at[-1])
    return -1


def _first(log: SpanLog, low: int, is_wanted: Test) -> int:
    for begin in range(low, log.spans.tail, PIECE):
        at = np.flatnonzero(is_wanted(log.spans.view(begin, begin + PIECE)))
        if len(at):
            return log.spans.first(begin) + int(at[0])
    return -1
