"""Reasons hold as the analysis gives them, and are refused once anything in them is wrong."""

import ast
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from helpers.corruptions import CORRUPTIONS, path_without_sync, wrong_hazard
from helpers.plans import make_plan, model_plan
from helpers.rows import build, launch, record, row_lists, sync, wait
from syncscope.sched_core.capabilities import CUDA
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.moments import Edges
from syncscope.sched_core.order import RULES, Order
from syncscope.sched_core.passes.registry import (
    FILTERED_PRESETS,
    apply_passes,
    available_presets,
    preset_passes,
)
from syncscope.sched_core.path import EXEC, EdgeGraph
from syncscope.sched_core.program import GRID_SYNC, PDL, unroll
from syncscope.sched_core.reason import Checker, check_finding, check_kept
from syncscope.sched_core.records import Kind
from syncscope.sched_core.verdict import analyse, analyse_program

SCHED_CORE = Path(__file__).parents[1] / "sched_core"


@cache
def analysis_of(preset, rules):
    """Analyse a preset of the small model."""
    passes = preset_passes(preset)
    applied = apply_passes(model_plan(), passes, CUDA, filtered=preset in FILTERED_PRESETS)
    return analyse(applied.plan, rules)


def checker_of(analysis):
    return Checker(analysis.program, analysis.kept, analysis.rules)


CASES = pytest.mark.parametrize("rules", RULES)
PRESETS = pytest.mark.parametrize("preset", available_presets())


@CASES
@PRESETS
def test_every_finding_of_every_preset_holds(preset, rules):
    analysis = analysis_of(preset, rules)
    checker = checker_of(analysis)
    assert analysis.findings
    wrong = {f"{f.phase}:{f.site}": checker.check(f) for f in analysis.findings}
    assert not {site: words for site, words in wrong.items() if words}


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda each: each.__name__)
def test_no_corrupted_finding_of_any_preset_holds(corrupt):
    n_applied = 0
    for preset in available_presets():
        for rules in RULES:
            analysis = analysis_of(preset, rules)
            checker = checker_of(analysis)
            corrupted = [each for each in map(corrupt, analysis.findings) if each]
            n_applied += len(corrupted)
            assert not [each for each in corrupted if not checker.check(each)]
    assert n_applied


@CASES
@PRESETS
def test_the_kept_set_of_every_preset_orders_all_that_all_syncs_order(preset, rules):
    analysis = analysis_of(preset, rules)
    assert check_kept(analysis.program, analysis.kept, rules) == []
    for left_out in analysis.kept:
        rest = tuple(each for each in analysis.kept if each != left_out)
        assert check_kept(analysis.program, rest, rules)


# ---- random programs -----------------------------------------------------------------------------


@st.composite
def race_free(draw):
    """Draw a program of one thread with a sync put in wherever a hazard was, and a rule set."""
    rows, streams = draw(row_lists(threads=1))
    rules = draw(st.sampled_from(RULES))
    while True:
        program = build(rows, streams)
        hazards = Order(program, rules).hazards()
        if not len(hazards):
            return program, rules
        first, at = hazards[0]["first_row"], hazards[0]["second_row"]
        stream, later = rows[first]["stream"], rows[at]
        fixes = [[sync(stream)], [sync(stream, "device")]]
        if later["kind"] in (Kind.LAUNCH, Kind.MEMSET, Kind.GRAPH):  # no read within the call
            fixes.append([record(stream), wait(later["stream"])])
        rows[at:at] = draw(st.sampled_from(fixes))


MAY_BE_RIGHT = {wrong_hazard, path_without_sync}
"""Of a kernel that reads and writes two hazards may hold; a wait leaves its mark on the stream."""


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.generate],  # shrinking such programs outlasts faulthandler_timeout
)
@given(race_free())
def test_findings_of_random_programs_hold_and_corrupted_ones_do_not(drawn):
    program, rules = drawn
    for row, op in enumerate(program.ops):
        accesses = program.accesses[op["access0"] :][: op["n_access"]]
        note(f"{row} {Kind(op['kind']).name} {op} {accesses}")
    analysis = analyse_program(program, rules)
    assert not analysis.missing
    checker = checker_of(analysis)
    assert checker.check_kept() == []
    for left_out in analysis.kept:
        assert Checker(program, set(analysis.kept) - {left_out}, rules).check_kept()
    for finding in analysis.findings:
        assert checker.check(finding) == [], finding
        for corrupt in set(CORRUPTIONS) - MAY_BE_RIGHT:
            corrupted = corrupt(finding)
            assert corrupted is None or checker.check(corrupted), corrupted


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_path_passes_between_dependent_launches_by_a_wait_only_if_that_is_kept(is_kept):
    first, last = launch(0, [(3, 0, 0, 8, 1)]), launch(0, [(3, 0, 0, 8, 0)], flags=PDL)
    program = build([first, record(1), wait(0), last], ["nonblocking", "nonblocking"])
    graph, kept = EdgeGraph(program, "practical"), [2] if is_kept else []
    assert bool(graph.shortest((0, EXEC), (3, EXEC), kept)) == is_kept


