"""Passes: what each makes of the baseline, and what holds for any set of them."""

import copy
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.plans import INPUTS, chain, make_plan, model_plan, run_by_hand, without
from helpers.programs import QUICK, data_orders
from syncscope.sched_core.capabilities import CAPABILITIES, CUDA
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.passes import registry
from syncscope.sched_core.passes.base import Refused
from syncscope.sched_core.passes.registry import (
    NOT_BUILT,
    PASSES,
    PRESETS,
    apply_passes,
    available_presets,
    parse_pass,
    preset_passes,
)
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.planner import compute_stream, copy_stream
from syncscope.sched_core.program import unroll
from syncscope.sched_core.records import PHASES, Access, Kind

BASELINE = model_plan()
COMPUTE, COPIES = compute_stream(0), copy_stream(0)


def applied(*passes, capabilities=CUDA, plan=BASELINE):
    return apply_passes(plan, passes, capabilities)


def patterns(*passes):
    """Patterns with every guard kept."""
    return {phase: plan_pattern(ops) for phase, ops in chain(BASELINE, *passes).phases.items()}


def decode(*passes):
    return patterns(*passes)["decode"]


# ---- patterns -----------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [(), ("cuda-graph",)])
def test_patterns_pass_by_pass(graph):
    steps = [
        ("async-input-copies", "ssassassassassassasgasssss"),
        ("batch-input-syncs", "saaaaaasgasssss"),
        ("pack-inputs", "sasgasssss"),
        ("drop-leading-sync", "asgasssss"),
        ("drop-trailing-sync", "Eaegasssss"),
        ("input-slot-ring=2", "Eaegasssss"),
        ("repeat-sync-elision", "Eaegas"),
        ("logits-event-sync", "EaegaeE"),
        ("device-sampling", "EaegaeE"),
    ]
    so_far = list(graph)
    for name, expected in steps:
        so_far.append(name)
        assert decode(*so_far) == expected


def test_patterns_of_the_presets_in_every_phase():
    head = "ssassassassassassasg"
    assert patterns() == patterns("cuda-graph")
    assert patterns() == {
        "prompt": head,
        "prompt_last": f"{head}asssss",
        "decode": f"{head}asssss",
    }
    assert patterns(*PRESETS["saaasg"])["prompt"] == "saaaaaasg"
    assert patterns(*PRESETS["aaag"])["prompt"] == "Eaaaaaaeg"
    full = [each for each in PRESETS["all"] if each not in NOT_BUILT]
    assert patterns(*full) == {"prompt": "Eaeg", "prompt_last": "EaegaeE", "decode": "EaegaeE"}


def test_baseline_with_elision_alone():
    assert decode("repeat-sync-elision") == "sasasasasasasgas"


def test_logits_event_sync_alone_makes_every_getter_wait_for_the_event():
    assert decode("logits-event-sync") == "ssassassassassassasgaeEEEEE"


def test_the_guard_stands_before_the_host_writes_and_the_record_after_the_last_copy():
    sites = [op.site for op in chain(BASELINE, "drop-trailing-sync").phases["decode"]]
    assert sites[0] == "inputs.copied.sync"
    at = sites.index("inputs.copied.record")
    assert sites[at - 1] == "input.out_ids.copy"
    assert sites[at + 1] == "layer.0.qkv"


def test_the_logits_event_is_recorded_right_after_the_copy_and_waited_for_before_sampling():
    ops = applied("logits-event-sync", "repeat-sync-elision").plan.phases["decode"]
    assert [op.site for op in ops][-5:] == [
        "logits.copy",
        "logits.copied.record",
        "logits.copied.sync",
        "sample",
        "sample.accept",
    ]


def test_passes_leave_a_phase_without_their_site_alone():
    for name in ("logits-event-sync", "device-sampling"):
        assert applied(name).plan.phases["prompt"] == BASELINE.phases["prompt"]


# ---- single passes ------------------------------------------------------------------------------


def test_async_input_copies_move_copies_and_their_syncs_to_the_compute_stream():
    ops = applied("async-input-copies").plan.phases["decode"]
    assert {op.stream for op in ops if op.site.startswith("input.") and op.stream} == {COMPUTE}
    assert [op.site for op in ops] == [op.site for op in BASELINE.phases["decode"]]


def test_pack_inputs_gives_each_input_its_own_aligned_part_of_one_block():
    plan = applied("pack-inputs").plan
    parts = {}
    for phase in PHASES:
        for op in plan.phases[phase]:
            for each in op.accesses:
                if each.write and each.buffer == "inputs":
                    parts[op.site] = (each.begin, max(each.end, parts.get(op.site, (0, 0))[1]))
    taken = sorted(parts.values())
    assert len(taken) == len(INPUTS)
    assert all(begin % 256 == 0 for begin, _ in taken)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))
    assert taken[-1][1] <= plan.buffer("inputs").nbytes == plan.buffer("inputs.dev0").nbytes
    assert plan.buffer("inputs").memory == "pinned"
    assert not {name for name in INPUTS} & {each.name for each in plan.buffers}


