# cython: boundscheck=False
"""Device times of a run: begin and end that kernels stamp, and bounds of copies.

Every site that launches a kernel has a slot.  A kernel writes its times there, in the same place in
every step; the launch that begins the next step puts them by in a ring, so that replays of a graph
do not overwrite each other.  Its begin is read by the first block's first thread before anything
else, its end by the last-numbered block's first thread after all else that the thread does.  The
end is a lower bound: that block starts last, but others may run longer, and so may its own threads.
Steps follow each other on the device: of a kernel that runs on beside the next step, on a stream
which that step's first launch does not wait for, times are lost or counted there.

A copy leaves no stamp: it ran after its call and after the kernel before it on its stream, and
before the return of the first host wait for it and before the kernel after it.
"""
from itertools import pairwise

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc

from syncscope.sched_core.backend cimport (
    FLAG_BLOCKING,
    KIND_COPY,
    KIND_RECORD,
    KIND_SYNC,
    ROLE_EXEC,
    SCOPE_DEVICE,
    SCOPE_EVENT,
    SPAN_BOUNDED,
    SPAN_LOWER_BOUND,
    address,
    op_t,
    span_t,
)

from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Kind


def launch_slots(rows):
    """Give every site that launches a kernel a slot.

    Parameters
    ----------
    rows : ndarray of OP
        Of a bound program, members after ops.

    Returns
    -------
    slot : ndarray of int32
        Of each row; -1 for what launches nothing.
    first : ndarray of int64
        The first row of each slot.
    """
    launched = np.flatnonzero(rows["kind"] == Kind.LAUNCH)
    _, first, slot_of = np.unique(rows["site"][launched], return_index=True, return_inverse=True)
    slot = np.full(len(rows), -1, np.int32)
    slot[launched] = slot_of
    return slot, launched[first]


def step_starts(program):
    """Return the row of each step that tells the device that a new step has begun, as a mask.

    It is the step's first launch or graph, if possible one that no count can skip.
    """
    starts = np.zeros(len(program.ops), bool)
    device = np.isin(program.ops["kind"], (Kind.LAUNCH, Kind.GRAPH))
    certain = device & (program.ops["src"] == 0)
    for begin, end in pairwise(program.step0.tolist()):
        for mask in (certain, device):
            found = np.flatnonzero(mask[begin:end])
            if len(found):
                starts[begin + found[0]] = True
                break
    return starts


def ring_parts(begin, end, n_rows):
    """Return where steps lie in a ring, as few parts as there are.

    Parameters
    ----------
    begin, end : int
        Steps, end excluded; no more than there are rows.
    n_rows : int
        Step n lies in row n modulo this.

    Returns
    -------
    list of tuple of int
        First row and number of rows of each part, in the order of the steps.
    """
    parts = []
    while begin < end:
        row = begin % n_rows
        parts.append((row, min(end - begin, n_rows - row)))
        begin += parts[-1][1]
    return parts


def kernel_neighbours(program, slot):
    """Return, per row, the slots of the kernels before and after a copy on its stream.

    -1 where its step has none.
    """
    before = np.full(len(slot), -1, np.int32)
    after = np.full(len(slot), -1, np.int32)
    kind, stream = program.ops["kind"].tolist(), program.ops["stream"].tolist()
    for begin, end in pairwise(program.step0.tolist()):
        last, copies = {}, {}
        for row in range(begin, end):
            if kind[row] == Kind.COPY:
                before[row] = last.get(stream[row], -1)
                copies.setdefault(stream[row], []).append(row)
            if kind[row] == Kind.LAUNCH:
                launched = slot[row : row + 1]
            elif kind[row] == Kind.GRAPH:
                member = len(kind) + int(program.ops["dst"][row])
                launched = slot[member : member + int(program.ops["nbytes"][row])]
                launched = launched[launched >= 0]
            else:
                continue
            if len(launched):
                after[copies.pop(stream[row], [])] = launched[0]
                last[stream[row]] = int(launched[-1])
    return before, after


def kernel_spans(rows, first, n_threads, steps, times, ran):
    """Return what kernels stamped as spans.

    Parameters
    ----------
    rows : ndarray of OP
    first : ndarray of int64
        A row of each slot.
    n_threads : int
        Lanes before those of streams.
    steps : ndarray of int64
    times : ndarray of int64, shape (steps, slots, 2)
        Begin and end on the host's clock.
    ran : ndarray of bool, shape (steps, slots)
    """
    step, slot = np.nonzero(ran)
    row = first[slot]
    spans = np.zeros(len(step), SPAN)
    spans["begin_ns"] = times[step, slot, 0]
    spans["end_ns"] = np.maximum(times[step, slot, 1], spans["begin_ns"])
    spans["op"] = row
    spans["step"] = steps[step]
    spans["lane"] = n_threads + rows["stream"][row]
    spans["role"] = ROLE_EXEC
    spans["flags"] = SPAN_LOWER_BOUND
    spans["nbytes"] = np.minimum(rows["nbytes"][row], 0xFFFFFFFF)
    return spans


