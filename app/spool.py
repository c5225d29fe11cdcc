"""Live recordings on disk as they grow: what was appended survives the death of the process.

A spool is a line that names its format, then frames: length and CRC-32 of what follows, then its
kind (one byte) and a payload.  Kinds: `HEAD`, what is known when the run begins; `NEWS`, what a
batch has beside spans; `SPANS`, raw rows of recorder.SPAN, which name only sites, lanes and steps
of frames before.  HEAD and NEWS are JSON, with records as in a timeline file (see
report.trace_object).

Each batch is given to the operating system at once and not waited for: a process that is killed
loses nothing that it appended.  The disk has it all after `close`; a machine that loses its power
before may lose the last seconds.

The file is locked as long as its owner lives.  A spool that nobody holds is one whose owner died
before the recording was saved or thrown away: `unfinished` finds it, `Spool.adopt` takes it over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

from syncscope.app.live_batch import LiveBatch
from syncscope.app.report.atomic import StrPath
from syncscope.app.report.chrome_trace import write_trace
from syncscope.app.report.trace_object import MAPPINGS, plain, trace_of_parts
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.trace import Lane, Trace

FORMAT = b"syncscope-spool/"
MAGIC = FORMAT + b"1\n"
SUFFIX = ".spool"

HEAD, NEWS, SPANS = range(3)

MAX_FRAME_BYTES = 1 << 24
MAX_NEWS_BYTES = 1 << 26
"""Of all NEWS frames: some hundred changes of plan."""

MAX_FILE_BYTES = 1 << 32
"""Where a recording ends: 130 million spans."""

MAX_SPANS = 10_000_000
"""Spans that are read back, the newest: while they are joined they take twice their 320 MB."""

_FRAME = struct.Struct("<II")
_SPANS_PER_FRAME = 1 << 16


def spool_folder(environ: Mapping[str, str]) -> Path:
    """Return where the recordings of a user's runs belong, after the XDG base directory rules."""
    state = environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "syncscope" / "runs"


# ---- writing ------------------------------------------------------------------------------------