def test_the_packed_copy_covers_what_the_kernels_of_its_phase_read():
    plan = applied("pack-inputs").plan
    for phase in PHASES:
        source, target = plan.op(phase, "inputs.copy").accesses
        assert (source.begin, source.end) == (target.begin, target.end) == (0, source.end)
        reads = [
            each.end
            for op in plan.phases[phase]
            if op.kind == Kind.LAUNCH
            for each in op.accesses
            if each.buffer == "inputs.dev0"
        ]
        assert source.end == max(reads)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_ring_gives_host_slots_and_events_the_depth_and_device_buffers_one_slot(depth):
    plan = applied(f"input-slot-ring={depth}").plan
    deep = {each.name for each in plan.buffers if each.depth == depth}
    assert deep == set(INPUTS)
    assert {each.depth for each in plan.buffers if each.name not in deep} == {1}
    assert [(each.name, each.depth) for each in plan.events] == [("inputs.copied", depth)]


def test_the_ring_gives_device_slots_too_where_copies_run_on_another_stream():
    plan = PASSES["input-slot-ring"].apply(BASELINE, 3)
    deep = {each.name for each in plan.buffers if each.depth == 3}
    assert deep == {*INPUTS, *(f"{name}.dev0" for name in INPUTS)}


def test_elision_keeps_a_sync_after_new_work_and_after_another_streams_sync():
    apply = PASSES["repeat-sync-elision"].apply

    def kept(text):
        return [op.site for op in apply(make_plan(text), 0).phases["decode"]]

    assert kept("a: sync s; b: sync s; c: sync t; d: sync s") == ["a", "c"]
    for work in ("s k1 w d", "s copy h d", "s record e", "s wait e"):
        assert kept(f"a: sync s; w: {work}; b: sync s") == ["a", "w", "b"]
    assert kept("a: sync s; w: host k1 w h; b: sync s") == ["a", "w"]
    assert kept("a: sync s; w: t k1 w d; b: sync s") == ["a", "w"]
    assert kept("w: s record e; a: sync e; b: sync e") == ["w", "a", "b"]


def test_device_sampling_moves_the_kernel_into_the_graph_and_brings_back_the_token():
    plan = applied("device-sampling", "cuda-graph").plan
    sample, logits = plan.op("decode", "sample"), plan.op("decode", "logits")
    assert (sample.kind, sample.stream, sample.graph) == (Kind.LAUNCH, COMPUTE, logits.graph)
    assert [each.buffer for each in sample.accesses] == ["logits", "token.dev0"]
    copied = [each.buffer for each in plan.op("decode", "logits.copy").accesses]
    assert copied == ["token.dev0", "token"]
    assert plan.buffer("token.dev0").nbytes == 4
    assert "logits.host" not in {each.name for each in plan.buffers}


def test_cuda_graph_makes_one_graph_per_run_of_launches_of_a_stream():
    plan = make_plan("s k1 w d; s k2 w d; t k3 w d; sync s; t k4 w d", graphs=True)
    ops = plan.phases["decode"]
    assert [(op.site, op.graph) for op in ops if op.kind == Kind.GRAPH] == [
        ("graph", 0),
        ("graph.1", 1),
        ("graph.2", 2),
    ]
    assert [op.graph for op in ops if op.kind == Kind.LAUNCH] == [0, 0, 1, 2]


# ---- requests -----------------------------------------------------------------------------------


def test_what_a_pass_needs_is_pulled_in_and_reported_in_running_order():
    result = applied("input-slot-ring=3", "batch-input-syncs")
    assert result.pulled_in == ("async-input-copies", "drop-trailing-sync")
    assert result.plan.passes == (
        "async-input-copies",
        "batch-input-syncs",
        "drop-trailing-sync",
        "input-slot-ring=3",
    )
    assert result.refused == {}


def test_a_pass_runs_before_every_pass_that_needs_it():
    order = list(PASSES)
    for name, each in PASSES.items():
        assert all(order.index(need) < order.index(name) for need in each.needs)


def test_a_pass_without_a_site_is_refused_and_leaves_no_trace():
    prompt_only = model_plan(sizes={"prompt": 4})
    result = applied("logits-event-sync", "device-sampling", plan=prompt_only)
    assert result.refused == dict.fromkeys(("logits-event-sync", "device-sampling"), "no site here")
    assert result.plan == prompt_only
    getterless = without(BASELINE, *(f"logits.get{i}.sync" for i in range(5)))
    assert "logits-event-sync" in applied("logits-event-sync", plan=getterless).refused


