"""GPUs whose kernels fail: launches that cannot be, and kernels that take the context with them.

Run as a program with the name of one of `FATAL`, it lets that kernel end a run, runs again in the
same process, and prints what happened as JSON: pytest's own process must not suffer from it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from helpers.gpu import GROUPED_F16, small_workload
from syncscope.app.devices import Backend, CudaDevice, Device, SimDevice, device_table
from syncscope.app.interrupts import Interrupts
from syncscope.app.session import Run, run_plan
from syncscope.app.variants import REFERENCE, plan_variant
from syncscope.app.workload import Workload
from syncscope.kernels.cuda_launch import FAULTS
from syncscope.kernels.transformer import instances
from syncscope.sched_core.cuda_backend import CudaBackend
from syncscope.sched_core.cuda_driver import list_gpus
from syncscope.sched_core.cuda_memory import DeviceKernel
from syncscope.sched_core.errors import DeviceError
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.records import Plan

FATAL: Mapping[str, str] = {
    "write_nowhere": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "trap_at_once": "CUDA_ERROR_(LAUNCH_FAILED|ILLEGAL_INSTRUCTION)",
}
"""Kernels after which a context is lost, and the driver's name for it."""

FATAL_PTX = b"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry write_nowhere()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 8;
    mov.u32 %value, 1;
    st.volatile.global.u32 [%address], %value;
    ret;
}
.visible .entry trap_at_once()
{
    trap;
}
"""
"""They take no parameters, so that they can stand in for any kernel."""


def too_many_threads(kernel: DeviceKernel) -> DeviceKernel:
    """Return a kernel with a block of more threads than any GPU has."""
    return replace(kernel, block=(2048, 1, 1))


def too_much_shared_memory(kernel: DeviceKernel) -> DeviceKernel:
    """Return a kernel that asks for all that needs no leave, which its static part goes beyond."""
    return replace(kernel, shared_nbytes=48 << 10)


def fatal(name: str) -> Callable[[DeviceKernel], DeviceKernel]:
    """Return what puts one of `FATAL` in a kernel's place."""

    def change(kernel: DeviceKernel) -> DeviceKernel:
        one = (1, 1, 1)
        return replace(
            kernel, cubin=FATAL_PTX, function=name, params=(), grid=one, block=one, shared_nbytes=0
        )

    return change


@dataclass(frozen=True, slots=True)
class FaultyDevice(CudaDevice):
    """A GPU on which the kernels with `part` in their instance's name are changed."""

    part: str = ""
    change: Callable[[DeviceKernel], DeviceKernel] = too_many_threads

    def make_backend(self, workload: Workload, late: frozenset[str]) -> Backend:
        wanted = {
            each.name: each
            for size in workload.batch_sizes.values()
            for each in instances(workload.model.config, size, workload.n_kv, workload.capacity)
        }
        table = {
            name: self.change(kernel) if self.part in name else kernel
            for name, kernel in device_table(wanted.values(), self.gpu.arch).items()
        }
        backend = CudaBackend(
            workload.kernels(), table, FAULTS, self.gpu.index, self.wait, self.record
        )
        backend.load(workload.contents())
        return backend


@dataclass(frozen=True, slots=True)
class CorruptDevice(CudaDevice):
    """A GPU that finds other contents in some buffers than the workload's."""

    contents: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def make_backend(self, workload: Workload, late: frozenset[str]) -> Backend:
        backend = CudaDevice.make_backend(self, workload, late)
        backend.load(self.contents)
        return backend


def run_once(workload: Workload, device: Device, plan: Plan | None = None) -> Run:
    """Run the baseline, or another plan, to the end as the command does."""
    planned = plan_variant(workload.plan(), REFERENCE)
    planned = replace(planned, plan=plan or planned.plan)
    return run_plan(workload, device, planned, frozenset(), lambda *_: None, Interrupts())


def _lose_the_context(name: str) -> dict[str, Any]:
    """Let a run end with a lost context, and run again in this process.

    The prompt is one micro-batch, so that a sync of the same step meets the error.
    """
    device = CudaDevice(list_gpus()[0])
    workload = small_workload(GROUPED_F16, n_tokens=6, ubatch=16)
    before = run_once(workload, device)
    began = time.monotonic()
    lost = run_once(workload, FaultyDevice(device.gpu, part="gate_up", change=fatal(name)))
    seconds = time.monotonic() - began
    try:
        after = run_once(workload, device)
        refused, same = (
            after.failure,
            (after.token_ids, after.logits)
            == (
                before.token_ids,
                before.logits,
            ),
        )
    except DeviceError as error:
        refused, same = str(error), False
    simulated = run_once(workload, SimDevice(load_profile("h200")))
    return {
        "failure": lost.failure,
        "fault": lost.fault,
        "seconds": seconds,
        "refused": refused,
        "same": same,
        "simulated": simulated.failure == "" and len(simulated.token_ids) == 6,
    }


if __name__ == "__main__":
    print(json.dumps(_lose_the_context(sys.argv[1])))
