"""Virtual time of host threads, streams, events and copy engines."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from syncscope.sched_core.backend cimport op_t
from syncscope.sched_core.recorder cimport ring_t


cdef enum:  # stream kinds, in the order of machine.STREAM_KINDS
    STREAM_NONBLOCKING = 0
    STREAM_BLOCKING = 1
    STREAM_LEGACY = 2
    STREAM_PER_THREAD = 3

cdef enum:  # stream_engine besides the numbers of Costs.engine
    COMPUTE = -1
    NO_WORK_YET = -2

ctypedef struct machine_t:
    const op_t *rows
    int64_t *host_now                      # per host thread
    int64_t *stream_ready                  # end of the last work of each stream
    int64_t *event_ready                   # per event instance; -1 never recorded
    int64_t *engine_free                   # per device: host to device, device to host
    int32_t *stream_device
    int8_t *stream_engine                  # where the last work of each stream ran; NO_WORK_YET
    uint8_t *stream_kind
    int32_t n_threads, n_streams
    const int64_t *call_ns                 # per row
    const int64_t *exec_ns
    const int8_t *engine
    const uint8_t *waits
    int64_t launch_start_ns, launch_gap_ns, graph_start_ns, copy_start_ns
    int64_t switch_ns, sync_return_ns
    ring_t *ring


cdef void machine_issue(machine_t *m, const op_t *op, int64_t step) noexcept nogil
cdef bint streams_ordered(uint8_t one, uint8_t other) noexcept nogil


cdef class Machine:
    cdef machine_t state
    cdef dict _arrays
