"""A verdict with a reason for every sync site of a plan, given against one kept set.

The kept set K: walk the phases backwards (decode, prompt_last, prompt), each from its last sync
to its first, and drop each whose absence, with all dropped so far, makes no new hazard.  What is
left is irreducible, and all that was dropped can go together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.order import Order
from syncscope.sched_core.path import EdgeGraph, Moment, sites_used
from syncscope.sched_core.program import BLOCKING, SCOPES, Program, unroll
from syncscope.sched_core.ranges import HAZARDS
from syncscope.sched_core.records import PHASES, Finding, Kind, Missing, Node, Plan
from syncscope.sched_core.rewrite import (
    narrow_to_stream,
    order_sites,
    wait_for_earlier,
    wait_on_stream,
)

Key = tuple[int, int, int, int]
"""Of a hazard: type, site of the first and of the second access, buffer."""


def analysis_phases(plan: Plan) -> tuple[str, ...]:
    """Return the phases that a plan is analysed over: prompt and decode twice.

    Each lasts long enough for every slot to come round twice, and one step more.
    """
    depths = [buffer.depth for buffer in plan.buffers] + [event.depth for event in plan.events]
    steps = 2 * max(depths, default=1) + 1
    once = ("prompt",) * steps + ("prompt_last",) + ("decode",) * steps
    return tuple(phase for phase in once * 2 if phase in plan.phases)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the ordering analysis says of a program.

    Parameters
    ----------
    program : Program
        What was analysed.
    rules : str
    kept : tuple of str
        The kept set, as ``phase:site``, by phase and then in the order of issue.
    findings : tuple of Finding
        One per sync site, in the same order.
    missing : tuple of Missing
        Hazards that are there now.
    """

    program: Program
    rules: str
    kept: tuple[str, ...]
    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]

    def finding(self, phase: str, site: str) -> Finding | None:
        """Return what is said of a site of a phase; None if it is no sync site."""
        for each in self.findings:
            if (each.phase, each.site) == (phase, site):
                return each
        return None


class Analyser:
    """Asks the order of one program with syncs left out; remembers what it needs to compare.

    Parameters
    ----------
    program : Program
    rules : str
        ``practical`` or ``strict``.
    """

    def __init__(self, program: Program, rules: str = "practical") -> None:
        self.program = program
        self.rules = rules
        self.order = Order(program, rules)
        self.base = frozenset(self.keys(self.order))
        self.units = tuple(_sync_sites(program))

    @cached_property
    def graph(self) -> EdgeGraph:
        """The explicit edges."""
        return EdgeGraph(self.program, self.rules)

    def keys(self, order: Order, hazards: npt.NDArray[Any] | None = None) -> list[Key]:
        """Return the kind of each hazard of an order, whatever the step."""
        found = order.hazards() if hazards is None else hazards
        sites = order.program.ops["site"]
        return list(
            zip(
                found["type"].tolist(),
                sites[found["first_row"]].tolist(),
                sites[found["second_row"]].tolist(),
                self.buffer_of_place[found["place"]].tolist(),
                strict=True,
            )
        )

    @cached_property
    def buffer_of_place(self) -> npt.NDArray[np.int64]:
        """The buffer that each slot belongs to."""
        depths = [buffer.depth for buffer in self.program.buffers]
        return np.repeat(np.arange(len(depths)), depths)

    def new_hazards(self, dropped: Iterable[int], order: Order | None = None) -> npt.NDArray[Any]:
        """Return the hazards that dropping sites makes, in the order of the second access."""
        order = order or self.order
        found = order.hazards(dropped)
        if not self.base:
            return found
        return found[[key not in self.base for key in self.keys(order, found)]]

    def is_safe(self, dropped: Iterable[int], order: Order | None = None) -> bool:
        """Whether dropping sites makes no new hazard."""
        if self.base:
            return not len(self.new_hazards(dropped, order))
        return not len((order or self.order).hazards(dropped, 1))

    def kept_set(self) -> tuple[int, ...]:
        """Return the sites of the kept set, in the order of the units."""
        dropped: set[int] = set()
        for unit in reversed(self.units):
            if self.is_safe(dropped | {unit}):
                dropped.add(unit)
        return tuple(unit for unit in self.units if unit not in dropped)

    def name(self, site: int) -> str:
        """Name a site as ``phase:site``."""
        found = self.program.sites[site]
        return f"{found.phase}:{found.name}"


