"""Byte-range interval maps that find conflicting accesses which nothing orders.

A slot's map is a sorted list of disjoint segments.  A segment knows its last write and, of each
actor, the last read since: an earlier read that it comes after is covered by it.  A write over
several segments makes them one, so a map is as long as what is live.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove

HAZARDS = ("RAW", "WAR", "WAW")
HAZARD = np.dtype(
    [
        ("begin", "<i8"),
        ("end", "<i8"),
        ("place", "<i4"),
        ("first_row", "<i4"),
        ("first_access", "<i4"),
        ("second_row", "<i4"),
        ("second_access", "<i4"),
        ("type", "u1"),
    ],
    align=True,
)
"""Two accesses that nothing orders; accesses count within their row, `type` indexes `HAZARDS`."""


cdef int32_t _first_after(const place_t *p, int64_t begin) noexcept nogil:
    """Position of the first segment that ends after `begin`."""
    cdef int32_t low = 0, high = p.n, middle
    while low < high:
        middle = (low + high) >> 1
        if p.segments[middle].end <= begin:
            low = middle + 1
        else:
            high = middle
    return low


cdef int32_t _new_read(ranges_t *r, mark_t mark, int32_t next) noexcept nogil:
    cdef int32_t index = r.free_read
    cdef read_t *grown
    if index >= 0:
        r.free_read = r.reads[index].next
    else:
        if r.n_reads == r.read_capacity:
            grown = <read_t *>realloc(r.reads, 2 * r.read_capacity * sizeof(read_t))
            if grown == NULL:
                r.failed = 1
                return -1
            r.reads = grown
            r.read_capacity *= 2
        index = r.n_reads
        r.n_reads += 1
    r.reads[index].mark = mark
    r.reads[index].next = next
    return index


cdef void _free_reads(ranges_t *r, int32_t first) noexcept nogil:
    cdef int32_t next
    while first >= 0:
        next = r.reads[first].next
        r.reads[first].next = r.free_read
        r.free_read = first
        first = next


cdef int32_t _copy_reads(ranges_t *r, int32_t first) noexcept nogil:
    cdef int32_t copy = -1
    while first >= 0 and not r.failed:
        copy = _new_read(r, r.reads[first].mark, copy)
        first = r.reads[first].next
    return copy


cdef bint _make_room(ranges_t *r, place_t *p, int32_t at) noexcept nogil:
    """Open a gap of one segment at position `at`."""
    cdef segment_t *grown
    cdef int32_t capacity
    if p.n == p.capacity:
        capacity = max(4, 2 * p.capacity)
        grown = <segment_t *>realloc(p.segments, capacity * sizeof(segment_t))
        if grown == NULL:
            r.failed = 1
            return False
        p.segments = grown
        p.capacity = capacity
    memmove(&p.segments[at + 1], &p.segments[at], (p.n - at) * sizeof(segment_t))
    p.n += 1
    return True


cdef void _split(ranges_t *r, place_t *p, int32_t at, int64_t where) noexcept nogil:
    """Cut a segment in two at byte `where`, which lies inside it."""
    cdef int32_t reads = _copy_reads(r, p.segments[at].reads)
    if r.failed or not _make_room(r, p, at):
        return
    p.segments[at].end = where
    p.segments[at].reads = reads
    p.segments[at + 1].begin = where


cdef void _report(ranges_t *r, int32_t place, int64_t begin, int64_t end, uint8_t type,
                  const mark_t *first, const mark_t *second) noexcept nogil:
    """Keep a hazard; one that continues the last one's bytes extends it."""
    cdef hazard_t *hazard
    cdef hazard_t *grown
    if r.n_hazards:
        hazard = &r.hazards[min(r.n_hazards, r.hazard_capacity) - 1]
        if (hazard.place == place and hazard.type == type and hazard.end == begin
                and hazard.first_row == first.row and hazard.first_access == first.access
                and hazard.second_row == second.row and hazard.second_access == second.access):
            hazard.end = end
            return
    r.n_hazards += 1
    if r.n_hazards > r.max_hazards:
        return
    if r.n_hazards > r.hazard_capacity:
        grown = <hazard_t *>realloc(r.hazards, 2 * r.hazard_capacity * sizeof(hazard_t))
        if grown == NULL:
            r.failed = 1
            return
        r.hazards = grown
        r.hazard_capacity *= 2
    hazard = &r.hazards[r.n_hazards - 1]
    hazard.begin = begin
    hazard.end = end
    hazard.place = place
    hazard.first_row = first.row
    hazard.first_access = first.access
    hazard.second_row = second.row
    hazard.second_access = second.access
    hazard.type = type


cdef void _check(ranges_t *r, int32_t place, const segment_t *segment, bint write, const mark_t *by,
                 const int64_t *clock) noexcept nogil:
    """Report what the access `by`, with this clock, does not come after."""
    cdef const mark_t *other = &segment.write
    cdef int32_t read
    if other.actor >= 0 and other.row != by.row and clock[other.actor] < other.seq:
        _report(r, place, segment.begin, segment.end, HAZARD_WAW if write else HAZARD_RAW,
                other, by)
    if write:
        read = segment.reads
        while read >= 0:
            other = &r.reads[read].mark
            if other.row != by.row and clock[other.actor] < other.seq:
                _report(r, place, segment.begin, segment.end, HAZARD_WAR, other, by)
            read = r.reads[read].next


