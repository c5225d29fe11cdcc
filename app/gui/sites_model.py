"""The site table of a run while it grows: the rows of `app.report.site_table`, and their shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.live_batch import PlanChange
from syncscope.app.report.site_table import (
    SYNC_KINDS,
    SiteGroup,
    SiteSums,
    group_sites,
    row_of,
    sum_by_site,
)
from syncscope.app.results import SiteRow
from syncscope.sched_core.program import Site
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Finding

Key = tuple[str, str]
"""Phase and name of a site."""


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """A row of the site table in a window.

    Parameters
    ----------
    row : SiteRow
        As in reports: means per step, verdict, alone safe, covered by, why.
    count : int
        Calls so far.
    total_ns : int
        The host's time in them.
    share : float
        Of a site where the host waits: its part of all the time that the host waited; 0 of others.
    ops : tuple of int
        What `op` of its spans is.
    is_planned : bool
        Whether the plan that runs now has it; the verdict of one that is gone is its last one.
    """

    row: SiteRow
    count: int
    total_ns: int
    share: float
    ops: tuple[int, ...]
    is_planned: bool


class SitesModel:
    """Sums by site of all spans so far, and what the analysis last said of each."""

    def __init__(self) -> None:
        self._variant_id = ""
        self._sites: list[Site] = []
        self._n_steps: Counter[str] = Counter()
        self._sums: SiteSums = sum_by_site(np.zeros(0, SPAN), 0)
        self._findings: dict[Key, Finding] = {}
        self._reasons: dict[Key, str] = {}
        self._planned: frozenset[Key] | None = None
        self._entries: tuple[SiteEntry, ...] | None = ()

    def extend(
        self, spans: npt.NDArray[Any], sites: Iterable[Site] = (), phases: Iterable[str] = ()
    ) -> None:
        """Take in new spans, sites behind those that `op` indexed so far, and phases of steps."""
        self._sites += sites
        self._n_steps.update(phases)
        self._sums += sum_by_site(spans, len(self._sites))
        self._entries = None

    def change(self, change: PlanChange) -> None:
        """Take in that another plan runs: its sites, and what the analysis says of them."""
        phases = change.planned.plan.phases
        self._variant_id = change.planned.variant.id
        self._planned = frozenset((phase, op.site) for phase, ops in phases.items() for op in ops)
        self._findings.update({(each.phase, each.site): each for each in change.findings})
        self._reasons.update(change.reasons)
        self._entries = None

    def entries(self) -> tuple[SiteEntry, ...]:
        """Return the rows, in the order of the reports."""
        if self._entries is None:
            groups = group_sites(self._sites, self._sums)
            waited = sum(_total(each, self._sums) for each in groups if each.kind in SYNC_KINDS)
            self._entries = tuple(self._entry(each, waited) for each in groups)
        return self._entries

    def _entry(self, group: SiteGroup, waited: int) -> SiteEntry:
        sums = self._sums
        total = _total(group, sums)
        row = row_of(self._variant_id, self._sites, group, sums, self._n_steps[group.phase])
        finding = self._findings.get((group.phase, group.name))
        if finding is not None:
            row = with_finding(row, finding, self._reasons.get((group.phase, group.name), row.why))
        keys = {(self._sites[i].phase, self._sites[i].name) for i in group.ids.tolist()}
        return SiteEntry(
            row=row,
            count=int(sums.calls[group.ids].sum()),
            total_ns=total,
            share=total / waited if waited and group.kind in SYNC_KINDS else 0.0,
            ops=tuple(group.ids.tolist()),
            is_planned=self._planned is None or bool(keys & self._planned),
        )


def _total(group: SiteGroup, sums: SiteSums) -> int:
    return int(sums.call_ns[group.ids].sum())


def with_finding(row: SiteRow, finding: Finding, why: str) -> SiteRow:
    """Fill in the verdict of a sync site, as `app.verdicts.with_verdicts` does."""
    return replace(
        row,
        verdict=finding.verdict,
        alone_safe=finding.alone_safe,
        covered_by=tuple(each.removeprefix(f"{row.phase}:") for each in finding.covered_by),
        why=why,
    )


def matching(entries: Sequence[SiteEntry], text: str) -> list[SiteEntry]:
    """Return the entries that have every word of a text in phase, site, kind or verdict."""
    words = text.lower().split()
    return [each for each in entries if all(word in _text(each.row) for word in words)]


def _text(row: SiteRow) -> str:
    return f"{row.phase} {row.site} {row.kind} {row.verdict}".lower()
