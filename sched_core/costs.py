"""What things cost on a device: a profile, and the cost of each row of a Program under it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.errors import UsageError, nearest
from syncscope.sched_core.program import BLOCKING, NO_KERNEL, Program
from syncscope.sched_core.records import Kind

PROFILES = ("h200", "rtx3090")


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of one device; times in nanoseconds, rates per nanosecond.

    Call costs are what the host spends in an API call.  A copy, launch or graph starts `*_start_ns`
    after its call at the earliest; a host wait that had to wait returns `sync_return_ns` after
    what it waited for.  A kernel takes ``kernel_ns + max(moved / device_bytes_per_ns,
    multiply_adds / device_macs_per_ns)``, host work the same with its own figures.

    `status` says where the figures come from: ``calibrated``, ``provisional`` or ``estimated``.
    """

    name: str
    device_name: str
    status: str
    source: str
    host_ns: float
    host_bytes_per_ns: float
    host_macs_per_ns: float
    launch_call_ns: float
    launch_start_ns: float
    kernel_ns: float
    device_bytes_per_ns: float
    device_macs_per_ns: float
    graph_call_ns: float
    graph_call_per_node_ns: float
    graph_start_ns: float
    copy_call_ns: float
    copy_start_ns: float
    copy_ns: float
    h2d_bytes_per_ns: float
    d2h_bytes_per_ns: float
    pageable_call_ns: float
    pageable_bytes_per_ns: float
    record_call_ns: float
    wait_call_ns: float
    sync_call_ns: float
    sync_return_ns: float


def load_profile(name: str) -> Profile:
    """Read a shipped profile.

    Raises
    ------
    UsageError
        Unknown name; the message has the nearest known ones.
    """
    if name not in PROFILES:
        raise UsageError(f"unknown profile {name}; {nearest(name, PROFILES)}")
    folder = resources.files("syncscope.sched_core") / "profiles"
    data = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return Profile(**{each.name: data[each.name] for each in fields(Profile)})


@dataclass(frozen=True, slots=True)
class Costs:
    """Of each row (ops, then members): host time of the call, device time, and copy engine.

    `engine` is 0 for host to device, 1 for device to host, -1 for what needs no copy engine.
    `waits` is 1 where the call returns only after the copy: a blocking one, unless from device to
    device, or one to pageable memory.
    """

    call_ns: npt.NDArray[np.int64]
    exec_ns: npt.NDArray[np.int64]
    engine: npt.NDArray[np.int8]
    waits: npt.NDArray[np.uint8]
    launch_start_ns: int
    graph_start_ns: int
    copy_start_ns: int
    sync_return_ns: int


def row_costs(
    program: Program, profile: Profile, kernels: Mapping[str, tuple[float, float]]
) -> Costs:
    """Cost each row of a program under a profile.

    Parameters
    ----------
    program : Program
    profile : Profile
    kernels : mapping of str to (float, float)
        Bytes moved and multiply-adds of one run of each kernel instance.  An access says what an
        op may touch, such as all rows of a table; what it moves can be less.
    """
    rows = np.concatenate([program.ops, program.members])
    kind = rows["kind"]
    nbytes = rows["nbytes"].astype(np.float64)
    cost = np.array([*(kernels.get(each, (0.0, 0.0)) for each in program.kernels), (0.0, 0.0)])
    kernel = np.where(rows["kernel"] == NO_KERNEL, len(program.kernels), rows["kernel"])
    moved, macs = cost[kernel].T
    call = np.zeros(len(rows))
    run = np.zeros(len(rows))
    engine = np.full(len(rows), -1, np.int8)
    waits = rows["flags"] & BLOCKING

    host = kind == Kind.HOST
    call[host] = profile.host_ns + np.maximum(
        moved[host] / profile.host_bytes_per_ns, macs[host] / profile.host_macs_per_ns
    )
    launch = kind == Kind.LAUNCH
    call[launch] = profile.launch_call_ns
    run[launch] = profile.kernel_ns + np.maximum(
        moved[launch] / profile.device_bytes_per_ns, macs[launch] / profile.device_macs_per_ns
    )
    graph = kind == Kind.GRAPH
    call[graph] = profile.graph_call_ns + profile.graph_call_per_node_ns * nbytes[graph]
    call[kind == Kind.RECORD] = profile.record_call_ns
    call[kind == Kind.WAIT] = profile.wait_call_ns
    call[kind == Kind.SYNC] = profile.sync_call_ns

    memory = [each.memory for each in program.buffers]
    for i in np.flatnonzero(kind == Kind.COPY):
        source, target = program.accesses["buffer"][rows["access0"][i] :][:2]
        to_host = memory[target] not in ("device", "managed")
        rate = profile.d2h_bytes_per_ns if to_host else profile.h2d_bytes_per_ns
        engine[i] = 1 if to_host else 0
        call[i] = profile.copy_call_ns
        if not to_host and memory[source] in ("device", "managed"):
            waits[i] = 0
        waits[i] |= memory[target] == "pageable"
        if "pageable" in (memory[source], memory[target]):
            call[i] = profile.pageable_call_ns + nbytes[i] / profile.pageable_bytes_per_ns
        run[i] = profile.copy_ns + nbytes[i] / rate
    return Costs(
        call_ns=np.rint(call).astype(np.int64),
        exec_ns=np.rint(run).astype(np.int64),
        engine=engine,
        waits=waits.astype(np.uint8),
        launch_start_ns=round(profile.launch_start_ns),
        graph_start_ns=round(profile.graph_start_ns),
        copy_start_ns=round(profile.copy_start_ns),
        sync_return_ns=round(profile.sync_return_ns),
    )


def profile_rows() -> list[dict[str, Any]]:
    """Return name, device and status of each shipped profile."""
    found = [load_profile(name) for name in PROFILES]
    return [{"profile": p.name, "device": p.device_name, "status": p.status} for p in found]
