"""Verdicts: the kept set, what can go together, and what goes wrong without the rest."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from helpers.closure import closure_hazards
from helpers.shared import shared_path
from helpers.verdicts import baseline, phases_of, planned, preset_plan, random_requests
from syncscope.sched_core.analyser import Analyser, analysis_phases
from syncscope.sched_core.capabilities import CUDA
from syncscope.sched_core.minimal import minimal_sets
from syncscope.sched_core.missing import hazards_added
from syncscope.sched_core.order import Order
from syncscope.sched_core.passes.drop_sites import drop_sites, sync_sites
from syncscope.sched_core.passes.registry import (
    PASSES,
    PRESETS,
    apply_passes,
    available_presets,
)
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.program import unroll
from syncscope.sched_core.reason import check_finding
from syncscope.sched_core.records import Access, Buffer, Kind, Op, Plan, Stream
from syncscope.sched_core.verdict import analyse, analyse_program, find_kept
from syncscope.sched_core.why import why


def vocabulary():
    return json.loads(shared_path("vocabulary.json").read_text(encoding="utf-8"))


# ---- what the baseline needs ---------------------------------------------------------------------


def test_baseline_keeps_exactly_what_llama_cpp_needs():
    wanted = vocabulary()["baseline_decode"]["kept_set_prompt_decode"]
    kept = analyse(preset_plan("baseline")).kept
    assert list(kept) == [f"{phase}:{site}" for phase, sites in wanted.items() for site in sites]


def test_of_18_decode_syncs_17_are_safe_alone_but_not_together():
    analysis = analyse(preset_plan("baseline"))
    decode = [each for each in analysis.findings if each.phase == "decode"]
    assert len(decode) == 18
    assert sum(each.alone_safe for each in decode) == 17
    together = drop_sites(
        preset_plan("baseline"), [f"decode:{each.site}" for each in decode if each.alone_safe]
    )[0]
    assert hazards_added(preset_plan("baseline"), together)[1]


def test_keeping_the_kept_set_alone_rederives_saaasg():
    plan = planned(("cuda-graph", "async-input-copies", "keep-set"))
    patterns = {phase: plan_pattern(ops) for phase, ops in plan.phases.items()}
    assert patterns == {
        "prompt": "aaaaaasg",
        "prompt_last": "aaaaaagas",
        "decode": "aaaaaagas",
    }


@pytest.mark.parametrize("preset", ["saaasg", "aaag", "all"])
def test_patterns_per_phase_are_those_of_the_vocabulary(preset):
    wanted = vocabulary()["patterns"][preset]
    found = {phase: plan_pattern(ops) for phase, ops in preset_plan(preset).phases.items()}
    assert {phase: found[phase] for phase in wanted} == wanted


@pytest.mark.parametrize("rules", ["practical", "strict"])
@pytest.mark.parametrize("preset", available_presets())
def test_no_preset_has_a_hazard(preset, rules):
    assert analyse(preset_plan(preset), rules).missing == ()


# ---- against brute force -------------------------------------------------------------------------


class Brute:
    """Kept set and verdicts from the definition, asked of the closure of the ordering graph."""

    def __init__(self, plan, rules="practical"):
        self.program = unroll(plan, analysis_phases(plan))
        self.rules = rules
        sites = self.program.sites
        names = {f"{site.phase}:{site.name}": i for i, site in enumerate(sites)}
        self.units = [names[unit] for unit in sync_sites(plan)]
        self.base = closure_hazards(self.program, rules)

    def safe(self, dropped):
        return closure_hazards(self.program, self.rules, dropped) <= self.base

    def kept(self):
        dropped = []
        for unit in reversed(self.units):
            if self.safe([*dropped, unit]):
                dropped.append(unit)
        return [unit for unit in self.units if unit not in dropped], dropped

    def table(self):
        """(kept, alone safe, what could stand in) of each unit."""
        kept, dropped = self.kept()
        out = {}
        for unit in self.units:
            stand_in = []
            if unit in kept:
                without = [*dropped, unit]
                stand_in = [
                    other
                    for other in self.units
                    if other in dropped and self.safe([each for each in without if each != other])
                ]
            out[self.name(unit)] = (
                unit in kept,
                self.safe([unit]),
                tuple(map(self.name, stand_in)),
            )
        return out

    def name(self, unit):
        site = self.program.sites[unit]
        return f"{site.phase}:{site.name}"


@pytest.mark.parametrize("preset", available_presets())
def test_verdict_table_is_that_of_a_brute_force_closure(preset):
    analysis = analyse(preset_plan(preset))
    found = {
        f"{each.phase}:{each.site}": (
            f"{each.phase}:{each.site}" in analysis.kept,
            each.alone_safe,
            each.alternatives,
        )
        for each in analysis.findings
    }
    assert found == Brute(preset_plan(preset)).table()
    for each in analysis.findings:
        kept, _, stand_in = found[f"{each.phase}:{each.site}"]
        assert (each.verdict == "redundant") == (not kept)
        assert (each.verdict == "interchangeable") == bool(stand_in)


# ---- mutation ------------------------------------------------------------------------------------


def check_mutation(program):
    """All redundant syncs go together; none of the kept ones may; every reason holds."""
    analyser = Analyser(program)
    analysis = analyse_program(program)
    assert not analysis.missing
    names = {analyser.name(unit): unit for unit in analyser.units}
    kept = [names[each] for each in analysis.kept]
    redundant = [unit for unit in analyser.units if unit not in kept]
    assert not len(Order(program).hazards(redundant))
    for unit in kept:
        assert len(Order(program).hazards([*redundant, unit]))
    for finding in analysis.findings:
        assert check_finding(program, analysis.kept, finding) == [], finding
        assert why(program, finding)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("name", PASSES)
def test_mutation_of_each_pass_with_what_it_needs(name, depth):
    ring = [f"input-slot-ring={depth}"] if depth > 1 else []
    plan = planned((name, *ring) if name != "input-slot-ring" else (ring or [name]))
    check_mutation(unroll(plan, analysis_phases(plan)))


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("preset", available_presets())
def test_mutation_of_each_preset_and_prompt_length(preset, micro_batches):
    check_mutation(unroll(preset_plan(preset), phases_of(micro_batches)))


def test_mutation_of_200_random_combinations():
    draw = np.random.default_rng(11)
    for request in random_requests(200):
        plan = planned(request)
        if draw.random() < 0.5:
            check_mutation(unroll(plan, phases_of(int(draw.integers(1, 7)))))
        else:
            check_mutation(unroll(plan, analysis_phases(plan)))


def test_keep_set_makes_no_hazard_and_leaves_nothing_to_drop():
    for request in random_requests(20, seed=3):
        plan = planned((*request, "keep-set"))
        analysis = analyse(plan)
        assert not analysis.missing
        assert all(each.verdict != "redundant" for each in analysis.findings)


def test_keep_set_keeps_what_either_rule_set_needs():
    copy, sync = Op("copy", Kind.COPY, "s"), Op("sync", Kind.SYNC, "s")
    ops = (
        replace(copy, accesses=(Access("d", False), Access("p", True))),
        sync,
        Op("read", Kind.HOST, accesses=(Access("p", False),)),
        replace(sync, site="sync.again"),
    )
    buffers = (Buffer("d", 8, "device", 0), Buffer("p", 8, "pageable"))
    plan = Plan(buffers, (Stream("s", 0, "nonblocking"),), (), {"decode": ops})
    assert (find_kept(plan), find_kept(plan, "strict")) == ((), ("decode:sync",))
    kept = PASSES["keep-set"].apply(plan, 0)
    assert [op.site for op in kept.phases["decode"]] == ["copy", "sync", "read"]


# ---- verdicts by hand ----------------------------------------------------------------------------


WRITE_MAP = Access("map.dev", True)
READ_RESULT, WRITE_RESULT = Access("result.dev", False), Access("result.dev", True)


def upload_plan(memory, waits):
    """A map that the host rewrites each step and uploads; perhaps it also waits for a result."""
    wait = [
        Op("result.copy", Kind.COPY, "compute", accesses=(READ_RESULT, Access("result", True))),
        Op("result.sync", Kind.SYNC, "compute"),
        Op("result.read", Kind.HOST, accesses=(Access("result", False),)),
    ]
    ops = (
        Op("map.write", Kind.HOST, accesses=(Access("map", True),)),
        Op(
            "map.copy",
            Kind.COPY,
            "compute",
            accesses=(Access("map", False), Access("map.dev", True)),
        ),
        Op("map.sync", Kind.SYNC, "compute"),
        Op("gather", Kind.LAUNCH, "compute", accesses=(Access("map.dev", False), WRITE_RESULT)),
        *(wait if waits else ()),
    )
    buffers = (
        Buffer("map", 64, memory),
        Buffer("map.dev", 64, "device", 0),
        Buffer("result", 64, "pinned"),
        Buffer("result.dev", 64, "device", 0),
    )
    return Plan(buffers, (Stream("compute", 0, "nonblocking"),), (), {"decode": ops})


@pytest.mark.parametrize(
    ("memory", "waits", "rules", "verdict"),
    [
        ("pageable", False, "practical", "redundant"),
        ("pinned", False, "practical", "required-for-reuse"),
        ("pinned", True, "practical", "redundant"),
        ("pageable", True, "practical", "redundant"),
        ("pageable", False, "strict", "required-for-reuse"),
    ],
)
def test_a_sync_after_an_upload_is_judged_by_memory_and_other_waits(memory, waits, rules, verdict):
    analysis = analyse(upload_plan(memory, waits), rules)
    assert analysis.finding("decode", "map.sync").verdict == verdict


def test_a_host_wait_for_device_order_alone_is_demotable():
    ops = (
        Op("make", Kind.LAUNCH, "one", accesses=(Access("x", True),)),
        Op("one.sync", Kind.SYNC, "one"),
        Op("use", Kind.LAUNCH, "two", accesses=(Access("x", False), Access("y", True))),
        Op("two.sync", Kind.SYNC, "two"),
    )
    plan = Plan(
        (Buffer("x", 8, "device", 0), Buffer("y", 8, "device", 0)),
        (Stream("one", 0, "nonblocking"), Stream("two", 0, "nonblocking")),
        (),
        {"decode": ops},
    )
    finding = analyse(plan).finding("decode", "one.sync")
    assert finding.verdict == "demotable"
    assert finding.weaker == "a wait of stream two instead of the host's"


def test_a_device_sync_where_one_stream_would_do_is_demotable():
    ops = (
        Op("make", Kind.COPY, "one", accesses=(Access("x", False), Access("h", True))),
        Op("sync", Kind.SYNC, "two", scope="device"),
        Op("use", Kind.HOST, accesses=(Access("h", False),)),
    )
    plan = Plan(
        (Buffer("x", 8, "device", 0), Buffer("h", 8, "pinned")),
        (Stream("one", 0, "nonblocking"), Stream("two", 0, "nonblocking")),
        (),
        {"decode": ops},
    )
    finding = analyse(plan).finding("decode", "sync")
    assert finding.verdict == "demotable"
    assert finding.weaker == "a sync of stream one alone"


def test_a_sync_that_an_earlier_event_could_replace_is_demotable():
    ops = (
        Op("back", Kind.COPY, "one", accesses=(Access("x", False), Access("h", True))),
        Op("long", Kind.LAUNCH, "one", accesses=(Access("y", True),)),
        Op("sync", Kind.SYNC, "one"),
        Op("use", Kind.HOST, accesses=(Access("h", False),)),
    )
    plan = Plan(
        (Buffer("x", 8, "device", 0), Buffer("y", 8, "device", 0), Buffer("h", 8, "pinned")),
        (Stream("one", 0, "nonblocking"),),
        (),
        {"decode": ops},
    )
    finding = analyse(plan).finding("decode", "sync")
    assert finding.verdict == "demotable"
    assert finding.weaker == "an event recorded behind decode:back"


def test_the_blocking_of_a_copy_that_only_a_stream_needs_is_demotable():
    ops = (
        Op(
            "up",
            Kind.COPY,
            "one",
            blocking=True,
            accesses=(Access("h", False), Access("x", True)),
        ),
        Op("use", Kind.LAUNCH, "two", accesses=(Access("x", False), Access("y", True))),
        Op("end", Kind.SYNC, "two"),
        Op("read", Kind.HOST, accesses=(Access("h", False),)),
    )
    plan = Plan(
        (Buffer("h", 8, "pinned"), Buffer("x", 8, "device", 0), Buffer("y", 8, "device", 0)),
        (Stream("one", 0, "nonblocking"), Stream("two", 0, "nonblocking")),
        (),
        {"decode": ops},
    )
    finding = analyse(plan).finding("decode", "up")
    assert finding.verdict == "demotable"
    assert finding.weaker == "a wait of stream two for it"


def test_the_source_of_a_captured_copy_is_required_for_reuse():
    ops = (
        Op("write", Kind.HOST, accesses=(Access("h", True),)),
        Op("graph", Kind.GRAPH, "one", graph=0),
        Op("up", Kind.COPY, "one", graph=0, accesses=(Access("h", False), Access("x", True))),
        Op("use", Kind.LAUNCH, "one", graph=0, accesses=(Access("x", False),)),
        Op("sync", Kind.SYNC, "one"),
    )
    plan = Plan(
        (Buffer("h", 8, "pinned"), Buffer("x", 8, "device", 0)),
        (Stream("one", 0, "nonblocking"),),
        (),
        {"decode": ops},
    )
    assert analyse(plan).finding("decode", "sync").verdict == "required-for-reuse"


def test_a_missing_order_names_both_sides_and_a_fix_that_mends_it():
    plan = drop_sites(preset_plan("saaasg"), ["inputs.sync_after"])[0]
    analysis = analyse(plan)
    assert {each.hazard for each in analysis.missing} == {"WAR"}
    first = next(each for each in analysis.missing if each.buffer == "pos")
    assert (first.first.site, first.second.site) == ("input.pos.copy", "input.pos.write")
    assert first.fix.startswith("record an event behind input.pos.copy and let the host wait")


def test_the_reason_of_reuse_reads_as_a_sentence():
    analysis = analyse(preset_plan("saaasg"))
    finding = analysis.finding("prompt", "inputs.sync_after")
    assert finding.verdict == "required-for-reuse"
    assert why(analysis.program, finding) == (
        "without inputs.sync_after the host's input.pos.write in prompt step 2 may overwrite "
        "pos (16 B) that the H2D input.pos.copy of step 1 still reads; nothing orders them; "
        "its slots keep 1 step apart, more of them need a wait each"
    )


# ---- gates ---------------------------------------------------------------------------------------


def test_a_pass_that_makes_a_hazard_is_refused_with_the_reason(monkeypatch):
    broken = replace(PASSES["drop-leading-sync"], apply=lambda plan, value: unguarded(plan))
    monkeypatch.setitem(PASSES, "drop-leading-sync", broken)
    request = ("async-input-copies", "batch-input-syncs", "drop-leading-sync")
    applied = apply_passes(baseline(), request, CUDA)
    assert "may overwrite" in applied.refused["drop-leading-sync"]
    allowed = apply_passes(baseline(), request, CUDA, allow_hazards=True)
    assert not allowed.refused and analyse(allowed.plan).missing


def unguarded(plan):
    return drop_sites(plan, ["inputs.sync_*"])[0]


def test_a_guard_stays_where_only_it_keeps_the_host_from_overwriting():
    applied = apply_passes(baseline(), PRESETS["aaag"], CUDA)
    assert applied.guards_dropped == ("decode:inputs.copied.sync",)
    decode = [op.site for op in applied.plan.phases["decode"]]
    assert not any(site.startswith("inputs.copied") for site in decode)
    assert "inputs.copied.record" in [op.site for op in applied.plan.phases["prompt"]]


# ---- smallest sets -------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", available_presets())
def test_smallest_sets_are_safe_irreducible_and_no_larger_than_the_kept_set(preset):
    plan = preset_plan(preset)
    program = unroll(plan, analysis_phases(plan))
    analyser = Analyser(program)
    names = {analyser.name(unit): unit for unit in analyser.units}
    found = minimal_sets(program)
    assert found.complete and found.size <= len(analyse(plan).kept)
    assert len(set(found.sets)) == len(found.sets)
    for each in found.sets:
        kept = {names[name] for name in each}
        assert len(kept) == found.size
        assert analyser.is_safe(set(analyser.units) - kept)


def test_smallest_sets_equal_brute_force_on_a_small_program():
    plan = preset_plan("saaasg")
    program = unroll(plan, ["prompt", "prompt", "prompt_last", "decode", "decode"])
    analyser = Analyser(program)
    found = minimal_sets(program)
    assert set(found.sets) == set(smallest_by_force(analyser))


def smallest_by_force(analyser):
    for size in range(len(analyser.units) + 1):
        sets = [
            tuple(map(analyser.name, kept))
            for kept in combinations(analyser.units, size)
            if analyser.is_safe(set(analyser.units) - set(kept))
        ]
        if sets:
            return sets
    return []
