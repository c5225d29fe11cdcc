"""Two runs side by side: which step goes with which, what each site takes in either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.latency_model import Figures
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.sites_model import SiteEntry
from syncscope.app.gui.span_log import LATEST
from syncscope.sched_core.records import PHASES

Ints = npt.NDArray[np.int64]

Phases = Sequence[str] | npt.NDArray[np.str_]

Key = tuple[str, str, str]
"""Phase, site and kind of a row of the site table."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Steps of two runs that go together.

    Parameters
    ----------
    first, second : ndarray of int64, shape (n,)
        Steps of the first and of the second run, rising.
    offset_ns : ndarray of int64, shape (n,)
        What is added to a time of the second run so that its step begins with that of the first.
    """

    first: Ints
    second: Ints
    offset_ns: Ints

    def __len__(self) -> int:
        return len(self.first)

    def offset_at(self, step: int) -> int:
        """Return the offset for a step of the first run: that of the nearest one that has any."""
        if not len(self.first):
            return 0
        at = min(int(np.searchsorted(self.first, step)), len(self.first) - 1)
        if at and step - self.first[at - 1] < self.first[at] - step:
            at -= 1
        return int(self.offset_ns[at])

    def partner(self, step: int) -> int:
        """Return the step of the second run that goes with one of the first; -1 if none does."""
        at = int(np.searchsorted(self.first, step))
        found = at < len(self.first) and self.first[at] == step
        return int(self.second[at]) if found else -1


def align(
    phases: tuple[Phases, Phases],
    begins_ns: tuple[Ints, Ints],
    first_step: tuple[int, int] = (0, 0),
) -> Alignment:
    """Let the n-th step of each phase of one run go with the n-th of the other.

    Runs of one prompt and micro-batch have the same steps, whatever their plans; where they differ,
    prompts go with prompts and tokens with tokens.

    Parameters
    ----------
    phases : pair of sequence or array of str
        Of the steps that are in memory.
    begins_ns : pair of ndarray of int64
        When each begins.
    first_step : pair of int
        Numbers of the first of them.
    """
    columns: list[list[Ints]] = [[], []]
    arrays = [np.array(each, np.str_) for each in phases]
    for phase in PHASES:
        both = [np.flatnonzero(each == phase) for each in arrays]
        n = min(map(len, both))
        for column, found in zip(columns, both, strict=True):
            column.append(found[:n])
    one, two = (np.concatenate(each) for each in columns)
    order = np.argsort(one, kind="stable")
    one, two = one[order], two[order]
    return Alignment(
        first=one + first_step[0],
        second=two + first_step[1],
        offset_ns=begins_ns[0][one] - begins_ns[1][two],
    )


@dataclass(frozen=True, slots=True)
class SiteDifference:
    """A row of the site table in two runs; None where a run has no such row."""

    phase: str
    site: str
    kind: str
    first: SiteEntry | None
    second: SiteEntry | None

    @property
    def per_step(self) -> float:
        """How many more calls a step has in the second run."""
        one, two = (0.0 if each is None else each.row.per_step for each in self._both)
        return two - one

    @property
    def wait_us(self) -> float:
        """How much longer the host is in them per step in the second run."""
        one, two = (0.0 if each is None else each.row.wait_us for each in self._both)
        return two - one

    @property
    def _both(self) -> tuple[SiteEntry | None, SiteEntry | None]:
        return self.first, self.second


def site_differences(
    first: Sequence[SiteEntry], second: Sequence[SiteEntry]
) -> tuple[SiteDifference, ...]:
    """Join the site tables of two runs: the first's rows, then those that only the second has.

    Each phase is kept together, in the order of `PHASES`.
    """
    one, two = ({_key(each): each for each in entries} for entries in (first, second))
    keys = sorted(dict.fromkeys([*one, *two]), key=lambda key: PHASES.index(key[0]))
    return tuple(SiteDifference(*key, one.get(key), two.get(key)) for key in keys)


def _key(entry: SiteEntry) -> Key:
    return entry.row.phase, entry.row.site, entry.row.kind


@dataclass(frozen=True, slots=True)
class StepDifference:
    """Time per token of two runs; None where a run has none in steady state."""

    first: Figures | None
    second: Figures | None

    @property
    def period_ns(self) -> float | None:
        """How much longer the median token of the second run takes."""
        if self.first is None or self.second is None:
            return None
        return self.second.period_ns - self.first.period_ns

    @property
    def speed_up(self) -> float | None:
        """How many times as fast the second run is."""
        if self.first is None or self.second is None or not self.second.period_ns:
            return None
        return self.first.period_ns / self.second.period_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs have in common and in what they differ."""

    alignment: Alignment
    sites: tuple[SiteDifference, ...]
    step: StepDifference


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared of a run, as it stood when `side` looked at it.

    Parameters
    ----------
    base_step : int
        Number of the first step.
    steps : ndarray of span_log.STEP
        Of the steps in memory.
    phase_names : tuple of str
        What `phase` of a step indexes.
    entries : tuple of SiteEntry
    figures : Figures or None
    """

    base_step: int
    steps: npt.NDArray[Any]
    phase_names: tuple[str, ...]
    entries: tuple[SiteEntry, ...]
    figures: Figures | None


def side(recording: Recording) -> Side:
    """Copy what is compared of a run, so that it can go on meanwhile."""
    log = recording.rows.log
    return Side(
        base_step=log.steps.head,
        steps=log.steps.view(log.steps.head, log.steps.tail).copy(),
        phase_names=tuple(log.phase_names),
        entries=recording.table.entries(),
        figures=recording.latency.figures(),
    )


def compare(first: Side, second: Side) -> Comparison:
    """Compare what was in memory of two runs."""
    return Comparison(
        alignment=align(
            (_phases(first), _phases(second)),
            (_begins(first), _begins(second)),
            (first.base_step, second.base_step),
        ),
        sites=site_differences(first.entries, second.entries),
        step=StepDifference(first.figures, second.figures),
    )


def _phases(run: Side) -> npt.NDArray[np.str_]:
    """Return the phase of each step; no phase where no span tells the begin."""
    names = np.array([*run.phase_names, ""], np.str_)
    found: npt.NDArray[np.str_] = names[np.where(_is_there(run), run.steps["phase"], -1)]
    return found


def _begins(run: Side) -> Ints:
    """Return when each step begins."""
    begins: Ints = np.where(_is_there(run), run.steps["begin_ns"], 0)
    return begins


def _is_there(run: Side) -> npt.NDArray[np.bool_]:
    there: npt.NDArray[np.bool_] = run.steps["begin_ns"] < LATEST
    return there
