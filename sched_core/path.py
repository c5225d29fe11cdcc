"""Explicit happens-before edges of a Program, and shortest paths through them.

`order` decides what is ordered; this says how.  Nodes are moments of rows: a call, what the device
does, and the return of a call that waits.  An edge that a sync makes carries the site of that sync,
so that paths can be asked for that use kept syncs alone.  The rules are those of `order`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from syncscope.sched_core.program import BLOCKING, GRID_SYNC, PDL, SCOPES, Program
from syncscope.sched_core.records import Kind, Node

CALL, EXEC, RETURN = range(3)
ROLES = ("call", "exec", "return")

Moment = tuple[int, int]
"""Row and role."""

FREE = -1
"""Label of an edge that no sync site makes."""

EDGES = {
    "thread": "C11: a host thread's calls come one after another",
    "issue": "CUDA programming guide, asynchronous execution: work begins after its call",
    "stream": "CUDA programming guide, streams: work of a stream runs in order",
    "legacy": "CUDA runtime API, stream synchronization behavior: the legacy default stream",
    "pdl": "CUDA programming guide, programmatic dependent launch: the kernel before may still run",
    "wait": "CUDA runtime API, cudaStreamWaitEvent: the latest record before the call",
    "event sync": "CUDA runtime API, cudaEventSynchronize: the latest record before the call",
    "stream sync": "CUDA runtime API, cudaStreamSynchronize: all earlier work of the stream",
    "device sync": "CUDA runtime API, cudaDeviceSynchronize: all earlier work of the device",
    "staging": "CUDA runtime API, API synchronization behavior: memcpy from pageable memory",
    "blocking": "CUDA runtime API, API synchronization behavior: memcpy and memset that block",
    "pageable": "practical: async copies to pageable memory are done on return (CUDA 11.0 text)",
}
"""The rule behind each edge, and the document it is from."""

_STREAM_WORK = (
    Kind.LAUNCH,
    Kind.COPY,
    Kind.RECORD,
    Kind.WAIT,
    Kind.GRAPH,
    Kind.MEMSET,
    Kind.EXT,
)


@dataclass(frozen=True, slots=True)
class Step:
    """An edge: where it leads, its rule, and the site of the sync that makes it, or `FREE`."""

    to: Moment
    site: int
    rule: str


class EdgeGraph:
    """Every edge of a program under a rule set.

    Parameters
    ----------
    program : Program
    rules : str
    """

    def __init__(self, program: Program, rules: str) -> None:
        self.program = program
        self.practical = rules == "practical"
        self.after: dict[Moment, list[Step]] = {}
        self.before: dict[Moment, list[Step]] = {}
        self._memory = [buffer.memory for buffer in program.buffers]
        self._build()

    def _edge(self, begin: Moment | None, end: Moment, rule: str, site: int = FREE) -> None:
        if begin is not None:
            self.after.setdefault(begin, []).append(Step(end, site, rule))
            self.before.setdefault(end, []).append(Step(begin, site, rule))

    def copy_ends(self, row: int) -> tuple[str, str]:
        """Memory of a copy's source and target."""
        access0 = self.program.ops["access0"][row]
        source, target = self.program.accesses["buffer"][access0 : access0 + 2]
        return self._memory[source], self._memory[target]

    def moment_of_access(self, row: int, access: int, dropped: Collection[int]) -> Moment:
        """When an access of a row takes place; sites in `dropped` do not block."""
        op = self.program.ops[row]
        kind = int(op["kind"])
        if kind not in _STREAM_WORK:
            return row, CALL
        if kind == Kind.COPY and access == 0:
            source, target = self.copy_ends(row)
            blocking = op["flags"] & BLOCKING and int(op["site"]) not in dropped
            if source == "pageable" and _on_device(target) and (blocking or self.practical):
                return row, CALL
        return row, EXEC

    def _ordered(self, one: int, other: int) -> bool:
        """Whether two streams are implicitly ordered: one is the legacy one, neither is free."""
        a, b = self.program.streams[one], self.program.streams[other]
        kinds = {a.kind, b.kind}
        return (
            a.device == b.device
            and one != other
            and "nonblocking" not in kinds
            and "legacy_default" in kinds
        )

    def _build(self) -> None:
        program = self.program
        streams = range(len(program.streams))
        peers = [[other for other in streams if self._ordered(one, other)] for one in streams]
        host: dict[int, Moment] = {}
        tails: list[list[Moment]] = [[] for _ in streams]
        began: list[list[tuple[Moment, int]]] = [[] for _ in streams]  # of the last kernel
        between: list[list[int]] = [[] for _ in streams]  # sites of the waits since
        records: dict[int, Moment] = {}
        for row, op in enumerate(program.ops):
            kind, thread, stream, site = (
                int(op[name]) for name in ("kind", "thread", "stream", "site")
            )
            call = (row, CALL)
            self._edge(host.get(thread), call, "thread")
            host[thread] = call
            if kind == Kind.SYNC:
                rule = f"{SCOPES[op['scope']]} sync"
                for moment in self._waited(op, peers, tails, records):
                    self._edge(moment, call, rule, site)
            elif kind in _STREAM_WORK:
                own, others = tails[stream], [tail for o in peers[stream] for tail in tails[o]]
                if kind == Kind.COPY and self.stages(row):
                    for moment in own + others:
                        self._edge(moment, call, "staging", site)
                is_early = kind == Kind.LAUNCH and op["flags"] & PDL and bool(began[stream])
                overlaps = is_early and not op["flags"] & GRID_SYNC
                apart = [(tail, wait) for wait in between[stream] for tail in own]
                self._edge(call, (row, EXEC), "issue")
                for moment, wait in began[stream] if overlaps else ():
                    self._edge(moment, (row, EXEC), "pdl", wait)
                for moment, wait in apart if overlaps else [(tail, FREE) for tail in own]:
                    self._edge(moment, (row, EXEC), "stream", wait)
                for moment in others:
                    self._edge(moment, (row, EXEC), "legacy")
                if kind == Kind.WAIT:
                    self._edge(records.get(int(op["event"])), (row, EXEC), "wait", site)
                    between[stream].append(site)
                else:
                    if kind == Kind.LAUNCH:
                        before = [*began[stream], *apart] if is_early else [(t, FREE) for t in own]
                        before += [(tail, FREE) for tail in others]
                        began[stream] = [*self._without_calls(before, thread), (call, FREE)]
                    else:
                        began[stream] = []
                    between[stream] = []
                tails[stream] = [*own, (row, EXEC)] if overlaps else [(row, EXEC)]
                if kind == Kind.RECORD:
                    records[int(op["event"])] = (row, EXEC)
                label = self._return_label(row)
                if label is not None:
                    rule = "pageable" if label == FREE else "blocking"
                    self._edge((row, EXEC), (row, RETURN), rule, label)
                    self._edge(call, (row, RETURN), "thread")
                    host[thread] = (row, RETURN)

    def _without_calls(
        self, moments: Iterable[tuple[Moment, int]], thread: int
    ) -> Iterator[tuple[Moment, int]]:
        """Leave out repeated moments, and the calls of a thread: its next call comes after them."""
        for moment, site in dict.fromkeys(moments):
            if moment[1] != CALL or self.program.ops["thread"][moment[0]] != thread:
                yield moment, site

    def _waited(
        self,
        op: np.void,
        peers: list[list[int]],
        tails: list[list[Moment]],
        records: dict[int, Moment],
    ) -> list[Moment]:
        """What a host sync waits for."""
        streams = self.program.streams
        stream, scope = int(op["stream"]), int(op["scope"])
        if scope == 1:
            record = records.get(int(op["event"]))
            return [] if record is None else [record]
        wanted = [stream]
        if scope == 2:
            device = streams[stream].device
            wanted = [i for i, each in enumerate(streams) if each.device == device]
        elif streams[stream].kind == "legacy_default":
            wanted += peers[stream]
        return [tail for each in wanted for tail in tails[each]]

    def stages(self, row: int) -> bool:
        """Whether a blocking copy waits for its stream before it reads pageable memory."""
        source, target = self.copy_ends(row)
        blocking = bool(self.program.ops["flags"][row] & BLOCKING)
        return blocking and source == "pageable" and _on_device(target)

    def _return_label(self, row: int) -> int | None:
        """Label of the edge from a row's work to its return; None if the call does not wait."""
        op = self.program.ops[row]
        blocking = bool(op["flags"] & BLOCKING)
        site = int(op["site"])
        if op["kind"] == Kind.COPY:
            source, target = self.copy_ends(row)
            if self.practical and target == "pageable":
                return FREE
            waits = not _on_device(target) or source == "pinned"
            return site if blocking and waits else None
        if op["kind"] == Kind.MEMSET and blocking and op["n_access"]:
            memory = self._memory[self.program.accesses["buffer"][op["access0"]]]
            return site if memory in ("pinned", "managed") else None
        return None

    def reachable(self, start: Moment, forward: bool, kept: Collection[int]) -> set[Moment]:
        """Moments that can be reached from `start`, or reach it, by free edges and kept syncs."""
        edges = self.after if forward else self.before
        seen = {start}
        todo = [start]
        while todo:
            for step in edges.get(todo.pop(), ()):
                if step.to not in seen and (step.site == FREE or step.site in kept):
                    seen.add(step.to)
                    todo.append(step.to)
        return seen

    def shortest(self, start: Moment, end: Moment, kept: Collection[int]) -> list[Step]:
        """Return the fewest edges from `start` to `end`; empty if there is no path."""
        came: dict[Moment, tuple[Moment, Step]] = {}
        todo = deque([start])
        while todo:
            moment = todo.popleft()
            for step in self.after.get(moment, ()):
                usable = step.site == FREE or step.site in kept
                if usable and step.to != start and step.to not in came:
                    came[step.to] = (moment, step)
                    if step.to == end:
                        return _trace_back(came, start, end)
                    todo.append(step.to)
        return []

    def syncs_between(self, start: Moment, end: Moment, usable: Collection[int]) -> set[int]:
        """Sites of the syncs that lie on any path from `start` to `end`."""
        ahead = self.reachable(start, True, usable)
        behind = self.reachable(end, False, usable)
        inside = ahead & behind
        return {
            step.site
            for moment in inside
            for step in self.after.get(moment, ())
            if step.site != FREE and step.site in usable and step.to in inside
        }

    def node(self, moment: Moment, access: int = -1) -> Node:
        """Name a moment; with an access, that of the member of a graph that makes it."""
        row, role = moment
        op = self.program.ops[row]
        site = int(op["site"])
        if access >= 0 and op["kind"] == Kind.GRAPH:
            site = int(self.member(row, access)["site"])
        return Node(int(op["step"]), self.program.sites[site].name, ROLES[role])

    def member(self, row: int, access: int) -> np.void:
        """Return the member of a GRAPH row that makes an access of it."""
        op = self.program.ops[row]
        begin = int(op["dst"])
        members = self.program.members[begin : begin + int(op["nbytes"])]
        at = int(op["access0"]) + access
        found: np.void = members[np.searchsorted(members["access0"], at, side="right") - 1]
        return found


def _trace_back(came: dict[Moment, tuple[Moment, Step]], start: Moment, end: Moment) -> list[Step]:
    steps: list[Step] = []
    while end != start:
        end, step = came[end]
        steps.append(step)
    return steps[::-1]


def _on_device(memory: str) -> bool:
    return memory in ("device", "managed")


def sites_used(steps: Iterable[Step]) -> tuple[int, ...]:
    """Sites of the syncs of a path, once each, in its order."""
    return tuple(dict.fromkeys(step.site for step in steps if step.site != FREE))
