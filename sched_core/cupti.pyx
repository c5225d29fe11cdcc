"""CUPTI: loaded when a recording first wants it, started for the first and stopped for the last.

A process can use CUPTI once, so all recordings share it: what its buffers hold is handed to each,
and each keeps its own.  Times are those of the host's monotonic clock: CUPTI takes the time of a
driver call by our callback, and puts device times on the same clock.
"""
import os
import sys
from glob import escape, glob
from importlib.util import find_spec

from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t

from syncscope.sched_core.backend cimport monotonic_ns
from syncscope.sched_core.cupti_buffers cimport (
    buffer_completed,
    buffer_requested,
    full_buffers,
    make_buffers,
    recycle,
)
from syncscope.sched_core.dynamic_library cimport find_symbol, open_library

from syncscope.sched_core.cuda_driver import driver_version
from syncscope.sched_core.cupti_records import KINDS, can_read, read_records
from syncscope.sched_core.errors import DeviceError

FUNCTIONS = (
    "cuptiGetVersion",
    "cuptiGetResultString",
    "cuptiGetCallbackName",
    "cuptiSetThreadIdType",
    "cuptiActivitySetAttribute",
    "cuptiActivityRegisterTimestampCallback",
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
    "cuptiActivityDisable",
    "cuptiActivityEnableDriverApi",
    "cuptiActivityFlushAll",
    "cuptiActivityGetNextRecord",
    "cuptiActivityGetNumDroppedRecords",
)
"""Names of CUPTI's functions, in the order of the members of `cupti_t`."""

OPTIONAL = frozenset({"cuptiActivityEnableDriverApi"})
"""Functions that an older CUPTI may lack."""

DRIVER_FUNCTIONS = {
    "cuCtxSynchronize": 17,
    "cuEventRecord": 119,
    "cuEventSynchronize": 121,
    "cuStreamSynchronize": 126,
    "cuMemcpyHtoDAsync_v2": 277,
    "cuMemcpyDtoHAsync_v2": 279,
    "cuMemcpyDtoDAsync_v2": 281,
    "cuStreamWaitEvent": 295,
    "cuMemcpyAsync": 306,
    "cuLaunchKernel": 307,
    "cuMemcpyPeerAsync": 319,
    "cuMemcpyAsync_ptsz": 418,
    "cuMemcpyHtoDAsync_v2_ptsz": 421,
    "cuMemcpyDtoHAsync_v2_ptsz": 422,
    "cuMemcpyDtoDAsync_v2_ptsz": 423,
    "cuMemcpyPeerAsync_ptsz": 426,
    "cuStreamWaitEvent_ptsz": 436,
    "cuStreamSynchronize_ptsz": 440,
    "cuEventRecord_ptsz": 441,
    "cuLaunchKernel_ptsz": 442,
    "cuLaunchCooperativeKernel": 477,
    "cuLaunchCooperativeKernel_ptsz": 478,
    "cuGraphLaunch": 514,
    "cuGraphLaunch_ptsz": 515,
    "cuEventRecordWithFlags": 587,
    "cuEventRecordWithFlags_ptsz": 588,
    "cuLaunchKernelEx": 652,
    "cuLaunchKernelEx_ptsz": 653,
    "cuCtxSynchronize_v2": 800,
}
"""Functions of the driver whose calls are recorded, by their ids in CUPTI: what verbs may call."""

USE_ANOTHER = "use --record stamps"
_MISSING = (
    "install it with pip install nvidia-cuda-cupti (for CUDA 12: nvidia-cuda-cupti-cu12), "
    f"or {USE_ANOTHER}"
)
_ANOTHER_PROFILER = f"end the profiler that is attached to this process, or {USE_ANOTHER}"
_PRIVILEGES = f"ask the administrator to open the GPU's counters to all users, or {USE_ANOTHER}"
_REMEDIES = {
    12: _ANOTHER_PROFILER,
    15: f"this CUPTI does not fit the driver: install that of the driver's CUDA, or {USE_ANOTHER}",
    35: _PRIVILEGES,
    36: _ANOTHER_PROFILER,
    39: _ANOTHER_PROFILER,
    40: _PRIVILEGES,
}

