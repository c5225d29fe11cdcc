"""Virtual time: when each call and each execution of issued ops begins and ends.

Rules: a stream is in order; the legacy default stream and the blocking streams of its device wait
for each other; a device has one copy engine per direction; a stream whose work goes on to another
engine pays `switch_ns`; kernels launched one by one lie `launch_gap_ns` apart; a host call takes
its API cost, and a wait returns `sync_return_ns` after what it waited for.  Data plays no part here
(see memory).
"""
import numpy as np

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from syncscope.sched_core.backend cimport (
    KIND_COPY,
    KIND_GRAPH,
    KIND_HOST,
    KIND_LAUNCH,
    KIND_RECORD,
    KIND_SYNC,
    KIND_WAIT,
    ROLE_EXEC,
    SCOPE_DEVICE,
    SCOPE_EVENT,
    address,
    op_t,
)
from syncscope.sched_core.recorder cimport SpanRing, ring_push

STREAM_KINDS = ("nonblocking", "blocking", "legacy_default", "per_thread_default")


cdef bint streams_ordered(uint8_t one, uint8_t other) noexcept nogil:
    """Whether two streams of a device order each other: one is the legacy one, neither is free."""
    if one == STREAM_NONBLOCKING or other == STREAM_NONBLOCKING:
        return False
    return one == STREAM_LEGACY or other == STREAM_LEGACY


cdef int64_t _stream_free(machine_t *m, int32_t stream) noexcept nogil:
    """When the work of a stream, and of streams that it is implicitly ordered with, is done."""
    cdef int64_t ready = m.stream_ready[stream]
    cdef int32_t other
    if m.stream_kind[stream] == STREAM_NONBLOCKING:
        return ready
    for other in range(m.n_streams):
        if (m.stream_device[other] == m.stream_device[stream]
                and streams_ordered(m.stream_kind[stream], m.stream_kind[other])):
            ready = max(ready, m.stream_ready[other])
    return ready


cdef int64_t _queued(machine_t *m, int32_t stream, int8_t engine, int64_t gap) noexcept nogil:
    """When the next work of a stream may begin on an engine, `gap` after work on the same one."""
    cdef int8_t last = m.stream_engine[stream]
    cdef int64_t free = _stream_free(m, stream)
    if last == NO_WORK_YET:
        return free
    return free + (gap if last == engine else m.switch_ns)


cdef int64_t _execute(machine_t *m, const op_t *op, int64_t step, int64_t begin) noexcept nogil:
    """Run one kernel or copy of a stream from `begin` at the earliest; return its end."""
    cdef int64_t row = op - m.rows
    cdef int64_t end
    cdef int8_t engine = m.engine[row]
    cdef int64_t *free = NULL
    if engine >= 0:
        free = &m.engine_free[2 * m.stream_device[op.stream] + engine]
        begin = max(begin, free[0])
    end = begin + m.exec_ns[row]
    m.stream_engine[op.stream] = engine
    if free != NULL:
        free[0] = end
    ring_push(m.ring, begin, end, <int32_t>row, <int32_t>step, m.n_threads + op.stream, ROLE_EXEC,
              op.nbytes)
    return end


