from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSIONS: tuple[tuple[int, int], ...]
KINDS: dict[str, int]
CALL: np.dtype[np.void]
WORK: np.dtype[np.void]
OFFSETS: dict[str, dict[str, int]]

def can_read(version: int) -> bool: ...
def read_records(
    buffer: NDArray[np.uint8], next_record: int
) -> tuple[NDArray[Any], NDArray[Any]]: ...
