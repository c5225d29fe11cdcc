"""Figures of a variant, counted and timed from the spans that were recorded, not from the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.results import Metrics
from syncscope.sched_core.pattern import SYNC_LETTERS, count_syncs, letter, pattern
from syncscope.sched_core.records import PHASES, Kind
from syncscope.sched_core.timeline import union
from syncscope.sched_core.trace import Trace

CALL, EXEC = 0, 1
"""Roles of a span, as in ``recorder.ROLES``."""

SWITCH = "switch"
"""Phase of the syncs that belong to no step: a change of plan, the end of the run."""

WARM_UP_PERIODS = 2
RESAMPLES = 1000
CONFIDENCE = 0.95

Spans = npt.NDArray[Any]


def site_letters(trace: Trace) -> tuple[str, ...]:
    """Return the pattern letter of each site; empty for those that count in no step."""
    return tuple(
        "" if site.phase == SWITCH else letter(site.kind, site.blocking, site.scope)
        for site in trace.sites
    )


def call_spans(trace: Trace) -> Spans:
    """Return the calls that belong to steps, in the order in which they were recorded."""
    in_step = np.array([site.phase != SWITCH for site in trace.sites], dtype=bool)
    spans = trace.spans
    is_call = spans["role"] == CALL
    return spans[is_call & in_step[spans["op"]]] if len(spans) else spans


def step_pattern(trace: Trace, step: int, host: bool = False) -> str:
    """Return what the host executed in one step, in pattern letters."""
    calls = call_spans(trace)
    return _pattern(site_letters(trace), calls[calls["step"] == step], host)


def _pattern(letters: tuple[str, ...], calls: Spans, host: bool = False) -> str:
    in_order = calls["op"][np.argsort(calls["begin_ns"], kind="stable")]
    return pattern((letters[op] for op in in_order.tolist() if letters[op]), host)


def executed_patterns(trace: Trace) -> dict[str, str]:
    """Return the pattern of the last whole step of each phase that ran.

    A last step that broke off (a fault, a full recorder) has the beginning of the pattern of the
    step before it; then that one counts.
    """
    calls, letters = call_spans(trace), site_letters(trace)
    ran = np.unique(calls["step"])
    phase_of = np.array(trace.phases, dtype=object)
    switches = _switch_ends(trace)
    found: dict[str, str] = {}
    for phase in PHASES:
        steps = ran[phase_of[ran] == phase]
        if not len(steps):
            continue
        last = calls[calls["step"] == steps[-1]]
        found[phase] = _pattern(letters, last)
        if len(steps) < 2 or steps[-1] != ran[-1]:
            continue
        before = calls[calls["step"] == steps[-2]]
        whole = _pattern(letters, before)
        same_plan = not np.any(
            (switches >= before["end_ns"].max()) & (switches <= last["begin_ns"].min())
        )
        if same_plan and whole != found[phase] and whole.startswith(found[phase]):
            found[phase] = whole
    return found


def _switch_ends(trace: Trace) -> npt.NDArray[np.int64]:
    """Return when each drain that belongs to no step ended, sorted."""
    spans = trace.spans
    outside = np.array([site.phase == SWITCH for site in trace.sites], dtype=bool)
    if not len(spans):
        return np.zeros(0, np.int64)
    drains = (spans["role"] == CALL) & outside[spans["op"]]
    return np.sort(spans["end_ns"][drains])


def steady_steps(trace: Trace) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the decode steps in steady state, and a (begin, end) row of each one's period.

    A period lies between the ends of the last device work of two decode steps that follow each
    other, and belongs to the later one.  Left out are periods with a change of plan in them and,
    of each run of steps under one plan, the first two and those of steps whose kernels were
    still launched one by one, before their graph was captured.
    """
    none = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    n_steps = len(trace.phases)
    in_decode = np.array([phase == "decode" for phase in trace.phases], dtype=bool)
    spans = trace.spans
    if not len(spans) or not in_decode.any():
        return none
    valid = (spans["step"] >= 0) & (spans["step"] < n_steps)
    worked = spans[valid & (spans["role"] == EXEC)]
    ends = np.full(n_steps, -1, np.int64)
    np.maximum.at(ends, worked["step"], worked["end_ns"])
    steps = np.flatnonzero(in_decode & (ends >= 0))
    if len(steps) < 2:
        return none
    kinds = np.array([site.kind for site in trace.sites])
    graphs = spans[valid & (spans["role"] == CALL)]
    replayed = np.zeros(n_steps, bool)
    replayed[graphs["step"][kinds[graphs["op"]] == Kind.GRAPH]] = True

    ends, replayed = np.maximum.accumulate(ends[steps]), replayed[steps]
    keep = steady_periods(steps, ends, replayed, _switch_ends(trace))
    periods = np.stack([ends[:-1], ends[1:]], axis=1)
    return steps[1:][keep], periods[keep]


