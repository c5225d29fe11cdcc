"""What the ordering analysis adds to a variant: verdicts of its sites, its hazards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from syncscope.app.results import Hazard, SiteRow
from syncscope.sched_core.records import Finding
from syncscope.sched_core.verdict import Analysis
from syncscope.sched_core.why import missing_sentence, why


def with_verdicts(
    rows: Iterable[SiteRow], analysis: Analysis, other: Analysis
) -> tuple[SiteRow, ...]:
    """Fill in the verdicts of sync sites.

    Where the other rule set says otherwise, `why` begins with its verdict.
    """
    out = []
    for row in rows:
        finding = analysis.finding(row.phase, row.site)
        if finding is not None:
            row = replace(
                row,
                verdict=finding.verdict,
                alone_safe=finding.alone_safe,
                covered_by=tuple(each.removeprefix(f"{row.phase}:") for each in finding.covered_by),
                why=_difference(finding, other) + why(analysis.program, finding),
            )
        out.append(row)
    return tuple(out)


def _difference(finding: Finding, other: Analysis) -> str:
    elsewhere = other.finding(finding.phase, finding.site)
    if elsewhere is None or elsewhere.verdict == finding.verdict:
        return ""
    return f"{other.rules}: {elsewhere.verdict}; "


def hazards_of(
    analysis: Analysis, stale: Iterable[tuple[str, str]], tried: bool, differs: bool | None
) -> tuple[Hazard, ...]:
    """Return the hazards that a plan has.

    Parameters
    ----------
    analysis : Analysis
    stale : iterable of (str, str)
        Site and buffer of each stale read and wrong last write that the simulator saw.
    tried : bool
        Whether it tried every data order.
    differs : bool or None
        Whether the output differed.
    """
    places = set(stale)
    phases = analysis.program.phases
    found = []
    for missing in analysis.missing:
        ends = {(end.site, missing.buffer) for end in (missing.first, missing.second)}
        found.append(
            Hazard(
                missing=missing,
                first_phase=phases[missing.first.step],
                second_phase=phases[missing.second.step],
                why=missing_sentence(analysis.program, missing),
                seen=bool(ends & places) if tried else None,
                output_differs=differs if tried else None,
            )
        )
    return tuple(found)
