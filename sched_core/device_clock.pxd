"""The GPU's timer on the host's clock."""
from libc.stdint cimport int64_t, uint64_t

from syncscope.sched_core.cuda_driver cimport CUfunction, CUmodule, CUstream, cuda_t


cdef class DeviceClock:
    cdef const cuda_t *_driver
    cdef CUmodule _module
    cdef CUfunction _function
    cdef object _pinned                    # keeps what `_record` points to alive
    cdef volatile uint64_t *_record        # asked, answered, time, timer step
    cdef int64_t _base_ns
    cdef int64_t _host, _device            # the last alignment
    cdef double _drift                     # host ns lost per device ns, from the last two
    cdef bint _is_aligned
    cdef readonly int64_t uncertainty_ns
    cdef readonly int64_t timer_step_ns
    cdef int align(self, CUstream stream) except -1
    cdef int rebase(self, int64_t base_ns) except -1
    cdef int close(self) except -1
