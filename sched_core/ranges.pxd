"""Byte ranges of a buffer slot: who wrote each last, and who has read it since."""
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef enum:  # hazard_t.type, in the order of ranges.HAZARDS
    HAZARD_RAW = 0
    HAZARD_WAR = 1
    HAZARD_WAW = 2

ctypedef struct mark_t:                    # one access: the actor's work number `seq`
    int64_t seq
    int32_t actor, row, access

ctypedef struct read_t:
    mark_t mark
    int32_t next                           # next read of the segment, -1 none

ctypedef struct segment_t:
    int64_t begin, end
    mark_t write                           # actor -1: not written yet
    int32_t reads                          # first read since, -1 none

ctypedef struct place_t:                   # a buffer slot
    segment_t *segments                    # sorted, disjoint
    int32_t n, capacity

ctypedef struct hazard_t:                  # numpy dtype ranges.HAZARD
    int64_t begin, end
    int32_t place, first_row, first_access, second_row, second_access
    uint8_t type

ctypedef struct ranges_t:
    place_t *places
    read_t *reads                          # pool
    int32_t n_reads, read_capacity, free_read
    hazard_t *hazards
    int64_t n_hazards, hazard_capacity, max_hazards
    int failed                             # memory ran out


cdef void touch_range(ranges_t *r, int32_t place, int64_t begin, int64_t end, bint write, mark_t by,
                      const int64_t *clock) noexcept nogil


cdef class Ranges:
    cdef ranges_t state
    cdef readonly int n_places
