import numpy as np
from numpy.typing import NDArray

MAX_LANES: int

def first_fit(
    begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64], last_end_ns: NDArray[np.int64]
) -> NDArray[np.uint8]: ...
