# cython: boundscheck=False
"""Device times without kernels or libraries that know of it: CUDA events around what is issued.

Around each copy, each graph and each kernel that is launched by itself; kernels inside a graph have
no times.  An op ran somewhere between its two events: the first takes place when the stream gets to
it, which may be before the op's own call has returned.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from syncscope.sched_core.backend cimport (
    KIND_COPY,
    KIND_GRAPH,
    KIND_LAUNCH,
    ROLE_EXEC,
    SPAN_BOUNDED,
    address,
    monotonic_ns,
)
from syncscope.sched_core.cuda_driver cimport (
    CUDA_ERROR_NOT_READY,
    CUDA_SUCCESS,
    CUresult,
    CUstream,
    check,
)
from syncscope.sched_core.cuda_issue cimport cuda_state_t, timed_op_t
from syncscope.sched_core.device_times cimport DeviceTimes

from syncscope.sched_core.recorder import SPAN

EVENT_PAIRS = 4096
"""Ops that can be timed before their events are read, unless two steps need more."""

RESOLUTION_NS = 500
"""Resolution of `cuEventElapsedTime`, as the driver's documentation gives it."""

cdef enum:
    ROUNDS = 4
    WITH_TIMING = 0                        # flags of an event


cdef class EventTimes(DeviceTimes):
    """A fixed ring of pairs of events, and one event whose time the host knows."""

    def __dealloc__(self):
        free(self._ops)

    cdef int open(self, cuda_state_t *state, CUstream side, take) except -1:
        DeviceTimes.open(self, state, side, take)
        check(self._driver.event_create(&self._base, WITH_TIMING), b"cuEventCreate")
        check(self._driver.event_create(&self._spare, WITH_TIMING), b"cuEventCreate")
        self._make_events(EVENT_PAIRS)
        self._align()
        return 0

    cdef int _make_events(self, int64_t n) except -1:
        """Let the ring hold at least `n` ops."""
        cdef timed_op_t *ops
        cdef timed_op_t *op
        if n > self._capacity:
            ops = <timed_op_t *>realloc(self._ops, n * sizeof(timed_op_t))
            if ops == NULL:
                raise MemoryError
            memset(&ops[self._capacity], 0, (n - self._capacity) * sizeof(timed_op_t))
            self._ops = ops
            self._capacity = n
        while self._made < self._capacity:
            op = &self._ops[self._made]
            check(self._driver.event_create(&op.begin, WITH_TIMING), b"cuEventCreate")
            self._made += 1                # its other event is NULL until it is made
            check(self._driver.event_create(&op.end, WITH_TIMING), b"cuEventCreate")
        return 0

    cdef int bind(self, program, rows, streams, slot, first) except -1:
        DeviceTimes.bind(self, program, rows, streams, slot, first)
        is_timed = np.zeros(len(rows) + 1, np.uint8)
        issued = is_timed[: len(program.ops)]
        issued[:] = np.isin(program.ops["kind"], (KIND_COPY, KIND_GRAPH, KIND_LAUNCH))
        of_step = np.add.reduceat(is_timed, program.step0[:-1], dtype=np.int64)
        self._per_step = of_step.max(initial=1)
        self._make_events(2 * self._per_step)
        self._arrays["is_timed"] = is_timed
        self._n_threads = program.n_threads
        self._state.is_timed = <const uint8_t *>address(is_timed)
        self._state.timed_ops = self._ops
        self._state.timed_capacity = self._capacity
        self._state.timed = self._collected = 0
        return 0

    cdef int64_t max_steps(self) except -1:
        free_pairs = self._capacity - (self._state.timed - self._collected)
        return max(1, free_pairs // self._per_step)

    cdef int _align(self) except -1:
        """Let the base event take place, between two times of the host; the tightest round counts.

        Done whenever events are read, since their distances from it are single-precision numbers.
        """
        cdef int64_t begin, end, i
        cdef CUresult status = CUDA_SUCCESS
        cdef CUstream side = self._side
        for i in range(ROUNDS):
            with nogil:
                begin = monotonic_ns(NULL)
                status = self._driver.event_record(self._spare, side)
                if status == CUDA_SUCCESS:
                    status = self._driver.event_synchronize(self._spare)
                end = monotonic_ns(NULL)
            check(status, b"cuEventRecord (clock)")
            if i == 0 or end - begin < self._base_end - self._base_begin:
                self._base, self._spare = self._spare, self._base
                self._base_begin, self._base_end = begin, end
        self._uncertainty_ns = max(
            self._uncertainty_ns, (self._base_end - self._base_begin + 1) // 2
        )
        return 0

    cdef int64_t _ended(self) except -1:
        """Return how many of the ops that were not read have ended, with all before them."""
        cdef CUresult status = CUDA_SUCCESS
        cdef int64_t at = self._collected
        if self._capacity - (self._state.timed - at) < self._per_step:
            with nogil:
                status = self._driver.ctx_synchronize()
            check(status, b"cuCtxSynchronize")
        if self.query_streams() == CUDA_SUCCESS:
            return self._state.timed - at
        while at < self._state.timed:
            status = self._driver.event_query(self._ops[at % self._capacity].end)
            if status == CUDA_ERROR_NOT_READY:
                break
            check(status, b"cuEventQuery")
            at += 1
        return at - self._collected

    cdef CUresult _read(self, int64_t n, int64_t[:, ::1] times) noexcept nogil:
        """Read row, step, begin and end of the next ops, in ns before the base event."""
        cdef CUresult status
        cdef float begin = 0, end = 0
        cdef timed_op_t *op
        cdef int64_t i
        for i in range(n):
            op = &self._ops[(self._collected + i) % self._capacity]
            status = self._driver.event_elapsed_time(&begin, op.begin, self._base)
            if status == CUDA_SUCCESS:
                status = self._driver.event_elapsed_time(&end, op.end, self._base)
            if status != CUDA_SUCCESS:
                return status
            times[i, 0] = op.row
            times[i, 1] = op.step
            times[i, 2] = <int64_t>(begin * 1e6)
            times[i, 3] = <int64_t>(end * 1e6)
        return CUDA_SUCCESS

    cdef object collect(self, calls, bint recording):
        """Return a span for each op whose events have taken place; none while the ring has room."""
        cdef int64_t n, base
        cdef int64_t[:, ::1] view
        cdef CUresult status
        n = self._state.timed - self._collected
        if n < self._capacity // 2 and not self.is_over(calls, recording):
            return ()
        n = self._ended()
        if n == 0:
            return ()
        times = np.empty((n, 4), np.int64)
        view = times
        self._align()
        with nogil:
            status = self._read(n, view)
        check(status, b"cuEventElapsedTime")
        self._collected += n
        if not recording:
            return ()
        rows = self._rows[times[:, 0]]
        base = (self._base_begin + self._base_end) // 2 - self._state.base_ns
        spans = np.zeros(n, SPAN)
        spans["begin_ns"] = base - times[:, 2]
        spans["end_ns"] = base - np.minimum(times[:, 2], times[:, 3])
        spans["op"], spans["step"] = times[:, 0], times[:, 1]
        spans["lane"] = self._n_threads + rows["stream"]
        spans["role"], spans["flags"] = ROLE_EXEC, SPAN_BOUNDED
        spans["nbytes"] = np.minimum(rows["nbytes"], 0xFFFFFFFF)
        return (spans[np.argsort(spans["begin_ns"], kind="stable")],)

    cdef int release(self) except -1:
        cdef int64_t i
        for i in range(self._made):
            self._driver.event_destroy(self._ops[i].begin)
            if self._ops[i].end != NULL:
                self._driver.event_destroy(self._ops[i].end)
        self._made = 0
        if self._base != NULL:
            self._driver.event_destroy(self._base)
        if self._spare != NULL:
            self._driver.event_destroy(self._spare)
        self._base = self._spare = NULL
        return 0

    @property
    def clock_uncertainty_ns(self):
        """How far the base event may be off on the host's clock."""
        return self._uncertainty_ns

    @property
    def timer_step_ns(self):
        """Resolution of the driver's answers."""
        return RESOLUTION_NS
