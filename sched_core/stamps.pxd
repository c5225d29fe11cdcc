"""Device times: what kernels wrote, and what is known of copies."""
from libc.stdint cimport int32_t, int64_t

from syncscope.sched_core.backend cimport op_t, span_t


ctypedef struct copy_t:                    # a copy that was issued and is not accounted for yet
    int64_t begin, end                     # bounds; end 0: nothing is known to have waited for it
    int32_t row, step


cdef class CopyBounds:
    cdef object _arrays
    cdef const op_t *_rows
    cdef const int32_t *_before            # per row: slot of the kernel before it on its stream
    cdef const int32_t *_after
    cdef const unsigned char *_waits       # per row: whether the call returns when it is done
    cdef int _n_streams
    cdef copy_t *_copies
    cdef int64_t _n, _capacity
    cdef int64_t[:] _open                  # per stream: copies before this one are bounded
    cdef int64_t[:] _event_end             # per event instance: copies before its record
    cdef int[:] _event_stream
    cdef int _append(self, const span_t *call) except -1
    cdef void _close(self, int stream, int64_t upto, int64_t at) noexcept
