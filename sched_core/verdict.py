"""A verdict with a reason for every sync site of a plan, given against one kept set.

The kept set K: walk the phases backwards (decode, prompt_last, prompt), each from its last sync
to its first, and drop each whose absence, with all dropped so far, makes no new hazard.  What is
left is irreducible, and all that was dropped can go together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from syncscope.sched_core.analyser import (
    Analyser,
    analysis_phases,
    moments_of,
    with_pair,
)
from syncscope.sched_core.missing import find_missing
from syncscope.sched_core.order import Order
from syncscope.sched_core.path import CALL, EXEC, RETURN, sites_used
from syncscope.sched_core.program import SCOPES, Program, unroll
from syncscope.sched_core.ranges import HAZARDS
from syncscope.sched_core.records import Finding, Kind, Missing, Plan
from syncscope.sched_core.rewrite import (
    narrow_to_stream,
    wait_after_work,
    wait_for_earlier,
    wait_on_stream,
)


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
    dropped = set(analyser.units) - set(kept)
    hazard = _ordered_by(analyser, unit)
    if hazard is None:
        return blank
    start, end = moments_of(analyser, hazard, dropped)
    steps = analyser.graph.shortest(start, end, kept)
    if not steps:  # only where there are hazards already: they hide this pair
        return replace(blank, verdict="unknown")
    pair = with_pair(analyser, blank, hazard, dropped)
    inner = tuple(analyser.graph.node(step.to) for step in steps[:-1])
    assert pair.first is not None and pair.second is not None
    return replace(
        pair,
        covered_by=tuple(map(analyser.name, sites_used(steps))),
        path=(pair.first, *inner, pair.second),
        edges=tuple(step.rule for step in steps),
    )


def _ordered_by(analyser: Analyser, unit: int) -> np.void | None:
    """Return the closest conflicting pair that the site orders with no other sync there."""
    every = analyser.order.hazards(analyser.units)
    left = analyser.order.hazards(set(analyser.units) - {unit})
    fields = ["type", "place", "first_row", "second_row"]
    still = set(left[fields].tolist())
    ordered = [each for each in every if each[fields].item() not in still]
    if not ordered:
        return _ordered_across(analyser, unit)
    closest: np.void = min(ordered, key=lambda each: _distance(analyser, each, unit))
    return closest


def _distance(analyser: Analyser, hazard: np.void, unit: int) -> tuple[int, int]:
    """Rank a pair by how easy it is to see: in the site's own phase, and close together."""
    program = analyser.program
    phase = program.sites[unit].phase
    rows = int(hazard["first_row"]), int(hazard["second_row"])
    elsewhere = sum(program.phases[program.ops["step"][row]] != phase for row in rows)
    return elsewhere, rows[1] - rows[0]


def _ordered_across(analyser: Analyser, unit: int) -> np.void | None:
    """Look for a pair that other writes lie between, on both sides of an instance of the site."""
    graph, program = analyser.graph, analyser.program
    waiting = {Kind.SYNC: CALL, Kind.WAIT: EXEC}
    others = set(analyser.units) - {unit}
    for row in np.flatnonzero(program.ops["site"] == unit).tolist():
        kind = Kind(program.ops["kind"][row])
        staged = kind == Kind.COPY and graph.stages(row)
        moment = (row, CALL if staged else waiting.get(kind, RETURN))
        behind = graph.reachable(moment, False, {unit})
        ahead = graph.reachable(moment, True, {unit})
        uses: dict[int, list[np.void]] = {}
        for use in analyser.uses:
            at = graph.moment_of_access(int(use["first_row"]), int(use["first_access"]), others)
            if at in behind and at != moment:
                uses.setdefault(int(use["place"]), []).append(use)
            elif at in ahead:
                for first in reversed(uses.get(int(use["place"]), ())):
                    pair = _conflict(first, use)
                    if pair is not None and not _is_free(analyser, pair):
                        return pair
    return None


def _conflict(first: np.void, second: np.void) -> np.void | None:
    """Join two uses to a pair; None if they do not overlap or both read."""
    begin = max(first["begin"], second["begin"])
    end = min(first["end"], second["end"])
    if begin >= end or not (first["type"] or second["type"]):
        return None
    pair = second.copy()
    pair["begin"], pair["end"] = begin, end
    pair["first_row"], pair["first_access"] = first["first_row"], first["first_access"]
    pair["second_row"], pair["second_access"] = second["first_row"], second["first_access"]
    pair["type"] = HAZARDS.index("RW"[second["type"]] + "A" + "RW"[first["type"]])
    return pair


def _is_free(analyser: Analyser, pair: np.void) -> bool:
    """Whether a pair is ordered with no sync there."""
    start, end = moments_of(analyser, pair, analyser.units)
    return end in analyser.graph.reachable(start, True, ())


# ---- kept ----------------------------------------------------------------------------------------


def _kept(analyser: Analyser, kept: tuple[int, ...], unit: int, blank: Finding) -> Finding:
    """Name the hazard that a kept site prevents, what could stand in, and what would be enough."""
    dropped = set(analyser.units) - set(kept)
    without = dropped | {unit}
    hazards = analyser.new_hazards(without)
    pair = with_pair(
        analyser, blank, min(hazards, key=lambda each: _distance(analyser, each, unit)), without
    )
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
    row, access = int(hazard["first_row"]), int(hazard["first_access"])
    first = ops[row]
    if first["kind"] == Kind.GRAPH:
        access += int(first["access0"])
        first = analyser.graph.member(row, int(hazard["first_access"]))
        access -= int(first["access0"])
    return bool(
        HAZARDS[hazard["type"]] == "WAR"
        and first["kind"] == Kind.COPY
        and access == 0
        and ops["kind"][hazard["second_row"]] == Kind.HOST
    )


def _weaker(analyser: Analyser, dropped: Collection[int], unit: int) -> str:
    """Return the first weaker primitive that is enough in the place of a kept site."""
    program = analyser.program
    row = program.ops[np.flatnonzero(program.ops["site"] == unit)[0]]
    if row["kind"] == Kind.WAIT:
        return ""
    for text, changed in _weakened(program, unit, row):
        order = Order(changed, analyser.rules)
        if analyser.is_safe(dropped, order):
            return text
    return ""


def _weakened(program: Program, unit: int, row: np.void) -> Iterator[tuple[str, Program]]:
    """Programs with a host sync or a blocking replaced by something weaker."""
    streams = program.streams
    if row["kind"] != Kind.SYNC:
        for i, stream in enumerate(streams):
            if i != row["stream"]:
                yield f"a wait of stream {stream.name} for it", wait_after_work(program, unit, i)
        return
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
