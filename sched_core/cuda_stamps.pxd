"""Device times of a bound program on a GPU."""
from libc.stdint cimport int64_t

from syncscope.sched_core.cuda_driver cimport CUstream, cuda_t
from syncscope.sched_core.cuda_issue cimport counter_record_t, cuda_state_t
from syncscope.sched_core.device_clock cimport DeviceClock


cdef class CudaStamps:
    cdef const cuda_t *_driver
    cdef cuda_state_t *_state
    cdef CUstream _side                    # carries what belongs to no plan
    cdef readonly DeviceClock clock
    cdef object _take                      # takes memory: name, kind, size -> Memory
    cdef dict _arrays
    cdef size_t _ring, _stamps, _counter   # on the device
    cdef size_t _staging                   # pinned
    cdef counter_record_t *_answer         # pinned
    cdef size_t _row_nbytes
    cdef object _program, _rows, _first, _bounds, _last_end
    cdef int64_t _collected
    cdef int bind(self, program, rows, streams, slot, first) except -1
    cdef int64_t pending(self)
    cdef object collect(self, calls, bint recording)
    cdef bint _is_idle(self) except -1
    cdef int64_t _running(self) except? -1
    cdef object _read(self, bint is_idle)
    cdef int _fetch(self, size_t source, size_t target, size_t nbytes) except -1
    cdef int _synchronize(self) except -1

cdef CudaStamps make_stamps(cuda_state_t *state, CUstream side, take)
