"""What a run must show: same output in every variant, and harm where a needed sync is dropped."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from helpers.stories import (
    BOS,
    stories_expected,
    stories_model,
    stories_tokenizer,
    tinystories_ids,
)
from syncscope.app import session
from syncscope.app.devices import SimDevice
from syncscope.app.interrupts import Interrupts
from syncscope.app.session import run_bench, run_plan
from syncscope.app.variants import REFERENCE, Planned, Variant, plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.passes.registry import PASSES, available_presets
from syncscope.sched_core.planner import compute_stream, copy_stream
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.records import Plan
from syncscope.sched_core.sim_backend import SimBackend
from syncscope.sched_core.verdict import analyse

EAGER = SimDevice(load_profile("h200"))
ADVERSARIAL = SimDevice(load_profile("h200"), adversarial=True)
COMPUTE, COPIES = compute_stream(0), copy_stream(0)


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny")


def prompt_of(model, length):
    ids = model.tokenizer.encode("The quick brown fox jumps over the lazy dog, and then once more.")
    return tuple((ids * 8)[:length])


def run(workload, device, *variants):
    return {each.id: each for each in run_bench(workload, device, variants).variants}


def run_once(workload, planned, late):
    return run_plan(workload, ADVERSARIAL, planned, late, lambda *_: None, Interrupts())


def dropped(preset, *sites):
    return preset_variant(preset, drop=sites, allow_hazards=True)


# ---- exactness ----------------------------------------------------------------------------------


def test_stories260k_greedy_ids_and_text_are_those_of_an_independent_implementation():
    expected = stories_expected()["greedy_from_bos"]
    workload = Workload(stories_model(), (BOS,), expected["tokens"] - 1, 512)
    for variant in run(workload, EAGER, preset_variant("all")).values():
        assert [BOS, *variant.token_ids] == expected["ids"]
        assert stories_tokenizer().decode([BOS, *variant.token_ids]) == expected["text"]


def test_stories260k_nll_is_that_of_an_independent_implementation():
    expected = stories_expected()["nll_per_token"]
    model = stories_model()
    ids = tinystories_ids(stories_tokenizer())
    losses = []
    for begin in range(0, len(ids) - 1, 512):
        targets = ids[begin + 1 : begin + 513]
        losses += losses_of(model, ids[begin : begin + len(targets)], targets)
    assert len(losses) == expected["tokens"]
    assert np.mean(losses) == pytest.approx(expected["safetensors"], abs=0.001)


def losses_of(model, ids, targets):
    """Negative log-likelihood of each target after its inputs, one token a step."""
    workload = Workload(model, tuple(ids), 1, 1)
    backend = SimBackend(EAGER.profile, workload.kernels())
    backend.load(workload.contents())
    engine = Engine(backend, plan_variant(workload.plan(), REFERENCE).plan)
    for phase, steps in workload.segments:
        engine.run(phase, steps)
    engine.drain()
    logits = backend.read("tap").view(np.float32).reshape(-1, model.config.V)
    logits = logits[: len(ids)].astype(np.float64)
    top = logits.max(axis=1)
    log_sum = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
    return list(log_sum - logits[np.arange(len(ids)), targets])


@pytest.mark.parametrize("ubatch", [1, 5, 8, 512])
def test_every_preset_gives_the_same_tokens_and_logits(tiny, ubatch):
    workload = Workload(tiny, prompt_of(tiny, 21), 12, ubatch)
    variants = [preset_variant(name) for name in available_presets() if name != "baseline"]
    results = run(workload, EAGER, *variants)
    assert set(results) == set(available_presets())
    assert len({each.logits_sha256 for each in results.values()}) == 1
    assert len({each.token_ids for each in results.values()}) == 1
    assert all(each.bit_exact and not each.harmed for each in results.values())


def test_micro_batches_do_not_change_the_tokens(tiny):
    tokens = set()
    for ubatch in (1, 3, 7, 64):
        workload = Workload(tiny, prompt_of(tiny, 20), 10, ubatch)
        tokens.add(run(workload, EAGER)["baseline"].token_ids)
    assert len(tokens) == 1


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_alone_with_what_it_needs_is_exact_in_every_data_order(tiny, name):
    workload = Workload(tiny, prompt_of(tiny, 20), 6, 8)
    variant = preset_variant("no-graph", [name])
    result = run(workload, ADVERSARIAL, variant)[variant.id]
    assert name in [each.partition("=")[0] for each in result.passes]
    assert len(result.orders) == 4
    assert result.bit_exact and not result.harmed


def test_another_prompt_gives_other_logits(tiny):
    one = run(Workload(tiny, prompt_of(tiny, 20), 4, 8), EAGER)["baseline"]
    other = run(Workload(tiny, prompt_of(tiny, 20)[::-1], 4, 8), EAGER)["baseline"]
    assert one.logits_sha256 != other.logits_sha256


# ---- patterns, counted from what was executed ----------------------------------------------------


def test_executed_patterns_and_counts_are_those_of_llama_cpp(tiny):
    workload = Workload(tiny, prompt_of(tiny, 20), 8, 8)
    results = run(workload, EAGER, preset_variant("saaasg"), preset_variant("all"))
    baseline, saaasg, best = (results[name].metrics for name in ("baseline", "saaasg", "all"))
    assert baseline.patterns["decode"] == "ssassassassassassasgasssss"
    assert (baseline.syncs_before_launch, baseline.syncs_after_launch) == (13, 5)
    assert saaasg.patterns["decode"] == "saaaaaasgasssss"
    assert saaasg.syncs_per_step == 7
    assert best.patterns == {"prompt": "Eaeg", "prompt_last": "EaegaeE", "decode": "agaeE"}
    assert (best.syncs_before_launch, best.syncs_after_launch) == (0, 1)
    assert baseline.step_us[0] > saaasg.step_us[0] > best.step_us[0]


# ---- hazards -------------------------------------------------------------------------------------


def test_saaasg_without_its_trailing_sync_harms_a_prompt_of_three_micro_batches(tiny):
    variant = dropped("saaasg", "inputs.sync_after")
    workload = Workload(tiny, prompt_of(tiny, 24), 8, 8)
    result = run(workload, ADVERSARIAL, variant)[variant.id]
    assert result.stale_reads > 0
    assert result.bit_exact is False
    assert result.harmful_order == f"{COMPUTE} late, {COPIES} early"
    assert result.harmed


@pytest.mark.parametrize("depth", [1, 2])
def test_the_event_guard_keeps_the_same_prompt_safe(tiny, depth):
    extra = [f"input-slot-ring={depth}"] if depth > 1 else []
    variant = preset_variant("aaag", extra)
    result = run(Workload(tiny, prompt_of(tiny, 24), 8, 8), ADVERSARIAL, variant)[variant.id]
    assert not result.harmed and result.bit_exact


def test_in_decode_alone_the_same_drop_does_no_harm(tiny):
    variant = dropped("saaasg", "inputs.sync_after")
    result = run(Workload(tiny, prompt_of(tiny, 1), 12, 8), ADVERSARIAL, variant)[variant.id]
    assert not result.harmed and result.bit_exact


@pytest.mark.parametrize("length", [24, 1])
def test_baseline_without_the_syncs_after_its_copies_is_harmed(tiny, length):
    variant = dropped("baseline", "input.*.sync_after")
    workload = Workload(tiny, prompt_of(tiny, length), 8, 8)
    result = run(workload, ADVERSARIAL, variant)[variant.id]
    assert result.stale_reads > 0
    assert result.bit_exact is False


@pytest.mark.parametrize("length", [24, 1])
def test_two_slots_per_input_do_not_save_it(tiny, length):
    workload = Workload(tiny, prompt_of(tiny, length), 8, 8)
    planned = plan_variant(workload.plan(), dropped("baseline", "input.*.sync_after"))
    plan = with_two_slots(planned.plan)
    reference = run(workload, EAGER)["baseline"]
    runs = [
        run_plan(
            workload, ADVERSARIAL, with_plan(planned, plan), late, lambda *_: None, Interrupts()
        )
        for late in ADVERSARIAL.orders(plan)
    ]
    assert any(each.counts[0] for each in runs)
    assert any(each.token_ids != reference.token_ids for each in runs if each.counts[0])


def with_two_slots(plan: Plan) -> Plan:
    inputs = {
        access.buffer
        for ops in plan.phases.values()
        for op in ops
        if op.site.startswith("input.") and op.site.endswith(".copy")
        for access in op.accesses
    }
    assert len(inputs) == 12
    buffers = tuple(replace(b, depth=2) if b.name in inputs else b for b in plan.buffers)
    return replace(plan, buffers=buffers)


def with_plan(planned: Planned, plan: Plan) -> Planned:
    return replace(planned, plan=plan)


def test_two_slots_alone_keep_the_baseline_exact(tiny):
    workload = Workload(tiny, prompt_of(tiny, 24), 8, 8)
    planned = plan_variant(workload.plan(), REFERENCE)
    reference = run(workload, EAGER)["baseline"]
    for late in ADVERSARIAL.orders(planned.plan):
        plan = with_plan(planned, with_two_slots(planned.plan))
        result = run_once(workload, plan, late)
        assert not result.harmed
        assert (result.token_ids, result.logits) == (reference.token_ids, reference.logits_sha256)


def test_stale_inputs_never_crash_whatever_is_dropped(tiny):
    workload = Workload(tiny, prompt_of(tiny, 24), 6, 8)
    for preset in available_presets():
        variant = dropped(preset, "*")
        result = run(workload, ADVERSARIAL, variant)[variant.id]
        assert result.harmed


# ---- determinism ---------------------------------------------------------------------------------


def test_step_time_does_not_depend_on_the_data_order(tiny):
    workload = Workload(tiny, prompt_of(tiny, 24), 6, 8)
    planned = plan_variant(workload.plan(), preset_variant("saaasg"))
    spans = [
        run_plan(
            workload, ADVERSARIAL, planned, late, lambda *_: None, Interrupts()
        ).engine.take_spans()
        for late in ADVERSARIAL.orders(planned.plan)
    ]
    assert len(spans) == 4
    assert all(np.array_equal(spans[0], each) for each in spans[1:])


@pytest.mark.parametrize("device", [EAGER, ADVERSARIAL], ids=["eager", "adversarial"])
def test_the_same_seed_gives_the_same_spans_and_outputs(tiny, device):
    workload = Workload(tiny, prompt_of(tiny, 24), 6, 8)
    first, second = (run(workload, device, preset_variant("all")) for _ in range(2))
    for name, one in first.items():
        other = second[name]
        assert np.array_equal(one.trace.spans, other.trace.spans)
        assert (one.metrics, one.logits_sha256, one.text) == (
            other.metrics,
            other.logits_sha256,
            other.text,
        )


def test_a_run_without_compute_has_the_same_times(tiny):
    workload = Workload(tiny, prompt_of(tiny, 24), 6, 8)
    computed = run(workload, EAGER, preset_variant("all"))
    timed = run(workload, replace(EAGER, compute=False), preset_variant("all"))
    for name, one in computed.items():
        assert np.array_equal(one.trace.spans, timed[name].trace.spans)
        assert timed[name].text is None and timed[name].bit_exact is None


def test_a_run_without_compute_still_sees_stale_reads(tiny):
    device = replace(ADVERSARIAL, compute=False)
    variant = dropped("saaasg", "inputs.sync_after")
    result = run(Workload(tiny, prompt_of(tiny, 24), 4, 8), device, variant)[variant.id]
    assert result.stale_reads > 0


# ---- requests ------------------------------------------------------------------------------------


def test_a_prompt_that_does_not_fit_is_refused_with_the_room_there_is(tiny):
    with pytest.raises(UsageError, match="--tokens 3 or less"):
        Workload(tiny, prompt_of(tiny, tiny.config.context - 2), 4, 8)
    Workload(tiny, prompt_of(tiny, tiny.config.context - 2), 3, 8)


@pytest.mark.parametrize(("tokens", "ubatch"), [(0, 8), (-1, 8), (4, 0)])
def test_counts_below_one_are_refused(tiny, tokens, ubatch):
    with pytest.raises(UsageError, match="must be at least 1"):
        Workload(tiny, prompt_of(tiny, 4), tokens, ubatch)


def test_a_variant_asked_for_twice_is_refused(tiny):
    workload = Workload(tiny, prompt_of(tiny, 4), 2, 8)
    with pytest.raises(UsageError, match="twice"):
        run_bench(workload, EAGER, [preset_variant("all"), preset_variant("all")])


def test_a_wrong_variant_is_refused_before_anything_runs(tiny, monkeypatch):
    monkeypatch.setattr(session, "run_plan", lambda *_: pytest.fail("ran"))
    workload = Workload(tiny, prompt_of(tiny, 4), 2, 8)
    with pytest.raises(UsageError, match="no such sync site"):
        run_bench(workload, EAGER, [dropped("saaasg", "inputs.sync_aftr")])
    with pytest.raises(UsageError, match="unknown pass"):
        run_bench(workload, EAGER, [Variant("x", ("cuda-grph",))])


def test_an_interrupt_keeps_what_was_recorded(tiny):
    def interrupt(variant, done, total):
        if variant == "all" and done > 60:
            signal.raise_signal(signal.SIGINT)

    workload = Workload(tiny, prompt_of(tiny, 4), 200, 8)
    result = run_bench(workload, EAGER, [preset_variant("all")], interrupt)
    assert result.interrupted
    assert [each.id for each in result.variants] == ["baseline", "all"]
    last = result.variants[-1]
    assert 60 < len(last.trace.phases) < 200
    assert len(last.token_ids) == len(last.trace.phases)
    assert last.token_ids == result.variants[0].token_ids[: len(last.token_ids)]


def test_an_interrupt_while_a_result_is_put_together_loses_nothing(tiny, monkeypatch):
    asked = []

    def interrupted(*arguments):
        asked.append(arguments)
        if len(asked) == 1:
            signal.raise_signal(signal.SIGINT)
        return analyse(*arguments)

    monkeypatch.setattr(session, "analyse", interrupted)
    result = run_bench(Workload(tiny, prompt_of(tiny, 4), 8, 8), EAGER, [])
    assert result.interrupted
    assert len(result.variants[0].trace.phases) == 8


def test_rounds_go_back_and_forth_and_pool_their_steps(tiny):
    seen = []
    workload = Workload(tiny, prompt_of(tiny, 4), 8, 8)
    result = run_bench(
        workload, EAGER, [preset_variant("all")], lambda name, *_: seen.append(name), rounds=3
    )
    order = [name for i, name in enumerate(seen) if i == 0 or seen[i - 1] != name]
    assert order == ["baseline", "all", "baseline", "all"]
    once = run_bench(workload, EAGER, [preset_variant("all")])
    assert [each.metrics for each in result.variants] == [each.metrics for each in once.variants]


def test_variants_list_what_was_refused_and_pulled_in(tiny):
    workload = Workload(tiny, prompt_of(tiny, 4), 2, 8)
    variant = preset_variant("baseline", ["pack-inputs"])
    results = run(workload, EAGER, variant, preset_variant("all"))
    assert any("batch-input-syncs" in note for note in results[variant.id].notes)
    assert results["all"].refused["moe-device-routing"] == "not built yet"
