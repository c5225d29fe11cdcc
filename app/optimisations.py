"""What each pass would do to the variant that runs: proved or refused and why, what it removes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from syncscope.app.variants import Variant
from syncscope.sched_core.capabilities import CUDA
from syncscope.sched_core.passes.registry import (
    NOT_BUILT,
    PASSES,
    PRESETS,
    Applied,
    apply_passes,
)
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.records import Plan, diff

STATES = ("proved", "refused", "no site", "not on this backend", "not built")

_NO_SITE = "no site here"
_NO_CAPABILITY = "not on this backend"


@dataclass(frozen=True, slots=True)
class PassState:
    """A pass beside the variant that runs.

    Parameters
    ----------
    id : str
    parameter : str
        Name of its number; empty if it takes none.
    values : tuple of str
        What the number may be.
    value : str
        What it is, or would be.
    on : bool
        Whether it is applied now.
    state : str
        One of `STATES`: whether it can be applied, if need be with what it needs.
    why : str
    needs : tuple of str
        Passes that it is applied together with.
    removes, adds : tuple of str
        As ``phase:site``: what the plan has without the pass and not with it, and the reverse.
    comes_from : str
        Where the idea is from, in a sentence.
    presets : tuple of str
        Presets that have it.
    """

    id: str
    parameter: str
    values: tuple[str, ...]
    value: str
    on: bool
    state: str
    why: str
    needs: tuple[str, ...]
    removes: tuple[str, ...]
    adds: tuple[str, ...]
    comes_from: str
    presets: tuple[str, ...]


def pass_states(
    baseline: Plan,
    variant: Variant,
    rules: str = "practical",
    capabilities: Collection[str] = CUDA,
) -> tuple[PassState, ...]:
    """Return every pass there is or is to be, as `each_pass_state` finds it."""
    return tuple(each_pass_state(baseline, variant, rules, capabilities))


def each_pass_state(
    baseline: Plan,
    variant: Variant,
    rules: str = "practical",
    capabilities: Collection[str] = CUDA,
) -> Iterator[PassState]:
    """Find one pass after the other what toggling it would do; who has enough asks for no more.

    Syncs that the variant drops raw are left out of account.

    Parameters
    ----------
    baseline : Plan
        Without a captured graph, as `Workload.plan` returns it.
    variant : Variant
    rules : str
        Rule set that a pass is proved under.
    capabilities : collection of str
        What the backend can do.

    Raises
    ------
    UsageError
        For a variant with a pass that is unknown.
    """

    def applied(passes: Iterable[str], allow_hazards: bool = False) -> Applied:
        return apply_passes(
            baseline, passes, capabilities, rules, filtered=True, allow_hazards=allow_hazards
        )

    now = applied(variant.passes, variant.allow_hazards)
    proved = applied(variant.passes) if variant.allow_hazards else now
    values = dict(_split(text) for text in now.plan.passes)
    for name, comes_from in COMES_FROM.items():
        blank = PassState(
            id=name,
            parameter="",
            values=(),
            value="",
            on=name in values,
            state="not built",
            why="it is not built yet",
            needs=_NEEDS_TO_COME.get(name, ()),
            removes=(),
            adds=(),
            comes_from=comes_from,
            presets=tuple(each for each in PRESETS if name in _ids(each)),
        )
        if name in NOT_BUILT:
            yield blank
            continue
        each = PASSES[name]
        if name in values:
            without, with_it = applied(toggled(variant.passes, name, False)), now
            reason = proved.refused.get(name, "")
        else:
            without, with_it = now, applied(toggled(variant.passes, name, True))
            reason = with_it.refused.get(name, "")
        state = _state(reason)
        known = replace(blank, state=state, why=reason, needs=each.needs)
        if each.parameter is not None:
            low, high = each.parameter.low, each.parameter.high
            known = replace(
                known,
                parameter=each.parameter.name,
                values=tuple(map(str, range(low, high + 1))),
                value=values.get(name) or str(each.parameter.default),
            )
        if known.on or state == "proved":
            removes, adds = _changes(without.plan, with_it.plan)
            known = replace(known, removes=removes, adds=adds)
        if state == "proved":
            effect = _effect(without.plan, with_it.plan)
            known = replace(known, why=f"it makes no hazard under {rules} rules; {effect}")
            if replace(with_it.plan, passes=without.plan.passes) == without.plan:
                known = replace(known, state="no site", why="it would change nothing here")
        yield known


def toggled(passes: Iterable[str], text: str, on: bool) -> tuple[str, ...]:
    """Return the passes of a variant after a toggle.

    Parameters
    ----------
    passes : iterable of str
        As ``id`` or ``id=value``.
    text : str
        The pass, in the same way.
    on : bool
        True: with it, in place of what it was.  False: without it and all that need it.
    """
    name, _ = _split(text)
    gone = {name}
    if not on:
        for each in PASSES.values():  # in the order in which they run: needs come first
            if gone.intersection(each.needs):
                gone.add(each.id)
    kept = tuple(each for each in passes if _split(each)[0] not in gone)
    return (*kept, text) if on else kept


def _split(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _ids(preset: str) -> set[str]:
    """Return the ids of the passes of a preset, those of presets in it included."""
    ids: set[str] = set()
    for text in PRESETS[preset]:
        name, _ = _split(text)
        ids |= _ids(name) if name in PRESETS else {name}
    return ids


def _state(reason: str) -> str:
    """Return the state that a reason why a pass was not applied stands for."""
    if not reason:
        return "proved"
    if reason == _NO_SITE:
        return "no site"
    return _NO_CAPABILITY if reason.startswith(_NO_CAPABILITY) else "refused"


def _changes(before: Plan, after: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sites that are gone and those that are new."""
    found = {phase: diff(ops, after.phases[phase]) for phase, ops in before.phases.items()}
    return (
        tuple(f"{phase}:{site}" for phase, each in found.items() for site in each.removed),
        tuple(f"{phase}:{site}" for phase, each in found.items() for site in each.added),
    )


