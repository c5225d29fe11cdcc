"""Ops of a conformance case as rows of a Program, one site per op.

A release of memory (`free`, `pool_release`) is no access: nobody documents a free as a write, and
the hazard is what the next owner does.  Nor does it order anything, which is not promised either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from syncscope.app.importers.fields import (
    BadField,
    Record,
    get_choice,
    get_flag,
    get_list,
    get_number,
    get_text,
    show,
)
from syncscope.sched_core.errors import nearest
from syncscope.sched_core.machine import STREAM_KINDS
from syncscope.sched_core.program import (
    ACCESS,
    BLOCKING,
    GRID_SYNC,
    NO_KERNEL,
    OP,
    PDL,
    SCOPES,
    Program,
    Site,
)
from syncscope.sched_core.records import Buffer, Event, Kind, Stream

MAX_ACTORS = 256
MAX_ACCESSES = 4_096
MAX_DEVICE = 1023

DIRECTIONS = ("H2H", "H2D", "D2H", "D2D", "default")

Range = tuple[int, int, int]
"""Buffer, first byte, byte after the last."""


@dataclass(slots=True)
class CaseRows:
    """Rows of one case; ops are added in order.

    Everything that an op names must have been declared, except events and legacy default streams.
    """

    buffer_list: list[Buffer]
    buffers: dict[str, int] = field(init=False)
    streams: dict[str, int] = field(default_factory=dict)
    stream_list: list[Stream] = field(default_factory=list)
    legacy: dict[int, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    event_list: list[Event] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    threads: dict[int | str, int] = field(default_factory=lambda: {0: 0})
    rows: list[tuple[int, ...]] = field(default_factory=list)
    members: list[tuple[int, ...]] = field(default_factory=list)
    accesses: list[tuple[int, ...]] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    thread: int = 0

    def __post_init__(self) -> None:
        self.buffers = {each.name: i for i, each in enumerate(self.buffer_list)}

    def add_stream(self, stream: Stream) -> int:
        """Add a stream; a device has one legacy default stream, whatever its names."""
        legacy = stream.kind == "legacy_default"
        if legacy and stream.device in self.legacy:
            return self.legacy[stream.device]
        self.stream_list.append(stream)
        self._check_actors()
        number = len(self.stream_list) - 1
        if legacy:
            self.legacy[stream.device] = number
        return number

    def _check_actors(self) -> None:
        if len(self.stream_list) + len(self.threads) > MAX_ACTORS:
            raise BadField(f"more than {MAX_ACTORS} streams, tokens and threads")

    def _legacy_of(self, device: int) -> int:
        return self.add_stream(
            Stream(f"legacy default stream of {device}", device, STREAM_KINDS[2])
        )

    def add(self, op: Record) -> None:
        """Add an op; BadField for anything that it lacks or that is not there."""
        name = get_text(op, "op")
        if name not in OPS:
            raise BadField(f"unknown op {show(name)}; {nearest(name[:60], OPS)}")
        thread = op.get("thread", 0)
        if type(thread) not in (int, str):
            raise BadField(f"thread is {show(thread)}, not a number or a name")
        self.thread = self.threads.setdefault(thread, len(self.threads))
        self._check_actors()
        first = len(self.rows)
        OPS[name](self, op)
        kind, flags, scope, stream = (self.rows[first][i] for i in (2, 3, 4, 6))
        self.sites.append(
            Site(
                phase="case",
                name=f"op{len(self.sites)}.{name}",
                kind=Kind(kind),
                scope=SCOPES[scope],
                blocking=bool(flags & BLOCKING),
                stream=self.stream_list[stream].name if stream >= 0 else "",
            )
        )

    def _row(
        self,
        kind: Kind,
        stream: int = -1,
        event: int = -1,
        flags: int = 0,
        scope: str = "stream",
        reads: tuple[Range, ...] = (),
        writes: tuple[Range, ...] = (),
    ) -> None:
        access0, site = len(self.accesses), len(self.sites)
        self.accesses += [
            (buffer, 0, write, 1, begin, end)
            for write, ranges in enumerate((reads, writes))
            for buffer, begin, end in ranges
        ]
        if len(self.accesses) > MAX_ACCESSES:
            raise BadField(f"more than {MAX_ACCESSES} accesses in one case")
        used = len(self.accesses) - access0
        nbytes = sum(end - begin for _, begin, end in reads) if kind == Kind.COPY else 0
        first = 0
        used_by = (-1, access0, used, NO_KERNEL, self.thread)
        if kind == Kind.GRAPH:  # one member does what the whole graph does
            member = (site, 0, int(Kind.LAUNCH), 0, 0, 0, stream, -1)
            first, nbytes = len(self.members), 1
            self.members.append((*member, *used_by, 0, 0, 0))
        issued = (site, 0, int(kind), flags, SCOPES.index(scope), 0, stream, event)
        self.rows.append((*issued, *used_by, nbytes, first, 0))

    def program(self) -> Program:
        """Return the rows so far."""
        return Program(
            ops=np.array(self.rows, dtype=OP),
            members=np.array(self.members, dtype=OP),
            accesses=np.array(self.accesses, dtype=ACCESS),
            sites=tuple(self.sites),
            kernels=(),
            buffers=tuple(self.buffer_list),
            streams=tuple(self.stream_list),
            events=tuple(self.event_list),
            phases=("case",),
            step0=np.array([0, len(self.rows)], dtype=np.int64),
        )

    # ---- what an op names -------------------------------------------------------------------

    def _stream_of(self, op: Record) -> int:
        name = get_text(op, "stream")
        if name not in self.streams:
            raise BadField(f"unknown stream {show(name)}")
        return self.streams[name]

    def buffer_of(self, name: object) -> int:
        """Return the number of a buffer; BadField if there is none of that name."""
        if not isinstance(name, str) or name not in self.buffers:
            raise BadField(f"unknown buffer {show(name)}")
        return self.buffers[name]

    def _event_of(self, op: Record) -> int:
        """Return the event of that name; an event that nobody recorded is one all the same."""
        name = get_text(op, "event")
        return self.events[name] if name in self.events else self._new_event(op)

    def _new_event(self, op: Record) -> int:
        name = get_text(op, "event")
        self.events[name] = len(self.event_list)
        self.event_list.append(Event(name, 0))
        return self.events[name]

    def _range_of(self, value: object) -> Range:
        if not isinstance(value, dict):
            buffer = self.buffer_of(value)
            return buffer, 0, self.buffer_list[buffer].nbytes
        buffer = self.buffer_of(get_text(value, "buf"))
        begin, length = get_number(value, "off"), get_number(value, "len")
        record = self.buffer_list[buffer]
        if begin + length > record.nbytes:
            raise BadField(
                f"bytes {begin}..{begin + length} lie outside buffer {show(record.name)} "
                f"of {record.nbytes}"
            )
        return buffer, begin, begin + length

    def _ranges_of(self, op: Record, key: str) -> tuple[Range, ...]:
        return tuple(self._range_of(value) for value in get_list(op, key, []))

    def _end_of(self, op: Record, key: str) -> Range:
        if key not in op:
            raise BadField(f"lacks {key}")
        return self._range_of(op[key])

    def _device_of(self, op: Record, *ends: Range) -> int:
        """Return the device whose legacy stream carries a call that names no stream.

        It is the one the op names, else that of its device memory (the target's first), else the
        only one there is, else 0.
        """
        if "device" in op:
            return get_number(op, "device", most=MAX_DEVICE)
        for buffer, *_ in ends:
            if self.buffer_list[buffer].device >= 0:
                return self.buffer_list[buffer].device
        devices = {stream.device for stream in self.stream_list if stream.device >= 0}
        return devices.pop() if len(devices) == 1 else 0

    # ---- ops --------------------------------------------------------------------------------

    def _work(self, op: Record, kind: Kind, stream: int = -1, flags: int = 0) -> None:
        """A row with the op's own lists of accesses, of which it must have one."""
        if "reads" not in op and "writes" not in op:
            raise BadField("lacks reads and writes")
        reads, writes = self._ranges_of(op, "reads"), self._ranges_of(op, "writes")
        self._row(kind, stream, flags=flags, reads=reads, writes=writes)

    def _kernel(self, op: Record) -> None:
        flags = PDL * get_flag(op, "pdl") | GRID_SYNC * get_flag(op, "grid_dependency_sync")
        self._work(op, Kind.LAUNCH, self._stream_of(op), flags)

    def _graph_launch(self, op: Record) -> None:
        self._work(op, Kind.GRAPH, self._stream_of(op))

    def _host_func(self, op: Record) -> None:
        self._work(op, Kind.EXT, self._stream_of(op))

    def _prefetch(self, op: Record) -> None:
        """Managed memory moves in the stream's order; nobody sees other bytes for it."""
        self._row(Kind.EXT, self._stream_of(op))

    def _host(self, op: Record) -> None:
        self._work(op, Kind.HOST)

    def _nothing(self, op: Record) -> None:
        self._row(Kind.QUERY)

    def _release(self, op: Record) -> None:
        self.buffer_of(get_text(op, "buf"))
        self._row(Kind.QUERY)

    def _memcpy_async(self, op: Record) -> None:
        source, target = self._end_of(op, "src"), self._end_of(op, "dst")
        self._direction_of(op, source, target)
        self._row(Kind.COPY, self._stream_of(op), reads=(source,), writes=(target,))

    def _memcpy(self, op: Record) -> None:
        """A blocking copy; where its direction says more than its memory does, `dir` is followed.

        The rules take managed memory for device memory.  A direction that calls it host memory
        makes the copy block: that is a sync of its stream by the same site.
        """
        source, target = self._end_of(op, "src"), self._end_of(op, "dst")
        direction = self._direction_of(op, source, target)
        memory = self.buffer_list[source[0]].memory
        blocks = direction.endswith("H") or (direction == "H2D" and memory != "pageable")
        derived = self._side_of(target) == "H" or memory == "pinned"
        stream = self._legacy_of(self._device_of(op, target, source))
        flags = BLOCKING if blocks == derived else 0
        self._row(Kind.COPY, stream, flags=flags, reads=(source,), writes=(target,))
        if blocks and not derived:
            self._row(Kind.SYNC, stream)

    def _side_of(self, end: Range) -> str:
        return "H" if self.buffer_list[end[0]].memory in ("pinned", "pageable") else "D"

    def _direction_of(self, op: Record, source: Range, target: Range) -> str:
        """Return the direction, which must agree with the memory; managed memory is on both sides.

        Raises
        ------
        BadField
            For memory that is not on the side that the direction says.
        """
        derived = f"{self._side_of(source)}2{self._side_of(target)}"
        told = get_choice(op, "dir", DIRECTIONS, "default")
        if told == "default":
            return derived
        for end, side in ((source, told[0]), (target, told[2])):
            buffer = self.buffer_list[end[0]]
            if buffer.memory != "managed" and self._side_of(end) != side:
                raise BadField(f"dir is {told}, but {show(buffer.name)} is {buffer.memory}")
        return told

    def _memset(self, op: Record) -> None:
        target = self._end_of(op, "dst")
        stream = self._legacy_of(self._device_of(op, target))
        self._row(Kind.MEMSET, stream, flags=BLOCKING, writes=(target,))

    def _memset_async(self, op: Record) -> None:
        self._row(Kind.MEMSET, self._stream_of(op), writes=(self._end_of(op, "dst"),))

    def _event_record(self, op: Record) -> None:
        self._row(Kind.RECORD, self._stream_of(op), self._event_of(op), scope="event")

    def _stream_wait_event(self, op: Record) -> None:
        self._row(Kind.WAIT, self._stream_of(op), self._event_of(op), scope="event")

    def _event_sync(self, op: Record) -> None:
        self._row(Kind.SYNC, event=self._event_of(op), scope="event")

    def _stream_sync(self, op: Record) -> None:
        self._row(Kind.SYNC, self._stream_of(op))

    def _device_sync(self, op: Record) -> None:
        self._row(Kind.SYNC, self._legacy_of(self._device_of(op)), scope="device")

    def _query(self, op: Record, sync: Callable[[CaseRows, Record], None]) -> None:
        """A query that reports done tells the host as much as a sync; otherwise nothing."""
        done = get_choice(op, "result", ("done", "not_ready")) == "done"
        first = len(self.rows)
        sync(self, op)
        if not done:
            del self.rows[first:]
            self._nothing(op)

    def _new_event_row(self, op: Record) -> None:
        self._new_event(op)
        self._nothing(op)

    def _stream_create(self, op: Record) -> None:
        """From here on the name is another stream, which is not in line with the old one's work."""
        stream = self.stream_list[self._stream_of(op)]
        if stream.kind.endswith("_default"):
            raise BadField(f"{show(stream.name)} is a default stream, which nobody creates")
        self.streams[get_text(op, "stream")] = self.add_stream(stream)
        self._nothing(op)

    def _stream_destroy(self, op: Record) -> None:
        self._stream_of(op)
        self._nothing(op)

    def _ext_begin(self, op: Record) -> None:
        """Work of a library outside every stream and device, from here to its ``ext_wait``."""
        token = get_text(op, "token")
        if token in self.tokens:
            raise BadField(f"token {show(token)} is in use since an earlier ext_begin")
        device = -2 - len(self.stream_list)
        self.tokens[token] = self.add_stream(Stream(token, device, "nonblocking"))
        self._work(op, Kind.LAUNCH, self.tokens[token])

    def _ext_wait(self, op: Record) -> None:
        token = get_text(op, "token")
        if token not in self.tokens:
            raise BadField(f"unknown token {show(token)}")
        self._row(Kind.SYNC, self.tokens.pop(token))


OPS: dict[str, Callable[[CaseRows, Record], None]] = {
    "kernel": CaseRows._kernel,
    "memcpy": CaseRows._memcpy,
    "memcpy_async": CaseRows._memcpy_async,
    "memset": CaseRows._memset,
    "memset_async": CaseRows._memset_async,
    "graph_launch": CaseRows._graph_launch,
    "host_func": CaseRows._host_func,
    "prefetch": CaseRows._prefetch,
    "event_create": CaseRows._new_event_row,
    "event_destroy": CaseRows._new_event_row,
    "event_record": CaseRows._event_record,
    "event_sync": CaseRows._event_sync,
    "event_query": lambda rows, op: rows._query(op, CaseRows._event_sync),
    "stream_create": CaseRows._stream_create,
    "stream_destroy": CaseRows._stream_destroy,
    "stream_wait_event": CaseRows._stream_wait_event,
    "stream_sync": CaseRows._stream_sync,
    "stream_query": lambda rows, op: rows._query(op, CaseRows._stream_sync),
    "device_sync": CaseRows._device_sync,
    "host_read": CaseRows._host,
    "host_write": CaseRows._host,
    "ext_read": CaseRows._host,
    "ext_write": CaseRows._host,
    "ext_begin": CaseRows._ext_begin,
    "ext_wait": CaseRows._ext_wait,
    "free": CaseRows._release,
    "pool_release": CaseRows._release,
    "host_pool_release": CaseRows._release,
}
