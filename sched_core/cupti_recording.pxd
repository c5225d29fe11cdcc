"""Device times as CUPTI records them."""
from libc.stdint cimport int64_t

from syncscope.sched_core.device_times cimport DeviceTimes


cdef class CuptiRecording(DeviceTimes):
    cdef list _noted                       # calls of the executor
    cdef object _spans                     # CuptiSpans, which knows those before
    cdef int64_t _step_nbytes              # of records, at most
    cdef int64_t _records_lost             # by CUPTI
    cdef int64_t _n_pending(self)
    cdef bint _is_idle(self) except -1
