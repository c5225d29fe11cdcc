from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncscope.sched_core.backend import Backend, KernelTable
from syncscope.sched_core.cuda_driver import GPU
from syncscope.sched_core.cuda_memory import DeviceKernel
from syncscope.sched_core.cuda_stamps import STAMP_STEPS as STAMP_STEPS
from syncscope.sched_core.program import Program
from syncscope.sched_core.recorder import SpanRing

WAITS: tuple[str, ...]
RECORDS: tuple[str, ...]
NO_PYCUDA: str

def pycuda_problem() -> str | None: ...

class CudaBackend(Backend):
    def __init__(
        self,
        kernels: KernelTable,
        device_kernels: Mapping[str, DeviceKernel],
        faults: Mapping[int, str],
        device: int = ...,
        wait: str = ...,
        record: str = ...,
    ) -> None: ...
    @property
    def gpu(self) -> GPU: ...
    @property
    def wait(self) -> str: ...
    @property
    def record(self) -> str: ...
    @property
    def base_ns(self) -> int: ...
    def active(self) -> AbstractContextManager[None]: ...
    def load(self, contents: Mapping[str, NDArray[Any]]) -> None: ...
    def bind(self, program: Program, ring: SpanRing) -> None: ...
    def read(self, name: str, slot: int = ...) -> NDArray[np.uint8]: ...
    @property
    def counts(self) -> tuple[int, int, int]: ...
    def stale_reads(self) -> list[tuple[int, str, str, str]]: ...
    def wrong_writes(self) -> list[tuple[int, str, str, str]]: ...
    @property
    def clock_uncertainty_ns(self) -> int | None: ...
    @property
    def timer_step_ns(self) -> int | None: ...
