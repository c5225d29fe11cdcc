"""What joins spans: a call and what it made a stream do, a record or a copy and what waits for it.

A replayed graph has one call for all its members: it leads to the first of them to run, and all of
them lead back to it.
`joins` finds the same for all spans of a window at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from syncscope.app.gui.catalog import Catalog, PlanFacts
from syncscope.app.gui.plan_pairs import Pair, find_pairs, horizon
from syncscope.app.gui.span_log import CALL, EXEC, SpanLog
from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Kind

MAX_CACHED = 256


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
        self._pairs: dict[tuple[PlanFacts, tuple[str, ...]], tuple[Pair, ...]] = {}

    @property
    def reach(self) -> int:
        """How many steps apart spans that belong together can be."""
        return max((horizon(each.plan) for each in self.catalog.facts), default=0)

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
        return self.pairs_of(facts, tuple(phases))

    def pairs_of(self, facts: PlanFacts, phases: tuple[str, ...]) -> tuple[Pair, ...]:
        """Return the pairs of a step under a plan, by its phase and those of the steps after it."""
        key = (facts, phases)
        if key not in self._pairs:
            if len(self._pairs) >= MAX_CACHED:
                self._pairs.clear()
            self._pairs[key] = find_pairs(facts.plan, phases)
        return self._pairs[key]
