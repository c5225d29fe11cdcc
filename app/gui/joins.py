"""All that joins spans in a run of steps, found at once: see `links` for what belongs together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.catalog import PlanFacts
from syncscope.app.gui.links import Links
from syncscope.app.gui.plan_pairs import horizon
from syncscope.app.gui.span_log import CALL, EXEC
from syncscope.sched_core.records import Kind

Ints = npt.NDArray[np.int64]
NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Alike:
    """Steps under one plan that are of one phase, and followed by the same phases."""

    facts: PlanFacts
    phases: tuple[str, ...]
    steps: Ints


def find_joins(links: Links, begin: int, end: int) -> tuple[Ints, Ints]:
    """Return the refs of all pairs of spans of the steps ``[begin, end)``: from, to."""
    refs, spans = _spans(links, begin, end)
    lookup = _Lookup(links, refs, spans)
    call_of = lookup.calls.find(lookup.runs.keys)
    own = call_of >= 0
    found = [(call_of[own], lookup.runs.refs[own])]
    for alike in _alike(links, begin, end):
        found += _graphs(links, lookup, alike)
        for pair in links.pairs_of(alike.facts, alike.phases):
            source = lookup.keys(alike.phases[0], pair.first, alike.steps)
            later = alike.steps + pair.steps_later
            target = lookup.keys(alike.phases[pair.steps_later], pair.second, later)
            found.append((lookup.either(source, pair.is_copy), lookup.either(target, False)))
    one, other = (np.concatenate(each) for each in zip(*found, strict=True))
    both = (one >= 0) & (other >= 0)
    return one[both], other[both]


def _spans(links: Links, begin: int, end: int) -> tuple[Ints, npt.NDArray[Any]]:
    """Return all spans of some steps, with their refs."""
    log = links.log
    rows = log.steps.view(begin, end)
    known = rows["first"] >= 0
    if not known.any():
        return NOTHING, log.spans.view(0, 0)
    low, high = int(rows["first"][known].min()), int(rows["last"].max()) + 1
    spans = log.spans.view(low, high)
    mine = (spans["step"] >= begin) & (spans["step"] < end)
    mine &= links.catalog.in_step[spans["op"]]
    at = np.flatnonzero(mine)
    return log.spans.first(low) + at, spans[at]


def _alike(links: Links, begin: int, end: int) -> Iterator[Alike]:
    """Sort steps by the plan, by their phase and by the phases that follow."""
    log, catalog = links.log, links.catalog
    begin, end = max(begin, log.steps.head), min(end, log.steps.tail)
    change = catalog.change_index(np.arange(begin, end))
    for index in np.unique(change).tolist() if catalog.facts else ():
        facts = catalog.facts[index]
        steps = begin + np.flatnonzero(change == index)
        reach = horizon(facts.plan) + 1
        follow = steps[:, None] + np.arange(reach)
        there = (follow < log.steps.tail) & (catalog.change_index(follow) == index)
        codes = log.steps.view(begin, log.steps.tail)["phase"]
        phases = np.where(there, codes[np.minimum(follow - begin, len(codes) - 1)], -1)
        for row in np.unique(phases, axis=0):
            names = tuple(log.phase_names[code] for code in row.tolist() if code >= 0)
            yield Alike(facts, names, steps[np.all(phases == row, axis=1)])


def _graphs(links: Links, lookup: _Lookup, alike: Alike) -> Iterator[tuple[Ints, Ints]]:
    """Yield the launches of each graph, and the first of its members that ran."""
    phase = alike.phases[0]
    ops = alike.facts.plan.phases.get(phase, ())
    for graph in ops:
        if graph.kind != Kind.GRAPH:
            continue
        launches = lookup.calls.find(lookup.keys(phase, graph.site, alike.steps))
        members = [each for each in ops if each.graph == graph.graph and each.kind != Kind.GRAPH]
        if not members or not (launches >= 0).any():
            continue
        runs = np.stack(
            [lookup.runs.find(lookup.keys(phase, each.site, alike.steps)) for each in members]
        )
        spans = links.log.spans
        begin_ns = spans.view(spans.head, spans.tail)["begin_ns"][np.maximum(runs - spans.head, 0)]
        begin_ns = np.where(runs >= 0, begin_ns, np.iinfo(np.int64).max)
        yield launches, runs[np.argmin(begin_ns, axis=0), np.arange(len(alike.steps))]


class _Table:
    """Refs by key."""

    def __init__(self, keys: Ints, refs: Ints) -> None:
        order = np.argsort(keys, kind="stable")
        self.keys, self.refs = keys[order], refs[order]

    def find(self, keys: Ints) -> Ints:
        """Return the first ref of each key, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.refs[at], -1)


class _Lookup:
    """Finds calls and executions by site and step."""

    def __init__(self, links: Links, refs: Ints, spans: npt.NDArray[Any]) -> None:
        self._catalog = links.catalog
        self._n_keys = len(links.catalog.sites)
        keys = links.catalog.key_of_site[spans["op"]] + self._n_keys * spans["step"].astype(int)
        called, ran = (spans["role"] == role for role in (CALL, EXEC))
        self.calls, self.runs = _Table(keys[called], refs[called]), _Table(keys[ran], refs[ran])

    def keys(self, phase: str, site: str, steps: Ints) -> Ints:
        """Return the key of a site in each step; -1 if nothing so far was of that site."""
        number = self._catalog.key(phase, site)
        return np.full(len(steps), -1) if number < 0 else number + self._n_keys * steps

    def either(self, keys: Ints, is_run: bool) -> Ints:
        """Return executions, or calls, or the other where there is none."""
        first, second = (self.runs, self.calls) if is_run else (self.calls, self.runs)
        found = first.find(keys)
        return np.where(found < 0, second.find(keys), found)
