"""`syncscope conformance`: cases with known hazards, and what happens to files that are none."""

import copy
import json
import os
import random
from importlib import resources

import jsonschema
import orjson
import pytest

from helpers.cases import random_ops
from helpers.closure import closure_hazards, closure_races
from helpers.shared import shared_path
from syncscope.app.cli import main
from syncscope.app.conformance import conformance_object, judge, render_text
from syncscope.app.importers.case_rows import MAX_ACCESSES, MAX_ACTORS
from syncscope.app.importers.conformance import MAX_CASES, MAX_OPS, read_case, read_cases
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.order import RULES, Order
from syncscope.sched_core.ranges import HAZARDS

SCHEMA = resources.files("syncscope.app") / "schemas" / "conformance-1.schema.json"
PRACTICE = {"own-08", "own-11"}

# ---- writing cases -------------------------------------------------------------------------------

MEMORY = {"D": "device", "P": "pinned", "Q": "pageable", "M": "managed"}
KINDS = {"s": "nonblocking", "b": "blocking", "z": "legacy_default", "p": "per_thread_default"}
BYTES = 1024


def uses(text):
    """``A B[0:4]`` as a list of accesses."""
    found = []
    for word in text.split():
        name, _, span = word.rstrip("]").partition("[")
        if span:
            begin, _, end = span.partition(":")
            found.append({"buf": name, "off": int(begin), "len": int(end) - int(begin)})
        else:
            found.append(name)
    return found


def kernel(stream, r="", w="", **more):
    return {"op": "kernel", "stream": stream, "reads": uses(r), "writes": uses(w), **more}


def pdl(stream, r="", w="", wait=False):
    return kernel(stream, r, w, pdl=True, grid_dependency_sync=wait)


def read(r, **more):
    return {"op": "host_read", "reads": uses(r), **more}


def write(w, **more):
    return {"op": "host_write", "writes": uses(w), **more}


def do(op, stream="", event="", **more):
    names = {"stream": stream, "event": event}
    return {"op": op, **{key: value for key, value in names.items() if value}, **more}


def memcpy(target, source, direction, stream=""):
    [dst], [src] = uses(target), uses(source)
    op = "memcpy_async" if stream else "memcpy"
    return do(op, stream, dst=dst, src=src, dir=direction)


def memset(target, stream=""):
    [dst] = uses(target)
    return do("memset_async" if stream else "memset", stream, dst=dst)


def sync(stream, **more):
    return do("stream_sync", stream, **more)


def record(stream, event="e"):
    return do("event_record", stream, event)


def wait(stream, event="e"):
    return do("stream_wait_event", stream, event)


def event_sync(event="e"):
    return do("event_sync", event=event)


def device_sync(device=0):
    return do("device_sync", device=device)


def begin(token, r="", w=""):
    return {"op": "ext_begin", "token": token, "reads": uses(r), "writes": uses(w)}


def end(token):
    return {"op": "ext_wait", "token": token}


def declare(ops):
    """Streams and buffers are named by their first letter; a digit 1 in a name is its device."""
    streams, buffers = {}, {}

    def declare_access(access):
        name = access if isinstance(access, str) else access["buf"]
        buffers[name] = {"kind": MEMORY[name[0]], "bytes": BYTES}
        if name.endswith("1") and name[0] == "D":
            buffers[name]["device"] = 1

    for op in ops:
        if stream := op.get("stream"):
            streams[stream] = {"kind": KINDS[stream[0]], "device": int(stream.endswith("@1"))}
        ends = [op[key] for key in ("src", "dst", "buf") if key in op]
        for access in [*op.get("reads", []), *op.get("writes", []), *ends]:
            declare_access(access)
    return {"streams": streams, "buffers": buffers}


def make_case(name, ops, hazards="", required=(), redundant=()):
    """`hazards` as ``RAW 0 1 A, WAR ..``."""
    found = []
    for text in filter(None, hazards.split(", ")):
        kind, first, second, buffer = text.split()
        found.append({"type": kind, "first": int(first), "second": int(second), "buf": buffer})
    expected = {"verdict": "race" if found else "none", "hazards": found}
    expected["required_syncs"] = list(required)
    expected["redundant_syncs"] = list(redundant)
    return {"id": name, **declare(ops), "ops": list(ops), "expected": expected}


def save(tmp_path, *cases, **more):
    path = tmp_path / "cases.json"
    path.write_bytes(orjson.dumps({"schema": "hazard-cases/1", "cases": list(cases), **more}))
    return path


def judged(tmp_path, case, rules="strict"):
    [one] = read_cases(save(tmp_path, case))
    return judge(one, rules)


def closure_of(program, rules, dropped=()):
    """The brute-force hazards, rows named by the op they belong to."""
    site = program.ops["site"].tolist()
    found = closure_hazards(program, rules, dropped)
    return {(kind, site[first], site[second], name) for kind, name, first, second in found}


# ---- the cases that are handed out ---------------------------------------------------------------


@pytest.fixture(scope="module")
def handed():
    return read_cases(shared_path("data", "hazard_cases.json"))


def test_the_handed_cases_agree_under_strict_rules(handed):
    judgements = [judge(case, "strict") for case in handed]
    assert len(judgements) == 81
    assert [(each.case.id, each.why) for each in judgements if each.why] == []