@pytest.mark.parametrize("missing", CAPABILITIES)
def test_a_pass_whose_capability_is_missing_is_refused_and_so_is_what_needs_it(missing):
    capabilities = CUDA - {missing}
    result = applied(*PASSES, capabilities=capabilities)
    for name, each in PASSES.items():
        lost = [need for need in each.needs if need in result.refused]
        if missing in each.capabilities:
            assert result.refused[name] == f"not on this backend: it lacks {missing}"
        elif lost:
            assert result.refused[name] == f"needs {', '.join(lost)}, which was refused"
        else:
            assert name not in result.refused
    assert {text.partition("=")[0] for text in result.plan.passes} == set(PASSES) - set(
        result.refused
    )


def test_a_need_that_was_refused_is_not_reported_as_pulled_in():
    result = applied("pack-inputs", capabilities=CUDA - {"async_host_source"})
    assert result.pulled_in == ()
    assert list(result.refused) == ["async-input-copies", "batch-input-syncs", "pack-inputs"]
    assert result.plan == BASELINE


def test_a_pass_can_refuse_for_its_own_reason():
    sample = BASELINE.op("decode", "sample")
    wider = replace(sample, accesses=(*sample.accesses, Access("tokens", True)))
    ops = (wider if op is sample else op for op in BASELINE.phases["decode"])
    plan = replace(BASELINE, phases={"decode": tuple(ops)})
    with pytest.raises(Refused):
        PASSES["device-sampling"].apply(plan, 0)
    result = applied("device-sampling", "cuda-graph", plan=plan)
    assert result.refused == {"device-sampling": "the sampling kernel writes more than the token"}
    assert result.plan.passes == ("cuda-graph",)


def test_device_sampling_refuses_a_kernel_that_reads_what_only_the_host_has():
    sample = BASELINE.op("decode", "sample")
    curious = replace(sample, accesses=(Access("tokens", False), *sample.accesses))
    ops = (curious if op is sample else op for op in BASELINE.phases["decode"])
    plan = replace(BASELINE, phases={"decode": tuple(ops)})
    result = applied("device-sampling", plan=plan)
    assert result.refused == {
        "device-sampling": "the sampling kernel reads tokens, which is not on the device"
    }


@pytest.mark.parametrize("value", ["1", "5", "-2", "two", "", "2.0", "02", "9" * 5000, "²"])
def test_a_value_out_of_range_is_a_usage_error(value):
    with pytest.raises(UsageError, match=r"input-slot-ring: depth .* outside 2\.\.4"):
        applied(f"input-slot-ring={value}")


def test_values():
    assert parse_pass("input-slot-ring") == ("input-slot-ring", 2)
    assert parse_pass(" input-slot-ring=4 ") == ("input-slot-ring", 4)
    assert parse_pass("cuda-graph") == ("cuda-graph", 0)
    with pytest.raises(UsageError, match="pass cuda-graph takes no value"):
        parse_pass("cuda-graph=1")


def test_the_last_value_asked_for_counts():
    assert applied("input-slot-ring=2", "input-slot-ring=4").plan.passes[-1] == "input-slot-ring=4"


def test_unknown_passes_name_the_nearest():
    with pytest.raises(UsageError, match=r"unknown pass cuda-grph; did you mean cuda-graph\?"):
        applied("cuda-grph")


@pytest.mark.parametrize("name", NOT_BUILT)
def test_a_pass_that_is_not_built_says_so(name):
    with pytest.raises(UsageError, match=f"pass {name} is not built yet"):
        applied(name)
    result = apply_passes(BASELINE, [name, "cuda-graph"], CUDA, filtered=True)
    assert result.refused == {name: "not built yet"}
    assert result.plan.passes == ("cuda-graph",)


def test_every_available_preset_applies():
    for preset in available_presets():
        result = apply_passes(BASELINE, preset_passes(preset), CUDA, filtered=True)
        assert set(result.refused) <= set(NOT_BUILT)


def test_unavailable_and_unknown_presets_say_what_to_do():
    for preset in set(PRESETS) - set(available_presets()):
        with pytest.raises(UsageError, match=f"preset {preset} needs .*not built yet"):
            preset_passes(preset)
    with pytest.raises(UsageError, match=r"unknown preset aag; did you mean .*aaag"):
        preset_passes("aag")


