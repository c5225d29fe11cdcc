"""The CUDA driver's C interface, as a table of functions that is filled at run time."""
from libc.stdint cimport int64_t

ctypedef int CUresult
ctypedef int CUdevice
ctypedef unsigned long long CUdeviceptr
ctypedef void *CUcontext
ctypedef void *CUstream
ctypedef void *CUevent
ctypedef void *CUmodule
ctypedef void *CUfunction
ctypedef void *CUgraph
ctypedef void *CUgraphExec

cdef enum:
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_READY = 600
    CU_STREAM_DEFAULT = 0                  # ordered with the legacy default stream
    CU_STREAM_NON_BLOCKING = 1
    CU_EVENT_BLOCKING_SYNC = 1
    CU_EVENT_DISABLE_TIMING = 2
    CU_CAPTURE_RELAXED = 2
    CU_MAX_DYNAMIC_SHARED = 8              # attribute of a function
    CU_COMPUTE_MAJOR = 75                  # attributes of a device
    CU_COMPUTE_MINOR = 76

ctypedef struct cuda_t:                    # in the order of cuda_driver.FUNCTIONS
    CUresult (*init)(unsigned int flags) noexcept nogil
    CUresult (*driver_get_version)(int *version) noexcept nogil
    CUresult (*get_error_name)(CUresult status, const char **text) noexcept nogil
    CUresult (*get_error_string)(CUresult status, const char **text) noexcept nogil
    CUresult (*device_get_count)(int *count) noexcept nogil
    CUresult (*device_get)(CUdevice *device, int ordinal) noexcept nogil
    CUresult (*device_get_name)(char *name, int length, CUdevice device) noexcept nogil
    CUresult (*device_get_attribute)(int *value, int attribute, CUdevice device) noexcept nogil
    CUresult (*device_total_mem)(size_t *nbytes, CUdevice device) noexcept nogil
    CUresult (*ctx_synchronize)() noexcept nogil
    CUresult (*module_load_data)(CUmodule *module, const void *image) noexcept nogil
    CUresult (*module_get_function)(
        CUfunction *function, CUmodule module, const char *name) noexcept nogil
    CUresult (*module_unload)(CUmodule module) noexcept nogil
    CUresult (*func_set_attribute)(CUfunction function, int attribute, int value) noexcept nogil
    CUresult (*launch_kernel)(
        CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
        unsigned int block_x, unsigned int block_y, unsigned int block_z,
        unsigned int shared_nbytes, CUstream stream, void **params, void **extra) noexcept nogil
    CUresult (*memcpy_htod_async)(
        CUdeviceptr dst, const void *src, size_t nbytes, CUstream stream) noexcept nogil
    CUresult (*memcpy_dtoh_async)(
        void *dst, CUdeviceptr src, size_t nbytes, CUstream stream) noexcept nogil
    CUresult (*memcpy_dtod_async)(
        CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream) noexcept nogil
    CUresult (*stream_create)(CUstream *stream, unsigned int flags) noexcept nogil
    CUresult (*stream_destroy)(CUstream stream) noexcept nogil
    CUresult (*stream_synchronize)(CUstream stream) noexcept nogil
    CUresult (*stream_query)(CUstream stream) noexcept nogil
    CUresult (*stream_wait_event)(
        CUstream stream, CUevent event, unsigned int flags) noexcept nogil
    CUresult (*event_create)(CUevent *event, unsigned int flags) noexcept nogil
    CUresult (*event_record)(CUevent event, CUstream stream) noexcept nogil
    CUresult (*event_synchronize)(CUevent event) noexcept nogil
    CUresult (*event_query)(CUevent event) noexcept nogil
    CUresult (*event_elapsed_time)(
        float *milliseconds, CUevent begin, CUevent end) noexcept nogil
    CUresult (*event_destroy)(CUevent event) noexcept nogil
    CUresult (*stream_begin_capture)(CUstream stream, int mode) noexcept nogil
    CUresult (*stream_end_capture)(CUstream stream, CUgraph *graph) noexcept nogil
    CUresult (*graph_instantiate)(
        CUgraphExec *executable, CUgraph graph, unsigned long long flags) noexcept nogil
    CUresult (*graph_upload)(CUgraphExec executable, CUstream stream) noexcept nogil
    CUresult (*graph_launch)(CUgraphExec executable, CUstream stream) noexcept nogil
    CUresult (*graph_exec_destroy)(CUgraphExec executable) noexcept nogil
    CUresult (*graph_destroy)(CUgraph graph) noexcept nogil
    CUresult (*func_load)(CUfunction function) noexcept nogil        # NULL before CUDA 12.4


cdef const cuda_t *cuda_driver() except NULL
cdef int check(CUresult status, const char *call) except -1 nogil
