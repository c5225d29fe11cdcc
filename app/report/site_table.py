"""The site table: what the host did at each place of a step, how often, and what it took."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.results import SiteRow
from syncscope.sched_core.pattern import letter
from syncscope.sched_core.program import Site
from syncscope.sched_core.records import PHASES, Kind
from syncscope.sched_core.trace import Trace

KINDS = {
    "s": "stream sync",
    "E": "event sync",
    "A": "blocking copy",
    "a": "async copy",
    "e": "event record",
    "w": "stream wait",
    "g": "graph launch",
}
"""What the kind column says, by pattern letter; a sync of a whole device says so."""

SYNC_KINDS = ("stream sync", "device sync", "event sync", "blocking copy")
"""Kinds at which the host waits; their rows come first."""

KERNELS, HOST_WORK = "kernels", "host work"
"""Site and kind of the two rows that stand for all kernels and all host work of a phase."""

_LATER = ("async copy", "event record", "stream wait", "graph launch", KERNELS, HOST_WORK)
_NUMBER = re.compile(r"(?<=[.a-z_])\d+(?=[._]|$)")


@dataclass(frozen=True, slots=True)
class SiteSums:
    """Of each site: calls, their time, device executions, their time, and its first call.

    `n_calls` counts the calls of all sites; `first` is a position among them, and at least as large
    where a site has no call.
    """

    calls: npt.NDArray[np.int64]
    call_ns: npt.NDArray[np.int64]
    runs: npt.NDArray[np.int64]
    run_ns: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    n_calls: int

    def __add__(self, later: SiteSums) -> SiteSums:
        """Join the sums of spans with those of later ones, which may name more sites."""
        more = len(later.calls) - len(self.calls)

        def total(
            before: npt.NDArray[np.int64], after: npt.NDArray[np.int64]
        ) -> npt.NDArray[np.int64]:
            return np.pad(before, (0, more)) + after

        n_calls = self.n_calls + later.n_calls
        called = np.pad(self.calls, (0, more)) > 0
        return SiteSums(
            calls=total(self.calls, later.calls),
            call_ns=total(self.call_ns, later.call_ns),
            runs=total(self.runs, later.runs),
            run_ns=total(self.run_ns, later.run_ns),
            first=np.where(called, np.pad(self.first, (0, more)), self.n_calls + later.first),
            n_calls=n_calls,
        )


def sum_by_site(spans: npt.NDArray[Any], n_sites: int) -> SiteSums:
    """Sum up spans, in the order in which they were recorded."""
    is_call = spans["role"] == 0
    calls, runs = spans[is_call], spans[~is_call]
    first = np.full(n_sites, len(calls), np.int64)
    np.minimum.at(first, calls["op"], np.arange(len(calls)))

    def total(op: npt.NDArray[np.int32], ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.bincount(op, weights=ns, minlength=n_sites).astype(np.int64)

    return SiteSums(
        calls=np.bincount(calls["op"], minlength=n_sites),
        call_ns=total(calls["op"], calls["end_ns"] - calls["begin_ns"]),
        runs=np.bincount(runs["op"], minlength=n_sites),
        run_ns=total(runs["op"], runs["end_ns"] - runs["begin_ns"]),
        first=first,
        n_calls=len(calls),
    )


def site_kind(site: Site) -> str:
    """Return what a site does, in the words of the kind column."""
    if site.kind == Kind.HOST:
        return HOST_WORK
    if site.kind == Kind.LAUNCH:
        return KERNELS
    if site.kind == Kind.SYNC and site.scope == "device":
        return "device sync"
    return KINDS.get(letter(site.kind, site.blocking, site.scope), site.kind.name.lower())


def site_rows(variant_id: str, trace: Trace) -> tuple[SiteRow, ...]:
    """Make the rows of one variant from what was executed.

    Phases come in their order; in each, the sites where the host waits come first, then copies,
    event records, stream waits and graph launches, each kind in the order of issue, then one row
    for all kernels and one for all host work.  `wait_us` is the host's time in the call, for
    whatever the site does; `why` of a row that is no sync says what the device did.
    """
    sums = sum_by_site(trace.spans, len(trace.sites))
    rows = (
        row_of(variant_id, trace.sites, group, sums, trace.phases.count(group.phase))
        for group in group_sites(trace.sites, sums)
    )
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class SiteGroup:
    """Sites that share a row of the table; `ids` are their positions in the list of all sites."""

    phase: str
    kind: str
    name: str
    ids: npt.NDArray[np.int64]


def group_sites(sites: Sequence[Site], sums: SiteSums) -> tuple[SiteGroup, ...]:
    """Return the rows of the table, in their order: what ran at least once."""
    groups: list[SiteGroup] = []
    for phase in PHASES:
        members: dict[tuple[str, str], list[int]] = {}
        for i, site in enumerate(sites):
            if site.phase == phase and (sums.calls[i] or sums.runs[i]):
                kind = site_kind(site)
                name = kind if kind in (KERNELS, HOST_WORK) else site.name
                members.setdefault((kind, name), []).append(i)
        ordered = sorted(
            members.items(), key=lambda item: (_rank(item[0][0]), min(sums.first[item[1]]))
        )
        groups += [SiteGroup(phase, *key, np.array(ids, np.int64)) for key, ids in ordered]
    return tuple(groups)


def _rank(kind: str) -> int:
    if kind in SYNC_KINDS:
        return 0
    return 1 + (_LATER.index(kind) if kind in _LATER else len(_LATER))


def row_of(
    variant_id: str, sites: Sequence[Site], group: SiteGroup, sums: SiteSums, n_steps: int
) -> SiteRow:
    """Make the row of some sites; `n_steps` is how many steps their phase had."""
    ids, kind, steps = group.ids, group.kind, max(1, n_steps)
    verdict = "unknown" if kind in SYNC_KINDS else ""
    why = ""
    if sums.runs[ids].any():
        device_us = sums.run_ns[ids].sum() / steps / 1e3
        count = f"{len({sites[i].name for i in ids})} sites, " if kind == KERNELS else ""
        why = f"{count}{device_us:.2f} us on the device"
        if kind == KERNELS and sums.calls[ids].sum() < sums.runs[ids].sum():
            why += "; in a graph once captured"
    return SiteRow(
        variant=variant_id,
        phase=group.phase,
        site=group.name,
        kind=kind,
        per_step=float(sums.calls[ids].sum() / steps),
        wait_us=float(sums.call_ns[ids].sum() / steps / 1e3),
        verdict=verdict,
        why=why,
    )


def group_rows(rows: Iterable[SiteRow]) -> tuple[SiteRow, ...]:
    """Join the rows of numbered sites that are alike into one, with the number starred.

    Alike are sites of one variant, phase, kind and verdict, called equally often, whose wait is
    within 1 us or a factor of two of their median.  `per_step` and `wait_us` of a group are sums;
    `why` says how many sites it stands for, what each took, and which others differ.
    """
    rows = tuple(rows)
    groups: dict[tuple[object, ...], list[SiteRow]] = {}
    for row in rows:
        name = _NUMBER.sub("*", row.site)
        key: tuple[object, ...] = (row.variant, row.phase, name, row.kind)
        groups.setdefault(key, []).append(row)
    out: list[SiteRow] = []
    for (*_, starred, _kind), members in groups.items():
        alike = _alike(members)
        if len(alike) < 2:
            out += members
            continue
        others = [row for row in members if row not in alike]
        joined = _join(str(starred), alike, others)
        for row in members:
            if row in others:
                out.append(row)
            elif row is alike[0]:
                out.append(joined)
    return tuple(out)


def _alike(members: Sequence[SiteRow]) -> list[SiteRow]:
    """Return the largest set of members that a group can stand for."""
    same: dict[tuple[object, ...], list[SiteRow]] = {}
    for row in members:
        key = (row.per_step, row.verdict, row.alone_safe, row.covered_by)
        same.setdefault(key, []).append(row)
    largest = max(same.values(), key=len)
    middle = median(row.wait_us for row in largest)
    return [
        row
        for row in largest
        if abs(row.wait_us - middle) <= 1.0 or middle / 2 <= row.wait_us <= middle * 2
    ]


def _join(starred: str, alike: Sequence[SiteRow], others: Sequence[SiteRow]) -> SiteRow:
    waits = sorted(row.wait_us for row in alike)
    each = f"{waits[0]:.2f}"
    if f"{waits[-1]:.2f}" != each:
        each += f" to {waits[-1]:.2f}"
    why = f"{len(alike)} sites, {each} us each"
    if alike[0].why and all(row.why == alike[0].why for row in alike):
        why += f"; {alike[0].why}"
    if others:
        names = ", ".join(row.site for row in others[:3])
        why += f"; differ: {names}" + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    return replace(
        alike[0],
        site=starred,
        per_step=sum(row.per_step for row in alike),
        wait_us=sum(waits),
        why=why,
    )
