"""The `syncscope` object of a timeline file: whole traces as JSON, and back, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.errors import FileError
from syncscope.sched_core.program import Site
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Finding, Kind, Plan
from syncscope.sched_core.trace import Lane, Trace

SCHEMA = "syncscope-trace/1"
VERSION = 1
MAX_DEPTH = 16
"""Of the values in the free-form mappings."""

MAX_NS = 2**61
"""A time further from the run's start than this (73 years) is damage."""

MAPPINGS = ("device", "model", "variant", "recording", "environment")
_PARTS = ("simulated", "base_ns", "dropped", "phases", "lanes", "sites", "plans", "findings")


def to_object(traces: Iterable[Trace]) -> dict[str, Any]:
    """Return traces as JSON values; the columns of their spans stay numpy arrays.

    Records leave out fields that have their default; a kind is its name in small letters.
    """
    return {"schema": SCHEMA, "traces": [_trace_object(trace) for trace in traces]}


def _trace_object(trace: Trace) -> dict[str, Any]:
    return {
        "simulated": trace.simulated,
        "base_ns": trace.base_ns,
        "dropped": trace.dropped,
        **{name: plain(getattr(trace, name)) for name in MAPPINGS},
        "phases": list(trace.phases),
        "lanes": plain(trace.lanes),
        "sites": plain(trace.sites),
        "plans": plain(trace.plans),
        "findings": plain(trace.findings),
        "spans": {name: np.ascontiguousarray(trace.spans[name]) for name in SPAN.names or ()},
    }


def plain(value: Any) -> Any:
    """Return a record, or what holds records, as JSON values."""
    if isinstance(value, Kind):
        return value.name.lower()
    if is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name))
            for field in fields(value)
            if not _is_default(field, getattr(value, field.name))
        }
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _is_default(field: Field[Any], value: Any) -> bool:
    return field.default is not MISSING and bool(value == field.default)


def from_object(data: Any) -> tuple[Trace, ...]:
    """Make traces from what `to_object` made, after JSON.

    Raises
    ------
    FileError
        Another schema, a missing or wrong value, columns of unequal length, a number that
        indexes nothing.  The message says what and where, not in which file.
    """
    if not isinstance(data, dict):
        raise FileError("its syncscope object is no object")
    _check_schema(data.get("schema"))
    _check_keys(data, {"schema", "traces"}, "syncscope")
    if not isinstance(data["traces"], list):
        raise FileError(f"traces is {_show(data['traces'])}, not a list")
    return tuple(_parse_trace(each, f"traces[{i}]") for i, each in enumerate(data["traces"]))


def _parse_trace(data: Any, where: str) -> Trace:
    if not isinstance(data, dict):
        raise FileError(f"{where} is {_show(data)}, not an object")
    _check_keys(data, {*_PARTS, *MAPPINGS, "spans"}, where)
    parts = {name: value for name, value in data.items() if name != "spans"}
    return trace_of_parts(parts, _parse_spans(data["spans"]), where)


def trace_of_parts(data: Mapping[str, Any], spans: npt.NDArray[Any], where: str) -> Trace:
    """Make a trace of its parts as JSON values and of its spans, checked.

    Raises
    ------
    FileError
        As `from_object`.
    """
    _check_keys(data, {*_PARTS, *MAPPINGS}, where)
    trace = Trace(
        sites=_parse(tuple[Site, ...], data["sites"], "sites"),
        lanes=_parse(tuple[Lane, ...], data["lanes"], "lanes"),
        phases=_parse(tuple[str, ...], data["phases"], "phases"),
        spans=spans,
        dropped=_parse(int, data["dropped"], "dropped"),
        simulated=_parse(bool, data["simulated"], "simulated"),
        plans=_parse(tuple[Plan, ...], data["plans"], "plans"),
        findings=_parse(tuple[Finding, ...], data["findings"], "findings"),
        base_ns=_parse(int, data["base_ns"], "base_ns"),
        **{name: _parse(Mapping[str, Any], data[name], name) for name in MAPPINGS},
    )
    _check_indices(trace)
    return trace


def _check_schema(schema: Any) -> None:
    name, _, version = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name != "syncscope-trace" or not (version.isascii() and version.isdigit()):
        raise FileError(f"its schema is {_show(schema)}, not {SCHEMA}")
    if len(version) > 9 or int(version) > VERSION:
        raise FileError(f"it was written by a newer Syncscope ({_show(schema)}): update to read it")
    if int(version) != VERSION:
        raise FileError(f"its schema is {_show(schema)}, which was never in use")


def _show(value: Any) -> str:
    """Return a value for a message: one line, not too long."""
    text = ascii(value) if isinstance(value, str) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:56]}..."


