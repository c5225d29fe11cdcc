"""Gives kernels a place for their times, and reads them back when steps have ended.

The place is a ring of steps on the device.  What is read back is cleared, so that a kernel that did
not run leaves zeros.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uintptr_t

from syncscope.sched_core.backend cimport address
from syncscope.sched_core.cuda_driver cimport (
    CUDA_ERROR_NOT_READY,
    CUDA_SUCCESS,
    CUdeviceptr,
    CUresult,
    CUstream,
    check,
    cuda_driver,
)
from syncscope.sched_core.cuda_issue cimport cuda_state_t, stamp_record_t
from syncscope.sched_core.device_clock cimport DeviceClock

from syncscope.sched_core.stamps import CopyBounds, kernel_spans, step_starts

STAMP_STEPS = 1024
"""Steps whose stamps fit on the device before they are read back."""


cdef CudaStamps make_stamps(cuda_state_t *state, CUstream side, take):
    """Return the stamps of a backend, and set the clock.

    `take` gives memory: it is called with a name, a kind and a size, and gives back what had that
    name before.
    """
    cdef CudaStamps made = CudaStamps()
    made._driver = cuda_driver()
    made._state = state
    made._side = side
    made._take = take
    pinned = take("clock", "pinned", 64)
    made.clock = DeviceClock(pinned.array[:32], state.base_ns)
    made._answer = pinned.address + 32
    made.clock.align(side)
    return made


cdef class CudaStamps:
    """The ring of stamps of one backend; its context must be current in all but `pending`."""

    cdef int bind(self, program, rows, streams, slot, first) except -1:
        """Begin with a program: a slot for each of its launches, no step counted yet.

        Parameters
        ----------
        program : Program
        rows : ndarray of OP
            Members after ops.
        streams : ndarray of uintp
            Handles of the program's streams.
        slot, first : ndarray
            From `launch_slots`.
        """
        cdef stamp_record_t *record
        cdef CUstream side = self._side
        cdef size_t nbytes = STAMP_STEPS * max(1, len(first)) * 16
        self._times = self._take("times", "device", nbytes).address
        staging = self._take("staging", "pinned", nbytes)
        self._staging = staging.address
        self._counter = self._take("counter", "device", 8).address
        stamps = self._take("stamps", "device", sizeof(stamp_record_t)).address
        record = <stamp_record_t *>self._staging  # on its way to the device
        record.step, record.times, record.capacity = self._counter, self._times, STAMP_STEPS
        check(
            self._driver.memcpy_htod_async(stamps, record, sizeof(stamp_record_t), side),
            b"cuMemcpyHtoDAsync (stamps)",
        )
        check(self._driver.memset_d8_async(self._counter, 0xFF, 8, side), b"cuMemsetD8Async")
        check(self._driver.stream_synchronize(side), b"cuStreamSynchronize")
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

    cdef int64_t pending(self):
        """Return how many steps were counted and not read back."""
        return self._state.counted - self._collected

    cdef object collect(self, calls, bint recording):
        """Return the device times of the steps that have ended since the last call.

        Waits for nothing that runs, unless no step would fit any more.

        Parameters
        ----------
        calls : ndarray of SPAN
            The host's since the last call, `op` the position of a row.
        recording : bool
            False: forget them.
        """
        cdef bint is_idle
        if len(calls):
            self._bounds.note(calls)
        is_idle = self._is_idle()
        steps, raw = self._read(self._done(is_idle))
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
        cdef uintptr_t handle
        cdef CUresult status = CUDA_SUCCESS
        for handle in self._arrays["streams"].tolist():
            status = self._driver.stream_query(<void *>handle)
            if status != CUDA_SUCCESS:
                break
        if status == CUDA_ERROR_NOT_READY and self.pending() >= STAMP_STEPS:
            with nogil:
                status = self._driver.ctx_synchronize()
        if status == CUDA_ERROR_NOT_READY:
            return False
        check(status, b"cuStreamQuery")
        return True

    cdef int64_t _done(self, bint is_idle) except -1:
        """Return how many steps have ended, and set the clock when nothing is disturbed by it."""
        cdef CUresult status
        cdef CUstream side = self._side
        if is_idle:
            self.clock.align(side)
            return self._state.counted
        with nogil:
            status = self._driver.memcpy_dtoh_async(
                <void *>self._answer, self._counter, 8, side)
            if status == CUDA_SUCCESS:
                status = self._driver.stream_synchronize(side)
        check(status, b"cuMemcpyDtoHAsync (step counter)")
        return max((<int64_t *>self._answer)[0], self._collected)

    cdef object _read(self, int64_t done):
        """Read back the stamps of steps up to `done`, and clear their place.

        Returns
        -------
        steps : ndarray of int64
        times : ndarray of int64, shape (steps, slots, 2)
            As the device counts; 0 where nothing ran.
        """
        cdef CUresult status
        cdef CUstream side = self._side
        cdef int64_t begin = self._collected, n
        cdef size_t row_nbytes = self._arrays["stamps"].strides[0], offset, nbytes
        cdef CUdeviceptr source
        while begin < done:
            n = min(done - begin, STAMP_STEPS - begin % STAMP_STEPS)
            nbytes = n * row_nbytes
            offset = begin % STAMP_STEPS * row_nbytes
            source = self._times + offset
            with nogil:
                status = self._driver.memcpy_dtoh_async(
                    <void *>(self._staging + offset), source, nbytes, side)
                if status == CUDA_SUCCESS:
                    status = self._driver.memset_d8_async(source, 0, nbytes, side)
                if status == CUDA_SUCCESS:
                    status = self._driver.stream_synchronize(side)
            check(status, b"cuMemcpyDtoHAsync (stamps)")
            begin += n
        place = np.arange(self._collected, done) % STAMP_STEPS
        self._collected = done
        return self._arrays["step_of"][place], self._arrays["stamps"][place]
