"""An engine runs plans step by step and collects what happened."""

import threading
from itertools import pairwise

import numpy as np
import pytest

from helpers.plans import (
    CAPACITY,
    CONFIG,
    N_KV,
    PROFILE,
    SIZES,
    make_plan,
    model_plan,
    named_costs,
    run_by_hand,
    without,
)
from helpers.programs import run_rows
from syncscope.kernels.host import host_table
from syncscope.kernels.transformer import instances
from syncscope.kernels.weights import random_weights
from syncscope.sched_core.engine import SWITCH, Engine
from syncscope.sched_core.errors import KernelFault
from syncscope.sched_core.pattern import letter, pattern
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.program import unroll
from syncscope.sched_core.recorder import ROLES, SpanRing
from syncscope.sched_core.records import Kind
from syncscope.sched_core.sim_backend import SimBackend

CALL, EXEC = (ROLES.index(role) for role in ("call", "exec"))
ALL = ("cuda-graph", "pack-inputs", "drop-leading-sync", "input-slot-ring=3", "logits-event-sync",
       "repeat-sync-elision", "device-sampling")  # fmt: skip
PROMPT = (3, 1, 4, 1, 5, 9, 2)
WEIGHTS = random_weights(CONFIG, 7)
RUN = [("prompt", 1), ("prompt_last", 1), ("decode", 8)]


def model_engine(plan, late=()):
    """An engine that computes the small model on a prompt."""
    sizes = set(SIZES.values())
    kernels = host_table(i for size in sizes for i in instances(CONFIG, size, N_KV, CAPACITY))
    backend = SimBackend(load_profile("h200"), kernels, late)
    tokens = np.zeros(CAPACITY, np.int32)
    tokens[: len(PROMPT)] = PROMPT
    backend.load({**WEIGHTS.arrays, "tokens": tokens})
    return Engine(backend, plan)


def timed_engine(plan, ring=None, late=()):
    return Engine(SimBackend(PROFILE, named_costs(plan), late, compute=False), plan, ring)


