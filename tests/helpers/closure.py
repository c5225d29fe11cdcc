"""Hazards of a small Program by brute force: an oracle for the ordering analysis.

It shares nothing with `order` but the rows.  A graph of moments is built and closed by bit sets:

- a call is a moment of its host thread; a wait that the host makes within the call is another;
- work of a stream is an interval: it begins after its call and after what the stream and the
  streams implicitly ordered with it held, and it ends after it began;
- an access lies in an interval (work of a stream) or at a moment (the host).  One access comes
  before another if it has ended when the other begins, on every possible run.

A kernel with programmatic dependent launch is launched once the one before it was *launched* (which
may trigger before a wait inside it), begins then or, with a wait inside, after all before it ended,
and ends after all before it ended.
Quadratic in the rows; meant for some hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from syncscope.sched_core.program import BLOCKING, GRID_SYNC, PDL, SCOPES, Program
from syncscope.sched_core.records import Kind

Hazard = tuple[str, str, int, int]
"""Type (RAW, WAR, WAW), name of the buffer, earlier row, later row."""


@dataclass(frozen=True)
class Use:
    """An access with the moments between which it happens and the actor that performs it."""

    row: int
    actor: tuple[str, int]
    place: tuple[int, int]
    lo: int
    hi: int
    write: bool
    begin: int
    end: int


@dataclass
class Tail:
    """The end of a stream: when all is done, and the launch of its last work if a kernel."""

    end: int
    launched: int | None = None


@dataclass
class Closure:
    """The moments of a program under a rule set, each with all moments before it, and the uses.

    `dropped` are sites: a sync or wait of one does nothing, a blocking copy or memset does not
    block.
    """

    program: Program
    rules: str
    dropped: frozenset[int] = frozenset()
    before: list[int] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    host: dict[int, int] = field(default_factory=dict)
    tails: dict[int, Tail] = field(default_factory=dict)
    records: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.rules in ("practical", "strict")
        for row, op in enumerate(self.program.ops):
            self._issue(row, op)

    def moment(self, *after: int | None) -> int:
        bits = 0
        for each in after:
            if each is not None:
                bits |= self.before[each] | 1 << each
        self.before.append(bits)
        return len(self.before) - 1

    def ordered(self, one: Use, two: Use) -> bool:
        """Whether the earlier access has ended when the later one begins."""
        return bool(self.before[two.begin] >> one.end & 1)

    def _issue(self, row, op) -> None:
        kind, thread = int(op["kind"]), int(op["thread"])
        call = self.host[thread] = self.moment(self.host.get(thread))
        if kind in (Kind.HOST, Kind.ALLOC, Kind.FREE):
            for access in self._reads_then_writes(op):
                self._use(row, ("host", thread), access, call, call)
        elif kind == Kind.SYNC:
            if int(op["site"]) not in self.dropped:
                self.host[thread] = self.moment(call, *self._waited_for(op))
        elif op["stream"] >= 0:
            self._issue_work(row, op)

    def _issue_work(self, row, op) -> None:
        kind, thread, stream = int(op["kind"]), int(op["thread"]), int(op["stream"])
        kept = int(op["site"]) not in self.dropped
        blocking = bool(op["flags"] & BLOCKING) and kept
        mine = self._reads_then_writes(op)
        memory = [self.program.buffers[access["buffer"]].memory for access in mine]
        to_device = kind == Kind.COPY and memory[1] in ("device", "managed")
        pageable_to_device = to_device and memory[0] == "pageable"
        if blocking and pageable_to_device:
            self.host[thread] = self.moment(self.host[thread], *self._reach(stream))
        tail = self.tails.get(stream)
        early = None
        if op["flags"] & PDL and kind == Kind.LAUNCH and tail:
            early = tail.launched
        others = [self._end(each) for each in self._implicit(stream)]
        after = [self.host[thread], *others]
        after.append(self._end(stream) if early is None else early)
        if kind == Kind.WAIT and kept:
            after.append(self.records.get(int(op["event"])))
        begin = launched = self.moment(*after)
        if early is not None and op["flags"] & GRID_SYNC:
            begin = self.moment(launched, self._end(stream))
        end = self.moment(begin, self._end(stream))
        if kind == Kind.LAUNCH:
            self.tails[stream] = Tail(end, launched)
        elif kind == Kind.WAIT and not kept and tail:  # as if it were not there
            self.tails[stream] = Tail(end, tail.launched)
        else:
            self.tails[stream] = Tail(end)
        if kind == Kind.RECORD:
            self.records[int(op["event"])] = end
        if kind == Kind.GRAPH:
            first = int(op["dst"])
            for member in self.program.members[first : first + int(op["nbytes"])]:
                for access in self._reads_then_writes(member):
                    self._use(row, ("stream", stream), access, begin, end)
            return
        practical = self.rules == "practical"
        for access in mine:
            if pageable_to_device and not access["write"] and (blocking or practical):
                here = self.host[thread]
                self._use(row, ("host", thread), access, here, here)
            else:
                self._use(row, ("stream", stream), access, begin, end)
        if kind == Kind.COPY and not to_device:
            waits = blocking or (practical and memory[1] == "pageable")
        elif kind == Kind.COPY:
            waits = blocking and memory[0] == "pinned"
        else:
            waits = kind == Kind.MEMSET and blocking and memory[0] in ("pinned", "managed")
        if waits:
            self.host[thread] = self.moment(self.host[thread], end)

    def _use(self, row, actor, access, begin, end) -> None:
        place = (int(access["buffer"]), int(access["slot"]))
        span = (int(access["begin"]), int(access["end"]))
        self.uses.append(Use(row, actor, place, *span, bool(access["write"]), begin, end))

    def _reads_then_writes(self, op):
        first = int(op["access0"])
        mine = self.program.accesses[first : first + int(op["n_access"])]
        return sorted(mine, key=lambda access: access["write"])

    def _end(self, stream: int) -> int | None:
        return self.tails[stream].end if stream in self.tails else None

    def _implicit(self, stream: int) -> list[int]:
        """Other streams that the legacy default stream orders with this one."""
        kind, device = self.program.streams[stream].kind, self.program.streams[stream].device
        return [
            number
            for number, other in enumerate(self.program.streams)
            if number != stream
            and other.device == device
            and "nonblocking" not in (kind, other.kind)
            and "legacy_default" in (kind, other.kind)
        ]

    def _reach(self, stream: int) -> list[int | None]:
        return [self._end(each) for each in (stream, *self._implicit(stream))]

    def _waited_for(self, op) -> list[int | None]:
        stream, scope = int(op["stream"]), SCOPES[op["scope"]]
        if scope == "event":
            return [self.records.get(int(op["event"]))]
        streams = self.program.streams
        if scope == "device":
            same = (i for i, s in enumerate(streams) if s.device == streams[stream].device)
            return [self._end(each) for each in same]
        if streams[stream].kind == "legacy_default":
            return self._reach(stream)
        return [self._end(stream)]

    def hazards(self) -> Iterator[Hazard]:
        """Yield the hazards of `closure_hazards`, some more than once."""
        places = {use.place for use in self.uses}
        for place in places:
            uses = [use for use in self.uses if use.place == place]
            cuts = sorted({cut for use in uses for cut in (use.lo, use.hi)})
            name = self.program.buffers[place[0]].name
            for lo in cuts:
                here = [use for use in uses if use.lo <= lo < use.hi]
                for kind, one, two in self._byte_hazards(here):
                    yield kind, name, one.row, two.row

    def _byte_hazards(self, uses: list[Use]) -> Iterator[tuple[str, Use, Use]]:
        """Walk the accesses of one byte in issue order."""
        last: Use | None = None
        reads: list[Use] = []
        for use in uses:
            if last and last.row != use.row and not self.ordered(last, use):
                yield ("WAW" if use.write else "RAW"), last, use
            if use.write:
                for read in reads:
                    if read.row != use.row and not self.ordered(read, use):
                        yield "WAR", read, use
                last, reads = use, [read for read in reads if read.row == use.row]
            else:
                reads = [
                    read
                    for read in reads
                    if read.actor != use.actor
                    or (read.row != use.row and not self.ordered(read, use))
                ]
                reads.append(use)


def closure_hazards(program: Program, rules: str, dropped: Iterable[int] = ()) -> set[Hazard]:
    """Return the hazards that `Order.hazards` has to report, as rows.

    Per byte, in issue order ("last" is by issue order):

    - a read that is not ordered after the last write: RAW;
    - a write that is not ordered after the last write: WAW;
    - a write that is not ordered after a read since the last write: WAR.  What the row of the last
      write itself read counts as since; a read is forgotten once a later read of the same actor
      (host thread or stream) comes after it.

    Accesses of one row never conflict with each other.

    Parameters
    ----------
    program : Program
    rules : str
        ``practical`` or ``strict``.
    dropped : iterable of int
        Sites whose ordering is left out, as in `Order.hazards`.

    Returns
    -------
    set of (type, buffer name, earlier row, later row)
    """
    return set(Closure(program, rules, frozenset(dropped)).hazards())


def closure_races(program: Program, rules: str, dropped: Iterable[int] = ()) -> set[Hazard]:
    """Return all pairs of conflicting accesses of different rows that nothing orders.

    A superset of `closure_hazards`; empty if and only if that is.
    """
    closure = Closure(program, rules, frozenset(dropped))
    found = set()
    for one, two in combinations(closure.uses, 2):
        overlap = one.place == two.place and one.lo < two.hi and two.lo < one.hi
        if overlap and one.row != two.row and (one.write or two.write):
            kind = f"{'W' if two.write else 'R'}A{'W' if one.write else 'R'}"
            if not closure.ordered(one, two):
                name = program.buffers[one.place[0]].name
                found.add((kind, name, one.row, two.row))
    return found