def test_presets_name_passes_or_presets():
    for members in PRESETS.values():
        for member in members:
            assert member.partition("=")[0] in {*PASSES, *NOT_BUILT, *PRESETS}
    assert set(registry.FILTERED_PRESETS) <= set(PRESETS)


# ---- any set of passes --------------------------------------------------------------------------

REQUESTS = st.lists(
    st.sampled_from([*PASSES, "input-slot-ring=3", "input-slot-ring=4"]), unique=True
)
CAPABILITY_SETS = st.one_of(st.just(CUDA), st.sets(st.sampled_from(CAPABILITIES)))


@QUICK
@given(REQUESTS, CAPABILITY_SETS)
def test_any_passes_leave_a_plan_that_can_be_issued(requested, capabilities):
    before = copy.deepcopy(BASELINE)
    result = applied(*requested, capabilities=capabilities)
    plan = result.plan
    assert before == BASELINE, "a pass changed its input"
    assert plan.passes == tuple(
        sorted(plan.passes, key=lambda text: list(PASSES).index(text.partition("=")[0]))
    )
    names = {
        "buffer": [each.name for each in plan.buffers],
        "stream": [each.name for each in plan.streams],
        "event": [each.name for each in plan.events],
    }
    for each in names.values():
        assert len(each) == len(set(each))
    for phase in PHASES:
        ops = plan.phases[phase]
        assert len({op.site for op in ops}) == len(ops)
        for op in ops:
            assert op.stream in ("", *names["stream"])
            assert op.event in ("", *names["event"])
            assert all(each.buffer in names["buffer"] for each in op.accesses)
            assert op.origin in ("baseline", *PASSES)
    unroll(plan, ["prompt"] * 3 + ["prompt_last"] + ["decode"] * 3)


@settings(QUICK, max_examples=20)
@given(st.permutations(list(PASSES)), st.integers(0, len(PASSES)))
def test_the_order_of_the_request_does_not_matter(order, n):
    requested = order[:n]
    assert applied(*requested).plan == applied(*sorted(requested)).plan


def test_each_pass_alone_leaves_its_input_unchanged():
    plan = BASELINE
    for name, each in PASSES.items():
        before = copy.deepcopy(plan)
        changed = each.apply(plan, parse_pass(name)[1])
        assert plan == before
        plan = changed


PARTS = {}
for _name in INPUTS:
    PARTS[sum(-(-BASELINE.buffer(each).nbytes // 256) * 256 for each in PARTS.values())] = _name


def work(plan):
    """Kernels with their arguments per phase, packed inputs named as what they hold."""

    def argument(access):
        name, begin, end = access.buffer, access.begin, access.end
        if name in ("inputs", "inputs.dev0"):
            name = PARTS[begin] + name.removeprefix("inputs")
            begin, end = 0, end - begin
        whole = {each.name: each.nbytes for each in BASELINE.buffers}[name]
        return name, access.write, begin, whole if end < 0 else end

    return {
        phase: Counter((op.kernel, tuple(map(argument, op.accesses))) for op in ops if op.kernel)
        for phase, ops in plan.phases.items()
    }


@QUICK
@given(REQUESTS)
def test_scheduling_only_passes_keep_every_kernel_and_its_arguments(requested):
    only = [name for name in requested if PASSES[name.partition("=")[0]].scheduling_only]
    assert work(applied(*only).plan) == work(BASELINE)


def test_device_sampling_is_not_scheduling_only():
    assert not PASSES["device-sampling"].scheduling_only
    assert applied("device-sampling").plan.buffer("token.dev0")


@QUICK
@given(REQUESTS)
def test_no_set_of_passes_makes_a_hazard_in_any_data_order(requested):
    plan = applied(*requested).plan
    phases = (["prompt"] * 4 + ["prompt_last"] + ["decode"] * 4) * 2
    for late in data_orders(plan):
        backend, _ = run_by_hand(plan, phases, late)
        assert backend.counts[:2] == (0, 0), backend.stale_reads()[:3]


@pytest.mark.parametrize(
    ("passes", "site"),
    [
        (("batch-input-syncs",), "inputs.sync_after"),
        (("drop-trailing-sync",), "inputs.copied.sync"),
        (("drop-leading-sync", "input-slot-ring=2"), "inputs.copied.sync"),
        (("logits-event-sync", "repeat-sync-elision"), "logits.copied.sync"),
        (("device-sampling", "repeat-sync-elision"), "logits.get0.sync"),
    ],
)
def test_the_sync_that_a_pass_leaves_is_needed(passes, site):
    plan = without(applied(*passes).plan, site)
    phases = ["prompt"] * 4 + ["prompt_last"] + ["decode"] * 4
    assert any(any(run_by_hand(plan, phases, late)[0].counts[:2]) for late in data_orders(plan))
