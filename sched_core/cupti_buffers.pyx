"""A fixed pool of buffers between CUPTI, which fills them, and whoever reads them.

CUPTI asks for buffers and returns them in threads of its own or inside a call of the driver, so
both callbacks hold no GIL, allocate nothing, and take a lock for a few instructions.  When the pool
is empty CUPTI gets none, and counts the records that it drops.
"""
from cpython.pythread cimport (
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

import numpy as np

from syncscope.sched_core.backend cimport address

cdef enum:
    BUFFER = 256 * 1024                    # bytes of each
    BUFFERS = 128

POOL_NBYTES = BUFFERS * BUFFER
"""Size of all buffers; they stay for the life of the process, since CUPTI may keep one."""

cdef struct pool_t:
    uint8_t *memory
    PyThread_type_lock lock
    int n_free
    int n_full
    int free[BUFFERS]                      # numbers of buffers
    int full[BUFFERS]                      # oldest first
    size_t valid_nbytes[BUFFERS]

cdef pool_t _pool
cdef object _memory = None                 # all buffers, one behind the other


cdef int make_buffers() except -1:
    """Take the memory, all zeros; later calls do nothing."""
    global _memory
    cdef int i
    if _memory is not None:
        return 0
    _pool.lock = PyThread_allocate_lock()
    if _pool.lock == NULL:
        raise MemoryError
    _memory = np.zeros((BUFFERS, BUFFER), np.uint8)
    _pool.memory = <uint8_t *>address(_memory)
    for i in range(BUFFERS):
        _pool.free[i] = i
    _pool.n_free = BUFFERS
    return 0


cdef void buffer_requested(uint8_t **buffer, size_t *nbytes, size_t *max_records) noexcept nogil:
    """Give CUPTI an empty buffer."""
    buffer[0] = NULL
    nbytes[0] = max_records[0] = 0         # as many records as fit
    PyThread_acquire_lock(_pool.lock, WAIT_LOCK)
    if _pool.n_free:
        _pool.n_free -= 1
        buffer[0] = &_pool.memory[<size_t>_pool.free[_pool.n_free] * BUFFER]
        nbytes[0] = BUFFER
    PyThread_release_lock(_pool.lock)


cdef void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t nbytes,
                           size_t valid_nbytes) noexcept nogil:
    """Take a buffer back."""
    cdef int number
    if buffer == NULL:
        return
    number = <int>((buffer - _pool.memory) // BUFFER)
    PyThread_acquire_lock(_pool.lock, WAIT_LOCK)
    _pool.full[_pool.n_full] = number
    _pool.valid_nbytes[number] = min(valid_nbytes, <size_t>BUFFER)
    _pool.n_full += 1
    PyThread_release_lock(_pool.lock)


cdef object full_buffers():
    """Take the buffers that CUPTI has returned, oldest first.

    Returns
    -------
    list of (int, ndarray of uint8)
        The number to `recycle`, and what is valid of the buffer.
    """
    cdef int full[BUFFERS]
    cdef int n, i
    PyThread_acquire_lock(_pool.lock, WAIT_LOCK)
    n = _pool.n_full
    for i in range(n):
        full[i] = _pool.full[i]
    _pool.n_full = 0
    PyThread_release_lock(_pool.lock)
    return [(full[i], _memory[full[i], : _pool.valid_nbytes[full[i]]]) for i in range(n)]


cdef int recycle(int number) except -1:
    """Make a buffer empty again: zeros, which CUPTI then need not write while the host issues."""
    memset(&_pool.memory[<size_t>number * BUFFER], 0, BUFFER)
    PyThread_acquire_lock(_pool.lock, WAIT_LOCK)
    _pool.free[_pool.n_free] = number
    _pool.n_free += 1
    PyThread_release_lock(_pool.lock)
    return 0


cdef int64_t free_nbytes():
    """Return the size of the buffers that CUPTI can still ask for."""
    return <int64_t>_pool.n_free * BUFFER
