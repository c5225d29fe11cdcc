"""The CUDA driver: loaded when it is asked for, called without the GIL through a C table.

Nothing here needs CUDA's headers or libraries when it is built or imported.
"""
from dataclasses import dataclass

from libc.stdint cimport uintptr_t

from syncscope.sched_core.dynamic_library cimport find_symbol, open_library, why_not_opened

from syncscope.sched_core.errors import DeviceError

cdef extern from *:
    """
    #ifdef _WIN32
    #define CUDA_LIBRARY "nvcuda.dll"
    #else
    #define CUDA_LIBRARY "libcuda.so.1"
    #endif
    """
    const char *CUDA_LIBRARY

FUNCTIONS = (
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuCtxSynchronize",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuModuleUnload",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuEventDestroy_v2",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuFuncLoad",
)
"""Names of the driver's functions, in the order of the members of `cuda_t`."""

OPTIONAL = frozenset({"cuFuncLoad"})
"""Functions that an older driver may lack."""

LIBRARY = CUDA_LIBRARY.decode()
"""File name of the driver's library."""

NO_DRIVER = "install the NVIDIA driver, or use --device sim"
TOO_OLD = "update the NVIDIA driver to 525 or later, or use --device sim"

_LOST = "the GPU gave up on this run; run again, in a new process if that fails too"
_REMEDIES = {
    2: "use a smaller model or fewer tokens, or free memory of the GPU",
    3: NO_DRIVER,
    34: f"a stub of {LIBRARY} was loaded: put the driver's own before it on the library path",
    35: TOO_OLD,
    46: "another process holds the GPU alone; wait for it",
    100: "no NVIDIA GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES, "
         "or use --device sim",
    101: "choose one of `syncscope devices`",
    200: "the compiled kernels are damaged: empty the kernel cache",
    209: "the kernels were not compiled for this GPU: empty the kernel cache",
    214: "the GPU's memory has failed: look at nvidia-smi -q -d ECC",
    218: "the compiled kernels are damaged: empty the kernel cache",
    222: TOO_OLD,
    500: "the compiled kernels are of another version: empty the kernel cache",
    700: _LOST,
    701: "this shape needs more registers or shared memory than the GPU has",
    702: _LOST,
    710: _LOST,
    714: _LOST,
    715: _LOST,
    716: _LOST,
    717: _LOST,
    718: _LOST,
    719: _LOST,
    802: "the GPU is not ready yet (fabric manager or initialisation); try again",
    803: "the driver's library and kernel module differ: reboot, or reload the module",
    804: TOO_OLD,
    999: "look at the kernel log; the driver may have to be reloaded",
}

cdef cuda_t _table
cdef void *_library = NULL
cdef bint _ready = False


@dataclass(frozen=True)
class GPU:
    """An NVIDIA GPU that the driver shows.

    Parameters
    ----------
    index : int
    name : str
    compute : tuple of int
        Compute capability, major and minor.
    nbytes : int
        Size of its memory.
    """

    index: int
    name: str
    compute: tuple[int, int]
    nbytes: int

    @property
    def arch(self):
        """The architecture as compilers name it, such as ``sm_90``."""
        return f"sm_{self.compute[0]}{self.compute[1]}"


def load(library=LIBRARY):
    """Load the driver and fill the table; later calls cost nothing.

    Raises
    ------
    DeviceError
        If there is no driver, or one without a function that is needed.
    """
    global _library, _ready
    cdef void *handle
    cdef void *symbol
    cdef void **slots = <void **>&_table
    if _ready and library == LIBRARY:
        return
    if sizeof(cuda_t) != len(FUNCTIONS) * sizeof(void *):
        raise AssertionError("cuda_t and FUNCTIONS differ")
    handle = open_library(library.encode())
    if handle == NULL:
        raise DeviceError(f"no NVIDIA driver: {why_not_opened().decode()}; {NO_DRIVER}")
    found = []
    for name in FUNCTIONS:
        symbol = find_symbol(handle, name.encode())
        if symbol == NULL and name not in OPTIONAL:
            raise DeviceError(f"the driver in {library} has no {name}; {TOO_OLD}")
        found.append(<uintptr_t>symbol)
    for i, place in enumerate(found):
        slots[i] = <void *><uintptr_t>place
    _library = handle
    check(_table.init(0), b"cuInit")
    _ready = True


cdef const cuda_t *cuda_driver() except NULL:
    """Return the table, loading the driver first if need be."""
    load()
    return &_table


cdef int check(CUresult status, const char *call) except -1 nogil:
    """Raise DeviceError unless `status` is zero; costs one compare when it is."""
    if status == CUDA_SUCCESS:
        return 0
    with gil:
        raise driver_error(status, call.decode())


def driver_error(int status, str call):
    """Return the DeviceError of a call that the driver refused: its name, its words, a remedy.

    Parameters
    ----------
    status : int
        What the call returned.
    call : str
        What was called, and where in the run if that is known.
    """
    cdef const char *name = NULL
    cdef const char *text = NULL
    if _library != NULL:
        _table.get_error_name(status, &name)
        _table.get_error_string(status, &text)
    named = f"CUDA error {status}" if name == NULL else name.decode()
    words = "" if text == NULL else f" ({text.decode()})"
    remedy = _REMEDIES.get(status, "look at nvidia-smi and the kernel log")
    return DeviceError(f"{call} failed: {named}{words}; {remedy}")


def driver_version():
    """Return the CUDA version that the driver supports, such as ``(13, 0)``."""
    cdef int version = 0
    load()
    check(_table.driver_get_version(&version), b"cuDriverGetVersion")
    return version // 1000, version % 1000 // 10


def list_gpus():
    """Return the GPUs that the driver shows.

    Raises
    ------
    DeviceError
        If there is no driver, or it shows no GPU.
    """
    cdef int count = 0, major = 0, minor = 0, i
    cdef CUdevice device = 0
    cdef size_t nbytes = 0
    cdef char name[256]
    load()
    check(_table.device_get_count(&count), b"cuDeviceGetCount")
    if count == 0:
        raise driver_error(100, "cuDeviceGetCount")
    gpus = []
    for i in range(count):
        check(_table.device_get(&device, i), b"cuDeviceGet")
        check(_table.device_get_name(name, sizeof(name), device), b"cuDeviceGetName")
        check(_table.device_get_attribute(&major, CU_COMPUTE_MAJOR, device),
              b"cuDeviceGetAttribute")
        check(_table.device_get_attribute(&minor, CU_COMPUTE_MINOR, device),
              b"cuDeviceGetAttribute")
        check(_table.device_total_mem(&nbytes, device), b"cuDeviceTotalMem")
        gpus.append(GPU(i, name.decode(errors="replace"), (major, minor), nbytes))
    return gpus
