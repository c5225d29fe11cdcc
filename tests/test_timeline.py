"""Columns of spans: sorted, found by time, folded to what can be seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.traces import COMPUTE, COPIES, HOST, TraceBuilder, token_trace
from syncscope.sched_core.timeline import Timeline, busy_ns, fold, union


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    begin, end = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(begin, np.int64), np.array(end, np.int64)


@st.composite
def disjoint(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    gaps_and_widths = st.tuples(st.integers(0, 50), st.integers(1, 50))
    times = np.cumsum(draw(st.lists(gaps_and_widths, max_size=30)))
    return times[0::2].astype(np.int64), times[1::2].astype(np.int64)


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=25,
)


def test_lanes_hold_their_own_spans_sorted_by_begin():
    build = TraceBuilder().step("decode")
    build.run("g:late", 50, 60).run("g:early", 10, 20).call("s:sync", 5, 65)
    build.run("a:copy", 0, 7, lane=COPIES, nbytes=128)
    timeline = Timeline.from_trace(build.trace())
    assert timeline.lanes[COMPUTE].begin_ns.tolist() == [10, 50]
    assert timeline.lanes[COMPUTE].end_ns.tolist() == [20, 60]
    assert timeline.lanes[COPIES].nbytes.tolist() == [128]
    assert timeline.lanes[HOST].role.tolist() == [0]
    assert (timeline.begin_ns, timeline.end_ns) == (0, 65)


def test_no_span_is_lost():
    trace = token_trace(5_000)
    timeline = Timeline.from_trace(trace)
    assert sum(map(len, timeline.lanes)) == len(trace.spans)
    for lane in timeline.lanes:
        assert np.all(np.diff(lane.begin_ns) >= 0)


def test_a_trace_without_spans_has_empty_lanes():
    timeline = Timeline.from_trace(TraceBuilder().trace())
    assert [len(lane) for lane in timeline.lanes] == [0, 0, 0]
    assert timeline.visible(COMPUTE, 0, 10) == slice(0, 0)


@settings(deadline=None)
@given(intervals, st.integers(0, 80), st.integers(0, 30))
def test_visible_misses_no_span_that_touches_the_window(pairs, t0, width):
    build = TraceBuilder().step("decode")
    for begin, end in pairs:
        build.run("g:k", begin, end)
    timeline = Timeline.from_trace(build.trace())
    lane, t1 = timeline.lanes[COMPUTE], t0 + width
    found = timeline.visible(COMPUTE, t0, t1)
    touches = np.flatnonzero((lane.end_ns >= t0) & (lane.begin_ns <= t1))
    assert set(touches) <= set(range(len(lane))[found])


@settings(deadline=None)
@given(disjoint(), st.integers(0, 80), st.integers(0, 30))
def test_visible_has_only_what_touches_where_spans_are_disjoint(spans, t0, width):
    build = TraceBuilder().step("decode")
    for begin, end in zip(*spans, strict=True):
        build.run("g:k", int(begin), int(end))
    timeline = Timeline.from_trace(build.trace())
    lane, t1 = timeline.lanes[COMPUTE], t0 + width
    touches = np.flatnonzero((lane.end_ns >= t0) & (lane.begin_ns <= t1))
    assert touches.tolist() == list(range(len(lane)))[timeline.visible(COMPUTE, t0, t1)]


def test_fold_merges_narrow_neighbours_and_keeps_wide_spans():
    begin, end = columns([(0, 1), (2, 3), (4, 5), (6, 40), (41, 42), (60, 61)])
    folded = fold(begin, end, ns_per_px=1.0, min_px=3.0)
    assert [each.tolist() for each in folded] == [[0, 6, 41, 60], [5, 40, 42, 61], [3, 1, 1, 1]]


@settings(deadline=None)
@given(disjoint(), st.floats(0.01, 20), st.floats(0.5, 5))
def test_fold_keeps_the_total_count_and_every_wide_span(spans, ns_per_px, min_px):
    begin, end = spans
    b, e, count = fold(begin, end, ns_per_px, min_px)
    assert count.sum() == len(begin)
    assert np.all(b[1:] >= e[:-1])
    wide = end - begin >= ns_per_px * min_px
    drawn = set(zip(b.tolist(), e.tolist(), strict=True))
    assert set(zip(begin[wide].tolist(), end[wide].tolist(), strict=True)) <= drawn


def test_fold_at_a_far_zoom_is_one_bar():
    begin = np.arange(10_000, dtype=np.int64) * 10
    assert [each.tolist() for each in fold(begin, begin + 5, 1000.0)] == [[0], [99_995], [10_000]]


def test_fold_of_nothing_is_nothing():
    assert [len(each) for each in fold(*columns([]), 1.0)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("pairs", "busy"),
    [
        ([], 0),
        ([(0, 10)], 10),
        ([(0, 10), (10, 20)], 20),
        ([(5, 9), (0, 10)], 10),
        ([(0, 6), (4, 10), (20, 21)], 11),
    ],
)
def test_busy_time_counts_overlap_once(pairs, busy):
    assert busy_ns(*columns(pairs)) == busy


@settings(deadline=None)
@given(intervals)
def test_union_covers_the_same_times(pairs):
    covered = {t for begin, end in pairs for t in range(begin, end)}
    begin, end = union(*columns(pairs))
    assert {t for b, e in zip(begin, end, strict=True) for t in range(b, e)} == covered
    assert np.all(begin[1:] > end[:-1])
    assert busy_ns(*columns(pairs)) == len(covered)
