"""Small plans: written by hand, of a toy graph, or of a real small model; and a way to run them.

A hand-written phase is one statement per line (or ``;``), an optional site in front::

    write: host fill w hp        # host work: kernel name, then r BUFFER or w BUFFER
    s copy hp dp                 # stream s; copy! blocks, buffers may have a range: dp[0:8]
    s k30 r dp w dq[8:16]        # a kernel on s; the name k30 costs 30 ns on PROFILE
    s record e; t wait e
    sync s; sync e; sync dev.s   # the host waits for a stream, an event, the device of a stream

``[0:8]`` may be followed by ``@1`` (slot offset) and ``+4`` (bytes per step).  Buffers come from
their first letter: h pinned, p pageable, d device; a digit in second place is the device (d1x).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from syncscope.kernels.transformer import ModelConfig, build_graph
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.costs import Work
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.graph import HOST, Graph, Node, Tensor, Use
from syncscope.sched_core.passes.cuda_graph import CUDA_GRAPH
from syncscope.sched_core.passes.registry import PASSES, parse_pass
from syncscope.sched_core.planner import plan_baseline
from syncscope.sched_core.profile import Profile
from syncscope.sched_core.recorder import SpanRing
from syncscope.sched_core.records import Access, Buffer, Event, Kind, Op, Plan, Stream
from syncscope.sched_core.sim_backend import SimBackend

# ---- a real small model and a toy one -----------------------------------------------------------

CONFIG = ModelConfig(n_layers=2, D=8, H=2, G=1, S=4, F=12, V=16, context=32, dtype="f32")
N_KV, CAPACITY = 16, 20
SIZES: Mapping[str, int] = {"prompt": 4, "prompt_last": 3, "decode": 1}
INPUTS = ("embd", "pos", "k_idxs", "v_idxs", "mask", "out_ids")


def model_plan(*passes: str, sizes: Mapping[str, int] = SIZES) -> Plan:
    """Plan the small model, with passes applied as `chain` does."""
    baseline = plan_baseline(
        {phase: build_graph(CONFIG, size, N_KV, CAPACITY) for phase, size in sizes.items()}
    )
    return chain(baseline, *passes)


def chain(plan: Plan, *requested: str) -> Plan:
    """Apply passes, with what they need, and nothing else: no check, and all guards stay."""
    values = dict(map(parse_pass, requested))
    for name in reversed(PASSES):
        if name in values:
            values = {**dict(map(parse_pass, PASSES[name].needs)), **values}
    for name, each in PASSES.items():
        if name in values:
            plan = each.apply(plan, values[name])
    return plan


def toy_graph(*homes: int) -> Graph:
    """Make a chain of nodes, one per home; each reads the user input and the node before it."""
    tensors = [Tensor("ids", 8, "input", HOST), Tensor("w", 64, "weight", 0)]
    nodes = []
    for i, home in enumerate(homes):
        tensors.append(Tensor(f"x{i}", 32, "activation", home))
        before = (Use(f"x{i - 1}", False),) if i else ()
        nodes.append(Node(f"n{i}", "k", (*before, Use("ids", False), Use(f"x{i}", True)), home))
    writer = Node("input.ids.write", "k", (Use("ids", True),), HOST)
    return Graph(tuple(tensors), (writer,), tuple(nodes), f"x{len(homes) - 1}", ())


# ---- plans written by hand ----------------------------------------------------------------------

_ACCESS = re.compile(r"(\w+)(?:\[(\d+):(\d+)\])?(?:@(\d+))?(?:\+(\d+))?")
_MEMORY = {"h": "pinned", "p": "pageable", "d": "device"}


def access(text: str, write: bool) -> Access:
    """Read ``buffer[begin:end]@slot_offset+step_stride``; all but the buffer may be left out."""
    match = _ACCESS.fullmatch(text)
    assert match, f"not an access: {text}"
    name, begin, end, offset, stride = match.groups()
    return Access(name, write, int(begin or 0), int(end or -1), int(offset or 0), int(stride or 0))


def _uses(words: list[str]) -> tuple[Access, ...]:
    return tuple(
        access(name, letter == "w") for letter, name in zip(words[::2], words[1::2], strict=True)
    )


def parse_op(statement: str, site: str, streams: Iterable[str]) -> Op:
    """Read one statement."""
    actor, verb, *words = statement.split()
    if actor == "host":
        return Op(site, Kind.HOST, kernel=verb, accesses=_uses(words))
    if actor == "sync":
        if verb.startswith("dev."):
            return Op(site, Kind.SYNC, verb.removeprefix("dev."), scope="device")
        if verb in streams:
            return Op(site, Kind.SYNC, verb)
        return Op(site, Kind.SYNC, event=verb, scope="event")
    assert actor in streams, f"no stream {actor}"
    if verb in ("copy", "copy!"):
        source, target = words
        pair = (access(source, False), access(target, True))
        return Op(site, Kind.COPY, actor, accesses=pair, blocking=verb == "copy!")
    if verb in ("record", "wait"):
        return Op(site, Kind.RECORD if verb == "record" else Kind.WAIT, actor, words[0])
    return Op(site, Kind.LAUNCH, actor, kernel=verb, accesses=_uses(words))


def parse_ops(text: str, streams: Iterable[str]) -> tuple[Op, ...]:
    """Read the statements of a phase; a site that is not given is the statement's number."""
    ops = []
    for number, line in enumerate(filter(None, map(str.strip, re.split(r"[;\n]", text)))):
        site, colon, statement = line.partition(": ")
        ops.append(parse_op(statement if colon else line, site if colon else f"{number}", streams))
    return tuple(ops)


