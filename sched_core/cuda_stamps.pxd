"""Device times of a bound program on a GPU."""
from libc.stdint cimport int64_t

from syncscope.sched_core.cuda_issue cimport counter_record_t
from syncscope.sched_core.device_clock cimport DeviceClock
from syncscope.sched_core.device_times cimport DeviceTimes


cdef class CudaStamps(DeviceTimes):
    cdef readonly DeviceClock clock
    cdef size_t _ring, _stamps, _counter   # on the device
    cdef size_t _staging                   # pinned
    cdef counter_record_t *_answer         # pinned
    cdef size_t _row_nbytes
    cdef object _program, _first, _bounds, _last_end
    cdef int64_t _collected
    cdef int64_t pending(self)
    cdef bint _is_idle(self) except -1
    cdef int64_t _running(self) except? -1
    cdef object _read(self, bint is_idle)
    cdef int _fetch(self, size_t source, size_t target, size_t nbytes) except -1
    cdef int _synchronize(self) except -1
