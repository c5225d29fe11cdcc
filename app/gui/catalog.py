"""What each site is in each plan that ran: how it is drawn, on which kind of row, what it touches.

Spans name a site and a step; the step says which plan ran, the plan's analysis which verdict the
site has.  All of it is looked up in tables by (change of plan, site, role), so that a million spans
cost a few array operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.categories import CATEGORIES, VERDICT_CATEGORY
from syncscope.app.gui.span_log import CALL, EXEC
from syncscope.app.live_batch import PlanChange
from syncscope.app.report.site_table import SYNC_KINDS, site_kind
from syncscope.sched_core.engine import SWITCH
from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Finding, Kind, Op, Plan

KINDS = ("host", "sync", "cpu_split", "stream", "h2d", "d2h")
"""What a row holds; the last two are copy engines."""

DIRECTIONS = {
    (False, True): "h2d",
    (True, False): "d2h",
    (True, True): "d2d",
    (False, False): "h2h",
}
"""By whether source and target are on the device."""

READS, WRITES = 1, 2
"""Bits of what a site does to a buffer."""

MAX_CHANGES = 256
"""So many changes of plan are kept; spans of older ones are drawn as those of the oldest."""

Key = tuple[str, str]
"""Phase and name of a site."""

Looks = tuple[tuple[int, int], tuple[int, int]]
"""Category and kind of row of a site's calls, then of its executions."""

Table = npt.NDArray[np.uint8]


def direction(plan: Plan, op: Op) -> str:
    """Return where a copy goes, a value of `DIRECTIONS`."""
    memory = [plan.buffer(each.buffer).memory in ("device", "managed") for each in op.accesses]
    return DIRECTIONS[memory[0], memory[1]]


@dataclass(slots=True, eq=False)
class PlanFacts:
    """A change of plan, its ops and findings by phase and name, and the looks of all sites so far.

    Each is a key of its own: two changes to the same plan are not the same.
    """

    change: PlanChange
    ops: dict[Key, Op] = field(init=False)
    findings: dict[Key, Finding] = field(init=False)
    looks: list[Looks] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        plan = self.change.planned.plan
        self.ops = {(phase, op.site): op for phase, ops in plan.phases.items() for op in ops}
        self.findings = {(each.phase, each.site): each for each in self.change.findings}

    @property
    def plan(self) -> Plan:
        """The plan that ran."""
        return self.change.planned.plan

    def direction(self, key: Key) -> str:
        """Return where a copy goes; empty if the plan does not say."""
        op = self.ops.get(key)
        return direction(self.plan, op) if op is not None and op.kind == Kind.COPY else ""

    def verdict(self, key: Key) -> str:
        """Return the verdict of a site; empty if it has none."""
        finding = self.findings.get(key)
        return "" if finding is None else finding.verdict


