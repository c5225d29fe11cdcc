"""Memory that CUPTI writes records to."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef void buffer_requested(uint8_t **buffer, size_t *nbytes, size_t *max_records) noexcept nogil
cdef void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t nbytes,
                           size_t valid_nbytes) noexcept nogil
cdef int make_buffers() except -1
cdef object full_buffers()
cdef int recycle(int number) except -1
cdef int64_t free_nbytes()
