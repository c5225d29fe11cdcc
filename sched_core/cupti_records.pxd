"""Records of CUPTI."""
from libc.stdint cimport uint8_t

ctypedef int (*next_record_t)(uint8_t *buffer, size_t nbytes, void **record) noexcept nogil