def steady_periods(
    steps: npt.NDArray[np.int64],
    end_ns: npt.NDArray[np.int64],
    replayed: npt.NDArray[np.bool_],
    switch_end_ns: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Return which periods between decode steps are in steady state, as `steady_steps` says.

    Parameters
    ----------
    steps : ndarray of int64, shape (n,)
        Decode steps with device work, rising; n is at least 1.
    end_ns : ndarray of int64, shape (n,)
        When the last device work of each and of those before it ended.
    replayed : ndarray of bool, shape (n,)
        Whether a step launched a graph.
    switch_end_ns : ndarray of int64
        When drains that belong to no step ended.

    Returns
    -------
    ndarray of bool, shape (n - 1,)
        Of the period between each step and the next.
    """
    at = np.searchsorted(end_ns, switch_end_ns, side="right") - 1
    broken = np.diff(steps) != 1
    broken[at[(at >= 0) & (at < len(broken))]] = True
    keep = np.zeros(len(broken), bool)
    cuts = np.concatenate([[0], np.flatnonzero(broken) + 1, [len(steps)]])
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        captured = np.flatnonzero(replayed[first:last])
        eager = int(captured[0]) if len(captured) else 0
        keep[first + max(WARM_UP_PERIODS, eager) : last - 1] = True
    return keep


def median_interval(values: npt.NDArray[np.int64], seed: int = 0) -> tuple[float, float, float]:
    """Return the median of some values and its 95 % bootstrap interval.

    The medians of resamples are drawn directly: the middle one of n indices drawn with
    replacement is beta distributed, so that n x 1000 draws are not needed.
    """
    ordered = np.sort(values)
    n = len(ordered)
    median = float(np.median(ordered))
    if ordered[0] == ordered[-1]:
        return median, median, median
    rng = np.random.default_rng(seed)
    rank = (n + 1) // 2
    lower = rng.beta(rank, n - rank + 1, RESAMPLES)
    upper = lower if n % 2 else lower + (1 - lower) * rng.beta(1, n - rank, RESAMPLES)
    picked = [ordered[np.minimum((n * each).astype(np.int64), n - 1)] for each in (lower, upper)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile((picked[0] + picked[1]) / 2, [tail, 1 - tail])
    return median, float(low), float(high)


def time_to_first_token_us(trace: Trace) -> float | None:
    """Return the time from the first call to the end of the first accepted token's.

    Without a site `sample.accept`, the last host work of the first step with logits counts.
    """
    calls = call_spans(trace)
    if not len(calls):
        return None
    accepts = np.array([site.name == "sample.accept" for site in trace.sites], dtype=bool)
    ends = calls["end_ns"][accepts[calls["op"]]]
    if len(ends):
        end = int(ends.min())
    elif "prompt_last" in trace.phases:
        host = np.array([site.kind == Kind.HOST for site in trace.sites], dtype=bool)
        last = (calls["step"] == trace.phases.index("prompt_last")) & host[calls["op"]]
        if not last.any():
            return None
        end = int(calls["end_ns"][last].max())
    else:
        return None
    return (end - int(calls["begin_ns"].min())) / 1e3


def host_blocked_us(trace: Trace, steps: npt.NDArray[np.int64]) -> float | None:
    """Return the median over steps of the time spent in calls that wait (s, E, A)."""
    if not len(steps):
        return None
    calls = call_spans(trace)
    waits = np.array([each != "" and each in SYNC_LETTERS for each in site_letters(trace)], bool)
    calls = calls[waits[calls["op"]]]
    total = np.zeros(len(trace.phases), np.int64)
    np.add.at(total, calls["step"], calls["end_ns"] - calls["begin_ns"])
    return float(np.median(total[steps])) / 1e3


def idle_share(trace: Trace, periods: npt.NDArray[np.int64]) -> float | None:
    """Return which part of the periods no stream had work in.

    Work counts where it lies in a period, whatever step it belongs to.
    """
    total = int((periods[:, 1] - periods[:, 0]).sum())
    if total <= 0:
        return None
    worked = trace.spans[trace.spans["role"] == EXEC]
    begin, end = union(worked["begin_ns"], worked["end_ns"])
    # busy time up to t is piecewise linear in t: each interval adds a flat and a rising piece
    times = np.stack([begin, end], axis=1).ravel()
    busy = np.stack([np.cumsum(end - begin) - (end - begin), np.cumsum(end - begin)], axis=1)
    until = np.interp(periods, times, busy.ravel())
    return min(1.0, max(0.0, 1.0 - float((until[:, 1] - until[:, 0]).sum()) / total))


def host_period_us(trace: Trace) -> float | None:
    """Return the median time between the last calls of two decode steps, without device times.

    It is what can be compared with recording on and off.  The first steps are left out as in
    `steady_steps`.
    """
    calls = call_spans(trace)
    decode = np.flatnonzero(np.array(trace.phases, dtype=object) == "decode")
    ends = np.full(len(trace.phases), -1, np.int64)
    inside = calls["step"] < len(ends)
    np.maximum.at(ends, calls["step"][inside], calls["end_ns"][inside])
    periods = np.diff(ends[decode])[2 * WARM_UP_PERIODS :]
    return float(np.median(periods)) / 1e3 if len(periods) else None


def pool(traces: Sequence[Trace]) -> Metrics:
    """Take the figures of one variant from the traces of several rounds.

    Step times are pooled over all rounds; of the other figures the median round's is taken.
    """
    each = [measure(trace) for trace in traces]
    windows = [steady_steps(trace)[1] for trace in traces]
    periods = np.concatenate([window[:, 1] - window[:, 0] for window in windows])
    tokens, step_us = _step_figures(periods)

    def middle(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.median(known)) if known else None

    return replace(
        each[0],
        tokens_per_s=tokens,
        step_us=step_us,
        time_to_first_token_us=middle(one.time_to_first_token_us for one in each),
        host_blocked_us=middle(one.host_blocked_us for one in each),
        device_idle_share=middle(one.device_idle_share for one in each),
    )


def _step_figures(
    periods: npt.NDArray[np.int64],
) -> tuple[tuple[float, float, float] | None, tuple[float, float] | None]:
    """Return tokens per second (median, low, high) and step time (median, p99) of periods."""
    if not len(periods):
        return None, None
    median, low, high = median_interval(periods)
    step_us = median / 1e3, float(np.percentile(periods, 99)) / 1e3
    return ((1e9 / median, 1e9 / high, 1e9 / low) if low > 0 else None), step_us


def measure(trace: Trace) -> Metrics:
    """Take the figures of one variant from its trace.

    Step figures are over decode steps in steady state (`steady_steps`); None where there are too
    few of them to tell.
    """
    patterns = executed_patterns(trace)
    syncs: tuple[int | None, int | None, int | None] = (None, None, None)
    if "decode" in patterns:
        syncs = count_syncs(patterns["decode"])
    steps, windows = steady_steps(trace)
    periods = windows[:, 1] - windows[:, 0]
    tokens, step_us = _step_figures(periods)
    return Metrics(
        patterns=patterns,
        syncs_per_step=syncs[0],
        syncs_before_launch=syncs[1],
        syncs_after_launch=syncs[2],
        tokens_per_s=tokens,
        time_to_first_token_us=time_to_first_token_us(trace),
        step_us=step_us,
        host_blocked_us=host_blocked_us(trace, steps),
        device_idle_share=idle_share(trace, windows),
    )
