from typing import Any

import numpy as np
from numpy.typing import NDArray

SPAN: np.dtype[np.void]
ROLES: tuple[str, ...]

class SpanRing:
    recording: bool
    def __init__(self, capacity_log2: int = 18) -> None: ...
    @property
    def capacity(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    def take(self) -> NDArray[Any]: ...