def test_practical_rules_differ_where_hardware_promises_more(handed):
    judgements = [judge(case, "practical") for case in handed]
    differ = {each.case.id: each for each in judgements if each.why}
    assert set(differ) == PRACTICE
    assert not any(each.hazards for each in differ.values())
    assert "usually none" in differ["own-08"].why_text
    # the sync after an async copy to pageable memory is needed by the documents alone
    assert {each.case.id: each.spared for each in judgements if each.spared} == {"cusan-21": (4, 6)}


def test_the_handed_cases_agree_with_brute_force(handed):
    for case in handed:
        assert closure_of(case.program, "strict") == set(case.expected.hazards), case.id


# ---- rules that the handed cases do not have; expectations by the CUDA documents -----------------

CASES = [
    # programmatic dependent launch: without a wait inside, the previous kernel may still run
    make_case("pdl", [kernel("s", w="D"), pdl("s", r="D")], "RAW 0 1 D"),
    make_case("pdl-wait", [kernel("s", w="D"), pdl("s", r="D", wait=True)]),
    make_case("pdl-write", [kernel("s", r="D"), pdl("s", w="D")], "WAR 0 1 D"),
    make_case("pdl-in-place", [kernel("s", r="D"), pdl("s", "D", "D")], "WAR 0 1 D"),
    make_case(
        "pdl-chain", [kernel("s", w="D"), pdl("s", w="D2"), pdl("s", r="D")], "RAW 0 2 D"
    ),
    make_case(
        "pdl-wait-then-not",  # the second may trigger before it waits
        [kernel("s", w="D"), pdl("s", w="D2", wait=True), pdl("s", r="D")],
        "RAW 0 2 D",
    ),
    make_case("pdl-then-plain", [kernel("s", w="D"), pdl("s", w="D2"), kernel("s", r="D D2")]),
    make_case("pdl-behind", [kernel("s", w="D"), kernel("s", w="D2"), pdl("s", r="D")]),
    make_case("pdl-after-memset", [memset("D", "s"), pdl("s", r="D")]),
    make_case(
        "pdl-record",
        [kernel("s", w="D"), pdl("s", w="D2"), record("s"), wait("s2"), kernel("s2", r="D D2")],
        required=[3],
    ),
    make_case("wait-without-pdl", [kernel("s", w="D"), kernel("s", r="D", pdl=False)]),
    # host threads are unordered but for what they wait for
    make_case("threads", [write("P"), read("P", thread=1)], "RAW 0 1 P"),
    make_case("threads-named", [write("P", thread="a"), write("P", thread="b")], "WAW 0 1 P"),
    make_case(
        "thread-elsewhere",
        [kernel("s", w="P"), sync("s", thread=1), read("P"), read("P", thread=1)],
        "RAW 0 2 P",
    ),
    make_case(
        "thread-handover",
        [write("P"), kernel("s", r="P"), sync("s", thread=1), write("P", thread=1)],
        required=[2],
    ),
    # devices: the legacy stream and a device sync are of one device, events of all
    make_case("devices-legacy", [kernel("b@1", w="P"), kernel("z", r="P")], "RAW 0 1 P"),
    make_case("devices-own-legacy", [kernel("b@1", w="P"), kernel("z@1", r="P")]),
    make_case(
        "devices-sync", [kernel("s@1", w="P"), device_sync(0), read("P")], "RAW 0 2 P"
    ),
    make_case("devices-sync-own", [kernel("s@1", w="P"), device_sync(1), read("P")], required=[1]),
    make_case(
        "devices-event", [kernel("s@1", w="P"), record("s@1"), wait("s"), kernel("s", r="P")],
        required=[2],
    ),
    make_case(
        "devices-memcpy",
        [kernel("b", w="D"), kernel("b@1", w="D1"), memcpy("P", "D1", "D2H"), read("P")],
        required=[2],
    ),
    make_case(
        "devices-memcpy-named",
        [kernel("b@1", w="M"), {**memset("M"), "device": 0}],
        "WAW 0 1 M",
    ),
    # per-thread default streams are ordinary blocking streams towards the legacy one
    make_case("per-thread", [kernel("p", w="D"), kernel("p2", r="D")], "RAW 0 1 D"),
    make_case("per-thread-legacy", [kernel("z", w="D"), kernel("p", r="D")]),
    make_case("per-thread-chain", [kernel("p", w="D"), kernel("z"), kernel("p2", r="D")]),
    make_case("per-thread-free", [kernel("p", w="D"), kernel("s", r="D")], "RAW 0 1 D"),
    # chains through the legacy stream: any action on it, not only kernels
    make_case("chain-copy", [kernel("b", w="D"), memcpy("D3", "D2", "D2D"), kernel("b2", r="D")]),
    make_case(
        "chain-wait",
        [record("s"), kernel("b", w="D"), wait("z"), kernel("b2", r="D")],
    ),
    make_case("chain-free", [kernel("s", w="D"), kernel("z"), kernel("b", r="D")], "RAW 0 2 D"),
    make_case(
        "chain-two",
        [kernel("b", w="D"), kernel("z"), kernel("b2", w="D2"), kernel("z", r="D2"),
         kernel("b3", r="D D2")],
    ),
    make_case(
        "chain-sync",
        [kernel("b", w="P"), kernel("s", w="P2"), sync("z"), read("P"), read("P2")],
        "RAW 1 4 P2",
        required=[2],
    ),
    # what a library does outside every stream
    make_case("ext", [begin("t", r="P"), write("P"), end("t")], "WAR 0 1 P"),
    make_case("ext-wait", [begin("t", r="P"), end("t"), write("P")], required=[1]),
    make_case("ext-result", [begin("t", w="P"), end("t"), kernel("s", r="P")], required=[1]),
    make_case("ext-device-sync", [begin("t", r="D"), device_sync(), kernel("s", w="D")],
              "WAR 0 2 D"),
    make_case(
        "ext-two",
        [begin("t", r="P[0:8]"), begin("u", w="P[8:16]"), end("u"), read("P[8:16]"),
         write("P[0:8]"), end("t")],
        "WAR 0 4 P",
        required=[2],
    ),
    make_case(
        "ext-again",
        [begin("t", r="P"), end("t"), begin("t", w="P"), read("P"), end("t")],
        "RAW 2 3 P",
        required=[1],
    ),
    # events
    make_case(
        "event-re-record",
        [kernel("s", w="D"), record("s"), record("s2"), wait("s3"), kernel("s3", r="D")],
        "RAW 0 4 D",
    ),
    make_case(
        "event-seen",
        [kernel("s", w="D"), record("s"), wait("s2"), record("s3"), kernel("s2", r="D")],
        required=[2],
    ),
    make_case("event-early", [record("s"), kernel("s", w="P"), event_sync(), read("P")],
              "RAW 1 3 P"),
    make_case("event-sync-first", [event_sync(), kernel("s", w="P"), record("s"), read("P")],
              "RAW 1 3 P"),
    make_case(
        "event-query-nothing",
        [kernel("s", w="P"), do("event_query", event="e", result="done"), read("P")],
        "RAW 0 2 P",
    ),
    make_case(
        "query-not-ready",
        [kernel("s", w="P"), do("stream_query", "s", result="not_ready"), read("P")],
        "RAW 0 2 P",
    ),
    make_case(
        "event-destroyed",
        [kernel("s", w="D"), record("s"), wait("s2"), do("event_destroy", event="e"),
         kernel("s2", r="D")],
        required=[2],
    ),
    # a destroyed stream is not waited for, and a new one of its name is not in line with it
    make_case(
        "stream-again",
        [kernel("s", w="D"), do("stream_destroy", "s"), do("stream_create", "s"),
         kernel("s", r="D")],
        "RAW 0 3 D",
    ),
    # managed memory: a blocking memset waits, a copy goes by its direction
    make_case("managed-memset", [memset("M"), read("M")], required=[0]),
    make_case("managed-memset-async", [memset("M", "s"), read("M")], "RAW 0 1 M"),
    make_case("managed-d2h", [kernel("b", w="M"), memcpy("Q", "M", "D2H"), read("Q M")],
              required=[1]),
    make_case("managed-as-host", [memcpy("M", "D", "D2H"), read("M")], required=[0]),
    make_case("managed-as-device", [memcpy("M", "D", "D2D"), read("M")], "RAW 0 1 M"),
    make_case("managed-h2h", [memcpy("M", "Q", "H2H"), read("M"), write("Q")], required=[0]),
    make_case("managed-h2d", [memcpy("D", "M", "H2D"), write("M"), kernel("s", r="D")],
              required=[0]),
    make_case("managed-d2d", [memcpy("D", "M", "D2D"), write("M")], "WAR 0 1 M"),
    make_case("managed-async", [memcpy("M", "D", "D2H", "s"), read("M")], "RAW 0 1 M"),
    make_case("managed-prefetch", [kernel("s", w="M"), do("prefetch", "s"), kernel("s", r="M")]),
    # memset
    make_case("memset-pinned", [memset("P"), read("P")], required=[0]),
    make_case("memset-pinned-async", [memset("P", "s"), read("P")], "RAW 0 1 P"),
    make_case("memset-device", [memset("D"), kernel("s", r="D")], "RAW 0 1 D"),
    make_case("memset-device-legacy", [memset("D"), kernel("b", r="D")]),
    make_case(
        "memset-barrier", [kernel("b", w="P"), memset("P2"), read("P")], required=[1]
    ),
    make_case("memset-no-barrier", [kernel("b", w="P"), memset("D"), read("P")], "RAW 0 2 P"),
    # copies: who is done when the call returns
    make_case("h2d-pageable", [memcpy("D", "Q", "H2D"), write("Q")], required=[0]),
    make_case("h2d-pageable-target", [memcpy("D", "Q", "H2D"), kernel("s", r="D")], "RAW 0 1 D"),
    make_case(
        "h2d-pageable-waits-first",
        [kernel("b", w="P"), memcpy("D", "Q", "H2D"), read("P")],
        required=[1],
    ),
    make_case("h2d-pinned", [memcpy("D", "P", "H2D"), write("P"), kernel("s", r="D")],
              required=[0]),
    make_case("d2h-pageable", [memcpy("Q", "D", "D2H"), read("Q")], required=[0]),
    make_case("d2h-pinned", [memcpy("P", "D", "D2H"), read("P")], required=[0]),
    make_case("h2h", [memcpy("Q", "P", "H2H"), read("Q"), write("P")], required=[0]),
    make_case("d2d", [memcpy("D", "D2", "D2D"), kernel("s", w="D2")], "WAR 0 1 D2"),
    make_case("async-h2d-pageable", [memcpy("D", "Q", "H2D", "s"), write("Q")], "WAR 0 1 Q"),
    make_case("async-d2h-pageable", [memcpy("Q", "D", "D2H", "s"), read("Q")], "RAW 0 1 Q"),
    make_case("async-h2d-sync", [memcpy("D", "Q", "H2D", "s"), sync("s"), write("Q")],
              required=[1]),
    make_case(
        "async-d2h-event",
        [memcpy("Q", "D", "D2H", "s"), record("s"), event_sync(), read("Q")],
        required=[2],
    ),
    make_case("async-pinned", [memcpy("D", "P", "H2D", "s"), write("P")], "WAR 0 1 P"),
    # byte ranges
    make_case("bytes-apart", [kernel("s", w="D[0:8]"), kernel("s2", w="D[8:16]")]),
    make_case("bytes-one", [kernel("s", w="D[0:9]"), kernel("s2", r="D[8:16]")], "RAW 0 1 D"),
    make_case("bytes-none", [kernel("s", w="D[4:4]"), kernel("s2", r="D")]),
    make_case(
        "bytes-two-writers",
        [kernel("s", w="D[0:512]"), record("s"), kernel("s2", w="D[512:1024]"), wait("s3"),
         kernel("s3", r="D")],
        "RAW 2 4 D",
        required=[3],
    ),
    make_case(
        "bytes-read-part",
        [kernel("s", r="D[0:4]", w="D"), kernel("s2", w="D[4:8]")],
        "WAW 0 1 D",
    ),
    make_case(
        "bytes-copy", [memcpy("P[0:8]", "D[8:16]", "D2H", "s"), write("P[8:16]"), read("P[4:8]")],
        "RAW 0 2 P",
    ),
    # memory that changes hands: the next owner's access is the hazard, the release is none
    make_case(
        "free-pageable", [memcpy("D", "Q", "H2D", "s"), do("free", buf="Q"), sync("s")]
    ),
    make_case(
        "pool",
        [kernel("s", r="D"), do("pool_release", buf="D"), kernel("s2", w="D")],
        "WAR 0 2 D",
    ),
    # graphs and host functions are work of their stream
    make_case("graph", [{**kernel("s", "D", "D2"), "op": "graph_launch"}, kernel("s", r="D2")]),
    make_case(
        "graph-replay",
        [{**kernel("s", "P", "D"), "op": "graph_launch"}, write("P"),
         {**kernel("s", "P", "D"), "op": "graph_launch"}],
        "WAR 0 1 P",
    ),
    make_case(
        "host-func", [kernel("s", w="P"), {**kernel("s", "P", "Q"), "op": "host_func"}, read("Q")],
        "RAW 1 2 Q",
    ),
    # which syncs are needed
    make_case("twice", [kernel("s", w="P"), sync("s"), sync("s"), read("P")], redundant=[2]),
    make_case("first", [kernel("s", w="P"), sync("s"), sync("s"), read("P")], redundant=[1]),
    make_case(
        "broader", [kernel("s", w="P"), device_sync(), sync("s"), read("P")], redundant=[2]
    ),
    make_case("idle", [sync("s"), kernel("s", w="P"), sync("s"), read("P")], required=[2],
              redundant=[0]),
    make_case(
        "own-stream", [kernel("s", w="D"), record("s"), wait("s"), kernel("s", r="D")],
        redundant=[2],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_rules(case, tmp_path):
    found = judged(tmp_path, case)
    assert found.why == ()
    for rules in RULES:
        program = found.case.program
        assert set(judge(found.case, rules).hazards) == closure_of(program, rules)


@pytest.mark.parametrize("name", ["async-h2d-pageable", "async-d2h-pageable"])
def test_practical_rules_take_pageable_copies_for_done(name, tmp_path):
    [case] = [case for case in CASES if case["id"] == name]
    assert not judged(tmp_path, case, "practical").hazards


@pytest.mark.parametrize("name", ["async-h2d-sync", "async-d2h-event"])
def test_practical_rules_spare_the_sync_after_a_pageable_copy(name, tmp_path):
    [case] = [case for case in CASES if case["id"] == name]
    found = judged(tmp_path, case, "practical")
    assert found.why == () and len(found.spared) == 1


def test_a_site_is_an_op():
    """Also where an op is two rows, or none."""
    ops = [write("P"), memcpy("M", "D", "D2H"), do("free", buf="P"), read("M")]
    rows = read_case({**declare(ops), "ops": ops, "expected": {"verdict": "none"}}, "x")
    assert [site.name for site in rows.program.sites] == [
        "op0.host_write", "op1.memcpy", "op2.free", "op3.host_read",
    ]  # fmt: skip
    assert rows.program.ops["site"].tolist() == [0, 1, 1, 2, 3]


# ---- disagreement --------------------------------------------------------------------------------

RACE = [kernel("s", w="P"), read("P")]
SAFE = [kernel("s", w="P"), sync("s"), read("P")]
TWICE = [kernel("s", w="P"), sync("s"), sync("s"), read("P")]


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (make_case("x", RACE), "not expected: RAW 0->1 on 'P'"),
        (make_case("x", SAFE, "RAW 0 2 P"), "not found: RAW 0->2 on 'P'"),
        (make_case("x", RACE, "WAR 0 1 P"), "not found: WAR 0->1 on 'P'"),
        (make_case("x", TWICE, required=[1]), "required: no race without op 1 (stream_sync)"),
        (
            make_case("x", TWICE, redundant=[1, 2]),
            "redundant: RAW 0->3 on 'P' without op 1 (stream_sync)",
        ),
        (make_case("x", SAFE, redundant=[1]), "redundant: RAW 0->2 on 'P' without op 1"),
    ],
)
def test_a_disagreement_says_why(case, why, tmp_path):
    found = judged(tmp_path, case)
    assert why in found.why_text


