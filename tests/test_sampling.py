"""Seeded draws: the host kernel against an independent one, and against the probabilities."""

from contextlib import closing
from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from helpers.draws import (
    KINDS,
    ONE,
    awkward_logits,
    exp_f32,
    expected_token,
    host_token,
    kept,
    mix,
    random_bits,
    sample_instance,
    settings,
    weights,
)
from syncscope.app.devices import SimDevice, pack_parameters
from syncscope.app.session import run_bench
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.kernels.sampling import GREEDY, Sampling
from syncscope.kernels.signature import KERNELS
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.passes.registry import available_presets
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.records import Kind

EAGER = SimDevice(load_profile("h200"))
ADVERSARIAL = SimDevice(load_profile("h200"), adversarial=True)
WARM = Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=7)

floats = st.floats(width=32, allow_nan=True, allow_infinity=True)
few = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, float("inf"), float("-inf"), float("nan")])
logit_lists = st.one_of(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=70),
    st.lists(floats, min_size=1, max_size=40),
    st.lists(few, min_size=1, max_size=40),
)


# ---- one draw -----------------------------------------------------------------------------------


@hypothesis_settings(max_examples=500, deadline=None)
@given(
    logit_lists,
    st.lists(st.integers(0, 1 << 30), min_size=1, max_size=3),
    st.floats(1e-4, 1e4),
    st.integers(0, 80),
    st.floats(1e-6, 1.0),
    st.integers(0, (1 << 53) - 1),
)
def test_the_host_kernel_draws_what_an_independent_draw_does(
    logits, pos, temperature, top_k, top_p, seed
):
    values = np.array(logits, np.float32)
    changed = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    assert host_token(values, pos, **changed) == expected_token(values, pos, **changed)


@pytest.mark.parametrize("size", [1, 2, 31, 97, 1025, 5003])
@pytest.mark.parametrize("kind", KINDS)
def test_awkward_logits_are_drawn_from_alike(kind, size):
    logits = awkward_logits(kind, size, size)
    for changed in settings(size):
        full = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0, **changed}
        for position in (0, 11):
            assert host_token(logits, [position], **full) == expected_token(
                logits, [position], **full
            )


def test_the_largest_vocabulary_is_drawn_from_alike():
    logits = awkward_logits("normal", 128256, 5) * np.float32(3)
    for changed in settings(len(logits))[:2]:
        full = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0, **changed}
        for position in range(5):
            assert host_token(logits, [position], **full) == expected_token(
                logits, [position], **full
            )


def test_weights_are_the_exponential_to_a_float_and_a_part():
    x = -np.linspace(0, 28, 200_001).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(exp_f32(x) - exact) <= 2.4e-7 * exact).all()
    found = np.array(weights(x, 1.0), np.float64)
    assert found[0] == ONE
    assert (np.abs(found - exact * ONE) <= 1 + 2.4e-7 * exact * ONE).all()


@pytest.mark.parametrize(
    ("logits", "tokens"),
    [
        ([np.nan, np.nan], {0}),
        ([np.nan, -np.inf, np.nan, -np.inf], {1, 3}),
        ([5, np.inf, np.nan, np.inf, -np.inf], {1, 3}),
        ([np.nan, 1, -np.inf, 1, 0.5], {1, 3, 4}),
        ([-0.0, 0.0, -1e9], {0, 1}),
        ([3.4e38, -3.4e38], {0}),
    ],
)
def test_what_is_no_finite_number_has_a_defined_draw(logits, tokens):
    found = {host_token(np.array(logits, np.float32), [position]) for position in range(64)}
    assert found == tokens


def test_of_equal_logits_the_first_are_kept():
    logits = np.array([1, 2, 3, 3, 2, 3, 2, np.nan], np.float32)
    for top_k, tokens in ((1, {2}), (2, {2, 3}), (4, {1, 2, 3, 5}), (5, {1, 2, 3, 4, 5})):
        found = {host_token(logits, [p], top_k=top_k, temperature=9.0) for p in range(400)}
        assert found == tokens
    even = np.zeros(10, np.float32)
    for top_p, n in ((0.05, 1), (0.1, 2), (0.5, 5), (0.51, 6)):  # a float's 0.1 is above 1/10
        found = {host_token(even, [p], top_p=top_p) for p in range(400)}
        assert found == set(range(n))


def test_top_p_is_taken_of_what_top_k_leaves():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    kept_by = {
        (top_k, top_p): {host_token(logits, [p], top_k=top_k, top_p=top_p) for p in range(400)}
        for top_k, top_p in ((0, 0.5), (2, 0.5), (0, 0.75), (3, 0.75))
    }
    assert kept_by == {(0, 0.5): {0, 1}, (2, 0.5): {0}, (0, 0.75): {0, 1, 2}, (3, 0.75): {0, 1}}


def test_a_low_temperature_takes_the_greatest_logit():
    for seed in range(50):
        logits = np.random.default_rng(seed).normal(size=300).astype(np.float32)
        assert host_token(logits, [seed], temperature=1e-4) == logits.argmax()
        assert host_token(logits, [seed], temperature=100.0, top_k=1) == logits.argmax()
        assert host_token(logits, [seed], temperature=1.0, top_p=1e-6) == logits.argmax()


