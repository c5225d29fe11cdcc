from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from syncscope.kernels.signature import Instance
from syncscope.sched_core.backend import KernelTable

FUNCTIONS: dict[str, int]

def host_table(instances: Iterable[Instance], visible: float = 0.0) -> KernelTable: ...
def run_instance(table: KernelTable, name: str, arrays: Sequence[NDArray[Any]]) -> None: ...
def select_lanes(wide: bool) -> bool: ...