@pytest.mark.parametrize(("verdict", "agrees"), [("race", True), ("none", False)])
def test_a_verdict_without_hazards_is_judged_alone(verdict, agrees, tmp_path):
    case = make_case("x", RACE)
    case["expected"] = {"verdict": verdict}
    found = judged(tmp_path, case)
    assert (found.why == ()) is agrees
    assert found.expected_text == verdict


def test_long_lists_are_cut(tmp_path):
    ops = [kernel("s", w=" ".join(f"D{i}" for i in range(30))) for _ in range(1)]
    ops.append({**ops[0], "stream": "s2"})
    text = render_text([judged(tmp_path, make_case("x", ops))], "strict")
    assert "and 22 more" in text and max(map(len, text.splitlines())) < 300


# ---- generated cases -----------------------------------------------------------------------------


def expected_by_closure(case, syncs):
    """Fill in what a brute-force search expects under strict rules."""
    program = read_case({**case, "expected": {"verdict": "none"}}, case["id"]).program
    base = closure_hazards(program, "strict")
    names = ("type", "buf", "first", "second")
    kept, redundant = set(syncs), []
    for index in reversed(syncs):
        if not closure_hazards(program, "strict", [*redundant, index]) - base:
            redundant.append(index)
            kept.discard(index)
    alone = [i for i in syncs if not closure_hazards(program, "strict", [i]) - base]
    case["expected"] = {
        "verdict": "race" if base else "none",
        "hazards": [dict(zip(names, hazard, strict=True)) for hazard in base],
        "required_syncs": [index for index in syncs if index not in alone],
        "redundant_syncs": redundant,
    }
    return program, alone


