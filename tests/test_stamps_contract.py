"""Stamps behind the backend's contract, on a pretended GPU whose kernels write none."""

from helpers.fake_gpu import FakeGPU
from syncscope.sched_core.backend import BOUNDED

STEP = "s copy hp dp; s k30 r dp w dq; s k10 r dq w dr; s copy dr hq; sync s"


def test_copies_are_bounded_and_the_clock_is_set(fake_gpu: FakeGPU) -> None:
    found = fake_gpu("record", mode="stamps", plan=STEP, phases=[["decode", 6]], graphs=True)
    assert found["dropped"] == 0 and found["driver_calls"] is None
    assert found["timer_step_ns"] == 32
    assert found["clock_uncertainty_ns"] > 0
    runs = [each for each in found["spans"] if each["role"] == "exec"]
    assert [(each["step"], each["site"]) for each in runs] == [
        (step, site) for step in range(6) for site in "03"
    ]
    assert {each["flags"] for each in runs} == {BOUNDED}


def test_a_run_longer_than_the_ring_goes_on(fake_gpu: FakeGPU) -> None:
    plan = STEP.replace("k30", "k1").replace("k10", "k1")
    found = fake_gpu("long_run", mode="stamps", plan=plan, steps=3000)
    assert 1 <= found["max_steps"] < 3000
    assert (found["steps"], found["per_step"]) == (3000, [2])


def test_opening_and_closing_leaves_nothing_behind(fake_gpu: FakeGPU) -> None:
    for left in fake_gpu("cycle", mode="stamps", plan=STEP, times=5):
        assert set(left.values()) == {0}
