"""Removing syncs raw."""

import pytest

from helpers.plans import make_plan, model_plan
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.passes.drop_sites import drop_sites
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.records import PHASES, Kind

SAAASG = model_plan("batch-input-syncs")


def patterns(plan):
    return {phase: plan_pattern(ops) for phase, ops in plan.phases.items()}


def test_a_site_without_a_phase_is_dropped_in_every_phase():
    plan, dropped = drop_sites(SAAASG, ["inputs.sync_after"])
    assert dropped == tuple(f"{phase}:inputs.sync_after" for phase in PHASES)
    assert patterns(plan) == {
        "prompt": "saaaaaag",
        "prompt_last": "saaaaaagasssss",
        "decode": "saaaaaagasssss",
    }


def test_a_site_with_a_phase_is_dropped_there_alone():
    plan, dropped = drop_sites(SAAASG, ["prompt:inputs.sync_after"])
    assert dropped == ("prompt:inputs.sync_after",)
    assert plan.phases["decode"] == SAAASG.phases["decode"]
    assert patterns(plan)["prompt"] == "saaaaaag"


def test_a_star_matches_any_run_of_characters():
    plan, dropped = drop_sites(model_plan(), ["decode:input.*.sync_after", " logits.get* "])
    assert patterns(plan)["decode"] == "ss" + "as" * 5 + "aga"
    assert len(dropped) == 6 + 2 * 5


def test_nothing_but_syncs_is_dropped_however_wide_the_pattern():
    plan, dropped = drop_sites(SAAASG, ["*"])
    assert patterns(plan)["decode"] == "aaaaaaga"
    assert len(dropped) == 2 + 7 + 7
    for phase in PHASES:
        rest = [op for op in SAAASG.phases[phase] if op.kind != Kind.SYNC]
        assert list(plan.phases[phase]) == rest


def test_waits_of_streams_and_for_events_are_syncs():
    plan = make_plan("s record e; w: t wait e; y: sync e; k: s k1 w d")
    kept, dropped = drop_sites(plan, ["w", "y"])
    assert dropped == ("decode:w", "decode:y")
    assert [op.site for op in kept.phases["decode"]] == ["0", "k"]


def test_of_a_blocking_copy_only_the_blocking_is_dropped():
    plan = make_plan("x: s copy! h d; y: s copy h d")
    kept, dropped = drop_sites(plan, ["x"])
    assert dropped == ("decode:x",)
    assert plan_pattern(kept.phases["decode"]) == "aa"
    assert kept.op("decode", "x").accesses == plan.op("decode", "x").accesses
    with pytest.raises(UsageError):
        drop_sites(plan, ["y"])


def test_no_pattern_drops_nothing():
    assert drop_sites(SAAASG, []) == (SAAASG, ())


def test_the_input_plan_is_left_alone():
    before = dict(SAAASG.phases)
    drop_sites(SAAASG, ["*"])
    assert SAAASG.phases == before


def test_only_a_star_is_special():
    plan = make_plan("a[0]: s copy! h d; a0: s copy! h d; a?: s copy! h d; b: s k1 w d")
    assert drop_sites(plan, ["a[0]"])[1] == ("decode:a[0]",)
    assert drop_sites(plan, ["a?"])[1] == ("decode:a?",)
    assert drop_sites(plan, ["*[*"])[1] == ("decode:a[0]",)
    for pattern in ("a[?]", "[a]0", "b?", "a[!x]"):
        with pytest.raises(UsageError, match="no such sync site"):
            drop_sites(plan, [pattern])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("inputs.sync_aftr", r"--drop inputs.sync_aftr: no such sync site .*inputs.sync_after"),
        ("prompt:logits.get0.sync", "--drop prompt:logits.get0.sync: no such sync site"),
        ("graph", "no such sync site"),
        ("inputs.copy", "no such sync site"),
        ("promt:inputs.sync_after", r"unknown phase promt; did you mean prompt"),
        (":inputs.sync_after", "unknown phase"),
        ("", "no such sync site"),
    ],
)
def test_a_pattern_that_matches_nothing_names_the_nearest(pattern, message):
    with pytest.raises(UsageError, match=message):
        drop_sites(SAAASG, ["inputs.sync_before", pattern])
