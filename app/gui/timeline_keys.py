"""Keys of the timeline, as data: the help sheet and the command palette list them."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QKeyCombination, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence


@dataclass(frozen=True, slots=True)
class Binding:
    """Keys, in Qt's portable text, and the command of `timeline_view.TimelineView` they run."""

    command: str
    keys: tuple[str, ...]
    text: str


BINDINGS = (
    Binding("zoom_in", ("W", "+", "="), "Zoom in about the pointer"),
    Binding("zoom_out", ("S", "-"), "Zoom out about the pointer"),
    Binding("pan_left", ("A", "Left"), "Earlier"),
    Binding("pan_right", ("D", "Right"), "Later"),
    Binding("page_up", ("PgUp",), "Scroll rows up"),
    Binding("page_down", ("PgDown",), "Scroll rows down"),
    Binding("focus_selection", ("F",), "Centre the selection; again: zoom to it"),
    Binding("zoom_to_range", ("Return", "Enter"), "Zoom to the measured range or the selection"),
    Binding("show_all", ("0", "Home"), "Show the whole recording"),
    Binding("follow", ("Space", "End"), "Follow the newest span"),
    Binding("undo_zoom", ("Backspace", "Alt+Left"), "Back to the window before"),
    Binding("redo_zoom", ("Alt+Right",), "Forward again"),
    Binding("next_span", (".",), "Next span of the row"),
    Binding("previous_span", (",",), "Previous span of the row"),
    Binding("next_dependency", ("]",), "To what follows from the selection"),
    Binding("previous_dependency", ("[",), "To what the selection follows from"),
    Binding("last_dependency", ("Ctrl+]",), "To the last that follows from the selection"),
    Binding("first_dependency", ("Ctrl+[",), "To the first that the selection follows from"),
    Binding("measure_selection", ("R",), "Measure the selection"),
    Binding("mark", ("M",), "Mark the measured range, the selection or the pointer"),
    Binding("unmark", ("Shift+M",), "Take the last mark away"),
    Binding("toggle_buffers", ("B",), "Show or hide the rows of buffers"),
    Binding("clear", ("Esc",), "Clear selection and measurement"),
)

MOUSE = (
    ("Wheel", "Scroll rows"),
    ("Ctrl+wheel, pinch", "Zoom about the pointer"),
    ("Shift+wheel, wheel sideways", "Earlier or later"),
    ("Click", "Select a span, or clear on empty ground"),
    ("Double click", "Zoom to a span"),
    ("Drag", "Measure; its edges can be dragged"),
    ("Ctrl+drag, Alt+drag", "Zoom to a range"),
    ("Shift+drag, middle drag", "Pan"),
)
"""What the mouse does, for the help sheet."""

_COMMANDS = {key: binding.command for binding in BINDINGS for key in binding.keys}
_KEPT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier


def command_of(event: QKeyEvent) -> str:
    """Return the command of a key press, empty if it has none."""
    modifiers = event.modifiers() & _KEPT
    if Qt.Key.Key_A <= event.key() <= Qt.Key.Key_Z:  # elsewhere shift only makes the character
        modifiers |= event.modifiers() & Qt.KeyboardModifier.ShiftModifier
    pressed = QKeySequence(QKeyCombination(modifiers, Qt.Key(event.key())))
    return _COMMANDS.get(pressed.toString(QKeySequence.SequenceFormat.PortableText), "")
