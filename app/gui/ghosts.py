"""What a pass removed, at the place in each step where it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from syncscope.app.gui.catalog import Catalog, PlanFacts
from syncscope.app.gui.span_log import CALL, SpanLog
from syncscope.sched_core.records import Kind, Op

MAX_STEPS = 200
"""From so many steps in a window on no ghosts are shown: they would cover everything."""


@dataclass(frozen=True, slots=True)
class GhostSpan:
    """A removed site in one step; `kind` is that of its row, `thread` whose row it is.

    It has no length: how long it would have taken is not known.
    """

    kind: str
    thread: int
    at_ns: int
    site: str


def find_ghosts(log: SpanLog, catalog: Catalog, t0: int, t1: int) -> tuple[GhostSpan, ...]:
    """Find what is missing in a window, in each step after the call of the site that came before.

    A member of a replayed graph has no call: there the graph's launch stands for it.  What no plan
    that ran has is taken for a sync: that is what passes remove.
    """
    begin, end = log.touching(t0, t1)
    if end - begin > MAX_STEPS:
        return ()
    return tuple(
        ghost
        for step in range(begin, end)
        for ghost in _of_step(log, catalog, step)
        if t0 <= ghost.at_ns < t1
    )


def _of_step(log: SpanLog, catalog: Catalog, step: int) -> Iterator[GhostSpan]:
    facts, phase = catalog.facts_at(step), log.phase(step)
    removed = facts.change.ghosts.get(phase) if facts is not None else None
    if facts is None or removed is None or not removed.removed:
        return
    _, spans = log.of_step(step, CALL)
    calls = spans[(spans["step"] == step) & (spans["role"] == CALL)]
    if not len(calls):
        return
    keys = catalog.key_of_site[calls["op"]]
    ends = dict(zip(keys.tolist(), calls["end_ns"].tolist(), strict=True))
    step_begin = int(np.min(calls["begin_ns"]))
    for site in removed.removed:
        anchor = removed.anchor[site]
        at = step_begin
        for name in (anchor, _launch_of(facts, phase, anchor)):
            if (key := catalog.key(phase, name)) in ends:
                at = ends[key]
                break
        op = catalog.known_op((phase, site))
        yield GhostSpan(_row_kind(op), 0 if op is None else op.thread, at, site)


def _row_kind(op: Op | None) -> str:
    if op is None or op.kind == Kind.SYNC or (op.kind == Kind.COPY and op.blocking):
        return "sync"
    return "cpu_split" if op.kind == Kind.HOST else "host"


def _launch_of(facts: PlanFacts, phase: str, site: str) -> str:
    """Return the launch of the graph that a site is a member of; empty if it is none."""
    op = facts.ops.get((phase, site))
    if op is None or op.graph < 0:
        return ""
    return next(
        (
            each.site
            for each in facts.plan.phases[phase]
            if each.kind == Kind.GRAPH and each.graph == op.graph
        ),
        "",
    )
