"""The timeline file: Chrome trace events for Perfetto and chrome://tracing, and back to traces.

The first line holds the traces as the `syncscope` object (see trace_object), so that a file of
our own is read without its events, which are made from it.  Events have microseconds relative to
the run's start (`baseTimeNanoseconds`): as absolute times they would lose their nanoseconds.
Several traces start at 0 side by side, each in processes of its own.  Perfetto drops what is
before 0, so where a span precedes its run's start, that span's begin is the file's 0.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import orjson

from syncscope.app.report.atomic import StrPath, write_atomic
from syncscope.app.report.trace_events import FIRST_TID, TraceEvents
from syncscope.app.report.trace_object import from_object, to_object
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.trace import Trace

MAX_FILE_BYTES = 1 << 30
"""Largest file that is read: about five million spans."""

MAX_REFORMATTED_BYTES = 1 << 28
"""Largest that is read when another tool rewrote it, so that its events must be parsed too."""

_HEAD = b'{"syncscope":'
_HEAD_END = b",\n"
_TAIL = b"\n]}\n"
_MARK = b"syncscope-trace/"
_SNIFF = 4096


def write_trace(trace: Trace, path: StrPath) -> None:
    """Write a trace as a timeline file, atomically; the same trace gives the same bytes.

    Raises
    ------
    FileError
        The file cannot be written.
    """
    write_traces([trace], path)


def write_traces(traces: Sequence[Trace], path: StrPath) -> None:
    """Write traces, such as the variants of a run, as one timeline file; see `write_trace`."""
    write_atomic(path, trace_chunks(traces))


def trace_chunks(traces: Sequence[Trace]) -> Iterator[bytes]:
    """Yield the bytes of a timeline file."""
    head = orjson.dumps(to_object(traces), option=orjson.OPT_SERIALIZE_NUMPY)
    yield _HEAD + head + _HEAD_END
    base_ns = min((trace.base_ns for trace in traces), default=0)
    start_ns = min((int(trace.spans["begin_ns"].min(initial=0)) for trace in traces), default=0)
    yield b'"displayTimeUnit":"ns",\n"baseTimeNanoseconds":%d,\n' % (base_ns + start_ns)
    yield b'"traceEvents":[\n'
    separator = b""
    tid, flow = FIRST_TID, 1
    for number, trace in enumerate(traces):
        events = TraceEvents.of(trace, number, tid, flow, start_ns)
        yield separator + b",\n".join(events.metadata())
        yield from events.slices()
        separator = b",\n"
        tid, flow = events.next_tid, events.next_flow
    yield _TAIL


def read_trace(path: StrPath) -> Trace:
    """Read back the only trace of a timeline file.

    Raises
    ------
    FileError
        As `read_traces`, or the file holds several.
    """
    traces = read_traces(path)
    if len(traces) != 1:
        names = ", ".join(str(trace.variant.get("id")) for trace in traces)
        raise FileError(f"cannot read {os.fspath(path)} as one run: it holds {names or 'none'}")
    return traces[0]


def read_traces(path: StrPath) -> tuple[Trace, ...]:
    """Read back all traces of a timeline file.

    Raises
    ------
    FileError
        One line: the file is missing, too large, cut off, of another kind, too new or damaged.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileError("it is no regular file")
        with open(path, "rb") as file:
            return from_object(_read_object(file))
    except OSError as error:
        raise FileError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from None
    except FileError as error:
        raise FileError(f"cannot read {os.fspath(path)}: {error}") from None


def _read_object(file: BinaryIO) -> Any:
    """Return the `syncscope` object of an open file, reading no more than is needed."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise FileError("it is empty")
    if size > MAX_FILE_BYTES:
        raise FileError(f"it has {size} bytes, more than {MAX_FILE_BYTES}: record fewer steps")
    start = file.read(_SNIFF)
    file.seek(0)
    if start.startswith(_HEAD):
        line = file.readline(size)
        if line.endswith(_HEAD_END):
            file.seek(-min(size, len(_TAIL)), os.SEEK_END)
            if file.read() != _TAIL:
                raise FileError("it is cut off: export it again")
            return _loads(line[len(_HEAD) : -len(_HEAD_END)])
        file.seek(0)
    if size > MAX_REFORMATTED_BYTES:
        raise FileError(f"{_other_kind(start)}, or one that was rewritten to {size} bytes")
    data = file.read(size)
    if _MARK not in data:
        raise FileError(_other_kind(start))
    whole = _loads(data)
    if not isinstance(whole, dict) or "syncscope" not in whole:
        raise FileError(_other_kind(start))
    return whole["syncscope"]


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FileError(f"it is cut off or damaged, and no JSON ({error})") from None


def _other_kind(start: bytes) -> str:
    """Say what a file is that Syncscope did not write."""
    start = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if b'"traceEvents"' in start:
        return "it is a Chrome trace of another tool: it has no syncscope object"
    if start[:1] in (b"{", b"["):
        return "it is JSON of another kind, no timeline of Syncscope"
    return "it is no JSON, so no timeline of Syncscope"
