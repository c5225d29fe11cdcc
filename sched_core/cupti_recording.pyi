from typing import Any

from numpy.typing import NDArray

from syncscope.sched_core.cupti_buffers import POOL_NBYTES as POOL_NBYTES
from syncscope.sched_core.device_times import DeviceTimes

CALL_NBYTES: int
WORK_NBYTES: int
BATCH_CALLS: int
MAX_CALLS: int

class CuptiRecording(DeviceTimes):
    def add(self, driver_calls: NDArray[Any], works: NDArray[Any]) -> None: ...
    def lose(self, n: int) -> None: ...
    @property
    def clock_uncertainty_ns(self) -> int | None: ...
    @property
    def timer_step_ns(self) -> int | None: ...
    @property
    def dropped(self) -> int: ...
    @property
    def driver_calls(self) -> dict[str, dict[str, float]]: ...