def make_plan(
    phases: str | Mapping[str, str],
    streams: str = "s t",
    nbytes: int = 16,
    depth: Mapping[str, int] | None = None,
    graphs: bool = False,
) -> Plan:
    """Make a plan from statements.

    `streams` are ``name[:kind][@device]``, non-blocking on device 0 unless said otherwise;
    `depth` gives buffers and events more than one slot; `graphs` captures runs of kernels.
    """
    depth = depth or {}
    records = []
    for text in streams.split():
        name, _, device = text.partition("@")
        name, _, kind = name.partition(":")
        records.append(Stream(name, int(device or 0), kind or "nonblocking"))
    names = [each.name for each in records]
    parsed = {
        phase: parse_ops(text, names)
        for phase, text in ({"decode": phases} if isinstance(phases, str) else phases).items()
    }
    ops = [op for phase in parsed.values() for op in phase]
    used = dict.fromkeys(each.buffer for op in ops for each in op.accesses)
    home = {each.name: each.device for each in records}
    events = {op.event: home.get(op.stream, 0) for op in ops if op.event}
    plan = Plan(
        buffers=tuple(
            Buffer(name, nbytes, _MEMORY[name[0]], _device_of(name), depth.get(name, 1))
            for name in used
        ),
        streams=tuple(records),
        events=tuple(Event(name, at, depth.get(name, 1)) for name, at in events.items()),
        phases=parsed,
    )
    return CUDA_GRAPH.apply(plan, 0) if graphs else plan


def _device_of(buffer: str) -> int:
    if buffer[0] != "d":
        return -1
    return int(buffer[1]) if buffer[1:2].isdigit() else 0


# ---- running them -------------------------------------------------------------------------------

PROFILE = Profile(
    name="test", device_name="test", status="estimated", source="round numbers for sums by hand",
    host_ns=0, host_bytes_per_ns=1e9, host_macs_per_ns=1,
    launch_call_ns=10, launch_start_ns=5, launch_gap_ns=0,
    graph_call_ns=20, graph_call_per_node_ns=1, graph_start_ns=7,
    kernels={}, kernel_ns=0, l2_load_ns=1, memory_load_ns=2, l2_nbytes=1000,
    device_bytes_per_ns=1e9, device_macs_per_ns=1,
    copy_call_ns=4, copy_start_ns=2, inline_nbytes=0, inline_bytes_per_ns=1, inline_ns=1,
    h2d_ns=30, h2d_bytes_per_ns=1, d2h_ns=30, d2h_bytes_per_ns=2, switch_ns=0,
    pageable_call_ns=9, pageable_bytes_per_ns=4,
    record_call_ns=1, wait_call_ns=1, sync_call_ns=3, sync_return_ns=6,
)  # fmt: skip
"""Kernels named ``k<number>`` take that many ns; a copy takes 30 and 1 per byte (D2H 1/2)."""


def named_costs(plan: Plan) -> KernelTable:
    """Return a table that holds no functions, only the cost that each name ``k<number>`` says."""
    table = KernelTable()
    for ops in plan.phases.values():
        for op in ops:
            if re.fullmatch(r"k\d+", op.kernel):
                table.work[op.kernel] = Work(macs=float(op.kernel[1:]))
    return table


def run_by_hand(
    plan: Plan,
    phases: Iterable[str] = ("decode",),
    late: Iterable[str] = (),
    ring: SpanRing | None = None,
    profile: Profile = PROFILE,
) -> tuple[SimBackend, Engine]:
    """Run steps of a hand-written plan without computing, drain, and return what ran it."""
    backend = SimBackend(profile, named_costs(plan), tuple(late), compute=False)
    engine = Engine(backend, plan, ring)
    for phase in phases:
        engine.run(phase, 1)
    engine.drain()
    return backend, engine


def without(plan: Plan, *sites: str) -> Plan:
    """Remove ops by site from every phase."""
    return replace(
        plan,
        phases={
            phase: tuple(op for op in ops if op.site not in sites)
            for phase, ops in plan.phases.items()
        },
    )