def generated(flavour, seed):
    """Return a chain of transfers and kernels with syncs of a flavour, and where the syncs are."""
    rng = random.Random(f"{flavour}-{seed}")
    ops, syncs = [], []

    def add(op, is_sync=False):
        if is_sync:
            syncs.append(len(ops))
        ops.append(op)

    copier, worker = rng.choice([("s", "s2"), ("b", "b2"), ("s", "s")])
    if flavour == "demotable":
        copier, worker = rng.choice([("s", "s2"), ("b", "b2"), ("b", "s")])
    for turn in range(rng.randint(1, 3)):
        if turn:
            add(sync(worker), True)
        add(write("P"))
        add(memcpy("D", "P", "H2D", copier))
        if rng.random() < 0.4:
            add(kernel(copier, "D", "D2"))
        if flavour == "demotable":
            add(sync(copier), True)
        elif copier != worker:
            add(record(copier))
            add(wait(worker), True)
        add(kernel(worker, "D", "D3"))
        add(memcpy("P2", "D3", "D2H", worker))
        if flavour == "redundant":
            add(sync(worker), True)
            add(rng.choice([sync(worker), device_sync(), sync(copier)]), True)
        elif flavour == "interchangeable":
            add(record(worker, "done"))
            pair = [event_sync("done"), sync(worker)]
            rng.shuffle(pair)
            for op in pair:
                add(op, True)
        else:
            add(sync(worker), True)
        add(read("P2"))
    return {"id": f"{flavour}-{seed}", **declare(ops), "ops": ops}, syncs


