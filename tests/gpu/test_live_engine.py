"""A worker thread as the desktop app has one: span batches, a plan toggled in the run, stop."""

import queue
import threading
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from helpers.gpu import GROUPED_F16, first_gpu, has_context, open_backend, small_workload
from syncscope.app.devices import CudaDevice
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.sched_core.engine import SWITCH, Engine
from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Kind, Plan

pytestmark = pytest.mark.gpu

PIECE = 8
CALL, EXEC = 0, 1


class Worker(threading.Thread):
    """Opens the GPU, runs decode steps, hands out spans, changes the plan when asked to.

    The device belongs to this thread: it is opened, used and closed here.
    """

    def __init__(self, workload: Workload, device: CudaDevice, plan: Plan) -> None:
        super().__init__()
        self.batches: queue.Queue[np.ndarray] = queue.Queue()
        self.ready = threading.Event()
        self.sites: list[Site] = []
        self.phases: list[str] = []
        self.tokens = b""
        self.error: BaseException | None = None
        self.context_left = True
        self._wanted: Plan | None = None
        self._stopping = False
        self._stop_engine: Callable[[], None] = lambda: None
        self._workload, self._device, self._plan = workload, device, plan

    def toggle(self, plan: Plan) -> None:
        self._wanted = plan

    def stop(self) -> None:
        self._stopping = True
        self._stop_engine()

    def run(self) -> None:
        try:
            with closing(open_backend(self._workload, self._device)) as backend:
                engine = Engine(backend, self._plan)
                self._stop_engine = engine.stop
                for phase, steps in self._workload.segments:
                    left = steps
                    while left and not self._stopping:
                        if self._wanted is not None:
                            plan, self._wanted = self._wanted, None
                            engine.set_plan(plan)
                        left -= engine.run(phase, min(left, PIECE))
                        self.batches.put(engine.take_spans())
                        self.ready.set()
                engine.drain()
                self.batches.put(engine.take_spans())
                self.sites, self.phases = engine.sites, engine.phases
                self.tokens = backend.read("tokens").tobytes()
        except BaseException as error:
            self.error = error
        finally:
            self.ready.set()
            self.context_left = has_context()

    def take(self) -> np.ndarray:
        found = []
        while not self.batches.empty():
            found.append(self.batches.get())
        return np.concatenate(found)


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(first_gpu())


def workload_of(n_tokens: int) -> Workload:
    return small_workload(GROUPED_F16, n_tokens=n_tokens)


def plan_of(workload: Workload, preset: str) -> Plan:
    return plan_variant(workload.plan(), preset_variant(preset)).plan


def finish(worker: Worker) -> np.ndarray:
    worker.join(60)
    assert not worker.is_alive()
    assert worker.error is None
    assert not worker.context_left
    return worker.take()


def test_spans_come_in_batches_and_cover_every_step(device: CudaDevice) -> None:
    workload = workload_of(100)
    worker = Worker(workload, device, plan_of(workload, "baseline"))
    worker.start()
    spans = finish(worker)
    steps = len(worker.phases)
    for role in (CALL, EXEC):
        seen = np.unique(spans["step"][spans["role"] == role])
        assert np.array_equal(seen[seen < steps], np.arange(steps))


def test_a_plan_toggled_in_the_middle_shows_one_drain_and_changes_no_token(
    device: CudaDevice,
) -> None:
    workload = workload_of(200)
    plans = [plan_of(workload, preset) for preset in ("baseline", "all")]
    expected = Worker(workload, device, plans[0])
    expected.start()
    finish(expected)
    worker = Worker(workload, device, plans[0])
    worker.start()
    worker.ready.wait(60)
    worker.toggle(plans[1])
    spans = finish(worker)
    drains = [
        span
        for span in spans
        if worker.sites[span["op"]].phase == SWITCH
        and worker.sites[span["op"]].name == "plan.switch.sync"
    ]
    assert len(drains) == 1
    after = spans[(spans["step"] >= drains[0]["step"]) & (spans["role"] == CALL)]
    kinds = [worker.sites[op].kind for op in after["op"]]
    assert Kind.COPY in kinds and Kind.GRAPH in kinds
    assert worker.tokens == expected.tokens


def test_stop_ends_a_long_run_soon_and_leaves_no_context(device: CudaDevice) -> None:
    workload = workload_of(240)
    worker = Worker(workload, device, plan_of(workload, "all"))
    worker.start()
    worker.ready.wait(60)
    worker.stop()
    spans = finish(worker)
    assert len(spans)
    assert len(worker.phases) <= 242


def test_an_error_in_the_worker_leaves_no_context(device: CudaDevice) -> None:
    workload = workload_of(10)
    plan = plan_of(workload, "baseline")
    worker = Worker(workload, device, plan)
    worker.toggle(Plan((), (), (), {}))
    worker.start()
    worker.join(60)
    assert worker.error is not None
    assert not worker.context_left
