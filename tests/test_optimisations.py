"""What toggling each pass would do is what happens when it is toggled."""

import json
import re
from dataclasses import replace
from itertools import islice

import pytest

from helpers.plans import model_plan
from helpers.shared import shared_path
from syncscope.app import optimisations
from syncscope.app.optimisations import (
    COMES_FROM,
    STATES,
    each_pass_state,
    pass_states,
    toggled,
)
from syncscope.app.variants import Variant, plan_variant, preset_variant
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.passes.base import Refused
from syncscope.sched_core.passes.registry import NOT_BUILT, PASSES, PRESETS, available_presets
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.records import diff

BASELINE = model_plan()


def states(preset, *extra, **more):
    variant = preset_variant(preset, extra)
    return {each.id: each for each in pass_states(BASELINE, variant, **more)}


def plan_of(passes):
    return plan_variant(BASELINE, Variant("x", tuple(passes), filtered=True)).plan


def test_every_pass_there_is_or_will_be_is_listed_in_the_order_in_which_passes_run():
    known = json.loads(shared_path("vocabulary.json").read_text(encoding="utf-8"))["passes"]
    assert list(COMES_FROM) == [each["id"] for each in known]
    assert set(COMES_FROM) == {*PASSES, *NOT_BUILT}
    found = states("baseline")
    assert list(found) == list(COMES_FROM)
    assert {name: list(each.needs) for name, each in found.items()} == {
        each["id"]: each["needs"] for each in known
    }


@pytest.mark.parametrize("preset", available_presets())
def test_a_toggle_does_what_was_said(preset):
    variant = preset_variant(preset)
    now = plan_of(variant.passes)
    applied = {text.partition("=")[0] for text in now.passes}
    for each in pass_states(BASELINE, variant):
        assert each.state in STATES
        if each.state == "not built":
            assert each.id in NOT_BUILT and not each.on
            continue
        assert each.on == (each.id in applied)
        other = plan_of(toggled(variant.passes, each.id, not each.on))
        without, with_it = (other, now) if each.on else (now, other)
        changes = {phase: diff(ops, with_it.phases[phase]) for phase, ops in without.phases.items()}
        assert set(each.removes) == {
            f"{phase}:{site}" for phase, change in changes.items() for site in change.removed
        }
        assert set(each.adds) == {
            f"{phase}:{site}" for phase, change in changes.items() for site in change.added
        }
        if each.state == "proved" and " becomes " in each.why:
            phase, before, after = re.search(r"; (\w+) (\w+) becomes (\w+)$", each.why).groups()
            assert before == plan_pattern(without.phases[phase])
            assert after == plan_pattern(with_it.phases[phase])
        elif each.state == "proved":
            assert all(
                plan_pattern(ops) == plan_pattern(with_it.phases[phase])
                for phase, ops in without.phases.items()
            )


def test_on_the_baseline_every_pass_that_is_built_is_proved():
    found = states("baseline")
    assert {each.state for name, each in found.items() if name in PASSES} == {"proved"}
    assert found["cuda-graph"].on and not found["pack-inputs"].on
    batch = found["batch-input-syncs"]
    assert batch.why == (
        "it makes no hazard under practical rules; "
        "decode ssassassassassassasgasssss becomes saaaaaasgasssss"
    )
    assert "decode:input.pos.sync_after" in batch.removes
    assert "decode:inputs.sync_before" in batch.adds
    assert batch.needs == ("async-input-copies",)


def test_a_pass_that_would_change_nothing_has_no_site():
    found = states("all")["keep-set"]
    assert (found.state, found.why) == ("no site", "it would change nothing here")
    assert (found.removes, found.adds) == ((), ())


def test_a_pass_that_finds_nothing_has_no_site(monkeypatch):
    monkeypatch.setitem(PASSES, "pack-inputs", _with_apply("pack-inputs", lambda plan, value: plan))
    found = states("saaasg")["pack-inputs"]
    assert (found.state, found.why, found.on) == ("no site", "no site here", False)


def test_a_pass_that_is_refused_says_why_and_so_do_those_that_need_it(monkeypatch):
    def refuse(plan, value):
        raise Refused("the copies are on two streams")

    monkeypatch.setitem(PASSES, "batch-input-syncs", _with_apply("batch-input-syncs", refuse))
    found = states("baseline")
    assert found["batch-input-syncs"].state == "refused"
    assert found["batch-input-syncs"].why == "the copies are on two streams"
    assert found["pack-inputs"].state == "refused"
    assert found["pack-inputs"].why == "needs batch-input-syncs, which was refused"
    assert found["repeat-sync-elision"].state == "proved"


