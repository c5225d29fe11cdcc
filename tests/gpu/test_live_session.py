"""A live run on a real GPU: one thread's context, a plan toggled, sequences repeated, every end."""

import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from helpers.gpu import GROUPED_F16, first_gpu, has_context, open_backend, small_workload
from helpers.live import CALL, EXEC, Watched, watched
from syncscope.app.devices import CudaDevice
from syncscope.app.live import LiveRequest
from syncscope.app.live_worker import LiveWorker
from syncscope.app.spool import Spool, read_spool
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.sched_core.engine import SWITCH, Engine
from syncscope.sched_core.errors import DeviceError

pytestmark = pytest.mark.gpu

REQUEST = LiveRequest(n_tokens=100, ubatch=16)
PROMPT_STEPS = 3


@pytest.fixture(scope="module", autouse=True)
def gpu() -> CudaDevice:
    return CudaDevice(first_gpu())


@pytest.fixture(autouse=True)
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each worker that has ended left a context current in its thread."""
    left: list[bool] = []
    work = LiveWorker.work

    def looked_at(self: LiveWorker) -> None:
        try:
            work(self)
        finally:
            left.append(has_context())

    monkeypatch.setattr(LiveWorker, "work", looked_at)
    return left


def on_gpu(request: LiveRequest, device: CudaDevice) -> LiveRequest:
    return replace(request, device=f"cuda:{device.gpu.index}")


def steps_with(seen: Watched, role: int) -> list[int]:
    spans, sites = seen.spans, seen.sites
    in_step = np.array([site.phase != SWITCH for site in sites], bool)
    mine = spans[(spans["role"] == role) & in_step[spans["op"]]]
    return np.unique(mine["step"]).tolist()


def test_every_step_has_its_calls_and_its_device_times_and_the_output_is_the_baselines(
    gpu: CudaDevice, contexts: list[bool]
) -> None:
    with watched(on_gpu(replace(REQUEST, preset="all"), gpu)) as seen:
        seen.session.start()
        seen.finish()
        header = seen.session.header
    steps = list(range(PROMPT_STEPS + 99))
    assert seen.last.state == "finished", seen.last.failure
    assert steps_with(seen, CALL) == steps_with(seen, EXEC) == steps
    assert seen.last.dropped == 0
    assert len(seen.tokens()) == 100
    assert seen.last.bit_exact is True
    assert header["device"]["kind"] == "cuda"
    assert header["base_ns"] > 0 and not header["simulated"]
    assert header["recording"]["clock_uncertainty_ns"] is not None
    assert seen.spans["begin_ns"].min() >= 0
    assert contexts == [False]


@pytest.mark.parametrize("preset", ["no-graph", "saaasg", "aaag", "all"])
def test_a_plan_toggled_in_the_run_shows_one_drain_and_the_same_output(
    gpu: CudaDevice, contexts: list[bool], preset: str
) -> None:
    with watched(on_gpu(REQUEST, gpu)) as seen:
        seen.session.pause()
        for _ in range(20):
            seen.session.step()
        seen.session.start()
        seen.until_step(20)
        seen.session.set_variant(preset)
        seen.until(lambda seen: len(seen.changes) == 2)
        seen.session.resume()
        seen.finish()
    assert seen.last.state == "finished", seen.last.failure
    first, second = seen.changes
    assert second.step == 20
    assert seen.drains("plan.switch.sync") == [20]
    assert seen.pattern(19) == first.patterns["decode"]
    assert seen.pattern(20) == seen.pattern(90) == second.patterns["decode"]
    assert seen.last.bit_exact is True
    assert contexts == [False]


def test_sequences_repeat_bit_by_bit_while_time_goes_on(
    gpu: CudaDevice, contexts: list[bool]
) -> None:
    with watched(on_gpu(replace(REQUEST, repeat=True, preset="all"), gpu)) as seen:
        seen.session.start()
        seen.until(lambda seen: seen.last.sequence >= 2)
        seen.session.set_variant("baseline")
        seen.until(lambda seen: len(seen.changes) == 2)
        begun = seen.last.sequence
        seen.until(lambda seen: seen.last.sequence >= begun + 2)
        seen.session.stop()
        seen.finish()
    assert seen.last.state == "stopped", seen.last.failure
    for number in range(begun + 2):
        assert seen.outcome(number).bit_exact is True
        assert seen.tokens(number) == seen.tokens(0)
    calls = seen.spans[seen.spans["role"] == CALL]
    assert (np.diff(calls["begin_ns"]) >= 0).all()
    assert contexts == [False]


def test_a_restart_gives_written_buffers_their_first_bytes(gpu: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16)
    plan = plan_variant(workload.plan(), preset_variant("all")).plan
    first = workload.contents()
    with closing(open_backend(workload, gpu)) as backend:
        engine = Engine(backend, plan)
        for phase, steps in workload.segments:
            engine.run(phase, steps)
        engine.drain()
        assert backend.read("tap").any() and backend.read("k_cache.0").any()
        engine.restart(workload.contents())
        for buffer in plan.buffers:
            for slot in range(buffer.depth):
                found = backend.read(buffer.name, slot)
                if slot == 0 and buffer.name in first:
                    expected = np.ascontiguousarray(first[buffer.name]).reshape(-1).view(np.uint8)
                    assert np.array_equal(found, expected), buffer.name
                else:
                    assert not found.any(), buffer.name
        assert np.array_equal(backend.peek("tokens"), first["tokens"].view(np.uint8))


def test_a_paused_run_has_the_device_times_of_all_its_steps(gpu: CudaDevice) -> None:
    with watched(on_gpu(REQUEST, gpu)) as seen:
        seen.session.pause()
        for _ in range(PROMPT_STEPS - 1):  # after these the host waits for nothing
            seen.session.step()
        seen.session.start()
        seen.until_step(PROMPT_STEPS - 1)
        seen.until(lambda seen: steps_with(seen, EXEC) == list(range(PROMPT_STEPS - 1)))


def test_a_stopped_run_frees_the_gpu_for_the_next_one(
    gpu: CudaDevice, contexts: list[bool]
) -> None:
    for _ in range(3):
        with watched(on_gpu(replace(REQUEST, repeat=True), gpu)) as seen:
            seen.session.start()
            seen.until_step(10)
            seen.session.stop()
            seen.finish()
        assert seen.last.state == "stopped", seen.last.failure
    assert contexts == [False] * 3


def test_a_device_that_fails_in_the_run_ends_it_and_leaves_no_context(
    gpu: CudaDevice, contexts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Engine.run
    name = "live run"

    def fail(self: Engine, phase: str, steps: int) -> int:
        # the first engine computes the reference
        if threading.current_thread().name == name and self.recorder.recording and self.step >= 7:
            raise DeviceError("step 7, graph: cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED")
        return run(self, phase, min(steps, 1))

    monkeypatch.setattr(Engine, "run", fail)
    with watched(on_gpu(REQUEST, gpu)) as seen:
        seen.session.start()
        seen.finish()
    assert seen.last.state == "failed"
    assert seen.last.failure.endswith("CUDA_ERROR_LAUNCH_FAILED")
    assert steps_with(seen, CALL) == list(range(7))
    assert contexts == [False]


def test_what_cannot_be_planned_at_first_opens_nothing(
    gpu: CudaDevice, contexts: list[bool]
) -> None:
    with watched(on_gpu(replace(REQUEST, drop=("*",)), gpu)) as seen:
        seen.session.start()
        seen.finish()
    assert seen.last.state == "failed" and "--allow-hazards" in seen.last.failure
    assert contexts == [False]


def test_a_run_is_recorded_on_disk_with_its_device_times(
    gpu: CudaDevice, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spool = Spool.in_folder(tmp_path_factory.mktemp("runs"))
    with watched(on_gpu(REQUEST, gpu), spool) as seen:
        seen.session.start()
        seen.finish()
    trace = read_spool(spool.path)
    spool.discard()
    assert np.array_equal(trace.spans, seen.spans)
    assert (trace.sites, trace.phases) == (seen.sites, seen.phases)
    assert not trace.simulated and trace.base_ns > 0
