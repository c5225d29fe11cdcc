"""Figures are counted and timed from spans."""

import time
from dataclasses import replace

import numpy as np
import pytest

from helpers.traces import COPIES, TraceBuilder, decode_run, pattern_trace, token_trace
from syncscope.app.bench.metrics import (
    executed_patterns,
    measure,
    median_interval,
    steady_steps,
    step_pattern,
)

BASELINE = "ssassassassassassasgasssss"


def test_pattern_and_syncs_are_counted_from_calls():
    metrics = measure(pattern_trace([("decode", BASELINE)] * 3))
    assert metrics.patterns == {"decode": BASELINE}
    assert (metrics.syncs_per_step, metrics.syncs_before_launch, metrics.syncs_after_launch) == (
        18,
        13,
        5,
    )


def test_pattern_is_of_the_last_step_of_each_phase():
    steps = [("prompt", "sag"), ("prompt", "ag"), ("prompt_last", "agas"), ("decode", "EagE")]
    assert measure(pattern_trace(steps)).patterns == {
        "prompt": "ag",
        "prompt_last": "agas",
        "decode": "EagE",
    }


def test_every_letter_shows_and_host_work_only_when_asked():
    trace = pattern_trace([("decode", "hsEAaewGh")])
    assert step_pattern(trace, 0) == "sEAaewg"
    assert step_pattern(trace, 0, host=True) == "hsEAaewgh"


def test_a_run_of_kernels_is_one_letter_and_executions_are_none():
    assert executed_patterns(pattern_trace([("decode", "sgggag")])) == {"decode": "sgag"}


def test_drains_between_steps_count_in_no_step():
    build = TraceBuilder().step("decode")
    build.call("g:k", 0, 10).run("g:k", 10, 20).drain(10, 30).drain(30, 40, "run.end.sync")
    assert measure(build.trace()).syncs_per_step == 0


def test_a_step_that_broke_off_does_not_give_the_pattern():
    whole = [("decode", "sagas")] * 2
    assert executed_patterns(pattern_trace([*whole, ("decode", "sag")])) == {"decode": "sagas"}
    assert executed_patterns(pattern_trace([*whole, ("decode", "ag")])) == {"decode": "ag"}


def test_step_time_is_the_period_between_ends_of_device_work():
    trace = decode_run([1000, 2000, 3000, 4100, 5200, 6300])
    assert measure(trace).step_us == (1.1, 1.1)
    steps, periods = steady_steps(trace)
    assert steps.tolist() == [3, 4, 5]
    assert periods.tolist() == [[3000, 4100], [4100, 5200], [5200, 6300]]


def test_the_first_two_periods_are_warm_up():
    slow_start = decode_run([1000, 9000, 17000, 18000, 19000])
    assert measure(slow_start).step_us == (1.0, 1.0)


def test_p99_interpolates_between_periods():
    ends = np.cumsum([0, 1, 1, *range(1000, 1101)])
    step_us = measure(decode_run(ends.tolist(), busy=0)).step_us
    assert step_us is not None
    assert step_us == pytest.approx((1.05, 1.099))


def test_a_period_with_a_change_of_plan_in_it_is_left_out():
    build = TraceBuilder()
    for number in range(12):
        if number == 6:
            build.drain(6100, 6150)
        end = 1000 * (number + 1) + (500 if number >= 6 else 0)
        build.step("decode").call("g:k", end - 500, end - 490).run("g:k", end - 490, end)
    steps, periods = steady_steps(build.trace())
    assert steps.tolist() == [3, 4, 5, 9, 10, 11]
    assert {int(end - begin) for begin, end in periods} == {1000}


def test_the_drain_at_the_end_of_the_run_cuts_no_period():
    build = TraceBuilder()
    for end in range(1000, 7000, 1000):
        build.step("decode").run("g:k", end - 500, end)
    build.drain(5900, 6010, "run.end.sync")
    assert steady_steps(build.trace())[0].tolist() == [3, 4, 5]


def test_steps_before_the_graph_was_captured_are_warm_up():
    build = TraceBuilder()
    for number in range(9):
        end = 1000 * (number + 1)
        launch = "G:graph" if number >= 4 else "g:k"
        build.step("decode").call(launch, end - 700, end - 600).run("g:k", end - 500, end)
    assert steady_steps(build.trace())[0].tolist() == [5, 6, 7, 8]


def test_a_prompt_between_decode_steps_is_in_no_period():
    build = TraceBuilder()
    for number, phase in enumerate([*["decode"] * 5, "prompt", *["decode"] * 5]):
        build.step(phase).run("g:k", 1000 * number, 1000 * number + 900)
    assert steady_steps(build.trace())[0].tolist() == [3, 4, 9, 10]


