from syncscope.sched_core.device_clock import DeviceClock

STAMP_STEPS: int

class CudaStamps:
    @property
    def clock(self) -> DeviceClock: ...
