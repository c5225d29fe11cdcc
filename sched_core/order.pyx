"""Happens-before index of a Program: which conflicting accesses nothing orders.

Every host thread and every stream is an actor whose work is in order, and has a vector clock: for
each actor, up to which of its work this one comes after.  Walking the rows once,

- a call comes after its thread's earlier calls; what it enqueues comes after the call and after
  the earlier work of its stream (an event record is such work);
- the legacy default stream and the blocking and per-thread streams of its device come after each
  other's earlier work;
- an event keeps the clock of its stream at the record, a wait and a host sync take it over; before
  any record they do nothing;
- a host sync of a stream takes over the stream's clock (of the legacy stream also the clocks of the
  streams that it waits for), of a device those of all its streams;
- a blocking copy takes over its stream's clock, except device to device, which does not block, and
  from pageable memory to a device, which waits for the stream first and returns once its source is
  staged; a blocking memset does so where its target is pinned or managed;
- `practical` rules only: an async copy from pageable memory has read its source when the call
  returns; one to pageable memory is done when the call returns;
- a launch with programmatic dependent launch may begin once the kernel before it has begun, and so
  may the next such launch: any kernel may trigger early, also before a wait inside it.  Without a
  wait inside, such a launch thus comes after what the run of them began after; with one, after the
  kernels before it.  What follows comes after all.

An access is ordered after an earlier one when its clock covers it.  Of each byte range the last
write and each actor's last read since are kept (see ranges), so memory is bounded by what is live.
Sources of the rules: docs/ordering.md.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from syncscope.sched_core.backend cimport (
    FLAG_BLOCKING,
    FLAG_GRID_SYNC,
    FLAG_PDL,
    KIND_ALLOC,
    KIND_COPY,
    KIND_FREE,
    KIND_GRAPH,
    KIND_HOST,
    KIND_LAUNCH,
    KIND_MEMSET,
    KIND_RECORD,
    KIND_SYNC,
    KIND_WAIT,
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_PAGEABLE,
    MEMORY_PINNED,
    SCOPE_DEVICE,
    SCOPE_EVENT,
    access_t,
    op_t,
)
from syncscope.sched_core.machine cimport STREAM_LEGACY, STREAM_NONBLOCKING, streams_ordered
from syncscope.sched_core.ranges cimport Ranges, mark_t, ranges_t, touch_range

from syncscope.sched_core.errors import UsageError, nearest
from syncscope.sched_core.machine import STREAM_KINDS
from syncscope.sched_core.program import MEMORY

RULES = ("practical", "strict")

ctypedef struct walk_t:
    int32_t n_threads, n_streams, n_actors
    int64_t *clock                         # per actor (threads, then streams) a row of n_actors
    int64_t *began                         # per stream: the clock its last kernel may begin with
    uint8_t *after_kernel                  # per stream: whether its last work is a kernel
    int64_t *event                         # per event instance a row of n_actors
    uint8_t *recorded
    int64_t *scratch
    const int32_t *device
    const uint8_t *kind
    const uint8_t *memory                  # per buffer
    const int32_t *place0                  # per buffer: place of its slot 0
    const uint8_t *written                 # per place: whether anything writes it
    const access_t *accesses
    const op_t *members
    const uint8_t *dropped                 # per site
    bint practical
    ranges_t *ranges


cdef inline void _join(int64_t *into, const int64_t *other, int32_t n) noexcept nogil:
    cdef int32_t i
    for i in range(n):
        if other[i] > into[i]:
            into[i] = other[i]


cdef inline int64_t *_host(walk_t *w, int32_t thread) noexcept nogil:
    return w.clock + <int64_t>thread * w.n_actors


cdef inline int64_t *_stream(walk_t *w, int32_t stream) noexcept nogil:
    return w.clock + <int64_t>(w.n_threads + stream) * w.n_actors


cdef void _join_implicit(walk_t *w, int64_t *into, int32_t stream) noexcept nogil:
    """Join the clocks of the streams that `stream` is implicitly ordered with."""
    cdef int32_t other
    if w.kind[stream] == STREAM_NONBLOCKING:
        return
    for other in range(w.n_streams):
        if (other != stream and w.device[other] == w.device[stream]
                and streams_ordered(w.kind[stream], w.kind[other])):
            _join(into, _stream(w, other), w.n_actors)


cdef void _touch(walk_t *w, const op_t *op, int32_t row, int32_t shift, bint write, int32_t first,
                 int32_t last, int32_t actor, const int64_t *clock, int64_t seq) noexcept nogil:
    """Enter the reads, or the writes, among accesses ``[first, last)`` of `op`.

    `shift` is the position of the op's first access within its row's.
    """
    cdef const access_t *access
    cdef mark_t mark
    cdef int32_t i, place
    mark.actor = actor
    mark.seq = seq
    mark.row = row
    for i in range(first, last):
        access = &w.accesses[op.access0 + i]
        if access.write != write:
            continue
        place = w.place0[access.buffer] + access.slot
        if not w.written[place]:
            continue
        mark.access = shift + i
        touch_range(w.ranges, place, access.begin, access.end, write, mark, clock)


cdef void _touch_all(walk_t *w, const op_t *op, int32_t row, int32_t shift, int32_t actor,
                     const int64_t *clock, int64_t seq) noexcept nogil:
    """Enter what an op reads, then what it writes."""
    _touch(w, op, row, shift, False, 0, op.n_access, actor, clock, seq)
    _touch(w, op, row, shift, True, 0, op.n_access, actor, clock, seq)


cdef void _walk_sync(walk_t *w, const op_t *op) noexcept nogil:
    cdef int64_t *host = _host(w, op.thread)
    cdef int32_t other
    if op.scope == SCOPE_EVENT:
        if w.recorded[op.event]:
            _join(host, w.event + <int64_t>op.event * w.n_actors, w.n_actors)
    elif op.scope == SCOPE_DEVICE:
        for other in range(w.n_streams):
            if w.device[other] == w.device[op.stream]:
                _join(host, _stream(w, other), w.n_actors)
    else:
        _join(host, _stream(w, op.stream), w.n_actors)
        if w.kind[op.stream] == STREAM_LEGACY:
            _join_implicit(w, host, op.stream)


cdef void _walk_copy(walk_t *w, const op_t *op, int32_t row, bint blocking, int64_t seq,
                     const int64_t *clock) noexcept nogil:
    """Enter a copy's accesses with the actor that performs each; join the host where it blocks."""
    cdef int64_t *host = _host(w, op.thread)
    cdef int32_t actor = w.n_threads + op.stream
    cdef uint8_t source = w.memory[w.accesses[op.access0].buffer]
    cdef uint8_t target = w.memory[w.accesses[op.access0 + 1].buffer]
    cdef bint to_device = target >= MEMORY_DEVICE
    cdef bint staged = (source == MEMORY_PAGEABLE and to_device and (blocking or w.practical))
    if staged:
        _touch(w, op, row, 0, False, 0, 1, op.thread, host, host[op.thread])
    else:
        _touch(w, op, row, 0, False, 0, 1, actor, clock, seq)
    _touch(w, op, row, 0, True, 1, 2, actor, clock, seq)
    if not to_device:
        if blocking or (w.practical and target == MEMORY_PAGEABLE):
            _join(host, clock, w.n_actors)
    elif blocking and source == MEMORY_PINNED:
        _join(host, clock, w.n_actors)


