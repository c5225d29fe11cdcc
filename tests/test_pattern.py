"""The shorthand of a step."""

import pytest

from helpers.plans import make_plan
from syncscope.sched_core.pattern import LETTERS, count_syncs, letter, pattern, plan_pattern
from syncscope.sched_core.records import Kind


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("sync s", "s"),
        ("sync dev.s", "s"),
        ("sync e", "E"),
        ("s copy! h d", "A"),
        ("s copy h d", "a"),
        ("s record e", "e"),
        ("s wait e", "w"),
        ("s k1 w d", "g"),
        ("host k1 w h", ""),
    ],
)
def test_each_op_has_its_letter(statement, expected):
    assert plan_pattern(make_plan(statement).phases["decode"]) == expected
    assert not expected or expected in LETTERS


def test_a_graph_shows_as_one_launch_with_its_members():
    text = "s copy h d; s k1 w d; s k1 w d; sync s"
    assert plan_pattern(make_plan(text).phases["decode"]) == "ags"
    assert plan_pattern(make_plan(text, graphs=True).phases["decode"]) == "ags"


def test_runs_of_kernels_are_one_launch_even_across_hidden_host_work():
    assert pattern("gghg") == "g"
    assert pattern("gag") == "gag"
    assert pattern("gghg", host=True) == "ghg"


def test_kinds_without_a_letter_do_not_show():
    letters = [letter(kind, False, "stream") for kind in (Kind.LAUNCH, Kind.MEMSET, Kind.LAUNCH)]
    assert letters == ["g", "", "g"]
    assert pattern(letters) == "g"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssassassassassassasgasssss", (18, 13, 5)),
        ("agaeE", (1, 0, 1)),
        ("EAgaews", (3, 2, 1)),
        ("gsgs", (2, 0, 2)),
        ("", (0, 0, 0)),
    ],
)
def test_syncs_are_counted_before_and_after_the_first_launch(text, expected):
    assert count_syncs(text) == expected


def test_without_a_launch_every_sync_counts_as_after_it():
    assert count_syncs("sas") == (2, 0, 2)
