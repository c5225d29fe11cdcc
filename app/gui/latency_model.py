"""Time per token, as `app.bench.metrics` defines a step, while a run grows: figures, histogram.

The period of a token lies between the ends of the last device work of its decode step and of the
one before.  Spans are added in O(of them); figures are computed when they are asked for, and kept
until the next spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.bench.metrics import EXEC, SWITCH, steady_periods
from syncscope.app.gui.busy_time import CAPACITY as INTERVALS
from syncscope.app.gui.busy_time import BusyTime
from syncscope.app.gui.sliding import Sliding
from syncscope.sched_core.pattern import SYNC_LETTERS, letter
from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Kind

CAPACITY = 1 << 15
"""Steps that are kept in a live run: so many that a p99 stands on hundreds of tokens, so few that
figures are made within a frame."""

STEP = np.dtype([("end_ns", "<i8"), ("blocked_ns", "<i8"), ("decode", "?"), ("replayed", "?")])
"""Of a step: end of its last device work (-1 none), time in calls that wait, whether it is a decode
step, whether it launched a graph."""

TOKEN = np.dtype(
    [
        ("step", "<i8"),
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("blocked_ns", "<i8"),
        ("busy_ns", "<i8"),
        ("idle_ns", "<i8"),
        ("change", "<i4"),
        ("steady", "?"),
    ]
)
"""A token: its step, its period, how long the host waited in its step, how long any stream had work
in its period and how long none had, which change of plan it runs under (-1 none), and whether it
counts as steady state."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of tokens in steady state: medians, but for the last, which is of all their time."""

    n_tokens: int
    period_ns: float
    p99_ns: float
    blocked_ns: float
    busy_ns: float
    idle_ns: float
    idle_share: float


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change of plan did to the time per token; `change` counts from 0."""

    change: int
    before: Figures
    after: Figures

    @property
    def difference_ns(self) -> float:
        """How much longer the median period became."""
        return self.after.period_ns - self.before.period_ns


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of several sets of periods over the same bins; the last bin holds all beyond it."""

    edges_ns: npt.NDArray[np.float64]
    counts: tuple[npt.NDArray[np.int64], ...]


