"""CUPTI's C interface, as a table of functions that is filled at run time."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from syncscope.sched_core.cupti_records cimport next_record_t

ctypedef int CUptiResult
ctypedef uint64_t (*clock_t)() noexcept nogil
ctypedef void (*requested_t)(
    uint8_t **buffer, size_t *nbytes, size_t *max_records) noexcept nogil
ctypedef void (*completed_t)(
    void *context, uint32_t stream, uint8_t *buffer, size_t nbytes,
    size_t valid_nbytes) noexcept nogil

ctypedef struct cupti_t:                   # in the order of cupti.FUNCTIONS
    CUptiResult (*get_version)(uint32_t *version) noexcept nogil
    CUptiResult (*get_result_string)(CUptiResult status, const char **text) noexcept nogil
    CUptiResult (*get_callback_name)(
        int domain, uint32_t function, const char **name) noexcept nogil
    CUptiResult (*set_thread_id_type)(int kind) noexcept nogil
    CUptiResult (*activity_set_attribute)(
        int attribute, size_t *nbytes, void *value) noexcept nogil
    CUptiResult (*activity_register_timestamp_callback)(clock_t clock) noexcept nogil
    CUptiResult (*activity_register_callbacks)(
        requested_t requested, completed_t completed) noexcept nogil
    CUptiResult (*activity_enable)(int kind) noexcept nogil
    CUptiResult (*activity_disable)(int kind) noexcept nogil
    CUptiResult (*activity_enable_driver_api)(
        uint32_t function, uint8_t enable) noexcept nogil            # NULL in CUDA 12.0 to 12.4
    CUptiResult (*activity_flush_all)(uint32_t flag) noexcept nogil
    next_record_t activity_get_next_record
    CUptiResult (*activity_get_num_dropped_records)(
        void *context, uint32_t stream, size_t *dropped) noexcept nogil


cdef int start(user) except -1
cdef int stop(user) except -1
cdef int flush(bint forced) except -1
cdef int deliver() except -1
