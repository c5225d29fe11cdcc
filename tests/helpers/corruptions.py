"""Findings made wrong, one thing at a time: what a checker of reasons has to refuse.

Each takes a finding and returns it corrupted, or None where it has nothing to corrupt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from syncscope.sched_core.records import Finding, Node

Corruption = Callable[[Finding], Finding | None]


def _unit(finding: Finding) -> str:
    return f"{finding.phase}:{finding.site}"


def _is_sync(finding: Finding, node: Node) -> bool:
    """Whether a node of a path is one of the syncs that cover the finding's."""
    return node.site in {unit.partition(":")[2] for unit in finding.covered_by}


def wrong_buffer(finding: Finding) -> Finding | None:
    return replace(finding, buffer=f"{finding.buffer}.other") if finding.first else None


def swapped_ends(finding: Finding) -> Finding | None:
    if finding.first is None:
        return None
    path, edges = finding.path[::-1], finding.edges[::-1]
    return replace(finding, first=finding.second, second=finding.first, path=path, edges=edges)


def empty_overlap(finding: Finding) -> Finding | None:
    return replace(finding, end=finding.begin) if finding.first else None


def bytes_outside(finding: Finding) -> Finding | None:
    return replace(finding, end=finding.end + (1 << 40)) if finding.first else None


def wrong_hazard(finding: Finding) -> Finding | None:
    other = {"RAW": "WAR", "WAR": "WAW", "WAW": "RAW"}.get(finding.hazard)
    return replace(finding, hazard=other) if other else None


def changed_role(finding: Finding) -> Finding | None:
    if finding.first is None:
        return None
    first = replace(finding.first, role="exec" if finding.first.role == "call" else "call")
    return replace(finding, first=first, path=(first, *finding.path[1:]) if finding.path else ())


def other_step(finding: Finding) -> Finding | None:
    if finding.second is None:
        return None
    second = replace(finding.second, step=finding.second.step + 1000)
    return replace(finding, second=second, path=(*finding.path[:-1], second))


def path_without_sync(finding: Finding) -> Finding | None:
    inner = finding.path[1:-1]
    left = next((i for i, node in enumerate(inner) if _is_sync(finding, node)), None)
    if left is None:
        return None
    path = finding.path[: left + 1] + finding.path[left + 2 :]
    return replace(finding, path=path, edges=finding.edges[:left] + finding.edges[left + 1 :])


def path_through_dropped(finding: Finding) -> Finding | None:
    path = tuple(
        replace(node, site=finding.site) if _is_sync(finding, node) else node
        for node in finding.path
    )
    return replace(finding, path=path) if path != finding.path else None


def path_with_step_back(finding: Finding) -> Finding | None:
    if not finding.path:
        return None
    edges = (finding.edges[0], finding.edges[0], *finding.edges)
    return replace(finding, path=finding.path[:2] + finding.path, edges=edges)


def other_rule(finding: Finding) -> Finding | None:
    if not finding.edges:
        return None
    other = "stream" if finding.edges[0] != "stream" else "wait"
    return replace(finding, edges=(other, *finding.edges[1:]))


def rule_left_out(finding: Finding) -> Finding | None:
    return replace(finding, edges=finding.edges[1:]) if finding.edges else None


def other_cover(finding: Finding) -> Finding | None:
    return replace(finding, covered_by=(_unit(finding),)) if finding.covered_by else None


def cover_left_out(finding: Finding) -> Finding | None:
    return replace(finding, covered_by=finding.covered_by[1:]) if finding.covered_by else None


def dropped_called_required(finding: Finding) -> Finding | None:
    return replace(finding, verdict="required") if finding.verdict == "redundant" else None


def kept_called_redundant(finding: Finding) -> Finding | None:
    if finding.verdict == "redundant":
        return None
    return replace(finding, verdict="redundant", alternatives=(), weaker="", slots=0)


def pair_left_out(finding: Finding) -> Finding | None:
    if finding.first is None:
        return None
    return replace(finding, first=None, second=None, path=(), edges=(), covered_by=())


def stands_in_for_itself(finding: Finding) -> Finding | None:
    if finding.verdict == "redundant":
        return None
    return replace(finding, verdict="interchangeable", alternatives=(_unit(finding),))


def alone_safe_turned(finding: Finding) -> Finding | None:
    return replace(finding, alone_safe=not finding.alone_safe)


def one_slot_more(finding: Finding) -> Finding | None:
    return replace(finding, slots=finding.slots + 1) if finding.slots else None


CORRUPTIONS: tuple[Corruption, ...] = (
    wrong_buffer,
    swapped_ends,
    empty_overlap,
    bytes_outside,
    wrong_hazard,
    changed_role,
    other_step,
    path_without_sync,
    path_through_dropped,
    path_with_step_back,
    other_rule,
    rule_left_out,
    other_cover,
    cover_left_out,
    dropped_called_required,
    kept_called_redundant,
    pair_left_out,
    stands_in_for_itself,
    alone_safe_turned,
    one_slot_more,
)