cdef void _walk_device(walk_t *w, const op_t *op, int32_t row) noexcept nogil:
    """A row that is work of a stream."""
    cdef int64_t *host = _host(w, op.thread)
    cdef int64_t *clock = _stream(w, op.stream)
    cdef int64_t *began = w.began + <int64_t>op.stream * w.n_actors
    cdef int64_t *node = clock
    cdef int32_t actor = w.n_threads + op.stream
    cdef int32_t n = w.n_actors
    cdef int64_t seq, i
    cdef const op_t *member
    cdef bint blocking = op.flags & FLAG_BLOCKING and not w.dropped[op.site]
    cdef bint is_kernel = op.kind == KIND_LAUNCH
    cdef bint begins_early = is_kernel and op.flags & FLAG_PDL and w.after_kernel[op.stream]
    cdef bint overlaps = begins_early and not op.flags & FLAG_GRID_SYNC
    if (op.kind == KIND_COPY and blocking and w.memory[w.accesses[op.access0].buffer]
            == MEMORY_PAGEABLE and w.memory[w.accesses[op.access0 + 1].buffer] >= MEMORY_DEVICE):
        _join(host, clock, n)              # the stream is waited for before the source is staged
        _join_implicit(w, host, op.stream)
    if is_kernel and not begins_early:
        memcpy(began, clock, n * sizeof(int64_t))
    _join(clock, host, n)
    _join_implicit(w, clock, op.stream)
    if op.kind == KIND_WAIT and w.recorded[op.event] and not w.dropped[op.site]:
        _join(clock, w.event + <int64_t>op.event * n, n)
    if is_kernel:
        _join(began, host, n)
        _join_implicit(w, began, op.stream)
    clock[actor] += 1
    seq = clock[actor]
    if overlaps:
        node = w.scratch
        memcpy(node, began, n * sizeof(int64_t))
    if op.kind != KIND_WAIT or not w.dropped[op.site]:
        w.after_kernel[op.stream] = is_kernel
    if op.kind == KIND_RECORD:
        memcpy(w.event + <int64_t>op.event * n, clock, n * sizeof(int64_t))
        w.recorded[op.event] = 1
    elif op.kind == KIND_GRAPH:
        for i in range(op.nbytes):
            member = &w.members[<int64_t>op.dst + i]
            _touch_all(w, member, row, member.access0 - op.access0, actor, node, seq)
    elif op.kind == KIND_COPY:
        _walk_copy(w, op, row, blocking, seq, node)
    else:
        _touch_all(w, op, row, 0, actor, node, seq)
        if op.kind == KIND_MEMSET and blocking and op.n_access:
            if w.memory[w.accesses[op.access0].buffer] in (MEMORY_PINNED, MEMORY_MANAGED):
                _join(host, clock, n)


