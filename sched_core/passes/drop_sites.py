"""Remove syncs raw: how a site's own gain is measured and its hazard seen.  Not a pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from syncscope.sched_core.errors import UsageError, nearest
from syncscope.sched_core.records import PHASES, Kind, Op, Plan


def _matches(name: str, pattern: str) -> bool:
    """Whether a name is what a pattern means; of its characters only ``*`` is special."""
    return fnmatchcase(name, re.sub(r"[?\[]", r"[\g<0>]", pattern))


def _is_sync_site(op: Op) -> bool:
    return op.kind in (Kind.SYNC, Kind.WAIT) or (op.kind == Kind.COPY and op.blocking)


def sync_sites(plan: Plan) -> tuple[str, ...]:
    """Return every sync site of a plan, as ``phase:site``."""
    return tuple(
        f"{phase}:{op.site}"
        for phase, ops in plan.phases.items()
        for op in ops
        if _is_sync_site(op)
    )


def drop_sites(
    plan: Plan, patterns: Iterable[str], option: str = "--drop"
) -> tuple[Plan, tuple[str, ...]]:
    """Remove the sync sites that match; of a blocking copy only the blocking is removed.

    Parameters
    ----------
    plan : Plan
    patterns : iterable of str
        ``SITE`` (all phases) or ``PHASE:SITE``; ``*`` matches any run of characters.
    option : str
        Where the patterns come from, for errors.

    Returns
    -------
    plan : Plan
    dropped : tuple of str
        What was removed, as ``phase:site``.

    Raises
    ------
    UsageError
        For a pattern that matches no sync site; the message has the nearest ones.
    """
    wanted: list[tuple[str, str, str]] = []
    for text in patterns:
        phase, colon, site = text.strip().partition(":")
        if not colon:
            phase, site = "*", phase
        elif phase not in PHASES:
            raise UsageError(f"{option} {text}: unknown phase {phase}; {nearest(phase, PHASES)}")
        wanted.append((text, phase, site))
    hit: set[str] = set()
    dropped: list[str] = []
    phases: dict[str, tuple[Op, ...]] = {}
    for name, ops in plan.phases.items():
        kept: list[Op] = []
        for op in ops:
            matching = [
                text
                for text, phase, site in wanted
                if _is_sync_site(op) and _matches(name, phase) and _matches(op.site, site)
            ]
            hit.update(matching)
            if not matching:
                kept.append(op)
                continue
            dropped.append(f"{name}:{op.site}")
            if op.kind == Kind.COPY:
                kept.append(replace(op, blocking=False))
        phases[name] = tuple(kept)
    for text, _, site in wanted:
        if text not in hit:
            known = dict.fromkeys(
                op.site for ops in plan.phases.values() for op in ops if _is_sync_site(op)
            )
            raise UsageError(
                f"{option} {text}: no such sync site in this plan; {nearest(site, known)}"
            )
    return replace(plan, phases=phases), tuple(dropped)