def _effect(before: Plan, after: Plan) -> str:
    """Say what becomes of the pattern, in decode if it changes there."""
    for phase in reversed(tuple(before.phases)):
        one, other = (plan_pattern(plan.phases[phase]) for plan in (before, after))
        if one != other:
            return f"{phase} {one} becomes {other}"
    if before.phases != after.phases:
        return "no pattern changes, some ops do"
    return "no op changes, its buffers have other slots"


_NEEDS_TO_COME: Mapping[str, tuple[str, ...]] = {
    "expert-prefetch": ("used-experts-copy",),
    "bracket-syncs": ("batch-input-syncs",),
    "run-ahead": ("device-sampling",),
}
"""What passes that are not built yet will need."""

COMES_FROM: Mapping[str, str] = {
    "cuda-graph": (
        "llama.cpp captures a split's kernels once two identical steps have run (#19754), then "
        "replays them with one launch"
    ),
    "async-input-copies": (
        "llama.cpp #17795, and again #20793 (b9820, taken back by #25138): host inputs are copied "
        "on the compute stream"
    ),
    "batch-input-syncs": (
        "llama.cpp #17795 and #20793: saaasg instead of sassassasg, in release b9820 for four days "
        "until #25138 took it back"
    ),
    "pack-inputs": "Syncscope's own: one block for all inputs needs one copy",
    "drop-leading-sync": (
        "llama.cpp #17795, which gave several GPUs aaag: a copy on the compute stream comes after "
        "the kernels that read the old input anyway"
    ),
    "drop-trailing-sync": (
        "llama.cpp #25319 (open): aaag with a contract for async copies; here an event keeps the "
        "host from writing a source that is still read"
    ),
    "input-slot-ring": (
        "llama.cpp #27311 (open): the inputs of a reused graph take turns in slots instead of a "
        "sync of the whole scheduler"
    ),
    "repeat-sync-elision": (
        "llama.cpp's output getters: each syncs again for the same token, only the first can wait"
    ),
    "logits-event-sync": (
        "llama.cpp's first output getter drains the stream, where an event behind the copy of the "
        "logits would do"
    ),
    "moe-map-upload-sync": (
        "a fork of llama.cpp: the sync after the upload of a routing map guards only its source; "
        "llama.cpp still has it, and its SYCL backend read a source that was freed (#24676)"
    ),
    "split-transfer-single-sync": (
        "a fork of llama.cpp: one sync for the copies of a tensor split by rows; llama.cpp has "
        "removed such buffers since (#24216)"
    ),
    "used-experts-copy": (
        "llama.cpp #15346 (mended by #15488): of experts in host memory only those in use are "
        "copied, in runs"
    ),
    "expert-prefetch": (
        "llama.cpp #21067 (open; #7315 before it): the next layer's weights come on a stream of "
        "their own meanwhile"
    ),
    "pipeline-events": (
        "llama.cpp #6017: an event per device and slot instead of drains; #26040 records them also "
        "where a split has no inputs"
    ),
    "bracket-syncs": (
        "llama.cpp #20793 (b9820): a sync before and after the copies, events or not; on four GPUs "
        "it halved the speed of prompts (#25062)"
    ),
    "moe-device-routing": (
        "llama.cpp's kernels that take expert ids: the sorting is done on the device, and no id "
        "comes back to the host"
    ),
    "device-sampling": (
        "llama.cpp's samplers on the device: four bytes of a token come back instead of all logits"
    ),
    "run-ahead": "Syncscope's own: the next steps are enqueued before the host has seen the token",
    "keep-set": "Syncscope's own: what its analysis can do without goes, all together",
}
"""Where each pass is from, in the order in which passes run."""
