"""Chrome trace events of one trace: rows, complete events that nest, arrows from call to work."""

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
    `first_flow` the id of its first arrow: ids are unique in the file.
    """

    trace: Trace
    number: int
    first_tid: int
    first_flow: int
    rows: tuple[Row, ...]
    row_of_span: Ints
    order: Ints
    arrows: tuple[Ints, Ints]

    @classmethod
    def of(
        cls, trace: Trace, number: int = 0, first_tid: int = FIRST_TID, first_flow: int = 1
    ) -> TraceEvents:
        """Lay out a trace."""
        spans = trace.spans
        is_host = np.array([lane.kind == "host" for lane in trace.lanes], dtype=bool)
        is_sync = np.array([site.kind == Kind.SYNC for site in trace.sites], dtype=bool)
        # outer before inner where they begin together
        order = np.lexsort((-spans["end_ns"], spans["begin_ns"]))
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
            rows=tuple(
                Row(each // levels // 2, bool(each // levels % 2), each % levels)
                for each in np.flatnonzero(drawn).tolist()
            ),
            row_of_span=(np.cumsum(drawn) - 1)[code],
            order=order,
            arrows=_launches(trace),
        )

    def metadata(self) -> Iterator[bytes]:
        """Name the processes (the host, each device) and rows, in the order to show them in."""
        trace = self.trace
        kind = "simulated" if trace.simulated else "measured"
        profile, name = trace.device.get("profile"), trace.device.get("name")
        label = f"simulated: {profile}" if trace.simulated and profile else kind
        suffix = f" ({name})" if name else ""
        titles = {self.number * PIDS_PER_TRACE + HOST_PID: "host"}
        for i, lane in enumerate(trace.lanes):
            titles.setdefault(self._pid(i), f"device {lane.device}{suffix}")
        variant = f"{trace.variant['id']}: " if trace.variant.get("id") else ""
        for pid, title in sorted(titles.items()):
            yield _meta("process_name", pid, 0, name=variant + title)
            yield _meta("process_labels", pid, 0, labels=label)
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
        """Yield a complete event per span, by begin."""
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
            duration = spans["end_ns"][batch] - begin
            yield b"".join(
                [
                    b'%b%d},"ts":%b%d.%03d,"dur":%d.%03d}' % row
                    for row in zip(
                        [prefixes[i] for i in prefix_of[batch].tolist()],
                        spans["step"][batch].tolist(),
                        *_micro(begin),
                        *_micro(duration)[1:],
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

    def flows(self) -> Iterator[bytes]:
        """Yield an arrow from each call to what it made a stream do.

        The members of a replayed graph have no call of their own: the arrow of the graph's
        launch goes to the first of them.
        """
        call, run = self.arrows
        spans = self.trace.spans
        pid = np.array([self._pid(each.lane) for each in self.rows], dtype=np.int64)
        columns: list[list[int]] = []
        for ends in (call, run):
            row = self.row_of_span[ends]
            columns += [pid[row].tolist(), (row + self.first_tid).tolist()]
            columns += _micro(spans["begin_ns"][ends])
        template = b"".join(
            b',\n{"ph":"%b","id":%%d,"name":"launch","cat":"flow","pid":%%d,"tid":%%d,'
            b'"ts":%%b%%d.%%03d%b}' % kind
            for kind in ((b"s", b""), (b"f", b',"bp":"e"'))
        )
        start, end = columns[:5], columns[5:]
        numbers = range(self.first_flow, self.first_flow + len(call))
        arrows = zip(numbers, *start, numbers, *end, strict=True)
        while batch := [template % each for _, each in zip(range(BATCH), arrows, strict=False)]:
            yield b"".join(batch)


def _meta(kind: str, pid: int, tid: int, **args: Any) -> bytes:
    return orjson.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def _micro(ns: Ints) -> tuple[list[Any], list[int], list[int]]:
    """Return sign, whole microseconds and the nanoseconds beyond, for ``%b%d.%03d``."""
    signs = [b"-" if each else b"" for each in (ns < 0).tolist()]
    size = np.abs(ns)
    return signs, (size // 1000).tolist(), (size % 1000).tolist()


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


def _launches(trace: Trace) -> tuple[Ints, Ints]:
    """Return pairs of spans: a call, and the execution that it caused."""
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
    order = np.lexsort((run, spans["begin_ns"][run]))
    return call[order], run[order]
