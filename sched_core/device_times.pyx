"""The contract between a GPU's backend and what records device times of it.

A recording is made before the context, opened in it, bound to each program in turn, released while
the context still works, and closed.  `DeviceTimes` itself records nothing.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uintptr_t

from syncscope.sched_core.backend cimport KIND_SYNC, SCOPE_DEVICE, address
from syncscope.sched_core.cuda_driver cimport CUDA_SUCCESS, CUresult, CUstream, cuda_driver
from syncscope.sched_core.cuda_issue cimport cuda_state_t


cdef class DeviceTimes:
    """Records nothing; subclasses say what they record and when.

    The backend's context must be current in `open`, `bind`, `collect` and `release`.
    """

    cdef int open(self, cuda_state_t *state, CUstream side, take) except -1:
        """Take what every program needs, and set the clock.

        Parameters
        ----------
        state : pointer
            What verbs work on.
        side : CUstream
            Carries what belongs to no plan.
        take : callable
            Gives memory: is called with a name, a kind and a size, and gives back what had that
            name before.
        """
        self._driver = cuda_driver()
        self._state = state
        self._side = side
        self._take = take
        return 0

    cdef int bind(self, program, rows, streams, slot, first) except -1:
        """Begin with a program, before its graphs are captured; nothing may be pending.

        Parameters
        ----------
        program : Program
        rows : ndarray of OP
            Bound rows, members after ops.
        streams : ndarray of uintp
            Handles of the program's streams.
        slot, first : ndarray
            From `stamps.launch_slots`.
        """
        starts = np.zeros(len(rows) + 1, np.uint8)
        ends_step = np.zeros(len(rows) + 1, bool)
        ends_step[program.step0[1:] - 1] = True
        self._rows = rows
        self._state.starts = <const uint8_t *>address(starts)
        self._arrays = {"streams": streams, "starts": starts, "ends_step": ends_step}
        return 0

    cdef tuple addresses(self):
        """Return what kernels are handed: where the stamp record and the step counter are, or 0."""
        return 0, 0

    cdef int64_t max_steps(self) except -1:
        """Return how many steps may be issued before `collect` has to be called; at least 1."""
        return 1 << 30

    cdef object collect(self, calls, bint recording):
        """Return device times that came to be known since the last call, as arrays of SPAN.

        Waits for nothing that runs, unless no step would fit any more.  May let them gather while
        steps follow one another (see `is_over`).

        Parameters
        ----------
        calls : ndarray of SPAN
            The host's since the last call, `op` the position of a row.
        recording : bool
            False: forget them.
        """
        return ()

    cdef int release(self) except -1:
        """Give back what lives in the context; harmless when repeated."""
        return 0

    cdef int close(self) except -1:
        """Give back what lives outside of it; harmless when repeated."""
        return 0

    @property
    def clock_uncertainty_ns(self):
        """How far device times may be off on the host's clock; None if not known."""
        return None

    @property
    def timer_step_ns(self):
        """Step of the device's times; None if not known."""
        return None

    @property
    def dropped(self):
        """Device times that were lost."""
        return 0

    @property
    def driver_calls(self):
        """Calls of the driver in decode steps, by name; None where they are not recorded.

        Each is a mapping: `count` over all decode steps; `per_decode_step`; and of that
        `before_launch`, ahead of the step's first launch, and `after_launch`, that launch and all
        that follows it.
        """
        return None

    cdef bint is_over(self, calls, bint recording):
        """Whether no step may follow `calls`, which `collect` was given.

        They end with a drain, or with a step that broke off; or nothing is recorded.
        """
        if not recording or self._state.device_fault.set:
            return True
        if not len(calls):
            return False
        last = calls["op"][len(calls) - 1]
        row = self._rows[last]
        is_drain = row["kind"] == KIND_SYNC and row["scope"] == SCOPE_DEVICE
        return is_drain or not self._arrays["ends_step"][last]

    cdef CUresult query_streams(self):
        """Return success if nothing is pending on the program's streams, else what it says."""
        cdef uintptr_t handle
        cdef CUresult status = CUDA_SUCCESS
        for handle in self._arrays["streams"].tolist():
            status = self._driver.stream_query(<void *>handle)
            if status != CUDA_SUCCESS:
                break
        return status
