"""Every rule of the ordering, and random programs against a closure by brute force."""

import resource
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from helpers.closure import closure_hazards, closure_races
from helpers.plans import make_plan, model_plan
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.order import RULES, Order
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
    unroll,
)
from syncscope.sched_core.ranges import HAZARDS
from syncscope.sched_core.records import Buffer, Event, Kind, Stream

# ---- programs written row by row -----------------------------------------------------------------

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


def found(program, rules="practical", dropped=()):
    """Return the hazards of a program as type, buffer, slot, first row, second row."""
    place = [(b.name, slot) for b in program.buffers for slot in range(b.depth)]
    return {
        (HAZARDS[each["type"]], *place[each["place"]], each["first_row"], each["second_row"])
        for each in Order(program, rules).hazards(dropped)
    }


def pairs(rows, streams="nonblocking", rules="practical", dropped=()):
    """Return the hazards of rows as ``TYPE buffer first-second``, sorted."""
    hazards = found(build(rows, streams), rules, dropped)
    return sorted(f"{kind} {name} {first}-{second}" for kind, name, _, first, second in hazards)


# ---- random programs -----------------------------------------------------------------------------

SPANS = ((0, 8), (0, 4), (4, 8), (2, 6), (3, 5), (0, 2))
KINDS = ("nonblocking", "blocking", "legacy_default", "per_thread_default")


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, str, tuple[int, ...]]:
    """Draw a program, a rule set and the sites that are dropped."""
    streams = draw(
        st.lists(
            st.builds("{}@{}".format, st.sampled_from(KINDS), st.sampled_from([0, 0, 0, 1])),
            min_size=1,
            max_size=4,
        )
    )
    stream = st.integers(0, len(streams) - 1)
    thread = st.integers(0, draw(st.integers(0, 2)))
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
    drawn = draw(st.lists(row, min_size=n, max_size=n))
    dropped = draw(st.sets(st.integers(0, n - 1), max_size=n))
    return build(drawn, streams), draw(st.sampled_from(RULES)), tuple(sorted(dropped))


def check_against_closure(drawn):
    program, rules, dropped = drawn
    note(f"{rules}, dropped {dropped}, streams {program.streams}")
    for row, op in enumerate(program.ops):
        note(f"{row} {Kind(op['kind']).name} {op} {program.accesses[op['access0']:][:op['n_access']]}")
    hazards = found(program, rules, dropped)
    expected = closure_hazards(program, rules, dropped)
    assert {(kind, name, first, second) for kind, name, _, first, second in hazards} == expected
    assert bool(hazards) == bool(closure_races(program, rules, dropped))


SETTINGS = {"deadline": None, "derandomize": True, "suppress_health_check": [*HealthCheck]}


@settings(max_examples=500, **SETTINGS)
@given(programs())
def test_random_programs_have_the_hazards_of_the_closure(drawn):
    check_against_closure(drawn)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, **SETTINGS)
@given(programs())
def test_many_random_programs_have_the_hazards_of_the_closure(drawn):
    check_against_closure(drawn)
