from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncscope.sched_core.program import Program
from syncscope.sched_core.recorder import SPAN as SPAN

def launch_slots(rows: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def step_starts(program: Program) -> NDArray[np.bool_]: ...
def ring_parts(begin: int, end: int, n_rows: int) -> list[tuple[int, int]]: ...
def kernel_neighbours(
    program: Program, slot: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]: ...
def kernel_spans(
    rows: NDArray[Any],
    first: NDArray[np.int64],
    n_threads: int,
    steps: NDArray[np.int64],
    times: NDArray[np.int64],
    ran: NDArray[np.bool_],
) -> NDArray[Any]: ...

class CopyBounds:
    def __init__(self, program: Program, rows: NDArray[Any], slot: NDArray[np.int32]) -> None: ...
    def note(self, calls: NDArray[Any]) -> None: ...
    def take(
        self,
        n_threads: int,
        steps: NDArray[np.int64],
        times: NDArray[np.int64],
        ran: NDArray[np.bool_],
        last_end: NDArray[np.int64],
        all_done: bool,
    ) -> NDArray[Any]: ...
