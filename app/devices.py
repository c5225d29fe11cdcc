"""Devices: which one a run uses and why, the simulated one, a GPU, and what there is."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.workload import Workload
from syncscope.kernels.cuda_launch import ADVANCE_SHAPE, ADVANCE_STEP, FAULTS, launch_shape
from syncscope.kernels.loader import load_modules
from syncscope.kernels.signature import Instance, parameter_type
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.cuda_backend import CudaBackend, pycuda_problem
from syncscope.sched_core.cuda_driver import GPU, LIBRARY, driver_version, list_gpus
from syncscope.sched_core.cuda_launches import ADVANCE
from syncscope.sched_core.cuda_memory import DeviceKernel
from syncscope.sched_core.errors import DeviceError, UsageError
from syncscope.sched_core.profile import Profile, profile_rows
from syncscope.sched_core.records import Plan
from syncscope.sched_core.sim_backend import SimBackend

MAX_ORDERS = 16
"""Data orders that are tried; all of them up to four streams, a seeded sample above."""

Backend = SimBackend | CudaBackend


@dataclass(frozen=True, slots=True)
class SimDevice:
    """The simulated device that a run uses.

    `rules` is the rule set that it obeys and that verdicts are given under; `adversarial` runs
    every variant in every data order, `seed` chooses among them where there are too many;
    `compute` False times the plan without computing it.
    """

    profile: Profile
    rules: str = "practical"
    adversarial: bool = False
    seed: int = 0
    compute: bool = True

    @property
    def simulated(self) -> bool:
        """Whether all times are virtual."""
        return True

    def orders(self, plan: Plan) -> tuple[frozenset[str], ...]:
        """Return the data orders to try, each as the set of streams that are late; eager first."""
        streams = [stream.name for stream in plan.streams]
        if not self.adversarial:
            return (frozenset(),)
        if 2 ** len(streams) <= MAX_ORDERS:
            choices: Iterable[Sequence[bool]] = product((False, True), repeat=len(streams))
        else:
            draw = np.random.Generator(np.random.PCG64(self.seed))
            drawn = draw.integers(0, 2, (MAX_ORDERS - 2, len(streams))).astype(bool).tolist()
            choices = [[False] * len(streams), [True] * len(streams), *drawn]
        return tuple(
            frozenset(name for name, late in zip(streams, choice, strict=True) if late)
            for choice in choices
        )

    def order_name(self, plan: Plan, late: frozenset[str]) -> str:
        """Name a data order by what each stream does."""
        return ", ".join(
            f"{stream.name} {'late' if stream.name in late else 'early'}" for stream in plan.streams
        )

    def make_backend(self, workload: Workload, late: frozenset[str]) -> Backend:
        """Return a backend that holds what the workload starts with."""
        return self.open(workload.kernels(), workload.instances(), workload.contents(), late)

    def open(
        self,
        kernels: KernelTable,
        wanted: Iterable[Instance],
        contents: Mapping[str, npt.NDArray[Any]],
        late: frozenset[str] = frozenset(),
    ) -> Backend:
        """Return a backend that can run kernel instances and holds some contents."""
        backend = SimBackend(self.profile, kernels, late, self.compute, self.rules)
        backend.load(contents)
        return backend

    def describe(self) -> dict[str, Any]:
        """Return the `device` object of the JSON report."""
        return {
            "kind": "sim",
            "name": self.profile.device_name,
            "profile": f"{self.profile.name} ({self.profile.status})",
            "simulated": True,
        }

    def environment(self) -> dict[str, Any]:
        """Return what the `environment` object of the JSON report has of the GPU: nothing."""
        return {}


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A GPU that a run uses.

    `rules` is the rule set that verdicts are given under, `wait` how the host waits for the GPU,
    `record` what is recorded of it.
    """

    gpu: GPU
    rules: str = "practical"
    wait: str = "spin"
    record: str = "stamps"

    @property
    def simulated(self) -> bool:
        """Whether all times are virtual."""
        return False

    @property
    def adversarial(self) -> bool:
        """Whether data orders can be chosen."""
        return False

    @property
    def compute(self) -> bool:
        """Whether anything is computed."""
        return True

    def orders(self, plan: Plan) -> tuple[frozenset[str], ...]:
        """Return the one data order there is: the GPU's own."""
        return (frozenset(),)

    def order_name(self, plan: Plan, late: frozenset[str]) -> str:
        """Name the data order."""
        return "as the GPU ran it"

    def make_backend(self, workload: Workload, late: frozenset[str]) -> Backend:
        """Return a backend that holds what the workload starts with.

        Raises
        ------
        DeviceError
            If the GPU, the driver, PyCUDA or the compiled kernels cannot be used.
        """
        return self.open(workload.kernels(), workload.instances(), workload.contents())

    def open(
        self,
        kernels: KernelTable,
        wanted: Iterable[Instance],
        contents: Mapping[str, npt.NDArray[Any]],
    ) -> Backend:
        """Return a backend that can run kernel instances and holds some contents.

        Raises
        ------
        DeviceError
            As `make_backend`.
        """
        table = device_table(wanted, self.gpu.arch)
        backend = CudaBackend(kernels, table, FAULTS, self.gpu.index, self.wait, self.record)
        backend.load(contents)
        return backend

    def describe(self) -> dict[str, Any]:
        """Return the `device` object of the JSON report."""
        return {"kind": "cuda", "name": self.gpu.name, "profile": None, "simulated": False}

    def environment(self) -> dict[str, Any]:
        """Return what the `environment` object of the JSON report has of the GPU."""
        return {
            "driver": kernel_driver_version(),
            "cuda": ".".join(map(str, driver_version())),
            "gpu": self.gpu.name,
        }


