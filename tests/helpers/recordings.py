"""Runs whose plan changes, as traces and as batches, and what a slow look says of their spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from syncscope.app.changes import plan_change
from syncscope.app.devices import SimDevice
from syncscope.app.gui.categories import CATEGORIES, VERDICT_CATEGORY
from syncscope.app.gui.recording import Recording
from syncscope.app.live_batch import LiveBatch, PlanChange
from syncscope.app.report.site_table import SYNC_KINDS, site_kind
from syncscope.app.variants import Planned, Variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.passes.registry import Applied
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.program import Site
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Access, Buffer, Event, Kind, Op, Plan, Stream, diff
from syncscope.sched_core.trace import Lane, Trace

CALL, EXEC = 0, 1

DEVICE = SimDevice(load_profile("h200"), compute=False)
HEADER = {"simulated": True, "base_ns": 0, "device": DEVICE.describe()}


@cache
def tiny_workload() -> Workload:
    """Make a prompt of three micro-batches, and room for decode steps."""
    model = load_model("tiny")
    return Workload(model, tuple(model.tokenizer.encode("a b c d e f g h")[:24]), 60, 8)


@cache
def changes_of(*presets: str) -> tuple[PlanChange, ...]:
    """Plan presets; they run from no step yet."""
    return tuple(plan_change(tiny_workload().plan(), preset_variant(each)) for each in presets)


@cache
def toggled(
    *segments: tuple[str, tuple[tuple[str, int], ...]],
) -> tuple[Trace, tuple[PlanChange, ...]]:
    """Run presets one after the other, each some steps of some phases, as one run.

    Returns its trace and its changes of plan.
    """
    found = changes_of(*(preset for preset, _ in segments))
    changes: list[PlanChange] = []
    backend = DEVICE.make_backend(tiny_workload(), frozenset())
    with closing(backend), closing(Engine(backend, found[0].planned.plan)) as engine:
        for i, (_, phases) in enumerate(segments):
            if i:
                engine.set_plan(found[i].planned.plan)
            changes.append(replace(found[i], step=engine.step))
            for phase, steps in phases:
                engine.run(phase, steps)
        engine.drain()
        return (
            Trace(
                sites=tuple(engine.sites),
                lanes=engine.lanes,
                phases=tuple(engine.phases),
                spans=engine.take_spans(),
                dropped=0,
                simulated=True,
                device=DEVICE.describe(),
                variant=found[-1].planned.describe(),
                plans=tuple(engine.plans),
                findings=found[-1].findings,
            ),
            tuple(changes),
        )


PROMPT = (("prompt", 2), ("prompt_last", 1))


def mid_run() -> tuple[Trace, tuple[PlanChange, ...]]:
    """Make a run that begins as the baseline, goes on with all passes, then back again."""
    return toggled(
        ("baseline", (*PROMPT, ("decode", 6))),
        ("all", (("decode", 7), *PROMPT, ("decode", 3))),
        ("baseline", (("decode", 4),)),
    )


def batch(trace: Trace, spans: Any = None, **fields: Any) -> LiveBatch:
    """Make a batch of a run with some of its spans."""
    spans = np.zeros(0, SPAN) if spans is None else spans
    return LiveBatch("running", spans, lanes=trace.lanes, **fields)


def whole(trace: Trace, changes: Sequence[PlanChange], **sizes: int) -> Recording:
    """Record a run at once."""
    recording = Recording(HEADER, **sizes)
    recording.extend(
        batch(trace, trace.spans, sites=trace.sites, phases=trace.phases, changes=tuple(changes))
    )
    return recording


def in_batches(trace: Trace, changes: Sequence[PlanChange], cuts: Iterable[int]) -> Recording:
    """Record a run cut at spans; what a batch's spans name comes with it and not before."""
    recording = Recording(HEADER)
    n_sites = n_steps = n_changes = begin = 0
    for end in (*sorted(cuts), len(trace.spans)):
        spans = trace.spans[begin:end]
        begin = end
        sites = max(n_sites, int(spans["op"].max(initial=-1)) + 1)
        last = int(spans["step"].max(initial=-1))
        steps = max(n_steps, min(len(trace.phases), last + 1))
        known = max(n_changes, sum(each.step <= last for each in changes))
        recording.extend(
            batch(
                trace,
                spans,
                sites=trace.sites[n_sites:sites],
                phases=trace.phases[n_steps:steps],
                changes=tuple(changes[n_changes:known]),
            )
        )
        n_sites, n_steps, n_changes = sites, steps, known
    return recording


