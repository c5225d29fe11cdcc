"""The drawing area of the timeline, and what mouse and touchpad do on it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QNativeGestureEvent, QResizeEvent, QWheelEvent

from syncscope.app.gui.navigation import PAN, ZOOM
from syncscope.app.gui.timeline_keys import command_of
from syncscope.app.gui.view_state import NOTHING

if TYPE_CHECKING:
    from syncscope.app.gui.timeline_view import TimelineView

CLICK_PX = 4
"""A press that moves less is a click."""

GRAB_PX = 4
"""So near to it an edge of the measured range can be dragged."""

NOTCH = 120
"""Angle of a notch of the wheel, in Qt's eighths of a degree."""

NOTCH_PX = 48


def scroll_pixels(event: QWheelEvent) -> int:
    """Return by how many pixels a turn of the wheel, or a touchpad, scrolls down."""
    return -event.pixelDelta().y() or round(-event.angleDelta().y() / NOTCH * NOTCH_PX)


class _Drag(Enum):
    """What a drag with a button held does."""

    MEASURE = 0
    ZOOM = 1
    PAN = 2


class TimelinePlot(pg.GraphicsView):
    """Shows one item over all of it and turns events into moves, measures and selections."""

    resized = Signal()

    def __init__(self, view: TimelineView) -> None:
        super().__init__(view, background=None)
        self._view = view
        self._state = view.state
        self._press: QPointF | None = None
        self._last = QPointF()
        self._anchor = 0
        self._drag: _Drag | None = None
        self._button = Qt.MouseButton.NoButton
        self.pointer: QPointF | None = None
        self.wheel_zooms = False
        self.box = pg.ViewBox(enableMenu=False, defaultPadding=0)
        self.box.setMouseEnabled(False, False)
        self.setCentralItem(self.box)
        self.setViewportUpdateMode(self.ViewportUpdateMode.FullViewportUpdate)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setObjectName("timeline_plot")
        self.setAccessibleName("Timeline")

    # wheel and touchpad

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll rows; with Ctrl zoom about the pointer, with Shift or sideways pan."""
        angle, pixels = event.angleDelta(), event.pixelDelta()
        held = event.modifiers()
        zooms = bool(held & Qt.KeyboardModifier.ControlModifier)
        aside = bool(held & Qt.KeyboardModifier.ShiftModifier)
        event.accept()
        if zooms or (self.wheel_zooms and not aside and abs(angle.y()) >= abs(angle.x())):
            notches = (angle.y() or angle.x()) / NOTCH
            self._view.navigation.zoom(ZOOM**notches, self._view.time_at(event.position().x()))
        elif aside or abs(angle.x()) > abs(angle.y()):
            notches = (angle.x() if abs(angle.x()) > abs(angle.y()) else angle.y()) / NOTCH
            share = -pixels.x() / self.width() if pixels.x() else -notches * PAN
            self._view.navigation.pan(share)
        else:
            self._view.scroll_rows(scroll_pixels(event))

    def viewportEvent(self, event: QEvent) -> bool:
        """Zoom by pinching; forget the pointer when it leaves."""
        if isinstance(event, QNativeGestureEvent):
            if event.gestureType() == Qt.NativeGestureType.ZoomNativeGesture:
                t = self._view.time_at(event.position().x())
                self._view.navigation.zoom(1 / max(1 + event.value(), 0.1), t)
                return True
        elif event.type() == QEvent.Type.Leave:
            self.pointer = None
            self._state.set_hover(NOTHING)
        return bool(super().viewportEvent(event))

    # mouse

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin a click or a drag."""
        if self._drag is not None or event.button() not in (
            Qt.MouseButton.LeftButton,
            Qt.MouseButton.MiddleButton,
        ):
            return
        held = event.modifiers()
        box_zoom = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier
        if event.button() == Qt.MouseButton.MiddleButton or (
            held & Qt.KeyboardModifier.ShiftModifier
        ):
            self._drag = _Drag.PAN
        elif held & box_zoom:
            self._drag = _Drag.ZOOM
        else:
            self._drag = _Drag.MEASURE
        self._button = event.button()
        self._press = self._last = event.position()
        self._anchor = self._view.time_at(self._press.x())
        other = self._grabbed(self._press.x())
        if self._drag is _Drag.MEASURE and other is not None:
            self._anchor, self._press = other, None
        self.setFocus(Qt.FocusReason.MouseFocusReason)

    def _grabbed(self, x: float) -> int | None:
        """Return the time of the other edge, if an edge of the measured range is here."""
        measured = self._state.measured
        if measured is not None:
            for edge, other in (measured, measured[::-1]):
                if abs(self._view.x_at(edge) - x) <= GRAB_PX:
                    return other
        return None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Drag what was pressed, or show what is under the pointer."""
        self.pointer = event.position()
        if self._drag is None:
            self._hover()
            return
        if self._press is not None:
            if (self.pointer - self._press).manhattanLength() < CLICK_PX:
                return
            self._press = None
            self._state.set_hover(NOTHING)
        if self._drag is _Drag.PAN:
            moved = self.pointer - self._last
            self._view.navigation.pan(-moved.x() / self.width())
            self._view.scroll_rows(-round(moved.y()))
            self._last = self.pointer
        else:
            self._state.measure((self._anchor, self._view.time_at(self.pointer.x())))

    def _hover(self) -> None:
        """Say what is under the pointer, and that edges can be dragged."""
        if self.pointer is None:
            return
        edge = self._grabbed(self.pointer.x()) is not None
        shape = Qt.CursorShape.SizeHorCursor if edge else Qt.CursorShape.ArrowCursor
        if self.viewport().cursor().shape() != shape:
            self.viewport().setCursor(shape)
        self._state.set_hover(self._view.ref_at(self.pointer.x(), self.pointer.y()))
        self.viewport().update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """End a drag, or select what was clicked."""
        if self._drag is None or event.button() != self._button:
            return
        drag, self._drag = self._drag, None
        if self._press is not None and event.button() == Qt.MouseButton.LeftButton:
            self._view.click(event.position().x(), event.position().y())
        elif drag is _Drag.ZOOM and self._press is None and self._state.measured is not None:
            measured = self._state.measured
            self._state.measure(None)
            self._view.navigation.show(*measured, "box")
        self._press = None

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Zoom to the span that the first click selected."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._view.run("fit_selection")

    # keys and size

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Run the command of a key; others go to the window."""
        command = command_of(event)
        if command:
            self._view.run(command)
            event.accept()
        else:
            event.ignore()

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Tell that there is more or less room; pyqtgraph calls this by itself, with None."""
        super().resizeEvent(event)
        if event is not None:
            self.resized.emit()
