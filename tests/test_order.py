"""Every rule of the ordering, and random programs against a closure by brute force."""

import subprocess
import sys
import textwrap
import time

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

from helpers.closure import closure_hazards, closure_races
from helpers.plans import make_plan, model_plan
from helpers.rows import (
    build,
    copy,
    graph,
    host,
    launch,
    memset,
    programs,
    reads,
    record,
    sync,
    sync_event,
    wait,
    writes,
)
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.order import RULES, Order
from syncscope.sched_core.program import GRID_SYNC, PDL, unroll
from syncscope.sched_core.ranges import HAZARDS
from syncscope.sched_core.records import Kind


def found(program, rules="practical", dropped=()):
    """Return the hazards of a program as type, buffer, slot, first row, second row."""
    place = [(b.name, slot) for b in program.buffers for slot in range(b.depth)]
    return {
        (HAZARDS[each["type"]], *place[each["place"]], each["first_row"], each["second_row"])
        for each in Order(program, rules).hazards(dropped)
    }


def hazards(rows, streams="nonblocking", rules="practical", dropped=()):
    """Return the hazards of rows as ``TYPE first-second``, by rows, sorted."""
    return sorted(
        f"{kind} {first}-{second}"
        for kind, _, _, first, second in found(build(rows, streams), rules, dropped)
    )


def both(rows, streams="nonblocking"):
    """Return the hazards of rows, which have to be the same under both rule sets."""
    practical, strict = (hazards(rows, streams, rules) for rules in RULES)
    assert practical == strict
    return practical


# ---- threads and streams -------------------------------------------------------------------------


def test_a_thread_is_in_order_and_two_threads_are_not():
    assert both([host(writes("g")), host(reads("g"))]) == []
    assert both([host(writes("g")), host(reads("g"), thread=1)]) == ["RAW 0-1"]


def test_a_stream_is_in_order_and_two_streams_are_not():
    rows = [launch(0, writes("d")), launch(0, reads("d"))]
    assert both(rows) == []
    assert both([rows[0], launch(1, reads("d"))], "nonblocking nonblocking") == ["RAW 0-1"]


def test_work_comes_after_its_call_and_what_its_thread_did_before():
    assert both([host(writes("g")), launch(0, reads("g"))]) == []
    assert both([host(writes("g")), launch(0, reads("g"), thread=1)]) == ["RAW 0-1"]


def test_the_host_does_not_come_after_what_it_enqueued():
    assert both([launch(0, writes("g")), host(reads("g"))]) == ["RAW 0-1"]
    assert both([launch(0, reads("g")), host(writes("g"))]) == ["WAR 0-1"]
    assert both([launch(0, writes("g")), host(writes("g"))]) == ["WAW 0-1"]
    assert both([launch(0, reads("g")), host(reads("g"))]) == []


def test_a_stream_takes_over_what_each_thread_did_before_its_calls():
    rows = [host(writes("g"), thread=1), launch(0, [], thread=1), launch(0, reads("g"))]
    assert both(rows) == []


@pytest.mark.parametrize("other", ["blocking", "per_thread_default"])
@pytest.mark.parametrize("turned", [False, True])
def test_the_legacy_stream_and_those_that_block_with_it_order_each_other(other, turned):
    rows = [launch(int(turned), writes("d")), launch(int(not turned), reads("d"))]
    assert both(rows, f"legacy_default {other}") == []
    assert both(rows, f"legacy_default {other}@1") == ["RAW 0-1"]


@pytest.mark.parametrize(
    "streams",
    [
        "legacy_default nonblocking",
        "nonblocking legacy_default",
        "blocking blocking",
        "blocking per_thread_default",
        "per_thread_default per_thread_default",
    ],
)
def test_other_streams_do_not_order_each_other(streams):
    assert both([launch(0, writes("d")), launch(1, reads("d"))], streams) == ["RAW 0-1"]


