"""The site table says what was executed where, and groups what is alike."""

import time
from dataclasses import replace

import pytest

from helpers.traces import COPIES, TraceBuilder, token_trace
from syncscope.app.report.site_table import group_rows, site_rows
from syncscope.app.results import SiteRow


def getter(number: int, wait_us: float, **changes: object) -> SiteRow:
    row = SiteRow("baseline", "decode", f"logits.get{number}.sync", "stream sync", 1.0, wait_us)
    return replace(row, **changes)  # type: ignore[arg-type]


def test_rows_have_count_and_mean_wait_per_step():
    build = TraceBuilder()
    for wait in (100, 300):
        build.step("decode").call("s:get", 0, wait).call("s:get", wait, wait + 50)
    (row,) = site_rows("baseline", build.trace())
    assert (row.variant, row.phase, row.site, row.kind) == (
        "baseline",
        "decode",
        "get",
        "stream sync",
    )
    assert row.per_step == 2.0
    assert row.wait_us == pytest.approx(0.25)
    assert row.verdict == "unknown"


def test_a_site_that_ran_in_some_steps_only_has_a_fraction():
    build = TraceBuilder().step("decode").call("s:once", 0, 10)
    build.step("decode").call("s:other", 20, 30)
    assert {row.site: row.per_step for row in site_rows("v", build.trace())} == {
        "once": 0.5,
        "other": 0.5,
    }


def test_syncs_come_first_then_the_rest_by_kind_in_order_of_issue():
    build = TraceBuilder().step("prompt")
    issued = ("h:write", "a:c1", "e:done", "w:after", "A:up", "G:graph", "g:k1", "E:ev", "D:dev")
    for i, site in enumerate((*issued, "s:last", "a:c0", "g:k2")):
        build.call(site, 10 * i, 10 * i + 10)
    rows = site_rows("v", build.trace())
    assert [(row.site, row.kind) for row in rows] == [
        ("up", "blocking copy"),
        ("ev", "event sync"),
        ("dev", "device sync"),
        ("last", "stream sync"),
        ("c1", "async copy"),
        ("c0", "async copy"),
        ("done", "event record"),
        ("after", "stream wait"),
        ("graph", "graph launch"),
        ("kernels", "kernels"),
        ("host work", "host work"),
    ]
    assert [row.verdict for row in rows] == ["unknown"] * 4 + [""] * 7
    assert rows[-2].per_step == 2.0


def test_phases_come_in_order_and_drains_are_left_out():
    build = TraceBuilder().step("decode").call("s:x", 0, 10).drain(10, 20)
    build.step("prompt").call("s:x", 20, 30)
    assert [(row.phase, row.site) for row in site_rows("v", build.trace())] == [
        ("prompt", "x"),
        ("decode", "x"),
    ]


def test_a_site_that_two_plans_share_is_one_row():
    build = TraceBuilder().step("decode").call("s:x", 0, 10)
    build.step("decode").call("s:x", 20, 40)
    trace = build.trace()
    spans = trace.spans.copy()
    spans["op"][1] = 1
    again = replace(trace, sites=trace.sites * 2, spans=spans)
    (row,) = site_rows("v", again)
    assert (row.per_step, row.wait_us) == (1.0, pytest.approx(0.015))


def test_device_time_of_copies_and_kernels_is_in_the_reason():
    build = TraceBuilder().step("decode").call("a:c", 0, 10).run("a:c", 20, 1520, lane=COPIES)
    build.call("G:graph", 10, 20).run("g:k1", 2000, 4000).run("g:k2", 4000, 5000)
    why = {row.site: row.why for row in site_rows("v", build.trace())}
    assert why["c"] == "1.50 us on the device"
    assert why["kernels"] == "2 sites, 3.00 us on the device; in a graph once captured"


def test_equal_numbered_sites_are_one_starred_row():
    (row,) = group_rows([getter(i, 0.5) for i in range(5)])
    assert (row.site, row.per_step, row.wait_us) == ("logits.get*.sync", 5.0, 2.5)
    assert row.why == "5 sites, 0.50 us each"


def test_a_member_that_differs_stays_by_itself_and_is_named():
    rows = group_rows([getter(0, 90.0), *(getter(i, 0.5 + i / 10) for i in range(1, 5))])
    assert [row.site for row in rows] == ["logits.get0.sync", "logits.get*.sync"]
    assert rows[1].why == "4 sites, 0.60 to 0.90 us each; differ: logits.get0.sync"


@pytest.mark.parametrize(
    "change", [{"per_step": 2.0}, {"verdict": "required"}, {"alone_safe": False}]
)
def test_members_with_another_count_or_verdict_are_not_joined(change):
    rows = group_rows([*(getter(i, 0.5) for i in range(3)), getter(3, 0.5, **change)])
    assert [row.site for row in rows] == ["logits.get*.sync", "logits.get3.sync"]


def test_groups_do_not_cross_phases_variants_or_kinds():
    rows = [
        getter(0, 0.5),
        getter(1, 0.5, phase="prompt"),
        getter(2, 0.5, variant="all"),
        getter(3, 0.5, kind="event sync"),
    ]
    assert group_rows(rows) == tuple(rows)


def test_layers_are_starred_and_names_without_a_number_are_kept():
    rows = [
        replace(getter(0, 1.0), site=site)
        for site in ("layer.0.moe.up.ids_sync", "layer.11.moe.up.ids_sync", "input.k_idxs.sync")
    ]
    assert [row.site for row in group_rows(rows)] == [
        "layer.*.moe.up.ids_sync",
        "input.k_idxs.sync",
    ]


def test_a_million_spans_make_a_table_in_seconds():
    trace = token_trace(1_000_000)
    began = time.process_time()
    rows = site_rows("baseline", trace)
    assert time.process_time() - began < 5
    assert sum(row.per_step for row in rows if row.kind == "stream sync") == 17
