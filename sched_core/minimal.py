"""Every smallest set of syncs that keeps a program free of new hazards.

The kept set bounds the size.  Take what is kept so far; if a hazard is left, at least one sync on
some path between its two accesses must be kept as well, so branch over those.  A branch that has
tried a sync forbids it to its later siblings, so that no set is met twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.analyser import Analyser, moments_of
from syncscope.sched_core.program import Program

MAX_SETS = 4096
"""Sets that are listed; further ones are only known to exist."""


@dataclass(frozen=True, slots=True)
class MinimalSets:
    """The smallest sets of syncs.

    Parameters
    ----------
    size : int
        Syncs in each.
    sets : tuple of tuple of str
        Each as ``phase:site``, in the order of issue.
    complete : bool
        False if there are more than `MAX_SETS`.
    """

    size: int
    sets: tuple[tuple[str, ...], ...]
    complete: bool

    def quickest(self, time_ns: Callable[[tuple[str, ...]], float]) -> tuple[str, ...]:
        """Return the set whose predicted time is least, the first of equals."""
        return min(self.sets, key=time_ns)


class _Search:
    """Looks for all sets of one size."""

    def __init__(self, analyser: Analyser) -> None:
        self.analyser = analyser
        self.units = frozenset(analyser.units)
        self.found: list[frozenset[int]] = []
        self._syncs: dict[tuple[object, object], frozenset[int]] = {}

    def run(self, kept: frozenset[int], forbidden: frozenset[int], size: int) -> None:
        """Extend `kept` to sets of at most `size` without a hazard, using nothing forbidden."""
        if len(self.found) > MAX_SETS:
            return
        hazards = self.analyser.new_hazards(self.units - kept)
        if not len(hazards):
            self.found.append(kept)
            return
        if len(kept) == size:
            return
        choices = [self._candidates(hazard) - kept - forbidden for hazard in _sample(hazards)]
        choice = min(choices, key=len)
        for unit in sorted(choice):
            self.run(kept | {unit}, forbidden, size)
            forbidden = forbidden | {unit}

    def _candidates(self, hazard: np.void) -> frozenset[int]:
        """Syncs on any path between the accesses of a hazard."""
        start, end = moments_of(self.analyser, hazard, ())
        key = (start, end)
        if key not in self._syncs:
            between = self.analyser.graph.syncs_between(start, end, self.units)
            self._syncs[key] = frozenset(between)
        return self._syncs[key]


def _sample(hazards: npt.NDArray[Any], most: int = 16) -> npt.NDArray[Any]:
    """Return a few hazards spread over all: enough to find one with little choice."""
    return hazards[:: max(1, len(hazards) // most)]


def minimal_sets(program: Program, rules: str = "practical") -> MinimalSets:
    """Return all smallest sets of sync sites that make no hazard that is not there already.

    Raises
    ------
    UsageError
        For unknown rules.
    """
    analyser = Analyser(program, rules)
    for size in range(len(analyser.kept_set()) + 1):
        search = _Search(analyser)
        search.run(frozenset(), frozenset(), size)
        if search.found:
            names = {unit: analyser.name(unit) for unit in analyser.units}
            sets = sorted(
                {
                    tuple(names[unit] for unit in analyser.units if unit in each)
                    for each in search.found
                }
            )
            return MinimalSets(size, tuple(sets[:MAX_SETS]), len(search.found) <= MAX_SETS)
    raise AssertionError("the kept set itself has no new hazard")