class LatencyModel:
    """Times of the newest steps of a run.

    Parameters
    ----------
    capacity : int
        So many steps are kept.
    n_intervals : int
        So many intervals of device work are kept; tokens before them are left out.

    Attributes
    ----------
    busy : BusyTime
        When any stream had work.
    """

    def __init__(self, capacity: int = CAPACITY, n_intervals: int = INTERVALS) -> None:
        self.busy = BusyTime(n_intervals)
        self._steps = Sliding(STEP, capacity)
        self._changes: list[int] = []
        self._waits = np.zeros(0, np.bool_)
        self._graphs = np.zeros(0, np.bool_)
        self._outside = np.zeros(0, np.bool_)
        self._drains = np.zeros(0, np.int64)
        self._tokens: npt.NDArray[Any] | None = None
        self._figures: dict[int | None, Figures | None] = {}

    @property
    def nbytes(self) -> int:
        """Memory reserved, but for a few bytes per drain."""
        return self._steps.nbytes + self.busy.nbytes

    @property
    def first_step(self) -> int:
        """The oldest step that is kept."""
        return self._steps.head

    # ---- what comes in --------------------------------------------------------------------------

    def extend(
        self,
        spans: npt.NDArray[Any],
        sites: Iterable[Site] = (),
        phases: Sequence[str] = (),
        changes: Iterable[int] = (),
    ) -> None:
        """Take in what is new.

        Parameters
        ----------
        spans : ndarray of SPAN
            In any order; those of steps that are no longer kept are left out.
        sites : iterable of Site
            New ones, behind those that `op` indexed so far.
        phases : sequence of str
            Of new steps.
        changes : iterable of int
            Steps from which on new plans run.
        """
        self._tokens = None
        self._figures.clear()
        self._changes += changes
        self._add_sites(sites)
        rows = np.zeros(len(phases), STEP)
        rows["end_ns"] = -1
        rows["decode"] = [phase == "decode" for phase in phases]
        self._steps.append(rows)
        if len(spans):
            self._add_spans(spans)

    def _add_sites(self, sites: Iterable[Site]) -> None:
        sites = tuple(sites)
        if not sites:
            return
        outside = np.array([each.phase == SWITCH for each in sites], np.bool_)
        letters = [letter(each.kind, each.blocking, each.scope) for each in sites]
        waits = np.array([each != "" and each in SYNC_LETTERS for each in letters], np.bool_)
        graphs = np.array([each.kind == Kind.GRAPH for each in sites], np.bool_)
        self._outside = np.concatenate([self._outside, outside])
        self._waits = np.concatenate([self._waits, waits & ~outside])
        self._graphs = np.concatenate([self._graphs, graphs])

    def _add_spans(self, spans: npt.NDArray[Any]) -> None:
        steps = self._steps.view(self._steps.head, self._steps.tail)
        op = spans["op"]
        at = spans["step"].astype(np.int64) - self._steps.head
        known = (at >= 0) & (at < len(steps))
        is_run = spans["role"] == EXEC
        runs = np.flatnonzero(is_run)
        end_ns = spans["end_ns"][runs]
        self.busy.add(spans["begin_ns"][runs], end_ns)
        mine = known[runs]
        np.maximum.at(steps["end_ns"], at[runs][mine], end_ns[mine])
        waits = np.flatnonzero(self._waits[op] & known & ~is_run)
        waited_ns = spans["end_ns"][waits] - spans["begin_ns"][waits]
        np.add.at(steps["blocked_ns"], at[waits], waited_ns)
        steps["replayed"][at[self._graphs[op] & known & ~is_run]] = True
        drains = np.flatnonzero(self._outside[op] & ~is_run)
        if len(drains):
            self._add_drains(spans["end_ns"][drains], steps)

    def _add_drains(self, end_ns: npt.NDArray[np.int64], steps: npt.NDArray[Any]) -> None:
        """Note when drains ended; those before the steps that are kept matter no more."""
        worked = steps["end_ns"][steps["end_ns"] >= 0]
        drains = np.sort(np.concatenate([self._drains, end_ns]))
        oldest = int(worked[0]) if len(worked) and self._steps.head else 0
        self._drains = drains[np.searchsorted(drains, oldest) :]

    # ---- what it says ---------------------------------------------------------------------------

    def tokens(self) -> npt.NDArray[Any]:
        """Return every period between two decode steps that follow each other, rows of TOKEN."""
        if self._tokens is None:
            self._tokens = self._find_tokens()
        return self._tokens

    def _find_tokens(self) -> npt.NDArray[Any]:
        rows = self._steps.view(self._steps.head, self._steps.tail)
        found = np.flatnonzero(rows["decode"] & (rows["end_ns"] >= 0))
        if len(found) < 2:
            return np.zeros(0, TOKEN)
        steps, rows = found + self._steps.head, rows[found]
        end_ns = np.maximum.accumulate(rows["end_ns"])
        tokens = np.zeros(len(steps) - 1, TOKEN)
        tokens["step"] = steps[1:]
        tokens["begin_ns"], tokens["end_ns"] = end_ns[:-1], end_ns[1:]
        tokens["blocked_ns"] = rows["blocked_ns"][1:]
        tokens["busy_ns"] = np.diff(self.busy.until(end_ns))
        tokens["idle_ns"] = tokens["end_ns"] - tokens["begin_ns"] - tokens["busy_ns"]
        tokens["change"] = np.searchsorted(self._changes, steps[1:], side="right") - 1
        tokens["steady"] = steady_periods(steps, end_ns, rows["replayed"], self._drains)
        whole = (np.diff(steps) == 1) & (tokens["begin_ns"] >= self.busy.since_ns)
        kept: npt.NDArray[Any] = tokens[whole]
        return kept

    def steady(self, change: int | None = None) -> npt.NDArray[Any]:
        """Return the tokens in steady state; with `change`, those under that change of plan."""
        tokens = self.tokens()
        keep = tokens["steady"]
        if change is not None:
            keep = keep & (tokens["change"] == change)
        kept: npt.NDArray[Any] = tokens[keep]
        return kept

    def figures(self, change: int | None = None) -> Figures | None:
        """Return the figures of `steady`; None if there are no such tokens."""
        if change not in self._figures:
            self._figures[change] = figures(self.steady(change))
        return self._figures[change]

    def effects(self) -> tuple[Effect, ...]:
        """Return what each change of plan did, of those with steady state before and after."""
        each = [self.figures(i) for i in range(len(self._changes))]
        return tuple(
            Effect(i, before, after)
            for i, (before, after) in enumerate(pairwise(each), 1)
            if before is not None and after is not None
        )


def figures(tokens: npt.NDArray[Any]) -> Figures | None:
    """Return the figures of some tokens, rows of TOKEN; None if there is none."""
    if not len(tokens):
        return None
    period = tokens["end_ns"] - tokens["begin_ns"]
    total = int(period.sum())
    return Figures(
        n_tokens=len(tokens),
        period_ns=float(np.median(period)),
        p99_ns=float(np.percentile(period, 99)),
        blocked_ns=float(np.median(tokens["blocked_ns"])),
        busy_ns=float(np.median(tokens["busy_ns"])),
        idle_ns=float(np.median(tokens["idle_ns"])),
        idle_share=int(tokens["idle_ns"].sum()) / total if total else 0.0,
    )


def histogram(sets: Sequence[npt.NDArray[Any]], n_bins: int = 60) -> Histogram:
    """Count the periods of sets of tokens, such as those before and after a change.

    Bins of one width reach from the shortest period to the 99.5th percentile of all; the last one
    takes what is longer, too.
    """
    periods = [each["end_ns"] - each["begin_ns"] for each in sets]
    every = np.concatenate([np.zeros(0, np.int64), *periods])
    low = high = 0.0
    if len(every):
        low, high = float(every.min()), float(np.percentile(every, 99.5, method="lower"))
    edges = np.linspace(low, max(high, low + n_bins), n_bins + 1)
    counts = (np.histogram(np.minimum(each, edges[-1]), edges)[0] for each in periods)
    return Histogram(edges, tuple(each.astype(np.int64) for each in counts))
