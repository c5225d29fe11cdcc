"""Programs written row by row, in the order of issue, and random ones.

A row is a dict of the fields that its kind has; its site has the row's number.  Accesses are
written ``name``, ``name[begin:end]`` or ``name.slot[begin:end]`` of one of `BUFFERS`.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from syncscope.sched_core.order import RULES
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

BUFFERS = (
    Buffer("h", 8, "pinned", depth=2),
    Buffer("g", 8, "pinned"),
    Buffer("p", 8, "pageable"),
    Buffer("q", 8, "pageable", depth=2),
    Buffer("d", 8, "device", 0, depth=2),
    Buffer("c", 8, "device", 1),
    Buffer("m", 8, "managed", 0),
)
EVENTS = (Event("e", 0), Event("f", 0, 2))
NAMES = [each.name for each in BUFFERS]


def use(text: str) -> tuple:
    """Read ``name``, ``name[begin:end]`` or ``name.slot[begin:end]`` as an access without mode."""
    name, _, span = text.rstrip("]").partition("[")
    name, _, slot = name.partition(".")
    begin, end = map(int, span.split(":")) if span else (0, 8)
    return NAMES.index(name), int(slot or 0), begin, end


def reads(*texts):
    return [(*use(text), 0) for text in texts]


def writes(*texts):
    return [(*use(text), 1) for text in texts]


def host(accesses, thread=0, kind=Kind.HOST):
    return {"kind": kind, "accesses": accesses, "thread": thread}


def launch(stream, accesses, thread=0, flags=0):
    row = {"kind": Kind.LAUNCH, "stream": stream, "accesses": accesses}
    return {**row, "thread": thread, "flags": flags}


def copy(stream, source, target, blocking=False, thread=0):
    flags = BLOCKING if blocking else 0
    accesses = [*reads(source), *writes(target)]
    row = {"kind": Kind.COPY, "stream": stream, "accesses": accesses}
    return {**row, "flags": flags, "thread": thread}


def memset(stream, target, blocking=False, thread=0):
    return {**launch(stream, writes(target), thread, BLOCKING * blocking), "kind": Kind.MEMSET}


def record(stream, event=0, thread=0):
    return {"kind": Kind.RECORD, "stream": stream, "event": event, "thread": thread}


def wait(stream, event=0, thread=0):
    return {"kind": Kind.WAIT, "stream": stream, "event": event, "thread": thread}


def sync(stream, scope="stream", thread=0):
    return {"kind": Kind.SYNC, "stream": stream, "scope": scope, "thread": thread}


def sync_event(event=0, thread=0):
    return {"kind": Kind.SYNC, "event": event, "scope": "event", "thread": thread}


def graph(stream, members, thread=0):
    return {"kind": Kind.GRAPH, "stream": stream, "members": members, "thread": thread}


def build(rows, streams="nonblocking"):
    """Make a program; `streams` are ``kind`` or ``kind@device``.  A row's site has its number."""
    accesses: list[tuple] = []
    ops, members, sites = [], [], []

    def line(row, site, access0, n_access, first=0, n_members=0):
        return (
            *(site, 0, int(row["kind"]), row.get("flags", 0)),
            *(SCOPES.index(row.get("scope", "stream")), 0),
            *(row.get("stream", -1), row.get("event", -1), -1, access0, n_access, NO_KERNEL),
            *(row.get("thread", 0), n_members, first, 0),
        )

    for number, row in enumerate(rows):
        first_access, first_member = len(accesses), len(members)
        for member in (row, *row.get("members", ())):
            access0 = len(accesses)
            for buffer, slot, begin, end, write in member.get("accesses", ()):
                accesses.append((buffer, slot % BUFFERS[buffer].depth, write, 1, begin, end))
            if member is not row:
                members.append(line(member, number, access0, len(accesses) - access0))
        counts = (len(accesses) - first_access, first_member, len(members) - first_member)
        ops.append(line(row, number, first_access, *counts))
        sites.append(Site("decode", f"op{number}", Kind(row["kind"])))
    records = []
    for text in streams.split() if isinstance(streams, str) else streams:
        kind, _, device = text.partition("@")
        records.append(Stream(f"s{len(records)}", int(device or 0), kind))
    return Program(
        ops=np.array(ops, OP),
        members=np.array(members, OP),
        accesses=np.array(accesses, ACCESS),
        sites=tuple(sites),
        kernels=(),
        buffers=BUFFERS,
        streams=tuple(records),
        events=EVENTS,
        phases=("decode",),
        step0=np.array([0, len(ops)]),
    )


