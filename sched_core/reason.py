"""Checks the reasons of the ordering analysis, without the engine that made them."""

from __future__ import annotations

from collections.abc import Collection

from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.moments import Edges, Use
from syncscope.sched_core.program import Program
from syncscope.sched_core.records import VERDICTS, Finding, Kind

RULES = ("practical", "strict")


class Checker:
    """Checks what an analysis says of a program.

    Parameters
    ----------
    program : Program
    kept : collection of str
        The kept set, as ``phase:site``.
    rules : str
        ``practical`` or ``strict``.

    Raises
    ------
    UsageError
        For unknown rules.
    """

    def __init__(self, program: Program, kept: Collection[str], rules: str = "practical") -> None:
        if rules not in RULES:
            raise UsageError(f"unknown rules {rules}; use {' or '.join(RULES)}")
        self.program = program
        self.kept = frozenset(kept)
        self.rules = rules
        self._edges = Edges(program, rules)

    def check_kept(self) -> list[str]:
        """Return, in words, the accesses that all syncs order and the kept set does not."""
        edges = self._edges
        unknown = [f"{sync} is no sync of the program" for sync in self.kept - edges.syncs]
        lost = edges.lost(edges.syncs, self.kept)
        return unknown + [f"the kept set does not order {access}" for access in lost]

    def check(self, finding: Finding) -> list[str]:
        """Return, in words, what is wrong with a finding; nothing if its reason holds.

        What `weaker` says in words is not checked.
        """
        sync = f"{finding.phase}:{finding.site}"
        if finding.verdict not in VERDICTS:
            return [f"no verdict: {finding.verdict}"]
        if finding.rules != self.rules:
            return [f"given under the rules {finding.rules}, checked under {self.rules}"]
        if sync not in self._edges.syncs:
            return [f"{sync} is no sync of the program"]
        if finding.verdict == "unknown":
            return []
        if (finding.verdict == "redundant") == (sync in self.kept):
            return [f"{finding.verdict}, but {'' if sync in self.kept else 'not '}in the kept set"]
        if finding.verdict == "redundant":
            return self._redundant(finding, sync) or self._alone(finding, sync)
        return self._required(finding, sync) or self._alone(finding, sync)

    def _alone(self, finding: Finding, sync: str) -> list[str]:
        edges = self._edges
        lost = next(edges.lost(edges.syncs, edges.syncs - {sync}), "")
        if finding.alone_safe == (not lost):
            return []
        return [f"without {sync} alone nothing orders {lost}" if lost else "it is safe alone"]

    def _pair(self, finding: Finding, syncs: Collection[str]) -> tuple[Use, Use] | str:
        """Find the two accesses of a finding, given under some syncs, or say what is wrong."""
        found = []
        for node in (finding.first, finding.second):
            uses = [
                use
                for use in self._edges.uses.get((node.step, node.site) if node else (-1, ""), ())
                if node
                and node.role == use.role(syncs)
                and self.program.buffers[use.buffer].name == finding.buffer
                and use.begin <= finding.begin < finding.end <= use.end
            ]
            if not uses:
                return f"there is no such access: {node} on {finding.buffer}"
            found.append(uses)
        for first in found[0]:
            for second in found[1]:
                hazard = "RW"[second.write] + "A" + "RW"[first.write]
                same = (hazard, first.slot) == (finding.hazard, second.slot)
                if same and first.earlier(second):
                    return first, second
        return f"the accesses make no {finding.hazard} on one slot"

    def _redundant(self, finding: Finding, sync: str) -> list[str]:
        edges = self._edges
        if finding.first is None and finding.second is None:
            lost = next(edges.lost({sync}, ()), "")
            wrong = [f"by itself it orders {lost}"] if lost else []
            return wrong + ["no pair, but a path"] * bool(finding.path or finding.covered_by)
        pair = self._pair(finding, self.kept)
        if isinstance(pair, str):
            return [pair]
        first, second = (use.moment for use in pair)
        if edges.ordered(first, second, ()) or not edges.ordered(first, second, {sync}):
            return [f"{sync} by itself is not what orders the pair"]
        if finding.path[:1] + finding.path[-1:] != (finding.first, finding.second):
            return ["the path does not lead from the first access to the second"]
        if len(finding.edges) != len(finding.path) - 1:
            return ["not every edge of the path has a rule"]
        used = set()
        for one, two, rule in zip(finding.path, finding.path[1:], finding.edges, strict=False):
            before, after = edges.moment(one), edges.moment(two)
            steps = set() if before is None or after is None else edges.step(before, after)
            by = {each for name, each in steps if name == rule}
            usable = by & {"", *self.kept}
            if not usable:
                how = f"only by {', '.join(sorted(by))}" if by else f"by no rule named {rule}"
                return [f"{two.site} comes after {one.site} {how}"]
            used |= {min(usable)} - {""}
        if used != set(finding.covered_by):
            return [f"the path uses {', '.join(sorted(used)) or 'no sync'}"]
        return []

    def _required(self, finding: Finding, sync: str) -> list[str]:
        edges, rest, wrong = self._edges, self.kept - {sync}, []
        pair = self._pair(finding, rest)
        if isinstance(pair, str):
            return [pair]
        first, second = (use.moment for use in pair)
        if not edges.ordered(first, second, self.kept):
            wrong.append("the kept set does not order the pair")
        if edges.ordered(first, second, rest):
            wrong.append(f"without {sync} the kept set still orders the pair")
        for each in finding.alternatives:
            if each in self.kept or next(edges.lost(self.kept, rest | {each}), ""):
                wrong.append(f"{each} does not stand in for {sync}")
        kinds = (pair[0].kind, pair[1].kind, finding.hazard)
        if finding.verdict == "required-for-reuse" and kinds != (Kind.COPY, Kind.HOST, "WAR"):
            wrong.append("the pair is no host write over the source of a copy")
        slots = self.program.buffers[pair[0].buffer].depth
        if finding.slots != slots and (finding.slots or finding.verdict == "required-for-reuse"):
            wrong.append(f"{finding.buffer} has {slots} slots, not {finding.slots}")
        fields = {"interchangeable": bool(finding.alternatives), "demotable": bool(finding.weaker)}
        expected = next((verdict for verdict, holds in fields.items() if holds), "")
        if expected != (finding.verdict if finding.verdict in fields else ""):
            wrong.append(f"{finding.verdict}, but its other fields say {expected or 'required'}")
        return wrong


def check_finding(program: Program, kept: Collection[str], finding: Finding) -> list[str]:
    """Check one finding; of many, a `Checker` makes the edges once."""
    return Checker(program, kept, finding.rules).check(finding)


def check_kept(program: Program, kept: Collection[str], rules: str = "practical") -> list[str]:
    """Return, in words, the accesses that all syncs order and the kept set does not."""
    return Checker(program, kept, rules).check_kept()