def _check_keys(data: Mapping[str, Any], wanted: set[str], where: str) -> None:
    missing = sorted(wanted - data.keys())
    if missing:
        raise FileError(f"{where} has no {missing[0]}")
    unknown = sorted(data.keys() - wanted)
    if unknown:
        raise FileError(f"{where} has an unknown key {_show(unknown[0])}")


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record)


def _parse(hint: Any, value: Any, where: str) -> Any:
    """Return a JSON value as the type that a record declares."""
    if hint is Any:
        _check_depth(value, where)
        return value
    if hint is Kind:
        return _parse_kind(value, where)
    if hint in (str, int, bool):
        if type(value) is not hint:
            raise FileError(f"{where} is {_show(value)}, not {hint.__name__}")
        if hint is int and not -(2**63) <= value < 2**63:
            raise FileError(f"{where} does not fit in 64 bits")
        return value
    if get_origin(hint) is UnionType:
        return None if value is None else _parse(get_args(hint)[0], value, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise FileError(f"{where} is {_show(value)}, not a list")
        inner = get_args(hint)[0]
        return tuple(_parse(inner, each, f"{where}[{i}]") for i, each in enumerate(value))
    if not isinstance(value, dict):
        raise FileError(f"{where} is {_show(value)}, not an object")
    if get_origin(hint) is not None:
        inner = get_args(hint)[1]
        return {key: _parse(inner, each, f"{where}.{_show(key)}") for key, each in value.items()}
    return _parse_record(hint, value, where)


def _check_depth(value: Any, where: str, left: int = MAX_DEPTH) -> None:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inside and not left:
        raise FileError(f"{where} is nested more than {MAX_DEPTH} deep")
    for each in inside:
        _check_depth(each, where, left - 1)


def _parse_kind(value: Any, where: str) -> Kind:
    if isinstance(value, str) and value.islower() and value.upper() in Kind.__members__:
        return Kind[value.upper()]
    raise FileError(f"{where} is {_show(value)}, not a kind of op")


def _parse_record(record: Any, value: Mapping[str, Any], where: str) -> Any:
    known = {field.name: field for field in fields(record)}
    required = {name for name, field in known.items() if field.default is MISSING}
    _check_keys(value, {*required, *(known.keys() & value.keys())}, where)
    hints = _hints(record)
    return record(
        **{name: _parse(hints[name], each, f"{where}.{name}") for name, each in value.items()}
    )


def _parse_spans(data: Any) -> npt.NDArray[Any]:
    if not isinstance(data, dict):
        raise FileError(f"spans is {_show(data)}, not an object")
    names = SPAN.names or ()
    _check_keys(data, set(names), "spans")
    columns = {name: _parse_column(name, data[name]) for name in names}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise FileError(f"the columns of spans differ in length: {shown}")
    spans = np.zeros(len(columns["op"]), SPAN)
    for name, column in columns.items():
        spans[name] = column
    return spans


def _parse_column(name: str, data: Any) -> npt.NDArray[Any]:
    where = f"spans.{name}"
    if not isinstance(data, list):
        raise FileError(f"{where} is {_show(data)}, not a list")
    dtype = SPAN[name]
    if not data:
        return np.zeros(0, dtype)
    if set(map(type, data)) != {int}:
        raise FileError(f"{where} has values that are no whole numbers")
    bounds = np.iinfo(dtype)
    low, high = min(data), max(data)
    if low < bounds.min or high > bounds.max:
        worst = low if low < bounds.min else high
        raise FileError(f"{where} has {worst}, outside {bounds.min}..{bounds.max}")
    return np.array(data, dtype)


def _check_indices(trace: Trace) -> None:
    """Refuse spans that name a site, lane, role or step that is not there, or end too early."""
    spans = trace.spans
    if not len(spans):
        return
    for name, count in (("op", len(trace.sites)), ("lane", len(trace.lanes)), ("role", 2)):
        low, high = int(spans[name].min()), int(spans[name].max())
        if low < 0 or high >= count:
            worst = low if low < 0 else high
            raise FileError(f"spans.{name} has {worst}, outside 0..{count - 1}")
    # the drain at the end of a run carries the number of the step that would have come next
    in_step = np.array([site.phase != "switch" for site in trace.sites], dtype=bool)
    last = len(trace.phases) - in_step[spans["op"]].astype(np.int64)
    wrong = np.flatnonzero((spans["step"] < 0) | (spans["step"] > last))
    if len(wrong):
        raise FileError(
            f"spans.step has {spans['step'][wrong[0]]}, outside 0..{len(trace.phases) - 1}"
        )
    for name in ("begin_ns", "end_ns"):
        if spans[name].min() < -MAX_NS or spans[name].max() > MAX_NS:
            raise FileError(f"spans.{name} has a time beyond {MAX_NS} ns")
    backward = np.flatnonzero(spans["end_ns"] < spans["begin_ns"])
    if len(backward):
        raise FileError(f"span {backward[0]} ends before it begins")
