"""The span ring: where executor and backend put what happened."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from syncscope.sched_core.backend cimport span_t


ctypedef struct ring_t:
    span_t *spans
    int64_t head                           # spans ever kept; the next goes to head & mask
    int64_t tail                           # first span not yet taken
    int64_t mask
    int64_t dropped
    int recording                          # 0: nothing is kept


cdef inline void ring_push(ring_t *ring, int64_t begin_ns, int64_t end_ns, int32_t op, int32_t step,
                           uint16_t lane, uint8_t role, int64_t nbytes) noexcept nogil:
    """Keep a span, or count it as dropped when the ring is full."""
    cdef span_t *span
    if not ring.recording:
        return
    if ring.head - ring.tail > ring.mask:
        ring.dropped += 1
        return
    span = &ring.spans[ring.head & ring.mask]
    span.begin_ns = begin_ns
    span.end_ns = end_ns
    span.op = op
    span.step = step
    span.lane = lane
    span.role = role
    span.flags = 0
    span.nbytes = <unsigned int>min(nbytes, <int64_t>0xFFFFFFFF)
    ring.head += 1


cdef class SpanRing:
    cdef ring_t ring
    cdef object _memory