cdef class CopyBounds:
    """Finds between which times the copies of a bound program ran.

    Parameters
    ----------
    program : Program
    rows : ndarray of OP
        Bound rows, members after ops.
    slot : ndarray of int32
        Of each row, from `launch_slots`.
    """

    def __cinit__(self):
        self._copies = NULL

    def __init__(self, program, rows, slot):
        before, after = kernel_neighbours(program, slot)
        waits = np.zeros(len(rows), np.uint8)
        for i in np.flatnonzero(rows["kind"] == KIND_COPY):
            target = program.accesses["buffer"][rows["access0"][i] + 1]
            to_pageable = program.buffers[target].memory == "pageable"
            waits[i] = to_pageable or bool(rows["flags"][i] & FLAG_BLOCKING)
        n_events = int(program.event_base[-1])
        self._arrays = (rows, before, after, waits)
        self._rows = <const op_t *>address(rows)
        self._before = <const int32_t *>address(before)
        self._after = <const int32_t *>address(after)
        self._waits = <const unsigned char *>address(waits)
        self._n_streams = len(program.streams)
        self._open = np.zeros(self._n_streams + 1, np.int64)
        self._event_end = np.zeros(n_events + 1, np.int64)
        self._event_stream = np.full(n_events + 1, -1, np.intc)
        self._n = self._capacity = 0

    def __dealloc__(self):
        free(self._copies)

    cdef int _append(self, const span_t *call) except -1:
        cdef copy_t *copy
        if self._n == self._capacity:
            self._capacity = max(256, 2 * self._capacity)
            copy = <copy_t *>realloc(self._copies, self._capacity * sizeof(copy_t))
            if copy == NULL:
                raise MemoryError
            self._copies = copy
        copy = &self._copies[self._n]
        copy.begin = call.begin_ns
        copy.end = call.end_ns if self._waits[call.op] else 0
        copy.row = call.op
        copy.step = call.step
        self._n += 1
        return 0

    cdef void _close(self, int stream, int64_t upto, int64_t at) noexcept:
        """Say that the copies of a stream before `upto` were done at a time."""
        cdef int64_t i
        for i in range(self._open[stream], upto):
            if self._copies[i].end == 0 and self._rows[self._copies[i].row].stream == stream:
                self._copies[i].end = at
        self._open[stream] = max(self._open[stream], upto)

    def note(self, calls):
        """Take in what the host called, in order: copies, and the waits that bound them."""
        cdef const span_t *call
        cdef const op_t *op
        cdef int64_t i
        cdef int stream
        cdef int64_t n = len(calls)
        cdef const span_t *spans = <const span_t *>address(calls)
        for i in range(n):
            call = &spans[i]
            op = &self._rows[call.op]
            if op.kind == KIND_COPY:
                self._append(call)
            elif op.kind == KIND_RECORD:
                self._event_end[op.event] = self._n
                self._event_stream[op.event] = op.stream
            elif op.kind == KIND_SYNC and op.scope == SCOPE_DEVICE:
                for stream in range(self._n_streams):
                    self._close(stream, self._n, call.end_ns)
            elif op.kind == KIND_SYNC and op.scope == SCOPE_EVENT:
                if self._event_stream[op.event] >= 0:
                    self._close(
                        self._event_stream[op.event], self._event_end[op.event], call.end_ns
                    )
            elif op.kind == KIND_SYNC:
                self._close(op.stream, self._n, call.end_ns)

    def take(self, int n_threads, steps, times, ran, last_end, bint all_done):
        """Return the copies of steps whose kernels are known, as spans, and forget them.

        Parameters
        ----------
        n_threads : int
        steps : ndarray of int64
            Rising numbers of the steps whose kernels ended since the last call.
        times, ran : ndarray
            As `kernel_spans` takes them.
        last_end : ndarray of int64, shape (steps, streams)
            When the last kernel of earlier steps ended on each stream, 0 unknown.
        all_done : bool
            Whether nothing is pending on the device.
        """
        cdef int64_t i, kept = 0, taken = 0, at = 0, n_steps = len(steps), begin, end
        cdef copy_t *copy
        cdef const op_t *op
        cdef int32_t slot
        cdef int64_t[:] step_of = np.ascontiguousarray(steps, np.int64)
        cdef int64_t[:, :, :] time_of = times
        cdef unsigned char[:, :] has_run = ran.view(np.uint8)
        cdef int64_t[:, :] ended = last_end
        cdef span_t *spans
        out = np.zeros(self._n, SPAN)
        moved = np.zeros(self._n + 1, np.int64)        # copies kept before each one
        cdef int64_t[:] kept_before = moved
        spans = <span_t *>address(out)
        for i in range(self._n):
            kept_before[i] = kept
            copy = &self._copies[i]
            op = &self._rows[copy.row]
            while at < n_steps and step_of[at] < copy.step:
                at += 1
            begin, end = copy.begin, copy.end
            if at < n_steps and step_of[at] == copy.step:
                slot = self._before[copy.row]
                if slot >= 0 and has_run[at, slot]:
                    begin = max(begin, time_of[at, slot, 1])
                elif slot < 0:
                    begin = max(begin, ended[at, op.stream])
                slot = self._after[copy.row]
                if slot >= 0 and has_run[at, slot]:
                    end = time_of[at, slot, 0] if end == 0 else min(end, time_of[at, slot, 0])
            elif at == n_steps and not all_done:
                end = 0                    # its step is not over: later
            if end == 0:
                self._copies[kept] = copy[0]
                kept += 1
                continue
            spans[taken].begin_ns = min(begin, end)
            spans[taken].end_ns = end
            spans[taken].op = copy.row
            spans[taken].step = copy.step
            spans[taken].lane = n_threads + op.stream
            spans[taken].role = ROLE_EXEC
            spans[taken].flags = SPAN_BOUNDED
            spans[taken].nbytes = <unsigned int>min(op.nbytes, <int64_t>0xFFFFFFFF)
            taken += 1
        kept_before[self._n] = kept
        self._open = moved[np.asarray(self._open)]
        self._event_end = moved[np.asarray(self._event_end)]
        self._n = kept
        return out[:taken]
