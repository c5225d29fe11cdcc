"""Reader of conformance files (``hazard-cases/1``): small sequences with the hazards expected.

Each case becomes a Program whose sites are its ops, so that a site's number is the op's index.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import orjson

from syncscope.app.importers.case_rows import MAX_DEVICE, CaseRows
from syncscope.app.importers.fields import (
    BadField,
    Record,
    as_object,
    get_choice,
    get_list,
    get_number,
    get_object,
    get_text,
    show,
)
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.machine import STREAM_KINDS
from syncscope.sched_core.program import Program
from syncscope.sched_core.ranges import HAZARDS
from syncscope.sched_core.records import Buffer, Stream

SCHEMA = "hazard-cases/1"
MAX_FILE_BYTES = 8 << 20
MAX_CASES = 10_000
MAX_OPS = 1_000
MAX_EFFORT = 20_000_000_000
"""Of one file; a unit is about a nanosecond of analysis at worst."""

MEMORY = ("pinned", "pageable", "device", "managed")
VERDICTS = ("none", "race")
_ID = re.compile(rb'"id"\s*:\s*"([\x20-\x7e]{1,60}?)"')

REMARKS = ("in_practice", "source_tool_says")


class Hazard(NamedTuple):
    """Two conflicting accesses that nothing orders; `first` and `second` are op indices."""

    type: str
    first: int
    second: int
    buffer: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a case says must be found.

    Parameters
    ----------
    verdict : str
        ``none`` or ``race``.
    hazards : frozenset of Hazard, or None
        None: not told, any will do.
    required : tuple of int
        Ops whose ordering cannot be left out.
    redundant : tuple of int
        Ops whose ordering can be left out, all of them together.
    remark : str
        What hardware or the source's own tool does; shown, not judged.
    """

    verdict: str
    hazards: frozenset[Hazard] | None
    required: tuple[int, ...]
    redundant: tuple[int, ...]
    remark: str


@dataclass(frozen=True, slots=True)
class Case:
    """A sequence of ops as a Program, and what is expected of it."""

    id: str
    title: str
    ops: tuple[str, ...]
    program: Program
    expected: Expectation


def _declare(case: Record) -> CaseRows:
    """Declare the buffers and streams of a case."""
    buffers: list[Buffer] = []
    for name, record in get_object(case, "buffers").items():
        try:
            record = as_object(record)
            memory, nbytes = get_choice(record, "kind", MEMORY), get_number(record, "bytes")
            home = 0 if memory == "device" else -1
            device = get_number(record, "device", home, most=MAX_DEVICE)
        except BadField as error:
            raise BadField(f"buffer {show(name)}: {error}") from None
        buffers.append(Buffer(name, nbytes, memory, device))
    rows = CaseRows(buffers)
    for name, record in get_object(case, "streams").items():
        try:
            record = as_object(record)
            kind = get_choice(record, "kind", STREAM_KINDS)
            number = rows.add_stream(
                Stream(name, get_number(record, "device", 0, most=MAX_DEVICE), kind)
            )
        except BadField as error:
            raise BadField(f"stream {show(name)}: {error}") from None
        rows.streams[name] = number
    return rows


def _indices(record: Record, key: str, count: int) -> tuple[int, ...]:
    values = get_list(record, key, [])
    for value in values:
        if type(value) is not int or not 0 <= value < count:
            raise BadField(f"expected: {key} has {show(value)}, not the index of an op")
    return tuple(values)


def _expectation(case: Record, rows: CaseRows, count: int) -> Expectation:
    record = get_object(case, "expected")
    try:
        verdict = get_choice(record, "verdict", VERDICTS)
        hazards = None
        if "hazards" in record:
            found = []
            for each in get_list(record, "hazards"):
                each = as_object(each)
                first, second = (
                    get_number(each, key, most=count - 1) for key in ("first", "second")
                )
                kind = get_choice(each, "type", HAZARDS)
                rows.buffer_of(get_text(each, "buf"))
                found.append(Hazard(kind, first, second, each["buf"]))
            hazards = frozenset(found)
            if bool(hazards) != (verdict == "race"):
                raise BadField(f"verdict is {verdict}, with {len(hazards)} hazards")
        remarks = [
            f"{key.replace('_', ' ')}: {show(record[key])}" for key in REMARKS if key in record
        ]
    except BadField as error:
        raise BadField(f"expected: {error}") from None
    return Expectation(
        verdict,
        hazards,
        _indices(record, "required_syncs", count),
        _indices(record, "redundant_syncs", count),
        "; ".join(remarks),
    )


def read_case(record: Record, case_id: str) -> Case:
    """Read one case; BadField with the op's index for what is not as the format says."""
    rows = _declare(record)
    ops = get_list(record, "ops")
    if len(ops) > MAX_OPS:
        raise BadField(f"has {len(ops)} ops; the limit is {MAX_OPS}")
    for index, op in enumerate(ops):
        try:
            rows.add(as_object(op))
        except BadField as error:
            raise BadField(f"op {index}: {error}") from None
    return Case(
        id=case_id,
        title=get_text(record, "title", ""),
        ops=tuple(op["op"] for op in ops),
        program=rows.program(),
        expected=_expectation(record, rows, len(ops)),
    )


def _effort(case: Case) -> int:
    """Return how many steps the analysis of a case can take at most."""
    program, expected = case.program, case.expected
    n_streams, n_accesses = len(program.streams), len(program.accesses)
    n_actors = n_streams + program.n_threads
    asks = 1 + 2 * len(expected.required) + 2 * len(expected.redundant)
    return asks * n_actors * (len(program.ops) * (n_streams + 1) + n_accesses * n_accesses)


def _parse(path: str) -> Record:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileError(f"cannot read {path}: it is no regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise FileError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, no conformance file")
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        ids = _ID.findall(data, 0, error.pos)
        where = f", in or after case {ids[-1].decode('ascii', 'replace')}" if ids else ""
        raise FileError(f"{path}: not JSON, or truncated{where}: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("cases"), list):
        raise FileError(f"{path}: not a conformance file: it has no list of cases")
    schema = content.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise FileError(f"{path}: its schema is {show(schema)}; this version reads {SCHEMA}")
    return content


def read_cases(path: str | os.PathLike[str]) -> list[Case]:
    """Read a conformance file.

    Raises
    ------
    FileError
        With the case's id and the op's index, for all that is not as the format says, and for more
        than the limits of this module.
    """
    path = os.fspath(path)
    records = _parse(path)["cases"]

    def refuse(where: str, what: object) -> NoReturn:
        raise FileError(f"{path}: {where}: {what}")

    if not 0 < len(records) <= MAX_CASES:
        refuse("cases", f"there are {len(records)}; 1 to {MAX_CASES} can be read")
    cases: dict[str, Case] = {}
    effort = 0
    for number, record in enumerate(records):
        where = f"case number {number}"
        try:
            record = as_object(record)
            case_id = get_text(record, "id")
            where = f"case {show(case_id)[1:-1] or number}"
            if case_id in cases:
                raise BadField("its id is not the only one")
            cases[case_id] = read_case(record, case_id)
            effort += _effort(cases[case_id])
            if effort > MAX_EFFORT:
                raise BadField("too much to analyse; split the file, or ask about fewer syncs")
        except BadField as error:
            refuse(where, error)
    return list(cases.values())
