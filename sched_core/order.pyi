from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from syncscope.sched_core.program import Program

MEMORY: tuple[str, ...]
RULES: tuple[str, ...]
STREAM_KINDS: tuple[str, ...]

class Order:
    def __init__(self, program: Program, rules: str = "practical") -> None: ...
    @property
    def program(self) -> Program: ...
    @property
    def rules(self) -> str: ...
    def hazards(self, dropped: Iterable[int] = (), limit: int = 65536) -> NDArray[Any]: ...
