"""Moments of a Program and what comes directly before each: the rules as explicit edges.

For `reason`, which checks the ordering analysis; shares nothing with it.  A row has a `call`; work
of a stream has a `launch` (the device may take it up), a `start` (its turn has come), an `exec` and
a `done` (it, and all before it in its stream, is done); a copy or memset that waits has a `return`,
and one that reads its source before it returns only because it blocks has a `read`.  An edge has
the name of its rule and, where a sync makes it, the site of that, as ``phase:site``.  What comes
before what is then a search, and what a set of syncs orders a closure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy.typing as npt

from syncscope.sched_core.program import BLOCKING, GRID_SYNC, OP, PDL, SCOPES, Program
from syncscope.sched_core.records import Kind, Node

_CALL, _LAUNCH, _START, _READ, _EXEC, _DONE, _RETURN, _N = range(8)
_MOMENT = {"call": _CALL, "exec": _EXEC, "return": _RETURN}
_HIDDEN = (_LAUNCH, _START, _READ, _DONE)


class Use(NamedTuple):
    """An access: the op that makes it and when; `sync`, while it blocks, puts it into the call."""

    node: tuple[int, str]
    kind: int
    moment: int
    sync: str
    buffer: int
    slot: int
    write: bool
    begin: int
    end: int

    def role(self, syncs: Collection[str]) -> str:
        """Return how a node names its moment where these syncs are there."""
        return "call" if self.moment % _N == _CALL or self.sync in syncs else "exec"

    def earlier(self, other: Use) -> bool:
        """Whether its row was issued before that of another access."""
        return self.moment // _N < other.moment // _N


def _rows(array: npt.NDArray[Any]) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(**dict(zip(OP.names or (), row, strict=True))) for row in array.tolist()
    ]


class Edges:
    """What comes directly before each moment of a program, and by which sync, if by one.

    Parameters
    ----------
    program : Program
    rules : str
        ``practical`` or ``strict``.
    """

    def __init__(self, program: Program, rules: str) -> None:
        self.program = program
        self.practical = rules == "practical"
        self.into: list[list[tuple[int, str, str]]] = [[] for _ in range(_N * len(program.ops))]
        self.row_at: dict[tuple[int, str], int] = {}
        self.graph_of: dict[tuple[int, str], int] = {}  # the GRAPH row of a member
        self.uses: dict[tuple[int, str], list[Use]] = {}
        self.syncs: set[str] = set()
        self.closure = lru_cache(maxsize=4)(self._closure)
        self.rows = _rows(program.ops)
        self._members = _rows(program.members)
        self._accesses = program.accesses.tolist()
        self._host: dict[int, int] = {}  # of each thread the last call or return
        self._tail: dict[int, int] = {}  # of each stream when its last work is done
        self._kernel: dict[int, int] = {}  # ... the launch of its last kernel, if only waits
        self._waits: dict[int, list[str]] = {}  # ... followed, and these waits
        self._recorded: dict[int, int] = {}
        for row, op in enumerate(self.rows):
            self._issue(row, op)

    # ---- the rules ---------------------------------------------------------------------------

    def _add(self, before: int | None, after: int, rule: str = "", sync: str = "") -> None:
        if before is not None:
            self.into[after].append((before, rule, sync))

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

    def _awaited(self, op: SimpleNamespace) -> list[int]:
        """What a host sync waits for."""
        if SCOPES[op.scope] == "event":
            return [self._recorded[op.event]] if op.event in self._recorded else []
        streams, mine = self.program.streams, self.program.streams[op.stream]
        if SCOPES[op.scope] == "device":
            return self._tails(i for i, each in enumerate(streams) if each.device == mine.device)
        is_legacy = mine.kind == "legacy_default"
        return self._tails([op.stream, *(self._ordered_with(op.stream) if is_legacy else ())])

    def _issue(self, row: int, op: SimpleNamespace) -> None:
        site = self.program.sites[op.site]
        sync = f"{site.phase}:{site.name}"
        blocks = op.kind in (Kind.COPY, Kind.MEMSET) and op.flags & BLOCKING
        if blocks or op.kind in (Kind.SYNC, Kind.WAIT):
            self.syncs.add(sync)
        self.row_at[op.step, site.name] = row
        call = _N * row + _CALL
        self._add(self._host.get(op.thread), call, "thread")
        self._host[op.thread] = call
        if op.kind == Kind.SYNC:
            for each in self._awaited(op):
                self._add(each, call, f"{SCOPES[op.scope]} sync", sync)
        elif op.kind in (Kind.HOST, Kind.ALLOC, Kind.FREE) or op.stream < 0:
            self._use(op, op.access0, op.n_access, call)
        else:
            earlier = self._queue(row, op, sync)
            if op.kind == Kind.COPY:
                self._copy(row, op, sync, earlier)
            elif op.kind == Kind.GRAPH:
                for member in self._members[op.dst : op.dst + op.nbytes]:
                    self._use(member, member.access0, member.n_access, call + _EXEC)
                    self.graph_of[member.step, self.program.sites[member.site].name] = row
            else:
                self._use(op, op.access0, op.n_access, call + _EXEC)
                memset = op.kind == Kind.MEMSET and blocks and op.n_access
                if memset and self._memory(op.access0) in ("pinned", "managed"):
                    self._return(row, op, _EXEC, "blocking", sync)

    def _queue(self, row: int, op: SimpleNamespace, sync: str) -> list[int]:
        """Put work into its stream; return what it comes after there."""
        call, launch, start = (_N * row + each for each in (_CALL, _LAUNCH, _START))
        work, done = _N * row + _EXEC, _N * row + _DONE
        tail = self._tails([op.stream])
        others = self._tails(self._ordered_with(op.stream))
        is_early = op.kind == Kind.LAUNCH and op.flags & PDL and op.stream in self._kernel
        if is_early:  # the kernel before it may trigger as soon as it is launched itself
            self._add(self._kernel[op.stream], launch, "pdl")
            for wait in self._waits[op.stream]:  # one in between keeps them apart
                self._add(tail[0], launch, "stream", wait)
        for each in tail if not is_early or op.flags & GRID_SYNC else ():
            self._add(each, start if is_early else launch, "stream")
        for each in others:
            self._add(each, launch, "legacy")
        self._add(call, launch, "issue")
        self._add(launch, start)
        self._add(start, work)
        for each in (work, *tail):
            self._add(each, done)
        self._tail[op.stream] = done
        if op.kind == Kind.WAIT:
            self._add(self._recorded.get(op.event), launch, "wait", sync)
            self._waits.setdefault(op.stream, []).append(sync)
        else:
            self._waits[op.stream] = []
            self._kernel.pop(op.stream, None)
        if op.kind == Kind.LAUNCH:
            self._kernel[op.stream] = launch
        elif op.kind == Kind.RECORD:
            self._recorded[op.event] = work
        return tail + others

    def _copy(self, row: int, op: SimpleNamespace, sync: str, earlier: list[int]) -> None:
        call, start, read, work = (_N * row + each for each in (_CALL, _START, _READ, _EXEC))
        source, target = self._memory(op.access0), self._memory(op.access0 + 1)
        blocking, to_device = op.flags & BLOCKING, target in ("device", "managed")
        staged = source == "pageable" and to_device
        if staged and blocking:  # the call waits for the stream before it reads the source
            for each in earlier:
                self._add(each, call, "staging", sync)
        if staged and self.practical:
            self._use(op, op.access0, 1, call)
        elif staged and blocking:
            self._add(start, read)
            self._add(read, work)
            self._return(row, op, _READ, "staging", sync)
            self._use(op, op.access0, 1, read, sync)
        else:
            self._use(op, op.access0, 1, work)
        self._use(op, op.access0 + 1, 1, work)
        if target == "pageable" and self.practical:
            self._return(row, op, _EXEC, "pageable")
        elif blocking and (not to_device or source == "pinned"):
            self._return(row, op, _EXEC, "blocking", sync)

    def _return(self, row: int, op: SimpleNamespace, role: int, rule: str, sync: str = "") -> None:
        """Let a call come back after a moment of its row."""
        back = _N * row + _RETURN
        self._add(_N * row + _CALL, back, "thread")
        self._add(_N * row + role, back, rule, sync)
        self._host[op.thread] = back

    def _memory(self, access: int) -> str:
        buffer: int = self._accesses[access][0]
        return self.program.buffers[buffer].memory

    def _use(self, op: SimpleNamespace, access0: int, n: int, moment: int, sync: str = "") -> None:
        node = (op.step, self.program.sites[op.site].name)
        for buffer, slot, write, _, begin, end in self._accesses[access0 : access0 + n]:
            use = Use(node, op.kind, moment, sync, buffer, slot, bool(write), begin, end)
            self.uses.setdefault(node, []).append(use)

    # ---- questions ---------------------------------------------------------------------------

    def moment(self, node: Node) -> int | None:
        """Return the moment that a node names; None if there is none."""
        at = (node.step, node.site)
        row = self.graph_of.get(at) if node.role == "exec" else None
        row = self.row_at.get(at, row)
        if row is None or node.role not in _MOMENT:
            return None
        found = _N * row + _MOMENT[node.role]
        return found if node.role == "call" or self.into[found] else None

    def ordered(self, first: int, second: int, syncs: Collection[str]) -> bool:
        """Whether the first moment happens before the second by these syncs."""
        seen, pending = {second}, [second]
        while pending:
            for before, _, sync in self.into[pending.pop()]:
                usable = (not sync or sync in syncs) and before // _N >= first // _N
                if usable and before not in seen:
                    seen.add(before)
                    pending.append(before)
        return first in seen and first != second

    def step(self, one: int, two: int) -> set[tuple[str, str]]:
        """Rules, each with its sync or none, that lead from a moment to the next by themselves."""
        is_host = {one % _N, two % _N} <= {_CALL, _RETURN} and one < two
        if is_host and self.rows[one // _N].thread == self.rows[two // _N].thread:
            return {("thread", "")}
        found: set[tuple[str, str]] = set()
        seen, pending = {(two, "", "")}, [(two, "", "")]
        while pending:
            moment, used_rule, used_sync = pending.pop()
            for before, rule, sync in self.into[moment]:
                each = (before, used_rule or rule, used_sync or sync)
                if before == one:
                    found.add(each[1:])
                elif before % _N in _HIDDEN and before // _N >= one // _N and each not in seen:
                    seen.add(each)
                    pending.append(each)
        return found

    def lost(self, syncs: Iterable[str], left: Iterable[str]) -> Iterator[str]:
        """Name accesses that `syncs` order after a conflicting one, and those left do not."""
        before, after = self.closure(frozenset(syncs)), self.closure(frozenset(left))
        marks: dict[tuple[int, int], dict[tuple[bool, int, int], int]] = {}
        every = (use for uses in self.uses.values() for use in uses)
        for use in sorted(every, key=lambda use: use.moment):
            here = marks.setdefault((use.buffer, use.slot), {})
            conflicts = 0
            for (write, begin, end), mark in here.items():
                if (write or use.write) and begin < use.end and use.begin < end:
                    conflicts |= mark
            if conflicts & before[use.moment] & ~after[use.moment]:
                buffer = self.program.buffers[use.buffer].name
                yield f"{use.node[1]} of step {use.node[0]} on {buffer}"
            span = (use.write, use.begin, use.end)
            here[span] = here.get(span, 0) | 1 << use.moment

    def _closure(self, syncs: frozenset[str]) -> list[int]:
        """Of each moment the set of moments before it, as bits."""
        before: list[int] = []
        for edges in self.into:
            bits = 0
            for each, _, sync in edges:
                if not sync or sync in syncs:
                    bits |= before[each] | 1 << each
            before.append(bits)
        return before
