"""Device times by events around what is issued."""
from libc.stdint cimport int64_t

from syncscope.sched_core.cuda_driver cimport CUevent, CUresult
from syncscope.sched_core.cuda_issue cimport timed_op_t
from syncscope.sched_core.device_times cimport DeviceTimes


cdef class EventTimes(DeviceTimes):
    cdef int _n_threads
    cdef timed_op_t *_ops                  # ring, with events of its own
    cdef int64_t _capacity, _made          # of `_ops`; how many have their events
    cdef int64_t _per_step                 # ops of a step that are timed, at most
    cdef int64_t _collected
    cdef CUevent _base, _spare             # what others are measured against; the next one
    cdef int64_t _base_begin, _base_end    # between these times of the host it took place
    cdef int64_t _uncertainty_ns
    cdef int _make_events(self, int64_t n) except -1
    cdef int _align(self) except -1
    cdef CUresult _read(self, int64_t n, int64_t[:, ::1] times) noexcept nogil
    cdef int64_t _ended(self) except -1
