"""Backends: the verbs that an executor issues ops through, and the kernels that ops name.

`Backend` itself is the null device: each verb returns at once and time is the host's monotonic
clock.  It is what the executor's own cost is measured against.
"""
from contextlib import nullcontext

import numpy as np

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from syncscope.sched_core.errors import DeviceError, KernelFault, UsageError
from syncscope.sched_core.records import Kind

BOUNDED, LOWER_BOUND = SPAN_BOUNDED, SPAN_LOWER_BOUND
"""Bits of a span's `flags`: it ran somewhere between begin and end; it may have ended later."""


cdef class KernelTable:
    """Kernel instances by name: the function, its constant parameters and its work.

    Filled by `syncscope.kernels.host`; handed to a backend by whoever joins the two.
    """

    def __cinit__(self):
        self.index = {}
        self.work = {}
        self._params = []
        self._function = NULL
        self._param = NULL
        self._capacity = 0

    def __dealloc__(self):
        free(self._function)
        free(self._param)

    def __len__(self):
        return len(self.index)

    cdef int add(self, str name, kernel_t function, object params, object work) except -1:
        """Add an instance: its numbers, and what one run has to do, a `costs.Work`."""
        cdef int n = len(self.index)
        cdef double[::1] values
        if name in self.index:
            return 0
        if n == self._capacity:
            self._capacity = max(64, 2 * n)
            self._function = <kernel_t *>realloc(self._function, self._capacity * sizeof(kernel_t))
            self._param = <double **>realloc(self._param, self._capacity * sizeof(double *))
            if self._function == NULL or self._param == NULL:
                raise MemoryError
        values = np.array([*params, 0.0], dtype=np.float64)
        self._params.append(values)
        self._function[n] = function
        self._param[n] = &values[0]
        self.index[name] = n
        self.work[name] = work
        return 0

    def position(self, str name):
        """Return the position of an instance; UsageError if this table lacks it."""
        try:
            return self.index[name]
        except KeyError:
            raise UsageError(f"no kernel {name} here; known: {len(self.index)} instances") from None


cdef size_t address(array) except 0:
    """Address of a C-contiguous array; whoever takes it keeps the array alive."""
    return array.ctypes.data


cdef int _nothing(void *self, const op_t *op, int64_t step) noexcept nogil:
    return STATUS_OK


cdef int64_t monotonic_ns(void *self) noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef class Backend:
    """A device behind the seven verbs; this base is the null device, whose verbs do nothing.

    A backend takes a Program with `bind`, gives its buffers memory, and fills in the addresses.
    """

    def __cinit__(self):
        cdef int kind
        for kind in range(N_VERBS):
            self.vt.verb[kind] = _nothing
        self.vt.now_ns = monotonic_ns
        self.state = NULL
        self.rows = None
        self.fault_step = self.fault_row = -1

    def bind(self, program, ring):
        """Make `program` the rows that will be issued, recording device times in `ring`."""
        self.set_rows(program)

    def set_rows(self, program):
        """Copy the rows of `program`, members after ops, to where the executor reads them.

        Raises
        ------
        UsageError
            For a kind that is no verb of a backend.
        """
        rows = np.concatenate([program.ops, program.members])
        for row in rows[rows["kind"] >= N_VERBS][:1]:
            site = program.sites[row["site"]].name
            raise UsageError(f"{site}: {Kind(row['kind']).name} can be analysed, not issued")
        rows["dst"] = rows["src"] = 0
        self.rows = rows
        self.n_ops = len(program.ops)
        self.table = <op_t *>address(rows)

    def reset(self, contents):
        """Let every buffer hold `contents`, by name, or zeros again: the null device holds none.

        Nothing may be pending.  A buffer that nothing writes stays as it is.
        """

    @property
    def max_steps(self):
        """Steps that may be issued before `collect` has to be called."""
        return 1 << 30

    def active(self):
        """Return a context manager that the executor must run inside."""
        return nullcontext()

    def collect(self, calls):
        """Return device times that came to be known since the last call, as arrays of SPAN.

        Parameters
        ----------
        calls : ndarray of SPAN
            What the ring recorded since then, `op` still the position of a row.
        """
        return ()

    def raise_fault(self, program, int status):
        """Turn the status of a failed verb into its exception."""
        row = self.rows[self.fault_row] if self.fault_row >= 0 else None
        site = program.sites[row["site"]].name if row is not None else "?"
        if status == STATUS_KERNEL_FAULT:
            raise KernelFault(
                self.fault_step, site, self.fault.what.decode(), self.fault.value,
                self.fault.low, self.fault.high,
            )
        raise DeviceError(f"step {self.fault_step}, {site}: status {status} of the device")

    def close(self):
        """Give back what the backend holds; harmless when repeated."""
        self.rows = None
        self.table = NULL
