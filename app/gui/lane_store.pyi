import numpy as np
from numpy.typing import NDArray

N_CATEGORIES: int

_Columns = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint8],
    NDArray[np.uint32],
    NDArray[np.uint8],
    NDArray[np.int64],
]

class LaneStore:
    @property
    def head(self) -> int: ...
    @property
    def tail(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __init__(self, capacity_log2: int = 17) -> None: ...
    def __len__(self) -> int: ...
    def extent(self) -> tuple[int, int]: ...
    def append(
        self,
        begin_ns: NDArray[np.int64],
        end_ns: NDArray[np.int64],
        category: NDArray[np.uint8],
        name: NDArray[np.uint32],
        flags: NDArray[np.uint8],
        ref: NDArray[np.int64],
    ) -> None: ...
    def paint(
        self,
        t0: int,
        t1: int,
        width_px: int,
        palette: NDArray[np.uint8],
        priority_mask: int,
        row: NDArray[np.uint32],
        wide: NDArray[np.int64],
        min_label_px: int,
        background: int,
    ) -> int: ...
    def hit(self, t_ns: int, tolerance_ns: int) -> int: ...
    def get(self, index: int) -> tuple[int, int, int, int, int, int]: ...
    def take(self, indexes: NDArray[np.int64]) -> _Columns: ...
    def find(self, ref: int) -> int: ...
    def neighbour(self, index: int, direction: int, category_mask: int) -> int: ...
    def statistics(self, t0: int, t1: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
