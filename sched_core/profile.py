"""A profile: what things cost on one device; as JSON files, shipped ones and others."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any

import orjson

from syncscope.sched_core.errors import FileError, UsageError, nearest

PROFILES = ("h200", "rtx3090")
"""Shipped profiles."""

STATUSES = ("calibrated", "provisional", "estimated")
"""Where the figures of a profile come from, best first."""

MAX_FILE_BYTES = 1 << 20
_TIMES, _RATES, _SIZES, _RATIOS = (0.0, 1e9), (1e-3, 1e9), (0.0, 1e15), (1e-6, 1e6)
"""Least and greatest value of each sort of figure."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of one device; times in nanoseconds, rates per nanosecond.

    `costs.row_costs` says how kernels and copies are reckoned from these, `machine` when they run.

    Parameters
    ----------
    name, device_name : str
    status : str
        One of `STATUSES`.
    source : str
        What was measured, and what was not.
    host_ns, host_bytes_per_ns, host_macs_per_ns : float
        Host work: a call, and the larger of its traffic and its arithmetic.
    launch_call_ns, launch_start_ns : float
        Host time of a kernel launch; from there to the kernel's begin on an idle stream.
    launch_gap_ns : float
        What lies between two kernels launched one by one, beyond what lies between two of a graph.
    graph_call_ns, graph_call_per_node_ns, graph_start_ns : float
        The same of a graph launch, with what each node adds to the call.
    kernels : mapping of str to float
        Fixed time of each kernel, with what lies between it and the next one of a graph.
    kernel_ns : float
        The same of a kernel that is not in `kernels`.
    l2_load_ns, memory_load_ns : float
        A load that the next one waits for, answered by the L2 cache or by memory.
    l2_nbytes : float
        Size of the L2 cache: what one step's kernels move is found there again if it fits.
    device_bytes_per_ns, device_macs_per_ns : float
        Memory bandwidth and arithmetic rate that kernels reach.
    copy_call_ns, copy_start_ns : float
        Host time of a copy from or to pinned memory; from there to its begin on an idle stream.
    inline_nbytes : float
        Largest copy to the device that the call writes into the stream of commands; others are
        done by a copy engine.
    inline_bytes_per_ns, inline_ns : float
        Rate at which such a call writes, and how long such a copy occupies its stream.
    h2d_ns, h2d_bytes_per_ns, d2h_ns, d2h_bytes_per_ns : float
        A copy by an engine, in each direction: fixed time, and rate.
    switch_ns : float
        From the end of work to the begin of the next of its stream on another engine: a kernel
        then a copy engine's copy, or the other way round.
    pageable_call_ns, pageable_bytes_per_ns : float
        Host time of a copy from or to pageable memory, which the call stages.
    record_call_ns, wait_call_ns : float
        Host time of an event record, and of a stream's wait for an event.
    sync_call_ns : float
        A host wait for what is done already.
    sync_return_ns : float
        From the end of what a host wait had to wait for to its return.
    """

    name: str
    device_name: str
    status: str
    source: str
    host_ns: float
    host_bytes_per_ns: float
    host_macs_per_ns: float
    launch_call_ns: float
    launch_start_ns: float
    launch_gap_ns: float
    graph_call_ns: float
    graph_call_per_node_ns: float
    graph_start_ns: float
    kernels: Mapping[str, float]
    kernel_ns: float
    l2_load_ns: float
    memory_load_ns: float
    l2_nbytes: float
    device_bytes_per_ns: float
    device_macs_per_ns: float
    copy_call_ns: float
    copy_start_ns: float
    inline_nbytes: float
    inline_bytes_per_ns: float
    inline_ns: float
    h2d_ns: float
    h2d_bytes_per_ns: float
    d2h_ns: float
    d2h_bytes_per_ns: float
    switch_ns: float
    pageable_call_ns: float
    pageable_bytes_per_ns: float
    record_call_ns: float
    wait_call_ns: float
    sync_call_ns: float
    sync_return_ns: float


_TEXTS = ("name", "device_name", "status", "source")
FIGURES = tuple(
    each.name for each in fields(Profile) if each.name not in (*_TEXTS, "kernels")
)  # fmt: skip
"""Fields of a profile that are one number."""

_WHOLE = {each.name for each in fields(Profile)}
_SCALED = {*_TEXTS, "scaled_from", "ratios"}


def load_profile(name: str) -> Profile:
    """Read a shipped profile, or the one in a file.

    Parameters
    ----------
    name : str
        One of `PROFILES`, or a path: it ends in ``.json`` or has a separator.

    Raises
    ------
    UsageError
        Unknown name; the message has the nearest known ones.
    FileError
        A file that cannot be read, is no profile, or has a value that is none.
    """
    if name in PROFILES:
        return parse_profile(_shipped(name))
    if not name.endswith(".json") and os.sep not in name:
        known = f"{nearest(name, PROFILES)}; or give the path of a profile's .json file"
        raise UsageError(f"unknown profile {name}; {known}")
    try:
        with open(name, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read profile {name}: {reason}") from None
    try:
        return parse_profile(data)
    except FileError as error:
        raise FileError(f"cannot use profile {name}: {error}") from None


def _shipped(name: str) -> bytes:
    return (resources.files("syncscope.sched_core") / "profiles" / f"{name}.json").read_bytes()


def parse_profile(data: bytes) -> Profile:
    """Make a profile from the bytes of a JSON file.

    The file holds every field of `Profile`; or, for a device of which nothing was measured, the
    four texts, the shipped profile that it is `scaled_from`, and by which `ratios`: of fields, 1
    where none is given, and of `kernels` one for all.

    Raises
    ------
    FileError
        One line: what is wrong with it.
    """
    if len(data) > MAX_FILE_BYTES:
        raise FileError(f"it has more than {MAX_FILE_BYTES} bytes, too many for a profile")
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FileError(f"it is cut off or damaged, and no JSON ({error})") from None
    if not isinstance(values, dict):
        raise FileError("it is JSON of another kind, no profile")
    is_scaled = "scaled_from" in values
    wanted = _SCALED if is_scaled else _WHOLE
    for what, names in (("no", wanted - values.keys()), ("an unknown", values.keys() - wanted)):
        if names:
            raise FileError(f"it has {what} {ascii(min(names))[1:-1][:60]}")
    texts: dict[str, Any] = {name: _text(name, values[name]) for name in _TEXTS}
    if texts["status"] not in STATUSES:
        raise FileError(f"status is {ascii(texts['status'])[:60]}, not {' or '.join(STATUSES)}")
    if is_scaled:
        return _scale(texts, values["scaled_from"], values["ratios"])
    figures: dict[str, Any] = {name: _figure(name, values[name], _limits(name)) for name in FIGURES}
    return Profile(**texts, **figures, kernels=_figures("kernels", values["kernels"], _TIMES))


def _scale(texts: dict[str, Any], base: Any, ratios: Any) -> Profile:
    """Return a shipped profile with its figures multiplied."""
    if base not in PROFILES:
        raise FileError(f"scaled_from is {ascii(base)[:60]}, not {' or '.join(PROFILES)}")
    shipped = _shipped(base)
    if "scaled_from" in orjson.loads(shipped):
        raise FileError(f"scaled_from is {base}, which is scaled itself")
    known = parse_profile(shipped)
    factors = _figures("ratios", ratios, _RATIOS)
    unknown = factors.keys() - {*FIGURES, "kernels"}
    if unknown:
        raise FileError(f"ratios has an unknown {ascii(min(unknown))[1:-1][:60]}")
    return replace(
        known,
        **texts,
        kernels={name: ns * factors.get("kernels", 1.0) for name, ns in known.kernels.items()},
        **{name: getattr(known, name) * factors.get(name, 1.0) for name in FIGURES},
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise FileError(f"{name} is no line of text")
    return value


def _limits(field: str) -> tuple[float, float]:
    """Return the least and the greatest value of a field, which the end of its name tells."""
    if field.endswith("_per_ns"):
        return _RATES
    return _SIZES if field.endswith("_nbytes") else _TIMES


def _figure(where: str, value: Any, limits: tuple[float, float]) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise FileError(f"{where} is {ascii(value)[:60]}, not a number")
    low, high = limits
    if not low <= value <= high:
        raise FileError(f"{where} is {value!r}, outside {low:g}..{high:g}")
    return float(value)


def _figures(name: str, values: Any, limits: tuple[float, float]) -> dict[str, float]:
    """Return the numbers of an object."""
    if not isinstance(values, dict):
        raise FileError(f"{name} is {ascii(values)[:60]}, not an object")
    return {
        key: _figure(f"{name}.{ascii(key)[1:-1][:60]}", value, limits)
        for key, value in values.items()
    }


def render_profile(profile: Profile) -> str:
    """Return the JSON of a profile, figures to six digits; `parse_profile` reads it back."""
    values = {each.name: getattr(profile, each.name) for each in fields(Profile)}
    values |= {name: _round(values[name]) for name in FIGURES}
    values["kernels"] = {name: _round(ns) for name, ns in sorted(profile.kernels.items())}
    return json.dumps(values, indent=1) + "\n"


def _round(value: float) -> float:
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short


def profile_rows() -> list[dict[str, Any]]:
    """Return name, device and status of each shipped profile."""
    found = [load_profile(name) for name in PROFILES]
    return [{"profile": p.name, "device": p.device_name, "status": p.status} for p in found]
