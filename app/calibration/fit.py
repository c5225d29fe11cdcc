"""From traces to a profile: every term that they show, and what they leave as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from syncscope.app.calibration.kernels import KernelCase, fit_arithmetic, fit_kernels
from syncscope.app.calibration.observe import (
    KernelTime,
    Observations,
    Rows,
    joined,
    label,
    observe,
)
from syncscope.sched_core.costs import kernel_time_ns
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.profile import FIGURES, Profile
from syncscope.sched_core.trace import Trace

LONG = 4.0
"""A kernel that takes so many launch calls waits for the one before it, not for its own launch."""


@dataclass(frozen=True, slots=True)
class KernelFit:
    """A kernel instance: what was measured of it up to the next one, and what the profile says."""

    name: str
    measured_ns: float
    fitted_ns: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A profile and how it was found.

    Parameters
    ----------
    profile : Profile
    seen : Mapping of str to int
        Fitted terms, and how many figures each was taken from.
    kept : tuple of str
        Terms that no trace shows: they are those of the profile that the fit started from.
    kernels : tuple of KernelFit
    used, left_out : tuple of str
        Names of the traces that were fitted, and of those that were not: other plans.
    """

    profile: Profile
    seen: Mapping[str, int]
    kept: tuple[str, ...]
    kernels: tuple[KernelFit, ...]
    used: tuple[str, ...]
    left_out: tuple[str, ...]


def is_plain(trace: Trace) -> bool:
    """Whether a trace is of the baseline, with a graph or without: other plans are not fitted."""
    passes = trace.variant.get("passes")
    known = isinstance(passes, list | tuple) and all(each == "cuda-graph" for each in passes)
    return known and not trace.variant.get("dropped_sites")


def fit(traces: Sequence[Trace], start: Profile, name: str) -> Fit:
    """Fit a profile to traces of one device.

    Nothing is fitted per model or per preset: traces of plans with other passes than
    ``cuda-graph`` are left out.

    Parameters
    ----------
    traces : sequence of Trace
    start : Profile
        Gives the terms that the traces do not show.
    name : str
        Of the profile that is made.

    Raises
    ------
    UsageError
        Traces of several devices, simulated ones among measured ones, or none of the baseline.
    FileError
        A trace without what has to be there.
    """
    plain = [trace for trace in traces if is_plain(trace)]
    devices = {(str(t.device.get("name")), t.simulated) for t in plain}
    if len(devices) > 1:
        found = ", ".join(
            f"{name}{' simulated' if simulated else ''}" for name, simulated in sorted(devices)
        )
        raise UsageError(f"traces of several devices cannot be fitted together: {found}")
    seen = joined(observe(trace) for trace in plain)
    if not any(_took_ns(each, 0.0) > 0 for each in seen.in_graph):
        raise UsageError("no trace of the plan baseline: its graphs show what kernels take")
    ((device_name, simulated),) = devices
    terms = _terms_of(plain, start)
    profile = _with(start, terms)
    fitted, kernels, shared = _fit_kernels(seen, profile)
    counts = {term: count for term, (_, count) in terms.items()} | shared
    kept = tuple(term for term in FIGURES if term not in counts)
    used = tuple(map(label, plain))
    profile = replace(
        fitted,
        name=name,
        device_name=device_name,
        status="estimated" if simulated else "calibrated",
        source=_source(plain, kept, start),
    )
    left_out = tuple(label(trace) for trace in traces if not is_plain(trace))
    return Fit(profile, counts, kept, kernels, used, left_out)


def _source(traces: Sequence[Trace], kept: Sequence[str], start: Profile) -> str:
    """Say in one line what a profile was made from."""
    first = traces[0]
    what = "simulated traces, a check and no measurement" if first.simulated else "traces"
    versions = " ".join(
        f"{key} {first.environment[key]}"
        for key in ("driver", "cuda")
        if first.environment.get(key)
    )
    day = str(first.environment.get("time") or "")[:10]
    made = f"fitted to {what} ({', '.join(map(label, traces))})"
    when = ", ".join(part for part in (versions, day) if part)
    rest = f"; not seen in them, kept from profile {start.name}: {', '.join(kept)}" if kept else ""
    return f"{made}{f'; {when}' if when else ''}{rest}"


# ---- calls and copies ---------------------------------------------------------------------------

Terms = dict[str, tuple[float, int]]
"""Of each term its value, and how many figures it was taken from."""