# ---- random programs -----------------------------------------------------------------------------

SPANS = ((0, 8), (0, 4), (4, 8), (2, 6), (3, 5), (0, 2))
KINDS = ("nonblocking", "blocking", "legacy_default", "per_thread_default")


@st.composite
def row_lists(draw: st.DrawFn, threads: int = 3) -> tuple[list[dict], list[str]]:
    """Draw rows, issued by up to so many threads, and streams, as `build` takes them."""
    streams = draw(
        st.lists(
            st.builds("{}@{}".format, st.sampled_from(KINDS), st.sampled_from([0, 0, 0, 1])),
            min_size=1,
            max_size=4,
        )
    )
    stream = st.integers(0, len(streams) - 1)
    thread = st.integers(0, draw(st.integers(0, threads - 1)))
    indices = st.sampled_from((0, 1, 2, 2, 3, 3, 4, 4, 5, 6))
    buffer = st.sampled_from(draw(st.lists(indices, min_size=1, max_size=3)))
    place = st.tuples(buffer, st.integers(0, 1), st.sampled_from(SPANS))
    one_use = st.builds(lambda at, write: (*at[:2], *at[2], write), place, st.integers(0, 1))
    accesses = st.lists(one_use, max_size=3)
    flags = st.sampled_from((0, 0, PDL, PDL, PDL | GRID_SYNC))
    event = st.integers(0, 2)

    def ends(source, target, begin):
        """Give both ends of a copy four bytes."""
        return [(*source, begin, begin + 4, 0), (*target, 4 - begin, 8 - begin, 1)]

    end = st.tuples(buffer, st.integers(0, 1))
    copies = st.builds(
        lambda stream, ends, flags, thread: {**launch(stream, ends, thread, flags), "kind": 2},
        stream,
        st.builds(ends, end, end, st.sampled_from((0, 1, 4))),
        st.sampled_from((0, BLOCKING)),
        thread,
    )
    kernels = st.builds(launch, stream, accesses, thread, flags)
    sets = st.builds(
        lambda at, stream, thread, flags: {
            **launch(stream, [(*at[:2], *at[2], 1)], thread, flags),
            "kind": Kind.MEMSET,
        },
        *(place, stream, thread, st.sampled_from((0, BLOCKING))),
    )
    rows = (
        *(kernels, copies, sets),
        st.builds(host, accesses, thread, st.sampled_from((Kind.HOST, Kind.ALLOC, Kind.FREE))),
        st.builds(record, stream, event, thread),
        st.builds(wait, stream, event, thread),
        st.builds(sync_event, event, thread),
        st.builds(sync, stream, st.sampled_from(("stream", "stream", "device")), thread),
        st.builds(graph, stream, st.lists(st.one_of(kernels, copies), max_size=3), thread),
    )
    # few kinds of rows in one program, so that each meets each often
    some = draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, max_size=5, unique=True))
    row = st.one_of(kernels, copies, *(rows[i] for i in some))
    n = draw(st.integers(2, 28))
    return draw(st.lists(row, min_size=n, max_size=n)), streams


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, str, tuple[int, ...]]:
    """Draw a program, a rule set and the sites that are dropped."""
    rows, streams = draw(row_lists())
    dropped = draw(st.sets(st.integers(0, len(rows) - 1), max_size=len(rows)))
    return build(rows, streams), draw(st.sampled_from(RULES)), tuple(sorted(dropped))
