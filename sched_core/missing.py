"""Hazards that are there now, each with the cheapest sync that would mend it."""

from __future__ import annotations

import numpy as np

from syncscope.sched_core.analyser import Analyser, Key, analysis_phases, nodes_of
from syncscope.sched_core.order import Order
from syncscope.sched_core.program import Program, unroll
from syncscope.sched_core.ranges import HAZARDS
from syncscope.sched_core.records import Kind, Missing, Plan
from syncscope.sched_core.rewrite import order_sites


def hazards_added(
    before: Plan, after: Plan, rules: str = "practical"
) -> tuple[Program, tuple[Missing, ...]]:
    """Return the hazards of `after` that `before` has not, and the program they are in."""
    analyser = Analyser(unroll(after, analysis_phases(after)), rules)
    missing = find_missing(analyser)
    if missing:
        old = find_missing(Analyser(unroll(before, analysis_phases(before)), rules))
        known = {(each.hazard, each.buffer, each.first.site, each.second.site) for each in old}
        missing = tuple(
            each
            for each in missing
            if (each.hazard, each.buffer, each.first.site, each.second.site) not in known
        )
    return analyser.program, missing


def find_missing(analyser: Analyser) -> tuple[Missing, ...]:
    """Return the hazards of a program as it is, one per kind, each with its cheapest fix."""
    found: dict[Key, np.void] = {}
    hazards = analyser.order.hazards()
    for key, hazard in zip(analyser.keys(analyser.order, hazards), hazards, strict=True):
        found.setdefault(key, hazard)
    missing = []
    for key, hazard in found.items():
        first, second = nodes_of(analyser, hazard, ())
        missing.append(
            Missing(
                hazard=HAZARDS[hazard["type"]],
                buffer=analyser.program.buffers[key[3]].name,
                begin=int(hazard["begin"]),
                end=int(hazard["end"]),
                first=first,
                second=second,
                rules=analyser.rules,
                fix=_fix(analyser, key),
            )
        )
    return tuple(missing)


def _fix(analyser: Analyser, key: Key) -> str:
    """Return the cheapest sync that orders the two sites of a hazard, tried on the program."""
    program = analyser.program
    _, first, second, _ = key
    ops = program.ops
    before = ops[np.flatnonzero(ops["site"] == first)[0]]
    after = ops[np.flatnonzero(ops["site"] == second)[0]]
    one, other = (f"{program.sites[site].name}" for site in (first, second))
    if before["stream"] < 0:
        return f"order the threads that issue {one} and {other}"
    changed = order_sites(program, first, second)
    left = analyser.keys(Order(changed, analyser.rules))
    stream = program.streams[before["stream"]].name
    if key in left:
        return f"sync {stream} before {other}"
    if after["kind"] == Kind.HOST:
        return f"record an event behind {one} and let the host wait for it before {other}"
    waiting = program.streams[after["stream"]].name
    return f"record an event behind {one} and let {waiting} wait for it before {other}"
