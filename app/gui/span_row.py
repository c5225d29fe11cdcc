"""All that is known of one span."""

from __future__ import annotations

from dataclasses import dataclass

from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Finding


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span.

    Parameters
    ----------
    ref : int
        Its number in the recording.
    site : Site
    phase : str
        Phase of its step, or ``switch`` of a drain between steps.
    kind : str
        As `site_table.site_kind`.
    direction : str
        Of a copy ``h2d``, ``d2h``, ``d2d`` or ``h2h``, else empty.
    role : str
        ``call`` or ``exec``.
    step : int
    lane : str
        Name of its thread or stream.
    begin_ns, end_ns : int
        From the run's start.
    nbytes : int
        Of a copy or kernel; 0 of a graph's launch, whose `n_nodes` is given.
    n_nodes : int
    bandwidth : float or None
        Bytes per second of a copy's execution; a lower limit where `is_bounded`.
    is_bounded : bool
        Begin and end are bounds: it ran somewhere between them.
    is_lower_bound : bool
        It may have ended a little later.
    category : str
        One of `CATEGORIES`.
    verdict : str
        Of the plan that ran at its step; empty if it is no sync site of it.
    finding : Finding or None
    reason : str
        The finding in a sentence.
    variant : str
        Id of the variant that ran at its step.
    """

    ref: int
    site: Site
    phase: str
    kind: str
    direction: str
    role: str
    step: int
    lane: str
    begin_ns: int
    end_ns: int
    nbytes: int
    n_nodes: int
    bandwidth: float | None
    is_bounded: bool
    is_lower_bound: bool
    category: str
    verdict: str
    finding: Finding | None
    reason: str
    variant: str

    @property
    def duration_ns(self) -> int:
        """How long it took, or the time within which it ran."""
        return self.end_ns - self.begin_ns
