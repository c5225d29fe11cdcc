from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.program import Program

HARM: np.dtype[np.void]
MEMORY: tuple[str, ...]
STREAM_KINDS: tuple[str, ...]

def cells(program: Program) -> tuple[NDArray[np.int32], NDArray[np.int32], int]: ...

class Memory:
    def __init__(
        self,
        program: Program,
        rows: NDArray[Any],
        kernels: KernelTable,
        late: Sequence[bool],
        compute: bool,
        rules: str = "practical",
    ) -> None: ...
    def settle(self) -> None: ...
    def harms(self) -> NDArray[Any]: ...
    @property
    def counts(self) -> tuple[int, int, int]: ...
