"""What happens in a range of time: how often and how long, by category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncscope.app.gui.lane_store import N_CATEGORIES
from syncscope.app.gui.row_source import Row
from syncscope.app.gui.theme import CATEGORIES, TITLES
from syncscope.app.gui.time_text import duration_text

COUNTED = ("host", "sync", "cpu_split", "stream", "copy_engine")
"""Kinds of rows whose spans count; the others show the same spans in another way."""

MAX_LINES = 6


@dataclass(frozen=True, slots=True)
class CategoryShare:
    """Spans of one category in the range; `share` is their time over that of the range."""

    category: int
    count: int
    busy_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class RangeStatistics:
    """A range ``[t0, t1)`` and what is in it, the longest first."""

    t0: int
    t1: int
    categories: tuple[CategoryShare, ...]

    @property
    def count(self) -> int:
        """Number of spans."""
        return sum(each.count for each in self.categories)


def range_statistics(rows: Sequence[Row], t0: int, t1: int) -> RangeStatistics:
    """Count what is in ``[t0, t1)``; spans that reach out of it count with what is inside."""
    counts, busy = np.zeros(N_CATEGORIES, np.int64), np.zeros(N_CATEGORIES, np.int64)
    for row in rows:
        if row.kind in COUNTED:
            for lane in row.lanes:
                lane_counts, lane_busy = lane.statistics(t0, t1)
                counts += lane_counts
                busy += lane_busy
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda c: -busy[c])
    length = max(t1 - t0, 1)
    return RangeStatistics(
        t0,
        t1,
        tuple(CategoryShare(c, int(counts[c]), int(busy[c]), busy[c] / length) for c in order),
    )


def statistics_lines(statistics: RangeStatistics, origin: str) -> list[tuple[int, str]]:
    """Return (category, text) of the longest categories; category -1 is the range itself.

    `origin` says where the times come from: ``simulated`` or ``measured``.
    """
    length = duration_text(statistics.t1 - statistics.t0)
    lines = [(-1, f"Δ {length} {origin}".strip() + f" · {statistics.count:,} spans")]
    for each in statistics.categories[:MAX_LINES]:
        title = TITLES[CATEGORIES[each.category]]
        lines.append(
            (
                each.category,
                f"{title}: {each.count:,} · {duration_text(each.busy_ns)} · {each.share:.1%}",
            )
        )
    left = len(statistics.categories) - MAX_LINES
    return [*lines, (-1, f"and {left} more")] if left > 0 else lines