def test_the_draw_is_numbered_by_the_last_position():
    logits = awkward_logits("normal", 500, 1)
    alone = [host_token(logits, [position]) for position in range(50)]
    assert [host_token(logits, [7, 9999, position]) for position in range(50)] == alone
    assert len(set(alone)) > 20


# ---- many draws ---------------------------------------------------------------------------------


def chi_square_limit(freedom):
    """Of a chi-square with that many degrees of freedom, what one in 10,000 exceeds.

    Wilson and Hilferty's approximation, with the normal quantile 3.719.
    """
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + 3.719 * sqrt(spread)) ** 3


def chi_square(tokens, probabilities):
    counts = np.bincount(tokens, minlength=len(probabilities))
    assert not counts[probabilities == 0].any()
    wanted = probabilities[probabilities > 0] * len(tokens)
    assert wanted.min() >= 5
    return float(((counts[probabilities > 0] - wanted) ** 2 / wanted).sum())


DRAWS = 20_000
SPREAD = np.random.default_rng(3).uniform(-2, 2, 37).astype(np.float32)


@pytest.mark.parametrize("numbered", ["position", "seed"])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.7, 0, 1.0), (2.5, 0, 1.0), (1.0, 9, 1.0), (1.0, 0, 0.8), (1.3, 20, 0.9)],
)
def test_tokens_come_as_often_as_their_probability_says(temperature, top_k, top_p, numbered):
    changed = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    tokens = [
        host_token(SPREAD, [n], seed=11, **changed)
        if numbered == "position"
        else host_token(SPREAD, [77], seed=n, **changed)
        for n in range(DRAWS)
    ]
    probabilities = np.exp(SPREAD.astype(np.float64) / temperature)
    left = kept(SPREAD, weights(SPREAD, temperature), top_k, top_p)
    probabilities[np.setdiff1d(np.arange(len(SPREAD)), left)] = 0
    probabilities /= probabilities.sum()
    assert chi_square(tokens, probabilities) < chi_square_limit(len(left) - 1)


def test_the_statistics_notice_a_wrong_temperature():
    tokens = [host_token(SPREAD, [n], temperature=1.1) for n in range(DRAWS)]
    probabilities = np.exp(SPREAD.astype(np.float64))
    assert chi_square(tokens, probabilities / probabilities.sum()) > 2 * chi_square_limit(36)


def test_a_token_does_not_tell_the_next_one():
    two = np.log([0.5, 0.5]).astype(np.float32)
    for seed in (0, 1, 2):
        bits = np.array([host_token(two, [n], seed=seed) for n in range(DRAWS)])
        of_next_seed = np.array([host_token(two, [n], seed=seed + 1) for n in range(DRAWS)])
        for other in (np.roll(bits, 1), of_next_seed):
            assert chi_square(2 * bits + other, np.full(4, 0.25)) < chi_square_limit(3)


def test_random_bits_are_those_of_splitmix64():
    """The published generator, started at 1234567, begins with these numbers."""
    step, state, found = 0x9E3779B97F4A7C15, 1234567, []
    for _ in range(5):
        state = (state + step) & ((1 << 64) - 1)
        found.append(mix(state))
    assert found == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
        16408922859458223821,
    ]  # fmt: skip
    assert len({random_bits(seed, n) for seed in range(40) for n in range(40)}) == 1600


# ---- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"temperature": -1.0}, "temperature -1.0: must be in 0.0001..10000.0, or 0"),
        ({"temperature": 1e-5}, "temperature 1e-05"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"top_p": 0.0}, "top-p 0.0: must be in 1e-06..1.0"),
        ({"top_p": 1.01}, "top-p 1.01"),
        ({"top_p": float("nan")}, "top-p nan"),
        ({"top_k": -1}, "top-k -1: must be in 0..16777216"),
        ({"seed": -1}, "sample seed -1: must be in 0..9007199254740991"),
        ({"seed": 1 << 53}, "sample seed 9007199254740992"),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_line(changed, line):
    with pytest.raises(UsageError) as refused:
        Sampling(**changed)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_kernel_refuses_a_temperature_of_zero():
    with pytest.raises(UsageError, match="temperature=0"):
        sample_instance(1, 5, temperature=0.0)


def test_the_greatest_seed_reaches_the_kernel_whole():
    logits = np.zeros(1 << 16, np.float32)
    greatest = (1 << 53) - 1
    tokens = {host_token(logits, [3], seed=seed) for seed in (greatest, greatest - 1, greatest - 2)}
    assert len(tokens) == 3
    assert host_token(logits, [3], seed=greatest) == random_bits(greatest, 4) >> 48


def test_parameters_reach_the_device_as_its_types():
    instance = sample_instance(2, 9, temperature=0.5, top_k=3, top_p=0.25, seed=(1 << 53) - 1)
    assert [each.hex() for each in pack_parameters(instance)] == [
        "02000000", "09000000", "0000003f", "03000000", "0000803e", "ffffffffffff1f00",
    ]  # fmt: skip


