"""A GPU behind the verbs: PyCUDA owns the context and the memory, the driver's table does the rest.

PyCUDA is imported when a backend is made, not before.
"""
import atexit
import time
import warnings
import weakref
from importlib.util import find_spec
from threading import get_ident

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uintptr_t

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
    CU_STREAM_DEFAULT,
    CU_STREAM_NON_BLOCKING,
    CUDA_SUCCESS,
    CUevent,
    CUgraphExec,
    CUresult,
    CUstream,
    check,
    cuda_driver,
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
    sync_verb,
)
from syncscope.sched_core.cuda_launches cimport make_launches
from syncscope.sched_core.cuda_stamps cimport CudaStamps
from syncscope.sched_core.cupti_recording cimport CuptiRecording
from syncscope.sched_core.device_times cimport DeviceTimes
from syncscope.sched_core.event_times cimport EventTimes
from syncscope.sched_core.recorder cimport SpanRing

from syncscope.sched_core.cuda_driver import driver_error, list_gpus
from syncscope.sched_core.cuda_memory import Memory, Pushed, translated
from syncscope.sched_core.errors import DeviceError, KernelFault, UsageError, nearest
from syncscope.sched_core.records import Kind
from syncscope.sched_core.stamps import launch_slots

WAITS = ("spin", "yield", "block")
"""How the host waits for the GPU: a busy loop, one that yields the processor, or asleep."""

cdef dict _TIMES = {
    "stamps": CudaStamps, "cupti": CuptiRecording, "events": EventTimes, "off": DeviceTimes,
}
RECORDS = tuple(_TIMES)
"""What is recorded of the device: times that kernels write, CUPTI's records (exact, costly), events
around what is issued (not inside graphs), or nothing."""

NO_PYCUDA = "install it with pip install 'syncscope[cuda]', or use --device sim"

cdef enum:
    PER_THREAD = 2                         # CU_STREAM_PER_THREAD
    LEGACY = 1                             # CU_STREAM_LEGACY

_open = weakref.WeakSet()


@atexit.register
def _close_all():
    """Close what was left open: PyCUDA aborts the process if a context outlives the interpreter."""
    for backend in list(_open):
        try:
            backend.close()
        except Exception:                  # nobody is left to tell
            pass


def pycuda_problem():
    """Return why PyCUDA cannot be used, None if nothing is known against it; imports nothing."""
    if find_spec("pycuda") is None:
        return f"PyCUDA is not installed; {NO_PYCUDA}"
    return None


def _import_pycuda():
    """Import PyCUDA and start the driver."""
    try:
        with warnings.catch_warnings():    # what PyCUDA imports is not ours to mend
            warnings.simplefilter("ignore")
            import pycuda.driver as drv
    except ImportError as error:
        raise DeviceError(f"PyCUDA cannot be imported ({error}); {NO_PYCUDA}") from None
    try:
        drv.init()
    except drv.Error as error:
        raise translated(drv, error, "cuInit") from None
    return drv


