"""Many cycles on the simulated device leave nothing behind and lose no span uncounted."""

import threading
from contextlib import closing
from mmap import mmap

import numpy as np
import pytest

from helpers.endurance import (
    HOST_GAUGES,
    RESTART,
    Counts,
    growth,
    growth_per_cycle,
    issued,
    risen,
    run_sequence,
    with_restart,
)
from helpers.gpu import GROUPED_F16, small_workload
from syncscope.app.devices import SimDevice
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.recorder import SpanRing

DEVICE = SimDevice(load_profile("h200"))
WORKLOAD = small_workload(GROUPED_F16, n_tokens=24)


def plan_of(preset):
    return plan_variant(WORKLOAD.plan(), preset_variant(preset)).plan


def open_backend():
    return DEVICE.make_backend(WORKLOAD, frozenset())


# ---- the gauges can tell -------------------------------------------------------------------------


def test_growth_is_that_per_cycle_whatever_the_warm_up_and_a_spike_do():
    steps = np.arange(50.0)
    leak = np.stack([3 * steps, 0 * steps, np.where(steps < 10, 0, 99)], axis=1)
    leak[37] += 1e6
    assert growth(leak).tolist() == pytest.approx([3, 0, 0], abs=0.2)


@pytest.mark.parametrize("name", HOST_GAUGES)
def test_a_leak_of_each_kind_is_seen(name, tmp_path):
    kept = []
    gate = threading.Event()
    threads = []

    def leak():
        if name == "objects":
            kept.append([])
        elif name == "host_nbytes":
            kept.append(mmap(-1, 3 << 20))  # new pages, whatever the heap has free
            kept[-1].write(bytes(3 << 20))
        elif name == "files":
            kept.append((tmp_path / "file").open("w"))
        else:
            threads.append(threading.Thread(target=gate.wait))
            threads[-1].start()

    try:
        assert name in risen(growth_per_cycle(leak, 30))
    finally:
        gate.set()
        for each in threads:
            each.join()
        for each in kept:
            if name in ("files", "host_nbytes"):
                each.close()


def test_what_grows_all_the_same_is_not_counted():
    assert not risen({"files": 0.4})
    assert list(risen({"files": 1.4})) == ["files"]
    assert not risen({"files": 1.4}, {"files": 1.0})
    assert list(risen({"files": 0.6}, {"files": -3.0})) == ["files"]


# ---- cycles --------------------------------------------------------------------------------------


def test_opening_running_and_closing_leaves_nothing_behind():
    plan = plan_of("all")

    def cycle():
        with closing(open_backend()) as backend:
            engine = Engine(backend, plan)
            for phase, steps in WORKLOAD.segments:
                engine.run(phase, steps)
            engine.drain()

    assert not risen(growth_per_cycle(cycle, 20))


def test_an_executor_made_anew_on_the_same_backend_leaves_nothing_behind():
    plan = with_restart(plan_of("baseline"), WORKLOAD)
    with closing(open_backend()) as backend:

        def cycle():
            run_sequence(Engine(backend, plan), WORKLOAD)

        assert not risen(growth_per_cycle(cycle, 20))


def test_hundreds_of_starts_leave_nothing_behind_and_lose_no_span():
    counts = Counts()
    workload = small_workload(GROUPED_F16, n_tokens=240)
    phases = iter([phase for phase, steps in workload.segments for _ in range(steps)])
    with closing(DEVICE.make_backend(workload, frozenset())) as backend:
        plan = plan_variant(workload.plan(), preset_variant("all")).plan
        engine = Engine(backend, plan)

        def cycle():
            for _ in range(8):
                engine.run(next(phases), 1)
            counts.add(engine.take_spans(), engine.sites)

        found = growth_per_cycle(cycle, 30)
        assert engine.step == 240
        engine.drain()
        counts.add(engine.take_spans(), engine.sites)
    assert not risen(found)
    assert engine.recorder.dropped == 0
    assert counts == issued(plan, engine.phases, drains=1)


@pytest.mark.parametrize("preset", ["baseline", "no-graph", "all"])
def test_sequence_after_sequence_gives_the_same_tokens_and_loses_no_span(preset):
    plan = with_restart(plan_of(preset), WORKLOAD)
    outputs, counts = set(), Counts()
    with closing(open_backend()) as backend:
        engine = Engine(backend, plan)

        def cycle():
            run_sequence(engine, WORKLOAD)
            counts.add(engine.take_spans(), engine.sites)
            outputs.add((backend.read("tokens").tobytes(), backend.read("tap").tobytes()))

        found = growth_per_cycle(cycle, 20)
        assert backend.counts[:2] == (0, 0)
        tokens = backend.read("tokens").view(np.int32)
    assert not risen(found)
    assert engine.phases.count(RESTART) == 20
    assert len(outputs) == 1
    assert len(set(tokens[len(WORKLOAD.prompt) :].tolist())) > 1
    assert engine.recorder.dropped == 0
    assert counts == issued(plan, engine.phases, drains=20)


def test_a_ring_too_small_for_a_step_counts_all_that_it_drops():
    plan, counts = plan_of("baseline"), Counts()
    with closing(open_backend()) as backend:
        engine = Engine(backend, plan, SpanRing(4))
        for phase, steps in WORKLOAD.segments:
            engine.run(phase, steps)
        engine.drain()
        counts.add(engine.take_spans(), engine.sites)
    wanted = issued(plan, engine.phases, drains=1)
    total = wanted.calls + wanted.kernels + wanted.copies
    assert engine.recorder.dropped > total // 2
    assert counts.calls + counts.kernels + counts.copies + engine.recorder.dropped == total