def demoted(case, index):
    """Replace a host's wait for a stream by every other stream's wait for an event of it."""
    stream = case["ops"][index]["stream"]
    others = [name for name in case["streams"] if name != stream]
    weaker = [record(stream, "x"), *(wait(other, "x") for other in others)]
    return {**case, "ops": [*case["ops"][:index], *weaker, *case["ops"][index + 1 :]]}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("flavour", ["redundant", "demotable", "interchangeable"])
def test_generated_cases_agree_with_brute_force(flavour, seed, tmp_path):
    case, syncs = generated(flavour, seed)
    program, alone = expected_by_closure(case, syncs)
    expected = case["expected"]
    assert expected["verdict"] == "none" and not closure_races(program, "strict")
    assert judged(tmp_path, case).why == ()
    if flavour == "redundant":
        assert expected["redundant_syncs"]
    elif flavour == "interchangeable":
        pairs = [(i, i + 1) for i in syncs if i + 1 in syncs]
        assert pairs and all(set(pair) <= set(alone) for pair in pairs)
        for pair in pairs:
            assert closure_races(program, "strict", pair)
            wrong = copy.deepcopy(case)
            wrong["expected"]["redundant_syncs"] = list(pair)
            assert "redundant" in judged(tmp_path, wrong).why_text
    else:
        host_only = [
            i for i in expected["required_syncs"]
            if case["ops"][i + 1]["op"] == "kernel" and case["ops"][i]["op"] == "stream_sync"
        ]  # fmt: skip
        assert host_only
        for index in host_only:  # the first turn's: what the host waits for is waited for later
            weaker = demoted(case, index)
            weaker["expected"] = {"verdict": "none", "hazards": []}
            found = judged(tmp_path, weaker)
            assert set(found.hazards) == closure_of(found.case.program, "strict") == set()


