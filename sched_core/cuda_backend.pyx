"""A GPU behind the verbs: PyCUDA owns the context and the memory, the driver's table does the rest.

PyCUDA is imported when a backend is made, not before.
"""
import atexit
import time
import weakref
from dataclasses import dataclass
from importlib.util import find_spec
from threading import get_ident

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from syncscope.sched_core.backend cimport (
    KIND_COPY,
    KIND_GRAPH,
    KIND_HOST,
    KIND_LAUNCH,
    KIND_RECORD,
    KIND_SYNC,
    KIND_WAIT,
    Backend,
    KernelTable,
    address,
    kernel_t,
    monotonic_ns,
)
from syncscope.sched_core.cuda_driver cimport (
    CU_EVENT_BLOCKING_SYNC,
    CU_EVENT_DISABLE_TIMING,
    CU_MAX_DYNAMIC_SHARED,
    CU_STREAM_DEFAULT,
    CU_STREAM_NON_BLOCKING,
    CUDA_SUCCESS,
    CUdeviceptr,
    CUevent,
    CUfunction,
    CUgraphExec,
    CUmodule,
    CUresult,
    CUstream,
    check,
    cuda_driver,
    cuda_t,
)
from syncscope.sched_core.cuda_issue cimport (
    COPY_ON_DEVICE,
    COPY_TO_DEVICE,
    COPY_TO_HOST,
    STATUS_DEVICE_FAULT,
    STATUS_DRIVER,
    capture_graph,
    cuda_now_ns,
    device_verb,
    fault_record_t,
    host_verb,
    launch_t,
    stamp_record_t,
    sync_verb,
)
from syncscope.sched_core.device_clock cimport DeviceClock
from syncscope.sched_core.recorder cimport SpanRing

from syncscope.sched_core.cuda_driver import driver_error, list_gpus
from syncscope.sched_core.errors import DeviceError, KernelFault, UsageError, nearest
from syncscope.sched_core.records import Kind
from syncscope.sched_core.stamps import CopyBounds, kernel_spans, launch_slots, step_starts

WAITS = ("spin", "yield", "block")
"""How the host waits for the GPU: a busy loop, one that yields the processor, or asleep."""

RECORDS = ("stamps", "off")
"""What is recorded of the device: times that kernels write, or nothing."""

ADVANCE = "advance_step"
"""Name of the kernel that counts a step on the device: one thread, takes the counter's address."""

STAMP_STEPS = 1024
"""Steps whose stamps fit on the device before they are read back."""

NO_PYCUDA = "install it with pip install 'syncscope[cuda]', or use --device sim"

cdef enum:
    PER_THREAD = 2                         # CU_STREAM_PER_THREAD
    LEGACY = 1                             # CU_STREAM_LEGACY
    SHARED_BY_DEFAULT = 48 * 1024          # dynamic shared memory that needs no asking

_open = weakref.WeakSet()


@atexit.register
def _close_all():
    """Close what was left open: PyCUDA aborts the process if a context outlives the interpreter."""
    for backend in list(_open):
        try:
            backend.close()
        except Exception:                  # nobody is left to tell
            pass


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel instance as the GPU runs it.

    Parameters
    ----------
    cubin : bytes
        The compiled module.
    function : str
        Name of the kernel in it.
    n_arguments : int
        How many pointers it takes before its parameters.
    params : tuple of bytes
        Its parameters by value, each as C holds it.
    grid, block : tuple of int
        Three numbers each.
    shared_nbytes : int
        Dynamic shared memory of a block.
    """

    cubin: bytes
    function: str
    n_arguments: int
    params: tuple[bytes, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_nbytes: int = 0


def pycuda_problem():
    """Return why PyCUDA cannot be used, None if nothing is known against it; imports nothing."""
    if find_spec("pycuda") is None:
        return f"PyCUDA is not installed; {NO_PYCUDA}"
    return None


def _import_pycuda():
    """Import PyCUDA and start the driver."""
    try:
        import pycuda.driver as drv
    except ImportError as error:
        raise DeviceError(f"PyCUDA cannot be imported ({error}); {NO_PYCUDA}") from None
    try:
        drv.init()
    except drv.Error as error:
        raise _translated(drv, error, "cuInit") from None
    return drv


def _translated(drv, error, call):
    """Return the DeviceError for an exception of PyCUDA's."""
    if isinstance(error, drv.MemoryError):
        return driver_error(2, call)
    return DeviceError(f"{call}: {error}; look at nvidia-smi and the kernel log")


