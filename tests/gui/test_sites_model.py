"""The table in the window is the one in reports, however a run is cut into batches."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.made_runs import made_run, pieces
from helpers.traces import TraceBuilder
from syncscope.app.devices import SimDevice
from syncscope.app.gui.sites_model import SitesModel, matching
from syncscope.app.live_batch import PlanChange
from syncscope.app.report.site_table import SYNC_KINDS, site_rows
from syncscope.app.session import run_bench
from syncscope.app.trace_changes import trace_changes
from syncscope.app.variants import Planned, Variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.sched_core.passes.registry import Applied
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.records import Finding, Kind, Op, Plan

SEEDS = st.integers(0, 10_000)
CUTS = st.lists(st.integers(0, 400), max_size=8)


def model_of(trace, cuts=()):
    model = SitesModel()
    for each in pieces(trace, cuts):
        model.extend(each.spans, each.sites, each.phases)
    return model


@given(SEEDS, CUTS)
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_the_report(seed, cuts):
    trace = made_run(seed)
    entries = model_of(trace, cuts).entries()
    assert [each.row for each in entries] == list(site_rows("", trace))


@given(SEEDS, CUTS)
@settings(max_examples=30, deadline=None)
def test_counts_and_totals_are_those_of_the_spans(seed, cuts):
    trace = made_run(seed)
    entries = model_of(trace, cuts).entries()
    calls = trace.spans[trace.spans["role"] == 0]
    for each in entries:
        mine = calls[[op in each.ops for op in calls["op"].tolist()]]
        assert each.count == len(mine)
        assert each.total_ns == int((mine["end_ns"] - mine["begin_ns"]).sum())


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_shares_are_of_the_time_that_the_host_waits(seed):
    entries = model_of(made_run(seed)).entries()
    waits = [each for each in entries if each.row.kind in SYNC_KINDS]
    total = sum(each.total_ns for each in waits)
    for each in entries:
        expected = each.total_ns / total if each in waits and total else 0.0
        assert each.share == pytest.approx(expected)


@pytest.fixture(scope="module")
def result():
    model = load_model("tiny")
    workload = Workload(model, tuple(model.tokenizer.encode("Once upon a time")), 6, 512)
    device = SimDevice(load_profile("h200"), compute=False)
    return run_bench(workload, device, [preset_variant("baseline"), preset_variant("saaasg")])


def test_verdicts_of_a_simulated_run_are_those_of_the_report(result):
    for variant in result.variants:
        trace = variant.trace
        model = model_of(trace, range(0, 3000, 217))
        for change in trace_changes(trace):
            model.change(change)
        expected = [each for each in result.sites if each.variant == variant.id]
        shown = [each.row for each in model.entries()]
        for mine, theirs in zip(shown, expected, strict=True):
            assert theirs.why.endswith(mine.why)
            assert mine == replace(theirs, why=mine.why)
        assert any(each.verdict == "redundant" for each in shown)


def change(variant_id, *findings):
    """A change to a plan that has just the sites of some findings."""
    ops = tuple(Op(each.site, Kind.SYNC, "dev0.compute") for each in findings)
    plan = Plan((), (), (), {"decode": ops})
    reasons = {("decode", each.site): f"why {each.site}" for each in findings}
    planned = Planned(Variant(variant_id, ()), plan, Applied(plan, (), {}), ())
    return PlanChange(0, planned, findings, {}, reasons, {})


def test_a_site_that_is_no_longer_planned_keeps_its_last_verdict():
    build = TraceBuilder().step("decode").call("s:gone", 0, 10).call("s:here", 10, 20)
    model = model_of(build.trace())
    gone = Finding("decode", "gone", "redundant", True)
    here = Finding("decode", "here", "required", False)
    model.change(change("one", gone, here))
    assert [each.is_planned for each in model.entries()] == [True, True]
    model.change(change("two", replace(here, verdict="demotable")))
    first, second = model.entries()
    assert (first.row.site, first.row.verdict, first.is_planned) == ("gone", "redundant", False)
    assert (second.row.verdict, second.row.why) == ("demotable", "why here")
    assert (second.row.variant, second.is_planned) == ("two", True)


def test_entries_match_every_word_of_a_text():
    build = TraceBuilder().step("decode").call("s:logits.get0.sync", 0, 10).call("a:inp", 10, 20)
    model = model_of(build.trace())
    model.change(change("one", Finding("decode", "logits.get0.sync", "redundant", True)))
    entries = model.entries()
    assert [each.row.site for each in matching(entries, "DECODE redundant")] == ["logits.get0.sync"]
    assert [each.row.site for each in matching(entries, "copy")] == ["inp"]
    assert matching(entries, "copy redundant") == []
    assert len(matching(entries, "  ")) == 2
