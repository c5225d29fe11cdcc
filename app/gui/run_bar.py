"""The run bar: what is to be run, on what, how fast; and how far it is."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QGridLayout,
    QLabel,
    QLineEdit,
    QProgressBar,
    QSizePolicy,
    QSpinBox,
    QToolButton,
    QWidget,
)

from syncscope.app.devices import device_rows
from syncscope.app.gui.variant_state import CUSTOM, VariantState
from syncscope.app.live import LiveRequest
from syncscope.kernels.registry import list_models
from syncscope.sched_core.passes.registry import available_presets
from syncscope.sched_core.profile import PROFILES

SPEEDS = (
    ("unlimited", 0.0),
    ("real time", 1.0),
    ("1/10", 0.1),
    ("1/100", 0.01),
    ("1/1,000", 0.001),
    ("1/10,000", 0.0001),
)
"""Speeds of the simulated clock, in simulated seconds per second."""

SIM = "sim"

CHARACTERS = 7
"""Width of a box; its list, and a tip, show what is longer."""


class RunBar(QWidget):
    """Fields of a run and its progress; `request` makes what a session is started with.

    Buttons show the window's own actions, so that they and the menu never differ.
    """

    speed_changed = Signal(float)

    def __init__(self, variant: VariantState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("run_bar")
        self._variant = variant
        self.device = _box("Device", "Where it runs")
        self.profile = _box("Profile", "Costs of the simulated device", PROFILES)
        self.model = _box("Model", "A model's id or file", [each.id for each in list_models()])
        self.model.setEditable(True)
        self.prompt = QLineEdit(LiveRequest().prompt)
        self.prompt.setAccessibleName("Prompt")
        self.prompt.setMinimumWidth(100)
        self.prompt.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.tokens = _number("Tokens", 1, 1_000_000, LiveRequest().n_tokens)
        self.ubatch = _number("Micro-batch", 1, 65536, LiveRequest().ubatch)
        self.preset = _box("Preset", "Which optimisations are on", available_presets())
        self.speed = _box("Speed", "Of the simulated clock", [name for name, _ in SPEEDS])
        self.repeat = QToolButton()
        self.repeat.setText("⟳")
        self.repeat.setCheckable(True)
        self.repeat.setAccessibleName("Repeat")
        self.repeat.setToolTip("Begin again when the tokens are done")
        self.progress = QProgressBar(textVisible=True)
        self.progress.setAccessibleName("Progress")
        self.progress.setFixedWidth(116)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(6, 3, 6, 3)
        self._grid.setHorizontalSpacing(6)
        self._grid.setVerticalSpacing(1)
        self._add_devices()
        self._lay_out()
        self.preset.currentTextChanged.connect(self._choose_preset)
        self.speed.currentIndexChanged.connect(lambda i: self.speed_changed.emit(SPEEDS[i][1]))
        self.device.currentIndexChanged.connect(self._device_changed)
        for each in (self.device, self.profile, self.model, self.preset):
            list_ = each.view()
            list_.setMinimumWidth(list_.sizeHintForColumn(0) + 24)
        variant.changed.connect(self._show_preset)
        self._device_changed()
        self._show_preset()

    def _add_devices(self) -> None:
        self.device.addItem("automatic", "")
        self.device.addItem("simulated", SIM)
        for name, title, _ in device_rows():
            if name.startswith("cuda:"):
                self.device.addItem(f"{name} {title}", name)

    def _lay_out(self) -> None:
        fields = (
            ("device", self.device),
            ("profile", self.profile),
            ("model", self.model),
            ("prompt", self.prompt),
            ("tokens", self.tokens),
            ("micro-batch", self.ubatch),
            ("preset", self.preset),
            ("clock", self.speed),
            ("", self.repeat),
            ("progress", self.progress),
        )
        for column, (title, widget) in enumerate(fields):
            label = QLabel(title)
            label.setBuddy(widget)
            self._grid.addWidget(label, 0, column)
            self._grid.addWidget(widget, 1, column)
        self._grid.setColumnStretch(fields.index(("prompt", self.prompt)), 1)

    def add_buttons(self, buttons: list[QToolButton]) -> None:
        """Put the buttons of a run behind the fields."""
        for each in buttons:
            each.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
            self._grid.addWidget(each, 1, self._grid.columnCount())

    def request(self) -> LiveRequest:
        """Return what the fields ask for."""
        preset, passes, drop, allow_hazards = self._variant.request()
        return LiveRequest(
            model=self.model.currentText().strip(),
            prompt=self.prompt.text(),
            n_tokens=self.tokens.value(),
            ubatch=self.ubatch.value(),
            device=self.device.currentData(),
            profile=self.profile.currentText(),
            preset=preset,
            passes=passes,
            drop=drop,
            allow_hazards=allow_hazards,
            repeat=self.repeat.isChecked(),
            speed=SPEEDS[self.speed.currentIndex()][1],
        )

    def show_progress(self, done: int, total: int) -> None:
        """Show steps done; a total of 0 is a run without end."""
        self.progress.setRange(0, max(total, 1))
        self.progress.setValue(min(done, total) if total else 0)
        self.progress.setFormat(f"{done:,} of {total:,} steps" if total else f"{done:,} steps")

    def _device_changed(self) -> None:
        simulated = not str(self.device.currentData()).startswith("cuda")
        for each in (self.profile, self.speed):
            each.setEnabled(simulated)

    def _choose_preset(self, preset: str) -> None:
        if preset != CUSTOM:
            self._variant.set_preset(preset)

    def _show_preset(self) -> None:
        with QSignalBlocker(self.preset):
            at = self.preset.findText(CUSTOM)
            if self._variant.preset == CUSTOM and at < 0:
                self.preset.addItem(CUSTOM)
            elif self._variant.preset != CUSTOM and at >= 0:
                self.preset.removeItem(at)
            self.preset.setCurrentText(self._variant.preset)


def _box(name: str, tip: str, items: tuple[str, ...] | list[str] = ()) -> QComboBox:
    box = QComboBox()
    box.addItems(list(items))
    box.setAccessibleName(name)
    box.setObjectName(f"run_bar.{name.lower()}")
    box.setToolTip(tip)
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(CHARACTERS)
    return box


def _number(name: str, low: int, high: int, value: int) -> QSpinBox:
    box = QSpinBox(minimum=low, maximum=high, value=value)
    box.setAccessibleName(name)
    box.setGroupSeparatorShown(True)
    box.setFixedWidth(78)
    return box
