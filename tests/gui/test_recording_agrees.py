"""Timeline, site table, time per token and exported trace show the same run, however it came."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.live import Watched
from helpers.made_runs import made_run
from syncscope.app.bench.metrics import measure, steady_steps
from syncscope.app.gui.compare_model import compare, side
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.time_split import TimeSplit, time_split
from syncscope.app.gui.toggle_effects import toggle_effects
from syncscope.app.live import LiveRequest
from syncscope.app.live_batch import LiveBatch, join_batches, standing
from syncscope.app.report.chrome_trace import read_traces, write_trace
from syncscope.app.report.site_table import SYNC_KINDS, site_kind, site_rows

CUTS = st.lists(st.integers(0, 10_000), max_size=12)
HEADER = {"simulated": True, "base_ns": 0}


def drawn(recording):
    """Count what is on each row: begin, end, category, name, flags."""
    return {
        row.key: [
            Counter(lane.get(index)[:5] for index in range(lane.head, lane.tail))
            for lane in row.lanes
        ]
        for row in recording.rows.rows
    }


def batch_of(trace):
    return LiveBatch(
        "finished", trace.spans, trace.sites, trace.phases, lanes=trace.lanes, dropped=trace.dropped
    )


def grown(batch, cuts):
    """Make a recording of a batch that comes in pieces."""
    recording = Recording(HEADER)
    recording.extend(replace(batch, spans=batch.spans[:0]))
    rest = standing(batch, batch.state)
    edges = [0, *sorted(cut % (len(batch.spans) + 1) for cut in cuts), len(batch.spans)]
    for begin, end in pairwise(edges):
        recording.extend(replace(rest, spans=batch.spans[begin:end].copy()))
    return recording


@pytest.fixture(scope="module")
def toggled():
    """Everything of a live run in which the plan changed twice."""
    live = Watched(LiveRequest(compute=False, n_tokens=120, profile="h200"))
    live.session.start()
    live.session.pause()
    live.until(lambda seen: seen.states and seen.states[-1] == "paused")
    for variant in ("saaasg", "all"):
        for _ in range(30):
            live.session.step()
        live.until(lambda seen: seen.states[-1] == "paused" and seen.steps % 30 == 0 and seen.steps)
        n = len(live.changes)
        live.session.set_variant(variant)
        live.until(lambda seen, n=n: len(seen.changes) > n)
    live.session.resume()
    return join_batches(live.finish().batches)


@given(st.integers(0, 10_000), CUTS)
@settings(max_examples=40, deadline=None)
def test_a_run_in_pieces_is_drawn_as_the_whole_run(seed, cuts):
    batch = batch_of(made_run(seed))
    whole, cut = grown(batch, ()), grown(batch, cuts)
    assert drawn(cut) == drawn(whole)
    assert cut.latency.tokens().tolist() == whole.latency.tokens().tolist()
    assert cut.table.entries() == whole.table.entries()
    assert cut.rows.arrows(0, 10**9, 10**6).tolist() == whole.rows.arrows(0, 10**9, 10**6).tolist()


@given(CUTS)
@settings(max_examples=10, deadline=None)
def test_a_live_run_with_toggles_in_pieces_is_the_whole_run(toggled, cuts):
    whole, cut = grown(toggled, ()), grown(toggled, cuts)
    assert drawn(cut) == drawn(whole)
    assert cut.latency.tokens().tolist() == whole.latency.tokens().tolist()
    assert cut.table.entries() == whole.table.entries()
    assert [cut.span(ref) for ref in range(0, cut.n_spans, 97)] == [
        whole.span(ref) for ref in range(0, whole.n_spans, 97)
    ]


@given(st.integers(0, 10_000), st.randoms())
@settings(max_examples=40, deadline=None)
def test_no_span_is_lost_in_whatever_order_spans_come(seed, random):
    batch = batch_of(made_run(seed))
    order = list(range(len(batch.spans)))
    random.shuffle(order)
    recording = grown(replace(batch, spans=batch.spans[order]), ())
    placed = Counter()
    for lanes in drawn(recording).values():
        for each in lanes:
            placed.update(each)
    spans = recording.spans
    came = Counter(zip(spans["begin_ns"].tolist(), spans["end_ns"].tolist(), strict=True))
    shown = Counter()
    for (begin, end, *_), n in placed.items():
        shown[begin, end] += n
    assert sum((came - shown).values()) == recording.unplaced
    assert not shown - came


def test_syncs_of_table_timeline_and_exported_trace_are_the_same(toggled, tmp_path):
    recording = grown(toggled, (1000, 5000))
    table = Counter()
    for each in recording.table.entries():
        if each.row.kind in SYNC_KINDS:
            table[each.row.phase, each.row.site] += each.count
    timeline = Counter()
    for row in recording.rows.rows:
        for lane in row.lanes if row.kind == "sync" else ():
            for index in range(lane.head, lane.tail):
                site = recording.sites[lane.get(index)[3]]
                if site.phase != "switch":
                    timeline[site.phase, site.name] += 1
    path = tmp_path / "run.json"
    write_trace(recording.to_trace(), path)
    exported = Counter(
        (event["args"]["phase"], event["name"])
        for event in orjson.loads(path.read_bytes())["traceEvents"]
        if event["ph"] == "X"
        and event["cat"].split(",")[0] in SYNC_KINDS
        and event["cat"].endswith("call")
        and event["args"]["phase"] != "switch"
    )
    assert table == timeline == exported
    assert sum(table.values()) > 100


def test_a_saved_recording_is_the_same_when_it_is_opened(toggled, tmp_path):
    recording = grown(toggled, ())
    path = tmp_path / "run.json"
    write_trace(recording.to_trace(), path)
    (trace,) = read_traces(path)
    opened = Recording.from_trace(trace)
    assert drawn(opened) == drawn(recording)
    assert opened.latency.tokens().tolist() == recording.latency.tokens().tolist()
    for mine, theirs in zip(opened.table.entries(), recording.table.entries(), strict=True):
        assert (mine.count, mine.total_ns, mine.row.verdict) == (
            theirs.count,
            theirs.total_ns,
            theirs.row.verdict,
        )
    assert [each.step for each in opened.changes] == [each.step for each in recording.changes]
    for one, other in zip(opened.changes, recording.changes, strict=True):
        assert one.findings == other.findings
        assert one.reasons == other.reasons
        assert one.ghosts == other.ghosts


def test_verdicts_are_those_of_the_plan_that_ran(toggled):
    recording = grown(toggled, ())
    seen = set()
    for ref in range(recording.n_spans):
        row = recording.span(ref)
        if row.role != "call" or site_kind(row.site) not in SYNC_KINDS or row.phase == "switch":
            continue
        change = [each for each in recording.changes if each.step <= row.step][-1]
        place = (row.phase, row.site.name)
        finding = next(each for each in change.findings if (each.phase, each.site) == place)
        assert (row.verdict, row.finding) == (finding.verdict, finding)
        assert row.reason == change.reasons[place]
        seen.add((change.step, row.verdict))
    assert len({step for step, _ in seen}) >= 2


def test_figures_are_those_of_the_benchmark_on_the_same_trace(toggled):
    recording = grown(toggled, (700, 7000))
    trace = recording.to_trace()
    steps, periods = steady_steps(trace)
    metrics, figures = measure(trace), recording.latency.figures()
    assert recording.latency.steady()["step"].tolist() == steps.tolist()
    assert figures.period_ns == np.median(periods[:, 1] - periods[:, 0])
    assert figures.blocked_ns == pytest.approx(1e3 * metrics.host_blocked_us)
    assert figures.idle_share == pytest.approx(metrics.device_idle_share)
    counts = {(r.phase, r.site, r.kind): (r.per_step, r.wait_us) for r in site_rows("", trace)}
    shown = {
        (each.row.phase, each.row.site, each.row.kind): (each.row.per_step, each.row.wait_us)
        for each in recording.table.entries()
    }
    assert shown == counts


def test_a_change_that_removes_waits_shortens_the_token(toggled):
    first, second = toggle_effects(grown(toggled, ()))
    assert first.effect.difference_ns < 0
    assert first.step == toggled.changes[1].step
    plans = [set(each.planned.plan.passes) for each in toggled.changes]
    assert set(first.added) == plans[1] - plans[0]
    assert set(second.added) == plans[2] - plans[1]
    assert set(second.removed) == plans[1] - plans[2]


@given(st.integers(0, 10_000), st.integers(-200, 8000), st.integers(0, 3000))
@settings(max_examples=30, deadline=None)
def test_a_range_is_split_into_waiting_working_and_idling(seed, t0, length):
    trace = made_run(seed)
    recording, spans = grown(batch_of(trace), ()), trace.spans
    waits = np.array([site_kind(each) in SYNC_KINDS for each in trace.sites])[spans["op"]]
    times = np.arange(t0, t0 + length)[:, None]
    inside = (spans["begin_ns"] <= times) & (times < spans["end_ns"])
    busy = int((inside & (spans["role"] == 1)).any(axis=1).sum())
    blocked = int((inside & (spans["role"] == 0) & waits).sum())
    assert time_split(recording, t0, t0 + length) == TimeSplit(blocked, busy, length - busy)


def test_a_run_compared_with_itself_differs_in_nothing(toggled):
    recording = grown(toggled, ())
    found = compare(side(recording), side(grown(toggled, (4000,))))
    assert found.alignment.first.tolist() == list(range(len(recording.phases)))
    assert not found.alignment.offset_ns.any()
    assert found.step.speed_up == 1.0
    assert all(each.per_step == 0 and each.wait_us == 0 for each in found.sites)