@pytest.mark.parametrize("seed", range(60))
def test_random_sequences_have_the_hazards_that_brute_force_finds(seed):
    rng = random.Random(seed)
    declared, ops = random_ops(rng, rng.randint(3, 25), rng.choice([1, 1, 2]))
    case = read_case({**declared, "ops": ops, "expected": {"verdict": "none"}}, str(seed))
    program = case.program
    for rules in RULES:
        order = Order(program, rules)
        for dropped in [(), *([i] for i in range(len(ops)))]:
            found = {
                (HAZARDS[kind], program.buffers[place].name, first, second)
                for kind, place, first, second in order.hazards(dropped)[
                    ["type", "place", "first_row", "second_row"]
                ].tolist()
            }
            assert found == closure_hazards(program, rules, dropped), (rules, dropped)


# ---- files that cannot be read -------------------------------------------------------------------


def refused(path):
    with pytest.raises(FileError) as error:
        read_cases(path)
    text = str(error.value)
    assert text.startswith(str(path)) and "\n" not in text and len(text) < 600
    return text.removeprefix(f"{path}: ")


GOOD = make_case("good", SAFE, required=[1])
LACKS = object()


def changed(path, value):
    """A copy of the good case with the value at a path of keys replaced, or taken out."""
    case = copy.deepcopy(GOOD)
    *parents, last = path
    inner = case
    for key in parents:
        inner = inner[key]
    if value is LACKS:
        del inner[last]
    else:
        inner[last] = value
    return case


BAD = [
    (("id",), LACKS, "case number 1: lacks id"),
    (("id",), 7, "case number 1: id is 7, not a text"),
    (("ops",), LACKS, "case good: lacks ops"),
    (("ops",), {}, "case good: ops is an object, not a list"),
    (("streams",), LACKS, "case good: lacks streams"),
    (("buffers",), LACKS, "case good: lacks buffers"),
    (("buffers",), [], "case good: buffers is a list, not an object"),
    (("expected",), LACKS, "case good: lacks expected"),
    (("title",), 4, "case good: title is 4, not a text"),
    (("ops", 1), "sync", "case good: op 1: is 'sync', not an object"),
    (("ops", 1, "op"), "stream_sink", "op 1: unknown op 'stream_sink'; did you mean stream_sync"),
    (("ops", 1, "op"), LACKS, "op 1: lacks op"),
    (("ops", 1, "op"), 3, "op 1: op is 3, not a text"),
    (("ops", 1, "op"), "x" * 10_000, "op 1: unknown op 'xxx"),
    (("ops", 1, "op"), "a\nb", r"op 1: unknown op 'a\nb'"),
    (("ops", 1, "stream"), "t", "op 1: unknown stream 't'"),
    (("ops", 1, "stream"), LACKS, "op 1: lacks stream"),
    (("ops", 1, "stream"), ["s"], "op 1: stream is a list, not a text"),
    (("ops", 1, "thread"), None, "op 1: thread is None"),
    (("ops", 1, "thread"), True, "op 1: thread is True"),
    (("ops", 1, "thread"), 1.5, "op 1: thread is 1.5"),
    (("ops", 0, "writes"), ["B"], "op 0: unknown buffer 'B'"),
    (("ops", 0, "writes"), [["P"]], "op 0: unknown buffer a list"),
    (("ops", 0, "writes"), "P", "op 0: writes is 'P', not a list"),
    (("ops", 0, "pdl"), 1, "op 0: pdl is 1, not true or false"),
    (("ops", 2, "reads"), LACKS, "op 2: lacks reads and writes"),
    (("ops", 2, "reads"), uses("P[0:2000]"), "op 2: bytes 0..2000 lie outside buffer 'P' of 1024"),
    (("ops", 2, "reads"), uses("P[8:4]"), "op 2: len is -4, not within 0.."),
    (("ops", 2, "reads"), uses("P[-4:4]"), "op 2: off is -4, not within 0.."),
    (("ops", 2, "reads"), [{"buf": "P", "off": 0}], "op 2: lacks len"),
    (("ops", 2, "reads"), [{"buf": "P", "off": 0.0, "len": 4}], "op 2: off is 0.0"),
    (("ops", 2, "reads"), [{"buf": "P", "off": (1 << 64) - 1, "len": 4}], "op 2: off is 1844674"),
    (("ops", 2, "reads"), [{"buf": ["P"], "off": 0, "len": 4}], "op 2: buf is a list"),
    (("ops", 1), {"op": "memcpy", "dst": "P"}, "op 1: lacks src"),
    (("ops", 1), {"op": "memcpy", "src": "P"}, "op 1: lacks dst"),
    (("ops", 1), do("memcpy", src="P", dst="P", dir="X2Y"), "op 1: dir is 'X2Y'; known: H2H"),
    (("ops", 1), do("memcpy", src="P", dst="P", dir="H2D"), "dir is H2D, but 'P' is pinned"),
    (("ops", 1), do("memcpy", src="P", dst="P", dir="D2H"), "dir is D2H, but 'P' is pinned"),
    (("ops", 1), do("stream_query", "s"), "op 1: lacks result"),
    (("ops", 1), do("stream_query", "s", result="maybe"), "op 1: result is 'maybe'; known: done"),
    (("ops", 1), do("event_sync"), "op 1: lacks event"),
    (("ops", 1), do("device_sync", device=-1), "op 1: device is -1, not within 0..1023"),
    (("ops", 1), end("t"), "op 1: unknown token 't'"),
    (("ops", 1), do("free", buf="B"), "op 1: unknown buffer 'B'"),
    (("buffers", "P"), 7, "buffer 'P': is 7, not an object"),
    (("buffers", "P", "kind"), "swap", "buffer 'P': kind is 'swap'; known: pinned"),
    (("buffers", "P", "bytes"), -1, "buffer 'P': bytes is -1, not within"),
    (("buffers", "P", "bytes"), LACKS, "buffer 'P': lacks bytes"),
    (("buffers", "P", "bytes"), "8", "buffer 'P': bytes is '8', not a whole number"),
    (("buffers", "P", "device"), 4096, "buffer 'P': device is 4096"),
    (("streams", "s"), [], "stream 's': is a list, not an object"),
    (("streams", "s", "kind"), "fast", "stream 's': kind is 'fast'; known: nonblocking"),
    (("streams", "s", "device"), "0", "stream 's': device is '0', not a whole number"),
    (("expected", "verdict"), "safe", "expected: verdict is 'safe'; known: none, race"),
    (("expected", "verdict"), "race", "expected: verdict is race, with 0 hazards"),
    (("expected", "hazards"), [7], "expected: is 7, not an object"),
    (("expected", "hazards"), [{"type": "RAW"}], "expected: lacks first"),
    (
        ("expected", "hazards"),
        [{"type": "RAW", "first": 0, "second": 3, "buf": "P"}],
        "expected: second is 3, not within 0..2",
    ),
    (
        ("expected", "hazards"),
        [{"type": "RAR", "first": 0, "second": 2, "buf": "P"}],
        "expected: type is 'RAR'; known: RAW",
    ),
    (
        ("expected", "hazards"),
        [{"type": "RAW", "first": 0, "second": 2, "buf": "B"}],
        "expected: unknown buffer 'B'",
    ),
    (("expected", "required_syncs"), [3], "expected: required_syncs has 3, not the index of an op"),
    (("expected", "required_syncs"), 1, "required_syncs is 1, not a list"),
    (("expected", "redundant_syncs"), ["1"], "redundant_syncs has '1', not the index of an op"),
]


