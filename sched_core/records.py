"""Records of a Plan: what is issued, on what, in which order, and what it touches.

A Plan is the template that passes edit, JSON keeps and people read: a few hundred frozen
records per phase.  What is issued (numpy rows, up to millions) is a `program.Program`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

PHASES = ("prompt", "prompt_last", "decode")
"""Phases of a run: every prompt micro-batch but the last, the last one (it has logits), a token."""


class Kind(IntEnum):
    """What an op does; the first seven are the verbs of a backend, the rest occur in Programs only.

    `WAIT` is a stream waiting for an event, `SYNC` the host waiting for a stream, an event or a
    device.
    """

    HOST = 0
    LAUNCH = 1
    COPY = 2
    RECORD = 3
    WAIT = 4
    SYNC = 5
    GRAPH = 6
    MEMSET = 7
    ALLOC = 8
    FREE = 9
    QUERY = 10
    EXT = 11


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named range of memory, `depth` slots of `nbytes` each.

    Parameters
    ----------
    name : str
    nbytes : int
        Size of one slot.
    memory : str
        ``pinned``, ``pageable``, ``device`` or ``managed``.
    device : int
        Owner of device memory; -1 for host memory.
    depth : int
        Number of slots; step ``n`` uses slot ``(n + slot_offset) % depth``.
    """

    name: str
    nbytes: int
    memory: str
    device: int = -1
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """An in-order queue of one device.

    `kind` is ``nonblocking``, ``blocking``, ``legacy_default`` or ``per_thread_default``; it
    decides the implicit ordering with the device's legacy default stream.
    """

    name: str
    device: int
    kind: str


