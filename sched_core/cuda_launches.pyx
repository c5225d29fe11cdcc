"""Makes everything that a kernel launch needs ahead of time: function, shape, parameters.

A kernel takes its arguments as pointers, its parameters by value, then the addresses of the fault
record and of its own stamp record, and its slot.
"""
import numpy as np

from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from syncscope.sched_core.backend cimport address
from syncscope.sched_core.cuda_driver cimport (
    CU_MAX_DYNAMIC_SHARED,
    CUDA_SUCCESS,
    CUfunction,
    CUmodule,
    check,
    cuda_driver,
)
from syncscope.sched_core.cuda_issue cimport cuda_state_t, launch_t, stamp_record_t

from syncscope.sched_core.cuda_driver import driver_error
from syncscope.sched_core.errors import DeviceError, UsageError
from syncscope.sched_core.records import Kind

ADVANCE = "advance_step"
"""Name of the kernel that begins a step: takes the counter, the stamps and how many there are."""

cdef enum:
    SHARED_BY_DEFAULT = 48 * 1024          # dynamic shared memory that needs no asking


cdef Launches make_launches(cuda_state_t *state, kernels):
    """Return launches that `state` will point to; they are used in its context."""
    cdef Launches made = Launches()
    made._driver = cuda_driver()
    made._state = state
    made._kernels = dict(kernels)
    made._modules, made._functions = {}, {}
    return made


cdef class Launches:
    """The launches of a bound program; modules stay loaded from one program to the next."""

    cdef CUfunction _find(self, kernel) except NULL:
        """Return the handle of a kernel, loading its module first if need be."""
        cdef CUmodule module
        cdef CUfunction function
        cdef uintptr_t handle
        cdef const unsigned char *image
        if kernel.cubin not in self._modules:
            image = kernel.cubin
            check(self._driver.module_load_data(&module, image), b"cuModuleLoadData")
            self._modules[kernel.cubin] = <uintptr_t>module
        key = (kernel.cubin, kernel.function)
        if key not in self._functions:
            handle = self._modules[kernel.cubin]
            name = kernel.function.encode()
            status = self._driver.module_get_function(&function, <void *>handle, name)
            if status != CUDA_SUCCESS:
                raise driver_error(status, f"cuModuleGetFunction {kernel.function}")
            if self._driver.func_load != NULL:  # now, rather than at its first launch
                check(self._driver.func_load(function), b"cuFuncLoad")
            self._functions[key] = <uintptr_t>function
        handle = self._functions[key]
        return <CUfunction>handle

    cdef int _fill(self, launch_t *launch, kernel) except -1:
        """Fill in all but the parameters."""
        cdef int i
        launch.function = self._find(kernel)
        for i in range(3):
            launch.grid[i] = kernel.grid[i]
            launch.block[i] = kernel.block[i]
        launch.shared_nbytes = kernel.shared_nbytes
        if kernel.shared_nbytes > SHARED_BY_DEFAULT:
            status = self._driver.func_set_attribute(
                launch.function, CU_MAX_DYNAMIC_SHARED, kernel.shared_nbytes
            )
            if status != CUDA_SUCCESS:
                raise driver_error(status, f"cuFuncSetAttribute of {kernel.function}")
        return 0

    cdef int prepare(self, program, rows, addresses, slot, int n_slots, addresses_of_own) except -1:
        """Make the launch of each LAUNCH row, and of the kernel that begins steps if need be.

        Parameters
        ----------
        program : Program
        rows : ndarray of OP
            Members after ops.
        addresses : ndarray of uintp
            Of each access.
        slot : ndarray of int32
            Of each row.
        n_slots : int
        addresses_of_own : tuple of int
            Of the fault record, the stamps of all slots and the step counter; 0 where there is
            none.
        """
        cdef launch_t *launches
        cdef uintptr_t place
        fault, stamps, counter = addresses_of_own
        table = np.zeros(len(rows) * sizeof(launch_t) + 1, np.uint8)
        launches = <launch_t *>address(table)
        numbers = np.arange(n_slots + 1, dtype=np.int32)
        places = np.zeros(n_slots + 1, np.uint64)      # a launch's own stamps
        if stamps:
            places += stamps + np.arange(n_slots + 1, dtype=np.uint64) * sizeof(stamp_record_t)
        common = np.array([fault, counter, stamps, n_slots], dtype=np.uint64)
        common_at = [common.ctypes.data + 8 * i for i in range(len(common))]
        blobs = {}
        pointers, first_pointer = [], {}
        for i in np.flatnonzero(rows["kind"] == Kind.LAUNCH).tolist():
            row = rows[i]
            name = program.kernels[row["kernel"]]
            kernel = self._kernels.get(name)
            if kernel is None:
                raise DeviceError(f"no kernel {name} for the GPU")
            if kernel.n_arguments != row["n_access"]:
                raise UsageError(
                    f"{program.sites[row['site']].name}: {name} takes {kernel.n_arguments} "
                    f"arguments, the op has {row['n_access']}"
                )
            if name not in blobs:
                blobs[name] = _by_value(kernel.params)
            values, offsets = blobs[name]
            self._fill(&launches[<int64_t>i], kernel)
            first_pointer[i] = len(pointers)
            argument = addresses.ctypes.data + int(row["access0"]) * addresses.itemsize
            pointers += [argument + k * addresses.itemsize for k in range(kernel.n_arguments)]
            pointers += [values.ctypes.data + offset for offset in offsets]
            pointers += [common_at[0], places.ctypes.data + 8 * int(slot[i])]
            pointers.append(numbers.ctypes.data + 4 * int(slot[i]))
        where = np.array([*pointers, *common_at[1:]], np.uintp)
        for i, begin in first_pointer.items():
            place = where.ctypes.data + begin * where.itemsize
            launches[<int64_t>i].params = <void **>place
        memset(&self._state.advance, 0, sizeof(launch_t))
        if counter and pointers:
            if ADVANCE not in self._kernels:
                raise DeviceError(f"no kernel {ADVANCE} for the GPU")
            self._fill(&self._state.advance, self._kernels[ADVANCE])
            place = where.ctypes.data + len(pointers) * where.itemsize
            self._state.advance.params = <void **>place
        self._state.launches = launches
        self._arrays = [table, numbers, places, common, blobs, where]
        return 0

    cdef int close(self) except -1:
        """Unload the modules."""
        cdef uintptr_t handle
        for handle in self._modules.values():
            self._driver.module_unload(<void *>handle)
        self._modules, self._functions = {}, {}
        return 0


def _by_value(params):
    """Return parameters one behind the other, each on 8 bytes, and where each begins."""
    padded = [each.ljust(-(-len(each) // 8) * 8, b"\0") for each in params]
    values = np.frombuffer(b"".join(padded) + bytes(8), np.uint8).copy()
    return values, np.cumsum([0, *map(len, padded)])[:-1].tolist()