cdef enum:
    SUCCESS = 0
    DRIVER_API = 1                         # CUPTI_CB_DOMAIN_DRIVER_API
    THREAD_OF_SYSTEM = 1                   # ids as threading.get_native_id has them
    ZEROED_BUFFERS = 5                     # an attribute: buffers come with zeros in them
    FLUSH_FORCED = 1

cdef cupti_t _table
cdef bint _ready = False
cdef bint _is_set_up = False
cdef list _users = []


cdef uint64_t _now_ns() noexcept nogil:
    return <uint64_t>monotonic_ns(NULL)


# ---- finding it ---------------------------------------------------------------------------------


def candidates(int cuda_major, environ=os.environ):
    """Return where CUPTI may be, best first: the newest that fits, then as the loader would look.

    Parameters
    ----------
    cuda_major : int
        Of the CUDA version that the driver supports.
    environ : mapping of str to str
        `CUDA_HOME` and `CUDA_PATH` are looked at.
    """
    windows = sys.platform == "win32"
    roots = [environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    if not windows:
        roots += ["/usr/local/cuda", *sorted(glob("/usr/local/cuda-*"), reverse=True)]
    folders = [
        os.path.join(root, *part.split("/"))
        for root in roots
        for part in ("extras/CUPTI/lib64", "targets/x86_64-linux/lib", "lib64", "lib")
    ]
    found = []
    for major in range(max(cuda_major, 12), 11, -1):
        name = f"cupti64_*{major}*.dll" if windows else f"libcupti.so.{major}"
        if not windows:
            found.append(name)
        for folder in (*folders, *_package_folders(major)):
            found += sorted(glob(os.path.join(escape(folder), name)), reverse=True)
    return list(dict.fromkeys(found))


def _package_folders(int major):
    """Return the folders in which NVIDIA's Python packages keep libraries; imports nothing."""
    spec = find_spec("nvidia")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return [
        os.path.join(place, package, part)
        for place in places
        for package in (f"cu{major}", "cuda_cupti")
        for part in ("lib", "bin")
    ]


def load(paths):
    """Load the first CUPTI of some paths whose records can be read, and fill the table.

    Raises
    ------
    DeviceError
        If there is none.
    """
    global _ready
    cdef void *handle
    cdef uint32_t version = 0
    cdef void **slots = <void **>&_table
    if sizeof(cupti_t) != len(FUNCTIONS) * sizeof(void *):
        raise AssertionError("cupti_t and FUNCTIONS differ")
    why = f"no CUPTI is here; {_MISSING}"
    for path in paths:
        handle = open_library(os.fsencode(path))
        if handle == NULL:
            continue
        found = [<uintptr_t>find_symbol(handle, name.encode()) for name in FUNCTIONS]
        lacking = [
            name for name, place in zip(FUNCTIONS, found, strict=True)
            if not place and name not in OPTIONAL
        ]
        if lacking:
            why = f"the CUPTI in {path} has no {lacking[0]}; {_MISSING}"
            continue
        for i, place in enumerate(found):
            slots[i] = <void *><uintptr_t>place
        if _table.get_version(&version) != SUCCESS or not can_read(version):
            why = (
                f"the CUPTI in {path} is version {version}, of no CUDA 12 or 13, and its records "
                f"cannot be read; {_MISSING}"
            )
            continue
        _ready = True
        return
    raise DeviceError(f"--record cupti: {why}")


cdef int _check(CUptiResult status, str call) except -1:
    """Raise DeviceError unless `status` is zero: the call, CUPTI's word for it, a remedy."""
    cdef const char *text = NULL
    if status == SUCCESS:
        return 0
    _table.get_result_string(status, &text)
    word = f"error {status}" if text == NULL else text.decode()
    remedy = _REMEDIES.get(status, USE_ANOTHER)
    raise DeviceError(f"--record cupti: {call} failed: {word}; {remedy}")


# ---- recording ----------------------------------------------------------------------------------


cdef int start(user) except -1:
    """Let CUPTI record for `user`: from now on its `add` gets all records, `lose` their loss."""
    if not _users:
        if not _ready:
            load(candidates(driver_version()[0]))
        _set_up()
        try:
            _enable()
        except DeviceError:
            _disable()
            raise
        deliver()                          # to nobody: what an earlier recording has left
    _users.append(user)
    return 0


cdef int _set_up() except -1:
    """Tell CUPTI once what to call; before anything is enabled."""
    global _is_set_up
    cdef uint8_t yes = 1
    cdef size_t nbytes = 1
    if _is_set_up:
        return 0
    make_buffers()
    # should it be refused, CUPTI clears the buffers itself, a little later
    _table.activity_set_attribute(ZEROED_BUFFERS, &nbytes, &yes)
    _check(_table.set_thread_id_type(THREAD_OF_SYSTEM), "cuptiSetThreadIdType")
    _check(
        _table.activity_register_timestamp_callback(_now_ns),
        "cuptiActivityRegisterTimestampCallback",
    )
    _check(
        _table.activity_register_callbacks(buffer_requested, buffer_completed),
        "cuptiActivityRegisterCallbacks",
    )
    _is_set_up = True
    return 0


cdef int _enable() except -1:
    cdef bint by_function = False
    cdef uint32_t function
    if _table.activity_enable_driver_api != NULL:
        for function in DRIVER_FUNCTIONS.values():  # an older CUPTI does not know them all
            by_function |= _table.activity_enable_driver_api(function, 1) == SUCCESS
    for name, kind in KINDS.items():
        if name != "DRIVER" or not by_function:
            _check(_table.activity_enable(kind), f"cuptiActivityEnable({name})")
    return 0


cdef int _disable() except -1:
    for kind in KINDS.values():
        _table.activity_disable(kind)
    if _table.activity_enable_driver_api != NULL:
        for function in DRIVER_FUNCTIONS.values():
            _table.activity_enable_driver_api(function, 0)
    return 0


cdef int stop(user) except -1:
    """Stop recording for `user`; harmless when repeated."""
    if user not in _users:
        return 0
    _users.remove(user)
    if not _users:
        _disable()
        _table.activity_flush_all(FLUSH_FORCED)  # it may fail: the GPU may be lost
        deliver()
    return 0


cdef int flush(bint forced) except -1:
    """Let CUPTI return its buffers: all whose records are complete, or even the others."""
    cdef CUptiResult status
    with nogil:
        status = _table.activity_flush_all(FLUSH_FORCED if forced else 0)
    return _check(status, "cuptiActivityFlushAll")


cdef int deliver() except -1:
    """Hand the records in returned buffers to every user, and how many CUPTI has dropped."""
    cdef size_t dropped = 0
    for number, buffer in full_buffers():
        calls, works = read_records(buffer, <size_t>_table.activity_get_next_record)
        recycle(number)
        for user in _users:
            user.add(calls, works)
    if _table.activity_get_num_dropped_records(NULL, 0, &dropped) == SUCCESS and dropped:
        for user in _users:
            user.lose(dropped)
    return 0


def function_name(uint32_t function):
    """Return the plain name of a function of the driver: no suffix of a version or of a stream."""
    cdef const char *name = NULL
    if _table.get_callback_name(DRIVER_API, function, &name) != SUCCESS or name == NULL:
        return f"driver function {function}"
    return plain_name(name.decode())


def plain_name(str name):
    """Return the name of a driver's function without what tells its variants apart.

    Such as ``_v2``, and ``_ptsz`` of those whose stream 0 is the per-thread default stream.
    """
    plain = name.removesuffix("_ptsz").removesuffix("_ptds")
    stem, mark, version = plain.rpartition("_v")
    return stem if mark and version.isdigit() else plain