@pytest.mark.parametrize(("path", "value", "line"), BAD)
def test_a_bad_value_is_named_with_its_place(path, value, line, tmp_path):
    file = save(tmp_path, make_case("before", RACE, "RAW 0 1 P"), changed(path, value))
    assert line in refused(file)


def test_the_good_case_is_good(tmp_path):
    assert judged(tmp_path, GOOD).why == ()


def test_an_id_is_used_once(tmp_path):
    assert refused(save(tmp_path, GOOD, GOOD)) == "case good: its id is not the only one"


def test_a_token_is_open_once(tmp_path):
    case = make_case("x", [begin("t"), begin("t")])
    assert "op 1: token 't' is in use" in refused(save(tmp_path, case))


def test_default_streams_are_not_created(tmp_path):
    case = make_case("x", [do("stream_create", "z")])
    assert "op 0: 'z' is a default stream" in refused(save(tmp_path, case))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_a_truncated_file_says_where(share, tmp_path):
    path = save(tmp_path, GOOD, {**GOOD, "id": "second"})
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    line = refused(path)
    assert "not JSON, or truncated" in line and "column" in line
    if share:
        assert f"in or after case {'good' if share < 0.5 else 'second'}" in line


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[]", "no list of cases"),
        (b'{"cases": {}}', "no list of cases"),
        (b"\x7fELF\x02\x01", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"cases": []}', "there are 0"),
        (b'{"cases": [null]}', "case number 0: is None, not an object"),
        (b'{"cases": [NaN]}', "not JSON"),
        (b'{"cases": [Infinity]}', "not JSON"),
        (b'{"cases": ' + b"[" * 500_000, "not JSON"),
        (b'{"cases": [' + b'{"a":' * 500_000, "not JSON"),
        (b'{"cases": [' + b"9" * 100_000 + b"]}", "not JSON"),
        (b'{"cases": [' + b"9" * 30 + b"]}", "case number 0: is 1e+30, not an object"),
        (b'{"schema": "hazard-cases/2", "cases": [{}]}', "this version reads hazard-cases/1"),
        (b'{"schema": ["x"], "cases": [{}]}', "its schema is a list"),
        (b'{"cases": [{"id": "\\u001b[31m\\n"}]}', "case \\x1b[31m\\n: lacks buffers"),
    ],
)
def test_a_file_of_another_kind_is_one_line(content, line, tmp_path):
    path = tmp_path / "cases.json"
    path.write_bytes(content)
    assert line in refused(path)


