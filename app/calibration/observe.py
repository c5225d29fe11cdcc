"""What a trace shows of a device's costs: durations of calls, and times between moments.

Each figure is the median over the decode steps in steady state.  What counts is told from the ops
themselves, so that any plan without a pass but graphs can be observed, the probe's as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from syncscope.app.bench.metrics import CALL, EXEC, SWITCH, steady_steps
from syncscope.kernels.signature import parse_instance
from syncscope.kernels.work import work_of
from syncscope.sched_core.costs import Work
from syncscope.sched_core.errors import FileError, UsageError
from syncscope.sched_core.program import period, unroll
from syncscope.sched_core.records import Kind, Op
from syncscope.sched_core.trace import Trace

Rows = tuple[tuple[Any, ...], ...]
"""Figures of a sort, a row for each site: what it depends on, then nanoseconds."""


MAX_PERIOD = 64
"""Steps after which the slots of a plan repeat, at most: no pass makes more."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """How long a kernel instance took.

    Parameters
    ----------
    name : str
        Of the instance.
    work : Work
    step_moved : float
        Bytes that all kernels of its step move.
    run_ns : float
        From its first block's begin to its last block's end, a lower bound.
    next_ns : float or None
        From its begin to that of the kernel launched right behind it; None where none is.
    """

    name: str
    work: Work
    step_moved: float
    run_ns: float
    next_ns: float | None


@dataclass(frozen=True, slots=True)
class Observations:
    """What was seen.

    Parameters
    ----------
    host : Rows of (Work, ns)
        Host work.
    records, event_waits, idle_syncs, launches : Rows of (ns)
        Calls: event records, waits of a stream, syncs of a stream that has nothing to do, launches
        behind a launch.
    graphs, uploads, staged : Rows of (nodes or bytes, ns)
        Calls: graph launches, copies from pinned memory to the device, from or to pageable memory.
    launch_starts, graph_starts : Rows of (ns)
        From the end of a call to the begin of its first kernel, on an idle stream.
    uploads_done, downloads_done : Rows of (bytes, ns)
        From the end of the call of a copy on an idle stream to the return of the sync behind it.
    bursts : Rows of (copies, bytes of each, ns)
        Equal copies to the device on an idle stream: from the end of the first one's call to the
        return of the sync behind the last.
    downloads_after : Rows of (bytes, ns)
        From the end of a kernel, over a copy to the host, to the return of the sync behind it.
    returns : Rows of (ns)
        From the end of a kernel to the return of the sync behind it.
    in_graph, one_by_one, of_prompt : tuple of KernelTime
        Kernels of graphs; of decode steps that launch them one by one; of prompt steps.
    pairs : Rows of (name of the first, ns between begins, ns)
        Kernels launched behind each other: the last figure is from the end of the second one's
        call to its begin.
    """

    host: Rows = ()
    records: Rows = ()
    event_waits: Rows = ()
    idle_syncs: Rows = ()
    launches: Rows = ()
    graphs: Rows = ()
    uploads: Rows = ()
    staged: Rows = ()
    launch_starts: Rows = ()
    graph_starts: Rows = ()
    uploads_done: Rows = ()
    downloads_done: Rows = ()
    bursts: Rows = ()
    downloads_after: Rows = ()
    returns: Rows = ()
    in_graph: tuple[KernelTime, ...] = ()
    one_by_one: tuple[KernelTime, ...] = ()
    of_prompt: tuple[KernelTime, ...] = ()
    pairs: Rows = ()


def joined(every: Iterable[Observations]) -> Observations:
    """Put the observations of several traces together."""
    found = tuple(every)
    return Observations(
        **{
            field.name: tuple(row for one in found for row in getattr(one, field.name))
            for field in fields(Observations)
        }
    )


def label(trace: Trace) -> str:
    """Return a name for a trace: its model and its variant."""
    ids = (str(each.get("id") or "") for each in (trace.model, trace.variant))
    return " ".join(filter(None, ids))


def visible_rows(trace: Trace) -> float:
    """Return how many KV rows attention looks at in a decode step, on average."""
    tokens = {phase: _tokens(ops) for phase, ops in trace.plans[0].phases.items()}
    n_prompt = sum(tokens[phase] for phase in trace.phases if phase != "decode")
    return n_prompt + (trace.phases.count("decode") + 1) / 2


def _tokens(ops: Iterable[Op]) -> int:
    """Return the size of a phase's micro-batches."""
    values = (parse_instance(op.kernel).values for op in ops if op.kernel)
    return max((int(each["T"]) for each in values if "T" in each), default=0)