def run_model(plan, late=(), switch_to=None):
    """Return tokens and logits; with a switch, the plan changes before every run of steps."""
    engine = model_engine(plan, late)
    plans = [plan, switch_to or plan]
    for i, (phase, steps) in enumerate(RUN):
        for part in (steps // 2, steps - steps // 2):
            if switch_to:
                engine.set_plan(plans[i % 2])
            engine.run(phase, part)
    engine.drain()
    assert engine.backend.counts[:2] == (0, 0)
    tokens = engine.backend.read("tokens").view(np.int32).tolist()
    return tokens, engine.backend.read("tap").tobytes()


def site_of(engine, span):
    return engine.sites[span["op"]]


def step_patterns(engine, spans):
    """The pattern of each step, from what was executed."""
    calls = spans[(spans["role"] == CALL)]
    found = [[] for _ in engine.phases]
    for span in calls:
        site = site_of(engine, span)
        if site.phase != SWITCH:
            found[span["step"]].append(letter(site.kind, site.blocking, site.scope))
    return [pattern(letters) for letters in found]


# ---- steps --------------------------------------------------------------------------------------


def test_patterns_of_executed_steps_are_those_of_the_plan():
    for passes, expected in (
        ((), "ssassassassassassasgasssss"),
        (("cuda-graph", "batch-input-syncs"), "saaaaaasgasssss"),
        (ALL, "EaegaeE"),
    ):
        engine = timed_engine(model_plan(*passes))
        engine.run("decode", 8)
        assert set(step_patterns(engine, engine.take_spans())) == {expected}


def test_phases_lists_the_phase_of_every_step():
    engine = timed_engine(model_plan())
    assert (engine.phases, engine.step) == ([], 0)
    assert engine.run("prompt", 2) == 2
    assert engine.run("prompt_last", 1) == 1
    assert engine.run("decode", 0) == 0
    assert engine.run("decode", 3) == 3
    assert engine.phases == ["prompt"] * 2 + ["prompt_last"] + ["decode"] * 3
    assert engine.step == 6


def test_the_op_of_a_span_indexes_its_site_and_its_lane_the_stream():
    engine = timed_engine(model_plan("cuda-graph"))
    engine.run("prompt", 1)
    engine.run("decode", 4)
    engine.set_plan(model_plan(*ALL))
    engine.run("decode", 4)
    spans = engine.take_spans()
    for span in spans:
        site, lane = site_of(engine, span), engine.lanes[span["lane"]]
        if site.phase != SWITCH:
            assert site.phase == engine.phases[span["step"]]
        if span["role"] == EXEC:
            assert site.kind in (Kind.LAUNCH, Kind.COPY)
            assert (lane.kind, lane.name) == ("stream", site.stream)
        else:
            assert lane.kind == "host"
    ran = {site_of(engine, each).name for each in spans[spans["role"] == EXEC]}
    assert {"layer.1.down", "logits", "sample", "inputs.copy", "input.mask.copy"} <= ran


def test_every_kernel_and_copy_of_a_step_runs_once_whether_eager_or_replayed():
    engine = timed_engine(model_plan("cuda-graph"))
    engine.run("decode", 5)
    spans = engine.take_spans()
    ran = spans[spans["role"] == EXEC]
    per_step = [sorted(ran["op"][ran["step"] == step]) for step in range(5)]
    names = [[engine.sites[op].name for op in ops] for ops in per_step]
    assert all(sorted(each) == sorted(names[0]) for each in names)
    assert len(set(names[0])) == len(names[0]) == 6 + 2 * 5 + 1 + 1


def test_a_graph_is_replayed_after_two_eager_steps_in_a_row():
    engine = timed_engine(model_plan("cuda-graph"))
    for phase, steps in (("decode", 1), ("decode", 3), ("prompt", 1), ("decode", 3)):
        engine.run(phase, steps)
    spans = engine.take_spans()
    launched = {int(s["step"]) for s in spans if site_of(engine, s).kind == Kind.GRAPH}
    assert launched == {2, 3, 7}


def test_an_engine_issues_what_the_unrolled_program_does_at_the_same_times():
    plan = model_plan(*ALL)
    phases = ["prompt"] * 3 + ["prompt_last"] + ["decode"] * 9
    engine = timed_engine(plan)
    for phase in phases:
        engine.run(phase, 1)
    issued = engine.take_spans()
    backend = SimBackend(PROFILE, named_costs(plan), compute=False)
    program = unroll(plan, phases)
    expected = run_rows(backend, program).take()
    rows = np.concatenate([program.ops, program.members])
    for name in ("begin_ns", "end_ns", "lane", "role", "nbytes"):
        assert np.array_equal(issued[name], expected[name])
    assert np.array_equal(issued["step"], rows["step"][expected["op"]])
    for mine, row in zip(issued["op"], expected["op"], strict=True):
        assert engine.sites[mine] == program.sites[rows["site"][row]]


def test_steps_taken_one_by_one_are_those_taken_at_once():
    plan = model_plan(*ALL)
    one, many = timed_engine(plan), timed_engine(plan)
    for _ in range(20):
        one.run("decode", 1)
    many.run("decode", 20)
    assert np.array_equal(one.take_spans(), many.take_spans())


# ---- changing the plan --------------------------------------------------------------------------


def test_a_change_of_plan_drains_once_and_shows_it():
    first, second = model_plan("cuda-graph"), model_plan(*ALL)
    engine = timed_engine(first, late=["dev0.compute", "dev0.per_thread"])
    engine.run("decode", 3)
    engine.set_plan(second)
    engine.run("decode", 3)
    assert (engine.plans, engine.plan) == ([first, second], second)
    spans = engine.take_spans()
    drains = [s for s in spans if site_of(engine, s).name == "plan.switch.sync"]
    assert len(drains) == 1
    site = site_of(engine, drains[0])
    assert (site.phase, site.scope, site.kind) == (SWITCH, "device", Kind.SYNC)
    assert drains[0]["step"] == 3
    before = spans[spans["step"] < 3]
    assert drains[0]["end_ns"] >= before["end_ns"].max()


def test_every_device_is_drained_each_at_a_site_of_its_own():
    plan = make_plan("s k50 w d; t k900 w d1", "s t@1")
    _, engine = run_by_hand(plan, ["decode"])
    engine.set_plan(plan)
    spans = engine.take_spans()
    names = [site_of(engine, s).name for s in spans if site_of(engine, s).phase == SWITCH]
    assert names == [
        "run.end.sync",
        "run.end.sync.dev1",
        "plan.switch.sync",
        "plan.switch.sync.dev1",
    ]


def test_data_survives_a_change_of_plan():
    expected = run_model(model_plan())
    for late in ((), ("dev0.compute", "dev0.per_thread")):
        assert run_model(model_plan(*ALL), late) == expected
        for plans in ((model_plan(), model_plan(*ALL)), (model_plan(*ALL), model_plan())):
            assert run_model(plans[0], late, switch_to=plans[1]) == expected
    assert expected[0][: len(PROMPT)] == list(PROMPT)
    assert any(expected[0][len(PROMPT) :])


def test_plans_share_the_sites_that_they_have_in_common():
    plans = [model_plan("cuda-graph"), model_plan(*ALL)]
    engine = timed_engine(plans[0])
    engine.set_plan(plans[1])
    sites = list(engine.sites)
    assert len(set(sites)) == len(sites)
    for plan in plans * 5:
        engine.set_plan(plan)
        engine.run("decode", 4)
    assert engine.sites == sites
    for span in engine.take_spans():
        site = site_of(engine, span)
        if site.phase != SWITCH:
            assert site.phase == engine.phases[span["step"]]


def test_graphs_are_captured_anew_after_a_change_of_plan():
    engine = timed_engine(model_plan("cuda-graph"))
    engine.run("decode", 4)
    engine.set_plan(model_plan("cuda-graph"))
    engine.run("decode", 4)
    spans = engine.take_spans()
    launched = {int(s["step"]) for s in spans if site_of(engine, s).kind == Kind.GRAPH}
    assert launched == {2, 3, 6, 7}


def test_the_clock_goes_on_after_a_change_of_plan():
    engine = timed_engine(model_plan())
    for passes in ((), ALL, ()):
        engine.set_plan(model_plan(*passes))
        engine.run("decode", 3)
    spans = engine.take_spans()
    calls = spans[spans["role"] == CALL]
    assert calls["begin_ns"][0] == 0
    assert np.array_equal(calls["begin_ns"][1:], calls["end_ns"][:-1])
    for lane in np.unique(spans["lane"]):
        mine = spans[spans["lane"] == lane]
        assert (mine["end_ns"][:-1] <= mine["begin_ns"][1:]).all()


# ---- beginning again ----------------------------------------------------------------------------


def contents():
    tokens = np.zeros(CAPACITY, np.int32)
    tokens[: len(PROMPT)] = PROMPT
    return {**WEIGHTS.arrays, "tokens": tokens}


def run_again(engine, steps=tuple(RUN)):
    for phase, n in steps:
        engine.run(phase, n)
    engine.drain()
    return engine.backend.read("tokens").tolist(), engine.backend.read("tap").tobytes()


@pytest.mark.parametrize("late", [(), ("dev0.compute", "dev0.per_thread")], ids=["early", "late"])
def test_a_restarted_engine_computes_the_same_again_while_steps_and_time_go_on(late):
    engine = model_engine(model_plan(*ALL), late)
    first = run_again(engine)
    before = engine.take_spans()
    for _ in range(3):
        engine.restart(contents())
        assert run_again(engine) == first
    after = engine.take_spans()
    assert engine.step == 4 * sum(steps for _, steps in RUN)
    assert after["begin_ns"].min() >= before["end_ns"].max()
    assert after["step"].min() == before["step"].max()  # the drain of the restart
    assert engine.backend.counts[:2] == (0, 0)


def test_a_restart_gives_every_written_buffer_its_first_bytes_and_leaves_the_rest():
    plan = model_plan(*ALL)
    engine, new = model_engine(plan), model_engine(plan)
    run_again(engine)
    changed = [b.name for b in plan.buffers if differs(engine, new, b)]
    assert {"tokens", "cursor", "tap", "k_cache.0"} <= set(changed)
    engine.restart(contents())
    assert not [b.name for b in plan.buffers if differs(engine, new, b)]


def differs(one, other, buffer):
    return any(
        not np.array_equal(one.backend.read(buffer.name, i), other.backend.read(buffer.name, i))
        for i in range(buffer.depth)
    )


def test_a_restart_forgets_what_a_race_left_behind():
    racy = without(model_plan("batch-input-syncs"), "inputs.sync_after")
    engine = model_engine(racy, ["dev0.compute"])
    for phase, n in [("prompt", 1), ("prompt", 1), ("prompt_last", 1), ("decode", 2)]:
        engine.run(phase, n)
    harm = engine.backend.counts
    assert harm[0] > 0
    engine.set_plan(model_plan())
    engine.restart(contents())
    assert run_again(engine) == run_again(model_engine(model_plan()))
    assert engine.backend.counts[:2] == harm[:2]


# ---- recording ----------------------------------------------------------------------------------


def test_phases_are_taken_once_and_steps_go_on_counting():
    engine = timed_engine(model_plan("cuda-graph"))
    engine.run("decode", 2)
    assert engine.take_phases() == ["decode"] * 2
    engine.run("decode", 3)
    engine.run("prompt", 1)
    assert engine.take_phases() == ["decode"] * 3 + ["prompt"]
    assert engine.take_phases() == engine.phases == []
    assert engine.step == 6
    spans = engine.take_spans()
    launched = {int(s["step"]) for s in spans if site_of(engine, s).kind == Kind.GRAPH}
    assert launched == {2, 3, 4}


def test_a_small_ring_loses_nothing():
    plan = model_plan("cuda-graph")
    small, large = timed_engine(plan, SpanRing(8)), timed_engine(plan, SpanRing(18))
    for engine in (small, large):
        engine.run("prompt", 5)
        engine.run("decode", 40)
        engine.drain()
    assert small.recorder.dropped == large.recorder.dropped == 0
    assert np.array_equal(small.take_spans(), large.take_spans())


def test_a_ring_that_is_smaller_than_a_step_counts_what_it_drops():
    plan = model_plan()
    small, large = timed_engine(plan, SpanRing(4)), timed_engine(plan)
    for engine in (small, large):
        engine.run("decode", 3)
    assert len(small.take_spans()) + small.recorder.dropped == len(large.take_spans())
    assert small.recorder.dropped > 0


def test_spans_are_taken_once():
    engine = timed_engine(model_plan())
    assert len(engine.take_spans()) == 0
    engine.run("decode", 1)
    first = engine.take_spans()
    assert len(first) and not len(engine.take_spans())
    engine.run("decode", 1)
    assert set(engine.take_spans()["step"]) == {1}


# ---- ends ---------------------------------------------------------------------------------------


def test_a_stop_ends_the_run_between_two_steps_and_the_next_run_goes_on():
    engine = timed_engine(model_plan())
    engine.run("decode", 2)
    engine.stop()
    assert engine.run("decode", 5) == 0
    assert engine.phases == ["decode"] * 2
    assert engine.run("decode", 5) == 5
    spans = engine.take_spans()
    steps = spans["step"][spans["role"] == CALL]
    assert np.array_equal(np.unique(steps), np.arange(7))


def test_another_thread_can_stop_a_long_run_and_what_ran_is_kept():
    engine = timed_engine(make_plan("sync s; sync t"), SpanRing(10))
    timer = threading.Timer(0.03, engine.stop)
    timer.start()
    done = engine.run("decode", 1 << 40)
    timer.join()
    assert 0 < done < 1 << 40
    assert engine.step == done == len(engine.phases)
    assert len(engine.take_spans()) == 2 * done
    assert engine.recorder.dropped == 0


def test_a_fault_ends_the_run_and_keeps_what_was_recorded():
    engine = model_engine(model_plan())
    with pytest.raises(KernelFault) as caught:
        engine.run("prompt", 10)  # runs out of KV rows
    assert engine.step == caught.value.step + 1
    assert engine.phases == ["prompt"] * engine.step
    spans = engine.take_spans()
    assert set(spans["step"]) == set(range(engine.step))
    last = spans[spans["role"] == CALL][-1]
    assert site_of(engine, last).name == caught.value.site


def test_a_closed_engine_runs_nothing():
    engine = timed_engine(model_plan())
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="bind one first"):
        engine.run("decode", 1)


def test_lanes_are_host_threads_then_streams():
    engine = timed_engine(make_plan("t k1 w d", "s t@1"))
    assert [(each.name, each.kind, each.device) for each in engine.lanes] == [
        ("host thread 0", "host", -1),
        ("s", "stream", 0),
        ("t", "stream", 1),
    ]


def test_executions_of_consecutive_steps_overlap_the_host_where_nothing_waits():
    engine = timed_engine(make_plan("s k500 w d"))
    engine.run("decode", 3)
    spans = engine.take_spans()
    runs = spans[spans["role"] == EXEC]
    assert all(b["begin_ns"] == a["end_ns"] for a, b in pairwise(runs))
    assert spans[spans["role"] == CALL]["end_ns"].max() < runs["end_ns"][0]
