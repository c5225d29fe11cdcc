"""The executor's loop over the cyclic table."""
from libc.stdint cimport int64_t

from syncscope.sched_core.backend cimport Backend
from syncscope.sched_core.recorder cimport SpanRing


cdef class Executor:
    cdef readonly Backend backend
    cdef readonly SpanRing recorder
    cdef volatile int _stop
