"""Two runs go together step by step, and differ site by site."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.made_runs import pieces
from helpers.traces import TraceBuilder, decode_run
from syncscope.app.gui.compare_model import StepDifference, align, site_differences
from syncscope.app.gui.latency_model import LatencyModel
from syncscope.app.gui.sites_model import SitesModel

PHASES = st.lists(st.sampled_from(["prompt", "prompt_last", "decode"]), max_size=30)


def begins(phases, period):
    return np.arange(len(phases), dtype=np.int64) * period


def entries(trace):
    model = SitesModel()
    for each in pieces(trace, ()):
        model.extend(each.spans, each.sites, each.phases)
    return model.entries()


def figures(trace):
    model = LatencyModel()
    model.extend(trace.spans, trace.sites, trace.phases)
    return model.figures()


@given(PHASES)
def test_runs_with_the_same_steps_go_together_one_by_one(phases):
    found = align((phases, phases), (begins(phases, 100), begins(phases, 70)))
    assert found.first.tolist() == found.second.tolist() == list(range(len(phases)))
    assert found.offset_ns.tolist() == [30 * step for step in range(len(phases))]


@given(PHASES, PHASES)
def test_the_nth_step_of_a_phase_goes_with_the_nth_of_the_other_run(one, two):
    found = align((one, two), (begins(one, 100), begins(two, 70)))
    for first, second in zip(found.first.tolist(), found.second.tolist(), strict=True):
        assert one[first] == two[second]
        assert one[:first].count(one[first]) == two[:second].count(two[second])
        assert found.partner(first) == second
    assert len(found) == sum(min(one.count(p), two.count(p)) for p in set(one))
    assert found.first.tolist() == sorted(found.first.tolist())


@given(PHASES, PHASES)
def test_steps_that_go_together_are_drawn_above_each_other(one, two):
    b1, b2 = begins(one, 100), begins(two, 70)
    found = align((one, two), (b1, b2))
    for first, second in zip(found.first.tolist(), found.second.tolist(), strict=True):
        assert b2[second] + found.offset_at(first) == b1[first]


def test_a_step_without_a_partner_moves_with_the_nearest():
    phases = ["decode"] * 3, ["decode"] * 2
    found = align(phases, (begins(phases[0], 100), begins(phases[1], 60)))
    assert found.partner(2) == -1
    assert found.offset_at(2) == found.offset_at(1) == 40
    assert align(([], []), (begins([], 1), begins([], 1))).offset_at(5) == 0


def test_numbers_count_from_the_first_step_that_is_in_memory():
    phases = ["decode"] * 3
    found = align((phases, phases), (begins(phases, 1), begins(phases, 1)), (100, 40))
    assert found.first.tolist() == [100, 101, 102]
    assert found.partner(101) == 41


def test_sites_of_both_runs_are_joined_and_subtracted():
    one = TraceBuilder().step("decode").call("s:a", 0, 4000).call("s:b", 4000, 5000)
    two = TraceBuilder().step("decode").call("s:a", 0, 1000).call("E:c", 1000, 1500)
    found = {
        each.site: each for each in site_differences(*map(entries, (one.trace(), two.trace())))
    }
    assert list(found) == ["a", "b", "c"]
    assert (found["a"].per_step, found["a"].wait_us) == (0.0, -3.0)
    assert (found["b"].per_step, found["b"].wait_us, found["b"].second) == (-1.0, -1.0, None)
    assert (found["c"].per_step, found["c"].wait_us, found["c"].first) == (1.0, 0.5, None)


def test_a_site_whose_kind_changed_is_two_rows():
    one = TraceBuilder().step("decode").call("A:up", 0, 1000)
    two = TraceBuilder().step("decode").call("a:up", 0, 200)
    kinds = [each.kind for each in site_differences(entries(one.trace()), entries(two.trace()))]
    assert kinds == ["blocking copy", "async copy"]


def test_time_per_token_is_compared_by_its_median():
    slow = figures(decode_run(range(1000, 30_000, 1000)))
    fast = figures(decode_run(range(500, 15_000, 500)))
    found = StepDifference(slow, fast)
    assert (found.period_ns, found.speed_up) == (-500, 2.0)
    assert StepDifference(slow, None).period_ns is None
    assert StepDifference(None, fast).speed_up is None