def drawn(recording: Recording) -> dict[str, list[list[tuple[int, ...]]]]:
    """Return what is on each row, lane by lane, as `LaneStore.get` returns it."""
    return {
        row.key: [[lane.get(i) for i in range(lane.head, lane.tail)] for lane in row.lanes]
        for row in recording.rows.rows
    }


def change_at(changes: Sequence[PlanChange], step: int) -> PlanChange:
    """Return the last change at or before a step."""
    return [each for each in changes if each.step <= step][-1]


def expected(trace: Trace, changes: Sequence[PlanChange], span: Any) -> tuple[str, str]:
    """Return row and category of a span, read from the plan and the findings of its step."""
    site, lane = trace.sites[span["op"]], trace.lanes[span["lane"]]
    change = change_at(changes, int(span["step"]))
    plan = change.planned.plan
    verdicts = {(each.phase, each.site): each.verdict for each in change.findings}
    verdict = verdicts.get((site.phase, site.name), "")
    if span["role"] == CALL:
        waits = site_kind(site) in SYNC_KINDS
        row = "sync" if waits else "cpu_split" if site.kind == Kind.HOST else "host"
        plain = {Kind.HOST: "host_work", Kind.GRAPH: "graph"}.get(site.kind, "host_api")
        category = VERDICT_CATEGORY[verdict or "unknown"] if waits or verdict else plain
        return f"{row} {lane.name}", category
    if site.kind != Kind.COPY:
        return f"stream {lane.name}", "kernel"
    op = plan.op(site.phase, site.name)
    ends = [plan.buffer(each.buffer).memory == "device" for each in op.accesses]
    where = {(False, True): "h2d", (True, False): "d2h", (True, True): "d2d"}[ends[0], ends[1]]
    row = f"stream {lane.name}" if where == "d2d" else f"{where} {lane.device}"
    return row, where


def category(name: str) -> int:
    """Return the number of a category."""
    return CATEGORIES.index(name)


# ---- what belongs together, by going through the calls one by one -------------------------------


def joined(trace: Trace, changes: Sequence[PlanChange]) -> set[tuple[int, int]]:
    """Return all pairs of refs that belong together, from the order in which ops were issued.

    Goes through each step's ops as planned and keeps which record each event slot has and which
    copies nothing has waited for yet.
    """
    at: dict[tuple[int, str, int], int] = {}
    for ref, span in enumerate(trace.spans):
        site = trace.sites[span["op"]]
        if site.phase != "switch":
            at.setdefault((int(span["step"]), site.name, int(span["role"])), ref)
    found: set[tuple[int, int]] = set()

    def join(one: int | None, other: int | None) -> None:
        if one is not None and other is not None:
            found.add((one, other))

    for (step, name, role), ref in at.items():
        if role == EXEC:
            join(at.get((step, name, CALL)), ref)
    for i, change in enumerate(changes):
        last = changes[i + 1].step if i + 1 < len(changes) else len(trace.phases)
        _join_plan(change.planned.plan, range(change.step, last), trace.phases, at, join)
    return found


def _join_plan(plan: Plan, steps: Any, phases: Sequence[str], at: Any, join: Any) -> None:
    device = {each.name: each.device for each in plan.streams}
    depth = {each.name: each.depth for each in plan.events}
    record: dict[tuple[str, int], tuple[int, str]] = {}
    covers: dict[tuple[str, int], set[tuple[int, str]]] = {}
    pending: dict[tuple[int, str], str] = {}  # copy -> stream

    def span(where: tuple[int, str], role: int) -> int | None:
        return at.get((*where, role), at.get((*where, 1 - role)))

    for step in steps:
        members: dict[int, list[int]] = {}
        for op in plan.phases[phases[step]]:
            me = (step, op.site)
            run = at.get((*me, EXEC))
            if op.graph >= 0 and op.kind != Kind.GRAPH and run is not None:
                members.setdefault(op.graph, []).append(run)
            slot = (op.event, step % depth[op.event]) if op.event else None
            if op.kind == Kind.COPY and not op.blocking:
                pending[me] = op.stream
            elif op.kind == Kind.RECORD:
                record[slot] = me
                covers[slot] = {copy for copy, stream in pending.items() if stream == op.stream}
            elif op.kind in (Kind.WAIT, Kind.SYNC):
                if slot is not None:
                    if slot in record:
                        join(span(record[slot], CALL), span(me, CALL))
                    done = covers.get(slot, set()) & pending.keys()
                elif op.scope == "device":
                    done = {c for c, s in pending.items() if device[s] == device[op.stream]}
                else:
                    done = {c for c, s in pending.items() if s == op.stream}
                for copy in done:
                    join(span(copy, EXEC), span(me, CALL))
                    del pending[copy]
        for op in plan.phases[phases[step]]:
            if op.kind == Kind.GRAPH and op.graph in members:
                join(at.get((step, op.site, CALL)), min(members[op.graph]))