cdef void machine_issue(machine_t *m, const op_t *op, int64_t step) noexcept nogil:
    """Move the clocks by one op."""
    cdef int64_t *now = &m.host_now[op.thread]
    cdef int64_t before = now[0]
    cdef int64_t target, i
    cdef int32_t other
    cdef const op_t *members
    now[0] += m.call_ns[op - m.rows]
    if op.kind == KIND_HOST:
        return
    if op.kind == KIND_SYNC:
        if op.scope == SCOPE_EVENT:
            target = m.event_ready[op.event]
        elif op.scope == SCOPE_DEVICE:
            target = 0
            for other in range(m.n_streams):
                if m.stream_device[other] == m.stream_device[op.stream]:
                    target = max(target, m.stream_ready[other])
        elif m.stream_kind[op.stream] == STREAM_LEGACY:
            target = _stream_free(m, op.stream)
        else:
            target = m.stream_ready[op.stream]
        if target > before:
            now[0] = max(now[0], target + m.sync_return_ns)
    elif op.kind == KIND_RECORD:
        m.stream_ready[op.stream] = _stream_free(m, op.stream)
        m.event_ready[op.event] = max(m.stream_ready[op.stream], now[0])
    elif op.kind == KIND_WAIT:
        m.stream_ready[op.stream] = max(_stream_free(m, op.stream), m.event_ready[op.event])
    elif op.kind == KIND_LAUNCH:
        target = _queued(m, op.stream, COMPUTE, m.launch_gap_ns)
        m.stream_ready[op.stream] = _execute(
            m, op, step, max(now[0] + m.launch_start_ns, target))
    elif op.kind == KIND_COPY:
        target = _queued(m, op.stream, m.engine[op - m.rows], 0)
        target = _execute(m, op, step, max(now[0] + m.copy_start_ns, target))
        m.stream_ready[op.stream] = target
        if m.waits[op - m.rows]:
            now[0] = max(now[0], target + m.sync_return_ns)
    elif op.kind == KIND_GRAPH:
        target = max(now[0] + m.graph_start_ns, _queued(m, op.stream, COMPUTE, 0))
        members = <const op_t *>op.dst
        for i in range(op.nbytes):
            target = _execute(m, &members[i], step, target)
        m.stream_ready[op.stream] = target


cdef class Machine:
    """The clocks of one program.

    Parameters
    ----------
    program : Program
        Names streams, events and threads.
    rows : ndarray of OP
        The bound rows, members after ops; must stay alive, which this object sees to.
    costs : Costs
        Of each row.
    recorder : SpanRing
        Where executions are recorded.
    """

    def __init__(self, program, rows, costs, SpanRing recorder):
        streams = program.streams
        devices = [stream.device for stream in streams]
        n_threads = program.n_threads
        self._arrays = {
            "rows": rows, "costs": costs, "recorder": recorder,
            "host": np.zeros(n_threads, np.int64),
            "ready": np.zeros(len(streams) + 1, np.int64),
            "event": np.full(int(program.event_base[-1]) + 1, -1, np.int64),
            "engine": np.zeros(2 * (max(devices, default=0) + 1), np.int64),
            "device": np.array([*devices, -1], np.int32),
            "last": np.full(len(streams) + 1, NO_WORK_YET, np.int8),
            "kind": np.array([*(STREAM_KINDS.index(s.kind) for s in streams), 0], np.uint8),
        }
        m = &self.state
        m.rows = <const op_t *>address(rows)
        m.host_now = <int64_t *>address(self._arrays["host"])
        m.stream_ready = <int64_t *>address(self._arrays["ready"])
        m.event_ready = <int64_t *>address(self._arrays["event"])
        m.engine_free = <int64_t *>address(self._arrays["engine"])
        m.stream_device = <int32_t *>address(self._arrays["device"])
        m.stream_engine = <int8_t *>address(self._arrays["last"])
        m.stream_kind = <uint8_t *>address(self._arrays["kind"])
        m.n_threads = n_threads
        m.n_streams = len(streams)
        m.call_ns = <const int64_t *>address(costs.call_ns)
        m.exec_ns = <const int64_t *>address(costs.exec_ns)
        m.engine = <const int8_t *>address(costs.engine)
        m.waits = <const uint8_t *>address(costs.waits)
        m.launch_start_ns = costs.launch_start_ns
        m.launch_gap_ns = costs.launch_gap_ns
        m.graph_start_ns = costs.graph_start_ns
        m.copy_start_ns = costs.copy_start_ns
        m.switch_ns = costs.switch_ns
        m.sync_return_ns = costs.sync_return_ns
        m.ring = &recorder.ring

    @property
    def now_ns(self):
        """The clock of host thread 0."""
        return self.state.host_now[0]

    def begin_at(self, int64_t now_ns):
        """Start every clock at `now_ns`: a program that takes over from another, drained one."""
        for name in ("host", "ready", "engine"):
            self._arrays[name][:] = now_ns
