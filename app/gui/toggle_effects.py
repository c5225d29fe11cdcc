"""What switching passes on and off did to the time per token, as it was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncscope.app.gui.latency_model import Effect
from syncscope.app.gui.recording import Recording
from syncscope.app.live_batch import PlanChange


@dataclass(frozen=True, slots=True)
class ToggleEffect:
    """A change of plan: what was switched, and the time per token before and after.

    Parameters
    ----------
    step : int
        From which on the new plan runs.
    added, removed : tuple of str
        Passes, as ``id`` or ``id=value``, with those that came along as needed.
    dropped, restored : tuple of str
        Syncs that were removed raw or put back, as ``phase:site``.
    effect : Effect
    """

    step: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    dropped: tuple[str, ...]
    restored: tuple[str, ...]
    effect: Effect

    @property
    def switched(self) -> tuple[str, ...]:
        """All that differs between the plans."""
        return (*self.added, *self.removed, *self.dropped, *self.restored)


def toggle_effects(recording: Recording) -> tuple[ToggleEffect, ...]:
    """Return the effect of each change in memory with steady state before and after it."""
    changes, first = recording.changes, recording.forgotten_changes
    return tuple(
        _toggle(changes[at - 1], changes[at], each)
        for each in recording.latency.effects()
        if (at := each.change - first) >= 1
    )


def _toggle(before: PlanChange, after: PlanChange, effect: Effect) -> ToggleEffect:
    one, two = before.planned, after.planned
    return ToggleEffect(
        step=after.step,
        added=_only(two.plan.passes, one.plan.passes),
        removed=_only(one.plan.passes, two.plan.passes),
        dropped=_only(two.dropped, one.dropped),
        restored=_only(one.dropped, two.dropped),
        effect=effect,
    )


def _only(these: Iterable[str], those: Iterable[str]) -> tuple[str, ...]:
    known = set(those)
    return tuple(each for each in these if each not in known)


def gain_ns(effects: Iterable[ToggleEffect], name: str) -> float | None:
    """Return by how much a pass or a dropped sync shortens the median token, as last measured.

    Counts where it alone was switched, on or off; None if it never was.
    """
    gain = None
    for each in effects:
        if each.switched == (name,):
            is_on = name in (*each.added, *each.dropped)
            gain = -each.effect.difference_ns if is_on else each.effect.difference_ns
    return gain
