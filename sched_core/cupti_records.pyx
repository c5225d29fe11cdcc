"""Reads the activity records of CUPTI that matter here: driver calls, kernels and copies.

What is read of a record lies at the same place in all of CUDA 12 and 13 (CUpti_ActivityAPI,
CUpti_ActivityKernel9 and 10, CUpti_ActivityMemcpy5 and 6): later versions have appended to them.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t

from syncscope.sched_core.backend cimport address

VERSIONS = ((18, 99), (130000, 139999))
"""Versions whose records can be read, from and to: CUDA 12 (whose first calls itself 18) and 13."""

KINDS = {
    "MEMCPY": KIND_MEMCPY, "DRIVER": KIND_DRIVER, "CONCURRENT_KERNEL": KIND_CONCURRENT_KERNEL,
}
"""Kinds of records that are read, by their name in CUPTI."""

CALL = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("correlation", "<u4"),            # the same in what the call made the device do
        ("thread", "<u4"),
        ("function", "<u4"),               # id of the driver's function
        ("pad", "<u4"),
    ]
)
"""A call of the driver."""

WORK = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("correlation", "<u4"),
        ("is_copy", "<u4"),                # else a kernel
    ]
)
"""What the device did; both times are 0 where CUPTI could not take them."""

cdef enum:
    KIND_MEMCPY = 1
    KIND_DRIVER = 4
    KIND_CONCURRENT_KERNEL = 10
    CUPTI_SUCCESS = 0
    LEAST_NBYTES = 40                      # of a record that is read

cdef packed struct driver_record_t:        # CUpti_ActivityAPI
    uint32_t kind, cbid
    int64_t start, end
    uint32_t processId, threadId, correlationId

cdef packed struct kernel_record_t:        # CUpti_ActivityKernel9, 10
    uint32_t kind
    char shape[12]
    int64_t start, end
    char place[60]
    uint32_t correlationId

cdef packed struct memcpy_record_t:        # CUpti_ActivityMemcpy5, 6
    uint32_t kind
    char what[12]
    int64_t start, end
    char place[12]
    uint32_t correlationId

cdef packed struct call_t:                 # as CALL
    int64_t begin_ns, end_ns
    uint32_t correlation, thread, function, pad

cdef packed struct work_t:                 # as WORK
    int64_t begin_ns, end_ns
    uint32_t correlation, is_copy

cdef driver_record_t *_driver = NULL       # for distances alone
cdef kernel_record_t *_kernel = NULL
cdef memcpy_record_t *_memcpy = NULL

OFFSETS = {
    "CUpti_ActivityAPI": {
        "cbid": <size_t>&_driver.cbid,
        "start": <size_t>&_driver.start,
        "end": <size_t>&_driver.end,
        "threadId": <size_t>&_driver.threadId,
        "correlationId": <size_t>&_driver.correlationId,
    },
    "CUpti_ActivityKernel": {
        "start": <size_t>&_kernel.start,
        "end": <size_t>&_kernel.end,
        "correlationId": <size_t>&_kernel.correlationId,
    },
    "CUpti_ActivityMemcpy": {
        "start": <size_t>&_memcpy.start,
        "end": <size_t>&_memcpy.end,
        "correlationId": <size_t>&_memcpy.correlationId,
    },
}
"""Where the members that are read begin, in bytes, by the name of their struct in CUPTI."""


def can_read(version):
    """Whether the records of a version of CUPTI can be read."""
    return any(least <= version <= most for least, most in VERSIONS)


def read_records(buffer, size_t next_record):
    """Return the records in a buffer of CUPTI's; those of other kinds are left out.

    Parameters
    ----------
    buffer : ndarray of uint8
        What is valid of it.
    next_record : int
        Address of `cuptiActivityGetNextRecord`.

    Returns
    -------
    calls : ndarray of CALL
    works : ndarray of WORK
    """
    cdef next_record_t following = <next_record_t>next_record
    cdef uint8_t *begin
    cdef void *record = NULL
    cdef call_t *calls
    cdef work_t *works
    cdef size_t nbytes = len(buffer)
    cdef int64_t n_calls = 0, n_works = 0, room = nbytes // LEAST_NBYTES + 1
    call_array, work_array = np.zeros(room, CALL), np.zeros(room, WORK)
    begin = <uint8_t *>address(buffer)
    calls = <call_t *>address(call_array)
    works = <work_t *>address(work_array)
    with nogil:
        while n_calls < room and n_works < room:
            if following(begin, nbytes, &record) != CUPTI_SUCCESS:
                break
            if (<uint32_t *>record)[0] == KIND_DRIVER:
                _read_call(<driver_record_t *>record, &calls[n_calls])
                n_calls += 1
            elif (<uint32_t *>record)[0] == KIND_CONCURRENT_KERNEL:
                _read_kernel(<kernel_record_t *>record, &works[n_works])
                n_works += 1
            elif (<uint32_t *>record)[0] == KIND_MEMCPY:
                _read_copy(<memcpy_record_t *>record, &works[n_works])
                n_works += 1
    return call_array[:n_calls].copy(), work_array[:n_works].copy()


cdef inline void _read_call(const driver_record_t *record, call_t *call) noexcept nogil:
    call.begin_ns = record.start
    call.end_ns = record.end
    call.correlation = record.correlationId
    call.thread = record.threadId
    call.function = record.cbid


cdef inline void _read_kernel(const kernel_record_t *record, work_t *work) noexcept nogil:
    work.begin_ns = record.start
    work.end_ns = record.end
    work.correlation = record.correlationId


cdef inline void _read_copy(const memcpy_record_t *record, work_t *work) noexcept nogil:
    work.begin_ns = record.start
    work.end_ns = record.end
    work.correlation = record.correlationId
    work.is_copy = 1