def _sync_sites(program: Program) -> Iterator[int]:
    """Sites where something is ordered, by phase and then in the order of issue."""
    ops = program.ops
    blocks = (np.isin(ops["kind"], (Kind.COPY, Kind.MEMSET))) & (ops["flags"] & BLOCKING > 0)
    syncs = np.flatnonzero(np.isin(ops["kind"], (Kind.SYNC, Kind.WAIT)) | blocks)
    position = {
        int(site): row - int(program.step0[ops["step"][row]])
        for row, site in zip(syncs[::-1].tolist(), ops["site"][syncs][::-1].tolist(), strict=True)
    }
    rank = {phase: i for i, phase in enumerate(PHASES)}

    def key(site: int) -> tuple[int, int]:
        return rank.get(program.sites[site].phase, len(rank)), position[site]

    yield from sorted(position, key=key)


def analyse(plan: Plan, rules: str = "practical") -> Analysis:
    """Analyse a plan over its phases.

    Raises
    ------
    UsageError
        For unknown rules or a plan that cannot be issued.
    """
    return analyse_program(unroll(plan, analysis_phases(plan)), rules)


def analyse_program(program: Program, rules: str = "practical") -> Analysis:
    """Give every sync site of a program its verdict."""
    analyser = Analyser(program, rules)
    kept = analyser.kept_set()
    return Analysis(
        program=program,
        rules=rules,
        kept=tuple(map(analyser.name, kept)),
        findings=tuple(_finding(analyser, kept, unit) for unit in analyser.units),
        missing=find_missing(analyser),
    )


def find_kept(plan: Plan, rules: str = "practical") -> tuple[str, ...]:
    """Return the kept set of a plan alone, as ``phase:site``."""
    analyser = Analyser(unroll(plan, analysis_phases(plan)), rules)
    return tuple(map(analyser.name, analyser.kept_set()))


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


def _finding(analyser: Analyser, kept: tuple[int, ...], unit: int) -> Finding:
    site = analyser.program.sites[unit]
    blank = Finding(
        phase=site.phase,
        site=site.name,
        verdict="redundant",
        alone_safe=analyser.is_safe({unit}),
        rules=analyser.rules,
    )
    if unit not in kept:
        return _redundant(analyser, kept, unit, blank)
    return _kept(analyser, kept, unit, blank)


# ---- redundant -----------------------------------------------------------------------------------


def _redundant(analyser: Analyser, kept: tuple[int, ...], unit: int, blank: Finding) -> Finding:
    """Show how the kept set orders a pair that the site would order by itself."""
    hazard = _ordered_by(analyser, unit)
    if hazard is None:
        return blank
    dropped = set(analyser.units) - set(kept)
    start, end = moments_of(analyser, hazard, dropped)
    steps = analyser.graph.shortest(start, end, kept)
    pair = _with_pair(analyser, blank, hazard, dropped)
    inner = tuple(analyser.graph.node(step.to) for step in steps[:-1])
    assert pair.first is not None and pair.second is not None
    return replace(
        pair,
        covered_by=tuple(map(analyser.name, sites_used(steps))),
        path=(pair.first, *inner, pair.second),
    )


def _ordered_by(analyser: Analyser, unit: int) -> np.void | None:
    """Return the closest conflicting pair that the site orders with no other sync there."""
    every = analyser.order.hazards(analyser.units)
    left = analyser.order.hazards(set(analyser.units) - {unit})
    fields = ["type", "place", "first_row", "second_row"]
    still = set(left[fields].tolist())
    ordered = [each for each in every if each[fields].item() not in still]
    return _clearest(analyser, ordered, unit) if ordered else None


def _clearest(analyser: Analyser, hazards: Iterable[np.void], unit: int) -> np.void:
    """Return the pair that is easiest to see: in the site's own phase, and close together."""
    program = analyser.program
    steps, phase = program.ops["step"], program.sites[unit].phase

    def distance(hazard: np.void) -> tuple[int, int]:
        rows = int(hazard["first_row"]), int(hazard["second_row"])
        elsewhere = sum(program.phases[steps[row]] != phase for row in rows)
        return elsewhere, rows[1] - rows[0]

    return min(hazards, key=distance)


# ---- kept ----------------------------------------------------------------------------------------


def _kept(analyser: Analyser, kept: tuple[int, ...], unit: int, blank: Finding) -> Finding:
    """Name the hazard that a kept site prevents, what could stand in, and what would be enough."""
    dropped = set(analyser.units) - set(kept)
    without = dropped | {unit}
    hazards = analyser.new_hazards(without)
    pair = _with_pair(analyser, blank, _clearest(analyser, hazards, unit), without)
    alternatives = tuple(
        analyser.name(other)
        for other in analyser.units
        if other in dropped and analyser.is_safe(without - {other})
    )
    weaker = _weaker(analyser, dropped, unit)
    reuse = all(_is_reuse(analyser, each) for each in hazards)
    if alternatives:
        verdict = "interchangeable"
    elif weaker:
        verdict = "demotable"
    else:
        verdict = "required-for-reuse" if reuse else "required"
    buffer = next(each for each in analyser.program.buffers if each.name == pair.buffer)
    return replace(
        pair,
        verdict=verdict,
        alternatives=alternatives,
        weaker=weaker,
        slots=buffer.depth if reuse else 0,
    )


