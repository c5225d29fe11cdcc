"""What panels ask of a recording: which spans are near, how much is kept, when steps were."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.made_runs import made_run
from helpers.traces import TraceBuilder
from syncscope.app.gui.categories import CATEGORIES, VERDICT_CATEGORY, verdict_category
from syncscope.app.gui.recording import Recording
from syncscope.app.live_batch import LiveBatch
from syncscope.sched_core.records import VERDICTS

SEEDS = st.integers(0, 10_000)


def recording_of(trace, **sizes):
    recording = Recording({"simulated": True}, **sizes)
    recording.extend(
        LiveBatch("finished", trace.spans, trace.sites, trace.phases, lanes=trace.lanes)
    )
    return recording


def nearest_by_hand(spans, ops, t0, t1):
    for role in (0, 1):
        mine = [
            (ref, each)
            for ref, each in enumerate(spans)
            if each["op"] in ops and each["role"] == role
        ]
        inside = [ref for ref, each in mine if each["begin_ns"] < t1 and each["end_ns"] >= t0]
        early = [ref for ref, each in mine if each["begin_ns"] < t1]
        if inside or early or mine:
            return (inside or early)[-1] if inside or early else mine[0][0]
    return -1


@given(SEEDS, st.integers(-500, 12_000), st.integers(1, 4000), st.data())
@settings(max_examples=80, deadline=None)
def test_the_newest_span_of_a_site_in_or_near_a_window_is_found(seed, t0, length, data):
    trace = made_run(seed)
    in_step = [i for i, site in enumerate(trace.sites) if site.phase != "switch"]
    ops = data.draw(st.sets(st.sampled_from(in_step), min_size=1, max_size=3))
    recording = recording_of(trace)
    found = recording.rows.nearest(tuple(ops), t0, t0 + length)
    expected = nearest_by_hand(trace.spans, ops, t0, t0 + length)
    assert found == expected


def test_a_site_without_spans_is_nowhere_near():
    build = TraceBuilder().step("decode").call("s:get", 0, 10)
    op = build.site("s:other")
    assert recording_of(build.trace()).rows.nearest((op,), 0, 10) == -1


@given(SEEDS, st.integers(-500, 12_000), st.integers(0, 4000))
@settings(max_examples=40, deadline=None)
def test_the_spans_of_a_range_are_those_that_touch_it(seed, t0, length):
    trace = made_run(seed)
    refs = recording_of(trace).refs_between(t0, t0 + length).tolist()
    expected = {
        ref
        for ref, each in enumerate(trace.spans)
        if each["begin_ns"] < t0 + length and each["end_ns"] >= t0
    }
    assert set(refs) == expected and len(refs) == len(expected)
    assert trace.spans["begin_ns"][refs].tolist() == sorted(trace.spans["begin_ns"][refs].tolist())


def test_what_is_in_memory_is_told_by_its_number():
    build = TraceBuilder()
    for step in range(9000):
        build.step("decode").call("s:get", 10 * step, 10 * step + 5)
    recording = recording_of(build.trace(), capacity_log2=13)
    assert [recording.has(ref) for ref in (-1, 0, 807, 808, 8999, 9000)] == [
        False,
        False,
        False,
        True,
        True,
        False,
    ]
    assert recording.op_of(8999) == 0
    with pytest.raises(IndexError):
        recording.op_of(0)


def test_steps_reach_from_their_first_call_to_the_end_of_their_last_span():
    build = TraceBuilder()
    for step in range(4):
        begin = 1000 * step
        build.step("decode").call("g:k", begin, begin + 10).run("g:k", begin + 100, begin + 950)
    recording = recording_of(build.trace())
    assert recording.n_steps == 4
    assert recording.steps_range(1, 3) == (1000, 2950)
    assert recording.steps_range(3, 9) == (3000, 3950)
    assert recording.steps_range(7, 9) == (0, 0)


@pytest.mark.parametrize("overlapping", [1, 40])
def test_memory_stays_below_what_is_said_it_can_come_to(overlapping):
    build = TraceBuilder()
    recording = None
    for step in range(3000):
        build.step("decode")
        for i in range(overlapping):
            build.run("a:copy", 1000 * step + i, 1000 * step + 900)
        if len(build.spans) >= 30_000 or step == 2999:
            break
    recording = recording_of(build.trace(), capacity_log2=14)
    assert 0 < recording.nbytes <= recording.most_nbytes
    before = recording.most_nbytes
    more = build.trace().spans
    more["begin_ns"] += 10**9
    more["end_ns"] += 10**9
    for _ in range(3):
        more["begin_ns"] += 10**8
        more["end_ns"] += 10**8
        recording.extend(LiveBatch("running", more.copy(), lanes=build.trace().lanes))
    assert recording.nbytes <= recording.most_nbytes == before


def test_a_live_recording_is_bounded_by_a_few_hundred_megabytes():
    trace = made_run(1)
    assert recording_of(trace).most_nbytes < 500e6


def test_every_verdict_has_a_category():
    assert {verdict_category(each) for each in VERDICTS} == set(VERDICT_CATEGORY.values())
    assert all(verdict_category(each) in CATEGORIES for each in (*VERDICTS, ""))


def test_a_run_in_which_a_race_was_seen_is_hazardous():
    trace = made_run(1)
    recording = recording_of(trace)
    assert not recording.is_hazardous
    recording.extend(LiveBatch("running", np.zeros(0, trace.spans.dtype), counts=(0, 0, 5)))
    assert not recording.is_hazardous
    recording.extend(LiveBatch("running", np.zeros(0, trace.spans.dtype), counts=(1, 0, 5)))
    assert recording.is_hazardous