_MEDIANS: Mapping[str, str] = {
    "record_call_ns": "records",
    "wait_call_ns": "event_waits",
    "sync_call_ns": "idle_syncs",
    "launch_call_ns": "launches",
    "launch_start_ns": "launch_starts",
    "graph_start_ns": "graph_starts",
    "sync_return_ns": "returns",
}
"""Terms that are the median of one sort of observations."""


def _with(profile: Profile, terms: Terms) -> Profile:
    values: dict[str, Any] = {term: value for term, (value, _) in terms.items()}
    return replace(profile, **values)


def _terms_of(traces: Sequence[Trace], start: Profile) -> Terms:
    """Return all terms but those of kernels.

    What steps of models show is taken from them, and from the probe only what they do not: some
    terms are known by sums alone, and it is the sums of real steps that have to come out right.
    """
    terms: Terms = {}
    for is_model in (False, True):
        group = [trace for trace in traces if _is_model(trace) == is_model]
        if group:
            terms |= _terms(joined(map(observe, group)), _with(start, terms))
    return terms


def _is_model(trace: Trace) -> bool:
    """Whether a trace is of a model, which begins with a prompt, or of the probe."""
    return any(phase != "decode" for phase in trace.phases)


def _terms(seen: Observations, start: Profile) -> Terms:
    """Return all terms but those of kernels."""
    found: Terms = {}
    for term, name in _MEDIANS.items():
        rows = getattr(seen, name)
        if rows:
            found[term] = max(0.0, median(row[-1] for row in rows)), len(rows)
    host = tuple((work.moved, ns) for work, ns in seen.host)
    _add_line(found, host, "host_ns", "host_bytes_per_ns", start)
    _add_line(found, seen.staged, "pageable_call_ns", "pageable_bytes_per_ns", start)
    _add_line(found, seen.graphs, "graph_call_ns", "graph_call_per_node_ns", start)
    _add_upload_calls(found, seen.uploads)
    _add_copies(found, seen, start)
    return found