def _is_reuse(analyser: Analyser, hazard: np.void) -> bool:
    """Whether a hazard is the host's next write of the source of a copy."""
    ops = analyser.program.ops
    return bool(
        HAZARDS[hazard["type"]] == "WAR"
        and ops["kind"][hazard["first_row"]] == Kind.COPY
        and hazard["first_access"] == 0
        and ops["kind"][hazard["second_row"]] == Kind.HOST
    )


def _weaker(analyser: Analyser, dropped: Collection[int], unit: int) -> str:
    """Return the first weaker primitive that is enough in the place of a kept site."""
    program = analyser.program
    row = program.ops[np.flatnonzero(program.ops["site"] == unit)[0]]
    if row["kind"] != Kind.SYNC:
        return ""
    for text, changed in _weakened(program, unit, row):
        order = Order(changed, analyser.rules)
        if analyser.is_safe(dropped, order):
            return text
    return ""


def _weakened(program: Program, unit: int, row: np.void) -> Iterator[tuple[str, Program]]:
    """Programs with a host sync replaced by something weaker, weakest first."""
    streams = program.streams
    scope = SCOPES[row["scope"]]
    if scope == "device":
        device = streams[row["stream"]].device
        for i, stream in enumerate(streams):
            if stream.device == device:
                yield f"a sync of stream {stream.name} alone", narrow_to_stream(program, unit, i)
        return
    for i, stream in enumerate(streams):
        if i != row["stream"]:
            text = f"a wait of stream {stream.name} instead of the host's"
            yield text, wait_on_stream(program, unit, i)
    if scope == "stream":
        for behind in _before_the_tail(program, unit):
            where = program.sites[behind]
            text = f"an event recorded behind {where.phase}:{where.name}"
            yield text, wait_for_earlier(program, unit, behind)


def _before_the_tail(program: Program, unit: int) -> list[int]:
    """Sites of the synced stream that are never the last enqueued when the sync is issued."""
    ops = program.ops
    mine = np.flatnonzero(ops["site"] == unit)
    stream = ops["stream"][mine[0]]
    work = np.flatnonzero((ops["stream"] == stream) & (ops["kind"] != Kind.SYNC))
    at = np.searchsorted(work, mine) - 1
    tails = set(ops["site"][work[at[at >= 0]]].tolist())
    return [site for site in dict.fromkeys(ops["site"][work].tolist()) if site not in tails]


# ---- pairs ---------------------------------------------------------------------------------------


def moments_of(
    analyser: Analyser, hazard: np.void, dropped: Collection[int]
) -> tuple[Moment, Moment]:
    """Return when the two accesses of a hazard take place, with sites dropped."""
    graph = analyser.graph
    return (
        graph.moment_of_access(int(hazard["first_row"]), int(hazard["first_access"]), dropped),
        graph.moment_of_access(int(hazard["second_row"]), int(hazard["second_access"]), dropped),
    )


def _nodes(analyser: Analyser, hazard: np.void, dropped: Collection[int]) -> tuple[Node, Node]:
    first, second = moments_of(analyser, hazard, dropped)
    graph = analyser.graph
    return (
        graph.node(first, int(hazard["first_access"])),
        graph.node(second, int(hazard["second_access"])),
    )


def _with_pair(
    analyser: Analyser, finding: Finding, hazard: np.void, dropped: Collection[int]
) -> Finding:
    first, second = _nodes(analyser, hazard, dropped)
    return replace(
        finding,
        first=first,
        second=second,
        hazard=HAZARDS[hazard["type"]],
        buffer=analyser.program.buffers[analyser.buffer_of_place[hazard["place"]]].name,
        begin=int(hazard["begin"]),
        end=int(hazard["end"]),
    )


# ---- missing -------------------------------------------------------------------------------------


def find_missing(analyser: Analyser) -> tuple[Missing, ...]:
    """Return the hazards of a program as it is, one per kind, each with its cheapest fix."""
    found: dict[Key, np.void] = {}
    hazards = analyser.order.hazards()
    for key, hazard in zip(analyser.keys(analyser.order, hazards), hazards, strict=True):
        found.setdefault(key, hazard)
    missing = []
    for key, hazard in found.items():
        first, second = _nodes(analyser, hazard, ())
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
