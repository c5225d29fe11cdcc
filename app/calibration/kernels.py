"""Finds what makes device kernels take the time they took: the kernel terms of a profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.costs import Work, kernel_time_ns
from syncscope.sched_core.profile import Profile

SHARED = ("l2_load_ns", "memory_load_ns", "device_bytes_per_ns")
"""Terms that all kernels have in common and that decode steps show."""

MAX_ROUNDS = 100
PULL = 1e-6
"""Weight of the profile that a fit starts from: it decides what the times leave open."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel instance, and how long it took up to the next kernel of a graph."""

    name: str
    work: Work
    from_memory: bool
    took_ns: float


def fit_kernels(cases: Sequence[KernelCase], start: Profile) -> tuple[Profile, frozenset[str]]:
    """Fit a fixed time of each kernel and the terms that all share, by relative least squares.

    What limits a kernel (loads that wait for each other, or traffic) depends on the terms, so
    that the fit is repeated with what the one before found, until nothing changes.

    Parameters
    ----------
    cases : sequence of KernelCase
        Kernels of decode steps; at least one.
    start : Profile
        Gives the terms that no case depends on.

    Returns
    -------
    Profile
        `start` with its kernel terms replaced.
    frozenset of str
        Which of `SHARED` some case depends on.
    """
    names = sorted({case.work.kernel for case in cases})
    fixed = {name: start.kernels.get(name, start.kernel_ns) for name in names}
    found = best = replace(start, kernels={**start.kernels, **fixed})
    tried = set()
    for _ in range(MAX_ROUNDS):
        matrix = np.array([_terms(case, found, names) for case in cases])
        if matrix.tobytes() in tried:
            break
        tried.add(matrix.tobytes())
        found = _solve(matrix, cases, found, names)
        best = min(best, found, key=lambda profile: misfit(cases, profile))
    counts = (_terms(case, best, names)[len(names) :] for case in cases)
    depends = frozenset(name for name, *each in zip(SHARED, *counts, strict=True) if any(each))
    kept: dict[str, float] = {n: getattr(start, n) for n in SHARED if n not in depends}
    typical = float(np.median([best.kernels[name] for name in names]))
    return replace(best, kernel_ns=typical, **kept), depends  # type: ignore[arg-type]


def misfit(cases: Iterable[KernelCase], profile: Profile) -> float:
    """Return the sum of squares of the relative errors of a profile."""
    times = ((case, kernel_time_ns(case.work, profile, case.from_memory)) for case in cases)
    return sum((time / case.took_ns - 1) ** 2 for case, time in times)


def _terms(case: KernelCase, profile: Profile, names: Sequence[str]) -> list[float]:
    """Return how often each term counts in a kernel's time: fixed times, loads, 1 / bandwidth."""
    work = case.work
    fixed = [float(name == work.kernel) for name in names]
    if not case.from_memory:
        return [*fixed, work.l2_loads + work.loads, 0.0, 0.0]
    first = min(work.loads, 1.0)
    traffic_ns = work.moved / profile.device_bytes_per_ns
    if (work.loads - first) * profile.memory_load_ns >= traffic_ns:
        return [*fixed, work.l2_loads, work.loads, 0.0]
    return [*fixed, work.l2_loads, first, work.moved]


def _solve(
    matrix: Floats, cases: Sequence[KernelCase], found: Profile, names: Sequence[str]
) -> Profile:
    """Return the terms that fit best where each case is limited as `matrix` says."""
    took = np.array([case.took_ns for case in cases])
    before = np.array(
        [
            *(found.kernels[name] for name in names),
            found.l2_load_ns,
            found.memory_load_ns,
            1 / found.device_bytes_per_ns,
        ]
    )
    before = np.maximum(before, 1e-9)
    # in units of the values before, so that the pull is the same on each
    left = np.vstack([matrix * before / took[:, None], PULL * np.eye(len(before))])
    right = np.concatenate([np.ones(len(cases)), np.full(len(before), PULL)])
    values = _non_negative(left, right) * before
    *fixed, l2_load, memory_load, per_byte = values.tolist()
    return replace(
        found,
        kernels={**found.kernels, **dict(zip(names, fixed, strict=True))},
        l2_load_ns=l2_load,
        memory_load_ns=memory_load,
        device_bytes_per_ns=1 / per_byte if per_byte > 0 else found.device_bytes_per_ns,
    )


def _non_negative(left: Floats, right: Floats) -> Floats:
    """Return the least-squares solution, with what would be negative held at 0 in turn."""
    free = np.ones(left.shape[1], bool)
    values = np.zeros(left.shape[1])
    while free.any():
        values[:] = 0.0
        values[free] = np.linalg.lstsq(left[:, free], right, rcond=None)[0]
        if (values >= 0).all():
            break
        free &= values >= 0
    return values


def fit_arithmetic(cases: Iterable[KernelCase], profile: Profile) -> float | None:
    """Return the arithmetic rate that kernels of prompt steps show; None if none is bound by it.

    A kernel counts if it took much longer than its loads and its traffic explain.
    """
    rates = []
    for case in cases:
        others = replace(case.work, macs=0.0)
        explained = kernel_time_ns(others, profile, True)
        fixed = kernel_time_ns(replace(others, loads=0.0, moved=0.0), profile, True)
        if case.took_ns > 1.25 * explained and case.work.macs:
            rates.append(case.work.macs / (case.took_ns - fixed))
    return float(np.median(rates)) if rates else None