def _line(rows: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return a and b >= 0 of y = a + b x; None from a single x.

    Squares of errors count by 1 / y: a term between relative errors, which short calls would
    decide, and absolute ones, which would leave the fixed part to the longest.
    """
    if len({x for x, _ in rows}) < 2:
        return None
    x, y = np.array(rows, float).T
    scale = x.max()
    weight = 1 / np.sqrt(np.maximum(y, 1.0))
    left = np.stack([weight, x / scale * weight], axis=1)
    a, b = np.linalg.lstsq(left, y * weight, rcond=None)[0].tolist()
    if b < 0:
        return float(np.median(y)), 0.0
    return max(a, 0.0), b / scale


def _add_line(found: Terms, rows: Rows, fixed: str, slope: str, start: Profile) -> None:
    """Add the two terms of a line: what is fixed, and a rate or a time per unit."""
    line, is_rate = _line(rows), slope.endswith("_per_ns")
    if line is not None:
        found[fixed] = line[0], len(rows)
        if not is_rate:
            found[slope] = line[1], len(rows)
        elif line[1] > 0:
            found[slope] = 1 / line[1], len(rows)
    elif rows:
        each = getattr(start, slope) ** (-1 if is_rate else 1)
        found[fixed] = max(0.0, median(ns - size * each for size, ns in rows)), len(rows)


def _add_upload_calls(found: Terms, rows: Rows) -> None:
    """Add what a copy's call costs: it grows with the bytes up to a size, then it does not."""
    best: tuple[float, float, tuple[float, float]] | None = None
    sizes = sorted({size for size, _ in rows})
    for limit in sizes:
        written = [(size if size <= limit else 0, ns) for size, ns in rows]
        line = _line(written)
        if line is not None:
            errors = (line[0] + line[1] * size - ns for size, ns in written)
            error = sum(
                (off / max(ns, 1)) ** 2 for off, (_, ns) in zip(errors, written, strict=True)
            )
            if best is None or error <= best[0]:
                best = error, limit, line
    if best is None:
        return
    _, limit, (fixed, per_byte) = best
    found["copy_call_ns"] = fixed, len(rows)
    if per_byte > 0:
        found["inline_bytes_per_ns"] = 1 / per_byte, len(rows)
    if limit < sizes[-1]:
        found["inline_nbytes"] = limit, len(sizes)


def _add_copies(found: Terms, seen: Observations, start: Profile) -> None:
    """Add how long copies take on the device, and what lies around them.

    An idle stream's copy is over `copy_start + its own time + sync_return` after its call; of
    copies behind each other each adds its own time; behind a kernel, `switch` takes the place of
    `copy_start`.
    """

    def value(term: str) -> float:
        return found[term][0] if term in found else float(getattr(start, term))

    def add(term: str, ns: float, count: int) -> None:
        found[term] = max(ns, 0.0), count

    limit = value("inline_nbytes")
    written = [row for row in seen.uploads_done if row[0] <= limit]
    by_engine = [row for row in seen.uploads_done if row[0] > limit]
    uploaded = _line(by_engine)
    if uploaded is not None and uploaded[1] > 0:
        found["h2d_bytes_per_ns"] = 1 / uploaded[1], len(by_engine)
    if written:
        rate = value("h2d_bytes_per_ns")
        alone = median(ns - size / rate for size, ns in written)
        bursts = [row for row in seen.bursts if row[1] <= limit]
        if bursts:
            each = median((ns - n * size / rate - alone) / (n - 1) for n, size, ns in bursts)
            add("inline_ns", each, len(bursts))
        # the host's clock alone bounds these two together; a return is seen by both clocks
        most = max(alone - value("inline_ns"), 0.0)
        if value("sync_return_ns") > most:
            add("sync_return_ns", most, len(written))
        add("copy_start_ns", alone - value("inline_ns") - value("sync_return_ns"), len(written))
    around = value("copy_start_ns") + value("sync_return_ns")
    if uploaded is not None:
        add("h2d_ns", uploaded[0] - around, len(by_engine))
    downloaded = _line(seen.downloads_done) or _line(seen.downloads_after)
    if downloaded is not None and downloaded[1] > 0:
        rows = seen.downloads_done if _line(seen.downloads_done) else seen.downloads_after
        found["d2h_bytes_per_ns"] = 1 / downloaded[1], len(rows)
    rate = value("d2h_bytes_per_ns")
    if seen.downloads_done:
        alone = median(ns - size / rate for size, ns in seen.downloads_done)
        add("d2h_ns", alone - around, len(seen.downloads_done))
    if seen.downloads_after:
        behind = median(ns - size / rate for size, ns in seen.downloads_after)
        add(
            "switch_ns",
            behind - value("d2h_ns") - value("sync_return_ns"),
            len(seen.downloads_after),
        )


# ---- kernels ------------------------------------------------------------------------------------


def _took_ns(each: KernelTime, boundary_ns: float) -> float:
    """Return how long a kernel took up to the next one of a graph, whether there is one or not."""
    return each.run_ns + boundary_ns if each.next_ns is None else each.next_ns


def _fit_kernels(
    seen: Observations, profile: Profile
) -> tuple[Profile, tuple[KernelFit, ...], dict[str, int]]:
    """Return the profile with the terms of kernels, how well they fit, and the counts of terms."""
    boundary = min(
        (each.next_ns - each.run_ns for each in seen.in_graph if each.next_ns is not None),
        default=0.0,
    )

    def case(each: KernelTime, took_ns: float) -> KernelCase:
        return KernelCase(each.name, each.work, each.step_moved > profile.l2_nbytes, took_ns)

    known = {each.work.kernel for each in seen.in_graph}
    alone = [
        replace(each, next_ns=None) for each in seen.one_by_one if each.work.kernel not in known
    ]
    cases = [
        case(each, _took_ns(each, boundary))
        for each in (*seen.in_graph, *alone)
        if _took_ns(each, boundary) > 0
    ]
    fitted, shared = fit_kernels(cases, profile)
    counts = {**dict.fromkeys(shared, len(cases)), "kernel_ns": len(cases)}

    took = {each.name: each.took_ns for each in cases}
    gaps = [
        apart - took[name]
        for name, apart, lag in seen.pairs
        if name in took and lag > 1.2 * profile.launch_start_ns
    ]
    if gaps:
        fitted = replace(fitted, launch_gap_ns=max(0.0, median(gaps)))
        counts["launch_gap_ns"] = len(gaps)
    prompt = [
        case(each, each.next_ns - fitted.launch_gap_ns)
        for each in seen.of_prompt
        if each.next_ns is not None and each.next_ns > LONG * profile.launch_call_ns
    ]
    rate = fit_arithmetic(prompt, fitted)
    if rate is not None:
        fitted = replace(fitted, device_macs_per_ns=rate)
        counts["device_macs_per_ns"] = len(prompt)
    fits = tuple(
        KernelFit(each.name, each.took_ns, kernel_time_ns(each.work, fitted, each.from_memory))
        for each in cases
    )
    return fitted, fits, counts