Device = SimDevice | CudaDevice


def describe_recording(backend: Backend, dropped: int) -> dict[str, Any]:
    """Return the `recording` object of a trace; on virtual time recording costs nothing.

    It has the keys of the JSON report's, and `driver_calls` where the driver's calls are recorded
    (see `DeviceTimes.driver_calls`).

    Parameters
    ----------
    backend : Backend
        Still open.
    dropped : int
        Spans that the executor's ring has lost; device times that were lost are added.
    """
    if isinstance(backend, CudaBackend):
        driver_calls = backend.driver_calls
        return {
            "mode": backend.record,
            "overhead_share": None,
            "dropped": dropped + backend.dropped,
            "clock_uncertainty_ns": backend.clock_uncertainty_ns,
            "timer_step_ns": backend.timer_step_ns,
            **({} if driver_calls is None else {"driver_calls": driver_calls}),
        }
    return {
        "mode": "stamps",
        "overhead_share": 0.0,
        "dropped": dropped,
        "clock_uncertainty_ns": 0,
        "timer_step_ns": 1,
    }


# ---- which one ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """The device that was chosen: a GPU, or None for the simulated one; and why, in one line."""

    gpu: GPU | None
    line: str


def choose_device(asked: str) -> Choice:
    """Choose the device: what was asked for, else a GPU if one can be used, else the simulator.

    Parameters
    ----------
    asked : str
        ``sim``, ``cuda``, ``cuda:N``, or empty for what is there.

    Raises
    ------
    UsageError
        For another device.
    DeviceError
        If a GPU is asked for and cannot be used.
    """
    kind, _, number = asked.partition(":")
    if asked == "sim":
        return Choice(None, "device: sim, as asked")
    if not asked:
        try:
            gpu = _gpu(0)
        except DeviceError as error:
            no_driver = str(error).startswith(f"no NVIDIA driver: {LIBRARY}: cannot open")
            why = "no NVIDIA driver is installed here" if no_driver else error
            return Choice(None, f"device: sim, since {why}")
        return Choice(gpu, f"device: cuda:0 ({gpu.name}), since a GPU and PyCUDA are there")
    if kind != "cuda":
        raise UsageError(f"--device {asked}: unknown device; known: sim, cuda, cuda:N")
    if "," in number:
        raise UsageError(f"--device {asked}: one GPU can be used so far, such as cuda:0")
    if ":" in asked and not (number.isascii() and number.isdigit()):
        raise UsageError(f"--device {asked}: {number or 'nothing'} is no number of a GPU")
    try:
        gpu = _gpu(int(number or 0))
    except DeviceError as error:
        raise DeviceError(f"--device {asked}: {error}") from None
    return Choice(gpu, f"device: cuda:{gpu.index} ({gpu.name}), as asked")


def _gpu(index: int) -> GPU:
    """Return a GPU that can be used; DeviceError says what is in the way."""
    gpus = list_gpus()
    problem = pycuda_problem()
    if problem:
        raise DeviceError(problem)
    if index >= len(gpus):
        raise DeviceError(f"no GPU {index}: there are {len(gpus)}; see `syncscope devices`")
    return gpus[index]


def device_rows() -> list[tuple[str, str, str]]:
    """Return the devices there are: how to ask for each, its name, and what it is."""
    rows = [
        (f"sim --profile {row['profile']}", row["device"], f"simulated, {row['status']} costs")
        for row in profile_rows()
    ]
    try:
        gpus = list_gpus()
    except DeviceError as error:
        return [*rows, ("cuda", "", f"unavailable: {error}")]
    problem = pycuda_problem()
    for gpu in gpus:
        what = f"unavailable: {problem}" if problem else f"{gpu.arch}, {gpu.nbytes / 2**30:.0f} GiB"
        rows.append((f"cuda:{gpu.index}", gpu.name, what))
    return rows


def kernel_driver_version() -> str | None:
    """Return the version of the NVIDIA kernel driver as Linux tells it."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", text)
    return found.group() if found else None


# ---- kernels for it -----------------------------------------------------------------------------


@cache
def _compiled(arch: str) -> dict[str, bytes]:
    """Return the compiled kernels; they are looked up once."""
    return load_modules(arch)


def device_table(wanted: Iterable[Instance], arch: str) -> dict[str, DeviceKernel]:
    """Return compiled kernels by instance name; instances without a CUDA kernel are left out.

    Parameters
    ----------
    wanted : iterable of Instance
    arch : str
        Such as ``sm_90``.
    """
    modules = _compiled(arch)
    shape = ADVANCE_SHAPE
    table = {
        ADVANCE: DeviceKernel(
            modules[ADVANCE_STEP], ADVANCE_STEP, 2, (), shape.grid, shape.block, shape.shared_nbytes
        )
    }
    for each in wanted:
        name = each.kernel.name
        if name not in modules:
            continue
        shape = launch_shape(each)
        table[each.name] = DeviceKernel(
            modules[name],
            name,
            len(each.kernel.arguments),
            pack_parameters(each),
            shape.grid,
            shape.block,
            shape.shared_nbytes,
        )
    return table


def pack_parameters(instance: Instance) -> tuple[bytes, ...]:
    """Return each parameter as C holds it."""
    formats = {"i32": "<i", "f32": "<f", "u64": "<Q"}
    return tuple(
        struct.pack(formats[parameter_type(name)], value) for name, value in instance.values.items()
    )
