# cython: boundscheck=False, wraparound=False
"""Puts spans that overlap into lanes below each other."""
import numpy as np

from libc.stdint cimport int64_t, uint8_t

MAX_LANES = 16

cdef enum:
    MOST = 16


def first_fit(const int64_t[::1] begin_ns, const int64_t[::1] end_ns, int64_t[::1] last_end_ns):
    """Give each span, in order, the first lane whose last span has ended when it begins.

    Where a span goes depends on those before it alone: however a stream of spans is cut into
    calls, each gets the same lane.

    Parameters
    ----------
    begin_ns, end_ns : ndarray of int64, shape (n,)
        No span ends before it begins.
    last_end_ns : ndarray of int64, shape (MAX_LANES,)
        End of the last span of each lane, the least int64 where there is none; brought up to date.

    Returns
    -------
    ndarray of uint8, shape (n,)
        A lane, or `MAX_LANES` for spans that fit in none.
    """
    cdef int64_t i, n = begin_ns.shape[0]
    cdef int k
    out = np.empty(n, np.uint8)
    cdef uint8_t[::1] lane = out
    if end_ns.shape[0] != n or last_end_ns.shape[0] != MOST:
        raise ValueError(f"{n} begins, {end_ns.shape[0]} ends, {last_end_ns.shape[0]} lanes")
    with nogil:
        for i in range(n):
            k = 0
            while k < MOST and begin_ns[i] < last_end_ns[k]:
                k += 1
            lane[i] = <uint8_t>k
            if k < MOST:
                last_end_ns[k] = end_ns[i]
    return out