def problem(trace: Trace) -> str:
    """Return why a trace can neither be observed nor run again; empty if it can."""
    if len(trace.plans) != 1:
        return f"has {len(trace.plans)} plans; one is needed"
    (plan,) = trace.plans
    if trace.dropped:
        return f"lost {trace.dropped} spans: record fewer steps"
    try:
        unroll(plan, tuple(plan.phases))  # what it names is there, and fits
        for ops in plan.phases.values():
            _tokens(ops)
    except UsageError as error:
        return f"has a plan that cannot be used: {error}"
    if period(plan) > MAX_PERIOD:
        return f"has a plan with {period(plan)} slots, more than {MAX_PERIOD}"
    known = {(phase, op.site): op.kind for phase, ops in plan.phases.items() for op in ops}
    for phase in trace.phases:
        if phase not in plan.phases:
            return f"has steps of {ascii(phase)[:60]}, which its plan lacks"
    for site in trace.sites:
        if site.phase != SWITCH and known.get((site.phase, site.name)) != site.kind:
            return f"has a site {ascii(site.name)[:60]}, which its plan lacks"
    return ""


def observe(trace: Trace) -> Observations:
    """Return what a trace shows.

    Raises
    ------
    FileError
        If it lacks what has to be there: one plan, of this version's kernels, all its spans,
        device times.
    """
    why = problem(trace)
    if not why and not len(steady_steps(trace)[0]):
        why = "has too few decode steps with device times: record more tokens"
    if why:
        raise FileError(f"the trace {label(trace)} {why}")
    walk = _Walk(trace)
    walk.calls()
    walk.kernels()
    found: dict[str, Any] = {name: walk.rows(name) for name in _ROWS}
    found |= {name: tuple(walk.times[name]) for name in ("in_graph", "one_by_one", "of_prompt")}
    return Observations(**found)


_ROWS = tuple(each.name for each in fields(Observations) if each.type == "Rows")


@dataclass(slots=True)
class _Queued:
    """An op on a stream that nothing has waited for since."""

    op: Op
    end_ns: int
    """Of its call."""


