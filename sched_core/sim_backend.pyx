"""The simulated device: virtual time (machine) and real data (memory) behind the verbs."""
import numpy as np

from libc.stdint cimport int64_t

from syncscope.sched_core.backend cimport (
    N_VERBS,
    Backend,
    KernelTable,
    op_t,
)
from syncscope.sched_core.machine cimport Machine, machine_issue
from syncscope.sched_core.memory cimport Memory, memory_issue
from syncscope.sched_core.recorder cimport SpanRing

from syncscope.sched_core.costs import row_costs
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.records import Kind


cdef int _issue(void *self, const op_t *op, int64_t step) noexcept nogil:
    cdef sim_t *sim = <sim_t *>self
    machine_issue(sim.machine, op, step)
    return memory_issue(sim.memory, op, step)


cdef int64_t _now_ns(void *self) noexcept nogil:
    return (<sim_t *>self).machine.host_now[0]


cdef class SimBackend(Backend):
    """A device of a profile, in virtual time, with the host kernels computing the data.

    Parameters
    ----------
    profile : Profile
    kernels : KernelTable
    late : collection of str
        Names of the streams whose ops take effect late; the others are early.  Set anew, it holds
        from the next `bind` on.
    compute : bool
        False: time the program and keep versions, but compute nothing.
    rules : str
        Which rules data obeys, ``practical`` or ``strict``.
    """

    def __init__(self, profile, KernelTable kernels, late=(), bint compute=True,
                 str rules="practical"):
        cdef int kind
        self.profile = profile
        self.kernels = kernels
        self.late = frozenset(late)
        self.compute = compute
        self.rules = rules
        self._slots = {}
        self._contents = {}
        self._arguments = []
        self.machine = None
        self.memory = None
        for kind in range(N_VERBS):
            self.vt.verb[kind] = _issue
        self.vt.now_ns = _now_ns
        self.state = &self.sim

    def load(self, contents):
        """Give buffers their first contents by name (weights, the prompt); arrays are not copied.

        The bytes of a buffer that is written must be writable.
        """
        for name, array in contents.items():
            self._contents[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def bind(self, program, SpanRing recorder):
        """Give every buffer memory, keep what it held before, and fill in the addresses.

        Nothing may be pending: drain the program that was bound before.
        """
        before = 0 if self.machine is None else self.machine.now_ns
        if self.memory is not None:
            for i, count in enumerate(self.memory.counts):
                self._counted[i] += count
        self.set_rows(program)
        self._allocate(program.buffers)
        if self.compute:
            self._resolve(program)
        members = self.rows["kind"][: self.n_ops] == Kind.GRAPH
        self.rows["dst"][: self.n_ops][members] = (
            self.rows.ctypes.data
            + (len(program.ops) + program.ops["dst"][members]) * self.rows.dtype.itemsize
        )
        costs = row_costs(program, self.profile, self.kernels.work)
        self.machine = Machine(program, self.rows, costs, recorder)
        self.machine.begin_at(before)
        late = [stream.name in self.late for stream in program.streams]
        self.memory = Memory(
            program, self.rows, self.kernels, late, self.compute, self.rules
        )
        self.memory.state.fault = &self.fault
        self.sim.machine = &self.machine.state
        self.sim.memory = &self.memory.state
        self._program = program

    cdef object _allocate(self, buffers):
        slots = {}
        for buffer in buffers if self.compute else ():
            for slot in range(buffer.depth):
                kept = self._slots.get((buffer.name, slot))
                if kept is None and slot == 0:
                    kept = self._contents.get(buffer.name)
                if kept is None:
                    kept = np.zeros(buffer.nbytes, np.uint8)
                if kept.nbytes != buffer.nbytes:
                    raise UsageError(
                        f"buffer {buffer.name} has {buffer.nbytes} B, its contents {kept.nbytes} B"
                    )
                slots[buffer.name, slot] = kept
        self._slots = slots

    cdef object _resolve(self, program):
        """Fill in copy addresses, argument arrays and counts."""
        names = [buffer.name for buffer in program.buffers]
        addresses = np.array(
            [
                self._slots[names[access["buffer"]], int(access["slot"])].ctypes.data
                + int(access["begin"])
                for access in program.accesses
            ],
            dtype=np.uintp,
        )
        self._arguments = [addresses]
        rows = self.rows
        source = np.concatenate([program.ops["src"], program.members["src"]])
        first = rows["access0"].astype(np.int64)
        copies = rows["kind"] == Kind.COPY
        rows["src"][copies] = addresses[first[copies]]
        rows["dst"][copies] = addresses[first[copies] + 1]
        kernels = (rows["kind"] == Kind.HOST) | (rows["kind"] == Kind.LAUNCH)
        rows["dst"][kernels] = addresses.ctypes.data + first[kernels] * addresses.itemsize
        for i in np.flatnonzero(kernels & (source > 0)):
            rows["src"][i] = self._slots[names[source[i] - 1], 0].ctypes.data

    def reset(self, contents):
        """Let every buffer that the program writes hold `contents`, by name, or zeros again.

        Nothing may be pending.
        """
        self.load(contents)
        written = self._program.written
        for (name, slot), array in self._slots.items():
            if name in written:
                array[:] = self._contents.get(name, 0) if slot == 0 else 0
        self.memory.settle()

    def read(self, name, slot=0):
        """Return a copy of the bytes of a buffer; pending ops have not taken effect."""
        return self._slots[name, slot].copy()

    def peek(self, name):
        """Return a copy of the bytes of a host buffer as they are now."""
        return self._slots[name, 0].copy()

    @property
    def counts(self):
        """Stale reads, wrong last writes and waits without effect, over all bound programs."""
        now = (0, 0, 0) if self.memory is None else self.memory.counts
        return tuple(self._counted[i] + now[i] for i in range(3))

    def stale_reads(self):
        """Return (step, phase, site, buffer) of the stale reads of the bound program.

        The first of each access of each row, in order of occurrence.
        """
        return self._harms(False)

    def wrong_writes(self):
        """Return (step, phase, site, buffer) of the wrong last writes, as `stale_reads` does."""
        return self._harms(True)

    cdef list _harms(self, bint write):
        harms = self.memory.harms()
        found = []
        for each in harms[harms["write"] == write]:
            row = self.rows[each["row"]]
            site = self._program.sites[row["site"]]
            access = self._program.accesses[row["access0"] + each["access"]]
            buffer = self._program.buffers[access["buffer"]].name
            found.append((int(each["step"]), site.phase, site.name, buffer))
        return found

    def raise_fault(self, program, int status):
        """Turn the status of a failed verb into its exception."""
        self.fault_step = self.memory.state.fault_step
        self.fault_row = self.memory.state.fault_row
        Backend.raise_fault(self, program, status)

    def close(self):
        """Give back the memory."""
        Backend.close(self)
        self._slots = {}
        self._contents = {}