cdef void walk(walk_t *w, const op_t *ops, int64_t n_ops) noexcept nogil:
    """Walk the rows in issue order."""
    cdef const op_t *op
    cdef int64_t *host
    cdef int64_t row
    for row in range(n_ops):
        op = &ops[row]
        host = _host(w, op.thread)
        host[op.thread] += 1
        if op.kind == KIND_HOST or op.kind == KIND_FREE or op.kind == KIND_ALLOC:
            _touch_all(w, op, <int32_t>row, 0, op.thread, host, host[op.thread])
        elif op.kind == KIND_SYNC:
            if not w.dropped[op.site]:
                _walk_sync(w, op)
        elif op.stream >= 0:
            _walk_device(w, op, <int32_t>row)


cdef class Order:
    """The ordering of a program under a rule set; asks can leave syncs out.

    Parameters
    ----------
    program : Program
    rules : str
        ``practical`` or ``strict``.

    Raises
    ------
    UsageError
        For an unknown rule set.
    """

    cdef readonly object program
    cdef readonly str rules
    cdef dict _arrays
    cdef walk_t _walk
    cdef int64_t _n_ops
    cdef const op_t *_ops
    cdef int _n_places

    def __init__(self, program, str rules="practical"):
        if rules not in RULES:
            raise UsageError(f"unknown rules {rules}; {nearest(rules, RULES)}")
        self.program = program
        self.rules = rules
        depth = [buffer.depth for buffer in program.buffers]
        place0 = np.cumsum([0, *depth]).astype(np.int32)
        accesses = np.ascontiguousarray(program.accesses)
        written = np.zeros(int(place0[-1]) + 1, np.uint8)
        writes = accesses[accesses["write"] == 1]
        written[place0[writes["buffer"]] + writes["slot"]] = 1
        n_threads, streams = program.n_threads, program.streams
        n_actors = n_threads + len(streams)
        n_events = int(program.event_base[-1]) + 1
        self._arrays = {
            "ops": np.ascontiguousarray(program.ops),
            "members": np.ascontiguousarray(program.members),
            "accesses": accesses, "place0": place0, "written": written,
            "memory": np.array([*(MEMORY.index(b.memory) for b in program.buffers), 0], np.uint8),
            "device": np.array([*(s.device for s in streams), -1], np.int32),
            "kind": np.array([*(STREAM_KINDS.index(s.kind) for s in streams), 0], np.uint8),
            "clock": np.zeros((n_actors + 1, n_actors), np.int64),
            "began": np.zeros((len(streams) + 1, n_actors), np.int64),
            "after": np.zeros(len(streams) + 1, np.uint8),
            "event": np.zeros((n_events, n_actors), np.int64),
            "recorded": np.zeros(n_events, np.uint8),
            "dropped": np.zeros(len(program.sites) + 1, np.uint8),
        }
        w = &self._walk
        w.n_threads, w.n_streams, w.n_actors = n_threads, len(streams), n_actors
        w.clock = <int64_t *>_address(self._arrays["clock"])
        w.scratch = _stream(w, len(streams))
        w.began = <int64_t *>_address(self._arrays["began"])
        w.after_kernel = <uint8_t *>_address(self._arrays["after"])
        w.event = <int64_t *>_address(self._arrays["event"])
        w.recorded = <uint8_t *>_address(self._arrays["recorded"])
        w.device = <const int32_t *>_address(self._arrays["device"])
        w.kind = <const uint8_t *>_address(self._arrays["kind"])
        w.memory = <const uint8_t *>_address(self._arrays["memory"])
        w.place0 = <const int32_t *>_address(self._arrays["place0"])
        w.written = <const uint8_t *>_address(self._arrays["written"])
        w.accesses = <const access_t *>_address(self._arrays["accesses"])
        w.members = <const op_t *>_address(self._arrays["members"])
        w.dropped = <const uint8_t *>_address(self._arrays["dropped"])
        w.practical = rules == "practical"
        self._ops = <const op_t *>_address(self._arrays["ops"])
        self._n_ops = len(program.ops)
        self._n_places = int(place0[-1])

    def hazards(self, dropped=(), int64_t limit=65536):
        """Return the conflicting accesses that nothing orders, in the order of the second.

        Parameters
        ----------
        dropped : iterable of int
            Sites whose ordering is left out: of a sync or wait all of it, of a blocking copy or
            memset the blocking.  Their accesses stay.
        limit : int
            How many are returned.

        Returns
        -------
        ndarray of ranges.HAZARD
        """
        cdef Ranges ranges = Ranges(self._n_places, limit)
        for name in ("clock", "began", "after", "event", "recorded", "dropped"):
            self._arrays[name][...] = 0
        self._arrays["dropped"][list(dropped)] = 1
        self._walk.ranges = &ranges.state
        with nogil:
            walk(&self._walk, self._ops, self._n_ops)
        return ranges.hazards()


cdef size_t _address(array) except 0:
    """Address of a C-contiguous array; whoever takes it keeps the array alive."""
    return array.ctypes.data
