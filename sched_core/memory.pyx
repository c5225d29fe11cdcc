"""Data order of the simulator: real bytes, and version stamps that see every race.

Each stream is *early* (an op takes effect when it is issued) or *late* (only when something forces
it: a host wait, a stream's wait that something needs, a full queue).  Both are orders that a
device is free to choose.  An op on an early stream still comes after everything before it in its
own stream and after the events that the stream waits for.

Versions: each write that is issued gets the next number.  A read is *stale* when the bytes it
finds are not those of the last write issued before it; a write is a *wrong last write* when it
lands on bytes of a write issued after it.  Ranges are exact: a buffer is divided into cells at
every begin and end that the program's accesses have.

A blocking copy is done when it returns, except from device to device, which does not block, and
from pageable memory to a device, which waits for its stream and returns once its source is read.
Under `practical` rules an async copy from pageable memory has read its source when the call
returns, and one to pageable memory is done; under `strict` rules they are like any other.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove

from syncscope.sched_core.backend cimport (
    FLAG_BLOCKING,
    KIND_COPY,
    KIND_GRAPH,
    KIND_HOST,
    KIND_LAUNCH,
    KIND_SYNC,
    KIND_WAIT,
    MEMORY_DEVICE,
    MEMORY_PAGEABLE,
    MEMORY_PINNED,
    NO_KERNEL,
    SCOPE_DEVICE,
    SCOPE_EVENT,
    STATUS_NO_KERNEL,
    STATUS_OK,
    KernelTable,
    address,
    kernel_t,
    op_t,
)
from syncscope.sched_core.machine cimport STREAM_LEGACY, STREAM_NONBLOCKING, streams_ordered

from syncscope.sched_core.machine import STREAM_KINDS
from syncscope.sched_core.program import MEMORY

HARM = np.dtype(
    [(name, "<i8") for name in ("step", "row", "access", "expected", "found", "write")]
)


cdef node_t *_node(memory_t *m, int64_t index) noexcept nogil:
    return &m.nodes[index & (MAX_PENDING - 1)]


cdef bint _is_pending(memory_t *m, int64_t index) noexcept nogil:
    return index >= m.oldest and not _node(m, index).done


# ---- versions -----------------------------------------------------------------------------------

cdef int64_t _expect(memory_t *m, const op_t *op, int64_t at) noexcept nogil:
    """Write down the versions that `op` should find, give its writes theirs; return the next `at`.

    Of a write the entry is its own version.
    """
    cdef const touch_t *touch
    cdef int64_t i, cell
    for i in range(op.access0, op.access0 + op.n_access):
        touch = &m.touches[i]
        if not touch.write:
            for cell in range(touch.cell0, touch.cell0 + touch.n_cells):
                m.expected[at & m.expected_mask] = m.issued[cell]
                at += 1
    for i in range(op.access0, op.access0 + op.n_access):
        touch = &m.touches[i]
        if touch.write:
            m.version += 1
            m.expected[at & m.expected_mask] = m.version
            at += 1
            for cell in range(touch.cell0, touch.cell0 + touch.n_cells):
                m.issued[cell] = m.version
    return at


cdef void _keep_harm(memory_t *m, const op_t *op, int64_t step, int64_t access, int64_t expected,
                     int64_t found) noexcept nogil:
    """Count what came to an access; keep the first of each access with its place."""
    cdef int64_t i = op.access0 + access
    cdef harm_t *harm
    if m.touches[i].write:
        m.wrong_last_writes += 1
    else:
        m.stale_reads += 1
    if m.is_kept[i]:
        return
    m.is_kept[i] = 1
    harm = &m.harms[m.n_harms]
    m.n_harms += 1
    harm.step = step
    harm.row = op - m.rows
    harm.access = access
    harm.expected = expected
    harm.found = found
    harm.write = m.touches[i].write


cdef int64_t _check_reads(memory_t *m, const op_t *op, int64_t step, int64_t at) noexcept nogil:
    """Compare what the reads of `op` find with what was expected; return the next `at`."""
    cdef const touch_t *touch
    cdef int64_t i, cell, expected
    cdef bint stale
    for i in range(op.access0, op.access0 + op.n_access):
        touch = &m.touches[i]
        if touch.write:
            continue
        stale = False
        for cell in range(touch.cell0, touch.cell0 + touch.n_cells):
            expected = m.expected[at & m.expected_mask]
            at += 1
            if m.present[cell] != expected and not stale:
                stale = True
                _keep_harm(m, op, step, i - op.access0, expected, m.present[cell])
    return at


cdef int64_t _stamp_writes(memory_t *m, const op_t *op, int64_t step, int64_t at) noexcept nogil:
    """Stamp what `op` writes; return the next `at`."""
    cdef const touch_t *touch
    cdef int64_t i, cell, version, newer
    for i in range(op.access0, op.access0 + op.n_access):
        touch = &m.touches[i]
        if not touch.write:
            continue
        version = m.expected[at & m.expected_mask]
        at += 1
        newer = version
        for cell in range(touch.cell0, touch.cell0 + touch.n_cells):
            newer = max(newer, m.present[cell])
            m.present[cell] = version
        if newer > version:
            _keep_harm(m, op, step, i - op.access0, version, newer)
    return at


# ---- taking effect ------------------------------------------------------------------------------

cdef int _run(memory_t *m, const op_t *op, int64_t step, const void *source) noexcept nogil:
    """Do what `op` does to the bytes."""
    cdef kernel_t kernel
    cdef int status
    if not m.compute:
        return STATUS_OK
    if op.kind == KIND_COPY:
        memmove(op.dst, source, op.nbytes)
        return STATUS_OK
    kernel = NULL if op.kernel == NO_KERNEL else m.kernels[op.kernel]
    status = STATUS_NO_KERNEL if kernel == NULL else kernel(
        <void **>op.dst, m.params[op.kernel], m.fault)
    if status != STATUS_OK:
        m.status = status
        m.fault_step = step
        m.fault_row = op - m.rows
    return status


cdef int64_t _effect(memory_t *m, const op_t *op, int64_t step, int64_t at,
                     int32_t staged) noexcept nogil:
    """Let one kernel, copy or host op take effect; return the next `at`."""
    cdef const void *source = op.src
    if staged >= 0:                        # its source was read when it was issued
        source = m.staging + staged * m.staging_nbytes
        at += m.touches[op.access0].n_cells
    else:
        at = _check_reads(m, op, step, at)
    if m.status == STATUS_OK:
        _run(m, op, step, source)
    return _stamp_writes(m, op, step, at)


cdef void _force_implicit(memory_t *m, int32_t stream, int64_t index) noexcept nogil:
    """Force what was issued before `index` on streams that `stream` is implicitly ordered with."""
    cdef int32_t other
    if m.stream_kind[stream] == STREAM_NONBLOCKING:
        return
    for other in range(m.n_streams):
        if (other != stream and m.stream_device[other] == m.stream_device[stream]
                and streams_ordered(m.stream_kind[stream], m.stream_kind[other])):
            while 0 <= m.stream_head[other] < index:
                _force(m, m.stream_head[other])


cdef void _force(memory_t *m, int64_t index) noexcept nogil:
    """Let a node and all before it in its stream take effect, and what they wait for."""
    cdef node_t *node
    cdef const op_t *members
    cdef int32_t stream = _node(m, index).stream
    cdef int64_t first, i, at
    while m.stream_head[stream] >= 0 and m.stream_head[stream] <= index:
        first = m.stream_head[stream]
        node = _node(m, first)
        m.stream_head[stream] = node.next
        if node.next < 0:
            m.stream_tail[stream] = -1
        _force_implicit(m, stream, first)
        if node.depends >= 0 and _is_pending(m, node.depends):
            _force(m, node.depends)
        if node.op.kind == KIND_GRAPH:
            members = <const op_t *>node.op.dst
            at = node.expected0
            for i in range(node.op.nbytes):
                at = _effect(m, &members[i], node.step, at, -1)
        elif node.op.kind == KIND_LAUNCH or node.op.kind == KIND_COPY:
            _effect(m, node.op, node.step, node.expected0, node.staged)
        if node.staged >= 0:
            m.staging_used[node.staged] = 0
        node.done = 1
    while m.oldest < m.n_nodes and _node(m, m.oldest).done:
        m.oldest += 1


cdef int64_t _append(memory_t *m, const op_t *op, int64_t step) noexcept nogil:
    """Queue `op` on its stream; return its node."""
    cdef int64_t index
    cdef node_t *node
    if m.n_nodes - m.oldest >= MAX_PENDING:
        _force(m, m.oldest)
    index = m.n_nodes
    node = _node(m, index)
    m.n_nodes += 1
    node.op = op
    node.step = step
    node.depends = -1
    node.next = -1
    node.stream = op.stream
    node.staged = -1
    node.done = 0
    if m.stream_tail[op.stream] >= 0:
        _node(m, m.stream_tail[op.stream]).next = index
    else:
        m.stream_head[op.stream] = index
    m.stream_tail[op.stream] = index
    return index


cdef void _reserve_versions(memory_t *m, const op_t *op) noexcept nogil:
    """Force old nodes until the versions of `op` fit into the ring."""
    cdef int64_t need = 0, i
    for i in range(op.access0, op.access0 + op.n_access):
        need += max(1, m.touches[i].n_cells)
    while (m.oldest < m.n_nodes
            and m.expected_head + need - _node(m, m.oldest).expected0 > m.expected_mask):
        _force(m, m.oldest)


cdef bint _is_staged(memory_t *m, const op_t *op) noexcept nogil:
    """Whether a copy has read its source, pageable memory, when the call returns."""
    cdef uint8_t source = m.memory[m.access_buffer[op.access0]]
    cdef uint8_t target = m.memory[m.access_buffer[op.access0 + 1]]
    if source != MEMORY_PAGEABLE or target < MEMORY_DEVICE:
        return False
    return op.flags & FLAG_BLOCKING or not m.strict


cdef bint _is_done_on_return(memory_t *m, const op_t *op) noexcept nogil:
    """Whether a copy is done when the call returns."""
    cdef uint8_t source = m.memory[m.access_buffer[op.access0]]
    cdef uint8_t target = m.memory[m.access_buffer[op.access0 + 1]]
    if op.flags & FLAG_BLOCKING:
        return target < MEMORY_DEVICE or source == MEMORY_PINNED
    return target == MEMORY_PAGEABLE and not m.strict


cdef void _stage(memory_t *m, node_t *node) noexcept nogil:
    """Read the source of a copy from pageable memory now, as its call does."""
    cdef int32_t slot = 0
    cdef const op_t *op = node.op
    while slot < MAX_STAGED and m.staging_used[slot]:
        slot += 1
    if slot == MAX_STAGED:
        return                             # the caller forces the copy instead: a legal order too
    m.staging_used[slot] = 1
    if m.compute:
        memcpy(m.staging + slot * m.staging_nbytes, op.src, op.nbytes)
    _check_source(m, op, node.step, node.expected0)
    node.staged = slot


cdef void _check_source(memory_t *m, const op_t *op, int64_t step, int64_t at) noexcept nogil:
    """Check the read of a copy whose bytes are read at issue."""
    cdef const touch_t *touch = &m.touches[op.access0]
    cdef int64_t cell
    for cell in range(touch.cell0, touch.cell0 + touch.n_cells):
        if m.present[cell] != m.expected[at & m.expected_mask]:
            _keep_harm(m, op, step, 0, m.expected[at & m.expected_mask], m.present[cell])
            return
        at += 1


cdef void _issue_host(memory_t *m, const op_t *op, int64_t step) noexcept nogil:
    cdef int64_t at
    _reserve_versions(m, op)
    at = m.expected_head
    _expect(m, op, at)
    _effect(m, op, step, at, -1)


cdef void _issue_device(memory_t *m, const op_t *op, int64_t step) noexcept nogil:
    cdef int64_t index, i, at
    cdef node_t *node
    cdef const op_t *members
    _reserve_versions(m, op)
    if op.kind == KIND_COPY and op.flags & FLAG_BLOCKING and _is_staged(m, op):
        _force_implicit(m, op.stream, m.n_nodes)
        if m.stream_tail[op.stream] >= 0:
            _force(m, m.stream_tail[op.stream])
    index = _append(m, op, step)
    node = _node(m, index)
    at = m.expected_head
    node.expected0 = at
    if op.kind == KIND_GRAPH:
        members = <const op_t *>op.dst
        for i in range(op.nbytes):
            at = _expect(m, &members[i], at)
    elif op.kind == KIND_LAUNCH or op.kind == KIND_COPY:
        at = _expect(m, op, at)
    elif op.kind == KIND_WAIT:
        if m.event_node[op.event] < 0:
            m.waits_without_effect += 1
        else:
            node.depends = m.event_node[op.event]
    else:
        m.event_node[op.event] = index
    m.expected_head = at
    if not m.late[op.stream] or (op.kind == KIND_COPY and _is_done_on_return(m, op)):
        _force(m, index)
    elif op.kind == KIND_COPY and _is_staged(m, op):
        _stage(m, node)
        if node.staged < 0:
            _force(m, index)


cdef int memory_issue(memory_t *m, const op_t *op, int64_t step) noexcept nogil:
    """Issue one op; return STATUS_OK or the status of a kernel that refused."""
    cdef int32_t other
    if op.kind == KIND_HOST:
        _issue_host(m, op, step)
    elif op.kind == KIND_SYNC:
        if op.scope == SCOPE_EVENT:
            if m.event_node[op.event] < 0:
                m.waits_without_effect += 1
            elif _is_pending(m, m.event_node[op.event]):
                _force(m, m.event_node[op.event])
        elif op.scope == SCOPE_DEVICE:
            for other in range(m.n_streams):
                if (m.stream_device[other] == m.stream_device[op.stream]
                        and m.stream_tail[other] >= 0):
                    _force(m, m.stream_tail[other])
        else:
            if m.stream_kind[op.stream] == STREAM_LEGACY:
                _force_implicit(m, op.stream, m.n_nodes)
            if m.stream_tail[op.stream] >= 0:
                _force(m, m.stream_tail[op.stream])
    else:
        _issue_device(m, op, step)
    return m.status


# ---- set-up -------------------------------------------------------------------------------------

def cells(program):
    """Divide the buffers that a program writes into cells at every begin and end of an access.

    Returns
    -------
    first, count : ndarray of int32, one entry per access
        The run of cells that each access covers; no cells for a buffer that nothing writes.
    n_cells : int
    """
    accesses = program.accesses
    slots = int(accesses["slot"].max(initial=0)) + 1
    place = accesses["buffer"].astype(np.int64) * slots + accesses["slot"]
    written = np.isin(place, place[accesses["write"] == 1])
    first = np.zeros(len(accesses), np.int32)
    count = np.zeros(len(accesses), np.int32)
    n_cells = 0
    for each in np.unique(place[written]):
        mine = np.flatnonzero(place == each)
        begin, end = accesses["begin"][mine], accesses["end"][mine]
        edges = np.unique(np.concatenate([begin, end]))
        first[mine] = n_cells + np.searchsorted(edges, begin)
        count[mine] = np.searchsorted(edges, end) - np.searchsorted(edges, begin)
        n_cells += len(edges) - 1
    return first, count, n_cells


cdef class Memory:
    """Bytes, queues and versions of one bound program.

    Parameters
    ----------
    program : Program
    rows : ndarray of OP
        Bound rows with addresses, members after ops.
    kernels : KernelTable
    late : sequence of bool
        Per stream of the program: late or early.
    compute : bool
        False: keep versions, leave the bytes alone.
    rules : str
        ``practical`` or ``strict``.
    """

    def __init__(self, program, rows, KernelTable kernels, late, bint compute,
                 str rules="practical"):
        streams = program.streams
        n_streams = len(streams)
        first, count, n_cells = cells(program)
        touches = np.zeros(
            len(program.accesses),
            np.dtype([("cell0", "<i4"), ("n_cells", "<i4"), ("write", "u1")], align=True),
        )
        touches["cell0"], touches["n_cells"] = first, count
        touches["write"] = program.accesses["write"]
        if touches.dtype.itemsize != sizeof(touch_t):
            raise AssertionError("touch_t and its dtype differ")
        if HARM.itemsize != sizeof(harm_t):
            raise AssertionError("harm_t and its dtype differ")
        per_graph = int(np.maximum(count, 1).sum())
        mask = (1 << max(16, (4 * per_graph).bit_length())) - 1
        from_pageable = [
            int(row["nbytes"])
            for row in rows[rows["kind"] == KIND_COPY]
            if self._memory_of(program, row, 0) == "pageable"
        ]
        self._arrays = {
            "program": program, "rows": rows, "kernels": kernels,
            "touches": touches,
            "issued": np.zeros(n_cells + 1, np.int64),
            "present": np.zeros(n_cells + 1, np.int64),
            "late": np.array([*map(bool, late), False], np.uint8),
            "head": np.full(n_streams + 1, -1, np.int64),
            "tail": np.full(n_streams + 1, -1, np.int64),
            "device": np.array([*(s.device for s in streams), -1], np.int32),
            "kind": np.array([*(STREAM_KINDS.index(s.kind) for s in streams), 0], np.uint8),
            "event": np.full(int(program.event_base[-1]) + 1, -1, np.int64),
            "nodes": np.zeros(MAX_PENDING * sizeof(node_t), np.uint8),
            "expected": np.zeros(mask + 1, np.int64),
            "staging": np.zeros(MAX_STAGED * max(from_pageable, default=0) + 1, np.uint8),
            "used": np.zeros(MAX_STAGED, np.uint8),
            "memory": np.array([*(MEMORY.index(b.memory) for b in program.buffers), 0], np.uint8),
            "buffer": np.append(program.accesses["buffer"], np.int32(-1)).astype(np.int32),
            "function": np.zeros(len(program.kernels) + 1, np.uintp),
            "params": np.zeros(len(program.kernels) + 1, np.uintp),
            "harms": np.zeros(len(touches) + 1, HARM),
            "kept": np.zeros(len(touches) + 1, np.uint8),
        }
        if len(late) != n_streams:
            raise ValueError(f"{len(late)} data orders for {n_streams} streams")
        for i, name in enumerate(program.kernels):
            if compute:
                position = kernels.position(name)
                self._arrays["function"][i] = <size_t><void *>kernels._function[position]
                self._arrays["params"][i] = <size_t>kernels._param[position]
        m = &self.state
        m.rows = <const op_t *>address(rows)
        m.touches = <const touch_t *>address(touches)
        m.issued = <int64_t *>address(self._arrays["issued"])
        m.present = <int64_t *>address(self._arrays["present"])
        m.late = <uint8_t *>address(self._arrays["late"])
        m.stream_head = <int64_t *>address(self._arrays["head"])
        m.stream_tail = <int64_t *>address(self._arrays["tail"])
        m.stream_device = <int32_t *>address(self._arrays["device"])
        m.stream_kind = <uint8_t *>address(self._arrays["kind"])
        m.n_streams = n_streams
        m.event_node = <int64_t *>address(self._arrays["event"])
        m.nodes = <node_t *>address(self._arrays["nodes"])
        m.expected = <int64_t *>address(self._arrays["expected"])
        m.expected_mask = mask
        m.staging = <uint8_t *>address(self._arrays["staging"])
        m.staging_nbytes = max(from_pageable, default=0)
        m.staging_used = <uint8_t *>address(self._arrays["used"])
        m.memory = <const uint8_t *>address(self._arrays["memory"])
        m.access_buffer = <const int32_t *>address(self._arrays["buffer"])
        m.kernels = <const kernel_t *>address(self._arrays["function"])
        m.params = <double **>address(self._arrays["params"])
        m.compute = compute
        m.strict = rules == "strict"
        m.harms = <harm_t *>address(self._arrays["harms"])
        m.is_kept = <uint8_t *>address(self._arrays["kept"])
        m.fault = &self._fault
        m.fault_step = m.fault_row = -1
        m.status = STATUS_OK

    @staticmethod
    def _memory_of(program, row, int position):
        access = program.accesses[row["access0"] + position]
        return program.buffers[access["buffer"]].memory

    def settle(self):
        """Take every byte for the newest: buffers were given new contents, nothing is pending."""
        self._arrays["present"][:] = self._arrays["issued"]

    def harms(self):
        """Return of each access its first stale read or wrong last write, in order of occurrence.

        Returns
        -------
        ndarray of HARM
            `expected` and `found` are versions: of a write its own, and the newer one there.
        """
        return self._arrays["harms"][: self.state.n_harms].copy()

    @property
    def counts(self):
        """Stale reads, wrong last writes and waits without effect so far."""
        return (self.state.stale_reads, self.state.wrong_last_writes,
                self.state.waits_without_effect)
