"""Many cycles on a real GPU leave nothing behind, on the device or the host, and lose no span.

What flat means, and by which margins, stands in `helpers.endurance`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from types import ModuleType

import pytest

from helpers.endurance import (
    HOST_GAUGES,
    RESTART,
    Counts,
    Gauge,
    growth_per_cycle,
    issued,
    risen,
    run_sequence,
    with_restart,
)
from helpers.faults import FATAL_PTX
from helpers.gpu import GROUPED_F16, first_gpu, has_context, open_backend, small_workload
from syncscope.app.devices import CudaDevice
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.loader import load_modules
from syncscope.kernels.registry import load_model
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.cuda_backend import CudaBackend
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.recorder import SpanRing
from syncscope.sched_core.records import Plan

pytestmark = pytest.mark.gpu

STARTS_PER_CYCLE = 50
LONG = 1000
"""Tokens of a sequence."""


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(first_gpu())


@pytest.fixture(scope="module")
def gauges(device: CudaDevice, cuda_driver: ModuleType) -> Iterator[Mapping[str, Gauge]]:
    """The host's gauges and the device memory in use, read in a context of its own."""
    with closing(CudaBackend(KernelTable(), {}, {}, device.gpu.index, record="off")) as watcher:

        def device_nbytes() -> int:
            with watcher.active():
                free, total = cuda_driver.mem_get_info()
            return int(total - free)

        yield {**HOST_GAUGES, "device_nbytes": device_nbytes}


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[str, Mapping[str, float]], None]:
    """Return what prints growth per cycle, whether the test passes or not."""

    def to_terminal(what: str, found: Mapping[str, float]) -> None:
        with capsys.disabled():
            print(f"\n{what}: " + ", ".join(f"{name} {v:+,.1f}" for name, v in found.items()))

    return to_terminal


@pytest.fixture(autouse=True)
def _stack_stays_empty(device: CudaDevice) -> Iterator[None]:
    yield
    assert not has_context()


def tiny_workload(n_tokens: int) -> Workload:
    return Workload(load_model("tiny"), (65, 66, 67), n_tokens, 512)


def plan_of(workload: Workload, preset: str) -> Plan:
    return plan_variant(workload.plan(), preset_variant(preset)).plan


def test_opening_and_closing_fifty_times_leaves_nothing_behind(
    device: CudaDevice,
    cuda_driver: ModuleType,
    gauges: Mapping[str, Gauge],
    show: Callable[[str, Mapping[str, float]], None],
) -> None:
    workload = tiny_workload(6)
    plan = plan_of(workload, "all")
    images = [*dict.fromkeys(load_modules(device.gpu.arch).values()), FATAL_PTX]

    def driver_alone() -> None:
        context = cuda_driver.Device(device.gpu.index).make_context()
        modules = [cuda_driver.module_from_buffer(image) for image in images]
        modules.clear()
        context.pop()
        context.detach()

    def ours() -> None:
        with closing(open_backend(workload, device)) as backend:
            engine = Engine(backend, plan)
            for phase, steps in workload.segments:
                engine.run(phase, steps)
            engine.drain()
            assert len(engine.take_spans())

    driver = growth_per_cycle(driver_alone, 25, gauges)
    found = growth_per_cycle(ours, 50, gauges)
    show("a context and its modules without Syncscope, growth per cycle", driver)
    show("open, run, close, growth per cycle", found)
    assert not risen(found, driver)


def test_an_executor_made_anew_in_one_context_leaves_nothing_behind(
    device: CudaDevice,
    gauges: Mapping[str, Gauge],
    show: Callable[[str, Mapping[str, float]], None],
) -> None:
    workload = tiny_workload(6)
    plan = with_restart(plan_of(workload, "baseline"), workload)
    with closing(open_backend(workload, device)) as backend:

        def cycle() -> None:
            run_sequence(Engine(backend, plan), workload)

        found = growth_per_cycle(cycle, 100, gauges)
    show("an executor made anew, growth per cycle", found)
    assert not risen(found)


def test_two_thousand_starts_leave_nothing_behind_and_lose_no_span(
    device: CudaDevice,
    gauges: Mapping[str, Gauge],
    show: Callable[[str, Mapping[str, float]], None],
) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=100)
    plan = with_restart(plan_of(workload, "baseline"), workload)
    counts = Counts()
    one_sequence = [RESTART, *(phase for phase, n in workload.segments for _ in range(n))]
    n_cycles = 2000 // STARTS_PER_CYCLE
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, plan)

        def cycle() -> None:
            for _ in range(STARTS_PER_CYCLE):
                phase = one_sequence[engine.step % len(one_sequence)]
                if phase == RESTART:
                    engine.drain()
                assert engine.run(phase, 1) == 1
            counts.add(engine.take_spans(), engine.sites)

        found = growth_per_cycle(cycle, n_cycles, gauges)
        engine.drain()
        counts.add(engine.take_spans(), engine.sites)
    show(f"{STARTS_PER_CYCLE} starts, growth per cycle", found)
    assert not risen(found)
    assert engine.step == 2000
    assert engine.recorder.dropped == 0
    assert counts == issued(plan, engine.phases, drains=engine.phases.count(RESTART) + 1)


@pytest.mark.parametrize("preset", ["baseline", "all"])
def test_twenty_thousand_tokens_leave_nothing_behind_and_repeat_themselves(
    device: CudaDevice,
    gauges: Mapping[str, Gauge],
    show: Callable[[str, Mapping[str, float]], None],
    preset: str,
) -> None:
    workload = small_workload(replace(GROUPED_F16, context=1024), n_tokens=LONG)
    plan = with_restart(plan_of(workload, preset), workload)
    n_sequences = 20_000 // LONG
    counts, outputs = Counts(), set()
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, plan)

        def cycle() -> None:
            run_sequence(engine, workload)
            counts.add(engine.take_spans(), engine.sites)
            outputs.add((backend.read("tokens").tobytes(), backend.read("tap").tobytes()))

        found = growth_per_cycle(cycle, n_sequences, gauges)
    show(f"{LONG:,} tokens of {preset}, growth per cycle", found)
    assert not risen(found)
    assert engine.phases.count("decode") + n_sequences == 20_000
    assert len(outputs) == 1
    assert engine.recorder.dropped == 0
    assert counts == issued(plan, engine.phases, drains=n_sequences)


def test_a_ring_too_small_for_a_step_counts_every_call_that_it_drops(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=60)
    plan, counts = plan_of(workload, "baseline"), Counts()
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, plan, SpanRing(4))
        for phase, steps in workload.segments:
            engine.run(phase, steps)
        engine.drain()
        counts.add(engine.take_spans(), engine.sites)
    wanted = issued(plan, engine.phases, drains=1)
    assert engine.recorder.dropped > wanted.calls // 4
    assert counts.calls + engine.recorder.dropped == wanted.calls
    assert counts.kernels == wanted.kernels  # their times come from the device
