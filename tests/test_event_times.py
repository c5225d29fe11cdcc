"""Device times by CUDA events, on a pretended GPU."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_gpu import FakeGPU
from syncscope.sched_core.backend import BOUNDED
from syncscope.sched_core.cuda_backend import RECORDS
from syncscope.sched_core.event_times import EVENT_PAIRS, RESOLUTION_NS

TICK_NS = 1024
"""A kernel named k1, and a copy, take that long there."""

STEP = "s copy hp dp; s k30 r dp w dq; s k10 r dq w dr; s copy dr hq; sync s"


def spans_of(found: dict[str, Any], role: str) -> list[dict[str, Any]]:
    return [each for each in found["spans"] if each["role"] == role and each["phase"] != "switch"]


def record(fake_gpu: FakeGPU, plan: Any, steps: int = 5, **options: Any) -> dict[str, Any]:
    phases = options.pop("phases", [["decode", steps]])
    found: dict[str, Any] = fake_gpu("record", mode="events", plan=plan, phases=phases, **options)
    assert found["dropped"] == found["ring_dropped"] == 0
    return found


def test_every_copy_and_every_kernel_launched_by_itself_has_a_span(fake_gpu: FakeGPU) -> None:
    found = record(fake_gpu, STEP)
    runs = spans_of(found, "exec")
    assert [(each["step"], each["site"]) for each in runs] == [
        (step, site) for step in range(5) for site in "0123"
    ]
    assert {(each["flags"], each["lane"]) for each in runs} == {(BOUNDED, "s")}
    length = {"0": 1, "1": 30, "2": 10, "3": 1}
    for each in runs:
        assert each["end_ns"] - each["begin_ns"] >= TICK_NS * length[each["site"]]
    assert found["timer_step_ns"] == RESOLUTION_NS
    assert found["driver_calls"] is None


def test_a_graph_is_one_span_and_its_kernels_have_none(fake_gpu: FakeGPU) -> None:
    found = record(fake_gpu, STEP, graphs=True)
    by_step: dict[int, list[tuple[str, str]]] = {}
    for each in spans_of(found, "exec"):
        by_step.setdefault(each["step"], []).append((each["kind"], each["site"]))
    copies = ("COPY", "0"), ("COPY", "3")
    eager = [copies[0], ("LAUNCH", "1"), ("LAUNCH", "2"), copies[1]]
    replayed = [copies[0], ("GRAPH", "graph"), copies[1]]
    assert list(by_step.values()) == [eager, eager, replayed, replayed, replayed]
    (graph, *_) = [each for each in spans_of(found, "exec") if each["kind"] == "GRAPH"]
    assert graph["end_ns"] - graph["begin_ns"] >= 40 * TICK_NS


def test_spans_of_a_stream_follow_one_another(fake_gpu: FakeGPU) -> None:
    plan = "s k5 w da; t k9 w db; s k6 r da w dc; t copy db hq; sync s; sync t"
    runs = spans_of(record(fake_gpu, plan, 30), "exec")
    for lane in "st":
        mine = [each for each in runs if each["lane"] == lane]
        assert len(mine) == 60
        # the driver answers in milliseconds of single precision
        assert all(b["begin_ns"] >= a["end_ns"] - RESOLUTION_NS for a, b in pairwise(mine))


def test_an_op_lies_between_its_call_and_the_wait_for_it(fake_gpu: FakeGPU) -> None:
    found = record(fake_gpu, STEP, 40)
    slack = found["clock_uncertainty_ns"] + RESOLUTION_NS
    assert found["clock_uncertainty_ns"] > 0
    calls = {(each["step"], each["site"]): each for each in spans_of(found, "call")}
    for each in spans_of(found, "exec"):
        assert each["begin_ns"] >= calls[each["step"], each["site"]]["begin_ns"] - slack
        assert each["end_ns"] <= calls[each["step"], "4"]["end_ns"] + slack


def test_a_run_longer_than_the_ring_loses_nothing(fake_gpu: FakeGPU) -> None:
    plan = STEP.replace("k30", "k1").replace("k10", "k1")
    found = fake_gpu("long_run", mode="events", plan=plan, steps=5000)
    assert found["max_steps"] == EVENT_PAIRS // 4
    assert (found["steps"], found["per_step"]) == (5000, [4])
    assert found["dropped"] == found["ring_dropped"] == 0


def test_steps_that_never_wait_are_timed_too(fake_gpu: FakeGPU) -> None:
    found = fake_gpu("long_run", mode="events", plan="s k1 w da; t k1 w db", steps=20_000)
    assert (found["steps"], found["per_step"]) == (20_000, [2])


def test_a_step_of_more_ops_than_the_ring_has_makes_it_longer(fake_gpu: FakeGPU) -> None:
    n = EVENT_PAIRS + 100
    plan = "; ".join(["s copy hp dp"] * n) + "; sync s"
    found = fake_gpu("long_run", mode="events", plan=plan, steps=5)
    assert found["max_steps"] == 2
    assert (found["steps"], found["per_step"]) == (5, [n])


def test_another_plan_in_the_same_run_is_timed_as_its_own(fake_gpu: FakeGPU) -> None:
    plans = [STEP, "up: s copy hp dp; only: s k3 r dp w dq; sync s"]
    found = fake_gpu("switch", mode="events", plans=plans, steps=4)
    assert [(each["step"], each["site"]) for each in spans_of(found, "exec")] == [
        *((step, site) for step in range(4) for site in "0123"),
        *((step, site) for step in range(4, 8) for site in ("up", "only")),
    ]


def test_two_backends_take_turns(fake_gpu: FakeGPU) -> None:
    for found in fake_gpu("take_turns", mode="events", plan=STEP, steps=10):
        assert [each["site"] for each in spans_of(found, "exec")] == [*"0123"] * 10


def test_what_runs_while_nothing_is_recorded_leaves_no_trace(fake_gpu: FakeGPU) -> None:
    found = fake_gpu("without_recording", mode="events", plan=STEP, steps=6)
    assert [each["step"] for each in spans_of(found, "exec")] == [
        step for step in range(6, 12) for _ in range(4)
    ]


def test_a_run_that_a_fault_ends_keeps_all_that_ran(fake_gpu: FakeGPU) -> None:
    plan = "s copy hp dp; s f2 r dp w dq; sync s; s copy dq hq; sync s"
    found = fake_gpu("fault", mode="events", plan=plan, steps=50)
    assert found["refused_at"] == 5 and found["dropped"] == 0
    assert [(each["step"], each["site"]) for each in spans_of(found, "exec")] == [
        *((step, site) for step in range(5) for site in "013"),
        (5, "0"),
        (5, "1"),
    ]


@pytest.mark.parametrize("mode", ["events", "off"])
def test_opening_and_closing_leaves_nothing_behind(fake_gpu: FakeGPU, mode: str) -> None:
    for left in fake_gpu("cycle", mode=mode, plan=STEP, times=20):
        assert set(left.values()) == {0}


def test_nothing_is_timed_when_it_is_off(fake_gpu: FakeGPU) -> None:
    found = fake_gpu("record", mode="off", plan=STEP, phases=[["decode", 5]])
    assert spans_of(found, "exec") == [] and len(spans_of(found, "call")) == 25
    assert found["clock_uncertainty_ns"] is found["timer_step_ns"] is found["driver_calls"] is None


@pytest.mark.parametrize("mode", ["events", "off"])
def test_the_command_measures_what_a_recording_costs(
    fake_gpu: FakeGPU, tmp_path: Path, mode: str
) -> None:
    timeline = tmp_path / "timeline.json"
    arguments = ["--no-gui", "--device", "cuda", "--record", mode, "--tokens", "12"]
    found = fake_gpu("command", arguments=[*arguments, "--timeline", str(timeline)])
    assert found["code"] == 0, found["err"]
    assert set(found["live"].values()) == {0}
    assert f"mode {mode}, 0 spans dropped, overhead " in found["out"]
    assert ("overhead not measured" in found["out"]) == (mode == "off")
    assert timeline.stat().st_size > 10_000


def test_recordings_are_those_of_the_vocabulary() -> None:
    assert RECORDS == ("stamps", "cupti", "events", "off")
