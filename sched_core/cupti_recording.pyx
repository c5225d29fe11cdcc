"""Device times as CUPTI records them: exact, of every kernel and copy, and costly.

CUPTI is asked for records now and then, when the device is idle, and at drains: so that nothing
that runs is disturbed, and few steps have that work between them and the next.
"""
from threading import get_native_id

import numpy as np

from libc.stdint cimport int64_t

from syncscope.sched_core.cuda_driver cimport CUDA_ERROR_NOT_READY, CUresult, check
from syncscope.sched_core.cupti cimport deliver, flush, start, stop
from syncscope.sched_core.cupti_buffers cimport free_nbytes
from syncscope.sched_core.device_times cimport DeviceTimes

from syncscope.sched_core.cupti import function_name
from syncscope.sched_core.cupti_buffers import POOL_NBYTES
from syncscope.sched_core.cupti_spans import CuptiSpans, Parts

CALL_NBYTES, WORK_NBYTES = 40, 256
"""Room that the record of a driver call takes, and at most that of a kernel or a copy."""

BATCH_CALLS = 1 << 14
"""Calls of the executor after which records are asked for."""

MAX_CALLS = 1 << 20
"""Calls that may wait for their records before the device is made idle."""


cdef class CuptiRecording(DeviceTimes):
    """Takes what CUPTI has recorded of one backend.

    Raises
    ------
    DeviceError
        If CUPTI is not here, or cannot record in this process.
    """

    def __cinit__(self):
        self._spans = CuptiSpans(get_native_id())
        self._noted = []
        start(self)

    def add(self, driver_calls, works):
        """Take in records, ndarrays of CALL and of WORK; others' may be among them."""
        if self._state != NULL:
            self._spans.add(driver_calls, works, self._state.base_ns)

    def lose(self, int64_t n):
        """Take note that CUPTI has dropped records."""
        self._records_lost += n

    cdef int bind(self, program, rows, streams, slot, first) except -1:
        DeviceTimes.bind(self, program, rows, streams, slot, first)
        parts = Parts(program, rows)
        nbytes = np.append(parts.n_calls * CALL_NBYTES + parts.n * WORK_NBYTES, 0)
        self._step_nbytes = np.add.reduceat(nbytes, program.step0[:-1]).max(initial=1)
        self._noted = []
        self._spans.bind(program, rows)
        return 0

    cdef int64_t max_steps(self) except -1:
        return max(1, free_nbytes() // 2 // self._step_nbytes)

    cdef object collect(self, calls, bint recording):
        """Return the spans of calls whose records have all arrived; none while they are few."""
        cdef bint is_over = self.is_over(calls, recording)
        cdef bint is_idle
        self._noted.append(calls.copy())   # the caller goes on to change it
        if not is_over and self._n_pending() < BATCH_CALLS and free_nbytes() > POOL_NBYTES // 2:
            return ()
        is_idle = self._is_idle()
        if is_idle or is_over:
            flush(False)
        deliver()
        self._spans.note(np.concatenate(self._noted))
        self._noted = []
        spans = [self._spans.take(False)]
        if is_idle and is_over:
            if self._spans.pending:
                flush(True)
                deliver()
            spans.append(self._spans.take(True))
        return spans

    cdef int64_t _n_pending(self):
        """Return how many calls are not accounted for."""
        return self._spans.pending + sum(map(len, self._noted))

    cdef bint _is_idle(self) except -1:
        """Whether nothing is pending on the program's streams; made so when too much is kept."""
        cdef CUresult status = self.query_streams()
        if status == CUDA_ERROR_NOT_READY:
            if self._n_pending() < MAX_CALLS and free_nbytes() > POOL_NBYTES // 4:
                return False
            with nogil:
                status = self._driver.ctx_synchronize()
        check(status, b"cuStreamQuery")
        return True

    cdef int close(self) except -1:
        return stop(self)

    @property
    def clock_uncertainty_ns(self):
        """How far device times may be off; told by the calls and waits around what ran."""
        return self._spans.uncertainty_ns

    @property
    def timer_step_ns(self):
        """Step of the timer, told by durations; None while there are too few."""
        return self._spans.timer_step_ns

    @property
    def dropped(self):
        """Records that were lost, at least: those CUPTI says, or those missed."""
        return max(self._spans.lost, self._records_lost)

    @property
    def driver_calls(self):
        """Calls of the driver in decode steps, by name."""
        counts = {}
        for function, found in self._spans.counts.items():
            name = function_name(function)
            counts[name] = np.add(counts.get(name, (0, 0)), found).tolist()
        steps = max(1, self._spans.decode_steps)
        return {
            name: {
                "count": count,
                "per_decode_step": count / steps,
                "before_launch": before / steps,
                "after_launch": (count - before) / steps,
            }
            for name, (count, before) in sorted(counts.items())
        }
