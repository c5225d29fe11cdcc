"""Checks the reasons of the ordering analysis, without the engine that made them.

Here the rules are explicit edges between moments of the issued rows.  A row has a `call`; work of a
stream has a `start` (its turn has come), an `exec` and a `done` (it, and all before it in its
stream, is done); a copy or memset that waits has a `return`.  An edge that a sync makes carries the
site of that sync, as ``phase:site``.  What happens before what is then a search, and what a set of
syncs orders is a closure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from syncscope.sched_core.program import BLOCKING, GRID_SYNC, PDL, SCOPES, Program
from syncscope.sched_core.records import VERDICTS, Finding, Kind, Node

RULES = ("practical", "strict")

_CALL, _START, _READ, _EXEC, _DONE, _RETURN, _N = range(7)
_MOMENT = {"call": _CALL, "exec": _EXEC, "return": _RETURN}
_HIDDEN = (_START, _READ, _DONE)


class _Row(NamedTuple):
    """The fields of an OP row that order depends on."""

    site: int
    step: int
    kind: int
    flags: int
    scope: int
    stream: int
    event: int
    access0: int
    n_access: int
    thread: int
    nbytes: int
    dst: int


class _Use(NamedTuple):
    """An access: the op that makes it, when, and which roles a node may call that moment."""

    node: tuple[int, str]
    kind: int
    moment: int
    roles: tuple[str, ...]
    buffer: int
    slot: int
    write: bool
    begin: int
    end: int


class _Edges:
    """What comes directly before each moment of a program, and by which sync, if by one."""

    def __init__(self, program: Program, rules: str) -> None:
        self.program = program
        self.practical = rules == "practical"
        fields = list(_Row._fields)
        self.into: list[list[tuple[int, str]]] = [[] for _ in range(_N * len(program.ops))]
        self.rows = [_Row(*each) for each in program.ops[fields].tolist()]
        self.row_at: dict[tuple[int, str], int] = {}
        self.graph_of: dict[tuple[int, str], int] = {}  # the GRAPH row of a member
        self.uses: dict[tuple[int, str], list[_Use]] = {}
        self.syncs: set[str] = set()
        self._members = [_Row(*each) for each in program.members[fields].tolist()]
        self._accesses = program.accesses.tolist()
        self._host: dict[int, int] = {}  # of each thread the last call or return
        self._tail: dict[int, int] = {}  # of each stream when its last work is done
        self._kernel: dict[int, int] = {}  # ... the start of its last kernel, if none but waits
        self._waits: dict[int, list[str]] = {}  # ... followed, and these waits
        self._recorded: dict[int, int] = {}
        for row, op in enumerate(self.rows):
            self._issue(row, op)

    def _add(self, before: int | None, after: int, sync: str = "") -> None:
        if before is not None:
            self.into[after].append((before, sync))

    def _tails(self, streams: Iterable[int]) -> list[int]:
        return [self._tail[each] for each in streams if each in self._tail]

    def _ordered_with(self, stream: int) -> list[int]:
        """The streams of the device that order themselves with `stream`: one is the legacy one."""
        streams, mine = self.program.streams, self.program.streams[stream]
        return [
            i
            for i, each in enumerate(streams)
            if i != stream
            and each.device == mine.device
            and "nonblocking" not in (each.kind, mine.kind)
            and "legacy_default" in (each.kind, mine.kind)
        ]

    def _awaited(self, op: _Row) -> list[int]:
        """What a host sync waits for."""
        if SCOPES[op.scope] == "event":
            return [self._recorded[op.event]] if op.event in self._recorded else []
        streams, mine = self.program.streams, self.program.streams[op.stream]
        if SCOPES[op.scope] == "device":
            return self._tails(i for i, s in enumerate(streams) if s.device == mine.device)
        is_legacy = mine.kind == "legacy_default"
        return self._tails([op.stream, *(self._ordered_with(op.stream) if is_legacy else ())])

    def _issue(self, row: int, op: _Row) -> None:
        site = self.program.sites[op.site]
        sync = f"{site.phase}:{site.name}"
        blocks = op.kind in (Kind.COPY, Kind.MEMSET) and op.flags & BLOCKING
        if blocks or op.kind in (Kind.SYNC, Kind.WAIT):
            self.syncs.add(sync)
        call = _N * row + _CALL
        self.row_at[op.step, site.name] = row
        self._add(self._host.get(op.thread), call)
        self._host[op.thread] = call
        if op.kind == Kind.SYNC:
            for each in self._awaited(op):
                self._add(each, call, sync)
        elif op.kind in (Kind.HOST, Kind.ALLOC, Kind.FREE) or op.stream < 0:
            self._use(op, op.access0, op.n_access, call, "call")
        else:
            self._enqueue(row, op, sync)

    def _enqueue(self, row: int, op: _Row, sync: str) -> None:
        """Work of a stream."""
        call, start, work, done = (_N * row + each for each in (_CALL, _START, _EXEC, _DONE))
        tail, kernel = self._tail.get(op.stream), self._kernel.get(op.stream)
        earlier = self._tails(self._ordered_with(op.stream))
        self._add(call, start)
        if op.kind == Kind.LAUNCH and op.flags & PDL and not op.flags & GRID_SYNC and kernel:
            self._add(kernel, start)
            for wait in self._waits[op.stream]:  # a wait in between keeps them apart
                self._add(tail, start, wait)
        else:
            self._add(tail, start)
        for each in earlier:
            self._add(each, start)
        self._add(start, work)
        self._add(work, done)
        self._add(tail, done)
        self._tail[op.stream] = done
        if op.kind == Kind.WAIT:
            self._add(self._recorded.get(op.event), start, sync)
            self._waits.setdefault(op.stream, []).append(sync)
        else:
            self._kernel.pop(op.stream, None)
            self._waits[op.stream] = []
        if op.kind == Kind.LAUNCH:
            self._kernel[op.stream] = start
        elif op.kind == Kind.RECORD:
            self._recorded[op.event] = work
        if op.kind == Kind.COPY:
            self._copy(row, op, sync, earlier if tail is None else [tail, *earlier])
        elif op.kind == Kind.GRAPH:
            for member in self._members[op.dst : op.dst + op.nbytes]:
                self._use(member, member.access0, member.n_access, work, "exec")
                self.graph_of[member.step, self.program.sites[member.site].name] = row
        else:
            self._use(op, op.access0, op.n_access, work, "exec")
            if op.kind == Kind.MEMSET and op.flags & BLOCKING and op.n_access:
                if self._memory(op.access0) in ("pinned", "managed"):
                    self._return(row, op, sync)

    def _copy(self, row: int, op: _Row, sync: str, earlier: list[int]) -> None:
        call, start, read, work = (_N * row + each for each in (_CALL, _START, _READ, _EXEC))
        source, target = self._memory(op.access0), self._memory(op.access0 + 1)
        blocking, to_device = op.flags & BLOCKING, target in ("device", "managed")
        staged = source == "pageable" and to_device
        if blocking and staged:  # the call waits for the stream, then reads its source
            for each in earlier:
                self._add(each, call, sync)
        if staged and self.practical:
            self._use(op, op.access0, 1, call, "call")
        elif staged and blocking:
            self._add(start, read)
            self._add(read, work)
            self._return(row, op, sync, read)
            self._use(op, op.access0, 1, read, "call", "exec")
        else:
            self._use(op, op.access0, 1, work, "exec")
        self._use(op, op.access0 + 1, 1, work, "exec")
        if target == "pageable" and self.practical:
            self._return(row, op, "")
        elif blocking and (not to_device or source == "pinned"):
            self._return(row, op, sync)

    def _return(self, row: int, op: _Row, sync: str, done: int | None = None) -> None:
        """Let the call come back after its work, or after the moment `done` of it."""
        back = _N * row + _RETURN
        self._add(_N * row + _CALL, back)
        self._add(_N * row + _EXEC if done is None else done, back, sync)
        self._host[op.thread] = back

    def _memory(self, access: int) -> str:
        return self.program.buffers[self._accesses[access][0]].memory

    def _use(self, op: _Row, access0: int, n: int, moment: int, *roles: str) -> None:
        node = (op.step, self.program.sites[op.site].name)
        for buffer, slot, write, _, begin, end in self._accesses[access0 : access0 + n]:
            use = _Use(node, op.kind, moment, roles, buffer, slot, bool(write), begin, end)
            self.uses.setdefault(node, []).append(use)

    def moment(self, node: Node) -> int | None:
        """Return the moment that a node names; None if there is none."""
        at = (node.step, node.site)
        row = self.graph_of.get(at) if node.role == "exec" else None
        row = self.row_at.get(at, row)
        if row is None or node.role not in _MOMENT:
            return None
        found = _N * row + _MOMENT[node.role]
        return found if node.role == "call" or self.into[found] else None

    def _ahead(self, moment: int, syncs: Collection[str]) -> Iterator[tuple[int, str]]:
        """What comes directly before a moment by no sync or by one of these."""
        return (each for each in self.into[moment] if not each[1] or each[1] in syncs)

    def ordered(self, first: int, second: int, syncs: Collection[str]) -> bool:
        """Whether the first moment happens before the second by these syncs."""
        seen, pending = {second}, [second]
        while pending:
            for before, _ in self._ahead(pending.pop(), syncs):
                if before == first:
                    return True
                if before // _N >= first // _N and before not in seen:
                    seen.add(before)
                    pending.append(before)
        return False

    def step(self, one: int, two: int) -> set[str]:
        """The syncs that each lead from one moment to the next with none named between."""
        if {one % _N, two % _N} <= {_CALL, _RETURN} and one < two:
            if self.rows[one // _N].thread == self.rows[two // _N].thread:
                return {""}
        found: set[str] = set()
        seen, pending = {(two, "")}, [(two, "")]
        while pending:
            moment, used = pending.pop()
            for before, sync in self.into[moment]:
                each = (before, used or sync)
                if before == one:
                    found.add(each[1])
                elif before % _N in _HIDDEN and before // _N >= one // _N and each not in seen:
                    seen.add(each)
                    pending.append(each)
        return found

    def pairs_lost(self, syncs: Collection[str], left: Collection[str]) -> Iterator[str]:
        """Name the conflicting pairs that `syncs` order and those left do not, by second access."""
        uses = [use for each in self.uses.values() for use in each]
        bit = {moment: 1 << i for i, moment in enumerate({use.moment: 0 for use in uses})}
        before, after = self._closure(bit, syncs), self._closure(bit, left)
        places: dict[tuple[int, int], list[_Use]] = {}
        for use in sorted(uses, key=lambda use: use.moment):
            places.setdefault((use.buffer, use.slot), []).append(use)
        for (buffer, _), found in places.items():
            marks: dict[tuple[bool, int, int], int] = {}
            for use in found:
                conflicts = 0
                for (write, begin, end), mark in marks.items():
                    if (write or use.write) and begin < use.end and use.begin < end:
                        conflicts |= mark
                if conflicts & before[use.moment] & ~after[use.moment]:
                    name = self.program.buffers[buffer].name
                    yield f"{use.node[1]} of step {use.node[0]} on {name}"
                key = (use.write, use.begin, use.end)
                marks[key] = marks.get(key, 0) | bit[use.moment]

    def _closure(self, bit: dict[int, int], syncs: Collection[str]) -> list[int]:
        """Of each moment the set of moments before it, as bits."""
        before: list[int] = []
        for moment in range(len(self.into)):
            bits = 0
            for each, _ in self._ahead(moment, syncs):
                bits |= before[each] | bit.get(each, 0)
            before.append(bits)
        return before


class Checker:
    """Checks what an analysis says of a program.

    Parameters
    ----------
    program : Program
    kept : collection of str
        The kept set, as ``phase:site``.
    rules : str
        ``practical`` or ``strict``.
    """

    def __init__(self, program: Program, kept: Collection[str], rules: str = "practical") -> None:
        self.program = program
        self.kept = frozenset(kept)
        self.rules = rules
        self._edges = _Edges(program, rules)

    def check_kept(self) -> list[str]:
        """Return the accesses that the kept set leaves unordered and all syncs order, in words."""
        edges = self._edges
        unknown = [f"{sync} is no sync of the program" for sync in self.kept - edges.syncs]
        lost = edges.pairs_lost(edges.syncs, self.kept)
        return unknown + [f"the kept set does not order {pair}" for pair in lost]

    def check(self, finding: Finding) -> list[str]:
        """Return what is wrong with a finding, in words; nothing if its reason holds."""
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
        check = self._redundant if finding.verdict == "redundant" else self._required
        return [*check(finding, sync), *self._alone(finding, sync)]

    def _alone(self, finding: Finding, sync: str) -> list[str]:
        """Check `alone_safe`: what all other syncs order."""
        edges = self._edges
        lost = next(edges.pairs_lost(edges.syncs, edges.syncs - {sync}), "")
        if finding.alone_safe == (not lost):
            return []
        return [f"without {sync} alone nothing orders {lost}" if lost else "it is safe alone"]

    def _pair(self, finding: Finding) -> tuple[_Use, _Use] | str:
        """Find the two accesses of a finding, or say what is wrong with them."""
        if finding.first is None or finding.second is None:
            return "only one access is named" if finding.first or finding.second else "no accesses"
        found = []
        for node in (finding.first, finding.second):
            moment = self._edges.moment(node)
            uses = [
                use
                for use in self._edges.uses.get((node.step, node.site), ())
                if moment is not None
                and node.role in use.roles
                and self.program.buffers[use.buffer].name == finding.buffer
                and use.begin <= finding.begin < finding.end <= use.end
            ]
            if not uses:
                return f"{node.site} of step {node.step} has no such access as {node.role}"
            found.append(uses)
        for first in found[0]:
            for second in found[1]:
                hazard = "RW"[second.write] + "A" + "RW"[first.write]
                later = first.moment // _N < second.moment // _N
                if (hazard, first.slot) == (finding.hazard, second.slot) and later:
                    return first, second
        return f"the accesses make no {finding.hazard} on one slot"

    def _redundant(self, finding: Finding, sync: str) -> list[str]:
        edges = self._edges
        if finding.first is None and finding.second is None:
            lost = next(edges.pairs_lost({sync}, ()), "")
            wrong = [f"by itself it orders {lost}"] if lost else []
            return wrong + ["no pair, but a path"] * bool(finding.path or finding.covered_by)
        pair = self._pair(finding)
        if isinstance(pair, str):
            return [pair]
        first, second = (use.moment for use in pair)
        wrong = []
        if edges.ordered(first, second, ()) or not edges.ordered(first, second, {sync}):
            wrong.append(f"{sync} by itself is not what orders the pair")
        if finding.path[:1] + finding.path[-1:] != (finding.first, finding.second):
            return [*wrong, "the path does not lead from the first access to the second"]
        used = set()
        for one, two in zip(finding.path, finding.path[1:], strict=False):
            before, after = edges.moment(one), edges.moment(two)
            by = set() if before is None or after is None else edges.step(before, after)
            if not by & {"", *self.kept}:
                by_what = f"only by {', '.join(sorted(by))}" if by else "by no rule"
                return [*wrong, f"{two.site} comes after {one.site} {by_what}"]
            used |= {min(by & {"", *self.kept})} - {""}
        if used != set(finding.covered_by):
            wrong.append(f"the path uses {', '.join(sorted(used)) or 'no sync'}")
        return wrong

    def _required(self, finding: Finding, sync: str) -> list[str]:
        edges, pair = self._edges, self._pair(finding)
        if isinstance(pair, str):
            return [pair]
        first, second = pair
        wrong = []

        def ordered(syncs: Collection[str]) -> bool:
            return edges.ordered(first.moment, second.moment, syncs)

        rest = self.kept - {sync}
        if not ordered(self.kept):
            wrong.append("the kept set does not order the pair")
        if ordered(rest):
            wrong.append(f"without {sync} the kept set still orders the pair")
        for each in finding.alternatives:
            if each in self.kept or each not in edges.syncs:
                wrong.append(f"{each} is no dropped sync")
            elif next(edges.pairs_lost(self.kept, rest | {each}), ""):
                wrong.append(f"{each} does not stand in for {sync}")
        is_reuse = pair[0].kind == Kind.COPY and pair[1].kind == Kind.HOST
        is_reuse = is_reuse and finding.hazard == "WAR"
        if finding.verdict == "required-for-reuse" and not is_reuse:
            wrong.append("the pair is no host write over the source of a copy")
        if finding.slots not in (0, self.program.buffers[first.buffer].depth):
            wrong.append(f"{finding.buffer} has not {finding.slots} slots")
        fields = {"interchangeable": bool(finding.alternatives), "demotable": bool(finding.weaker)}
        expected = next((verdict for verdict, holds in fields.items() if holds), None)
        if expected != (finding.verdict if finding.verdict in fields else None):
            wrong.append(f"{finding.verdict}, but its other fields say {expected or 'otherwise'}")
        return wrong


def check_finding(program: Program, kept: Collection[str], finding: Finding) -> list[str]:
    """Return what is wrong with one finding; of many, a `Checker` builds the edges once."""
    if finding.rules not in RULES:
        return [f"unknown rules {finding.rules}"]
    return Checker(program, kept, finding.rules).check(finding)


def check_kept(program: Program, kept: Collection[str], rules: str = "practical") -> list[str]:
    """Return, in words, the accesses that all syncs order and the kept set does not."""
    return Checker(program, kept, rules).check_kept()
