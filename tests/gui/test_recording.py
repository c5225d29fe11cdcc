"""What the window shows of a run: from batches, from a file, and never more than fits."""

from dataclasses import replace

import numpy as np
import orjson
import pytest

from helpers.live import watched
from helpers.recordings import (
    CALL,
    HEADER,
    batch,
    change_of,
    changes_of,
    drawn,
    mid_run,
    plan_trace,
    staged_plan,
    tiny_workload,
    toggled,
    whole,
)
from helpers.traces import TraceBuilder
from syncscope.app.gui.catalog import MAX_CHANGES
from syncscope.app.gui.recording import MAX_MESSAGES, MAX_TEXT, Recording
from syncscope.app.gui.row import LEAST_LOG2
from syncscope.app.gui.sliding import Sliding
from syncscope.app.live import LiveRequest
from syncscope.app.live_batch import LiveBatch, no_spans
from syncscope.app.report.trace_object import from_object, to_object
from syncscope.app.trace_changes import trace_changes
from syncscope.sched_core.backend import BOUNDED, LOWER_BOUND
from syncscope.sched_core.engine import SWITCH
from syncscope.sched_core.records import Finding, diff

EVERY = 10**15


def stored(trace):
    """A trace as it comes back from a file."""
    data = to_object([trace])
    data["traces"][0]["spans"] = {
        name: column.tolist() for name, column in data["traces"][0]["spans"].items()
    }
    return from_object(orjson.loads(orjson.dumps(data)))[0]


def news(**fields):
    return LiveBatch(**({"state": "running", "spans": no_spans()} | fields))


# ---- live runs ----------------------------------------------------------------------------------


