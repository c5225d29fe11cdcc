"""What each row of a Program costs under a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.profile import Profile
from syncscope.sched_core.program import BLOCKING, NO_KERNEL, Program
from syncscope.sched_core.records import Kind


@dataclass(frozen=True, slots=True)
class Work:
    """What one run of a kernel has to do, as far as its time depends on it.

    Parameters
    ----------
    moved : float
        Bytes read and written.  An access says what an op may touch, such as all rows of a table;
        what it moves can be less.
    macs : float
        Multiply-adds.
    kernel : str
        What `Profile.kernels` calls it.
    l2_loads : float
        Loads, each waiting for the one before, of what the kernel before left in the L2 cache.
    loads : float
        The same of what has to come from the L2 cache or from memory, such as weights: those of
        the warp that has most.
    """

    moved: float = 0.0
    macs: float = 0.0
    kernel: str = ""
    l2_loads: float = 0.0
    loads: float = 0.0


NO_WORK = Work()


def host_time_ns(work: Work, profile: Profile) -> float:
    """Return how long the host takes: a call, and the larger of its traffic and its arithmetic."""
    traffic = work.moved / profile.host_bytes_per_ns
    return profile.host_ns + max(traffic, work.macs / profile.host_macs_per_ns)


def kernel_time_ns(work: Work, profile: Profile, from_memory: bool) -> float:
    """Return how long a device kernel takes, up to the begin of the next one of a graph.

    Fixed time, loads from the L2 cache, then what takes longest: loads that wait for each other,
    traffic from memory behind the first load, or arithmetic.

    Parameters
    ----------
    work : Work
    profile : Profile
    from_memory : bool
        Whether `Work.loads` are answered by memory, and not by the L2 cache.
    """
    limits = [work.macs / profile.device_macs_per_ns]
    if from_memory:
        traffic_ns = work.moved / profile.device_bytes_per_ns
        limits.append(work.loads * profile.memory_load_ns)
        limits.append(min(work.loads, 1.0) * profile.memory_load_ns + traffic_ns)
    else:
        limits.append(work.loads * profile.l2_load_ns)
    fixed_ns = profile.kernels.get(work.kernel, profile.kernel_ns)
    return fixed_ns + work.l2_loads * profile.l2_load_ns + max(limits)


@dataclass(frozen=True, slots=True)
class Costs:
    """Of each row (ops, then members): host time of the call, device time, and copy engine.

    `engine` is 0 for the engine that copies to the device, 1 for the one that copies to the host,
    -1 for what needs none: kernels, and copies that travel with the commands.  `waits` is 1 where
    the call returns only after the copy: a blocking one, unless from device to device, or one to
    pageable memory.
    """

    call_ns: npt.NDArray[np.int64]
    exec_ns: npt.NDArray[np.int64]
    engine: npt.NDArray[np.int8]
    waits: npt.NDArray[np.uint8]
    launch_start_ns: int
    launch_gap_ns: int
    graph_start_ns: int
    copy_start_ns: int
    switch_ns: int
    sync_return_ns: int


def row_costs(program: Program, profile: Profile, kernels: Mapping[str, Work]) -> Costs:
    """Cost each row of a program under a profile.

    Parameters
    ----------
    program : Program
    profile : Profile
    kernels : mapping of str to Work
        Of each kernel instance; one that is missing has nothing to do.
    """
    rows = np.concatenate([program.ops, program.members])
    kind = rows["kind"]
    call = np.zeros(len(rows))
    run = np.zeros(len(rows))
    works = [*(kernels.get(each, NO_WORK) for each in program.kernels), NO_WORK]
    work_of = np.where(rows["kernel"] == NO_KERNEL, len(program.kernels), rows["kernel"])

    host = kind == Kind.HOST
    call[host] = np.array([host_time_ns(each, profile) for each in works])[work_of[host]]
    launch = kind == Kind.LAUNCH
    call[launch] = profile.launch_call_ns
    moved = np.where(launch, np.array([each.moved for each in works])[work_of], 0.0)
    far = np.asarray(_moved_per_step(program, moved) > profile.l2_nbytes, np.intp)
    times = [[kernel_time_ns(each, profile, far) for each in works] for far in (False, True)]
    run[launch] = np.array(times)[far, work_of][launch]
    graph = kind == Kind.GRAPH
    call[graph] = profile.graph_call_ns + profile.graph_call_per_node_ns * rows["nbytes"][graph]
    call[kind == Kind.RECORD] = profile.record_call_ns
    call[kind == Kind.WAIT] = profile.wait_call_ns
    call[kind == Kind.SYNC] = profile.sync_call_ns

    engine = np.full(len(rows), -1, np.int8)
    waits = rows["flags"] & BLOCKING
    memory = [each.memory for each in program.buffers]
    for i in np.flatnonzero(kind == Kind.COPY):
        source, target = program.accesses["buffer"][rows["access0"][i] :][:2]
        copy = copy_costs(memory[source], memory[target], int(rows["nbytes"][i]), profile)
        call[i], run[i], engine[i] = copy.call_ns, copy.exec_ns, copy.engine
        if _on_device(memory[source]) and _on_device(memory[target]):
            waits[i] = 0
        waits[i] |= memory[target] == "pageable"
    return Costs(
        call_ns=np.rint(call).astype(np.int64),
        exec_ns=np.rint(run).astype(np.int64),
        engine=engine,
        waits=waits.astype(np.uint8),
        launch_start_ns=round(profile.launch_start_ns),
        launch_gap_ns=round(profile.launch_gap_ns),
        graph_start_ns=round(profile.graph_start_ns),
        copy_start_ns=round(profile.copy_start_ns),
        switch_ns=round(profile.switch_ns),
        sync_return_ns=round(profile.sync_return_ns),
    )


def _moved_per_step(program: Program, moved: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return, for each row, how many bytes all rows of its step move together."""
    n_ops, n_steps = len(program.ops), max(1, len(program.step0) - 1)
    step = np.zeros(len(moved), np.intp)
    at = np.searchsorted(program.step0, np.arange(n_ops), side="right") - 1
    step[:n_ops] = np.clip(at, 0, n_steps - 1)
    for i in np.flatnonzero(program.ops["kind"] == Kind.GRAPH):
        first = n_ops + int(program.ops["dst"][i])
        step[first : first + int(program.ops["nbytes"][i])] = step[i]
    sums: npt.NDArray[np.float64] = np.bincount(step, moved, n_steps).astype(np.float64)
    return sums[step]


# ---- copies -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyCosts:
    """Host time of a copy's call, device time, and engine as in `Costs`."""

    call_ns: float
    exec_ns: float
    engine: int


def _on_device(memory: str) -> bool:
    return memory in ("device", "managed")


def copy_costs(source: str, target: str, nbytes: int, profile: Profile) -> CopyCosts:
    """Return what a copy costs.

    Parameters
    ----------
    source, target : str
        Memory of its buffers: ``pinned``, ``pageable``, ``device`` or ``managed``.
    nbytes : int
    profile : Profile
    """
    is_pageable = "pageable" in (source, target)
    is_inline = not is_pageable and not _on_device(source) and nbytes <= profile.inline_nbytes
    call = profile.copy_call_ns
    if is_pageable:
        call = profile.pageable_call_ns + nbytes / profile.pageable_bytes_per_ns
    if not _on_device(target):
        return CopyCosts(call, profile.d2h_ns + nbytes / profile.d2h_bytes_per_ns, 1)
    if is_inline:
        call += nbytes / profile.inline_bytes_per_ns
    fixed = profile.inline_ns if is_inline else profile.h2d_ns
    return CopyCosts(call, fixed + nbytes / profile.h2d_bytes_per_ns, -1 if is_inline else 0)
