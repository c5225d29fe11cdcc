"""Every pass in the order in which passes run, the presets, and how a request becomes a Plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from syncscope.sched_core.errors import UsageError, nearest
from syncscope.sched_core.missing import hazards_added
from syncscope.sched_core.passes.async_input_copies import ASYNC_INPUT_COPIES
from syncscope.sched_core.passes.base import Pass, Refused
from syncscope.sched_core.passes.batch_input_syncs import BATCH_INPUT_SYNCS
from syncscope.sched_core.passes.cuda_graph import CUDA_GRAPH
from syncscope.sched_core.passes.device_sampling import DEVICE_SAMPLING
from syncscope.sched_core.passes.drop_leading_sync import DROP_LEADING_SYNC
from syncscope.sched_core.passes.drop_trailing_sync import DROP_TRAILING_SYNC
from syncscope.sched_core.passes.guards import drop_guards
from syncscope.sched_core.passes.input_slot_ring import INPUT_SLOT_RING
from syncscope.sched_core.passes.keep_set import KEEP_SET
from syncscope.sched_core.passes.logits_event_sync import LOGITS_EVENT_SYNC
from syncscope.sched_core.passes.pack_inputs import PACK_INPUTS
from syncscope.sched_core.passes.repeat_sync_elision import REPEAT_SYNC_ELISION
from syncscope.sched_core.records import Plan
from syncscope.sched_core.why import missing_sentence

PASSES = {
    each.id: each
    for each in (
        CUDA_GRAPH,
        ASYNC_INPUT_COPIES,
        BATCH_INPUT_SYNCS,
        PACK_INPUTS,
        DROP_LEADING_SYNC,
        DROP_TRAILING_SYNC,
        INPUT_SLOT_RING,
        REPEAT_SYNC_ELISION,
        LOGITS_EVENT_SYNC,
        DEVICE_SAMPLING,
        KEEP_SET,
    )
}
"""Passes by id, in the order in which they always run."""

NOT_BUILT = (
    "moe-map-upload-sync",
    "split-transfer-single-sync",
    "used-experts-copy",
    "expert-prefetch",
    "pipeline-events",
    "bracket-syncs",
    "moe-device-routing",
    "run-ahead",
)
"""Ids that are reserved for passes to come."""

_GRAPH = ("cuda-graph",)
_SAAASG = (*_GRAPH, "async-input-copies", "batch-input-syncs")
_AAAG = (*_SAAASG, "drop-leading-sync", "drop-trailing-sync")

PRESETS: Mapping[str, tuple[str, ...]] = {
    "no-graph": (),
    "baseline": _GRAPH,
    "saaasg": _SAAASG,
    "aaag": _AAAG,
    "fork-pr": (*_GRAPH, "moe-map-upload-sync", "split-transfer-single-sync"),
    "pre-17795": (*_GRAPH, "pipeline-events"),
    "17795": (*_SAAASG, "pipeline-events"),
    "b9820": (*_SAAASG, "pipeline-events", "bracket-syncs"),
    "reverted": (*_GRAPH, "pipeline-events"),
    "25319": (*_AAAG, "pipeline-events"),
    "all": (
        *_SAAASG,
        "pack-inputs",
        "drop-leading-sync",
        "drop-trailing-sync",
        "input-slot-ring=2",
        "repeat-sync-elision",
        "logits-event-sync",
        "split-transfer-single-sync",
        "used-experts-copy",
        "pipeline-events",
        "moe-device-routing",
        "device-sampling",
    ),
    "all-run-ahead": ("all", "run-ahead=2"),
}
"""Preset id -> passes, as ``id`` or ``id=value``; a member may be another preset."""

FILTERED_PRESETS = ("all",)
"""Presets of which each member applies where it can; of the others every member must exist."""


def available_presets() -> tuple[str, ...]:
    """Return the presets that the passes built so far allow."""
    return tuple(
        name
        for name in PRESETS
        if name in FILTERED_PRESETS
        or all(item.partition("=")[0] in PASSES for item in PRESETS[name])
    )


def preset_passes(preset: str) -> tuple[str, ...]:
    """Return the passes of a preset.

    Raises
    ------
    UsageError
        For an unknown preset, or one that needs a pass that is not built yet.
    """
    if preset not in PRESETS:
        raise UsageError(f"unknown preset {preset}; {nearest(preset, available_presets())}")
    if preset not in available_presets():
        missing = [item for item in PRESETS[preset] if item.partition("=")[0] not in PASSES]
        needed = ", ".join(each for each in missing if each not in PRESETS)
        raise UsageError(
            f"preset {preset} needs {needed}, not built yet; "
            f"use one of {', '.join(available_presets())}"
        )
    return PRESETS[preset]


def parse_pass(text: str) -> tuple[str, int]:
    """Read ``id`` or ``id=value``; a value is 0 where the pass takes none.

    Raises
    ------
    UsageError
        For an unknown pass, one that is not built yet, or a value out of range.
    """
    name, equals, value = text.strip().partition("=")
    if name in NOT_BUILT:
        raise UsageError(f"pass {name} is not built yet; use one of {', '.join(PASSES)}")
    if name not in PASSES:
        raise UsageError(f"unknown pass {name}; {nearest(name, PASSES)}")
    parameter = PASSES[name].parameter
    if parameter is None:
        if equals:
            raise UsageError(f"pass {name} takes no value; write {name}")
        return name, 0
    if not equals:
        return name, parameter.default
    if value not in map(str, range(parameter.low, parameter.high + 1)):
        raise UsageError(
            f"pass {name}: {parameter.name} {value!r} outside {parameter.low}..{parameter.high}; "
            f"write {name}={parameter.default}"
        )
    return name, int(value)


@dataclass(frozen=True, slots=True)
class Applied:
    """A plan with passes applied.

    `guards_dropped` names waits of guards that the kept set does without, as ``phase:site``;
    `pulled_in` lists passes that were applied because another needs them; `refused` says of each
    pass that was asked for or needed, and not applied, why.
    """

    plan: Plan
    pulled_in: tuple[str, ...]
    refused: Mapping[str, str]
    guards_dropped: tuple[str, ...] = ()


def apply_passes(
    plan: Plan,
    requested: Iterable[str],
    capabilities: Collection[str],
    rules: str = "practical",
    filtered: bool = False,
    allow_hazards: bool = False,
) -> Applied:
    """Apply passes in their fixed order, with what they need, unless one makes a hazard.

    After the last pass, guards are dropped where the kept set does without them.

    Parameters
    ----------
    plan : Plan
        The baseline.
    requested : iterable of str
        ``id`` or ``id=value``, in any order.
    capabilities : collection of str
        What the backend can do.
    rules : str
        Rule set under which a pass must not make a hazard.
    filtered : bool
        Report ids that are not built yet as refused instead of raising.
    allow_hazards : bool
        Apply also passes that make a hazard on this plan.

    Raises
    ------
    UsageError
        For an unknown pass or value.
    """
    refused: dict[str, str] = {}
    values: dict[str, int] = {}
    for text in requested:
        if filtered and text.partition("=")[0] in NOT_BUILT:
            refused[text.partition("=")[0]] = "not built yet"
            continue
        name, value = parse_pass(text)
        values[name] = value
    asked = set(values)
    for name in PASSES_BACKWARDS:
        if name in values:
            for need in PASSES[name].needs:
                values.setdefault(need, parse_pass(need)[1])
    for name, each in PASSES.items():
        if name not in values:
            continue
        reason = _obstacle(each, refused, capabilities)
        if not reason:
            try:
                changed = each.apply(plan, values[name])
            except Refused as error:
                reason = str(error)
            else:
                reason = "no site here" if changed == plan else ""
                if not reason and not allow_hazards:
                    reason = _hazard(plan, changed, rules)
        if reason:
            refused[name] = reason
        else:
            label = f"{name}={values[name]}" if each.parameter else name
            plan = replace(changed, passes=(*plan.passes, label))
    added = values.keys() - asked - refused.keys()
    plan, guards = drop_guards(plan, rules)
    return Applied(plan, tuple(name for name in PASSES if name in added), refused, guards)


PASSES_BACKWARDS = tuple(reversed(PASSES))
"""A pass needs only passes that run before it, so this order meets every need once."""


def _hazard(before: Plan, after: Plan, rules: str) -> str:
    """Say which hazard a pass makes; empty if none."""
    program, missing = hazards_added(before, after, rules)
    return missing_sentence(program, missing[0]) if missing else ""


def _obstacle(each: Pass, refused: Mapping[str, str], capabilities: Collection[str]) -> str:
    """Why a pass cannot be tried; empty if it can."""
    missing = [item for item in each.capabilities if item not in capabilities]
    if missing:
        return f"not on this backend: it lacks {', '.join(missing)}"
    lost = [need for need in each.needs if need in refused]
    if lost:
        return f"needs {', '.join(lost)}, which was refused"
    return ""
