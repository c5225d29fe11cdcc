"""What is switched on: passes, dropped syncs and whether hazards are allowed; and who must know."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from syncscope.app.optimisations import toggled
from syncscope.sched_core.passes.registry import PASSES, PRESETS, available_presets

CUSTOM = "custom"
"""Stands in the place of a preset's id where none has these passes."""

BARE = "no-graph"
"""The preset without passes, on which a custom choice is built."""

Request = tuple[str, tuple[str, ...], tuple[str, ...], bool]
"""Preset, passes beside it, syncs dropped, hazards allowed, as for `LiveSession.set_variant`."""


class VariantState(QObject):
    """The variant that the user has chosen; it may still be refused.

    Attributes
    ----------
    preset : str
        Id of the preset that has just these passes, or `CUSTOM`.
    passes : tuple of str
        All that are on, as ``id`` or ``id=value``, in the order in which they run.
    drop : tuple of str
        Syncs removed raw, as ``phase:site``.
    allow_hazards : bool
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.preset = "baseline"
        self.passes: tuple[str, ...] = PRESETS["baseline"]
        self.drop: tuple[str, ...] = ()
        self.allow_hazards = False

    def set_preset(self, preset: str) -> None:
        """Switch on the passes of a preset, and put dropped syncs back."""
        built = tuple(each for each in PRESETS[preset] if _id(each) in PASSES)
        self._set(preset, built, ())

    def toggle_pass(self, name: str, on: bool, value: int | None = None) -> None:
        """Switch a pass on, with a value if it takes one, or off with all that need it."""
        text = name if value is None else f"{name}={value}"
        chosen = {_id(each): each for each in toggled(self.passes, text, on)}
        passes = tuple(chosen[each] for each in PASSES if each in chosen)
        self._set(_preset_of(passes), passes, self.drop)

    def toggle_drop(self, place: str) -> None:
        """Remove the sync at ``phase:site``, or put it back."""
        kept = tuple(each for each in self.drop if each != place)
        self._set(self.preset, self.passes, kept if len(kept) < len(self.drop) else (*kept, place))

    def set_allow_hazards(self, on: bool) -> None:
        """Run also what is not proved to be safe."""
        if on != self.allow_hazards:
            self.allow_hazards = on
            self.changed.emit()

    def is_on(self, name: str) -> bool:
        """Whether a pass is switched on."""
        return any(_id(each) == name for each in self.passes)

    def value_of(self, name: str) -> int | None:
        """Return the number that a pass is switched on with; None if it is off or takes none."""
        for each in self.passes:
            if _id(each) == name and "=" in each:
                return int(each.partition("=")[2])
        return None

    def request(self) -> Request:
        """Return what a session is asked for."""
        if self.preset == CUSTOM:
            return BARE, self.passes, self.drop, self.allow_hazards
        return self.preset, (), self.drop, self.allow_hazards

    def _set(self, preset: str, passes: tuple[str, ...], drop: tuple[str, ...]) -> None:
        if (preset, passes, drop) != (self.preset, self.passes, self.drop):
            self.preset, self.passes, self.drop = preset, passes, drop
            self.changed.emit()


def _id(text: str) -> str:
    return text.partition("=")[0]


def _preset_of(passes: tuple[str, ...]) -> str:
    """Return the preset that has just these passes, of those that can be run."""
    for name in available_presets():
        if tuple(each for each in PRESETS[name] if _id(each) in PASSES) == passes:
            return name
    return CUSTOM
