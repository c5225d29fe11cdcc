"""Time per token in the window is the benchmark's, however a run is cut into batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.made_runs import made_run, pieces
from helpers.traces import TraceBuilder, decode_run
from syncscope.app.bench.metrics import measure, steady_steps
from syncscope.app.gui.latency_model import LatencyModel, histogram

SEEDS = st.integers(0, 10_000)
CUTS = st.lists(st.integers(0, 400), max_size=8)


def model_of(trace, cuts=(), changes=(), capacity=1 << 10):
    model = LatencyModel(capacity)
    model.extend(trace.spans[:0], changes=changes)
    for each in pieces(trace, cuts):
        model.extend(each.spans, each.sites, each.phases)
    return model


@given(SEEDS, CUTS)
@settings(max_examples=60, deadline=None)
def test_steady_tokens_are_those_of_the_benchmark(seed, cuts):
    trace = made_run(seed, 60)
    model = model_of(trace, cuts)
    steps, periods = steady_steps(trace)
    tokens = model.steady()
    assert tokens["step"].tolist() == steps.tolist()
    assert np.stack([tokens["begin_ns"], tokens["end_ns"]], 1).tolist() == periods.tolist()


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_figures_are_those_of_the_benchmark(seed):
    trace = made_run(seed, 60)
    metrics, figures = measure(trace), model_of(trace).figures()
    if metrics.step_us is None:
        assert figures is None
        return
    assert (figures.period_ns, figures.p99_ns) == pytest.approx(
        tuple(1e3 * each for each in metrics.step_us)
    )
    assert figures.blocked_ns == pytest.approx(1e3 * metrics.host_blocked_us)
    assert figures.idle_share == pytest.approx(metrics.device_idle_share)


@given(SEEDS, CUTS)
@settings(max_examples=60, deadline=None)
def test_batches_give_what_the_whole_run_gives(seed, cuts):
    trace = made_run(seed)
    whole, cut = model_of(trace), model_of(trace, cuts)
    assert cut.tokens().tolist() == whole.tokens().tolist()
    assert cut.figures() == whole.figures()


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_a_period_is_device_work_and_idle_time(seed):
    trace = made_run(seed)
    runs = trace.spans[trace.spans["role"] == 1]
    for token in model_of(trace).tokens():
        times = np.arange(token["begin_ns"], token["end_ns"])[:, None]
        inside = (runs["begin_ns"] <= times) & (times < runs["end_ns"])
        busy = int(inside.any(axis=1).sum())
        assert (token["busy_ns"], token["idle_ns"]) == (busy, len(times) - busy)


def test_device_times_that_come_later_than_the_next_steps_calls_count():
    trace = made_run(3)
    late = trace.spans[np.argsort(trace.spans["role"], kind="stable")]
    model = LatencyModel()
    model.extend(trace.spans[:0], trace.sites, trace.phases)
    model.extend(late[late["role"] == 0])
    assert len(model.tokens()) == 0
    model.extend(late[late["role"] == 1])
    assert model.tokens().tolist() == model_of(trace).tokens().tolist()


def test_the_effect_of_a_change_is_the_difference_of_the_medians_around_it():
    ends = np.cumsum([1000] * 20 + [600] * 20 + [900] * 20)
    model = model_of(decode_run(ends.tolist()), changes=[0, 20, 40])
    faster, slower = model.effects()
    assert [faster.change, slower.change] == [1, 2]
    assert (faster.before.period_ns, faster.after.period_ns) == (1000, 600)
    assert (faster.difference_ns, slower.difference_ns) == (-400, 300)
    assert model.steady(1)["step"].min() == 20
    assert model.steady(1)["step"].max() == 39


def test_a_change_without_steady_steps_has_no_effect_yet():
    ends = np.cumsum([1000] * 20 + [600])
    assert model_of(decode_run(ends.tolist()), changes=[0, 20, 21]).effects()[1:] == ()


def test_the_newest_steps_are_kept():
    trace = decode_run(range(1000, 101_000, 1000))
    model = model_of(trace, range(0, 300, 7), capacity=16)
    assert model.first_step == 84
    assert model.tokens()["step"].tolist() == list(range(85, 100))
    assert model.figures().period_ns == 1000
    assert (model.tokens()["busy_ns"] == 400).all()


def test_spans_of_forgotten_steps_are_left_out():
    trace = decode_run(range(1000, 41_000, 1000))
    model = model_of(trace, capacity=16)
    before = model.tokens().tolist()
    model.extend(trace.spans[:6])
    assert model.tokens().tolist() == before


def test_drains_and_prompts_are_no_tokens():
    build = TraceBuilder()
    for number, phase in enumerate(["prompt", "decode", "decode", "prompt", "decode"]):
        build.step(phase).run("g:k", 1000 * number, 1000 * number + 900)
    build.drain(4000, 5000)
    assert model_of(build.trace()).tokens()["step"].tolist() == [2]


def test_nothing_is_known_before_the_first_span():
    model = LatencyModel()
    assert len(model.tokens()) == 0
    assert model.figures() is None
    assert model.effects() == ()


def test_histograms_of_two_sets_share_their_bins_and_lose_nothing():
    before = model_of(decode_run(np.cumsum([1000] * 50 + [9000]).tolist())).steady()
    after = model_of(decode_run(np.cumsum([600] * 30).tolist())).steady()
    found = histogram([before, after], n_bins=10)
    assert [each.sum() for each in found.counts] == [len(before), len(after)]
    assert len(found.edges_ns) == 11
    assert found.edges_ns[0] == 600
    assert found.counts[1][0] == len(after)
    assert found.counts[0][0] == 0


def test_a_histogram_of_nothing_is_empty():
    found = histogram([model_of(decode_run([])).steady()])
    assert found.counts[0].sum() == 0


def test_tokens_whose_device_work_is_forgotten_are_left_out():
    trace = decode_run(range(1000, 101_000, 1000))
    model = LatencyModel(1 << 10, n_intervals=8)
    for each in pieces(trace, range(0, 300, 7)):
        model.extend(each.spans, each.sites, each.phases)
    tokens = model.tokens()
    assert 7 <= len(tokens) < 16
    assert tokens["step"][-1] == 99
    assert (tokens["busy_ns"] == 400).all()
