"""The names in the code are those of the project's vocabulary; what is not built is listed."""

import json
import re
from importlib import resources

import pytest

from helpers.plans import INPUTS, model_plan, run_by_hand
from helpers.shared import shared_path
from syncscope.app import cli
from syncscope.app.report.json_export import SCHEMA
from syncscope.kernels import registry as models
from syncscope.sched_core.capabilities import CAPABILITIES, CUDA
from syncscope.sched_core.engine import SWITCH
from syncscope.sched_core.errors import DeviceError, FileError, KernelFault, UsageError
from syncscope.sched_core.passes.registry import (
    NOT_BUILT,
    PASSES,
    PRESETS,
    apply_passes,
    available_presets,
)
from syncscope.sched_core.pattern import LETTERS, count_syncs, plan_pattern
from syncscope.sched_core.records import PHASES


@pytest.fixture(scope="module")
def known():
    return json.loads(shared_path("vocabulary.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def schema():
    path = resources.files("syncscope.app") / "schemas" / "bench-1.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def built_models():
    return {row.id for row in models.list_models()} - {"PATH", *models.PLANNED}


def described(each):
    """A pass in the vocabulary's words."""
    words = {"id": each.id, "needs": list(each.needs), "scheduling_only": each.scheduling_only}
    if each.capabilities:
        words["capabilities"] = list(each.capabilities)
    if each.parameter:
        words["parameter"] = each.parameter.name
        words["values"] = f"{each.parameter.low}..{each.parameter.high}"
        words["default"] = each.parameter.default
    return words


def test_what_is_not_built_is_what_the_code_says(known):
    passes = [each["id"] for each in known["passes"] if each["id"] not in PASSES]
    presets = [name for name in known["presets"] if name not in available_presets()]
    lacking = [name for name in known["models"] if name not in built_models()]
    print("passes not built yet:", ", ".join(passes))
    print("presets not available yet:", ", ".join(presets))
    print("models not built yet:", ", ".join(lacking))
    assert passes == list(NOT_BUILT)
    assert set(lacking) == set(models.PLANNED)
    unavailable = {
        name for name, members in PRESETS.items()
        if name != "all" and {each.partition("=")[0] for each in members} - set(PASSES)
    }  # fmt: skip
    assert set(presets) == unavailable


def test_passes_and_their_order(known):
    built = [each for each in known["passes"] if each["id"] in PASSES]
    assert [described(each) for each in PASSES.values()] == built


def test_presets(known):
    assert {name: list(members) for name, members in PRESETS.items()} == known["presets"]


def test_pattern_letters(known):
    assert known["pattern_letters"] == LETTERS


def test_phases(known):
    assert list(PHASES) == known["phases"]


def test_capabilities(known):
    assert list(CAPABILITIES) == known["capabilities"]


def test_models(known):
    assert set(known["models"]) == built_models() | set(models.PLANNED)


KEPT = "all, guards kept (before the analysis exists)"


def test_patterns_with_guards_kept(known):
    words = known["patterns"]
    requests = {
        "baseline": PRESETS["baseline"],
        "saaasg": PRESETS["saaasg"],
        KEPT: [each for each in PRESETS["all"] if each not in NOT_BUILT],
        "baseline + repeat-sync-elision": ["cuda-graph", "repeat-sync-elision"],
    }
    others = {"aaag", "all", "pass by pass, decode, guards kept"}
    assert set(words) == others | set(requests)
    for name, passes in requests.items():
        plan = model_plan(*passes)
        assert {phase: plan_pattern(plan.phases[phase]) for phase in words[name]} == words[name]


@pytest.mark.skipif("keep-set" in NOT_BUILT, reason="guards are kept until the analysis is built")
@pytest.mark.parametrize("preset", ["aaag", "all"])
def test_patterns_with_guards_dropped(known, preset):
    plan = apply_passes(model_plan(), PRESETS[preset], CUDA, filtered=True).plan
    expected = known["patterns"][preset]
    assert {phase: plan_pattern(plan.phases[phase]) for phase in expected} == expected


def test_patterns_pass_by_pass(known):
    so_far = ["cuda-graph"]
    *steps, (last, _) = known["patterns"]["pass by pass, decode, guards kept"]
    assert last == "guard dropped in decode"
    for name, expected in steps:
        so_far.append(name)
        assert plan_pattern(model_plan(*so_far).phases["decode"]) == expected


def test_baseline_sites_and_syncs(known):
    words = known["baseline_decode"]
    assert tuple(words["inputs"]) == INPUTS
    sites = {op.site for op in model_plan("cuda-graph").phases["decode"]}
    assert {each.replace("<name>", name) for each in words["sites"] for name in INPUTS[1:]} <= sites
    text = plan_pattern(model_plan("cuda-graph").phases["decode"])
    before, after = words["syncs_before_launch"], words["syncs_after_launch"]
    assert text == words["pattern"]
    assert count_syncs(text) == (before + after, before, after)


def test_sites_that_passes_make_are_known(known):
    words = {
        re.compile(re.escape(each).replace("<name>", r"\w+").replace("N", r"\d+"))
        for each in known["pass_sites"]
    }
    baseline = {op.site for ops in model_plan().phases.values() for op in ops}
    made = {"plan.switch.sync"}
    for preset in available_presets():
        plan = model_plan(*(each for each in PRESETS[preset] if each not in NOT_BUILT))
        made |= {op.site for ops in plan.phases.values() for op in ops} - baseline - {"graph"}
    assert len(made) > 5
    for site in made:
        assert any(each.fullmatch(site) for each in words), site
    _, engine = run_by_hand(model_plan())
    engine.set_plan(model_plan("cuda-graph"))
    assert "plan.switch.sync" in {each.name for each in engine.sites if each.phase == SWITCH}


def test_exit_codes(known):
    codes = {cli.EXIT_FAILED, cli.EXIT_USAGE, cli.EXIT_INTERRUPTED, 0}
    codes |= {each.exit_code for each in (UsageError, FileError, DeviceError, KernelFault)}
    assert {str(each) for each in codes} == set(known["exit_codes"])
    assert UsageError.exit_code == cli.EXIT_USAGE == 2
    assert {FileError.exit_code, DeviceError.exit_code} == {3}
    assert known["exit_codes"]["130"] == "interrupted"


def keys(words):
    """Read ``name{a,b}`` as (name, {a: None, b: None}); plain names have no inner keys."""
    found = {}
    for word in words:
        name, _, inner = word.rstrip("}").partition("{")
        found[name] = set(inner.split(",")) if inner else None
    return found


def properties(part):
    """The keys of an object of a schema, whether or not it may also be null."""
    for each in (part, *part.get("anyOf", ())):
        if "properties" in each:
            return each["properties"]
    return None


ADDED = {"sampling"}
"""Keys of the JSON that are younger than the vocabulary."""

WHERE_RECORDED = {"variants[]": {"driver_calls"}}
"""Keys that are there only where a run has recorded what they tell."""


def test_bench_json_keys(known, schema):
    words = dict(known["bench_json"])
    assert words.pop("schema") == SCHEMA == schema["properties"]["schema"]["const"]
    assert words.pop("rules").split("|") == known["rules"] == schema["properties"]["rules"]["enum"]
    assert {each.removesuffix("[]") for each in words} | {"schema", "rules"} | ADDED == set(
        schema["properties"]
    )
    for name, words_of in words.items():
        part = schema["properties"][name.removesuffix("[]")]
        part = part["items"] if name.endswith("[]") else part
        found = properties(part)
        expected = keys(words_of)
        assert set(expected) == set(part["required"]), name
        assert set(found) == set(expected) | WHERE_RECORDED.get(name, set()), name
        for key, inner in expected.items():
            if inner:
                assert set(properties(found[key])) == inner, f"{name}.{key}"


def test_verdict_words(known, schema):
    verdict = schema["properties"]["sites"]["items"]["properties"]["verdict"]["enum"]
    assert set(verdict) == {*known["verdicts"], None}


def test_hazard_and_recording_words(known, schema):
    hazard = schema["properties"]["hazards"]["items"]["properties"]
    assert hazard["type"]["enum"] == known["hazards"]
    assert hazard["rules"]["enum"] == known["rules"]
    mode = schema["properties"]["recording"]["properties"]["mode"]["enum"]
    assert set(mode) - {None} == set(known["record_modes"])