def test_two_blocking_streams_are_ordered_by_legacy_work_between_even_an_event_record():
    rows = [launch(0, writes("d")), launch(1, reads("d"))]
    streams = "blocking blocking legacy_default"
    for between in (launch(2, []), record(2), wait(2), memset(2, "m")):
        assert both([rows[0], between, rows[1]], streams) == []


# ---- events --------------------------------------------------------------------------------------


TWO = "nonblocking nonblocking"


def test_a_wait_takes_over_the_stream_up_to_the_record():
    rows = [launch(0, writes("d")), record(0), launch(0, writes("m"))]
    assert both([*rows, wait(1), launch(1, reads("d", "m"))], TWO) == ["RAW 2-4"]
    assert both([*rows, sync_event(), host(reads("d", "m"))], TWO) == ["RAW 2-4"]


def test_a_wait_is_for_its_stream_alone_and_a_host_sync_for_its_thread_and_what_it_enqueues():
    rows = [launch(0, writes("d")), record(0)]
    assert both([*rows, wait(1), host(reads("d"))], TWO) == ["RAW 0-3"]
    assert both([*rows, sync_event(), host(reads("d"), thread=1)], TWO) == ["RAW 0-3"]
    assert both([*rows, sync_event(), launch(1, reads("d"))], TWO) == []


def test_a_later_record_replaces_the_first_and_a_wait_keeps_what_it_saw():
    rows = [launch(0, writes("d")), record(0), launch(1, writes("m")), record(1)]
    streams = "nonblocking nonblocking nonblocking"
    assert both([*rows, wait(2), launch(2, reads("d", "m"))], streams) == ["RAW 0-5"]
    late = [launch(0, writes("d")), wait(2), record(0), launch(2, reads("d"))]
    assert both(late, streams) == ["RAW 0-3"]


def test_before_any_record_a_wait_and_a_sync_do_nothing():
    for nothing in (wait(1), sync_event()):
        rows = [launch(0, writes("d")), nothing, launch(1, reads("d")), record(0)]
        assert both(rows, TWO) == ["RAW 0-2"]


def test_the_slots_of_an_event_are_events_of_their_own():
    rows = [launch(0, writes("d")), record(0, 1), record(1, 2), wait(1, 2), launch(1, reads("d"))]
    assert both(rows, TWO) == ["RAW 0-4"]


# ---- host syncs ----------------------------------------------------------------------------------


def test_a_sync_of_a_stream_waits_for_that_stream_alone():
    rows = [launch(0, writes("d")), launch(1, writes("m")), sync(0), host(reads("d", "m"))]
    assert both(rows, TWO) == ["RAW 1-3"]


def test_a_sync_of_a_device_waits_for_all_its_streams():
    rows = [launch(0, writes("d")), launch(1, writes("m")), launch(2, writes("c"))]
    after = [sync(0, "device"), host(reads("d", "m", "c"))]
    assert both([*rows, *after], "nonblocking blocking nonblocking@1") == ["RAW 2-4"]


def test_a_sync_of_the_legacy_stream_waits_for_the_streams_it_waits_for():
    rows = [launch(i, writes(name)) for i, name in ((1, "d"), (2, "m"), (3, "c"))]
    streams = "legacy_default blocking per_thread_default nonblocking"
    assert both([*rows, sync(0), host(reads("d", "m", "c"))], streams) == ["RAW 2-4"]
    assert "RAW 0-2" in both([rows[0], sync(2), host(reads("d"))], streams)


def test_a_sync_waits_for_what_was_enqueued_before_it():
    assert both([sync(0), launch(0, writes("d")), host(reads("d"))]) == ["RAW 1-2"]