def test_a_draw_costs_the_simulator_what_argmax_does_and_the_position():
    sample, argmax = sample_instance(4, 100), KERNELS["argmax"].instance(V=100)
    assert (sample.moved, sample.work) == (argmax.moved + 4, argmax.work)


# ---- whole runs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny")


def workload_of(tiny, sampling, ubatch=8, n_tokens=16):
    prompt = tuple(tiny.tokenizer.encode("Alice looked at the Queen"))
    return Workload(tiny, prompt, n_tokens, ubatch, sampling)


def run(workload, device, *presets):
    return {
        each.id: each
        for each in run_bench(workload, device, [preset_variant(each) for each in presets]).variants
    }


def tapped(workload, preset):
    """Run a preset; return the tokens after the prompt, and the logits that each was drawn from."""
    with closing(EAGER.make_backend(workload, frozenset())) as backend:
        engine = Engine(backend, plan_variant(workload.plan(), preset_variant(preset)).plan)
        for phase, steps in workload.segments:
            engine.run(phase, steps)
        engine.drain()
        rows = backend.read("tap").view(np.float32).reshape(workload.n_kv, -1)
        first = len(workload.prompt)
        tokens = backend.read("tokens").view(np.int32)[first:].tolist()
        return tokens, rows[first - 1 : workload.n_positions].copy()


@pytest.mark.parametrize("sampling", [WARM, Sampling(1.0, seed=3)], ids=["cut", "plain"])
@pytest.mark.parametrize("device", [EAGER, ADVERSARIAL], ids=["eager", "adversarial"])
def test_every_preset_draws_the_same_tokens(tiny, device, sampling):
    presets = [each for each in available_presets() if each != "baseline"]
    results = run(workload_of(tiny, sampling), device, *presets)
    assert len({each.token_ids for each in results.values()}) == 1
    assert len({each.logits_sha256 for each in results.values()}) == 1
    assert all(each.bit_exact and not each.harmed and not each.hazards for each in results.values())
    assert any("device-sampling" in each.passes for each in results.values())


@pytest.mark.parametrize("preset", ["baseline", "all"])
def test_each_token_is_the_draw_from_the_logits_of_its_step(tiny, preset):
    workload = workload_of(tiny, WARM, n_tokens=24)
    tokens, rows = tapped(workload, preset)
    before = len(workload.prompt) - 1
    assert tokens == [
        expected_token(row, [before + n], WARM.temperature, WARM.top_k, WARM.top_p, WARM.seed)
        for n, row in enumerate(rows)
    ]
    assert tokens != rows.argmax(axis=1).tolist()


def test_micro_batches_do_not_change_the_draws(tiny):
    found = {
        run(workload_of(tiny, WARM, ubatch), EAGER, "all")["all"].token_ids
        for ubatch in (1, 3, 7, 64)
    }
    assert len(found) == 1


def test_seeds_give_texts_of_their_own_and_the_same_again(tiny):
    def text(seed):
        return run(workload_of(tiny, replace(WARM, seed=seed)), EAGER)["baseline"].text

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(4)}) == 4


def test_without_a_temperature_the_plan_is_the_greedy_one(tiny):
    greedy = workload_of(tiny, GREEDY).plan()
    assert workload_of(tiny, replace(GREEDY, top_k=5, seed=9)).plan() == greedy
    drawn = workload_of(tiny, WARM).plan().op("decode", "sample")
    assert greedy.op("decode", "sample").kernel == f"argmax(V={tiny.config.V})"
    assert drawn.kernel == (
        f"sample(T=1,V={tiny.config.V},temperature=0.8,top_k=40,top_p=0.95,seed=7)"
    )
    assert [each.buffer for each in drawn.accesses] == ["logits.host", "pos", "token"]


def test_on_the_device_the_draw_reads_the_position_there(tiny):
    baseline = workload_of(tiny, WARM).plan()
    plan = plan_variant(baseline, preset_variant("all")).plan
    for phase in ("prompt_last", "decode"):
        sample, logits = plan.op(phase, "sample"), plan.op(phase, "logits")
        assert (sample.kind, sample.stream, sample.graph) == (
            Kind.LAUNCH, logits.stream, logits.graph,
        )  # fmt: skip
        assert sample.accesses[1] == logits.accesses[2]  # both read pos
        assert sample.accesses[1].buffer.endswith(".dev0")


def test_probabilities_of_the_model_are_sampled(tiny):
    """The first token over many seeds is spread as the softmax of its logits says."""
    _, (row,) = tapped(workload_of(tiny, GREEDY, n_tokens=1), "baseline")
    tokens = np.array([host_token(row, [9], seed=seed) for seed in range(DRAWS)])
    shares = np.exp(row.astype(np.float64) - row.max())
    shares /= shares.sum()
    surprise = -np.log(shares[tokens])
    entropy = float(-(shares * np.log(shares)).sum())
    spread = sqrt(float((shares * (np.log(shares) + entropy) ** 2).sum()) / DRAWS)
    assert abs(surprise.mean() - entropy) < 4 * spread
    assert entropy > 0.1 * log(len(row))