class _Walk:
    """Collects times from one trace."""

    def __init__(self, trace: Trace) -> None:
        plan = trace.plans[0]
        self.trace, self.plan = trace, plan
        self.steady = frozenset(steady_steps(trace)[0].tolist())
        self.ops = {(phase, op.site): op for phase, ops in plan.phases.items() for op in ops}
        self.size = {buffer.name: buffer.nbytes for buffer in plan.buffers}
        self.memory = {buffer.name: buffer.memory for buffer in plan.buffers}
        self.times: dict[str, list[KernelTime]] = defaultdict(list)
        self._seen: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._ran = self._runs()
        self._pairs: list[tuple[str, float, float]] = []
        self._launched: dict[tuple[int, str], int] = {}  # when each launch call ended
        self._queued: dict[str, list[_Queued]] = {}  # of streams of which that is known

    def rows(self, name: str) -> Rows:
        """Return one sort of figures."""
        if name == "pairs":
            return tuple(self._pairs)
        return tuple(
            (*key[2:], median(values)) for key, values in self._seen.items() if key[0] == name
        )

    def _note(self, name: str, site: str, *row: Any) -> None:
        """Note a figure of a site: what it depends on, then nanoseconds."""
        self._seen[(name, site, *row[:-1])].append(row[-1])

    @property
    def visible(self) -> float:
        """KV rows that attention looks at."""
        return visible_rows(self.trace)

    def _runs(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Return the begin and the end of each kernel, by step and site."""
        spans, sites = self.trace.spans, self.trace.sites
        is_kernel = np.array([site.kind == Kind.LAUNCH for site in sites], bool)
        spans = spans[(spans["role"] == EXEC) & is_kernel[spans["op"]]]
        columns = (spans[name].tolist() for name in ("step", "op", "begin_ns", "end_ns"))
        return {
            (step, sites[op].name): (begin, end)
            for step, op, begin, end in zip(*columns, strict=True)
        }

    # ---- calls -------------------------------------------------------------------------------

    def calls(self) -> None:
        """Walk over all calls in order."""
        spans = self.trace.spans[self.trace.spans["role"] == CALL]
        spans = spans[np.argsort(spans["begin_ns"], kind="stable")]
        columns = (spans[name].tolist() for name in ("step", "op", "begin_ns", "end_ns"))
        before: Op | None = None
        for step, number, begin, end in zip(*columns, strict=True):
            site = self.trace.sites[number]
            if site.phase == SWITCH:
                self._queued = {}
                before = None
                continue
            op = self.ops[site.phase, site.name]
            if step in self.steady:
                self._note_call(op, step, begin, end, before)
            self._follow(op, end)
            before = op

    def _follow(self, op: Op, end: int) -> None:
        """Keep what each stream has to do."""
        if op.kind == Kind.SYNC and op.scope == "stream":
            self._queued[op.stream] = []
        elif op.kind == Kind.SYNC:
            self._queued = {}
        elif op.kind != Kind.HOST and op.stream in self._queued:
            self._queued[op.stream].append(_Queued(op, end))

    def _note_call(self, op: Op, step: int, begin: int, end: int, before: Op | None) -> None:
        took = end - begin
        is_idle = self._queued.get(op.stream) == []
        if op.kind == Kind.HOST and op.kernel:
            self._note("host", op.site, work_of(parse_instance(op.kernel)), took)
        elif op.kind == Kind.RECORD:
            self._note("records", op.site, took)
        elif op.kind == Kind.WAIT:
            self._note("event_waits", op.site, took)
        elif op.kind == Kind.COPY and not op.blocking:
            self._note_copy(op, took)
        elif op.kind == Kind.LAUNCH:
            ran = self._ran.get((step, op.site))
            if before is not None and before.kind == Kind.LAUNCH:
                self._note("launches", op.site, took)
            if is_idle and ran:
                self._note("launch_starts", op.site, ran[0] - end)
            self._launched[step, op.site] = end
        elif op.kind == Kind.GRAPH:
            members = self._members(op)
            self._note("graphs", op.site, len(members), took)
            ran = self._ran.get((step, members[0].site)) if members else None
            if is_idle and ran:
                self._note("graph_starts", op.site, ran[0] - end)
        elif op.kind == Kind.SYNC and op.scope == "stream":
            self._note_sync(op, step, end, took)

    def _note_copy(self, op: Op, took: int) -> None:
        if "pageable" in self._memories(op):
            self._note("staged", op.site, self._nbytes(op), took)
        elif "pinned" in self._memories(op) and self._is_upload(op):
            self._note("uploads", op.site, self._nbytes(op), took)

    def _note_sync(self, op: Op, step: int, end: int, took: int) -> None:
        """Note how long what a stream had to do took, where that tells something."""
        queued = self._queued.get(op.stream)
        if queued is None:
            return
        if not queued:
            self._note("idle_syncs", op.site, took)
            return
        copies = [each for each in queued if each.op.kind == Kind.COPY]
        if any("pageable" in self._memories(each.op) or each.op.blocking for each in copies):
            return
        first, last = queued[0], queued[-1]
        if len(copies) == len(queued):
            uploads = [self._is_upload(each.op) for each in copies]
            sizes = {self._nbytes(each.op) for each in copies}
            if len(copies) == 1:
                name = "uploads_done" if uploads[0] else "downloads_done"
                self._note(name, op.site, *sizes, end - first.end_ns)
            elif all(uploads) and len(sizes) == 1:
                self._note("bursts", op.site, len(copies), *sizes, end - first.end_ns)
            return
        kernels = [each.op for each in queued if each.op.kind in (Kind.LAUNCH, Kind.GRAPH)]
        ended = self._end_of(kernels[-1], step) if kernels else None
        if ended is None:
            return
        if last.op is kernels[-1]:
            self._note("returns", op.site, end - ended)
        elif last.op.kind == Kind.COPY and not self._is_upload(last.op) and len(copies) == 1:
            self._note("downloads_after", op.site, self._nbytes(last.op), end - ended)

    def _end_of(self, op: Op, step: int) -> int | None:
        """Return when a kernel, or the last of a graph, ended."""
        last = self._members(op)[-1:] if op.kind == Kind.GRAPH else [op]
        ran = [self._ran[step, each.site] for each in last if (step, each.site) in self._ran]
        return ran[0][1] if ran else None

    def _members(self, graph: Op) -> list[Op]:
        """Return the kernels of a graph of the decode phase."""
        ops = self.plan.phases["decode"]
        return [op for op in ops if op.graph == graph.graph and op.kind == Kind.LAUNCH]

    def _memories(self, op: Op) -> set[str]:
        return {self.memory[access.buffer] for access in op.accesses}

    def _is_upload(self, op: Op) -> bool:
        return self.memory[op.accesses[1].buffer] in ("device", "managed")

    def _nbytes(self, op: Op) -> int:
        access = op.accesses[0]
        return (self.size[access.buffer] if access.end < 0 else access.end) - access.begin

    # ---- kernels -----------------------------------------------------------------------------

    def kernels(self) -> None:
        """Take the times of all kernels; after `calls`."""
        by_phase = defaultdict(list)
        for step, phase in enumerate(self.trace.phases):
            if phase != "decode" or step in self.steady:
                by_phase[phase].append(step)
        for phase, steps in by_phase.items():
            self._kernels_of(phase, steps)

    def _kernels_of(self, phase: str, steps: list[int]) -> None:
        ops = [op for op in self.plan.phases[phase] if op.kind != Kind.GRAPH]
        is_graph = len(ops) < len(self.plan.phases[phase]) and phase == "decode"
        name = "in_graph" if is_graph else "one_by_one" if phase == "decode" else "of_prompt"
        launched = [op for op in ops if op.kind == Kind.LAUNCH]
        works = {op.kernel: work_of(parse_instance(op.kernel), self.visible) for op in launched}
        step_moved = sum(works[op.kernel].moved for op in launched)
        runs: dict[str, list[int]] = defaultdict(list)
        nexts: dict[str, list[int]] = defaultdict(list)
        for one, two in pairwise([*ops, None]):
            if one is None or one.kind != Kind.LAUNCH:
                continue
            ran = self._ran_in(one, steps)
            runs[one.kernel] += [end - begin for begin, end in ran.values()]
            if two is None or two.kind != Kind.LAUNCH or two.stream != one.stream:
                continue
            after = self._ran_in(two, steps)
            both = ran.keys() & after.keys()
            apart = {step: after[step][0] - ran[step][0] for step in both}
            nexts[one.kernel] += apart.values()
            lags = [
                after[step][0] - self._launched[step, two.site]
                for step in both
                if (step, two.site) in self._launched
            ]
            if lags:
                self._pairs.append((one.kernel, median(apart.values()), median(lags)))
        self.times[name] += [
            KernelTime(
                kernel, works[kernel], step_moved, median(values),
                median(nexts[kernel]) if nexts[kernel] else None,
            )
            for kernel, values in runs.items()
            if values
        ]  # fmt: skip

    def _ran_in(self, op: Op, steps: list[int]) -> dict[int, tuple[int, int]]:
        """Return begin and end of a kernel by step."""
        return {step: self._ran[step, op.site] for step in steps if (step, op.site) in self._ran}
