"""What goes wrong on a real GPU ends the run with one line, and the next run works."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.endurance import Counts, issued
from helpers.faults import (
    FATAL,
    CorruptDevice,
    FaultyDevice,
    run_once,
    too_many_threads,
    too_much_shared_memory,
)
from helpers.gpu import GROUPED_F16, first_gpu, has_context, small_workload
from helpers.plans import make_plan, without
from syncscope.app.devices import CudaDevice, device_table
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.cuda_launch import FAULTS
from syncscope.kernels.host import host_table
from syncscope.kernels.signature import KERNELS
from syncscope.kernels.transformer import instances
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.cuda_backend import CudaBackend
from syncscope.sched_core.cuda_memory import DeviceKernel
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import DeviceError, KernelFault
from syncscope.sched_core.records import Access, Kind, Plan

pytestmark = pytest.mark.gpu

TESTS = Path(__file__).parents[1]
LIMIT_S = 180
"""A process that takes longer hangs."""


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(first_gpu())


@pytest.fixture(autouse=True)
def _stack_stays_empty(device: CudaDevice) -> Iterator[None]:
    yield
    assert not has_context()


def plan_of(workload: Workload, preset: str) -> Plan:
    return plan_variant(workload.plan(), preset_variant(preset)).plan


def works(workload: Workload, device: CudaDevice) -> None:
    """A whole run ends well."""
    run = run_once(workload, device)
    assert (run.failure, run.fault) == ("", None)
    assert len(run.token_ids) == workload.n_tokens


# ---- launches that cannot be --------------------------------------------------------------------


@pytest.mark.parametrize("change", [too_many_threads, too_much_shared_memory])
@pytest.mark.parametrize("record", ["stamps", "off"])
def test_a_launch_that_cannot_be_ends_the_run_with_one_line_and_the_next_run_is_right(
    device: CudaDevice, change: Callable[[DeviceKernel], DeviceKernel], record: str
) -> None:
    workload = small_workload(GROUPED_F16)
    plan = plan_of(workload, "no-graph")
    expected = run_once(workload, device, plan)
    faulty = FaultyDevice(device.gpu, record=record, part="attention(", change=change)
    run = run_once(workload, faulty, plan)
    assert re.fullmatch(
        r"step 0, layer\.0\.attention: cuLaunchKernel failed: CUDA_ERROR_\w+ \([^\n]+\); [^\n]+",
        run.failure,
    )
    assert run.fault is None
    assert run.token_ids == ()
    again = run_once(workload, device, plan)
    assert (again.token_ids, again.logits) == (expected.token_ids, expected.logits)


def test_a_launch_that_cannot_be_captured_is_named_before_anything_is_issued(
    device: CudaDevice,
) -> None:
    workload = small_workload(GROUPED_F16)
    faulty = FaultyDevice(device.gpu, part="attention(")
    with (
        closing(faulty.make_backend(workload, frozenset())) as backend,
        pytest.raises(DeviceError, match=r"^graph: cuLaunchKernel failed: CUDA_ERROR_\w+"),
    ):
        Engine(backend, plan_of(workload, "baseline"))
    works(workload, device)


def test_after_a_launch_that_failed_the_same_engine_goes_on(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16)
    plan, counts = plan_of(workload, "no-graph"), Counts()
    faulty = FaultyDevice(device.gpu, part="attention(T=4,")
    with closing(faulty.make_backend(workload, frozenset())) as backend:
        engine = Engine(backend, plan)
        with pytest.raises(DeviceError, match=r"^step 0, layer\.0\.attention: cuLaunchKernel"):
            engine.run("prompt", 2)
        assert engine.phases == ["prompt"]
        assert engine.run("prompt_last", 1) == 1
        assert engine.run("decode", 6) == 6
        engine.drain()
        spans = engine.take_spans()
        counts.add(spans[spans["step"] > 0], engine.sites)
    wanted = issued(plan, engine.phases[1:], drains=1)
    assert counts == wanted


def test_more_shared_memory_than_the_gpu_has_is_refused_when_the_plan_is_bound(
    device: CudaDevice,
) -> None:
    workload = small_workload(GROUPED_F16)

    def change(kernel: DeviceKernel) -> DeviceKernel:
        return replace(kernel, shared_nbytes=1 << 20)

    faulty = FaultyDevice(device.gpu, part="attention(", change=change)
    with (
        closing(faulty.make_backend(workload, frozenset())) as backend,
        pytest.raises(DeviceError, match=r"^cuFuncSetAttribute of attention failed: CUDA_ERROR"),
    ):
        Engine(backend, plan_of(workload, "baseline"))
    works(workload, device)


def test_memory_that_the_gpu_has_not_is_one_line_and_the_next_run_works(
    device: CudaDevice,
) -> None:
    with (
        closing(CudaBackend(KernelTable(), {}, {}, record="off")) as backend,
        pytest.raises(
            DeviceError,
            match=r"^buffer dp \(1,099,511,627,776 bytes, device\) failed: CUDA_ERROR_OUT",
        ) as caught,
    ):
        Engine(backend, make_plan("s copy dp dq", nbytes=1 << 40))
    assert "use a smaller model" in str(caught.value)
    works(small_workload(GROUPED_F16), device)


# ---- indices out of range -----------------------------------------------------------------------


@pytest.mark.parametrize("record", ["stamps", "off"])
@pytest.mark.parametrize(
    ("name", "dtype", "value", "words"),
    [
        ("pos", np.int32, -5, "layer.0.qkv: position -5"),
        ("k_idxs", np.int64, 982347234, "layer.0.qkv: k_idxs row 982347234"),
        ("v_idxs", np.int64, -2, "layer.0.qkv: v_idxs row -2"),
        ("out_ids", np.int32, 9, "logits: out_ids row 9"),
    ],
)
def test_a_wrong_index_in_any_input_is_a_fault_of_the_run_and_the_next_run_works(
    device: CudaDevice, name: str, dtype: type, value: int, words: str, record: str
) -> None:
    workload = small_workload(GROUPED_F16)
    plan = plan_of(workload, "baseline")
    contents = {name: np.full(plan.buffer(name).nbytes // np.dtype(dtype).itemsize, value, dtype)}
    corrupt = CorruptDevice(device.gpu, record=record, contents=contents)
    run = run_once(workload, corrupt, without(plan, f"input.{name}.write"))
    assert run.failure == ""
    assert run.fault is not None
    assert re.fullmatch(rf"step \d, {re.escape(words)} outside 0\.\.\d+", run.fault)
    works(workload, device)


def test_an_index_that_goes_wrong_while_graphs_are_replayed_is_reported_and_the_run_goes_on(
    device: CudaDevice,
) -> None:
    """Row 300 of 256, at the first step of each 7: slot 0 of the rows that decode writes to."""
    workload = small_workload(GROUPED_F16, n_tokens=20)
    config, period, bad = workload.model.config, 7, 300
    writer = KERNELS["write_kv_indices"].instance(T=1, C=8192)  # it lets 300 pass
    wanted = {
        each.name: each
        for size in workload.batch_sizes.values()
        for each in instances(config, size, workload.n_kv, workload.capacity)
    }
    plan = plan_of(workload, "baseline")
    rows = replace(plan.buffer("k_idxs"), name="rows", nbytes=8, depth=period)
    spoilt = tuple(
        replace(op, kernel=writer.name, accesses=(Access("rows", False), *op.accesses[1:]))
        if op.site == "input.k_idxs.write"
        else op
        for op in plan.phases["decode"]
    )
    plan = replace(plan, buffers=(*plan.buffers, rows), phases={**plan.phases, "decode": spoilt})
    table = device_table(wanted.values(), device.gpu.arch)
    backend = CudaBackend(host_table([*wanted.values(), writer]), table, FAULTS)
    backend.load({**workload.contents(), "rows": np.array([bad], np.int64)})
    with closing(backend):
        engine = Engine(backend, plan)
        for phase, steps in workload.segments[:-1]:
            engine.run(phase, steps)
        first = engine.step  # prompt in 3 steps: eager steps 3 and 4, then replays
        for faulty in (period, 2 * period):
            with pytest.raises(KernelFault) as caught:
                engine.run("decode", period)
            assert str(caught.value) == (
                f"step {faulty}, layer.0.qkv: k_idxs row {bad} outside 0..{workload.n_kv - 1}"
            )
        assert engine.run("decode", 3) == 3
        engine.drain()
        spans = engine.take_spans()
    launched = [engine.sites[op].kind == Kind.GRAPH for op in spans["op"]]
    replayed = set(spans["step"][launched].tolist())
    assert replayed == set(range(first + 2, engine.step))
    assert {period, 2 * period} <= replayed
    works(workload, device)


# ---- a lost context -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FATAL)
def test_a_kernel_that_loses_the_context_ends_the_run_and_not_the_process(
    device: CudaDevice, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(TESTS / "helpers" / "faults.py"), name],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        then = found["refused"] or "works"
        print(f"\n{name}: {found['failure']}\n  the next run in the same process: {then}")
    assert re.fullmatch(
        rf"step 0, [\w.]+: cu\w+ failed: {FATAL[name]} \([^\n]+\); [^\n]+", found["failure"]
    )
    assert found["fault"] is None
    assert found["seconds"] < LIMIT_S / 2
    assert found["simulated"]
    if found["refused"]:  # CUDA promises no more; then it must be said what to do
        assert re.fullmatch(r"[^\n]+; [^\n]*\bnew process\b[^\n]*", found["refused"])
    else:
        assert found["same"]
    works(small_workload(GROUPED_F16), device)
