from typing import Any

from numpy.typing import NDArray

from syncscope.sched_core.costs import Costs
from syncscope.sched_core.program import Program
from syncscope.sched_core.recorder import SpanRing

STREAM_KINDS: tuple[str, ...]

class Machine:
    def __init__(
        self, program: Program, rows: NDArray[Any], costs: Costs, recorder: SpanRing
    ) -> None: ...
    @property
    def now_ns(self) -> int: ...
    def begin_at(self, now_ns: int) -> None: ...