cdef class CudaBackend(Backend):
    """One GPU; all its methods are called by the thread that made it, `Engine.stop` excepted.

    Its context is current only inside its methods and inside `active`.

    Parameters
    ----------
    kernels : KernelTable
        Host twins, for what the host computes.
    device_kernels : mapping of str to DeviceKernel
        By instance name; with ``record="stamps"`` also `cuda_launches.ADVANCE`.
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
        self.launches = make_launches(&self.cuda, device_kernels)
        self._faults = dict(faults)
        self._slots, self._contents, self._arrays, self._extra = {}, {}, {}, {}
        self._streams, self._events, self._graphs = [], [], []
        self._thread = get_ident()
        self._set_verbs()
        drv = self._drv = _import_pycuda()
        flags = {
            "spin": drv.ctx_flags.SCHED_SPIN,
            "yield": drv.ctx_flags.SCHED_YIELD,
            "block": drv.ctx_flags.SCHED_BLOCKING_SYNC,
        }[wait]
        self.times = _TIMES[record]()      # CUPTI has to see how the context is made
        try:
            self._context = drv.Device(device).make_context(flags | drv.ctx_flags.MAP_HOST)
        except drv.Error as error:
            self.times.close()
            raise translated(drv, error, "cuCtxCreate") from None
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
        self.times.open(&self.cuda, self._side, self._take)

    def _take(self, name, memory, nbytes):
        """Take memory for the backend's own use in place of what had that name."""
        if name in self._extra:
            self._extra.pop(name).free()
        self._extra[name] = self._memory(f"memory for {name}", memory, nbytes)
        return self._extra[name]

    def _memory(self, what, memory, nbytes, contents=None):
        try:
            return Memory(self._drv, memory, nbytes, contents)
        except self._drv.Error as error:
            raise translated(self._drv, error, f"{what} ({nbytes:,} bytes, {memory})") from None

    def active(self):
        """Return a context manager that makes the GPU's context current in this thread."""
        return Pushed(self._drv, self._context, self._thread)

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
        self._written = program.written
        self._ring = ring
        self._allocate(program)
        self._make_streams(program)
        addresses = self._resolve(program)
        slot, self._first = launch_slots(self.rows)
        self.times.bind(program, self.rows, self._arrays["streams"][:-1], slot, self._first)
        self.launches.prepare(
            program, self.rows, addresses, slot, len(self._first),
            (self._extra["fault"].address, *self.times.addresses()),
        )
        self._capture(program)
        check(self.driver.ctx_synchronize(), b"cuCtxSynchronize")
        if self.base_ns == 0:              # time begins when the first program is ready
            self.cuda.base_ns, self.base_ns = monotonic_ns(NULL), time.time_ns()

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

    # ---- recording ------------------------------------------------------------------------------

    @property
    def max_steps(self):
        """Steps whose device times can still be recorded."""
        return self.times.max_steps()

    def collect(self, calls):
        """Return the device times that came to be known since the last call, as arrays of SPAN.

        Waits for nothing that runs, unless no step would fit any more.
        """
        if self.rows is None or self.cuda.failed != CUDA_SUCCESS:
            return ()
        with self.active():
            return self.times.collect(calls, self._ring.ring.recording)

    @property
    def dropped(self):
        """Device times that were lost."""
        return self.times.dropped

    @property
    def driver_calls(self):
        """Calls of the driver in decode steps, by name; None where they are not recorded.

        See `DeviceTimes.driver_calls`.
        """
        return self.times.driver_calls

    # ---- results --------------------------------------------------------------------------------

    def reset(self, contents):
        """Let every buffer that the program writes hold `contents`, by name, or zeros again.

        Nothing may be pending.
        """
        self.load(contents)
        with self.active():
            for (name, slot), memory in self._slots.items():
                if name in self._written:
                    memory.write(self._contents.get(name) if slot == 0 else None)
            # what was written went to the device on a stream that no other waits for
            check(self.driver.ctx_synchronize(), b"cuCtxSynchronize")

    def peek(self, name):
        """Return a copy of the bytes of a host buffer as they are now: it waits for nothing."""
        return self._slots[name, 0].array.copy()

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

    def wrong_writes(self):
        """Return no wrong last writes: a GPU does not tell."""
        return []

    @property
    def clock_uncertainty_ns(self):
        """How far device times may be off on the host's clock; None if not known."""
        return self.times.clock_uncertainty_ns

    @property
    def timer_step_ns(self):
        """Step of the device's times; None if not known."""
        return self.times.timer_step_ns

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
            self.times.close()
            context.detach()               # frees also what a lost GPU could not give back
            Backend.close(self)
            self._graphs, self._events, self._streams = [], [], []
            self._slots, self._contents, self._extra, self._arrays = {}, {}, {}, {}

    cdef int _release(self) except -1:
        """Destroy and free one by one, in a context that still works."""
        self._unbind()
        if self._side != NULL:
            self.driver.stream_destroy(self._side)
            self._side = NULL
        self.times.release()
        self.launches.close()
        for memory in (*self._slots.values(), *self._extra.values()):
            memory.free()
        return 0
