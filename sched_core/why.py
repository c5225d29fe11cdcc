"""Reasons in words: what the ordering analysis says, with both sides named."""

from __future__ import annotations

from syncscope.sched_core.program import Program
from syncscope.sched_core.records import Finding, Kind, Missing, Node


def why(program: Program, finding: Finding) -> str:
    """Say a finding in a sentence that a person understands."""
    if finding.verdict == "unknown":
        return "a hazard that is there already hides what it orders; mend that one first"
    if finding.verdict == "redundant":
        return _why_redundant(program, finding)
    parts = [f"without {finding.site} {_hazard(program, finding)}"]
    if finding.alternatives:
        others = ", ".join(_relative(each, finding.phase) for each in finding.alternatives)
        parts.append(f"instead of it would do: {others}")
    if finding.weaker:
        parts.append(f"enough would be {finding.weaker}")
    if finding.verdict == "required-for-reuse":
        steps = "step" if finding.slots == 1 else "steps"
        parts.append(f"its slots keep {finding.slots} {steps} apart, more of them need a wait each")
    return "; ".join(parts)


def _why_redundant(program: Program, finding: Finding) -> str:
    if finding.first is None or finding.second is None:
        return "by itself it orders nothing that conflicts"
    both = f"{_who(program, finding.first)} and {_who(program, finding.second)}"
    cover = ", ".join(_relative(each, finding.phase) for each in finding.covered_by)
    return f"{both} ({finding.buffer}) stay ordered by {cover}"


def missing_sentence(program: Program, missing: Missing) -> str:
    """Say a missing order, and what would mend it."""
    return f"{_hazard(program, missing)}; {missing.fix}"


def _hazard(program: Program, pair: Finding | Missing) -> str:
    """Say what may happen between two accesses that nothing orders."""
    assert pair.first is not None and pair.second is not None
    what = f"{pair.buffer} ({pair.end - pair.begin:,} B)"
    first, second = _who(program, pair.first), _who(program, pair.second)
    where, since = _when(program, pair.second), _when(program, pair.first)
    if since.partition(" ")[0] == where.partition(" ")[0]:
        since = since.partition(" ")[2]
    if pair.hazard == "WAR":
        text = f"{second} in {where} may overwrite {what} that {first} of {since} still reads"
    elif pair.hazard == "RAW":
        text = f"{second} in {where} may read {what} before {first} of {since} has written it"
    else:
        text = f"what {second} writes to {what} in {where} may be overwritten by {first} of {since}"
    return f"{text}; nothing orders them"


def _who(program: Program, node: Node) -> str:
    """Name who acts: the host, a copy by its direction, a kernel."""
    site = next(
        each
        for each in program.sites
        if each.name == node.site and each.phase == program.phases[node.step]
    )
    if site.kind == Kind.HOST:
        return f"the host's {node.site}"
    if site.kind == Kind.COPY:
        return f"the {_direction(program, node)} {node.site}"
    if site.kind == Kind.LAUNCH:
        return f"kernel {node.site}"
    return node.site


def _direction(program: Program, node: Node) -> str:
    begin, end = program.step0[node.step : node.step + 2]
    for op in program.ops[begin:end]:
        if program.sites[op["site"]].name == node.site:
            ends = program.accesses["buffer"][op["access0"] : op["access0"] + 2]
            memory = [program.buffers[each].memory for each in ends]
            return "2".join("D" if each in ("device", "managed") else "H" for each in memory)
    return "async"


def _when(program: Program, node: Node) -> str:
    """Name a step by its phase and its number among the steps of that phase in a row."""
    phase = program.phases[node.step]
    begin = node.step
    while begin and program.phases[begin - 1] == phase:
        begin -= 1
    return f"{phase} step {node.step - begin + 1}"


def _relative(unit: str, phase: str) -> str:
    """Leave out the phase of ``phase:site`` where it is the reader's own."""
    return unit.removeprefix(f"{phase}:")
