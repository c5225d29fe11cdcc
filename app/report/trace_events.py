"""Chrome trace events of one trace: rows, and complete events that nest, with arrows from calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from syncscope.app.report.site_table import site_kind
from syncscope.sched_core.backend import BOUNDED, LOWER_BOUND
from syncscope.sched_core.records import Kind
from syncscope.sched_core.trace import Trace

BATCH = 1 << 15

FIRST_TID = 1001
"""Thread id of the first row; below are the process ids, which Perfetto makes threads of too."""

PIDS_PER_TRACE = 100
HOST_PID, OTHER_PID = 1, 99
"""Process ids of the first trace; its devices are between them."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the viewer: a lane, the syncs of a host lane, or what overlaps in either."""

    lane: int
    syncs: bool
    overflow: int


@dataclass(frozen=True, slots=True)
class TraceEvents:
    """Where each span of a trace is drawn, and in which order.

    `number` is the trace's position in its file, `first_tid` the thread id of its first row,
    `first_flow` the id of the arrows from its first call: ids are unique in the file.  Times are
    drawn from `start_ns` on, which no span may precede.  `flow_of_span` is the id of the arrows
    that leave a span, minus that of the one that reaches it, or 0.
    """

    trace: Trace
    number: int
    first_tid: int
    first_flow: int
    start_ns: int
    rows: tuple[Row, ...]
    row_of_span: Ints
    order: Ints
    flow_of_span: Ints

    @classmethod
    def of(
        cls,
        trace: Trace,
        number: int = 0,
        first_tid: int = FIRST_TID,
        first_flow: int = 1,
        start_ns: int = 0,
    ) -> TraceEvents:
        """Lay out a trace."""
        spans = trace.spans
        is_host = np.array([lane.kind == "host" for lane in trace.lanes], dtype=bool)
        is_sync = np.array([site.kind == Kind.SYNC for site in trace.sites], dtype=bool)
        # where they begin together a call before what it made a stream do, outer before inner
        order = np.lexsort((-spans["end_ns"], spans["role"], spans["begin_ns"]))
        base = 2 * spans["lane"].astype(np.int64)
        if len(spans):
            base += is_sync[spans["op"]] & is_host[spans["lane"]]
        overflow = np.zeros(len(spans), np.int64)
        for key in np.flatnonzero(np.bincount(base)).tolist():
            mine = order[(base == key)[order]]
            overflow[mine] = _overflow_rows(spans["begin_ns"][mine], spans["end_ns"][mine])
        levels = int(overflow.max(initial=0)) + 1
        code = base * levels + overflow
        drawn = np.bincount(code, minlength=2 * len(trace.lanes) * levels) > 0
        drawn[:: 2 * levels] = True  # a lane is shown even if it is empty
        return cls(
            trace=trace,
            number=number,
            first_tid=first_tid,
            first_flow=first_flow,
            start_ns=start_ns,
            rows=tuple(
                Row(each // levels // 2, bool(each // levels % 2), each % levels)
                for each in np.flatnonzero(drawn).tolist()
            ),
            row_of_span=(np.cumsum(drawn) - 1)[code],
            order=order,
            flow_of_span=_flows(len(spans), first_flow, *_launches(trace)),
        )

    @property
    def next_tid(self) -> int:
        """Return the first thread id that is free for the next trace of the file."""
        return self.first_tid + len(self.rows)

    @property
    def next_flow(self) -> int:
        """Return the first id of arrows that is free for the next trace of the file."""
        return self.first_flow + int(np.count_nonzero(self.flow_of_span > 0))

    def metadata(self) -> Iterator[bytes]:
        """Name the processes (the host, each device) and rows, in the order to show them in.

        Names say that times are simulated, since Perfetto shows no process labels; they say it
        in the middle, which is what it cuts of a long one.
        """
        trace = self.trace
        profile, name = trace.device.get("profile"), trace.device.get("name")
        run = [str(trace.variant["id"])] if trace.variant.get("id") else []
        if trace.simulated:
            run.append(f"simulated: {profile}" if profile else "simulated")
        prefix = ", ".join(run) + ": " if run else ""
        suffix = f" ({name})" if name and not trace.simulated else ""
        titles = {self.number * PIDS_PER_TRACE + HOST_PID: "host"}
        for i, lane in enumerate(trace.lanes):
            titles.setdefault(self._pid(i), f"device {lane.device}{suffix}")
        for pid, title in sorted(titles.items()):
            yield _meta("process_name", pid, 0, name=prefix + title)
            yield _meta("process_sort_index", pid, 0, sort_index=pid)
        for tid, row in enumerate(self.rows, self.first_tid):
            lane = trace.lanes[row.lane]
            title = lane.name + (" syncs" if row.syncs else "")
            title += f" (overlapping {row.overflow})" if row.overflow else ""
            yield _meta("thread_name", self._pid(row.lane), tid, name=title)
            yield _meta("thread_sort_index", self._pid(row.lane), tid, sort_index=tid)

    def _pid(self, lane: int) -> int:
        where = self.trace.lanes[lane]
        pid = HOST_PID if where.kind == "host" else OTHER_PID
        if where.kind != "host" and 0 <= where.device < OTHER_PID - HOST_PID - 1:
            pid = HOST_PID + 1 + where.device
        return self.number * PIDS_PER_TRACE + pid

    def slices(self) -> Iterator[bytes]:
        """Yield a complete event per span, by begin, with the arrows that leave or reach it.

        An arrow leads from each call to what it made a stream do.  The members of a replayed
        graph have no call of their own: the arrow of the graph's launch goes to the first.
        Arrows are told by the events at their ends: as events of their own they would be bound
        by time, to the wrong one of two that begin together.
        """
        spans = self.trace.spans
        sizes, size_of = np.unique(spans["nbytes"], return_inverse=True)
        place = spans["op"].astype(np.int64) * len(self.rows) + self.row_of_span
        kind = (2 * place + spans["role"]) * 4 + (spans["flags"] & 3)
        code = kind * max(1, len(sizes)) + size_of
        _, first, prefix_of = np.unique(code, return_index=True, return_inverse=True)
        prefixes = [
            self._prefix(spans[i], row)
            for i, row in zip(first.tolist(), self.row_of_span[first].tolist(), strict=True)
        ]
        for at in range(0, len(spans), BATCH):
            batch = self.order[at : at + BATCH]
            begin = spans["begin_ns"][batch]
            yield b"".join(
                [
                    b'%b%d}%b,"ts":%d.%03d,"dur":%d.%03d}' % row
                    for row in zip(
                        [prefixes[i] for i in prefix_of[batch].tolist()],
                        spans["step"][batch].tolist(),
                        [_flow_end(flow) for flow in self.flow_of_span[batch].tolist()],
                        *_micro(begin - self.start_ns),
                        *_micro(spans["end_ns"][batch] - begin),
                        strict=True,
                    )
                ]
            )

    def _prefix(self, span: np.void, row: int) -> bytes:
        """Return what events of the site, role, size and row of a span have in common."""
        site, nbytes, role = self.trace.sites[span["op"]], int(span["nbytes"]), int(span["role"])
        args: dict[str, Any] = {"phase": site.phase}
        if nbytes:
            args["nodes" if site.kind == Kind.GRAPH else "bytes"] = nbytes
        if site.stream and not role:  # an execution is on its stream's row
            args["stream"] = site.stream
        if span["flags"] & BOUNDED:  # it ran somewhere in this time
            args["time"] = "bounded"
        if span["flags"] & LOWER_BOUND:  # it may have ended later
            args["time"] = "lower bound"
        if site.origin != "baseline":
            args["origin"] = site.origin
        head = {
            "ph": "X",
            "name": site.name,
            "cat": f"{site_kind(site)},{('call', 'exec')[role]}",
            "pid": self._pid(self.rows[row].lane),
            "tid": self.first_tid + row,
            "args": args,
        }
        return b",\n" + orjson.dumps(head)[:-2] + b',"step":'


def _meta(kind: str, pid: int, tid: int, **args: Any) -> bytes:
    return orjson.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def _micro(ns: Ints) -> tuple[list[int], list[int]]:
    """Return whole microseconds and the nanoseconds beyond, for ``%d.%03d``; none is negative."""
    whole, rest = np.divmod(ns, 1000)
    return whole.tolist(), rest.tolist()


def _flow_end(flow: int) -> bytes:
    if not flow:
        return b""
    return b',"bind_id":%d,"flow_%b":true' % (abs(flow), b"out" if flow > 0 else b"in")


def _overflow_rows(begin: Ints, end: Ints) -> Ints:
    """Return for each span of a row, sorted, on which overflow row it nests; 0 is the row itself.

    Viewers drop or misdraw slices that overlap without one holding the other.
    """
    level = np.zeros(len(begin), np.int64)
    if not np.any(begin[1:] < np.maximum.accumulate(end)[:-1]):
        return level
    stacks: list[list[int]] = []
    for i, (b, e) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        row = 0
        while row < len(stacks) and not _fits(stacks[row], b, e):
            row += 1
        if row == len(stacks):
            stacks.append([])
        stacks[row].append(e)
        level[i] = row
    return level


def _fits(open_ends: list[int], begin: int, end: int) -> bool:
    """Whether a span nests in those still open, after closing those that have ended."""
    while open_ends and open_ends[-1] <= begin:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def _flows(n_spans: int, first: int, call: Ints, run: Ints) -> Ints:
    """Number the calls of pairs from `first` on; return the number at a call, minus it at a run."""
    flow_of_span = np.zeros(n_spans, np.int64)
    calls, call_of_pair = np.unique(call, return_inverse=True)
    flow_of_span[calls] = first + np.arange(len(calls))
    flow_of_span[run] = -(first + call_of_pair)
    return flow_of_span


def _launches(trace: Trace) -> tuple[Ints, Ints]:
    """Return pairs of spans: a call, and the execution that it caused.

    Where the clocks are aligned so badly that the execution seems to begin first, there is none:
    viewers draw no arrow back in time.
    """
    spans, sites = trace.spans, trace.sites
    n_steps = len(trace.phases) + 1
    calls = np.flatnonzero(spans["role"] == 0)
    runs = np.flatnonzero(spans["role"] == 1)
    if not len(calls) or not len(runs):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    key = spans["op"].astype(np.int64) * n_steps + spans["step"]
    calls_by_key = calls[np.argsort(key[calls], kind="stable")]
    at = np.searchsorted(key[calls_by_key], key[runs])
    found = calls_by_key[np.minimum(at, len(calls) - 1)]
    own = key[found] == key[runs]
    call, run = found[own], runs[own]

    names = sorted({site.stream for site in sites})
    stream = np.array([names.index(site.stream) for site in sites], dtype=np.int64)
    is_graph = np.array([site.kind == Kind.GRAPH for site in sites], dtype=bool)
    graphs, members = calls[is_graph[spans["op"][calls]]], runs[~own]
    both = np.concatenate([graphs, members])
    group = stream[spans["op"][both]] * n_steps + spans["step"][both]
    is_member = np.arange(len(both)) >= len(graphs)
    order = np.lexsort((is_member, spans["begin_ns"][both], group))
    both, group, is_member = both[order], group[order], is_member[order]
    # the first member after a launch in the same stream and step
    follows = np.flatnonzero(is_member[1:] & ~is_member[:-1] & (group[1:] == group[:-1]))
    call, run = np.concatenate([call, both[follows]]), np.concatenate([run, both[follows + 1]])
    forward = spans["begin_ns"][call] <= spans["begin_ns"][run]
    return call[forward], run[forward]