def test_a_pass_that_makes_a_hazard_is_refused_with_both_accesses(monkeypatch):
    monkeypatch.setitem(PASSES, "drop-leading-sync", _with_apply("drop-leading-sync", _drop_all))
    found = states("saaasg")["drop-leading-sync"]
    assert (found.state, found.on, found.removes) == ("refused", False, ())
    assert "nothing orders them" in found.why
    variant = Variant("racy", (*PRESETS["saaasg"], "drop-leading-sync"), allow_hazards=True)
    allowed = {each.id: each for each in pass_states(BASELINE, variant)}["drop-leading-sync"]
    assert (allowed.state, allowed.on) == ("refused", True)
    assert allowed.why == found.why
    assert "decode:inputs.sync_after" in allowed.removes


def _with_apply(name, apply):
    return replace(PASSES[name], apply=apply)


def _drop_all(plan, value):
    phases = {
        phase: tuple(op for op in ops if not op.site.startswith("inputs.sync"))
        for phase, ops in plan.phases.items()
    }
    return replace(plan, phases=phases)


def test_what_the_backend_cannot_do_is_said():
    found = states("no-graph", capabilities={"async_host_source"})
    assert found["cuda-graph"].state == "not on this backend"
    assert found["cuda-graph"].why == "not on this backend: it lacks graphs"
    assert found["drop-trailing-sync"].state == "not on this backend"
    assert found["input-slot-ring"].state == "refused"
    assert found["batch-input-syncs"].state == "proved"


def test_the_rule_set_is_the_one_that_was_asked_for():
    assert "under strict rules" in states("baseline", rules="strict")["pack-inputs"].why


def test_a_number_has_its_values_and_what_it_is():
    ring = states("baseline")["input-slot-ring"]
    assert (ring.parameter, ring.values, ring.value) == ("depth", ("2", "3", "4"), "2")
    assert states("aaag", "input-slot-ring=3")["input-slot-ring"].value == "3"
    assert states("baseline")["pack-inputs"].parameter == ""


def test_presets_are_named_with_those_inside_others():
    found = states("baseline")
    assert found["cuda-graph"].presets == tuple(name for name in PRESETS if name != "no-graph")
    assert found["run-ahead"].presets == ("all-run-ahead",)
    assert found["device-sampling"].presets == ("all", "all-run-ahead")
    assert found["keep-set"].presets == ()


def test_sources_name_what_they_are_from():
    for name, each in PASSES.items():
        for number in re.findall(r"#\d+", each.source):
            assert number in COMES_FROM[name], name
    assert all(text == text.strip() and "\n" not in text for text in COMES_FROM.values())


@pytest.mark.parametrize(
    ("passes", "text", "on", "expected"),
    [
        (("cuda-graph",), "pack-inputs", True, ("cuda-graph", "pack-inputs")),
        (("input-slot-ring=2",), "input-slot-ring=4", True, ("input-slot-ring=4",)),
        (("cuda-graph", "pack-inputs"), "cuda-graph", False, ("pack-inputs",)),
        (PRESETS["aaag"], "drop-trailing-sync", False,
         (*PRESETS["saaasg"], "drop-leading-sync")),
        ((*PRESETS["aaag"], "input-slot-ring=2", "pack-inputs", "logits-event-sync"),
         "async-input-copies", False, ("cuda-graph", "logits-event-sync")),
        ((), "keep-set", False, ()),
    ],
)  # fmt: skip
def test_a_toggle_takes_what_needs_the_pass_with_it(passes, text, on, expected):
    assert toggled(passes, text, on) == expected


def test_who_has_enough_asks_for_no_more(monkeypatch):
    asked = []
    apply = optimisations.apply_passes

    def counted(*arguments, **named):
        asked.append(arguments[1])
        return apply(*arguments, **named)

    monkeypatch.setattr(optimisations, "apply_passes", counted)
    states = each_pass_state(BASELINE, preset_variant("baseline"))
    assert asked == []
    assert [each.id for each in islice(states, 2)] == ["cuda-graph", "async-input-copies"]
    assert len(asked) == 3  # the variant, then one toggle each


def test_an_unknown_pass_is_refused():
    with pytest.raises(UsageError, match="unknown pass"):
        pass_states(BASELINE, Variant("x", ("cuda-grph",)))