def test_tokens_per_second_is_the_inverse_of_the_median_period():
    assert measure(decode_run(range(1000, 20_000, 1000))).tokens_per_s == (1e6, 1e6, 1e6)
    uneven = measure(decode_run(np.cumsum([1000, 1000, 1000, *range(1000, 1050)]).tolist(), busy=0))
    assert uneven.tokens_per_s is not None
    median, low, high = uneven.tokens_per_s
    assert median == pytest.approx(1e9 / 1024.5)
    assert 1e9 / 1049 < low < median < high < 1e9 / 1000


def test_interval_holds_the_median_and_is_the_same_each_time():
    rng = np.random.default_rng(1)
    values = rng.normal(60_000, 2_000, 301).astype(np.int64)
    median, low, high = median_interval(values)
    assert low < median < high
    assert median_interval(values) == (median, low, high)
    assert median_interval(values, seed=1) != (median, low, high)


@pytest.mark.parametrize("n", [60, 61])
def test_interval_agrees_with_plain_resampling(n):
    rng = np.random.default_rng(2)
    values = rng.integers(50_000, 60_000, n)
    plain = np.median(rng.choice(values, (20_000, n)), axis=1)
    _, low, high = median_interval(values)
    assert (low, high) == pytest.approx(tuple(np.quantile(plain, [0.025, 0.975])), rel=0.01)


def test_interval_of_one_value_is_that_value():
    assert median_interval(np.array([7])) == (7.0, 7.0, 7.0)


def test_first_token_counts_from_the_first_call_to_the_first_accept():
    build = TraceBuilder().step("prompt_last").call("a:in", 1000, 1100)
    build.call("h:sample.accept", 5000, 5250).call("h:detokenize", 5250, 9000)
    build.step("decode").call("h:sample.accept", 9500, 9600)
    assert measure(build.trace()).time_to_first_token_us == 4.25


def test_first_token_without_an_accept_is_the_last_host_work_of_the_prompt():
    build = TraceBuilder().step("prompt_last").call("h:write", 0, 10).call("s:get", 10, 700)
    build.call("h:sample", 700, 800).call("a:x", 800, 900).step("decode").call("h:write", 950, 960)
    assert measure(build.trace()).time_to_first_token_us == 0.8


def test_host_is_blocked_in_syncs_event_waits_and_blocking_copies():
    build = TraceBuilder()
    for number in range(6):
        at = 10_000 * number
        build.step("decode").call("h:write", at, at + 50).call("a:copy", at + 50, at + 90)
        build.call("A:up", at + 100, at + 400).call("g:k", at + 400, at + 500)
        build.call("s:sync", at + 500, at + 2500).call("E:wait", at + 2500, at + 2600)
        build.run("g:k", at + 500, at + 2400)
    assert measure(build.trace()).host_blocked_us == 2.4


def test_idle_share_counts_overlapping_streams_once():
    build = TraceBuilder()
    for end in range(1000, 7000, 1000):
        build.step("decode").run("g:k", end - 400, end)
        build.run("a:copy", end - 500, end - 300, lane=COPIES)
    assert measure(build.trace()).device_idle_share == pytest.approx(0.5)


def test_work_of_the_next_step_counts_in_the_period_where_it_lies():
    build = TraceBuilder()
    for end in range(1000, 7000, 1000):
        build.step("decode").run("a:copy", end - 1200, end - 1000, lane=COPIES)
        build.run("g:k", end - 400, end)
    # the copy lies under the kernel of the step before: 400 of 1000 are busy
    assert measure(build.trace()).device_idle_share == pytest.approx(0.6)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_too_few_steps_give_no_step_figures(steps):
    metrics = measure(decode_run(range(1000, 1000 * (steps + 1), 1000)))
    assert metrics.step_us is None
    assert metrics.tokens_per_s is None
    assert metrics.host_blocked_us is None
    assert metrics.device_idle_share is None
    assert (metrics.syncs_per_step is None) == (steps == 0)


def test_a_trace_without_device_times_gives_no_step_figures():
    trace = decode_run(range(1000, 9000, 1000))
    calls = replace(trace, spans=trace.spans[trace.spans["role"] == 0])
    metrics = measure(calls)
    assert metrics.step_us is None
    assert metrics.patterns == {"decode": "gs"}


def test_a_million_spans_are_measured_in_seconds():
    trace = token_trace(1_000_000)
    began = time.process_time()
    measure(trace)
    assert time.process_time() - began < 5