class _Pushed:
    """Makes a context current in this thread, and what was before current again."""

    def __init__(self, drv, context, thread):
        self._drv, self._context, self._thread = drv, context, thread

    def __enter__(self):
        if self._context is None:
            raise DeviceError("the device has been closed; open it again")
        if get_ident() != self._thread:
            raise DeviceError("a GPU is used by the thread that opened it, and by no other")
        self._context.push()

    def __exit__(self, *error):
        self._drv.Context.pop()


class _Memory:
    """One slot of a buffer: where it is, and what keeps it alive."""

    def __init__(self, drv, memory, nbytes, contents=None):
        self.memory, self.nbytes = memory, nbytes
        self._drv = drv
        self._owner = self.array = None
        if memory == "device":
            self._owner = drv.mem_alloc(max(nbytes, 1))
            self.address = int(self._owner)
            if contents is None:
                drv.memset_d8(self.address, 0, max(nbytes, 1))
            else:
                drv.memcpy_htod(self.address, contents)
            return
        if memory == "pinned":
            self.array = drv.pagelocked_empty(max(nbytes, 1), np.uint8)[:nbytes]
            self.array[:] = 0 if contents is None else contents
            self._owner = self.array.base
            while isinstance(self._owner, np.ndarray):
                self._owner = self._owner.base
        else:
            self.array = np.zeros(nbytes, np.uint8) if contents is None else contents
        self.address = self.array.ctypes.data

    def read(self):
        """Return a copy of the bytes."""
        if self.memory != "device":
            return self.array.copy()
        out = np.empty(self.nbytes, np.uint8)
        if self.nbytes:
            self._drv.memcpy_dtoh(out, self.address)
        return out

    def free(self):
        """Give the memory back."""
        if self._owner is not None:
            self._owner.free()
        self._owner = self.array = None