def test_a_live_run_whose_plan_is_changed_is_what_its_trace_is():
    request = LiveRequest(
        device="sim", n_tokens=40, ubatch=8, speed=0.002, compute=False, repeat=True
    )
    with watched(request) as seen:
        seen.session.start()
        seen.until_step(4)
        seen.session.set_variant("saaasg")
        seen.until(lambda run: len(run.changes) == 2)
        seen.until_step(seen.steps + 5)
        seen.session.stop()
        seen.finish()
        recording = Recording(seen.session.header)
        for each in seen.batches:
            recording.extend(each)
    assert np.array_equal(recording.spans, seen.spans)
    assert (recording.n_spans, recording.evicted, recording.unplaced) == (len(seen.spans), 0, 0)
    assert recording.state == "stopped" and recording.steps_done == len(recording.phases)
    assert (recording.sites, recording.phases, recording.changes) == (
        seen.sites,
        seen.phases,
        seen.changes,
    )
    opened = Recording.from_trace(stored(recording.to_trace()))
    assert drawn(opened) == drawn(recording)
    assert opened.rows.ghosts(0, EVERY) == recording.rows.ghosts(0, EVERY)
    for ref in range(0, recording.n_spans, 17):
        ours, theirs = recording.span(ref), opened.span(ref)
        assert replace(theirs, variant=ours.variant) == ours
    for ours, theirs in zip(recording.changes, opened.changes, strict=True):
        for name in ("step", "findings", "patterns", "reasons", "ghosts", "hazards"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.planned.plan == theirs.planned.plan


def test_output_is_that_of_the_sequence_that_runs():
    recording = Recording(HEADER)
    recording.extend(news(token_ids=(1, 2), text="ab", first_difference=1, bit_exact=False))
    recording.extend(news(token_ids=(3,), text="c", first_difference=1))
    assert (recording.token_ids, recording.text) == ((1, 2, 3), "abc")
    recording.extend(news(token_ids=(9,), text="z", sequence=1))
    assert (recording.token_ids, recording.text, recording.first_difference) == ((9,), "z", None)


def test_places_in_the_text_are_those_in_what_is_kept_of_it():
    recording = Recording(HEADER)
    recording.extend(news(text="x" * MAX_TEXT, token_at=3, logits_at=None))
    assert (recording.token_at, recording.logits_at) == (3, None)
    recording.extend(news(text="y" * 4, token_at=3, logits_at=10))
    assert (recording.token_at, recording.logits_at) == (None, 6)
    recording.extend(news(text="z", token_at=0, sequence=1))
    assert (recording.token_at, recording.logits_at) == (0, None)


def test_how_the_run_stands_is_that_of_the_last_batch():
    recording = Recording(HEADER)
    assert recording.state == "starting"
    recording.extend(news(counts=(1, 2, 3), stale=((1, "decode", "a", "b"),), messages=("x",)))
    recording.extend(
        news(
            state="failed", failure="lost", dropped=7, messages=("y",), steps_done=3, steps_total=9
        )
    )
    assert (recording.state, recording.failure, recording.dropped) == ("failed", "lost", 7)
    assert (recording.steps_done, recording.steps_total) == (3, 9)
    assert recording.stale == ((1, "decode", "a", "b"),) and recording.messages == ("x", "y")


# ---- spans --------------------------------------------------------------------------------------


def test_a_span_says_all_that_is_known_of_it():
    plan = staged_plan()
    trace = plan_trace(plan, 2)
    finding = Finding("decode", "out.sync", "demotable", alone_safe=False)
    reasons = {("decode", "out.sync"): "because"}
    recording = whole(trace, (change_of(plan, findings=(finding,), reasons=reasons),))
    refs = {
        (trace.sites[span["op"]].name, int(span["role"])): ref
        for ref, span in enumerate(trace.spans[trace.spans["step"] == 1], len(trace.spans) // 2)
    }
    copy = recording.span(refs["inp.copy", 1])
    assert (copy.kind, copy.direction, copy.role, copy.step) == ("async copy", "h2d", "exec", 1)
    assert (copy.begin_ns, copy.end_ns, copy.nbytes) == (1320, 1330, 64)
    assert copy.bandwidth == 6.4e9 and copy.duration_ns == 10
    assert (copy.lane, copy.category, copy.verdict, copy.finding) == (
        "dev0.copies",
        "h2d",
        "",
        None,
    )
    sync = recording.span(refs["out.sync", CALL])
    assert (sync.verdict, sync.finding, sync.reason) == ("demotable", finding, "because")
    assert (sync.category, sync.bandwidth, sync.phase) == ("sync_other", None, "decode")


@pytest.mark.parametrize(("flags", "said"), [(0, (0, 0)), (BOUNDED, (1, 0)), (LOWER_BOUND, (0, 1))])
def test_a_span_says_what_its_times_are_worth(flags, said):
    trace = TraceBuilder().step("decode").run("g:k", 0, 5).trace()
    trace.spans["flags"] = flags
    span = whole(trace, ()).span(0)
    assert (span.is_bounded, span.is_lower_bound) == said


def test_a_launch_of_a_graph_says_how_many_nodes_it_has():
    trace = TraceBuilder().step("decode").call("G:graph", 0, 5, nbytes=21).trace()
    span = whole(trace, ()).span(0)
    assert (span.n_nodes, span.nbytes, span.category) == (21, 0, "graph")


# ---- files --------------------------------------------------------------------------------------


def test_a_stored_run_shows_the_plan_of_each_step_and_what_was_removed():
    trace, changes = mid_run()
    opened = Recording.from_trace(stored(trace))
    assert opened.state == "finished" and opened.header["simulated"]
    assert drawn(opened) == drawn(whole(trace, changes))
    assert [each.step for each in opened.changes] == [each.step for each in changes]
    assert opened.rows.ghosts(0, EVERY) == whole(trace, changes).rows.ghosts(0, EVERY)


def test_a_stored_run_without_the_baseline_has_ghosts_when_the_baseline_is_given():
    trace, (change,) = toggled(("aaag", (("decode", 4),)))
    assert Recording.from_trace(trace).rows.ghosts(0, EVERY) == ()
    (baseline,) = changes_of("baseline")
    opened = Recording.from_trace(trace, baseline.planned.plan)
    assert opened.changes[0].ghosts == change.ghosts
    assert opened.rows.ghosts(0, EVERY)
    assert tiny_workload().plan().phases != baseline.planned.plan.phases


def test_the_findings_of_a_trace_are_shown_not_made_anew():
    trace, _ = toggled(("baseline", (("decode", 2),)))
    told = tuple(replace(each, verdict="unknown", path=()) for each in trace.findings)
    (change,) = trace_changes(replace(trace, findings=told))
    assert change.findings == told
    assert set(change.reasons) == {(each.phase, each.site) for each in told}


def test_a_recording_becomes_the_trace_that_it_was_made_of():
    trace, _ = mid_run()
    again = Recording.from_trace(trace).to_trace()
    assert np.array_equal(again.spans, trace.spans)
    for name in ("sites", "lanes", "phases", "dropped", "simulated", "plans", "findings", "device"):
        assert getattr(again, name) == getattr(trace, name), name
    assert stored(again).phases == trace.phases


def test_a_trace_without_plans_and_steps_can_be_shown():
    build = TraceBuilder()
    build.phases.append("decode")
    opened = Recording.from_trace(build.trace())
    assert opened.n_spans == 0 and opened.changes == () and opened.rows.extent() == (0, 0)
    assert opened.to_trace().phases == ("decode",)


# ---- bounds -------------------------------------------------------------------------------------


def long_run(capacity_log2, n_steps, batches):
    """A recording that a small memory is not enough for, and all spans that it was given."""
    trace, changes = toggled(("baseline", (("decode", 40),)))
    period = int(trace.spans["end_ns"].max()) + 1
    recording = Recording(HEADER, capacity_log2, n_steps)
    given, sizes = [], []
    for k in range(batches):
        spans = trace.spans[trace.spans["step"] < len(trace.phases)].copy()
        spans["begin_ns"] += k * period
        spans["end_ns"] += k * period
        spans["step"] += k * len(trace.phases)
        given.append(spans)
        first = {"sites": trace.sites, "changes": changes} if not k else {}
        recording.extend(batch(trace, spans, phases=trace.phases, **first))
        sizes.append(recording.nbytes)
    return recording, np.concatenate(given), sizes


def test_a_long_run_takes_no_more_memory_and_says_what_is_gone():
    recording, spans, sizes = long_run(LEAST_LOG2, 64, 12)
    assert sizes[-1] == sizes[2]
    kept = 1 << LEAST_LOG2
    assert recording.n_spans == len(spans) > 2 * kept
    assert len(recording.spans) == kept and np.array_equal(recording.spans, spans[-kept:])
    in_rows = sum(len(lane) for row in recording.rows.rows for lane in row.lanes)
    assert recording.evicted >= max(len(spans) - kept, len(spans) - in_rows)
    with pytest.raises(IndexError, match="not in memory"):
        recording.span(0)
    assert recording.rows.links(0) == () and recording.rows.same_site(0, 1) == -1
    assert recording.span(len(spans) - 1).step == spans["step"][-1]
    assert len(recording.phases) == 64 and recording.base_step == 480 - 64
    assert [each.number for each in recording.rows.steps(0, EVERY)] == list(range(416, 480))


def test_links_and_arrows_of_what_is_left_are_those_of_the_whole_run():
    small, spans, _ = long_run(LEAST_LOG2, 64, 12)
    large, _, _ = long_run(16, 4096, 12)
    t0 = large.rows.step(430).begin_ns
    assert np.array_equal(small.rows.arrows(t0, EVERY, 10**6), large.rows.arrows(t0, EVERY, 10**6))
    assert len(small.rows.arrows(t0, EVERY, 10**6)) > 100
    for ref in range(len(spans) - 500, len(spans)):
        assert small.rows.links(ref) == large.rows.links(ref)
        assert small.span(ref) == large.span(ref)


def test_what_is_left_of_a_long_run_is_a_trace_of_whole_steps():
    recording, spans, _ = long_run(LEAST_LOG2, 1 << 12, 12)
    trace = stored(recording.to_trace())
    first = len(spans) - len(trace.spans)
    assert trace.dropped == first > 0
    step = int(spans["step"][first])
    assert spans["step"][first - 1] == step - 1
    assert len(trace.phases) == 480 - step
    assert np.array_equal(trace.spans["step"], spans["step"][first:] - step)
    assert np.array_equal(trace.spans["begin_ns"], spans["begin_ns"][first:])


def test_messages_and_places_of_harm_are_bounded():
    recording = Recording(HEADER)
    for k in range(3 * MAX_MESSAGES):
        recording.extend(news(messages=(str(k),), stale=((k, "decode", "a", "b"),)))
    assert len(recording.messages) == len(recording.stale) == MAX_MESSAGES
    assert recording.messages[-1] == str(3 * MAX_MESSAGES - 1)


def test_changes_of_plan_are_bounded_and_the_newest_stay():
    plan = staged_plan()
    trace = plan_trace(plan, 4)
    recording = Recording(HEADER)
    changes = tuple(change_of(plan, step=k) for k in range(MAX_CHANGES + 10))
    recording.extend(batch(trace, sites=trace.sites, changes=changes))
    assert recording.changes == changes[10:]
    assert recording.change_at(MAX_CHANGES + 9) == changes[-1]
    assert recording.change_at(0) == changes[10]


def test_a_drain_belongs_to_no_step():
    build = TraceBuilder().step("decode").call("g:k", 0, 5).drain(5, 20).step("decode")
    trace = build.call("g:k", 30, 35).trace()
    steps = whole(trace, ()).rows.steps(0, 100)
    assert [each.begin_ns for each in steps] == [0, 30]
    assert whole(trace, ()).span(1).phase == SWITCH


def test_plans_are_told_apart_by_the_drains_between_them():
    trace, changes = toggled(
        ("baseline", (("decode", 2),)), ("aaag", ()), ("saaasg", (("decode", 2),))
    )
    found = trace_changes(trace)
    assert [each.step for each in found] == [each.step for each in changes] == [0, 2, 2]
    before = changes[0].planned.plan.phases["decode"]
    assert found[-1].ghosts["decode"] == diff(before, changes[-1].planned.plan.phases["decode"])
    assert Recording.from_trace(trace).change_at(2).planned.plan == changes[-1].planned.plan


# ---- the newest rows of an array ----------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [[1] * 50, [7, 3, 11, 2, 30, 1, 8, 8, 8], [100], [0, 8, 0, 9, 17]]
)
def test_sliding_keeps_the_newest_rows_and_their_numbers(sizes):
    kept = Sliding(np.int64, 8)
    every = np.arange(sum(sizes))
    begin = 0
    for size in sizes:
        kept.append(every[begin : begin + size])
        begin += size
        head = max(0, begin - 8)
        assert (kept.head, kept.tail) == (head, begin)
        assert np.array_equal(kept.view(0, 10**6), every[head:begin])
        low, high = max(0, begin - 3), max(0, begin - 1)
        assert np.array_equal(kept.view(low, high), every[max(head, low) : high])
        assert all(kept[k] == k for k in range(head, begin))
        assert head - 1 not in kept and begin not in kept
