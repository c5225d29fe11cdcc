"""A fixed ring of spans that drops and counts when full; it never blocks or grows."""
import numpy as np

from libc.stdint cimport uint8_t

SPAN = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("op", "<i4"),
        ("step", "<i4"),
        ("lane", "<u2"),
        ("role", "u1"),
        ("flags", "u1"),
        ("nbytes", "<u4"),
    ]
)
ROLES = ("call", "exec")


cdef class SpanRing:
    """Spans between the executor, which pushes, and whoever takes them.

    One thread at a time: take between two runs of the executor, not during one.

    Parameters
    ----------
    capacity_log2 : int
        The ring holds ``2 ** capacity_log2`` spans of 32 bytes.
    """

    def __init__(self, int capacity_log2=18):
        cdef uint8_t[::1] view
        if not 4 <= capacity_log2 <= 26:
            raise ValueError(f"capacity_log2 {capacity_log2} outside 4..26")
        self._memory = np.zeros((1 << capacity_log2) * SPAN.itemsize, np.uint8)
        view = self._memory
        self.ring.spans = <span_t *>&view[0]
        self.ring.mask = (1 << capacity_log2) - 1
        self.ring.head = self.ring.tail = self.ring.dropped = 0
        self.ring.recording = 1

    @property
    def capacity(self):
        """Number of spans that fit."""
        return self.ring.mask + 1

    @property
    def dropped(self):
        """Number of spans lost because the ring was full."""
        return self.ring.dropped

    @property
    def recording(self):
        """Whether spans are kept."""
        return bool(self.ring.recording)

    @recording.setter
    def recording(self, bint on):
        self.ring.recording = on

    def take(self):
        """Return the spans kept since the last call, oldest first, as an array of SPAN."""
        spans = self._memory.view(SPAN)
        begin, end = self.ring.tail & self.ring.mask, self.ring.head & self.ring.mask
        if self.ring.head == self.ring.tail:
            out = spans[:0].copy()
        elif begin < end:
            out = spans[begin:end].copy()
        else:
            out = np.concatenate([spans[begin:], spans[:end]])
        self.ring.tail = self.ring.head
        return out