class Catalog:
    """Sites and changes of plan so far, and tables of shape (changes, sites, 2) over them.

    Where no change is known there is one row all the same, in which no site has a verdict.
    """

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.names: list[str] = []
        self.facts: list[PlanFacts] = []
        self.forgotten = 0
        self._keys: dict[Key, int] = {}
        self.key_of_site = np.zeros(0, np.int64)
        self.in_step = np.zeros(0, np.bool_)
        self._categories: Table = np.zeros((1, 0, 2), np.uint8)
        self._kinds: Table = np.zeros((1, 0, 2), np.uint8)
        self._uses: dict[str, Table] = {}
        self._begins = np.zeros(1, np.int64)

    @property
    def changes(self) -> tuple[PlanChange, ...]:
        """The changes of plan that are kept."""
        return tuple(each.change for each in self.facts)

    def add(self, sites: Iterable[Site], changes: Iterable[PlanChange]) -> None:
        """Take in new sites and changes of plan, before the spans that name them."""
        sites, new = tuple(sites), [PlanFacts(each) for each in changes]
        if not sites and not new:
            return
        self.sites += sites
        self.names += [each.name for each in sites]
        self.facts += new
        self.forgotten += max(0, len(self.facts) - MAX_CHANGES)
        del self.facts[:-MAX_CHANGES]
        self._uses = {}
        for each in sites:
            self._keys.setdefault((each.phase, each.name), len(self._keys))
        keys = [self._keys[each.phase, each.name] for each in self.sites]
        self.key_of_site = np.array(keys, np.int64)
        self.in_step = np.array([each.phase != SWITCH for each in self.sites], np.bool_)
        self._begins = np.array([each.change.step for each in self.facts] or [0], np.int64)
        rows = [self._looks(each) for each in self._plans()]
        table = np.array(rows, np.uint8).reshape(len(rows), len(self.sites), 2, 2)
        self._categories, self._kinds = (np.ascontiguousarray(table[..., i]) for i in (0, 1))

    def _looks(self, facts: PlanFacts | None) -> list[Looks]:
        if facts is None:
            return [_looks(None, site) for site in self.sites]
        facts.looks += [_looks(facts, site) for site in self.sites[len(facts.looks) :]]
        return facts.looks

    def _plans(self) -> Sequence[PlanFacts | None]:
        """Return what the rows of tables are."""
        return self.facts or (None,)

    def change_index(self, step: npt.NDArray[Any] | int) -> npt.NDArray[np.int64]:
        """Return which change of those kept a step runs under."""
        found = np.searchsorted(self._begins, step, side="right") - 1
        return np.maximum(found, 0)

    def facts_at(self, step: int) -> PlanFacts | None:
        """Return the plan that ran at a step; None if none is known."""
        return self.facts[int(self.change_index(step))] if self.facts else None

    def look_up(self, table: npt.NDArray[Any], spans: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what a table of shape (changes, sites, 2) says of each span.

        What is out of the table is clipped: another thread may look while spans are overwritten.
        """
        at = 2 * spans["op"].astype(np.int64) + spans["role"]
        if len(table) > 1:
            at += self.change_index(spans["step"]) * (2 * table.shape[1])
        found: npt.NDArray[Any] = table.reshape(-1).take(at, mode="clip")
        return found

    def categories(self, spans: npt.NDArray[Any]) -> Table:
        """Return the category of each span."""
        return self.look_up(self._categories, spans)

    def kinds(self, spans: npt.NDArray[Any]) -> Table:
        """Return which of `KINDS` the row of each span is."""
        return self.look_up(self._kinds, spans)

    def key(self, phase: str, name: str) -> int:
        """Return the number of a phase and site, -1 if no site so far is of that name."""
        return self._keys.get((phase, name), -1)

    def known_op(self, key: Key) -> Op | None:
        """Return the op at a phase and name in any plan that ran."""
        return next((each.ops[key] for each in self.facts if key in each.ops), None)

    def uses(self, buffer: str) -> Table:
        """Return what each site does to a buffer, bits `READS` and `WRITES`.

        Host work uses it while it is called, everything else while it is executed.
        """
        if buffer not in self._uses:
            self._uses[buffer] = self._find_uses(buffer)
        return self._uses[buffer]

    def _find_uses(self, buffer: str) -> Table:
        out = np.zeros(self._categories.shape, np.uint8)
        for i, facts in enumerate(self.facts):
            for j, site in enumerate(self.sites):
                op = facts.ops.get((site.phase, site.name))
                if op is None or op.kind == Kind.GRAPH:
                    continue
                role = CALL if op.kind == Kind.HOST else EXEC
                for access in op.accesses:
                    if access.buffer == buffer:
                        out[i, j, role] |= WRITES if access.write else READS
        return out

    def buffers(self) -> tuple[str, ...]:
        """Return the names of the buffers of all plans."""
        plans = (each.plan for each in self.facts)
        return tuple(dict.fromkeys(each.name for plan in plans for each in plan.buffers))

    def matches(self, words: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which entries have all words in site, phase, kind or verdict."""
        rows = [
            [_text(each, site, role) for site in self.sites for role in (CALL, EXEC)]
            for each in self._plans()
        ]
        found = [[all(word in text for word in words) for text in row] for row in rows]
        return np.array(found, np.bool_).reshape(self._categories.shape)


def _looks(facts: PlanFacts | None, site: Site) -> Looks:
    """Return what a site's spans are drawn as."""
    key = (site.phase, site.name)
    verdict = facts.verdict(key) if facts is not None else ""
    waits = site_kind(site) in SYNC_KINDS
    if verdict or waits:
        called = VERDICT_CATEGORY[verdict or "unknown"]
    elif site.kind == Kind.HOST:
        called = "host_work"
    elif site.kind == Kind.GRAPH:
        called = "graph"
    else:
        called = "host_api"
    row = "sync" if waits else "cpu_split" if site.kind == Kind.HOST else "host"
    executed, engine = called, "stream"
    if site.kind == Kind.COPY:
        where = facts.direction(key) if facts is not None else ""
        executed = where if where in CATEGORIES else "d2d"
        engine = where if where in KINDS else "stream"
    elif site.kind in (Kind.LAUNCH, Kind.MEMSET):
        executed = "kernel"
    return (
        (CATEGORIES.index(called), KINDS.index(row)),
        (CATEGORIES.index(executed), KINDS.index(engine)),
    )


def _text(facts: PlanFacts | None, site: Site, role: int) -> str:
    """Return what a search looks at, in small letters."""
    key = (site.phase, site.name)
    parts = [site.phase, site.name, site_kind(site), ("call", "execution")[role]]
    if facts is not None:
        parts += [facts.direction(key), facts.verdict(key)]
    return " ".join(parts).lower()