def test_a_missing_file_and_a_folder_are_one_line(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(FileError, match="cannot read"):
            read_cases(path)


# ---- limits --------------------------------------------------------------------------------------


def test_more_ops_than_the_limit(tmp_path):
    ops = [sync("s")] * MAX_OPS
    assert judged(tmp_path, make_case("x", ops)).why == ()
    line = refused(save(tmp_path, make_case("x", [*ops, ops[0]])))
    assert line == f"case x: has {MAX_OPS + 1} ops; the limit is {MAX_OPS}"


def test_more_cases_than_the_limit(tmp_path):
    assert f"1 to {MAX_CASES}" in refused(save(tmp_path, *[{}] * (MAX_CASES + 1)))


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "cases.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "larger than 8 MiB" in refused(path)


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(FileError, match="no regular file"):
            read_cases(path)


def test_a_file_over_the_limit_is_refused(tmp_path):
    path = tmp_path / "cases.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileError, match="larger than"):
        read_cases(path)


def test_the_result_may_not_overwrite_the_cases(tmp_path, capsys):
    path = tmp_path / "cases.json"
    path.write_text("{}")
    assert main(["conformance", str(path), "--json", str(tmp_path / "." / "cases.json")]) == 2
    assert "the input is this file too" in capsys.readouterr().err
    assert path.read_text() == "{}"


def test_more_streams_and_threads_than_the_limit(tmp_path):
    case = make_case("x", [sync(f"s{i}") for i in range(MAX_ACTORS)])
    assert f"more than {MAX_ACTORS} streams" in refused(save(tmp_path, case))
    case = make_case("x", [sync("s", thread=i) for i in range(MAX_ACTORS)])
    assert f"op {MAX_ACTORS - 1}: more than" in refused(save(tmp_path, case))
    case = make_case("x", [begin(f"t{i}") for i in range(MAX_ACTORS)])
    assert f"op {MAX_ACTORS - 1}: more than" in refused(save(tmp_path, case))


def test_more_accesses_than_the_limit(tmp_path):
    case = make_case("x", [kernel("s", r="D " * (MAX_ACCESSES + 1))])
    assert f"op 0: more than {MAX_ACCESSES} accesses" in refused(save(tmp_path, case))


@pytest.mark.timeout(20)
def test_what_would_take_hours_is_refused(tmp_path):
    ops = [kernel(f"z{i % 200}" if i % 2 else f"b{i % 200}", "D", "D") for i in range(MAX_OPS)]
    case = make_case("x", ops, required=[0] * MAX_OPS)
    case["expected"]["verdict"] = "none"
    assert "too much to analyse" in refused(save(tmp_path, case))


# ---- the command ---------------------------------------------------------------------------------


def run(capsys, *arguments):
    code = main(["conformance", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_counts_agreements(tmp_path, capsys):
    path = save(tmp_path, GOOD, make_case("race", RACE, "RAW 0 1 P"))
    assert run(capsys, path) == (0, "2 cases under strict rules: 2 agree, 0 disagree\n", "")


def test_the_command_shows_both_opinions_and_writes_json(tmp_path, capsys):
    path = save(tmp_path, GOOD, make_case("\x1b[2Jbad", RACE))
    out = tmp_path / "result.json"
    code, text, err = run(capsys, path, "--json", out)
    assert code == 1 and err == ""
    assert "2 cases under strict rules: 1 agree, 1 disagree" in text
    assert "\\x1b[2Jbad" in text and "\x1b" not in text
    assert "expected  none" in text and "found     race: RAW 0->1 on 'P'" in text
    result = json.loads(out.read_text())
    jsonschema.validate(result, json.loads(SCHEMA.read_text()))
    [disagree] = result.pop("disagree")
    assert result == {"schema": "syncscope-conformance/1", "count": 2, "agree": 1}
    assert disagree == {
        "id": "\x1b[2Jbad",
        "expected": "none",
        "got": "race: RAW 0->1 on 'P'",
        "why": "not expected: RAW 0->1 on 'P'",
    }


def test_the_command_takes_rules(tmp_path, capsys):
    path = save(tmp_path, *CASES)
    assert run(capsys, path)[0] == 0
    code, text, _ = run(capsys, path, "--rules", "practical")
    assert code == 1 and "under practical rules" in text
    assert "async-h2d-sync: required under strict rules only: 1 (stream_sync)" in text


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b"], ["f", "--rules", "lax"], ["f", "--jso", "x"]]
)
def test_usage(arguments, capsys):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and err.count("\n") == 1


def test_bad_input_ends_with_3_and_leaves_no_result(tmp_path, capsys):
    path = save(tmp_path, changed(("ops", 1, "op"), "nap"))
    out = tmp_path / "result.json"
    code, text, err = run(capsys, path, "--json", out)
    assert (code, text, err.count("\n")) == (3, "", 1)
    assert "case good: op 1: unknown op 'nap'" in err
    assert not out.exists()


def test_a_result_that_cannot_be_written_ends_with_3_at_once(tmp_path, capsys):
    code, text, err = run(capsys, save(tmp_path, GOOD), "--json", tmp_path / "no" / "result.json")
    assert code == 3 and text == "" and "cannot write" in err


def test_the_handed_file_through_the_command(handed, tmp_path, capsys):
    path = shared_path("data", "hazard_cases.json")
    assert run(capsys, path)[0] == 0
    out = tmp_path / "result.json"
    assert run(capsys, path, "--rules", "practical", "--json", out)[0] == 1
    result = json.loads(out.read_text())
    jsonschema.validate(result, json.loads(SCHEMA.read_text()))
    assert {each["id"] for each in result["disagree"]} == PRACTICE
    assert conformance_object([judge(case, "practical") for case in handed]) == result
