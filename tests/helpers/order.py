"""Happens-before of a small Program by brute force: the oracle for the simulator.

Every issued row is a call by its host thread; device work is one more node, a wait that the host
makes one after it.  A node knows the set of all nodes before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from syncscope.sched_core.program import BLOCKING, SCOPES, Program
from syncscope.sched_core.records import Kind


@dataclass
class Node:
    """`role` is call, exec or ret; `row` counts the members of graphs after the ops."""

    row: int
    role: str
    before: set[int]
    accesses: list[int] = field(default_factory=list)


class Order:
    """The nodes of a program, in issue order, each with the set of nodes before it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[Node] = []
        self._host: dict[int, int] = {}
        self._tail: dict[int, int] = {}
        self._recorded: dict[int, int] = {}
        for row, op in enumerate(program.ops):
            self._issue(row, op)

    def _add(self, row, role, before) -> int:
        closed = {each for each in before if each is not None}
        closed |= {each for direct in closed for each in self.nodes[direct].before}
        self.nodes.append(Node(row, role, closed))
        return len(self.nodes) - 1

    def _ordered_with(self, stream: int) -> list[int]:
        """Streams that order themselves with `stream`, itself among them."""
        streams = self.program.streams
        mine = streams[stream]
        legacy = "legacy_default"
        return [
            i
            for i, other in enumerate(streams)
            if i == stream
            or (
                other.device == mine.device
                and "nonblocking" not in (mine.kind, other.kind)
                and legacy in (mine.kind, other.kind)
            )
        ]

    def _tails(self, streams) -> list[int | None]:
        return [self._tail.get(each) for each in streams]

    def _memory(self, access: int) -> str:
        return self.program.buffers[self.program.accesses["buffer"][access]].memory

    def _issue(self, row, op) -> None:
        program, thread, stream = self.program, int(op["thread"]), int(op["stream"])
        call = self._add(row, "call", [self._host.get(thread)])
        self._host[thread] = call
        mine = list(range(op["access0"], op["access0"] + op["n_access"]))
        if op["kind"] == Kind.HOST:
            self.nodes[call].accesses = mine
            return
        if op["kind"] == Kind.SYNC:
            scope = SCOPES[op["scope"]]
            if scope == "event":
                done = [self._recorded.get(int(op["event"]))]
            elif scope == "device":
                device = program.streams[stream].device
                same = [i for i, s in enumerate(program.streams) if s.device == device]
                done = self._tails(same)
            elif program.streams[stream].kind == "legacy_default":
                done = self._tails(self._ordered_with(stream))
            else:
                done = [self._tail.get(stream)]
            self._host[thread] = self._add(row, "ret", [call, *done])
            return
        before = [call, *self._tails(self._ordered_with(stream))]
        if op["kind"] == Kind.WAIT:
            before.append(self._recorded.get(int(op["event"])))
        members = [(row, op)]
        if op["kind"] == Kind.GRAPH:
            first = int(op["dst"])
            run = range(first, first + int(op["nbytes"]))
            members = [(len(program.ops) + i, program.members[i]) for i in run]
        for number, member in members:
            work = self._add(number, "exec", before)
            touched = range(member["access0"], member["access0"] + member["n_access"])
            self.nodes[work].accesses = list(touched)
            before = [work]
        self._tail[stream] = work
        if op["kind"] == Kind.RECORD:
            self._recorded[int(op["event"])] = work
        if op["kind"] == Kind.COPY:
            source, target = mine
            if self._memory(source) == "pageable":  # read before the call returns
                self.nodes[work].accesses.remove(source)
                self.nodes[call].accesses.append(source)
            if op["flags"] & BLOCKING or self._memory(target) == "pageable":
                self._host[thread] = self._add(row, "ret", [call, work])

    def races(self) -> list[tuple[str, int, int]]:
        """Return (RAW, WAR or WAW, earlier row, later row) of conflicting unordered accesses."""
        found = []
        accesses = self.program.accesses
        for (number, one), (_, two) in combinations(enumerate(self.nodes), 2):
            if number in two.before:
                continue
            for a in accesses[one.accesses]:
                for b in accesses[two.accesses]:
                    same = a["buffer"] == b["buffer"] and a["slot"] == b["slot"]
                    overlap = a["begin"] < b["end"] and b["begin"] < a["end"]
                    if same and overlap and (a["write"] or b["write"]):
                        first = "W" if a["write"] else "R"
                        second = "W" if b["write"] else "R"
                        found.append((f"{second}A{first}", one.row, two.row))
        return found