cdef class CudaBackend(Backend):
    """One GPU; all its methods are called by the thread that made it, `Engine.stop` excepted.

    Its context is current only inside its methods and inside `active`.

    Parameters
    ----------
    kernels : KernelTable
        Host twins, for what the host computes.
    device_kernels : mapping of str to DeviceKernel
        By instance name; with ``record="stamps"`` also `ADVANCE`.
    faults : mapping of int to str
        What the value is that a kernel refused, by its code.
    device : int
        Number of the GPU, as the driver counts.
    wait : str
        One of `WAITS`.
    record : str
        One of `RECORDS`.

    Raises
    ------
    DeviceError
        Without a driver, a GPU of that number, or PyCUDA.
    """

    def __init__(self, KernelTable kernels, device_kernels, faults, int device=0,
                 str wait="spin", str record="stamps"):
        if wait not in WAITS:
            raise UsageError(f"--wait {wait}: {nearest(wait, WAITS)}")
        if record not in RECORDS:
            raise UsageError(f"--record {record} on a GPU: {nearest(record, RECORDS)}")
        gpus = list_gpus()
        if not 0 <= device < len(gpus):
            raise DeviceError(f"no GPU {device}: there are {len(gpus)}; see `syncscope devices`")
        self.driver = self.cuda.driver = cuda_driver()
        self.gpu = gpus[device]
        self.kernels = kernels
        self.wait, self.record = wait, record
        self._device_kernels, self._faults = dict(device_kernels), dict(faults)
        self._slots, self._contents, self._arrays, self._extra = {}, {}, {}, {}
        self._modules, self._functions = {}, {}
        self._streams, self._events, self._graphs = [], [], []
        self._thread = get_ident()
        self._set_verbs()
        drv = self._drv = _import_pycuda()
        flags = {
            "spin": drv.ctx_flags.SCHED_SPIN,
            "yield": drv.ctx_flags.SCHED_YIELD,
            "block": drv.ctx_flags.SCHED_BLOCKING_SYNC,
        }[wait]
        try:
            self._context = drv.Device(device).make_context(flags | drv.ctx_flags.MAP_HOST)
        except drv.Error as error:
            raise _translated(drv, error, "cuCtxCreate") from None
        drv.Context.pop()
        _open.add(self)
        try:
            with self.active():
                self._open_device()
        except BaseException:
            self.close()
            raise

    def _set_verbs(self):
        self.vt.verb[<int>KIND_HOST] = host_verb
        for kind in (KIND_LAUNCH, KIND_COPY, KIND_RECORD, KIND_WAIT, KIND_GRAPH):
            self.vt.verb[<int>kind] = device_verb
        self.vt.verb[<int>KIND_SYNC] = sync_verb
        self.vt.now_ns = cuda_now_ns
        self.state = &self.cuda
        self.cuda.fault = &self.fault
        self.cuda.base_ns = monotonic_ns(NULL)
        self.base_ns = 0

    def _open_device(self):
        """Take the memory that every program needs, and set the clock."""
        fault = self._take("fault", "pinned", sizeof(fault_record_t))
        self.cuda.device_fault = <volatile fault_record_t *>address(fault.array)
        check(self.driver.stream_create(&self._side, CU_STREAM_NON_BLOCKING), b"cuStreamCreate")
        if self.record == "stamps":
            self.clock = DeviceClock(self._take("clock", "pinned", 64).array, self.cuda.base_ns)
            self.clock.align(self._side)

    def _take(self, name, memory, nbytes):
        """Take memory for the backend's own use in place of what had that name."""
        if name in self._extra:
            self._extra.pop(name).free()
        self._extra[name] = self._memory(f"memory for {name}", memory, nbytes)
        return self._extra[name]

    def _memory(self, what, memory, nbytes, contents=None):
        try:
            return _Memory(self._drv, memory, nbytes, contents)
        except self._drv.Error as error:
            raise _translated(self._drv, error, f"{what} ({nbytes:,} bytes, {memory})") from None

    def active(self):
        """Return a context manager that makes the GPU's context current in this thread."""
        return _Pushed(self._drv, self._context, self._thread)

    # ---- a program ------------------------------------------------------------------------------

    def load(self, contents):
        """Give buffers their first contents by name; pageable ones use the array itself."""
        for name, array in contents.items():
            self._contents[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def bind(self, program, SpanRing ring):
        """Give every buffer memory, keep what it held before, resolve rows and capture graphs.

        Nothing may be pending: drain the program that was bound before.

        Raises
        ------
        UsageError
            For a plan that this device cannot run.
        DeviceError
            When memory is short, or the driver refuses something.
        """
        devices = {each.device for each in (*program.streams, *program.buffers)} - {-1}
        if len(devices) > 1:
            raise UsageError(f"the plan is for {len(devices)} devices; one GPU can be used so far")
        with self.active():
            self._unbind()
            try:
                self._bind(program, ring)
            except BaseException:
                self._unbind()             # nothing half bound may be run
                raise

    cdef object _bind(self, program, SpanRing ring):
        self.set_rows(program)
        self._program, self._ring = program, ring
        self._allocate(program)
        self._make_streams(program)
        addresses = self._resolve(program)
        slot, self._first = launch_slots(self.rows)
        self._prepare_stamps(program, slot)
        self._prepare_launches(program, addresses, slot)
        self._capture(program)
        check(self.driver.ctx_synchronize(), b"cuCtxSynchronize")
        if self.base_ns == 0:              # time begins when the first program is ready
            self.cuda.base_ns, self.base_ns = monotonic_ns(NULL), time.time_ns()
            if self.clock is not None:
                self.clock.rebase(self.cuda.base_ns)

    cdef int _unbind(self) except -1:
        """Destroy what belongs to one program; the memory of its buffers stays."""
        cdef uintptr_t handle
        for handle in self._graphs:
            self.driver.graph_exec_destroy(<void *>handle)
        for handle in self._events:
            self.driver.event_destroy(<void *>handle)
        for handle in self._streams:
            self.driver.stream_destroy(<void *>handle)
        self._graphs, self._events, self._streams = [], [], []
        self.rows = None
        self.table = NULL
        return 0

    cdef object _allocate(self, program):
        slots = {}
        for buffer in program.buffers:
            if buffer.memory == "managed":
                raise UsageError(f"buffer {buffer.name}: managed memory is for analysis only")
            for slot in range(buffer.depth):
                kept = self._slots.get((buffer.name, slot))
                if kept is not None and kept.nbytes != buffer.nbytes:
                    raise UsageError(
                        f"buffer {buffer.name} has {buffer.nbytes} B, held {kept.nbytes} B before"
                    )
                if kept is None or kept.memory != buffer.memory:
                    contents = self._contents.get(buffer.name) if slot == 0 else None
                    if kept is not None:
                        contents = kept.read()
                    if contents is not None and contents.nbytes != buffer.nbytes:
                        raise UsageError(
                            f"buffer {buffer.name} has {buffer.nbytes} B, "
                            f"its contents {contents.nbytes} B"
                        )
                    kept = self._memory(
                        f"buffer {buffer.name}", buffer.memory, buffer.nbytes, contents
                    )
                slots[buffer.name, slot] = kept
                self._slots.setdefault((buffer.name, slot), kept)
        for place, before in self._slots.items():
            if slots.get(place) is not before:
                before.free()
        self._slots = slots

    cdef object _make_streams(self, program):
        """Create streams and events, and let the state point to their handles."""
        cdef CUstream stream
        cdef CUevent event
        cdef unsigned int flags = CU_EVENT_DISABLE_TIMING
        if self.wait == "block":
            flags |= CU_EVENT_BLOCKING_SYNC
        handles = np.zeros(len(program.streams) + 1, np.uintp)
        for i, record in enumerate(program.streams):
            if record.kind == "per_thread_default":
                handles[i] = PER_THREAD
            elif record.kind == "legacy_default":
                handles[i] = LEGACY
            else:
                check(
                    self.driver.stream_create(
                        &stream,
                        CU_STREAM_DEFAULT if record.kind == "blocking" else CU_STREAM_NON_BLOCKING,
                    ),
                    b"cuStreamCreate",
                )
                handles[i] = <uintptr_t>stream
                self._streams.append(<uintptr_t>stream)
        events = np.zeros(int(program.event_base[-1]) + 1, np.uintp)
        for i in range(len(events) - 1):
            check(self.driver.event_create(&event, flags), b"cuEventCreate")
            events[i] = <uintptr_t>event
            self._events.append(<uintptr_t>event)
        self._arrays = {"streams": handles, "events": events}
        self.cuda.streams = <CUstream *>address(handles)
        self.cuda.events = <CUevent *>address(events)

    cdef object _resolve(self, program):
        """Fill in copy addresses, argument arrays, counts and host kernels; return addresses."""
        rows = self.rows
        accesses = program.accesses
        names = [buffer.name for buffer in program.buffers]
        memory = np.array([buffer.memory for buffer in program.buffers] + [""])
        addresses = np.array(
            [
                self._slots[names[access["buffer"]], int(access["slot"])].address
                + int(access["begin"])
                for access in accesses
            ] + [0],
            dtype=np.uintp,
        )
        source = np.concatenate([program.ops["src"], program.members["src"]])
        first = rows["access0"].astype(np.int64)
        ways = np.zeros(len(rows) + 1, np.uint8)
        for i, row in enumerate(rows):
            place = memory[accesses["buffer"][first[i] : first[i] + row["n_access"]]]
            site = program.sites[row["site"]].name
            if row["kind"] == Kind.HOST and "device" in place:
                raise UsageError(f"{site}: the host cannot reach a buffer of the device")
            if row["kind"] == Kind.LAUNCH and "pageable" in place:
                raise UsageError(f"{site}: a kernel cannot reach pageable memory")
            if row["kind"] == Kind.COPY:
                way = {
                    (False, True): COPY_TO_DEVICE,
                    (True, False): COPY_TO_HOST,
                    (True, True): COPY_ON_DEVICE,
                }.get(tuple(bool(each) for each in place == "device"))
                if way is None:
                    raise UsageError(f"{site}: a copy from host to host needs no device")
                ways[i] = way
            if row["kind"] in (Kind.HOST, Kind.LAUNCH) and source[i] > 0:
                rows["src"][i] = self._slots[names[int(source[i]) - 1], 0].address
        copies = rows["kind"] == Kind.COPY
        rows["src"][copies] = addresses[first[copies]]
        rows["dst"][copies] = addresses[first[copies] + 1]
        hosts = rows["kind"] == Kind.HOST
        rows["dst"][hosts] = addresses.ctypes.data + first[hosts] * addresses.itemsize
        graphs = rows["kind"][: self.n_ops] == Kind.GRAPH
        rows["dst"][: self.n_ops][graphs] = (
            rows.ctypes.data
            + (len(program.ops) + program.ops["dst"][graphs]) * rows.dtype.itemsize
        )
        functions = np.zeros(len(program.kernels) + 1, np.uintp)
        params = np.zeros(len(program.kernels) + 1, np.uintp)
        for number in np.unique(rows["kernel"][hosts]):
            if number < len(program.kernels):
                position = self.kernels.position(program.kernels[number])
                functions[number] = <size_t><void *>self.kernels._function[<int>position]
                params[number] = <size_t>self.kernels._param[<int>position]
        self._arrays |= {
            "addresses": addresses, "ways": ways, "functions": functions, "params": params,
        }
        self.cuda.rows = self.table
        self.cuda.copy_way = <const uint8_t *>address(ways)
        self.cuda.kernels = <const kernel_t *>address(functions)
        self.cuda.params = <double **>address(params)
        self.cuda.failed = CUDA_SUCCESS
        return addresses

    cdef CUfunction _function(self, kernel) except NULL:
        """Return the handle of a kernel, loading its module first if need be."""
        cdef CUmodule module
        cdef CUfunction function
        cdef uintptr_t handle
        cdef const unsigned char *image
        if kernel.cubin not in self._modules:
            image = kernel.cubin
            check(self.driver.module_load_data(&module, image), b"cuModuleLoadData")
            self._modules[kernel.cubin] = <uintptr_t>module
        key = (kernel.cubin, kernel.function)
        if key not in self._functions:
            handle = self._modules[kernel.cubin]
            name = kernel.function.encode()
            status = self.driver.module_get_function(&function, <void *>handle, name)
            if status != CUDA_SUCCESS:
                raise driver_error(status, f"cuModuleGetFunction {kernel.function}")
            if self.driver.func_load != NULL:  # now, rather than at its first launch
                check(self.driver.func_load(function), b"cuFuncLoad")
            self._functions[key] = <uintptr_t>function
        handle = self._functions[key]
        return <CUfunction>handle

    cdef int _fill_launch(self, launch_t *launch, kernel) except -1:
        """Fill in all but the parameters."""
        cdef int i
        launch.function = self._function(kernel)
        for i in range(3):
            launch.grid[i] = kernel.grid[i]
            launch.block[i] = kernel.block[i]
        launch.shared_nbytes = kernel.shared_nbytes
        if kernel.shared_nbytes > SHARED_BY_DEFAULT:
            status = self.driver.func_set_attribute(
                launch.function, CU_MAX_DYNAMIC_SHARED, kernel.shared_nbytes
            )
            if status != CUDA_SUCCESS:
                raise driver_error(status, f"cuFuncSetAttribute of {kernel.function}")
        return 0

    cdef object _prepare_launches(self, program, addresses, slot):
        """Make the launch of each LAUNCH row: the function, its shape, where its parameters are."""
        cdef launch_t *launches
        cdef uintptr_t place
        rows = self.rows
        table = np.zeros(len(rows) * sizeof(launch_t) + 1, np.uint8)
        launches = <launch_t *>address(table)
        blobs, offsets = {}, {}
        numbers = np.append(np.arange(len(self._first), dtype=np.int32), [0]).astype(np.int32)
        common = np.array(                 # fault, stamps, number of slots
            [
                self._extra["fault"].address,
                self._extra["stamps"].address if self.clock is not None else 0,
                len(self._first),
            ],
            dtype=np.uint64,
        )
        pointers, first_pointer = [], {}
        for i in np.flatnonzero(rows["kind"] == Kind.LAUNCH):
            row = rows[i]
            name = program.kernels[row["kernel"]]
            kernel = self._device_kernels.get(name)
            if kernel is None:
                raise DeviceError(f"no kernel {name} for the GPU")
            if kernel.n_arguments != row["n_access"]:
                raise UsageError(
                    f"{program.sites[row['site']].name}: {name} takes {kernel.n_arguments} "
                    f"arguments, the op has {row['n_access']}"
                )
            if name not in blobs:
                padded = [each.ljust(-(-len(each) // 8) * 8, b"\0") for each in kernel.params]
                blobs[name] = np.frombuffer(b"".join(padded) + bytes(8), np.uint8).copy()
                offsets[name] = np.cumsum([0, *map(len, padded)])[:-1].tolist()
            self._fill_launch(&launches[<int64_t>i], kernel)
            first_pointer[int(i)] = len(pointers)
            argument = addresses.ctypes.data + int(row["access0"]) * addresses.itemsize
            pointers += [argument + k * addresses.itemsize for k in range(kernel.n_arguments)]
            pointers += [blobs[name].ctypes.data + offset for offset in offsets[name]]
            pointers += [
                common.ctypes.data,
                common.ctypes.data + 8,
                numbers.ctypes.data + int(slot[i]) * numbers.itemsize,
                common.ctypes.data + 16,
            ]
        counter = np.array(
            [self._extra["counter"].address if self.clock is not None else 0], np.uint64
        )
        where = np.array([*pointers, counter.ctypes.data], np.uintp)
        for i, begin in first_pointer.items():
            place = where.ctypes.data + begin * where.itemsize
            launches[<int64_t>i].params = <void **>place
        memset(&self.cuda.advance, 0, sizeof(launch_t))
        if self.clock is not None:
            if ADVANCE not in self._device_kernels:
                raise DeviceError(f"no kernel {ADVANCE} for the GPU")
            self._fill_launch(&self.cuda.advance, self._device_kernels[ADVANCE])
            place = where.ctypes.data + len(pointers) * where.itemsize
            self.cuda.advance.params = <void **>place
        self.cuda.launches = launches
        self._arrays |= {
            "launches": table, "blobs": blobs, "numbers": numbers, "common": common,
            "counter": counter, "where": where,
        }

    cdef object _capture(self, program):
        """Capture each GRAPH row."""
        cdef CUgraphExec *graphs
        cdef int64_t i
        cdef CUresult status
        table = np.zeros(len(self.rows) + 1, np.uintp)
        graphs = <CUgraphExec *>address(table)
        self._arrays["graphs"] = table
        self.cuda.graphs = graphs
        for i in np.flatnonzero(self.rows["kind"][: self.n_ops] == Kind.GRAPH).tolist():
            with nogil:
                status = capture_graph(&self.cuda, i)
            if graphs[i] != NULL:
                self._graphs.append(<uintptr_t>graphs[i])
            if status != CUDA_SUCCESS:
                site = program.sites[self.rows["site"][i]].name
                raise driver_error(status, f"{site}: {self.cuda.call.decode()}")

    # ---- stamps ---------------------------------------------------------------------------------

    cdef object _prepare_stamps(self, program, slot):
        """Give kernels a place for their times, and set the device's step counter back."""
        cdef stamp_record_t record
        cdef int64_t counter = -1
        starts = np.zeros(len(self.rows) + 1, np.uint8)
        self._arrays["starts"] = starts
        self.cuda.starts = <const uint8_t *>address(starts)
        self.cuda.counted = self._collected = 0
        self.cuda.capacity = STAMP_STEPS
        if self.clock is None:
            return
        starts[: self.n_ops] = step_starts(program)
        nbytes = STAMP_STEPS * max(1, len(self._first)) * 16
        times = self._take("times", "device", nbytes)
        staging = self._take("staging", "pinned", nbytes)
        record.step = self._take("counter", "device", 8).address
        record.times = times.address
        record.capacity = STAMP_STEPS
        stamps = self._take("stamps", "device", sizeof(stamp_record_t))
        self._drv.memcpy_htod(
            stamps.address, np.frombuffer((<char *>&record)[: sizeof(stamp_record_t)], np.uint8)
        )
        self._drv.memcpy_htod(
            self._extra["counter"].address, np.array([counter], np.int64)
        )
        step_of = np.zeros(STAMP_STEPS, np.int64)
        self.cuda.step_of = <int64_t *>address(step_of)
        self._arrays |= {
            "step_of": step_of,
            "stamps": staging.array.view(np.int64).reshape(STAMP_STEPS, -1, 2),
        }
        self._bounds = CopyBounds(program, self.rows, slot)
        self._last_end = np.zeros(len(program.streams), np.int64)

    @property
    def max_steps(self):
        """Steps whose stamps still fit on the device."""
        return max(1, STAMP_STEPS - (self.cuda.counted - self._collected))

    def collect(self, calls):
        """Return the device times of the steps that have ended, as arrays of SPAN.

        Waits for nothing that runs, unless no step would fit any more.
        """
        if self.clock is None or self.rows is None or self.cuda.failed != CUDA_SUCCESS:
            return ()
        if len(calls):
            self._bounds.note(calls)
        with self.active():
            steps, raw, is_idle = self._read_stamps()
        if not self._ring.ring.recording:
            return ()
        program = self._program
        ran = (raw > 0).all(axis=2)
        times = np.where(ran[:, :, None], self.clock.to_host(raw), 0)
        ends = times[:, :, 1]
        stream_of = self.rows["stream"][self._first]
        last_end = np.zeros((len(steps), len(program.streams)), np.int64)
        for stream in np.unique(stream_of):
            latest = np.maximum.accumulate(
                [self._last_end[stream], *ends[:, stream_of == stream].max(axis=1)]
            )
            last_end[:, stream] = latest[:-1]
            self._last_end[stream] = latest[-1]
        copies = self._bounds.take(program.n_threads, steps, times, ran, last_end, is_idle)
        kernels = kernel_spans(self.rows, self._first, program.n_threads, steps, times, ran)
        spans = np.concatenate([copies, kernels])
        return (spans[np.argsort(spans["begin_ns"], kind="stable")],)

    cdef object _read_stamps(self):
        """Read back the stamps of the steps that have ended and clear their place.

        Returns
        -------
        steps : ndarray of int64
        times : ndarray of int64, shape (steps, slots, 2)
            As the device counts; 0 where nothing ran.
        is_idle : bool
            Whether nothing is pending on the device.
        """
        cdef const cuda_t *driver = self.driver
        cdef CUresult status = CUDA_SUCCESS
        cdef CUstream side = self._side
        cdef uintptr_t handle
        cdef int64_t counter = 0, done, begin, n
        cdef CUdeviceptr place, source
        cdef size_t nbytes
        is_idle = True
        for handle in self._arrays["streams"][:-1].tolist():
            is_idle = is_idle and driver.stream_query(<void *>handle) == CUDA_SUCCESS
        if not is_idle and self.cuda.counted - self._collected >= STAMP_STEPS:
            with nogil:
                status = driver.ctx_synchronize()
            check(status, b"cuCtxSynchronize")
            is_idle = True
        if is_idle:
            done = self.cuda.counted
            self.clock.align(side)
        else:
            source = self._extra["counter"].address
            place = self._extra["clock"].address + 32
            with nogil:
                status = driver.memcpy_dtoh_async(<void *>place, source, 8, side)
                if status == CUDA_SUCCESS:
                    status = driver.stream_synchronize(side)
            check(status, b"cuMemcpyDtoHAsync (step counter)")
            counter = (<int64_t *>place)[0]
            done = max(counter, self._collected)
        staging = self._arrays["stamps"]
        row_nbytes = staging.strides[0]
        begin = self._collected
        while begin < done:
            n = min(done - begin, STAMP_STEPS - begin % STAMP_STEPS)
            nbytes = n * row_nbytes
            place = self._extra["staging"].address + begin % STAMP_STEPS * row_nbytes
            source = self._extra["times"].address + begin % STAMP_STEPS * row_nbytes
            with nogil:
                status = driver.memcpy_dtoh_async(<void *>place, source, nbytes, side)
                if status == CUDA_SUCCESS:
                    status = driver.memset_d8_async(source, 0, nbytes, side)
                if status == CUDA_SUCCESS:
                    status = driver.stream_synchronize(side)
            check(status, b"cuMemcpyDtoHAsync (stamps)")
            begin += n
        rows = np.arange(self._collected, done) % STAMP_STEPS
        self._collected = done
        return self._arrays["step_of"][rows], staging[rows], is_idle

    # ---- results --------------------------------------------------------------------------------

    def read(self, name, slot=0):
        """Return a copy of the bytes of a buffer, once the device is idle."""
        with self.active():
            check(self.driver.ctx_synchronize(), b"cuCtxSynchronize")
            return self._slots[name, slot].read()

    @property
    def counts(self):
        """Stale reads, wrong last writes and waits without effect: a GPU does not tell."""
        return (0, 0, 0)

    def stale_reads(self):
        """Return no stale reads: a GPU does not tell."""
        return []

    @property
    def clock_uncertainty_ns(self):
        """How far device times may be off on the host's clock; None without device times."""
        return None if self.clock is None else self.clock.uncertainty_ns

    @property
    def timer_step_ns(self):
        """Step of the GPU's timer; None without device times."""
        return None if self.clock is None else self.clock.timer_step_ns

    def raise_fault(self, program, int status):
        """Turn the status of a failed verb into its exception, and forget it."""
        cdef volatile fault_record_t *record = self.cuda.device_fault
        step = self.fault_step = self.cuda.fault_step
        self.fault_row = self.cuda.fault_row
        failed, self.cuda.failed = self.cuda.failed, CUDA_SUCCESS
        code, number, value, low, high = (
            record.what, record.kernel_slot, record.value, record.low, record.high,
        )
        record.set = 0
        if status == STATUS_DRIVER:
            site = program.sites[self.rows["site"][self.fault_row]].name
            raise driver_error(failed, f"step {step}, {site}: {self.cuda.call.decode()}")
        if status == STATUS_DEVICE_FAULT:
            site = "a kernel"
            if 0 <= number < len(self._first):
                site = program.sites[self.rows["site"][self._first[number]]].name
            what = self._faults.get(code, f"value of kind {code}")
            raise KernelFault(step, site, what, value, low, high)
        Backend.raise_fault(self, program, status)

    def close(self):
        """Give back all that the backend holds; harmless when repeated."""
        context, self._context = self._context, None
        if context is None:
            return
        _open.discard(self)
        try:
            context.push()
            try:
                if self.driver.ctx_synchronize() == CUDA_SUCCESS:
                    self._release()
            finally:
                self._drv.Context.pop()
        finally:
            context.detach()               # frees also what a lost GPU could not give back
            Backend.close(self)
            self._graphs, self._events, self._streams = [], [], []
            self._slots, self._contents, self._extra, self._arrays = {}, {}, {}, {}
            self._modules, self._functions = {}, {}

    cdef int _release(self) except -1:
        """Destroy and free one by one, in a context that still works."""
        cdef uintptr_t handle
        self._unbind()
        if self._side != NULL:
            self.driver.stream_destroy(self._side)
            self._side = NULL
        if self.clock is not None:
            self.clock.close()
        for handle in self._modules.values():
            self.driver.module_unload(<void *>handle)
        for memory in (*self._slots.values(), *self._extra.values()):
            memory.free()
        return 0
