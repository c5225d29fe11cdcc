"""The gain of a pass is what the last switch of it alone did."""

from dataclasses import dataclass

import pytest

from helpers.traces import decode_run
from syncscope.app.gui.latency_model import LatencyModel
from syncscope.app.gui.toggle_effects import gain_ns, toggle_effects
from syncscope.app.live_batch import PlanChange
from syncscope.app.variants import Planned, Variant
from syncscope.sched_core.passes.registry import Applied
from syncscope.sched_core.records import Plan


def change(step, *passes, dropped=()):
    plan = Plan((), (), (), {}, passes)
    return PlanChange(
        step, Planned(Variant("v", passes), plan, Applied(plan, (), {}), dropped), (), {}, {}, {}
    )


@dataclass
class Measured:
    """What `toggle_effects` asks of a recording, with a token every so many ns under each plan."""

    changes: tuple
    latency: LatencyModel
    forgotten_changes: int = 0


def measured(*changes, periods, forgotten=0):
    ends, end = [], 0
    for period in periods:
        for _ in range(10):
            end += period
            ends.append(end)
    trace = decode_run(ends, busy=0)
    latency = LatencyModel()
    latency.extend(trace.spans, trace.sites, trace.phases, [each.step for each in changes])
    return toggle_effects(Measured(changes[forgotten:], latency, forgotten))


def test_switching_on_and_off_says_the_same():
    effects = measured(change(0), change(10, "a"), change(20), periods=(1000, 700, 1000))
    assert [each.added for each in effects] == [("a",), ()]
    assert [each.removed for each in effects] == [(), ("a",)]
    assert gain_ns(effects[:1], "a") == gain_ns(effects, "a") == 300


def test_of_several_measurements_the_last_counts():
    effects = measured(
        change(0), change(10, "a"), change(20), change(30, "a"), periods=(1000, 700, 1000, 900)
    )
    assert gain_ns(effects, "a") == 100


def test_what_was_switched_together_has_no_gain_of_its_own():
    effects = measured(change(0), change(10, "a", "b"), periods=(1000, 700))
    assert effects[0].added == ("a", "b")
    assert gain_ns(effects, "a") is gain_ns(effects, "b") is None


def test_dropped_syncs_are_measured_as_passes_are():
    effects = measured(change(0), change(10, dropped=("decode:get",)), periods=(1000, 1100))
    assert (effects[0].dropped, effects[0].restored) == (("decode:get",), ())
    assert gain_ns(effects, "decode:get") == -100


def test_another_value_of_a_pass_is_another_pass():
    effects = measured(change(0, "ring=2"), change(10, "ring=4"), periods=(1000, 900))
    assert (effects[0].added, effects[0].removed) == (("ring=4",), ("ring=2",))
    assert gain_ns(effects, "ring=4") is None


@pytest.mark.parametrize("forgotten", [0, 1, 2])
def test_effects_of_changes_that_are_forgotten_are_left_out(forgotten):
    changes = (change(0), change(10, "a"), change(20))
    effects = measured(*changes, periods=(1000, 700, 1000), forgotten=forgotten)
    assert [each.step for each in effects] == [10, 20][forgotten:]
