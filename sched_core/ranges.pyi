from typing import Any

import numpy as np
from numpy.typing import NDArray

HAZARD: np.dtype[np.void]
HAZARDS: tuple[str, ...]

class Ranges:
    def __new__(cls, n_places: int, max_hazards: int) -> Ranges: ...
    @property
    def n_places(self) -> int: ...
    def hazards(self) -> NDArray[Any]: ...
