"""Device times of a bound program on a GPU."""
from libc.stdint cimport int64_t

from syncscope.sched_core.cuda_driver cimport CUstream, cuda_t
from syncscope.sched_core.cuda_issue cimport cuda_state_t
from syncscope.sched_core.device_clock cimport DeviceClock


cdef class CudaStamps:
    cdef const cuda_t *_driver
    cdef cuda_state_t *_state
    cdef CUstream _side                    # carries what belongs to no plan
    cdef readonly DeviceClock clock
    cdef object _take                      # takes memory: name, kind, size -> Memory
    cdef dict _arrays
    cdef size_t _times, _staging, _counter, _answer
    cdef object _program, _rows, _first, _bounds, _last_end
    cdef int64_t _collected
    cdef int bind(self, program, rows, streams, slot, first) except -1
    cdef int64_t pending(self)
    cdef object collect(self, calls, bint recording)
    cdef int64_t _done(self, bint is_idle) except -1
    cdef bint _is_idle(self) except -1
    cdef object _read(self, int64_t done)

cdef CudaStamps make_stamps(cuda_state_t *state, CUstream side, take)
