"""The baseline plan issues what llama.cpp issues, in its order."""

import json

import pytest

from helpers.plans import INPUTS, SIZES, model_plan, toy_graph
from helpers.shared import shared_path
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.graph import HOST
from syncscope.sched_core.pattern import count_syncs, plan_pattern
from syncscope.sched_core.planner import GETTERS, compute_stream, copy_stream, plan_baseline
from syncscope.sched_core.records import PHASES, Access, Kind

COMPUTE, COPIES = compute_stream(0), copy_stream(0)


@pytest.fixture(scope="module")
def plan():
    return model_plan()


def input_sites(name):
    first = ("sync_dst", "sync_dst_again") if name == "embd" else ("sync_before",)
    return [f"input.{name}.{what}" for what in (*first, "copy", "sync_after")]


def test_a_phase_is_host_work_then_inputs_then_the_model_then_the_output(plan):
    sites = [op.site for op in plan.phases["decode"]]
    model = [op.site for op in plan.phases["decode"] if op.kind == Kind.LAUNCH]
    assert sites == [
        *(f"input.{name}.write" for name in INPUTS[1:]),
        "input.embd.compute",
        *(site for name in INPUTS for site in input_sites(name)),
        *model,
        "logits.copy",
        *(f"logits.get{i}.sync" for i in range(GETTERS)),
        "sample",
        "sample.accept",
    ]
    assert model[0] == "layer.0.qkv" and model[-1] == "logits"


def test_sites_of_decode_are_those_of_the_vocabulary():
    known = json.loads(shared_path("vocabulary.json").read_text(encoding="utf-8"))
    expected = known["baseline_decode"]
    assert tuple(expected["inputs"]) == INPUTS
    wanted = []
    for site in expected["sites"]:
        if "<name>" not in site:
            wanted.append(site)
        elif site.endswith(".sync_before"):
            wanted += [each for name in INPUTS[1:] for each in input_sites(name)]
    found = model_plan("cuda-graph").phases["decode"]
    hidden = {"input.embd.compute", "sample.accept"}
    shown = [
        op.site
        for op in found
        if (op.graph < 0 or op.kind == Kind.GRAPH)
        and op.site not in hidden
        and not op.site.endswith(".write")
    ]
    assert shown == wanted


def test_decode_has_13_syncs_before_the_launch_and_5_after(plan):
    text = plan_pattern(plan.phases["decode"])
    assert text == "ssassassassassassasgasssss"
    assert count_syncs(text) == (18, 13, 5)


def test_phases_differ_only_in_the_output(plan):
    sites = {phase: [op.site for op in plan.phases[phase]] for phase in PHASES}
    assert tuple(plan.phases) == PHASES
    assert sites["prompt_last"] == sites["decode"]
    assert sites["prompt"] == sites["decode"][: len(sites["prompt"])]
    assert sites["prompt"][-1] == "logits"


def test_out_ids_keeps_one_row_in_every_phase(plan):
    for phase in PHASES:
        copied = plan.op(phase, "input.out_ids.copy").accesses
        assert [(each.begin, each.end) for each in copied] == [(0, -1), (0, -1)]
    assert plan.buffer("out_ids").nbytes == 4


def test_inputs_go_on_the_per_thread_stream_between_syncs_of_both_streams(plan):
    ops = plan.phases["decode"]
    for name in INPUTS:
        *before, copy, after = (op for op in ops if op.site in input_sites(name))
        assert [op.stream for op in before] == [COMPUTE] * len(before)
        assert (copy.stream, after.stream) == (COPIES, COPIES)
        assert not copy.blocking
        assert [each.buffer for each in copy.accesses] == [name, f"{name}.dev0"]
        assert all(op.scope == "stream" for op in (*before, after))


def test_kernels_and_the_output_copy_share_the_compute_stream(plan):
    ops = plan.phases["decode"]
    assert {op.stream for op in ops if op.kind == Kind.LAUNCH} == {COMPUTE}
    assert plan.op("decode", "logits.copy").stream == COMPUTE
    assert {plan.op("decode", f"logits.get{i}.sync").stream for i in range(GETTERS)} == {COMPUTE}
    kinds = {each.name: each.kind for each in plan.streams}
    assert kinds == {COMPUTE: "nonblocking", COPIES: "per_thread_default"}


def test_what_is_copied_is_pinned_and_what_only_the_host_uses_is_pageable(plan):
    memory = {each.name: each.memory for each in plan.buffers}
    assert {memory[name] for name in INPUTS} == {"pinned"}
    assert memory["logits.host"] == "pinned"
    assert {memory[name] for name in ("tokens", "cursor", "token_embd.weight")} == {"pageable"}
    assert {memory[f"{name}.dev0"] for name in INPUTS} == {"device"}
    assert {memory[name] for name in ("k_cache.0", "x", "logits", "tap")} == {"device"}
    assert all((each.device >= 0) == (each.memory == "device") for each in plan.buffers)
    assert all(each.depth == 1 for each in plan.buffers)


def test_every_copy_from_the_host_has_a_pinned_source(plan):
    for ops in plan.phases.values():
        for op in ops:
            if op.kind == Kind.COPY:
                assert {plan.buffer(each.buffer).memory for each in op.accesses} == {
                    "pinned",
                    "device",
                }


def test_a_buffer_is_as_large_as_its_largest_phase_and_a_phase_uses_its_own_bytes(plan):
    assert plan.buffer("pos").nbytes == 4 * SIZES["prompt"]
    for phase, tokens in SIZES.items():
        used = 4 * tokens
        end = -1 if used == plan.buffer("pos").nbytes else used
        for site, place in (("input.pos.write", 1), ("input.pos.copy", 0), ("input.pos.copy", 1)):
            found = plan.op(phase, site).accesses[place]
            assert (found.begin, found.end) == (0, end)
        qkv = plan.op(phase, "layer.0.qkv")
        assert Access("pos.dev0", False, 0, end) in qkv.accesses


def test_accesses_stand_in_the_order_of_the_kernels_arguments(plan):
    attention = plan.op("decode", "layer.1.attention")
    assert [(each.buffer, each.write) for each in attention.accesses] == [
        ("q", False),
        ("k_cache.1", False),
        ("v_cache.1", False),
        ("mask.dev0", False),
        ("att", True),
    ]


def test_the_host_samples_from_its_own_copy_of_the_logits(plan):
    reads, writes = plan.op("decode", "sample").accesses
    assert (reads.buffer, writes.buffer) == ("logits.host", "token")


def test_sites_are_unique_in_their_phase(plan):
    for ops in plan.phases.values():
        assert len({op.site for op in ops}) == len(ops)


def test_a_tensor_that_another_device_computed_cannot_be_planned_yet():
    with pytest.raises(UsageError, match="decode: device 1 needs x1 of device 0"):
        plan_baseline({"decode": toy_graph(HOST, 0, 1)})


def test_a_model_on_another_device_names_it_in_streams_and_sites():
    plan = plan_baseline({"prompt": toy_graph(HOST, 1)})
    assert [each.name for each in plan.streams] == [compute_stream(1), copy_stream(1)]
    sites = [op.site for op in plan.phases["prompt"]]
    assert "input.ids.dev1.copy" in sites and "input.x0.dev1.sync_dst_again" in sites


def test_the_hosts_own_result_takes_three_syncs_and_a_user_input_two():
    plan = plan_baseline({"prompt": toy_graph(HOST, 0)})
    assert plan_pattern(plan.phases["prompt"]) == "ssas" + "sas" + "g"