# ---- copies and memsets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "source_is_free", "target_is_there"),
    [
        ("d", "g", True, True),
        ("d", "p", True, True),
        ("m", "g", True, True),
        ("g", "h", True, True),
        ("p", "g", True, True),
        ("g", "d", True, True),
        ("g", "m", True, True),
        ("p", "d", True, False),
        ("p", "m", True, False),
        ("d", "m", False, False),
        ("m", "d", False, False),
    ],
)
def test_what_a_blocking_copy_has_done_when_it_returns(
    source, target, source_is_free, target_is_there
):
    rows = [copy(0, source, target, blocking=True), host([*writes(source), *reads(target)])]
    expected = ["RAW 0-1"] * (not target_is_there) + ["WAR 0-1"] * (not source_is_free)
    assert both(rows) == expected


@pytest.mark.parametrize("target", ["d", "m"])
def test_a_blocking_copy_from_pageable_memory_waits_for_its_stream_first(target):
    rows = [launch(0, writes("g")), copy(0, "p", target, blocking=True), host(reads("g"))]
    assert both(rows) == []
    assert "RAW 0-2" in both([rows[0], copy(1, "p", target, blocking=True), rows[2]], TWO)
    assert both([rows[0], copy(1, "p", target, True), rows[2]], "blocking legacy_default") == []


def test_a_blocking_copy_between_device_memory_waits_for_nothing():
    rows = [launch(0, writes("g")), copy(0, "d", "m", blocking=True), host(reads("g"))]
    assert both(rows) == ["RAW 0-2"]


@pytest.mark.parametrize(
    ("source", "target", "practical"),
    [
        ("g", "d", ["RAW 0-1", "WAR 0-1"]),
        ("d", "g", ["RAW 0-1", "WAR 0-1"]),
        ("d", "m", ["RAW 0-1", "WAR 0-1"]),
        ("p", "d", ["RAW 0-1"]),
        ("p", "m", ["RAW 0-1"]),
        ("d", "p", []),
        ("g", "p", []),
        ("p", "g", ["RAW 0-1", "WAR 0-1"]),
    ],
)
def test_what_an_async_copy_has_done_when_it_returns(source, target, practical):
    rows = [copy(0, source, target), host([*writes(source), *reads(target)])]
    assert hazards(rows, rules="practical") == practical
    assert hazards(rows, rules="strict") == ["RAW 0-1", "WAR 0-1"]


def test_an_async_copy_from_pageable_memory_reads_without_waiting_for_its_stream():
    rows = [launch(0, writes("p")), copy(0, "p", "d")]
    assert hazards(rows, rules="practical") == ["RAW 0-1"]
    assert hazards(rows, rules="strict") == []


@pytest.mark.parametrize(
    ("target", "waits"), [("g", True), ("m", True), ("d", False), ("p", False)]
)
def test_a_blocking_memset_waits_where_its_target_is_pinned_or_managed(target, waits):
    assert both([memset(0, target, blocking=True), host(reads(target))]) == ["RAW 0-1"] * (
        not waits
    )
    assert both([memset(0, target), host(reads(target))]) == ["RAW 0-1"]


# ---- kernels that overlap ------------------------------------------------------------------------


def pdl(accesses, stream=0, flags=PDL):
    return launch(stream, accesses, flags=flags)


def test_a_dependent_launch_does_not_come_after_the_kernel_before_it():
    assert both([launch(0, writes("d")), pdl(reads("d"))]) == ["RAW 0-1"]
    assert both([launch(0, writes("d")), pdl(reads("d"), flags=PDL | GRID_SYNC)]) == []
    assert both([launch(0, writes("d")), pdl(reads("d"), flags=GRID_SYNC)]) == []


def test_a_dependent_launch_comes_after_what_the_kernel_before_it_came_after():
    rows = [launch(0, writes("d")), launch(0, []), pdl(reads("d"))]
    assert both(rows) == []
    assert both([host(writes("g"), thread=1), launch(0, [], thread=1), pdl(reads("g"))]) == []
    three = [launch(0, writes("d")), pdl([]), pdl(reads("d"))]
    assert both(three) == ["RAW 0-2"]


