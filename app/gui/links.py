"""What joins spans: a call and what it made a stream do, a record or a copy and what waits for it.

A replayed graph has one call for all its members: it is joined with the first of them to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.catalog import Catalog, PlanFacts
from syncscope.app.gui.plan_pairs import Pair, find_pairs, horizon
from syncscope.app.gui.span_log import CALL, EXEC, SpanLog
from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Kind

MAX_CACHED = 256

Refs = npt.NDArray[np.int64]


class Links:
    """Finds spans that belong together, in the log of a recording.

    Parameters
    ----------
    log : SpanLog
    catalog : Catalog
    """

    def __init__(self, log: SpanLog, catalog: Catalog) -> None:
        self.log = log
        self.catalog = catalog
        self._pairs: dict[tuple[int, tuple[str, ...]], tuple[Pair, ...]] = {}

    # ---- single spans ---------------------------------------------------------------------------

    def find(self, step: int, phase: str, name: str, role: int) -> int:
        """Return the ref of a site's call or execution in a step, -1 if it is not in memory."""
        key = self.catalog.key(phase, name)
        first, spans = self.log.of_step(step, role)
        if key < 0 or not len(spans):
            return -1
        at = np.flatnonzero(
            (spans["step"] == step)
            & (spans["role"] == role)
            & (self.catalog.key_of_site[spans["op"]] == key)
        )
        return first + int(at[0]) if len(at) else -1

    def either(self, step: int, name: str, role: int) -> int:
        """Return a site's span of a step in that role, or in the other if there is none."""
        phase = self.log.phase(step)
        ref = self.find(step, phase, name, role)
        return ref if ref >= 0 else self.find(step, phase, name, 1 - role)

    def of(self, ref: int) -> tuple[int, ...]:
        """Return the refs of what belongs to a span, itself left out, in time order of refs."""
        if ref not in self.log.spans:
            return ()
        span = self.log.spans[ref]
        site, step, role = self.catalog.sites[span["op"]], int(span["step"]), int(span["role"])
        found = {self._twin(site, step, role)}
        found.update(self._members(site, step, role))
        found.update(self._waiting(site, step))
        return tuple(sorted(found - {ref, -1}))

    def _twin(self, site: Site, step: int, role: int) -> int:
        return self.find(step, site.phase, site.name, 1 - role)

    def _members(self, site: Site, step: int, role: int) -> Iterator[int]:
        """Yield the first member of a graph's launch, or the launch of a member without a call."""
        facts = self.catalog.facts_at(step)
        op = facts.ops.get((site.phase, site.name)) if facts is not None else None
        if facts is None or op is None or op.graph < 0:
            return
        if op.kind == Kind.GRAPH and role == CALL:
            names = [
                each.site
                for each in facts.plan.phases[site.phase]
                if each.graph == op.graph and each.kind != Kind.GRAPH
            ]
            yield self._first_run(step, site.phase, names)
        elif role == EXEC and self._twin(site, step, role) < 0:
            for each in facts.plan.phases[site.phase]:
                if each.graph == op.graph and each.kind == Kind.GRAPH:
                    yield self.find(step, site.phase, each.site, CALL)

    def _first_run(self, step: int, phase: str, names: Iterable[str]) -> int:
        first, spans = self.log.of_step(step, EXEC)
        keys = [self.catalog.key(phase, name) for name in names]
        at = np.flatnonzero(
            (spans["step"] == step)
            & (spans["role"] == EXEC)
            & np.isin(self.catalog.key_of_site[spans["op"]], keys)
        )
        return first + int(at[np.argmin(spans["begin_ns"][at])]) if len(at) else -1

    def _waiting(self, site: Site, step: int) -> Iterator[int]:
        """Yield what waits for a record or a copy, and what a wait waits for."""
        for pair in self.pairs(step):
            if pair.first == site.name:
                yield self.either(step + pair.steps_later, pair.second, CALL)
        facts = self.catalog.facts_at(step)
        for earlier in range(horizon(facts.plan) + 1) if facts is not None else ():
            for pair in self.pairs(step - earlier):
                if pair.second == site.name and pair.steps_later == earlier:
                    role = EXEC if pair.is_copy else CALL
                    yield self.either(step - earlier, pair.first, role)

    def pairs(self, step: int) -> tuple[Pair, ...]:
        """Return what waits for what a step does."""
        change = int(self.catalog.change_index(step))
        facts = self.catalog.facts_at(step)
        if facts is None or step not in self.log.steps:
            return ()
        phases = [
            self.log.phase(each)
            for each in range(step, step + horizon(facts.plan) + 1)
            if each in self.log.steps and self.catalog.change_index(each) == change
        ]
        return self._cached(facts, tuple(phases))

    def _cached(self, facts: PlanFacts, phases: tuple[str, ...]) -> tuple[Pair, ...]:
        key = (id(facts), phases)
        if key not in self._pairs:
            if len(self._pairs) >= MAX_CACHED:
                self._pairs.clear()
            self._pairs[key] = find_pairs(facts.plan, phases)
        return self._pairs[key]

    # ---- all of a window ------------------------------------------------------------------------

    def between(self, begin: int, end: int) -> tuple[Refs, Refs]:
        """Return all pairs of refs of the steps ``[begin, end)``: from, to.

        Steps of one phase under one plan are looked up together.
        """
        refs = self._refs(begin, end)
        spans = self.log.spans.view(int(refs[0]), int(refs[-1]) + 1)[refs - refs[0]] if len(
            refs
        ) else self.log.spans.view(0, 0)
        n_keys = max(1, len(self.catalog.sites))
        key = self.catalog.key_of_site[spans["op"]] + n_keys * (spans["step"].astype(np.int64))
        tables = [_Lookup(key[spans["role"] == r], refs[spans["role"] == r]) for r in (CALL, EXEC)]
        calls, runs = tables
        call_of = calls.find(runs.keys)
        own = call_of >= 0
        froms, tos = [call_of[own]], [runs.refs[own]]
        for launch, member in self._graph_launches(begin, end):
            froms.append(np.array([launch], np.int64))
            tos.append(np.array([member], np.int64))
        for pairs, steps in self._steps_alike(begin, end):
            for pair in pairs:
                sources = self._keys(pair.first, steps, n_keys)
                targets = self._keys(pair.second, steps + pair.steps_later, n_keys)
                one, other = (runs, calls) if pair.is_copy else (calls, runs)
                source = one.find(sources)
                source = np.where(source < 0, other.find(sources), source)
                target = calls.find(targets)
                target = np.where(target < 0, runs.find(targets), target)
                both = (source >= 0) & (target >= 0)
                froms.append(source[both])
                tos.append(target[both])
        return np.concatenate(froms), np.concatenate(tos)

    def _refs(self, begin: int, end: int) -> Refs:
        """Return the refs of all spans of some steps, rising."""
        rows = self.log.steps.view(begin, end)
        some = rows["first"][rows["first"] >= 0]
        if not len(some):
            return np.zeros(0, np.int64)
        low, high = int(some.min()), int(rows["last"].max()) + 1
        first, spans = self.log.spans.first(low), self.log.spans.view(low, high)
        mine = (spans["step"] >= begin) & (spans["step"] < end)
        mine &= self.catalog.in_step[spans["op"]]
        return first + np.flatnonzero(mine)

    def _keys(self, name: str, steps: Refs, n_keys: int) -> Refs:
        """Return the keys of a site in steps, which may be of several phases."""
        phases = [self.log.phase(step) for step in steps.tolist()]
        number = {phase: self.catalog.key(phase, name) for phase in set(phases)}
        keys = np.array([number[phase] for phase in phases], np.int64)
        return np.where(keys < 0, -1, keys + n_keys * steps)

    def _steps_alike(self, begin: int, end: int) -> Iterator[tuple[tuple[Pair, ...], Refs]]:
        """Yield the pairs of steps, and the steps that have them."""
        alike: dict[tuple[Pair, ...], list[int]] = {}
        for step in range(begin, end):
            alike.setdefault(self.pairs(step), []).append(step)
        for pairs, steps in alike.items():
            yield pairs, np.array(steps, np.int64)

    def _graph_launches(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the call of each replayed graph, and its first member that ran."""
        for step in range(begin, end):
            facts = self.catalog.facts_at(step)
            phase = self.log.phase(step)
            for op in facts.plan.phases.get(phase, ()) if facts is not None else ():
                if op.kind == Kind.GRAPH:
                    call = self.find(step, phase, op.site, CALL)
                    if call >= 0:
                        for member in self._members(self.catalog.sites[self.log.spans[call]["op"]],
                                                    step, CALL):
                            if member >= 0:
                                yield call, member


class _Lookup:
    """Refs by key."""

    def __init__(self, keys: Refs, refs: Refs) -> None:
        order = np.argsort(keys, kind="stable")
        self.keys, self.refs = keys[order], refs[order]

    def find(self, keys: Refs) -> Refs:
        """Return the first ref of each key, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.refs[at], -1)
