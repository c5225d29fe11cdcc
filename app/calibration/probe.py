"""The probe: a plan that computes nothing of use and shows what no model's steps do.

Copies of many sizes and kinds alone on a stream, behind each other and behind a kernel; events; one
kernel at several sizes; and a sync behind each, so that `observe` sees every one by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from syncscope.kernels.signature import KERNELS, Instance
from syncscope.sched_core.records import Access, Buffer, Event, Kind, Op, Plan, Stream

STEPS = 40
UPLOADS = (
    4, 512, 2048, 4096, 8192, 12288, 16384, 20480, 24576, 28672, 32768, 40960, 49152, 65536,
    262144, 1 << 20,
)  # fmt: skip
"""Bytes of the copies to the device; close together where calls stop writing copies themselves."""

DOWNLOADS = (4, 4096, 65536, 262144, 1 << 20)
STAGED = (4, 4096, 65536, 1 << 20)
BURST = 8
"""Copies of 4 bytes behind each other."""

PAUSE = 8
"""Syncs of the idle stream between one thing and the next."""

LOGITS = (256, 4096, 32768, 131072)
"""Sizes of the kernel that is launched by itself."""

_LARGEST = 1 << 20
_STREAM, _OTHER = "dev0.compute", "dev0.other"


def probe_instances() -> tuple[Instance, ...]:
    """Return the kernel instances that the probe launches."""
    return tuple(KERNELS["argmax"].instance(V=size) for size in LOGITS)


def probe_contents() -> dict[str, npt.NDArray[np.uint8]]:
    """Return what its buffers hold at first."""
    return {"pageable": np.zeros(_LARGEST, np.uint8)}


def probe_plan() -> Plan:
    """Return the probe as a plan whose decode step does everything once."""
    return Plan(
        buffers=(
            Buffer("pinned", _LARGEST, "pinned"),
            Buffer("pageable", _LARGEST, "pageable"),
            Buffer("memory", _LARGEST, "device", 0),
            Buffer("logits", 4 * max(LOGITS), "device", 0),
            Buffer("token", 4, "device", 0),
        ),
        streams=(Stream(_STREAM, 0, "nonblocking"), Stream(_OTHER, 0, "nonblocking")),
        events=(Event("done", 0),),
        phases={"decode": tuple(_ops())},
    )


def _ops() -> Iterator[Op]:
    yield from _idle("begin")
    for size in UPLOADS:
        yield _copy(f"upload.{size}", "pinned", "memory", size)
        yield from _idle(f"upload.{size}")
    for number in range(BURST):
        yield _copy(f"burst.{number}", "pinned", "memory", 4)
    yield from _idle("burst")
    for size in DOWNLOADS:
        yield _copy(f"download.{size}", "memory", "pinned", size)
        yield from _idle(f"download.{size}")
    for size in STAGED:
        yield _copy(f"staged.{size}", "pageable", "memory", size)
        yield from _idle(f"staged.{size}")
    yield Op("done.record", Kind.RECORD, _STREAM, "done")
    yield Op("done.wait", Kind.WAIT, _OTHER, "done")
    yield Op("done.other.sync", Kind.SYNC, _OTHER)
    yield from _idle("done")
    for size in LOGITS:
        yield _kernel(f"kernel.{size}", size)
        yield from _idle(f"kernel.{size}")
    for size in DOWNLOADS:
        yield _kernel(f"behind.{size}", LOGITS[0])
        yield _copy(f"behind.{size}.download", "memory", "pinned", size)
        yield from _idle(f"behind.{size}")


def _idle(site: str) -> Iterator[Op]:
    """Wait for the stream, and then so long that nothing still feels which engine it used."""
    for number in range(1 + PAUSE):
        yield Op(f"{site}.sync{number or ''}", Kind.SYNC, _STREAM)


def _copy(site: str, source: str, target: str, nbytes: int) -> Op:
    accesses = (Access(source, False, 0, nbytes), Access(target, True, 0, nbytes))
    return Op(site, Kind.COPY, _STREAM, accesses=accesses)


def _kernel(site: str, size: int) -> Op:
    name = KERNELS["argmax"].instance(V=size).name
    accesses = (Access("logits", False, 0, 4 * size), Access("token", True))
    return Op(site, Kind.LAUNCH, _STREAM, kernel=name, accesses=accesses)