def test_a_dependent_launch_that_waits_may_trigger_before_its_wait():
    rows = [launch(0, writes("d")), pdl([], flags=PDL | GRID_SYNC), pdl(reads("d"))]
    assert both(rows) == ["RAW 0-2"]
    again = [*rows[:2], pdl([], flags=PDL | GRID_SYNC), pdl(reads("d"))]
    assert both(again) == ["RAW 0-3"]
    assert both([*rows[:2], pdl(reads("d"), flags=PDL | GRID_SYNC)]) == []
    waiting = pdl(writes("m"), flags=PDL | GRID_SYNC)
    assert both([rows[0], waiting, pdl(reads("m"))]) == ["RAW 1-2"]


def test_a_run_of_dependent_launches_ends_at_any_other_work():
    waiting = pdl([], flags=PDL | GRID_SYNC)
    for between in (launch(0, []), record(0), wait(0), memset(0, "m")):
        assert both([launch(0, writes("d")), between, waiting, pdl(reads("d"))]) == []
        rows = [launch(0, writes("d")), waiting, between, pdl(reads("d"))]
        assert both([*rows, pdl(reads("d"))]) == []
        assert both([*rows[:2], pdl(reads("d")), between]) == ["RAW 0-2"]


def test_a_dependent_launch_comes_after_legacy_work_since_the_kernel_before_it():
    rows = [launch(0, []), launch(1, writes("d")), pdl(reads("d"))]
    assert both(rows, "blocking legacy_default") == []
    assert both(rows, TWO) == ["RAW 1-2"]


def test_what_follows_comes_after_both_kernels_that_overlap():
    rows = [launch(0, writes("d")), pdl(writes("m"))]
    assert both([*rows, launch(0, reads("d", "m"))]) == []
    assert both([*rows, sync(0), host(reads("d", "m"))]) == []
    assert both([*rows, record(0), wait(1), launch(1, reads("d", "m"))], TWO) == []


def test_a_dependent_launch_overlaps_nothing_but_a_kernel():
    for between in (record(0), wait(0), memset(0, "m"), graph(0, [launch(0, [])])):
        assert both([launch(0, writes("d")), between, pdl(reads("d"))]) == []
    assert both([copy(0, "g", "d"), pdl(reads("d"))]) == []
    rows = [launch(0, writes("d")), record(1), wait(0), pdl(reads("d"))]
    assert hazards(rows, TWO, dropped=[2]) == ["RAW 0-3"]


def test_reads_of_kernels_that_overlap_are_both_remembered():
    rows = [launch(0, reads("d")), pdl(reads("d")), pdl(writes("d"))]
    assert both(rows) == ["WAR 0-2", "WAR 1-2"]


# ---- graphs --------------------------------------------------------------------------------------


def test_a_graph_launch_is_one_op_with_all_that_its_members_touch():
    members = [launch(0, reads("d")), copy(0, "g", "m"), launch(0, writes("d"))]
    rows = [graph(0, members), host(writes("g")), launch(1, writes("d"))]
    assert both(rows, TWO) == ["WAR 0-1", "WAR 0-2", "WAW 0-2"]


def test_a_captured_copy_reads_pageable_memory_when_the_graph_runs():
    rows = [graph(0, [copy(0, "p", "d")]), host(writes("p"))]
    assert both(rows) == ["WAR 0-1"]


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.ALLOC, Kind.FREE])
def test_memory_that_is_freed_or_given_anew_counts_as_written_by_the_host(kind):
    assert both([launch(0, reads("d")), host(writes("d"), kind=kind)]) == ["WAR 0-1"]
    assert both([launch(0, reads("d")), sync(0), host(writes("d"), kind=kind)]) == []


def test_accesses_of_one_row_do_not_conflict():
    assert both([launch(0, [*reads("d"), *writes("d"), *writes("d[0:4]")])]) == []


def test_what_nobody_writes_has_no_hazard():
    assert both([launch(0, reads("d")), launch(1, reads("d")), host(reads("d"))], TWO) == []