class Spool:
    """A recording that grows.  Its methods raise FileError, in one line, when the disk fails them.

    What was appended before a failure stays whole.

    Parameters
    ----------
    path : path
        Of a file that is not there yet.
    """

    def __init__(self, path: StrPath) -> None:
        self._own(Path(path), os.O_CREAT | os.O_EXCL, fcntl.LOCK_EX)

    def _own(self, path: Path, flags: int, lock: int) -> None:
        """Open and lock a file; the lock goes with the process."""
        self.path = path
        self._lanes: tuple[Lane, ...] = ()
        self._dropped = self._nbytes = self._news_nbytes = 0
        with _telling("open", path):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | flags, 0o666)
            try:
                fcntl.flock(self._file, lock)
            except BaseException:
                os.close(self._file)
                raise

    @classmethod
    def in_folder(cls, folder: Path) -> Spool:
        """Return a new spool in a folder, which is made if it is not there."""
        with _telling("write", folder):
            folder.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        return cls(folder / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}{SUFFIX}")

    @classmethod
    def adopt(cls, path: StrPath) -> Spool:
        """Take over a spool whose owner died, to be read and then discarded.

        Raises
        ------
        FileError
            If another process holds it.
        """
        spool = cls.__new__(cls)
        try:
            spool._own(Path(path), 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(f"{os.fspath(path)} is open in another Syncscope") from None
        return spool

    def begin(self, header: Mapping[str, Any]) -> None:
        """Write what is known when a run begins.

        Parameters
        ----------
        header : mapping
            With the keys of `LiveSession.header`; others are left out.
        """
        kept = {name: header[name] for name in ("simulated", "base_ns", *MAPPINGS)}
        self._write(MAGIC + _frame(HEAD, orjson.dumps(kept)))

    def append(self, batch: LiveBatch) -> None:
        """Write what a batch has of a trace."""
        news = self._news(batch)
        frames = [_frame(NEWS, orjson.dumps(news))] if news else []
        self._news_nbytes += sum(map(len, frames))
        if self._news_nbytes > MAX_NEWS_BYTES:
            raise FileError(f"cannot write {self.path}: it has too many changes of plan")
        for at in range(0, len(batch.spans), _SPANS_PER_FRAME):
            frames.append(_frame(SPANS, batch.spans[at : at + _SPANS_PER_FRAME].tobytes()))
        self._write(b"".join(frames))

    def _news(self, batch: LiveBatch) -> dict[str, Any]:
        news: dict[str, Any] = {}
        if batch.sites:
            news["sites"] = plain(batch.sites)
        if batch.lanes != self._lanes:
            news["lanes"] = plain(batch.lanes)
            self._lanes = batch.lanes
        if batch.phases:
            news["phases"] = batch.phases
        if batch.changes:
            news["plans"] = [plain(each.planned.plan) for each in batch.changes]
            news["findings"] = plain(batch.changes[-1].findings)
            news["variant"] = batch.changes[-1].planned.describe()
        if batch.dropped != self._dropped:
            news["dropped"] = self._dropped = batch.dropped
        return news

    def _write(self, data: bytes) -> None:
        """Append bytes, all of them or none."""
        if self._nbytes + len(data) > MAX_FILE_BYTES:
            size = MAX_FILE_BYTES >> 30
            raise FileError(f"cannot write {self.path}: it has reached {size} GiB")
        with _telling("write", self.path):
            try:
                view = memoryview(data)
                while len(view):
                    view = view[os.write(self._file, view) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._nbytes)
                raise
        self._nbytes += len(data)

    def close(self) -> None:
        """Bring all to the disk and let go of the file, which stays; harmless when repeated."""
        if self._file < 0:
            return
        file, self._file = self._file, -1
        with _telling("write", self.path):
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def discard(self) -> None:
        """Remove the file: it was saved elsewhere, or is not wanted."""
        with _telling("remove", self.path):
            self.path.unlink(missing_ok=True)
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def _frame(kind: int, payload: bytes) -> bytes:
    body = bytes([kind]) + payload
    if len(body) > MAX_FRAME_BYTES:
        raise FileError(f"the plan is too large to be recorded: {len(body)} bytes")
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


@contextlib.contextmanager
def _telling(what: str, path: StrPath) -> Iterator[None]:
    """Turn what the system says into a FileError."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"cannot {what} {os.fspath(path)}: {reason}") from None


# ---- reading ------------------------------------------------------------------------------------


def unfinished(folder: Path) -> tuple[Path, ...]:
    """Return the recordings in a folder that their owners left when they died, newest first."""
    found = [path for path in folder.glob(f"*{SUFFIX}") if _is_left(path)]
    return tuple(sorted(found, key=lambda path: path.name, reverse=True))


def _is_left(path: Path) -> bool:
    """Whether nobody holds a spool, and a run had begun in it."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return next(_frames(file, _size(file)), None) is not None
    except (OSError, FileError):
        return False


def read_spool(path: StrPath) -> Trace:
    """Read a spool back, complete to its last whole frame.

    What is missing is said in the trace's `recording`, under ``incomplete``; `dropped` counts the
    spans before the newest `MAX_SPANS` too.

    Raises
    ------
    FileError
        One line: the file is missing, too large, of another kind, too new or damaged, or it ends
        before its run had begun.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileError("it is no regular file")
        with open(path, "rb") as file:
            return _read(file)
    except OSError as error:
        raise FileError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from None
    except FileError as error:
        raise FileError(f"cannot read {os.fspath(path)}: {error}") from None


def convert_spool(source: StrPath, target: StrPath) -> None:
    """Write a spool as a timeline file, as far back as `read_spool` goes.

    Raises
    ------
    FileError
        As `read_spool`, or the target cannot be written.
    """
    write_trace(read_spool(source), target)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A whole frame; `end` is where the next one begins."""

    kind: int
    payload: bytes
    end: int


def _frames(file: BinaryIO, size: int) -> Iterator[_Frame]:
    """Yield whole frames up to the first that is cut off or damaged."""
    if size > MAX_FILE_BYTES:
        raise FileError(f"it has {size} bytes, more than {MAX_FILE_BYTES}")
    start = file.read(len(MAGIC))
    if not start:
        raise FileError("it is empty")
    if start != MAGIC[: len(start)]:
        newer = start.startswith(FORMAT) and start[len(FORMAT) :].strip().isdigit()
        what = "it was written by a newer Syncscope: update to read it"
        raise FileError(what if newer else "it is no recording of Syncscope")
    at = len(start)
    while len(head := file.read(_FRAME.size)) == _FRAME.size:
        length, crc = _FRAME.unpack(head)
        at += _FRAME.size + length
        if not 1 <= length <= MAX_FRAME_BYTES or at > size:
            return
        body = file.read(length)
        if len(body) != length or zlib.crc32(body) != crc:
            return
        yield _Frame(body[0], body[1:], at)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _read(file: BinaryIO) -> Trace:
    size = _size(file)
    frames = _frames(file, size)
    head = next(frames, None)
    if head is None or head.kind != HEAD:
        raise FileError("it ends before its run had begun")
    parts: dict[str, Any] = {name: [] for name in _LISTS} | {"dropped": 0} | _loads(head)
    spans: deque[npt.NDArray[Any]] = deque()
    kept = left_out = news_nbytes = 0
    end = head.end
    for frame in frames:
        if frame.kind == NEWS:
            news_nbytes += len(frame.payload)
            if news_nbytes > MAX_NEWS_BYTES:
                raise FileError(f"it has more than {MAX_NEWS_BYTES} bytes beside spans")
            _take_in(parts, _loads(frame))
        elif frame.kind == SPANS and len(frame.payload) % SPAN.itemsize == 0:
            spans.append(np.frombuffer(frame.payload, SPAN))
            kept += len(spans[-1])
            while kept > MAX_SPANS:
                kept -= len(spans[0])
                left_out += len(spans.popleft())
        else:
            raise FileError(f"the frame before byte {frame.end} is of no kind that there is")
        end = frame.end
    missing = list(_missing(size - end, end, left_out))
    _note(parts, missing, left_out)
    return trace_of_parts(parts, np.concatenate([np.zeros(0, SPAN), *spans]), "the recording")


_LISTS = ("sites", "lanes", "phases", "plans", "findings")
_GROWING = ("sites", "phases", "plans")


def _loads(frame: _Frame) -> dict[str, Any]:
    try:
        data = orjson.loads(frame.payload)
    except orjson.JSONDecodeError as error:
        raise FileError(f"the frame before byte {frame.end} is no JSON ({error})") from None
    if not isinstance(data, dict):
        raise FileError(f"the frame before byte {frame.end} is no object")
    return data


def _take_in(parts: dict[str, Any], news: Mapping[str, Any]) -> None:
    """Add what a NEWS frame has."""
    for name, value in news.items():
        if name in _GROWING and isinstance(value, list):
            parts[name] += value
        else:
            parts[name] = value


def _missing(cut_off: int, end: int, left_out: int) -> Iterator[str]:
    """Say what was not read."""
    if cut_off:
        yield f"{cut_off} bytes after byte {end} are no whole frame"
    if left_out:
        yield f"{left_out} spans before the newest {MAX_SPANS} were left out"


def _note(parts: dict[str, Any], missing: Iterable[str], left_out: int) -> None:
    """Say in the recording's description what it lacks."""
    if isinstance(parts["dropped"], int):
        parts["dropped"] += left_out
    recording = parts.get("recording")
    if isinstance(recording, dict):
        text = "; ".join(missing)
        parts["recording"] = {
            **recording,
            "dropped": parts["dropped"],
            **({"incomplete": text} if text else {}),
        }
