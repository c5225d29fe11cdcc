"""Issue ops: one loop without the GIL that calls a verb per op and stamps its begin and end."""
from libc.stdint cimport int32_t, int64_t

from syncscope.sched_core.backend cimport (
    KIND_LAUNCH,
    ROLE_CALL,
    STATUS_OK,
    STATUS_STOPPED,
    Backend,
    backend_vt,
    op_t,
)
from syncscope.sched_core.recorder cimport SpanRing, ring_push, ring_t


cdef int issue_steps(backend_vt *vt, void *state, const op_t *table, int64_t row0, int64_t n_ops,
                     int64_t period, int64_t first_step, int64_t n_steps, ring_t *ring,
                     volatile int *stop, int64_t *done) noexcept nogil:
    """Issue steps ``[first_step, first_step + n_steps)``; `done` counts those that completed.

    A call's begin is the end of the one before it, so that an op costs one clock reading.
    """
    cdef int64_t step, i, row, begin, end
    cdef const op_t *op
    cdef int status
    begin = vt.now_ns(state)
    for step in range(first_step, first_step + n_steps):
        if stop[0]:
            return STATUS_STOPPED
        row = row0 + step % period * n_ops
        for i in range(n_ops):
            op = &table[row + i]
            if op.kind <= KIND_LAUNCH and op.src != NULL and (<const int64_t *>op.src)[0] == 0:
                continue
            status = vt.verb[op.kind](state, op, step)
            end = vt.now_ns(state)
            ring_push(ring, begin, end, <int32_t>(row + i), <int32_t>step, op.thread, ROLE_CALL,
                      op.nbytes)
            begin = end
            if status != STATUS_OK:
                done[0] = step - first_step
                return status
        done[0] = step - first_step + 1
    return STATUS_OK


cdef class Executor:
    """Runs the bound rows of a backend.

    Parameters
    ----------
    backend : Backend
    recorder : SpanRing
    """

    STOPPED = STATUS_STOPPED

    def __init__(self, Backend backend, SpanRing recorder):
        self.backend = backend
        self.recorder = recorder
        self._stop = 0

    def run(self, int64_t row0, int64_t n_ops, int64_t period, int64_t first_step, int64_t n_steps):
        """Issue `n_steps` steps of the block at `row0`.

        Returns
        -------
        status, done : int
            0 when all steps were issued, else the status of the verb that failed or of a stop;
            and the number of steps that completed.
        """
        cdef int status
        cdef int64_t done = 0
        if self.backend.rows is None:
            raise ValueError("the backend has no program: bind one first")
        if row0 < 0 or n_ops < 0 or period < 1 or row0 + n_ops * period > self.backend.n_ops:
            raise ValueError(f"rows {row0} + {n_ops} x {period} lie outside the bound program")
        with nogil:
            status = issue_steps(&self.backend.vt, self.backend.state, self.backend.table, row0,
                                 n_ops, period, first_step, n_steps, &self.recorder.ring,
                                 &self._stop, &done)
        if status == STATUS_STOPPED:
            self._stop = 0
        return status, done

    def stop(self):
        """Ask a running `run` to return before its next step; may be called from any thread."""
        self._stop = 1
