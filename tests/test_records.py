"""Records of a plan, and the difference between two versions of a phase."""

import dataclasses

import pytest

from helpers.plans import model_plan, parse_ops, without
from syncscope.sched_core.records import Kind, diff


def ops(text):
    return parse_ops(text, ["s"])


def test_diff_names_what_was_removed_added_and_changed():
    found = diff(
        ops("one: sync s; two: s k1 w d; three: s record e"),
        ops("two: s k2 w d; new: sync e; three: s record e"),
    )
    assert found.removed == ("one",)
    assert found.added == ("new",)
    assert found.changed == ("two",)


def test_a_phase_does_not_differ_from_itself():
    phase = model_plan().phases["decode"]
    found = diff(phase, phase)
    assert (found.removed, found.added, found.changed) == ((), (), ())
    assert (found.replaced_by, found.anchor) == ({}, {})


def test_a_removed_site_is_anchored_to_the_last_site_before_it_that_stayed():
    before = ops("a: sync s; b: sync s; c: s k1 w d; e: sync s; f: s k1 w d; g: sync s")
    after = ops("c: s k1 w d; f: s k1 w d")
    assert diff(before, after).anchor == {"a": "", "b": "", "e": "c", "g": "f"}


def test_replaced_by_names_the_site_that_took_the_duty_over():
    after = (dataclasses.replace(ops("new: sync s")[0], replaces=("a", "b", "elsewhere")),)
    assert diff(ops("a: sync s; b: sync s; c: sync s"), after).replaced_by == {
        "a": "new",
        "b": "new",
    }


def test_a_site_that_is_still_there_is_not_replaced():
    kept = ops("a: sync s")[0]
    after = (kept, dataclasses.replace(ops("new: sync s")[0], replaces=("a",)))
    assert diff((kept,), after).replaced_by == {}


def test_replaces_is_closed_over_a_chain_of_passes():
    before, after = model_plan(), model_plan("pack-inputs", "drop-trailing-sync")
    found = diff(before.phases["decode"], after.phases["decode"])
    names = ("embd", "pos", "k_idxs", "v_idxs", "mask", "out_ids")
    assert {site: to for site, to in found.replaced_by.items() if site.endswith("sync_after")} == {
        f"input.{name}.sync_after": "inputs.copied.sync" for name in names
    }
    assert found.replaced_by["input.mask.copy"] == "inputs.copy"
    assert found.replaced_by["input.embd.sync_dst_again"] == "inputs.sync_before"
    assert "inputs.sync_after" in after.op("decode", "inputs.copied.sync").replaces


def test_a_dropped_sync_that_nothing_replaces_is_only_removed():
    before, after = model_plan("batch-input-syncs"), model_plan("drop-leading-sync")
    found = diff(before.phases["decode"], after.phases["decode"])
    assert found.removed == ("inputs.sync_before",)
    assert found.replaced_by == {}


def test_records_cannot_be_changed():
    op = ops("a: sync s")[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        op.site = "b"


def test_a_plan_is_asked_by_name():
    plan = model_plan("cuda-graph")
    assert plan.op("decode", "graph").kind == Kind.GRAPH
    assert plan.buffer("mask").memory == "pinned"
    with pytest.raises(KeyError, match="decode:nowhere"):
        plan.op("decode", "nowhere")
    with pytest.raises(KeyError):
        without(plan, "graph").op("decode", "graph")
    with pytest.raises(KeyError):
        plan.buffer("nowhere")
