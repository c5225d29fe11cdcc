"""What is compared: presets with passes added and syncs dropped, and their plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncscope.sched_core.capabilities import CUDA
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.missing import hazards_added
from syncscope.sched_core.passes.drop_sites import drop_sites
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


@dataclass(frozen=True, slots=True)
class Planned:
    """A variant's plan and how it came about."""

    variant: Variant
    plan: Plan
    applied: Applied
    dropped: tuple[str, ...]

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
    preset = variant.id.removesuffix(" -drop")
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
