from syncscope.sched_core.device_clock import DeviceClock
from syncscope.sched_core.device_times import DeviceTimes

STAMP_STEPS: int

class CudaStamps(DeviceTimes):
    @property
    def clock(self) -> DeviceClock: ...
    @property
    def clock_uncertainty_ns(self) -> int: ...
    @property
    def timer_step_ns(self) -> int: ...
