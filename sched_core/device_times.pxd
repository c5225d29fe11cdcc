"""What records device times, as a backend knows it."""
from libc.stdint cimport int64_t

from syncscope.sched_core.cuda_driver cimport CUresult, CUstream, cuda_t
from syncscope.sched_core.cuda_issue cimport cuda_state_t


cdef class DeviceTimes:
    cdef const cuda_t *_driver
    cdef cuda_state_t *_state
    cdef CUstream _side                    # carries what belongs to no plan
    cdef object _take                      # takes memory: name, kind, size -> Memory
    cdef dict _arrays                      # what the state points into
    cdef object _rows                      # of the bound program
    cdef int open(self, cuda_state_t *state, CUstream side, take) except -1
    cdef int bind(self, program, rows, streams, slot, first) except -1
    cdef tuple addresses(self)
    cdef int64_t max_steps(self) except -1
    cdef object collect(self, calls, bint recording)
    cdef int release(self) except -1
    cdef int close(self) except -1
    cdef bint is_over(self, calls, bint recording)
    cdef CUresult query_streams(self)
