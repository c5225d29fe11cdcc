"""What is compared: presets with passes added and syncs dropped, and their plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from syncscope.sched_core.capabilities import CUDA
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.missing import hazards_added
from syncscope.sched_core.passes.drop_sites import drop_sites, sync_sites
from syncscope.sched_core.passes.registry import (
    FILTERED_PRESETS,
    PRESETS,
    Applied,
    apply_passes,
    preset_passes,
)
from syncscope.sched_core.records import Plan
from syncscope.sched_core.why import missing_sentence


@dataclass(frozen=True, slots=True)
class Variant:
    """What is run: passes on the baseline, and sync sites removed raw.

    `filtered` reports passes that are not built yet instead of refusing the variant;
    `allow_hazards` applies also what makes a hazard.
    """

    id: str
    passes: tuple[str, ...]
    drop: tuple[str, ...] = ()
    filtered: bool = False
    allow_hazards: bool = False


def preset_variant(
    preset: str,
    extra: Iterable[str] = (),
    drop: Iterable[str] = (),
    allow_hazards: bool = False,
) -> Variant:
    """Return a preset with extra passes and with syncs dropped.

    Raises
    ------
    UsageError
        For a preset that is unknown or needs passes that are not built yet.
    """
    extra, drop = tuple(extra), tuple(drop)
    name = "+".join((preset, *extra)) + (" -drop" if drop else "")
    passes = (*preset_passes(preset), *extra)
    return Variant(name, passes, drop, preset in FILTERED_PRESETS, allow_hazards)


REFERENCE = Variant("baseline", PRESETS["baseline"])
"""What the output of every other variant is compared with."""

SAFE = "safe"
"""Among the sites of `each_dropped`: every sync that makes no hazard when it alone is dropped."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A variant's plan and how it came about."""

    variant: Variant
    plan: Plan
    applied: Applied
    dropped: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """Return the `variant` object of a trace."""
        return {
            "id": self.variant.id,
            "passes": list(self.plan.passes),
            "dropped_sites": list(self.dropped),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told."""
        notes = []
        if self.applied.pulled_in:
            notes.append(f"also applied, as needed: {', '.join(self.applied.pulled_in)}")
        if self.applied.guards_dropped:
            guards = ", ".join(self.applied.guards_dropped)
            notes.append(f"guards dropped where the kept set does without: {guards}")
        return tuple(notes)


def plan_variant(baseline: Plan, variant: Variant, rules: str = "practical") -> Planned:
    """Apply a variant to the baseline.

    Raises
    ------
    UsageError
        For a pass, value or site that is unknown, or a drop that makes a hazard under `rules` and
        was not allowed to.
    """
    applied = apply_passes(
        baseline, variant.passes, CUDA, rules, variant.filtered, variant.allow_hazards
    )
    preset = variant.id.partition(" -")[0]
    try:
        plan, dropped = drop_sites(applied.plan, variant.drop)
    except UsageError as error:
        raise UsageError(f"{preset}: {error}") from None
    if dropped and not variant.allow_hazards:
        program, missing = hazards_added(applied.plan, plan, rules)
        if missing:
            raise UsageError(
                f"{preset}: --drop {','.join(variant.drop)} is refused: "
                f"{missing_sentence(program, missing[0])}; --allow-hazards runs it all the same"
            )
    return Planned(variant, plan, applied, dropped)


def each_dropped(
    baseline: Plan, variant: Variant, sites: Iterable[str], rules: str = "practical"
) -> tuple[Variant, ...]:
    """Return one variant per sync: the given one, with that sync dropped as well.

    Parameters
    ----------
    baseline : Plan
    variant : Variant
    sites : iterable of str
        ``SITE``, dropped in every phase, ``PHASE:SITE``, or `SAFE`; ``*`` matches any run of
        characters, and each site that matches gives a variant.
    rules : str
        What `SAFE` is judged by.

    Raises
    ------
    UsageError
        For a variant that cannot be planned, or a pattern that matches no sync site.
    """
    plan = plan_variant(baseline, variant, rules).plan
    chosen: list[str] = []
    for text in sites:
        if text == SAFE:
            chosen += _safe_alone(plan, rules)
        else:
            found = drop_sites(plan, [text], "--drop-each")[1]
            chosen += found if ":" in text else map(_site, found)
    return tuple(
        replace(variant, id=f"{variant.id} -{site}", drop=(*variant.drop, site))
        for site in dict.fromkeys(chosen)
    )


def _site(unit: str) -> str:
    return unit.partition(":")[2]


def _safe_alone(plan: Plan, rules: str) -> list[str]:
    """Return the sites of which each can be dropped alone, in every phase that has it."""
    return [
        site
        for site in dict.fromkeys(map(_site, sync_sites(plan)))
        if not hazards_added(plan, drop_sites(plan, [site])[0], rules)[1]
    ]