cdef void _note_read(ranges_t *r, segment_t *segment, const mark_t *by,
                     const int64_t *clock) noexcept nogil:
    """Add a read; it stands for those of its actor that it comes after, and of its row."""
    cdef int32_t *link = &segment.reads
    cdef int32_t read
    cdef const mark_t *other
    while link[0] >= 0:
        read = link[0]
        other = &r.reads[read].mark
        if other.actor == by.actor and (other.row == by.row or other.seq <= clock[by.actor]):
            link[0] = r.reads[read].next
            r.reads[read].next = r.free_read
            r.free_read = read
        else:
            link = &r.reads[read].next
    segment.reads = _new_read(r, by[0], segment.reads)


cdef int32_t _own_reads(ranges_t *r, int32_t first, int32_t row) noexcept nogil:
    """Free the reads of other rows; what a row itself read is still read after it wrote."""
    cdef int32_t own = -1, next
    while first >= 0:
        next = r.reads[first].next
        if r.reads[first].mark.row == row:
            r.reads[first].next = own
            own = first
        else:
            r.reads[first].next = r.free_read
            r.free_read = first
        first = next
    return own


cdef bint _same_reads(ranges_t *r, int32_t one, int32_t two) noexcept nogil:
    cdef const mark_t *a
    cdef const mark_t *b
    while one >= 0 and two >= 0:
        a = &r.reads[one].mark
        b = &r.reads[two].mark
        if a.actor != b.actor or a.row != b.row or a.access != b.access:
            return False
        one = r.reads[one].next
        two = r.reads[two].next
    return one < 0 and two < 0


cdef void _write(ranges_t *r, int32_t place, int64_t begin, int64_t end, const mark_t *by,
                 const int64_t *clock) noexcept nogil:
    """Check a write and make its range one segment, or several where its row read parts of it."""
    cdef place_t *p = &r.places[place]
    cdef segment_t *last
    cdef int32_t i = _first_after(p, begin), out, first, own
    cdef int64_t at = begin, start
    if i < p.n and p.segments[i].begin < begin:
        _split(r, p, i, begin)
        i += 1
    first = out = i
    while at < end and not r.failed:
        start = at
        if i < p.n and p.segments[i].begin <= at:
            if p.segments[i].end > end:
                _split(r, p, i, end)
            _check(r, place, &p.segments[i], True, by, clock)
            own = _own_reads(r, p.segments[i].reads, by.row)
            at = p.segments[i].end
            i += 1
        else:
            own = -1
            at = min(end, p.segments[i].begin) if i < p.n else end
        if out > first and _same_reads(r, p.segments[out - 1].reads, own):
            p.segments[out - 1].end = at
            _free_reads(r, own)
            continue
        if out == i:
            if not _make_room(r, p, i):
                return
            i += 1
        last = &p.segments[out]
        last.begin = start
        last.end = at
        last.write = by[0]
        last.reads = own
        out += 1
    if out < i:
        memmove(&p.segments[out], &p.segments[i], (p.n - i) * sizeof(segment_t))
        p.n -= i - out


cdef void _read(ranges_t *r, int32_t place, int64_t begin, int64_t end, const mark_t *by,
                const int64_t *clock) noexcept nogil:
    cdef place_t *p = &r.places[place]
    cdef int32_t i = _first_after(p, begin)
    cdef int64_t at = begin
    if i < p.n and p.segments[i].begin < begin:
        _split(r, p, i, begin)
        i += 1
    while at < end and not r.failed:
        if i < p.n and p.segments[i].begin <= at:
            if p.segments[i].end > end:
                _split(r, p, i, end)
            _check(r, place, &p.segments[i], False, by, clock)
        else:
            if not _make_room(r, p, i):
                return
            p.segments[i].begin = at
            p.segments[i].end = min(end, p.segments[i + 1].begin) if i + 1 < p.n else end
            p.segments[i].write.actor = -1
            p.segments[i].reads = -1
        _note_read(r, &p.segments[i], by, clock)
        at = p.segments[i].end
        i += 1


cdef void touch_range(ranges_t *r, int32_t place, int64_t begin, int64_t end, bint write, mark_t by,
                      const int64_t *clock) noexcept nogil:
    """Enter an access and report the earlier ones that conflict and are not covered by `clock`."""
    if begin >= end or r.failed:
        return
    if write:
        _write(r, place, begin, end, &by, clock)
    else:
        _read(r, place, begin, end, &by, clock)


cdef class Ranges:
    """The maps of all slots of a program, and the hazards found in them.

    Parameters
    ----------
    n_places : int
        Number of buffer slots.
    max_hazards : int
        How many hazards are kept; all are counted.
    """

    def __cinit__(self, int n_places, int64_t max_hazards):
        cdef ranges_t *r = &self.state
        self.n_places = n_places
        r.places = <place_t *>calloc(max(1, n_places), sizeof(place_t))
        r.read_capacity = 64
        r.reads = <read_t *>calloc(r.read_capacity, sizeof(read_t))
        r.hazard_capacity = 16
        r.hazards = <hazard_t *>calloc(r.hazard_capacity, sizeof(hazard_t))
        r.free_read = -1
        r.max_hazards = max_hazards
        if r.places == NULL or r.reads == NULL or r.hazards == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int i
        if self.state.places != NULL:
            for i in range(self.n_places):
                free(self.state.places[i].segments)
        free(self.state.places)
        free(self.state.reads)
        free(self.state.hazards)

    def hazards(self):
        """Return the hazards kept, in the order found, as an array of HAZARD."""
        cdef int64_t n = min(self.state.n_hazards, self.state.max_hazards)
        cdef uint8_t[::1] view
        if self.state.failed:
            raise MemoryError("the ordering analysis ran out of memory")
        out = np.zeros(n * HAZARD.itemsize, np.uint8)
        if n:
            view = out
            memcpy(&view[0], self.state.hazards, n * sizeof(hazard_t))
        return out.view(HAZARD)