def launch_of(trace: Trace, changes: Sequence[PlanChange], ref: int) -> int | None:
    """Return the launch of the graph that an execution belongs to; None if it has its own call."""
    span = trace.spans[ref]
    site, mine = trace.sites[span["op"]], trace.spans["step"] == span["step"]
    calls = np.flatnonzero(mine & (trace.spans["role"] == CALL))
    called = {trace.sites[trace.spans[each]["op"]].name: int(each) for each in calls}
    if span["role"] != EXEC or site.name in called:
        return None
    ops = change_at(changes, int(span["step"])).planned.plan.phases[site.phase]
    graph = next(op.graph for op in ops if op.site == site.name)
    return next(called[op.site] for op in ops if op.graph == graph and op.kind == Kind.GRAPH)


# ---- a plan by hand -----------------------------------------------------------------------------


def staged_plan(depth: int = 2) -> Plan:
    """Make a plan that copies on one stream and computes on another, with events between them."""
    copies, compute = "dev0.copies", "dev0.compute"
    host = Buffer("inp", 64, "pinned", depth=depth)
    device = Buffer("dev", 64, "device", device=0, depth=depth)
    out = Buffer("out", 64, "device", device=0)
    back = Buffer("out.host", 64, "pinned")
    read, write = (lambda name: Access(name, False)), (lambda name: Access(name, True))
    ops = (
        Op("reuse.sync", Kind.SYNC, event="inp.copied", scope="event"),
        Op("fill", Kind.HOST, accesses=(write("inp"),), kernel="fill"),
        Op("inp.copy", Kind.COPY, copies, accesses=(read("inp"), write("dev"))),
        Op("inp.record", Kind.RECORD, copies, "inp.copied"),
        Op("inp.wait", Kind.WAIT, compute, "inp.copied"),
        Op("mul", Kind.LAUNCH, compute, accesses=(read("dev"), write("out")), kernel="mul"),
        Op("out.copy", Kind.COPY, compute, accesses=(read("out"), write("out.host"))),
        Op("out.sync", Kind.SYNC, compute),
    )
    return Plan(
        buffers=(host, device, out, back),
        streams=(Stream(compute, 0, "nonblocking"), Stream(copies, 0, "nonblocking")),
        events=(Event("inp.copied", 0, depth),),
        phases={"decode": ops},
    )


def change_of(plan: Plan, step: int = 0, **fields: Any) -> PlanChange:
    """Make a change to a plan, with no findings unless they are given."""
    values: dict[str, Any] = {
        "findings": (),
        "patterns": {phase: plan_pattern(ops) for phase, ops in plan.phases.items()},
        "reasons": {},
        "ghosts": {phase: diff(ops, ops) for phase, ops in plan.phases.items()},
    }
    planned = Planned(Variant("by hand", plan.passes), plan, Applied(plan, (), {}), ())
    return PlanChange(step=step, planned=planned, **(values | fields))


def plan_trace(plan: Plan, n_steps: int, period: int = 1000) -> Trace:
    """Make a trace of steps of a plan's first phase: a call per 10 ns, executions 300 ns later."""
    phase, ops = next(iter(plan.phases.items()))
    lanes = (
        Lane("host thread 0", "host"),
        *(Lane(s.name, "stream", s.device) for s in plan.streams),
    )
    number = {each.name: i for i, each in enumerate(lanes)}
    sites = tuple(
        Site(phase, op.site, op.kind, op.scope, op.blocking, op.stream, op.origin) for op in ops
    )
    spans = []
    for step in range(n_steps):
        for i, op in enumerate(ops):
            begin = step * period + 10 * i
            spans.append((begin, begin + 10, i, step, 0, CALL, 0, 0))
            if op.kind in (Kind.COPY, Kind.LAUNCH):
                row = (begin + 300, begin + 310, i, step, number[op.stream], EXEC, 0, 64)
                spans.append(row)
    return Trace(
        sites=sites,
        lanes=lanes,
        phases=(phase,) * n_steps,
        spans=np.array(spans, SPAN),
        dropped=0,
        simulated=True,
        plans=(plan,),
    )
