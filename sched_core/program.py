"""A Program is what is issued: numpy rows with the layout of the C structs of backend.pxd.

`unroll` makes one from a Plan and a sequence of phases; `tabulate` makes the cyclic table that
the executor runs.  Importers and conformance files make Programs directly, so that the analysis
has a single input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.errors import UsageError, nearest
from syncscope.sched_core.records import Access, Buffer, Event, Kind, Op, Plan, Stream

OP = np.dtype(
    [
        ("site", "<i4"),
        ("step", "<i4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("scope", "u1"),
        ("pad", "u1"),
        ("stream", "<i4"),
        ("event", "<i4"),
        ("graph", "<i4"),
        ("access0", "<i4"),
        ("n_access", "<u2"),
        ("kernel", "<u2"),
        ("thread", "<u4"),
        ("nbytes", "<i8"),
        ("dst", "<u8"),
        ("src", "<u8"),
    ],
    align=True,
)
"""One issued op.  `site` indexes `Program.sites`, `kernel` `Program.kernels`; `event` is an event
instance (`Program.event_base` plus slot); -1 where there is none.  Of a GRAPH row, `dst` is the
position of its first member in `Program.members` and `nbytes` how many there are.  Of a row with
a count, `src` is one more than the number of the count's buffer.  A backend replaces both by
addresses."""

ACCESS = np.dtype(
    [
        ("buffer", "<i4"),
        ("slot", "<u2"),
        ("write", "u1"),
        ("known", "u1"),
        ("begin", "<i8"),
        ("end", "<i8"),
    ]
)
"""One access; `known` 0 means assumed, not declared."""

assert OP.itemsize == 64 and ACCESS.itemsize == 24

BLOCKING, PDL, GRID_SYNC = 1, 2, 4
"""Bits of `flags`: a call that blocks the host; a kernel with programmatic dependent launch; one of
those that waits inside for the kernel before it."""

MEMORY = ("pinned", "pageable", "device", "managed")
SCOPES = ("stream", "event", "device")
NO_KERNEL = 0xFFFF
MAX_THREADS = 1024
"""Host threads that a Plan may have: the ordering keeps a clock for each."""
EAGER_STEPS = 2
"""Identical steps that llama.cpp runs before it captures them (#19754)."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a phase where an op is issued: the unit of tables and verdicts."""

    phase: str
    name: str
    kind: Kind
    scope: str = "stream"
    blocking: bool = False
    stream: str = ""
    origin: str = "baseline"


@dataclass(frozen=True, slots=True)
class Program:
    """Issued rows and what their numbers mean.

    Parameters
    ----------
    ops : ndarray of OP
        In issue order.
    members : ndarray of OP
        What captured graphs consist of; a GRAPH row names a run of them.
    accesses : ndarray of ACCESS
        A row's are ``accesses[access0 : access0 + n_access]``; a GRAPH row has its members'.
    sites, kernels : tuple
        What `site` and `kernel` of a row index.
    buffers, streams, events : tuple
    phases : tuple of str
        Phase of each step.
    step0 : ndarray of int64, shape (steps + 1,)
        First row of each step.
    """

    ops: npt.NDArray[Any]
    members: npt.NDArray[Any]
    accesses: npt.NDArray[Any]
    sites: tuple[Site, ...]
    kernels: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    streams: tuple[Stream, ...]
    events: tuple[Event, ...]
    phases: tuple[str, ...]
    step0: npt.NDArray[np.int64]

    @property
    def event_base(self) -> npt.NDArray[np.int64]:
        """First instance of each event; one more entry holds their number."""
        return np.cumsum([0, *(event.depth for event in self.events)], dtype=np.int64)

    @property
    def written(self) -> frozenset[str]:
        """Names of the buffers that an op writes."""
        numbers = np.unique(self.accesses["buffer"][self.accesses["write"] == 1])
        return frozenset(self.buffers[number].name for number in numbers)

    @property
    def n_threads(self) -> int:
        """Number of host threads: one more than the highest id."""
        return int(self.ops["thread"].max(initial=0)) + 1


def period(plan: Plan) -> int:
    """Return after how many steps slots repeat: the lcm of all depths."""
    return lcm(*(each.depth for each in plan.buffers), *(each.depth for each in plan.events))


@dataclass(slots=True)
class _Names:
    """Numbers for the names of one plan, and the sites and kernels met so far."""

    plan: Plan
    buffer: dict[str, int] = field(init=False)
    stream: dict[str, int] = field(init=False)
    event: dict[str, int] = field(init=False)
    event_base: list[int] = field(init=False)
    site: dict[tuple[str, str], int] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    kernel: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        self.buffer = {each.name: i for i, each in enumerate(plan.buffers)}
        self.stream = {each.name: i for i, each in enumerate(plan.streams)}
        self.event = {each.name: i for i, each in enumerate(plan.events)}
        self.event_base = [0]
        for each in plan.events:
            self.event_base.append(self.event_base[-1] + each.depth)

    def site_of(self, phase: str, op: Op) -> int:
        key = (phase, op.site)
        if key not in self.site:
            self.site[key] = len(self.sites)
            self.sites.append(
                Site(phase, op.site, op.kind, op.scope, op.blocking, op.stream, op.origin)
            )
        return self.site[key]

    def event_instance(self, name: str, step: int) -> int:
        index = self.event[name]
        return self.event_base[index] + step % self.plan.events[index].depth


@dataclass(frozen=True, slots=True)
class _Step:
    """The rows of one step; positions count from 0, accesses move by `stride` bytes a step."""

    ops: npt.NDArray[Any]
    members: npt.NDArray[Any]
    accesses: npt.NDArray[Any]
    stride: npt.NDArray[np.int64]


def _access_row(names: _Names, access: Access, step: int) -> tuple[tuple[int, ...], int]:
    index = names.buffer[access.buffer]
    buffer = names.plan.buffers[index]
    end = buffer.nbytes if access.end < 0 else access.end
    if not 0 <= access.begin <= end <= buffer.nbytes:
        raise UsageError(
            f"buffer {access.buffer}: bytes {access.begin}..{end} lie outside its {buffer.nbytes}"
        )
    slot = (step + access.slot_offset) % buffer.depth
    return (index, slot, int(access.write), 1, access.begin, end), access.step_stride


def _check_plan(plan: Plan) -> None:
    """Refuse what cannot become rows, with a UsageError that says where it stands."""
    depths = [(f"buffer {each.name}", each.depth) for each in plan.buffers]
    for what, depth in depths + [(f"event {each.name}", each.depth) for each in plan.events]:
        if depth < 1:
            raise UsageError(f"{what}: depth {depth} is below 1")
    known = {
        "buffer": {each.name for each in plan.buffers},
        "stream": {each.name for each in plan.streams} | {""},
        "event": {each.name for each in plan.events} | {""},
        "scope": set(SCOPES),
    }
    for phase, ops in plan.phases.items():
        sites: set[str] = set()
        for op in ops:
            if op.site in sites:
                raise UsageError(f"{phase}:{op.site}: two ops of this phase have this site")
            sites.add(op.site)
            _check_op(phase, op, known)


def _check_op(phase: str, op: Op, known: Mapping[str, Collection[str]]) -> None:
    """Refuse unknown names, and an op without what its kind works on: backends trust the rows."""
    used = [("stream", op.stream), ("event", op.event), ("scope", op.scope)]
    used += [("buffer", each.buffer) for each in op.accesses]
    used += [("buffer", op.count)] if op.count else []
    for what, name in used:
        if name not in known[what]:
            near = nearest(name, sorted(filter(None, known[what])))
            raise UsageError(f"{phase}:{op.site}: unknown {what} {name}; {near}")
    if not 0 <= op.thread < MAX_THREADS:
        raise UsageError(f"{phase}:{op.site}: thread {op.thread} lies outside 0..{MAX_THREADS - 1}")
    on_event = op.kind in (Kind.RECORD, Kind.WAIT) or op.scope == "event"
    on_stream = op.kind != Kind.HOST and not (op.kind == Kind.SYNC and on_event)
    lacks = {
        "a stream": on_stream and not op.stream,
        "an event": on_event and not op.event,
        "a source, then a target": op.kind == Kind.COPY
        and [each.write for each in op.accesses] != [False, True],
    }
    for what in (each for each, is_lacking in lacks.items() if is_lacking):
        raise UsageError(f"{phase}:{op.site}: {op.kind.name} without {what}")


def _step_rows(names: _Names, phase: str, step: int, replay: bool) -> _Step:
    """Rows of one step; with `replay` each captured graph is one GRAPH row, else its members."""
    ops: list[tuple[int, ...]] = []
    members: list[tuple[int, ...]] = []
    accesses: list[tuple[int, ...]] = []
    strides: list[int] = []
    open_graph = -1
    for op in names.plan.phases[phase]:
        if op.kind == Kind.GRAPH and not replay:
            continue
        access0 = len(accesses)
        for access in op.accesses:
            row, stride = _access_row(names, access, step)
            accesses.append(row)
            strides.append(stride)
        is_member = replay and op.graph >= 0 and op.kind != Kind.GRAPH
        sizes = [end - begin for *_, begin, end in accesses[access0:]]
        if op.kind == Kind.COPY and sizes[0] != sizes[1]:
            raise UsageError(f"{phase}:{op.site}: copies {sizes[0]} bytes onto {sizes[1]}")
        nbytes = sizes[0] if op.kind == Kind.COPY else sum(sizes)
        fields = (
            names.site_of(phase, op),
            step,
            int(op.kind),
            BLOCKING if op.blocking else 0,
            SCOPES.index(op.scope),
            0,
            names.stream[op.stream] if op.stream else -1,
            names.event_instance(op.event, step) if op.event else -1,
            op.graph,
            access0,
            len(accesses) - access0,
            names.kernel.setdefault(op.kernel, len(names.kernel)) if op.kernel else NO_KERNEL,
            op.thread,
            nbytes,
            len(members) if op.kind == Kind.GRAPH else 0,
            names.buffer[op.count] + 1 if op.count else 0,
        )
        if is_member:
            if op.graph != open_graph:
                raise UsageError(f"{phase}:{op.site}: graph {op.graph} has no GRAPH op before it")
            members.append(fields)
            head = ops[-1]
            ops[-1] = (*head[:10], len(accesses) - head[9], *head[11:13], head[13] + 1, *head[14:])
        else:
            open_graph = op.graph if op.kind == Kind.GRAPH else -1
            ops.append(fields)
    return _Step(
        np.array(ops, dtype=OP),
        np.array(members, dtype=OP),
        np.array(accesses, dtype=ACCESS),
        np.array(strides, dtype=np.int64),
    )


def _assemble(names: _Names, steps: Iterable[tuple[int, str, _Step]]) -> Program:
    """Join the rows of steps, each given with its number and phase."""
    ops: list[npt.NDArray[Any]] = []
    members: list[npt.NDArray[Any]] = []
    accesses: list[npt.NDArray[Any]] = []
    phases: list[str] = []
    step0 = [0]
    n_members = n_accesses = 0
    graph_kind = int(Kind.GRAPH)
    for number, phase, step in steps:
        rows, parts, touched = step.ops.copy(), step.members.copy(), step.accesses
        rows["step"] = number
        parts["step"] = number
        rows["access0"] += n_accesses
        parts["access0"] += n_accesses
        rows["dst"][rows["kind"] == graph_kind] += np.uint64(n_members)
        if step.stride.any():
            touched = touched.copy()
            touched["begin"] += number * step.stride
            touched["end"] += number * step.stride
            size = np.array([each.nbytes for each in names.plan.buffers])[touched["buffer"]]
            for row in touched[(touched["begin"] < 0) | (touched["end"] > size)][:1]:
                raise UsageError(
                    f"buffer {names.plan.buffers[row['buffer']].name}, step {number}: bytes "
                    f"{row['begin']}..{row['end']} lie outside it"
                )
        n_members += len(parts)
        n_accesses += len(touched)
        ops.append(rows)
        members.append(parts)
        accesses.append(touched)
        phases.append(phase)
        step0.append(step0[-1] + len(rows))
    plan = names.plan
    return Program(
        ops=np.concatenate([np.zeros(0, OP), *ops]),
        members=np.concatenate([np.zeros(0, OP), *members]),
        accesses=np.concatenate([np.zeros(0, ACCESS), *accesses]),
        sites=tuple(names.sites),
        kernels=tuple(names.kernel),
        buffers=plan.buffers,
        streams=plan.streams,
        events=plan.events,
        phases=tuple(phases),
        step0=np.array(step0, dtype=np.int64),
    )


def replay_begins(plan: Plan, phase: str) -> int:
    """Return after how many steps of a phase in a row its graphs are replayed.

    Each slot that the members touch has a graph of its own, captured once its own two identical
    steps have run.
    """
    depths = [1]
    depth = {each.name: each.depth for each in plan.buffers}
    for op in plan.phases[phase]:
        if op.graph >= 0:
            depths += [depth[access.buffer] for access in op.accesses]
    return EAGER_STEPS * lcm(*depths)


def unroll(plan: Plan, phases: Sequence[str]) -> Program:
    """Issue a plan over a sequence of phases; step ``n`` runs ``phases[n]``.

    Raises
    ------
    UsageError
        For a plan that cannot be issued: an unknown name, a site that is twice in a phase, a range
        outside its buffer, a graph member without its GRAPH op.
    """
    _check_plan(plan)
    names = _Names(plan)
    cycle = period(plan)
    cache: dict[tuple[str, int, bool], _Step] = {}
    warm = {phase: replay_begins(plan, phase) for phase in set(phases)}
    steps: list[tuple[int, str, _Step]] = []
    run = 0
    for number, phase in enumerate(phases):
        run = run + 1 if number and phases[number - 1] == phase else 1
        key = (phase, number % cycle, run > warm[phase])
        if key not in cache:
            cache[key] = _step_rows(names, *key)
        steps.append((number, phase, cache[key]))
    return _assemble(names, steps)


@dataclass(frozen=True, slots=True)
class Block:
    """Where the table holds a phase: step ``n`` begins at row ``row0 + n % period * n_ops``."""

    row0: int
    n_ops: int


@dataclass(frozen=True, slots=True)
class Table:
    """The cyclic table of a plan: every phase, eager and replayed, over one period of slots."""

    program: Program
    period: int
    blocks: dict[tuple[str, bool], Block]
    replay_begins: dict[str, int]


def tabulate(plan: Plan) -> Table:
    """Unroll each phase of a plan over one period, once eager and once with graphs replayed.

    A row serves many steps: it carries step 0, and ranges stay where they are in step 0.

    Raises
    ------
    UsageError
        As `unroll`.
    """
    _check_plan(plan)
    names = _Names(plan)
    cycle = period(plan)
    steps: list[tuple[int, str, _Step]] = []
    blocks: dict[tuple[str, bool], Block] = {}
    row0 = 0
    for phase in plan.phases:
        for replay in (False, True):
            block = [_step_rows(names, phase, residue, replay) for residue in range(cycle)]
            steps += [(0, phase, each) for each in block]
            blocks[phase, replay] = Block(row0, len(block[0].ops))
            row0 += sum(len(each.ops) for each in block)
    return Table(
        program=_assemble(names, steps),
        period=cycle,
        blocks=blocks,
        replay_begins={phase: replay_begins(plan, phase) for phase in plan.phases},
    )