def test_ranges_conflict_only_where_they_overlap_and_slots_not_at_all():
    streams = TWO
    write = launch(0, writes("d[2:6]"))
    for span, expected in (("[0:2]", 0), ("[6:8]", 0), ("[0:3]", 1), ("[5:6]", 1), ("[0:8]", 1)):
        rows = [write, launch(1, reads(f"d{span}"))]
        assert both(rows, streams) == ["RAW 0-1"] * expected
    assert both([write, launch(1, reads("d.1[2:6]"))], streams) == []


def test_a_hazard_names_the_bytes_that_both_touch_as_one_range():
    rows = [launch(0, writes("d[1:7]")), launch(1, [*reads("d[0:3]"), *reads("d[3:8]")])]
    ranges = [(h["begin"], h["end"]) for h in Order(build(rows, TWO)).hazards()]
    assert ranges == [(1, 3), (3, 7)]
    rows = [launch(0, writes("d")), launch(0, reads("d[2:4]")), launch(1, writes("d"))]
    war, waw = (
        [(h["begin"], h["end"]) for h in Order(build(rows, TWO)).hazards() if h["type"] == kind]
        for kind in (HAZARDS.index("WAR"), HAZARDS.index("WAW"))
    )
    assert war == [(2, 4)]
    assert min(waw)[0] == 0 and max(waw)[1] == 8


def test_of_earlier_accesses_the_last_write_and_the_reads_since_count():
    rows = [launch(0, writes("d")), launch(0, writes("d")), launch(1, reads("d"))]
    assert both(rows, TWO) == ["RAW 1-2"]
    rows = [launch(0, reads("d")), launch(0, reads("d")), launch(1, writes("d"))]
    assert both(rows, TWO) == ["WAR 1-2"]
    rows = [launch(0, reads("d")), launch(1, reads("d")), host(writes("d"))]
    assert both(rows, TWO) == ["WAR 0-2", "WAR 1-2"]


def test_what_a_row_read_counts_after_it_wrote_the_same_bytes():
    rows = [launch(0, [*reads("d[2:4]"), *writes("d")]), host(writes("d"))]
    assert both(rows) == ["WAR 0-1", "WAW 0-1"]


# ---- asking --------------------------------------------------------------------------------------


def test_a_dropped_site_orders_nothing_and_keeps_its_accesses():
    rows = [launch(0, writes("d")), sync(0), host(reads("d"))]
    assert hazards(rows, dropped=[1]) == ["RAW 0-2"]
    rows = [launch(0, writes("d")), record(0), wait(1), launch(1, reads("d"))]
    assert hazards(rows, TWO, dropped=[2]) == ["RAW 0-3"]
    for rows in (
        [copy(0, "d", "g", blocking=True), host(reads("g"))],
        [memset(0, "g", blocking=True), host(reads("g"))],
    ):
        assert hazards(rows) == []
        assert hazards(rows, dropped=[0]) == ["RAW 0-1"]
    rows = [copy(0, "p", "d", blocking=True), host(writes("p"))]
    assert hazards(rows, rules="strict", dropped=[0]) == ["WAR 0-1"]
    assert hazards(rows, rules="practical", dropped=[0]) == []


def test_each_ask_begins_afresh():
    rows = [launch(0, writes("d")), record(0), sync_event(), host(reads("d"))]
    order = Order(build(rows))
    assert [len(order.hazards(dropped)) for dropped in ([], [2], [], [2], [])] == [0, 1, 0, 1, 0]


def test_hazards_come_in_the_order_of_the_second_and_no_more_than_asked_for():
    rows = [launch(0, writes("d", "m")), host(reads("m")), host(reads("d"))]
    order = Order(build(rows))
    assert [h["second_row"] for h in order.hazards()] == [1, 2]
    assert [h["second_row"] for h in order.hazards(limit=1)] == [1]


def test_accesses_are_named_by_their_place_in_the_row():
    rows = [graph(0, [launch(0, reads("m")), launch(0, writes("d"))]), copy(1, "d", "m")]
    hazard = Order(build(rows, TWO)).hazards()
    assert [(h["first_access"], h["second_access"]) for h in hazard] == [(1, 0), (0, 1)]


