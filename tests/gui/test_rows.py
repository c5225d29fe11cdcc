"""Rows of the timeline: where spans are drawn and as what, and what joins them."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.recordings import (
    CALL,
    EXEC,
    PROMPT,
    batch,
    category,
    change_at,
    change_of,
    drawn,
    expected,
    in_batches,
    joined,
    launch_of,
    mid_run,
    plan_trace,
    staged_plan,
    toggled,
    whole,
)
from helpers.traces import TraceBuilder
from syncscope.app.gui.categories import CATEGORIES
from syncscope.app.gui.first_fit import MAX_LANES
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.row_layout import LANE_PX
from syncscope.app.gui.row_source import RowSource, find_span
from syncscope.app.report.site_table import SYNC_KINDS, site_rows
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Kind

RUNS = {
    "baseline": lambda: toggled(("baseline", (*PROMPT, ("decode", 6)))),
    "all": lambda: toggled(("all", (*PROMPT, ("decode", 9)))),
    "aaag": lambda: toggled(("aaag", (*PROMPT, ("decode", 5)))),
    "toggled": mid_run,
    "staged": lambda: (plan_trace(staged_plan(), 6), (change_of(staged_plan()),)),
}
EVERY = 10**15


@pytest.fixture(params=RUNS)
def run(request):
    return RUNS[request.param]()


def copies(times, late=()):
    """Make a trace of copies to the host at given times; those in `late` come last."""
    build = TraceBuilder().step("decode")
    order = [*(k for k in range(len(times)) if k not in late), *late]
    for k in order:
        build.run("a:out.copy", *times[k])
    return build.trace()


# ---- where spans are ----------------------------------------------------------------------------


def test_every_span_is_on_one_row_as_what_the_plan_of_its_step_says(run):
    trace, changes = run
    recording = whole(trace, changes)
    seen = {}
    for key, lanes in drawn(recording).items():
        for begin, end, kind, name, flags, ref in (each for lane in lanes for each in lane):
            assert ref not in seen
            seen[ref] = (key, CATEGORIES[kind])
            span = trace.spans[ref]
            assert (begin, end, flags) == tuple(span[["begin_ns", "end_ns", "flags"]])
            assert recording.rows.names[name] == trace.sites[span["op"]].name
    assert seen == {ref: expected(trace, changes, span) for ref, span in enumerate(trace.spans)}


def test_sync_rows_show_the_syncs_of_the_site_table(run):
    trace, changes = run
    recording = whole(trace, changes)
    calls, waits = Counter(), Counter()
    for row in recording.rows.rows:
        for lane in row.lanes if row.kind == "sync" else ():
            for i in range(lane.head, lane.tail):
                begin, end, *_, ref = lane.get(i)
                site = trace.sites[trace.spans[ref]["op"]]
                calls[site.phase, site.name] += 1
                waits[site.phase, site.name] += end - begin
    found = {
        (row.phase, row.site): (row.per_step, row.wait_us)
        for row in site_rows("", trace)
        if row.kind in SYNC_KINDS
    }
    steps = Counter(trace.phases)
    assert found.keys() == {key for key in calls if key[0] != "switch"}
    for key, (per_step, wait_us) in found.items():
        assert calls[key] == pytest.approx(per_step * steps[key[0]])
        assert waits[key] == pytest.approx(wait_us * 1e3 * steps[key[0]])


def test_a_site_has_the_verdict_of_the_plan_that_ran(run):
    trace, changes = mid_run()
    recording = whole(trace, changes)
    colours = {}
    for ref, span in enumerate(trace.spans):
        if trace.sites[span["op"]].name == "logits.get0.sync":
            row = recording.span(ref)
            change = change_at(changes, row.step)
            finding = next(
                each
                for each in change.findings
                if (each.phase, each.site) == (row.phase, row.site.name)
            )
            assert (row.verdict, row.finding) == (finding.verdict, finding)
            assert row.reason == change.reasons[row.phase, row.site.name]
            assert row.variant == change.planned.variant.id
            colours.setdefault(row.variant, set()).add(row.category)
    assert len(colours) >= 1


def test_a_rows_lanes_hold_spans_one_after_another(run):
    trace, changes = run
    for lanes in drawn(whole(trace, changes)).values():
        for lane in lanes:
            for one, other in pairwise(lane):
                assert one[1] <= other[0] and one[-1] < other[-1]


def test_rows_stand_in_the_order_of_host_then_device_and_have_a_height():
    rows = whole(*mid_run()).rows.rows
    assert [each.key for each in rows] == [
        "steps",
        "host host thread 0",
        "sync host thread 0",
        "cpu_split host thread 0",
        "stream dev0.compute",
        "h2d 0",
        "d2h 0",
    ]
    assert {each.kind for each in rows} <= LANE_PX.keys()
    assert len({each.title for each in rows}) == len(rows)


def test_spans_that_overlap_lie_below_each_other():
    trace = copies([(0, 100), (10, 40), (20, 30), (50, 60), (100, 110)])
    lanes = drawn(whole(trace, ()))["stream dev0.compute"]
    assert [[each[-1] for each in lane] for lane in lanes] == [[0, 4], [1, 3], [2]]


def test_a_span_that_comes_late_is_drawn_and_found():
    trace = copies([(0, 10), (20, 30), (40, 50)], late=(1,))
    recording = whole(trace, ())
    assert recording.unplaced == 0
    spot = find_span(recording.rows.rows, 2)
    assert (spot.begin_ns, spot.end_ns) == (20, 30)


def test_what_finds_no_lane_is_counted_not_lost():
    trace = copies([(k, 1000) for k in range(MAX_LANES + 5)])
    recording = whole(trace, ())
    assert recording.unplaced == 5
    assert sum(len(lane) for lane in drawn(recording)["stream dev0.compute"]) == MAX_LANES
    assert recording.span(MAX_LANES + 4).begin_ns == MAX_LANES + 4


def test_without_a_plan_no_sync_has_a_verdict():
    trace = TraceBuilder().step("decode").call("s:a.sync", 0, 5).call("g:k", 5, 9).trace()
    recording = whole(trace, ())
    assert [recording.span(ref).category for ref in (0, 1)] == ["sync_unknown", "host_api"]
    assert recording.span(0).reason == "" and recording.rows.links(0) == ()
    assert recording.rows.steps(0, 9)[0].pattern == ""


# ---- batches ------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_however_a_run_is_cut_its_rows_are_the_same(data):
    trace, changes = mid_run()
    cuts = data.draw(st.lists(st.integers(0, len(trace.spans)), max_size=8))
    recording, at_once = in_batches(trace, changes, cuts), whole(trace, changes)
    assert drawn(recording) == drawn(at_once)
    ours, theirs = recording.rows, at_once.rows
    assert list(ours.steps(0, EVERY)) == list(theirs.steps(0, EVERY))
    assert ours.ghosts(0, EVERY) == theirs.ghosts(0, EVERY)
    assert np.array_equal(ours.arrows(0, EVERY, 10**6), theirs.arrows(0, EVERY, 10**6))
    ref = data.draw(st.integers(0, len(trace.spans) - 1))
    assert ours.links(ref) == theirs.links(ref)
    assert recording.span(ref) == at_once.span(ref)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_lanes_take_the_first_that_is_free_in_the_order_of_arrival(spans, cuts):
    trace = copies([(begin, begin + length) for begin, length in spans])
    lanes: list[list[int]] = []
    for ref, (begin, _) in enumerate(spans):
        free = next(
            (lane for lane in lanes if sum(spans[lane[-1]]) <= begin),
            None,
        )
        if free is None and len(lanes) < MAX_LANES:
            lanes.append(free := [])
        if free is not None:
            free.append(ref)
    recording = in_batches(trace, (), [min(each, len(spans)) for each in cuts])
    seen = drawn(recording).get("stream dev0.compute", [])
    assert [[each[-1] for each in lane] for lane in seen] == lanes
    assert recording.unplaced == len(spans) - sum(map(len, lanes))


def test_lanes_of_another_plan_keep_their_rows():
    plan = staged_plan()
    trace = plan_trace(plan, 2)
    swapped = replace(trace, lanes=(trace.lanes[0], trace.lanes[2], trace.lanes[1]))
    spans = trace.spans.copy()
    spans["lane"] = np.array([0, 2, 1])[spans["lane"]]
    spans["begin_ns"] += 5000
    spans["end_ns"] += 5000
    recording = whole(trace, (change_of(plan),))
    recording.extend(batch(swapped, spans))
    rows = drawn(recording)
    assert [len(rows[key][0]) for key in ("stream dev0.compute", "h2d 0", "d2h 0")] == [4, 4, 4]
    assert recording.lanes == trace.lanes
    assert recording.span(len(trace.spans) + 5).lane == recording.span(5).lane


# ---- steps --------------------------------------------------------------------------------------


def test_a_step_begins_with_its_first_call_and_shows_the_pattern_of_its_plan(run):
    trace, changes = run
    rows = whole(trace, changes).rows
    in_step = np.array([each.phase != "switch" for each in trace.sites])[trace.spans["op"]]
    calls = trace.spans[in_step & (trace.spans["role"] == CALL)]
    wanted = [
        (
            step,
            int(calls["begin_ns"][calls["step"] == step].min()),
            phase,
            change_at(changes, step).patterns[phase],
        )
        for step, phase in enumerate(trace.phases)
    ]
    steps = rows.steps(0, EVERY)
    assert [(s.number, s.begin_ns, s.phase, s.pattern) for s in steps] == wanted
    begins = [each[1] for each in wanted]
    for t0, t1 in ((begins[2] + 1, begins[3]), (begins[2], begins[3] + 1), (begins[1], begins[1])):
        after = [*begins[1:], EVERY]
        touched = [i for i in range(len(begins)) if begins[i] < t1 and after[i] > t0]
        assert [each.number for each in rows.steps(t0, t1)] == touched
    assert steps[1:3][0] == steps[1]


def test_a_step_without_calls_has_no_border_and_hides_no_other():
    build = TraceBuilder().step("decode").call("g:k", 0, 5).step("decode").step("decode")
    rows = whole(build.call("g:k", 50, 55).trace(), ()).rows
    assert [(each.number, each.begin_ns) for each in rows.steps(0, 100)] == [(0, 0), (2, 50)]


# ---- what belongs together ----------------------------------------------------------------------


def test_links_are_calls_with_executions_and_waits_with_what_they_wait_for(run):
    trace, changes = run
    rows = whole(trace, changes).rows
    wanted = {}
    for one, other in joined(trace, changes):
        for near, far in ((one, other), (other, one)):
            wanted.setdefault(near, set()).add(far)
    # a copy's call, too, belongs to what waits for the copy, and a graph's launch to all members
    for ref, span in enumerate(trace.spans):
        site = trace.sites[span["op"]]
        if site.kind == Kind.COPY and span["role"] == CALL:
            runs = [far for far in wanted.get(ref, ()) if trace.spans[far]["role"] == EXEC]
            wanted[ref] |= {far for each in runs for far in wanted[each]} - {ref}
        elif (launch := launch_of(trace, changes, ref)) is not None:
            wanted.setdefault(ref, set()).add(launch)
    for ref in range(len(trace.spans)):
        assert set(rows.links(ref)) == wanted.get(ref, set()), ref


def test_runs_here_have_all_that_can_be_joined():
    kinds = Counter()
    for make in RUNS.values():
        trace, changes = make()
        for one, other in joined(trace, changes):
            kinds[tuple(trace.sites[trace.spans[ref]["op"]].kind.name for ref in (one, other))] += 1
    assert {
        ("LAUNCH", "LAUNCH"),
        ("GRAPH", "LAUNCH"),
        ("COPY", "COPY"),
        ("COPY", "SYNC"),
        ("COPY", "WAIT"),
        ("RECORD", "SYNC"),
        ("RECORD", "WAIT"),
    } <= kinds.keys()


def test_arrows_of_all_time_are_all_that_is_joined(run):
    trace, changes = run
    rows = whole(trace, changes).rows
    index = {row.key: i for i, row in enumerate(rows.rows)}
    wanted = Counter()
    for one, other in joined(trace, changes):
        source, target = trace.spans[one], trace.spans[other]
        tip = int(target["begin_ns"])
        start = int(min(max(source["begin_ns"], tip), source["end_ns"]))
        if target["role"] == CALL:
            start = int(source["end_ns"])
            tip = int(min(max(tip, start), target["end_ns"]))
        rows_of = [index[expected(trace, changes, each)[0]] for each in (source, target)]
        wanted[start, tip, *rows_of] += 1
    assert Counter(map(tuple, rows.arrows(0, EVERY, 10**6).tolist())) == wanted


@pytest.mark.parametrize("kind", ["toggled", "staged"])
@pytest.mark.parametrize("shift", [0, 30, 305])
def test_arrows_of_a_window_are_those_that_touch_it(kind, shift):
    rows = whole(*RUNS[kind]()).rows
    every = rows.arrows(0, EVERY, 10**6)
    steps = rows.steps(0, EVERY)
    begin, end = steps[2].begin_ns + shift, steps[4].begin_ns + shift
    seen = every[(every["from_ns"] < end) & (every["to_ns"] >= begin)]
    assert 0 < len(seen) < len(every)
    assert sorted(rows.arrows(begin, end, 10**6).tolist()) == sorted(seen.tolist())
    assert len(rows.arrows(begin, end, len(seen))) == len(seen)
    assert len(rows.arrows(begin, end, len(seen) - 1)) == 0


# ---- ghosts -------------------------------------------------------------------------------------


def test_ghosts_stand_after_the_call_that_came_before_what_is_gone():
    trace, changes = mid_run()
    recording = whole(trace, changes)
    rows = recording.rows
    wanted = Counter()
    begins = {step.number: step.begin_ns for step in rows.steps(0, EVERY)}
    for step, phase in enumerate(trace.phases):
        change = change_at(changes, step)
        mine = trace.spans[(trace.spans["step"] == step) & (trace.spans["role"] == CALL)]
        ends = {trace.sites[each["op"]].name: int(each["end_ns"]) for each in mine}
        gone = change.ghosts[phase]
        for site in gone.removed:
            anchor = gone.anchor[site]
            op = {each.site: each for each in change.planned.plan.phases[phase]}.get(anchor)
            if op is not None and op.graph >= 0 and anchor not in ends:
                anchor = "graph"
            wanted[ends.get(anchor, begins[step]), site] += 1
    ghosts = rows.ghosts(0, EVERY)
    assert Counter((each.begin_ns, each.site) for each in ghosts) == wanted
    assert sum(wanted.values()) > 50
    assert {rows.rows[each.row].kind for each in ghosts if "sync" in each.site} == {"sync"}
    first, last = changes[1].step, changes[2].step
    assert all(begins[first] <= each.begin_ns < begins[last] for each in ghosts)


def test_a_window_of_too_many_steps_shows_no_ghosts():
    trace, changes = toggled(("aaag", (("decode", 260),)))
    rows = whole(trace, changes).rows
    few = rows.steps(0, EVERY)[20].begin_ns
    assert rows.ghosts(0, few) and not rows.ghosts(0, EVERY)


# ---- searching ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("redundant", lambda row: row.verdict == "redundant"),
        ("REDUNDANT decode", lambda row: row.verdict == "redundant" and row.phase == "decode"),
        ("embd.sync", lambda row: "embd.sync" in row.site.name),
        ("async copy d2h", lambda row: row.kind == "async copy" and row.direction == "d2h"),
        ("no such thing", lambda row: False),
        ("", lambda row: False),
    ],
)
def test_search_finds_spans_by_site_kind_direction_and_verdict(text, wanted):
    trace, changes = mid_run()
    recording = whole(trace, changes)
    refs = range(len(trace.spans))
    assert recording.rows.search(text).tolist() == [
        ref for ref in refs if wanted(recording.span(ref))
    ]


def test_the_next_and_previous_of_a_site_are_of_its_role_and_phase():
    trace, changes = mid_run()
    rows = whole(trace, changes).rows
    by_site = {}
    for ref, span in enumerate(trace.spans):
        site = trace.sites[span["op"]]
        by_site.setdefault((site.phase, site.name, int(span["role"])), []).append(ref)
    for refs in by_site.values():
        for before, ref, after in zip([-1, *refs], refs, [*refs[1:], -1], strict=False):
            assert (rows.same_site(ref, -1), rows.same_site(ref, 1)) == (before, after)


def test_hit_finds_the_span_of_a_row_near_a_time():
    trace = copies([(0, 100), (10, 40), (200, 210)])
    rows = whole(trace, ()).rows
    index = [each.key for each in rows.rows].index("stream dev0.compute")
    assert [rows.hit(index, t, 5) for t in (5, 205, 214, 150)] == [0, 2, 2, -1]


# ---- buffers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["inp", "dev", "out.host"])
def test_rows_of_a_buffer_show_who_writes_and_who_reads_it(name):
    plan = staged_plan()
    trace, changes = plan_trace(plan, 5), (change_of(plan),)
    at_once, asked_early = whole(trace, changes), Recording({})
    asked_early.extend(batch(trace, sites=trace.sites, phases=trace.phases, changes=changes))
    asked_early.rows.buffer_rows(name)
    for begin in range(0, len(trace.spans), 7):
        asked_early.extend(batch(trace, trace.spans[begin : begin + 7]))
    for recording in (at_once, asked_early):
        rows = recording.rows.buffer_rows(name)
        for row, is_write in zip(rows, (True, False), strict=True):
            users = {
                (op.site, CALL if op.kind == Kind.HOST else EXEC)
                for op in plan.phases["decode"]
                for access in op.accesses
                if (access.buffer, access.write) == (name, is_write)
            }
            refs = [
                ref
                for ref, span in enumerate(trace.spans)
                if (trace.sites[span["op"]].name, span["role"]) in users
            ]
            lanes = [[lane.get(i) for i in range(lane.head, lane.tail)] for lane in row.lanes]
            assert sorted(each[-1] for lane in lanes for each in lane) == refs
            assert row in recording.rows.rows and row.kind == "buffer"
    with pytest.raises(KeyError):
        at_once.rows.buffer_rows("no such")


# ---- paths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["baseline", "all"])
def test_the_path_of_a_finding_is_found_around_the_site_that_was_selected(preset):
    trace, changes = toggled((preset, (("prompt", 8), *PROMPT, ("decode", 8))))
    recording = whole(trace, changes)
    shown = 0
    for finding in changes[0].findings:
        step = trace.phases.index(finding.phase) + 4 * (finding.phase != "prompt_last")
        refs = recording.rows.path_refs(finding, step)
        nodes = finding.path or tuple(filter(None, (finding.first, finding.second)))
        if not nodes:
            continue
        assert refs, finding
        shown += 1
        rows = [recording.span(ref) for ref in refs]
        names = [row.site.name for row in rows]
        left = iter(names)
        wanted = dict.fromkeys(each.site for each in nodes)
        assert names[0] == nodes[0].site and names[-1] == nodes[-1].site
        assert all(name in wanted for name in left)
        steps = [row.step for row in rows]
        assert steps == sorted(steps)
        assert steps[-1] - steps[0] == nodes[-1].step - nodes[0].step
        assert abs(steps[-1] - step) <= 3
    assert shown > 2


def test_a_path_is_not_shown_where_its_steps_did_not_run():
    trace, changes = toggled(("baseline", (("decode", 2),)))
    recording = whole(trace, changes)
    prompt = [each for each in changes[0].findings if each.phase == "prompt" and each.path]
    assert prompt and all(recording.rows.path_refs(each, 1) == () for each in prompt)


# ---- the protocol -------------------------------------------------------------------------------


def test_the_view_can_ask_all_that_it_asks():
    trace, changes = mid_run()
    rows: RowSource = whole(trace, changes).rows
    begin, end = rows.extent()
    assert (begin, end) == (int(trace.spans["begin_ns"].min()), int(trace.spans["end_ns"].max()))
    assert set(rows.arrows(begin, end, 5000).dtype.names) == {
        "from_ns",
        "from_row",
        "to_ns",
        "to_row",
    }
    assert all(row.lanes for row in rows.rows)
    empty: RowSource = Recording({}).rows
    assert empty.extent() == (0, 0) and not len(empty.steps(0, 10)) and not empty.ghosts(0, 10)
    assert not len(empty.arrows(0, 10, 10)) and empty.links(0) == ()
    assert category("kernel") == 0 and SPAN.itemsize == 32
