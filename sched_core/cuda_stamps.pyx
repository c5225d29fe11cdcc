"""Gives kernels a place for their times, and reads them back when steps have ended.

Kernels stamp the step that runs, in one row; `advance_step` puts it by in a ring of steps when the
next one begins, and clears it, so that a kernel that did not run leaves zeros.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t

from syncscope.sched_core.backend cimport address
from syncscope.sched_core.cuda_driver cimport (
    CUDA_ERROR_NOT_READY,
    CUresult,
    CUstream,
    check,
)
from syncscope.sched_core.cuda_issue cimport cuda_state_t, counter_record_t, stamp_record_t
from syncscope.sched_core.device_clock cimport DeviceClock
from syncscope.sched_core.device_times cimport DeviceTimes

from syncscope.sched_core.stamps import CopyBounds, kernel_spans, ring_parts, step_starts

STAMP_STEPS = 1024
"""Steps whose stamps fit on the device before they are read back."""


cdef class CudaStamps(DeviceTimes):
    """The stamps of one backend and their ring."""

    cdef int open(self, cuda_state_t *state, CUstream side, take) except -1:
        """Set the clock."""
        DeviceTimes.open(self, state, side, take)
        pinned = take("clock", "pinned", 64)
        self.clock = DeviceClock(pinned.array[:32], state.base_ns)
        self._answer = <counter_record_t *>address(pinned.array[32:])
        self.clock.align(side)
        return 0

    cdef int bind(self, program, rows, streams, slot, first) except -1:
        """Begin with a program: a slot for each of its launches, no step counted yet."""
        cdef counter_record_t *record = self._answer   # on its way to the device
        cdef size_t nbytes = max(1, len(first)) * sizeof(stamp_record_t)
        self._row_nbytes = nbytes
        self._stamps = self._take("stamps", "device", nbytes).address
        self._ring = self._take("ring", "device", STAMP_STEPS * nbytes).address
        staging = self._take("staging", "pinned", STAMP_STEPS * nbytes)
        self._staging = staging.address
        self._counter = self._take("counter", "device", sizeof(counter_record_t)).address
        record.first = self._ring
        record.row = record.last = self._ring + (STAMP_STEPS - 1) * nbytes
        record.step = -1
        check(
            self._driver.memcpy_htod_async(
                self._counter, record, sizeof(counter_record_t), self._side
            ),
            b"cuMemcpyHtoDAsync (step counter)",
        )
        self._synchronize()
        starts = np.zeros(len(rows) + 1, np.uint8)
        starts[: len(program.ops)] = step_starts(program)
        step_of = np.zeros(STAMP_STEPS, np.int64)
        self._arrays = {
            "starts": starts,
            "step_of": step_of,
            "streams": streams,
            "stamps": staging.array.view(np.int64).reshape(STAMP_STEPS, -1, 2),
        }
        self._state.starts = <const uint8_t *>address(starts)
        self._state.step_of = <int64_t *>address(step_of)
        self._state.capacity = STAMP_STEPS
        self._state.counted = self._collected = 0
        self._program, self._rows, self._first = program, rows, first
        self._bounds = CopyBounds(program, rows, slot)
        self._last_end = np.zeros(len(program.streams), np.int64)
        return 0

    cdef tuple addresses(self):
        return self._stamps, self._counter

    cdef int64_t pending(self):
        """Return how many steps were counted and not read back."""
        return self._state.counted - self._collected

    cdef int64_t max_steps(self) except -1:
        return max(1, STAMP_STEPS - self.pending())

    cdef object collect(self, calls, bint recording):
        """Return the device times of the steps that have ended since the last call."""
        cdef bint is_idle
        self.clock.rebase(self._state.base_ns)
        if len(calls):
            self._bounds.note(calls)
        is_idle = self._is_idle()
        if is_idle:                        # the clock is set when nothing is disturbed by it
            self.clock.align(self._side)
        steps, raw = self._read(is_idle)
        if not recording:
            return ()
        program, rows, first = self._program, self._rows, self._first
        ran = (raw > 0).all(axis=2)
        times = np.where(ran[:, :, None], self.clock.to_host(raw), 0)
        stream_of = rows["stream"][first]
        last_end = np.zeros((len(steps), len(program.streams)), np.int64)
        for stream in np.unique(stream_of):
            ends = times[:, stream_of == stream, 1].max(axis=1)
            latest = np.maximum.accumulate([self._last_end[stream], *ends])
            last_end[:, stream] = latest[:-1]
            self._last_end[stream] = latest[-1]
        copies = self._bounds.take(program.n_threads, steps, times, ran, last_end, is_idle)
        kernels = kernel_spans(rows, first, program.n_threads, steps, times, ran)
        spans = np.concatenate([copies, kernels])
        return (spans[np.argsort(spans["begin_ns"], kind="stable")],)

    cdef bint _is_idle(self) except -1:
        """Whether nothing is pending on the program's streams; made so when the ring is full."""
        cdef CUresult status = self.query_streams()
        if status == CUDA_ERROR_NOT_READY and self.pending() >= STAMP_STEPS:
            with nogil:
                status = self._driver.ctx_synchronize()
        if status == CUDA_ERROR_NOT_READY:
            return False
        check(status, b"cuStreamQuery")
        return True

    cdef int64_t _running(self) except? -1:
        """Return the number of the step that the device began last; -1 before the first."""
        self._fetch(self._counter, <size_t>self._answer, sizeof(counter_record_t))
        self._synchronize()
        return self._answer.step

    cdef object _read(self, bint is_idle):
        """Read back the stamps of steps that have ended since the last call.

        The launch that begins a step puts by the step before, and may be at it still: of that one
        nothing is read yet.  On an idle device all is in the ring, but the last step, which lies
        where kernels write until another begins.

        Returns
        -------
        steps : ndarray of int64
        times : ndarray of int64, shape (steps, slots, 2)
            As the device counts; 0 where nothing ran.
        """
        cdef int64_t running = self._running(), begin = self._collected, done
        cdef size_t nbytes = self._row_nbytes, row, n
        done = max(begin, running + 1 if is_idle else running - 1)
        for row, n in ring_parts(begin, min(done, running), STAMP_STEPS):
            self._fetch(self._ring + row * nbytes, self._staging + row * nbytes, n * nbytes)
        if begin <= running < done:
            row = running % STAMP_STEPS
            self._fetch(self._stamps, self._staging + row * nbytes, nbytes)
        self._synchronize()
        place = np.arange(begin, done) % STAMP_STEPS
        self._collected = done
        return self._arrays["step_of"][place], self._arrays["stamps"][place]

    cdef int _fetch(self, size_t source, size_t target, size_t nbytes) except -1:
        """Copy from the device to pinned memory, beside what runs."""
        check(
            self._driver.memcpy_dtoh_async(<void *>target, source, nbytes, self._side),
            b"cuMemcpyDtoHAsync (stamps)",
        )
        return 0

    cdef int _synchronize(self) except -1:
        cdef CUresult status
        with nogil:
            status = self._driver.stream_synchronize(self._side)
        check(status, b"cuStreamSynchronize (stamps)")
        return 0

    cdef int release(self) except -1:
        if self.clock is not None:         # it could not be made
            self.clock.close()
        return 0

    @property
    def clock_uncertainty_ns(self):
        """How far stamps may be off on the host's clock."""
        return self.clock.uncertainty_ns

    @property
    def timer_step_ns(self):
        """Step of the GPU's timer."""
        return self.clock.timer_step_ns
