"""The spans that the path of a finding leads through, nearest to a step."""

from __future__ import annotations

from collections.abc import Sequence

from syncscope.app.gui.links import Links
from syncscope.app.gui.span_log import CALL, EXEC
from syncscope.sched_core.analyser import analysis_phases
from syncscope.sched_core.records import Finding, Node

REACH = 8
"""How many steps away from the selected one a path is looked for."""

ROLE = {"call": CALL, "exec": EXEC, "return": CALL}


def find_path(links: Links, finding: Finding, step: int) -> tuple[int, ...]:
    """Return the refs of a path's nodes, in order; empty if they are nowhere near.

    The analysis numbers steps of its own: the path is moved to steps of the same phases that ran
    the plan of `step`, best with the finding's own site of that step inside it, else as near as
    can be.  Nodes that did not run are left out, as a graph's launch in a step that ran its
    members one by one; both ends must be there.
    """
    facts, nodes = links.catalog.facts_at(step), path_nodes(finding)
    if facts is None or not nodes:
        return ()
    phases = analysis_phases(facts.plan)
    own = links.find(step, finding.phase, finding.site, CALL)
    found: list[tuple[bool, int, int, tuple[int, ...]]] = []
    for away in range(-REACH, REACH + 1):
        refs = _refs(links, nodes, phases, step + away - nodes[-1].step)
        if refs and refs[0] >= 0 and refs[-1] >= 0:
            there = tuple(dict.fromkeys(ref for ref in refs if ref >= 0))
            apart = own < 0 or not _encloses(links, there, own)
            found.append((apart, refs.count(-1), abs(away), there))
    return min(found)[-1] if found else ()


def path_nodes(finding: Finding) -> tuple[Node, ...]:
    """Return the nodes of a finding's path; of a kept site the two accesses it keeps apart."""
    if finding.path:
        return finding.path
    if finding.first is None or finding.second is None:
        return ()
    return (finding.first, finding.second)


def _refs(links: Links, nodes: Sequence[Node], phases: Sequence[str], shift: int) -> list[int]:
    """Return the ref of each node, -1 of those that did not run; empty where steps do not fit."""
    steps = {each.step for each in nodes}
    if any(links.log.phase(each + shift) != phases[each] for each in steps):
        return []
    if len({int(links.catalog.change_index(each + shift)) for each in steps}) > 1:
        return []
    return [links.either(each.step + shift, each.site, ROLE[each.role]) for each in nodes]


def _encloses(links: Links, refs: Sequence[int], ref: int) -> bool:
    """Whether a span lies between the begin of the first and the end of the last of a path."""
    first, last, own = (links.log.spans[each] for each in (refs[0], refs[-1], ref))
    return bool(first["begin_ns"] <= own["begin_ns"] and own["end_ns"] <= last["end_ns"])
