"""Virtual time: sums done by hand, and rules that hold for any program.

Costs of `helpers.plans.PROFILE`: a launch call 10, start 5; a graph call 20 and 1 per kernel, start
7; a copy call 4, start 2, run 30 and 1 per byte (to the host 1/2); record and wait calls 1; a sync
call 3, its return 6 after what it waited for.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from helpers.order import Order
from helpers.plans import PROFILE, make_plan, run_by_hand
from helpers.programs import QUICK, issue, plans, unrolled
from syncscope.sched_core.recorder import ROLES

CALL, EXEC = (ROLES.index(role) for role in ("call", "exec"))


def times(text, streams="s t", phases=("decode",), costs=None, **options):
    """Return {"site": (begin, end)} of the calls and {"site": ...} of the executions.

    `costs` are changes of the profile.
    """
    profile = replace(PROFILE, **(costs or {}))
    _, engine = run_by_hand(make_plan(text, streams, **options), phases, profile=profile)
    found = {CALL: {}, EXEC: {}}
    for span in engine.take_spans():
        if span["step"] == len(phases) - 1:
            name = engine.sites[span["op"]].name
            found[span["role"]][name] = (int(span["begin_ns"]), int(span["end_ns"]))
    return found[CALL], found[EXEC]


# ---- by hand ------------------------------------------------------------------------------------


def test_a_copy_then_a_sync():
    calls, runs = times("copy: s copy h d; sync: sync s")
    assert calls["copy"] == (0, 4)
    assert runs["copy"] == (6, 6 + 30 + 16)
    assert calls["sync"] == (4, 52 + 6)


def test_a_sync_with_nothing_to_wait_for_costs_its_call():
    calls, _ = times("idle: sync s; k: s k10 w d; late: sync t")
    assert calls["idle"] == (0, 3)
    assert calls["late"] == (13, 16)


def test_a_sync_of_work_that_ended_before_the_call_costs_its_call():
    calls, runs = times("k: s k10 w d; host k100 w h; sync: sync s")
    assert runs["k"] == (15, 25)
    assert calls["sync"] == (110, 113)


def test_work_of_one_stream_queues_and_of_two_streams_overlaps():
    _, runs = times("a: s k100 w d; b: s k100 w d; c: t k100 w dq")
    assert runs["a"] == (15, 115)
    assert runs["b"] == (115, 215)
    assert runs["c"] == (35, 135)


def test_an_event_holds_a_stream_until_what_was_recorded_is_done():
    calls, runs = times("a: s k100 w d; s record e; b: s k50 w d; t wait e; c: t k10 r d; sync e")
    assert runs["a"] == (15, 115)
    assert runs["b"] == (115, 165)
    assert runs["c"] == (115, 125)
    assert calls["5"] == (32, 115 + 6)


def test_an_event_that_was_never_recorded_holds_nothing():
    calls, runs = times("t wait e; c: t k10 w d; sync: sync e; s record e")
    assert runs["c"] == (16, 26)
    assert calls["sync"] == (11, 14)


def test_an_event_of_an_idle_stream_is_reached_when_it_is_recorded():
    calls, _ = times("s record e; sync: sync e")
    assert calls["sync"] == (1, 4)


def test_copies_of_one_direction_share_an_engine_and_of_two_directions_do_not():
    _, runs = times("up: s copy ha da; up2: t copy hb db; down: u copy dc hc", "s t u")
    assert runs["up"] == (6, 52)
    assert runs["up2"] == (52, 98)
    assert runs["down"] == (14, 14 + 30 + 8)


def test_copies_of_two_devices_do_not_share_an_engine():
    _, runs = times("a: s copy ha da; b: t copy hb d1b", "s t@1")
    assert runs["a"] == (6, 52)
    assert runs["b"] == (10, 56)


def test_kernels_launched_one_by_one_lie_a_gap_apart():
    text = "a: s k100 w d; b: s k100 w d; c: t k100 w dq; host k500 w h; late: s k1 w d"
    _, runs = times(text, costs={"launch_gap_ns": 8})
    assert runs["a"] == (15, 115)
    assert runs["b"] == (123, 223)
    assert runs["c"] == (35, 135)
    assert runs["late"] == (545, 546)  # long after: its own launch is what it waits for


def test_a_graph_has_no_gap_between_its_kernels():
    steps = ["decode"] * 3
    text = "a: s k10 w d; b: s k20 w d; sync: sync s"
    calls, runs = times(text, phases=steps, graphs=True, costs={"launch_gap_ns": 8})
    end = calls["graph"][1]
    assert (runs["a"][0], runs["b"][0]) == (end + 7, end + 17)


def test_a_stream_pays_for_going_to_another_engine_and_back():
    text = "k: s k100 w d; down: s copy d h; again: s copy d h; up: s copy h d; back: s k9 w d"
    _, runs = times(text, costs={"switch_ns": 50, "launch_gap_ns": 8})
    assert runs["k"] == (15, 115)
    assert runs["down"] == (115 + 50, 203)
    assert runs["again"] == (203, 241)
    assert runs["up"] == (241 + 50, 291 + 46)
    assert runs["back"] == (337 + 50, 396)


def test_a_copy_that_travels_with_the_commands_changes_no_engine():
    costs = {"switch_ns": 50, "inline_nbytes": 16, "inline_ns": 11, "inline_bytes_per_ns": 4}
    calls, runs = times(
        "k: s k100 w d; up: s copy h d; up2: t copy h dq; k2: s k9 w d", costs=costs
    )
    assert calls["up"] == (10, 10 + 4 + 4)
    assert runs["up"] == (115, 115 + 11 + 16)
    assert runs["up2"] == (26 + 2, 55)  # no engine to queue for
    assert runs["k2"] == (142, 151)


def test_an_engine_that_was_left_long_ago_costs_nothing():
    _, runs = times("k: s k10 w d; host k500 w h; down: s copy d h", costs={"switch_ns": 50})
    assert runs["down"][0] == 514 + 2
    _, runs = times("down: s copy d h", costs={"switch_ns": 50})
    assert runs["down"][0] == 4 + 2


def test_a_graph_launch_costs_one_call_and_its_kernels_run_one_after_another():
    steps = ["decode"] * 3
    calls, runs = times("a: s k10 w d; b: s k20 w d; sync: sync s", phases=steps, graphs=True)
    begin, end = calls["graph"]
    assert end - begin == 20 + 2
    assert runs["a"] == (end + 7, end + 17)
    assert runs["b"] == (end + 17, end + 37)
    assert calls["sync"] == (end, end + 37 + 6)
    assert "a" not in calls


def test_the_legacy_stream_and_blocking_streams_wait_for_each_other():
    text = "a: s k100 w d; z: z k100 w d; b: t k100 w d"
    _, runs = times(text, "s:blocking t:per_thread_default z:legacy_default")
    assert runs["z"] == (115, 215)
    assert runs["b"] == (215, 315)
    _, runs = times(text, "s t z:legacy_default")
    assert runs["z"] == (25, 125)
    assert runs["b"] == (35, 135)
    _, runs = times(text, "s:blocking t:blocking z:blocking")
    assert runs["z"] == (25, 125)


def test_a_sync_of_a_blocking_stream_waits_for_the_legacy_work_that_its_record_waits_for():
    streams = "s:blocking z:legacy_default"
    calls, _ = times("z: z k100 w d; s record e; sync: sync s", streams)
    assert calls["sync"][1] == 115 + 6
    calls, _ = times("z: z k100 w d; sync: sync s", streams)
    assert calls["sync"] == (10, 13)


def test_a_sync_of_the_legacy_stream_waits_for_blocking_streams_alone():
    text = "s k100 w d; sync: sync z"
    assert times(text, "s:blocking z:legacy_default")[0]["sync"] == (10, 121)
    assert times(text, "s z:legacy_default")[0]["sync"] == (10, 13)


def test_a_device_sync_waits_for_every_stream_of_its_device_alone():
    calls, _ = times("s k100 w d; t k50 w dq; u k900 w d1; sync: sync dev.t", "s t u@1")
    assert calls["sync"] == (30, 115 + 6)


def test_a_blocking_copy_returns_after_its_end():
    calls, runs = times("copy: s copy! h d; next: host k1 w h")
    assert runs["copy"] == (6, 52)
    assert calls["copy"] == (0, 58)
    assert calls["next"] == (58, 59)


def test_a_copy_from_pageable_memory_costs_the_host_its_staging():
    calls, runs = times("copy: s copy p d")
    assert calls["copy"] == (0, 9 + 4)
    assert runs["copy"] == (15, 61)


def test_a_copy_to_pageable_memory_returns_after_its_end():
    calls, runs = times("k: s k100 w d; copy: s copy d p")
    assert runs["copy"] == (115, 115 + 38)
    assert calls["copy"] == (10, 153 + 6)


def test_the_host_waits_the_same_time_whatever_the_data_order():
    plan = make_plan("s copy h d; t k30 r d; s record e; t wait e; sync t; s copy d h; sync s")
    spans = []
    for late in ((), ("s",), ("s", "t")):
        spans.append(run_by_hand(plan, ["decode"] * 3, late)[1].take_spans())
    assert all(np.array_equal(spans[0], each) for each in spans[1:])


# ---- any program --------------------------------------------------------------------------------


def recorded(drawn):
    plan, steps = drawn
    program = unrolled(plan, steps)
    spans = issue(program, plan)[1].take()
    return program, spans


@QUICK
@given(plans())
def test_executions_of_a_stream_never_overlap_and_calls_follow_one_another(drawn):
    program, spans = recorded(drawn)
    for lane in np.unique(spans["lane"]):
        mine = spans[spans["lane"] == lane]
        assert (mine["begin_ns"] <= mine["end_ns"]).all()
        assert (mine["end_ns"][:-1] <= mine["begin_ns"][1:]).all()
    calls = spans[spans["role"] == CALL]
    assert np.array_equal(calls["op"], np.arange(len(program.ops)))
    assert calls["begin_ns"][0] == 0
    assert np.array_equal(calls["end_ns"][:-1], calls["begin_ns"][1:])


@QUICK
@given(plans())
def test_whatever_happens_before_ends_before(drawn):
    program, spans = recorded(drawn)
    called = {int(s["op"]): s for s in spans if s["role"] == CALL}
    ran = {int(s["op"]): s for s in spans if s["role"] == EXEC}
    order = Order(program)

    def begin(node):
        """When it can begin at the earliest; of a wait this is when it is over."""
        if node.role == "exec":
            return ran[node.row]["begin_ns"] if node.row in ran else None
        return called[node.row]["end_ns" if node.role == "ret" else "begin_ns"]

    for node in order.nodes:
        if begin(node) is None:
            continue
        for before in (order.nodes[i] for i in node.before):
            if before.role == "exec" and before.row in ran:
                assert ran[before.row]["end_ns"] <= begin(node)
            elif before.role == "call" and before.row != node.row:
                assert called[before.row]["begin_ns"] <= begin(node)


@pytest.mark.parametrize("late", [(), ("s",)])
def test_the_same_program_takes_the_same_time_again(late):
    plan = make_plan("s copy h d; s k30 r d; sync s")
    first, second = (run_by_hand(plan, ["decode"] * 4, late)[1].take_spans() for _ in range(2))
    assert np.array_equal(first, second)
