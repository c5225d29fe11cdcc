"""One toggle per pass, with what is known of it: its state, what it removes, what it gained."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QSignalBlocker, Qt, QTimer
from PySide6.QtWidgets import (
    QCheckBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from syncscope.app.gui.origin import origin_word
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.toggle_effects import ToggleEffect, toggle_effects
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState
from syncscope.app.optimisations import PassState
from syncscope.sched_core.passes.registry import NOT_BUILT, PASSES

GLYPHS: Mapping[str, str] = {
    "proved": "✓",
    "refused": "✕",
    "no site": "○",
    "not on this backend": "⊘",
    "not built": "…",
}
"""Says the state without its colour."""

UNKNOWN = "run to see what it would do"
SWITCHABLE = ("proved", "no site")
EFFECTS_SHOWN = 4
REFRESH_MS = 500
"""Medians before and after each toggle are not made anew for every frame."""


def state_text(state: PassState) -> str:
    """Say in one line what toggling a pass would do."""
    word = f"{GLYPHS[state.state]} {state.state}"
    if state.state == "proved":
        word += f"; removes {len(state.removes)}" if state.removes else "; removes nothing"
        if state.adds:
            word += f", adds {len(state.adds)}"
    return f"{word}: {state.why}" if state.why and state.state != "proved" else word


def details_text(state: PassState) -> str:
    """Say all that is known of a pass, for its tip."""
    lines = [f"{state.id}: {state.state}" + (f" ({state.why})" if state.why else "")]
    for title, items in (
        ("needs", state.needs),
        ("removes", state.removes),
        ("adds", state.adds),
        ("in presets", state.presets),
    ):
        if items:
            lines.append(f"{title}: {', '.join(items)}")
    if state.comes_from:
        lines.append(f"comes from: {state.comes_from}")
    return "\n".join(lines)


def effect_text(effect: ToggleEffect, how: str) -> str:
    """Say what a change of plan did to the time per token."""
    parts = [f"+{each}" for each in (*effect.added, *effect.restored)]
    parts += [f"−{each}" for each in (*effect.removed, *effect.dropped)]
    change_us = effect.effect.difference_ns / 1000
    return f"{' '.join(parts) or 'same plan'}: {change_us:+,.1f} µs per token ({how})"


class PassRow(QFrame):
    """A pass: its toggle, its number if it takes one, and what is known of it."""

    def __init__(self, name: str, variant: VariantState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name = name
        self.setObjectName(f"pass.{name}")
        self._variant = variant
        self.toggle = QCheckBox(name)
        self.toggle.setObjectName(f"toggle.{name}")
        self.toggle.setAccessibleName(name)
        self.toggle.setEnabled(name in PASSES)
        self.line = QLabel(UNKNOWN if name in PASSES else f"{GLYPHS['not built']} not built")
        self.line.setObjectName(f"state.{name}")
        self.line.setWordWrap(True)
        self.line.setIndent(22)
        self.line.setForegroundRole(self.line.foregroundRole())
        top = QHBoxLayout()
        top.addWidget(self.toggle, 1)
        self.number = self._make_number()
        if self.number is not None:
            top.addWidget(self.number)
        column = QVBoxLayout(self)
        column.setContentsMargins(6, 2, 6, 2)
        column.setSpacing(0)
        column.addLayout(top)
        column.addWidget(self.line)
        self.toggle.clicked.connect(self._switch)
        self.show_variant()

    def _make_number(self) -> QSpinBox | None:
        parameter = PASSES[self.name].parameter if self.name in PASSES else None
        if parameter is None:
            return None
        box = QSpinBox(minimum=parameter.low, maximum=parameter.high, value=parameter.default)
        box.setPrefix(f"{parameter.name} ")
        box.setAccessibleName(f"{self.name} {parameter.name}")
        box.valueChanged.connect(self._change_number)
        return box

    def _change_number(self) -> None:
        if self.toggle.isChecked():
            self._switch(True)

    def _switch(self, on: bool) -> None:
        value = None if self.number is None else self.number.value()
        self._variant.toggle_pass(self.name, on, value)

    def show_variant(self) -> None:
        """Show whether it is switched on."""
        self.toggle.setChecked(self._variant.is_on(self.name))
        value = self._variant.value_of(self.name)
        if self.number is not None and value is not None:
            with QSignalBlocker(self.number):
                self.number.setValue(value)

    def show_state(self, state: PassState, allow_hazards: bool) -> None:
        """Show what is known of it now."""
        self.line.setText(state_text(state))
        self.setToolTip(details_text(state))
        self.toggle.setAccessibleDescription(f"{state.state}. {state.why}")
        refused = state.state == "refused" and not allow_hazards
        possible = state.state in SWITCHABLE or (state.state == "refused" and not refused)
        self.toggle.setEnabled(state.on or self._variant.is_on(self.name) or possible)


class OptimisationsPanel(QWidget):
    """All passes in the order in which they run, and what the changes so far were worth."""

    def __init__(
        self, state: ViewState, variant: VariantState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("optimisations_panel")
        self._view, self._variant = state, variant
        self._states: tuple[PassState, ...] = ()
        self.rows = {name: PassRow(name, variant) for name in (*PASSES, *NOT_BUILT)}
        self.hazards = QCheckBox("Allow hazards")
        self.hazards.setObjectName("allow_hazards")
        self.hazards.setToolTip("Run also what is not proved to be safe; results may be wrong")
        self.hazards.clicked.connect(variant.set_allow_hazards)
        self.effects = QLabel("no toggle measured yet")
        self.effects.setObjectName("effects")
        self.effects.setAccessibleName("Measured effects")
        self.effects.setWordWrap(True)
        self.effects.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        inner = QWidget()
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 4, 0, 4)
        column.setSpacing(1)
        for row in self.rows.values():
            column.addWidget(row)
        column.addStretch()
        scroll = QScrollArea(widgetResizable=True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(inner)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(4, 4, 4, 4)
        outer.addWidget(self.hazards)
        outer.addWidget(scroll, 1)
        outer.addWidget(self.effects)
        variant.changed.connect(self._show_variant)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self._show_effects)
        state.grown.connect(self._show_effects_soon)
        state.recording_changed.connect(self._show_effects)
        state.theme_changed.connect(self._show_theme)
        self._show_theme()
        self._show_variant()

    def set_states(self, states: tuple[PassState, ...]) -> None:
        """Show what each pass would do to the variant that runs."""
        self._states = states
        for each in states:
            self.rows[each.id].show_state(each, self._variant.allow_hazards)

    def _show_variant(self) -> None:
        self.hazards.setChecked(self._variant.allow_hazards)
        for row in self.rows.values():
            row.show_variant()
        self.set_states(self._states)

    def _show_theme(self) -> None:
        theme = self._view.theme
        self.hazards.setStyleSheet(f"QCheckBox {{ color: {theme.hazard}; font-weight: bold; }}")
        for row in self.rows.values():
            row.line.setStyleSheet(f"color: {theme.faint};")

    def _show_effects_soon(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def _show_effects(self) -> None:
        recording = self._view.recording
        if recording is None:
            self.effects.setText("no toggle measured yet")
            return
        if len(recording.changes) < 2:
            self.effects.setText("no toggle measured yet: switch one while a run goes on")
            return
        self.effects.setText(effects_text(recording))


def effects_text(recording: Recording) -> str:
    """Say what the newest changes of plan did, the newest last."""
    how = origin_word(recording.header)
    lines = [effect_text(each, how) for each in toggle_effects(recording)[-EFFECTS_SHOWN:]]
    return "\n".join(lines) or "a toggle is measured once tokens before and after it are steady"