@dataclass(frozen=True, slots=True)
class Event:
    """A mark in a stream's order; `depth` slots, chosen by step as a buffer's are."""

    name: str
    device: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Access:
    """One op's use of one byte range of one buffer.

    In step ``n`` the range is bytes ``[begin, end) + n * step_stride`` of slot
    ``(n + slot_offset) % depth``.  ``end`` -1 means the whole buffer.  The accesses of an op with
    a kernel stand in the order of the kernel's arguments; the argument's address is the slot's
    base plus `begin` (`step_stride` moves the range that is analysed, never the address).
    """

    buffer: str
    write: bool
    begin: int = 0
    end: int = -1
    slot_offset: int = 0
    step_stride: int = 0


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a phase.

    Parameters
    ----------
    site : str
        Stable dotted name, unique in its phase.
    kind : Kind
    stream, event : str
        Names; empty where the kind has none.
    accesses : tuple of Access
        What is read and written.  A copy has the source first, then the destination.
    kernel : str
        Name of the kernel instance that a HOST or LAUNCH op runs.
    blocking : bool
        A copy that returns to the host only when it is done.
    scope : str
        What a SYNC waits for: ``stream``, ``event`` or ``device``.
    graph : int
        Member of that captured graph, -1 for none.  A GRAPH op carries the id of the members
        it stands for; they follow it.
    count : str
        Host buffer (one int64) that is read when a HOST or LAUNCH op is issued; 0 skips the op.
    thread : int
        Host thread that issues it.
    origin : str
        The pass that made it, ``baseline`` if none did.
    replaces : tuple of str
        Sites whose duty it takes over, closed transitively.
    """

    site: str
    kind: Kind
    stream: str = ""
    event: str = ""
    accesses: tuple[Access, ...] = ()
    kernel: str = ""
    blocking: bool = False
    scope: str = "stream"
    graph: int = -1
    count: str = ""
    thread: int = 0
    origin: str = "baseline"
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Buffers, streams, events, and the ops of each phase.

    `passes` lists what was applied, as ``id`` or ``id=value``, in order.
    """

    buffers: tuple[Buffer, ...]
    streams: tuple[Stream, ...]
    events: tuple[Event, ...]
    phases: Mapping[str, tuple[Op, ...]]
    passes: tuple[str, ...] = ()

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name; KeyError if there is none."""
        for record in self.buffers:
            if record.name == name:
                return record
        raise KeyError(name)

    def op(self, phase: str, site: str) -> Op:
        """Return the op at a site of a phase; KeyError if there is none."""
        for record in self.phases[phase]:
            if record.site == site:
                return record
        raise KeyError(f"{phase}:{site}")


VERDICTS = (
    "required",
    "required-for-reuse",
    "interchangeable",
    "demotable",
    "redundant",
    "unknown",
)


@dataclass(frozen=True, slots=True)
class Node:
    """A moment of an issued op, for paths of reasons.

    `role` is ``call`` (the host issues it; of a host op and of a host wait the whole of it),
    ``exec`` (the device does it) or ``return`` (the call of a copy that waited comes back).
    """

    step: int
    site: str
    role: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What the ordering analysis says of one sync site of one phase.

    Parameters
    ----------
    phase, site : str
    verdict : str
        One of `VERDICTS`.
    alone_safe : bool
        Whether dropping just this one, of all that is there, makes no hazard.
    covered_by : tuple of str
        Of a redundant site: the kept sites, as ``phase:site``, that order what it orders.
    alternatives : tuple of str
        Of a kept site: dropped sites that could each stand in for it.
    weaker : str
        Of a kept site: the weaker primitive that is enough, in words; empty if none is.
    first, second : Node or None
        The two accesses: of a kept site the hazard that its absence makes, of a redundant one a
        pair that it would order by itself.  None if it orders nothing that conflicts.
    hazard : str
        ``RAW``, ``WAR`` or ``WAW`` of that pair, or empty.
    buffer : str
    begin, end : int
        The bytes of the buffer that both touch.
    path : tuple of Node
        Of a redundant site: from `first` to `second` by edges of the kept set alone.
    edges : tuple of str
        Of each edge of the path the rule that makes it, a key of `path.EDGES`.
    slots : int
        Of a site required for reuse: how many steps the slots of its buffer keep apart.
    rules : str
        The rule set, ``practical`` or ``strict``.
    """

    phase: str
    site: str
    verdict: str
    alone_safe: bool
    covered_by: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    weaker: str = ""
    first: Node | None = None
    second: Node | None = None
    hazard: str = ""
    buffer: str = ""
    begin: int = 0
    end: int = 0
    path: tuple[Node, ...] = ()
    edges: tuple[str, ...] = ()
    slots: int = 0
    rules: str = "practical"


@dataclass(frozen=True, slots=True)
class Missing:
    """Two conflicting accesses that nothing orders, and the cheapest sync that would."""

    hazard: str
    buffer: str
    begin: int
    end: int
    first: Node
    second: Node
    rules: str
    fix: str


@dataclass(frozen=True, slots=True)
class Diff:
    """What a pass did to one phase, by site.

    `replaced_by` maps a removed site to the site that took over its duty; `anchor` maps a removed
    site to the last site before it that is still there (empty: the start of the step), which is
    where a view draws the ghost.
    """

    removed: tuple[str, ...]
    added: tuple[str, ...]
    changed: tuple[str, ...]
    replaced_by: Mapping[str, str]
    anchor: Mapping[str, str]


def diff(before: tuple[Op, ...], after: tuple[Op, ...]) -> Diff:
    """Compare two versions of one phase's ops by site."""
    old = {op.site: op for op in before}
    new = {op.site: op for op in after}
    anchor: dict[str, str] = {}
    last = ""
    for op in before:
        if op.site in new:
            last = op.site
        else:
            anchor[op.site] = last
    return Diff(
        removed=tuple(site for site in old if site not in new),
        added=tuple(site for site in new if site not in old),
        changed=tuple(site for site in new if site in old and old[site] != new[site]),
        replaced_by={
            site: op.site for op in after for site in op.replaces if site in old and site not in new
        },
        anchor=anchor,
    )
