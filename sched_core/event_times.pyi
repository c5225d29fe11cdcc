from syncscope.sched_core.device_times import DeviceTimes
from syncscope.sched_core.recorder import SPAN as SPAN

EVENT_PAIRS: int
RESOLUTION_NS: int

class EventTimes(DeviceTimes):
    @property
    def clock_uncertainty_ns(self) -> int: ...
    @property
    def timer_step_ns(self) -> int: ...
