"""Keeps what the optimisations panel says of each pass true: asks anew when the variant changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from syncscope.app.gui.tasks import Progress
from syncscope.app.optimisations import PassState, each_pass_state
from syncscope.app.variants import Variant, preset_variant
from syncscope.sched_core.records import Plan

if TYPE_CHECKING:
    from syncscope.app.gui.main_window import MainWindow

TITLE = "asking what each pass would do"


def find_states(
    baseline: Plan, variant: Variant, rules: str, progress: Progress
) -> tuple[PassState, ...]:
    """Return the state of each pass; may be ended between two of them."""
    states = []
    for state in each_pass_state(baseline, variant, rules):
        states.append(state)
        progress(len(states), 0)
    return tuple(states)


class PassWatch(QObject):
    """Asks in the background, once of each plan and variant, and of one at a time."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._asked: tuple[Plan, Variant, str] | None = None
        window.variant.changed.connect(self.look)
        window.controller.state_changed.connect(lambda _: self.look())

    def look(self) -> None:
        """Ask what each pass would do to the present variant, if a run has a plan to ask of."""
        window = self._window
        baseline, rules = window.controller.baseline, window.controller.rules
        if baseline is None:
            return
        variant = preset_variant(*window.variant.request())
        if (baseline, variant, rules) == self._asked:
            return
        self._asked = baseline, variant, rules
        window.tasks.start(
            TITLE,
            lambda progress: find_states(baseline, variant, rules, progress),
            window.optimisations.set_states,
            window.banner.say,
        )