def test_paths_of_dependent_launches_hold_to_the_order():
    """Reachability by edges is the order, whatever waits inside and stands in between."""
    kernels = [
        launch(0, [(3, 0, 0, 8, w)], flags=f) for w in (0, 1) for f in (0, PDL, PDL | GRID_SYNC)
    ]
    between = [record(0), wait(0), launch(1, [(3, 0, 0, 8, 1)])]
    for rows in product(kernels, [*kernels, *between], kernels, kernels[1:3]):
        program = build(list(rows), ["blocking", "legacy_default"])
        graph, edges = EdgeGraph(program, "strict"), Edges(program, "strict")
        hazards = {(h["first_row"], h["second_row"]) for h in Order(program, "strict").hazards()}
        for one, two in combinations(range(4), 2):
            is_path = (two, EXEC) in graph.reachable((one, EXEC), True, ())
            nodes = [graph.node((row, EXEC)) for row in (one, two)]
            assert is_path == edges.ordered(*map(edges.moment, nodes), ())
            assert not (is_path and (one, two) in hazards)


# ---- by hand -------------------------------------------------------------------------------------


def by_hand(text="write: host fill w h; s copy h d; done: sync s", rules="practical"):
    """Analyse three steps of a plan in which a host buffer is written, copied and waited for."""
    return analyse_program(unroll(make_plan(text), ["decode"] * 3), rules)


def test_a_reason_says_in_words_what_is_wrong_with_it():
    analysis = by_hand()
    (finding,) = analysis.findings
    assert finding.verdict == "required-for-reuse"

    def words(kept=analysis.kept, **changes):
        return " ".join(check_finding(analysis.program, kept, replace(finding, **changes)))

    assert words() == ""
    assert "no verdict: needless" in words(verdict="needless")
    assert "no sync of the program" in words(site="1")
    assert "not in the kept set" in words(kept=())
    assert "redundant, but in the kept set" in words(verdict="redundant")
    assert "no such access" in words(buffer="d")
    assert "make no WAW" in words(hazard="WAW")
    assert "has 1 slots, not 2" in words(slots=2)
    assert "its other fields say interchangeable" in words(alternatives=("decode:write",))
    assert "decode:write does not stand in" in words(alternatives=("decode:write",))
    assert words(verdict="unknown", first=None) == ""


def test_an_unknown_rule_set_is_refused_and_another_one_than_asked_for_is_wrong():
    analysis = by_hand()
    (finding,) = analysis.findings
    with pytest.raises(UsageError, match="unknown rules loose; use practical or strict"):
        check_finding(analysis.program, analysis.kept, replace(finding, rules="loose"))
    checker = Checker(analysis.program, analysis.kept, "strict")
    assert "practical" in checker.check(finding)[0]


def test_a_kept_set_that_names_what_is_no_sync_is_wrong():
    analysis = by_hand()
    assert check_kept(analysis.program, (*analysis.kept, "decode:write")) == [
        "decode:write is no sync of the program"
    ]


def test_reuse_is_only_the_hosts_write_over_the_source_of_a_copy():
    analysis = by_hand("s k1 r d w h; done: sync s; host fill r h")
    (finding,) = analysis.findings
    assert finding.verdict == "required"
    reuse = replace(finding, verdict="required-for-reuse", slots=1)
    assert "no host write over the source of a copy" in " ".join(
        check_finding(analysis.program, analysis.kept, reuse)
    )


def test_the_checker_imports_nothing_of_the_engine():
    allowed = {"errors", "moments", "program", "records"}
    for name in ("reason", "moments"):
        tree = ast.parse((SCHED_CORE / f"{name}.py").read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {alias.name for node in nodes for alias in node.names if node.col_offset == 0}
        from_modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        ours = {each for each in from_modules | modules if each.startswith("syncscope")}
        assert {each.removeprefix("syncscope.sched_core.") for each in ours} <= allowed