def test_unknown_rules_are_refused():
    with pytest.raises(UsageError, match="unknown rules practicle; did you mean practical"):
        Order(build([]), "practicle")


def test_a_program_without_rows_has_no_hazards():
    assert both([]) == []


def test_a_plan_with_two_devices_is_ordered_by_the_event_between_them():
    text = "s k1 w d0x; s record e; t wait e; t k1 r d0x"
    for plan, expected in (
        (make_plan(text, "s t@1"), 0),
        (make_plan(text.replace("t wait e; ", ""), "s t@1"), 1),
    ):
        assert len(Order(unroll(plan, ["decode"])).hazards()) == expected


# ---- size ----------------------------------------------------------------------------------------


MEMORY = """
    import resource, sys
    import numpy as np
    from helpers.rows import build, launch, reads, sync, writes
    from syncscope.sched_core.order import Order
    from dataclasses import replace
    from pathlib import Path

    n, stride = 300_000, int(sys.argv[1])
    rows = [launch(0, writes("d[0:2]")), launch(1, reads("d[0:2]")), sync(0)]
    program = build(rows, "blocking legacy_default")
    accesses = np.tile(program.accesses, n)
    accesses["begin"] = np.arange(len(accesses)) // 2 * stride
    accesses["end"] = accesses["begin"] + 2
    ops = np.tile(program.ops, n)
    ops["access0"] = np.minimum(np.cumsum(ops["n_access"]) - ops["n_access"], len(accesses) - 1)
    order = Order(replace(program, ops=ops, accesses=accesses))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (8 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        print(len(order.hazards()))
    except MemoryError as error:
        print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
@pytest.mark.parametrize(
    ("stride", "said"), [(0, "0"), (2, "the ordering analysis ran out of memory")]
)
def test_memory_is_bounded_by_what_is_live(stride, said):
    """900,000 rows: on the same bytes they fit in 8 MB, each on bytes of its own they do not."""
    command = [sys.executable, "-c", textwrap.dedent(MEMORY), str(stride)]
    environment = {"PYTHONPATH": str(next(p for p in sys.path if p.endswith("tests")))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout.strip(), done.stderr) == (said, "")


def test_time_grows_with_the_rows_and_no_faster():
    def ns_per_row(steps):
        program = unroll(model_plan("cuda-graph"), ["decode"] * steps)
        order = Order(program)
        times = []
        for _ in range(5):
            began = time.process_time_ns()
            order.hazards()
            times.append(time.process_time_ns() - began)
        return min(times) / len(program.ops)

    assert ns_per_row(8000) < 2 * ns_per_row(1000)


# ---- random programs -----------------------------------------------------------------------------


def check_against_closure(drawn):
    program, rules, dropped = drawn
    note(f"{rules}, dropped {dropped}, streams {program.streams}")
    for row, op in enumerate(program.ops):
        accesses = program.accesses[op["access0"] :][: op["n_access"]]
        note(f"{row} {Kind(op['kind']).name} {op} {accesses}")
    mine = found(program, rules, dropped)
    expected = closure_hazards(program, rules, dropped)
    assert {(kind, name, first, second) for kind, name, _, first, second in mine} == expected
    assert bool(mine) == bool(closure_races(program, rules, dropped))


SETTINGS = {
    "deadline": None,
    "suppress_health_check": [*HealthCheck],
    "phases": [Phase.generate],  # shrinking such programs outlasts faulthandler_timeout
}


@settings(max_examples=500, derandomize=True, **SETTINGS)
@given(programs())
def test_random_programs_have_the_hazards_of_the_closure(drawn):
    check_against_closure(drawn)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_random_programs_have_the_hazards_of_the_closure(part):
    @seed(part)
    @settings(max_examples=500, database=None, **SETTINGS)
    @given(programs())
    def check(drawn):
        check_against_closure(drawn)

    check()
