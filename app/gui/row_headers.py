"""Titles of the rows: collapse, pin, and drag to another place."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QWheelEvent,
)
from PySide6.QtWidgets import QApplication, QMenu, QToolTip, QWidget

from syncscope.app.gui.glyphs import GLYPH_PX, glyph
from syncscope.app.gui.row_layout import Layout, Place
from syncscope.app.gui.row_source import Row
from syncscope.app.gui.theme import label_font
from syncscope.app.gui.view_state import ViewState

HEADERS_PX = 168
MARGIN_PX = 6
LEAST_TITLE_PX = 10
"""A row that is lower has no title."""


class RowHeaders(QWidget):
    """The column beside the rows.

    A click on a title collapses its row, one on the pin keeps it at the top, a drag moves it.  Keys
    do the same to the current row: arrows choose it, Enter collapses, P pins, Alt and arrows move.
    """

    wheel = Signal(object)
    """A QWheelEvent that the timeline scrolls by."""

    def __init__(self, state: ViewState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._rows: Sequence[Row] = ()
        self._layout = Layout((), 0, 0)
        self._current = ""
        self._hovered = ""
        self._pressed: tuple[Place, QPoint] | None = None
        self._drop: Place | None = None
        self._dragging = False
        self.setMinimumWidth(90)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setObjectName("row_headers")
        self.setAccessibleName("Rows")
        state.theme_changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """As wide as most titles."""
        return QSize(HEADERS_PX, 200)

    def show_rows(self, rows: Sequence[Row], layout: Layout) -> None:
        """Draw the titles of these rows where the rows are."""
        if rows is not self._rows or layout != self._layout:
            self._rows, self._layout = rows, layout
            self.update()

    def pin_rect(self, place: Place) -> QRectF:
        """Return where the pin of a row is."""
        x = self.width() - GLYPH_PX - MARGIN_PX
        return QRectF(x, self._first_line(place) - GLYPH_PX / 2, GLYPH_PX, GLYPH_PX)

    def title(self, place: Place) -> str:
        """Return the title of a row."""
        return self._rows[place.row].title

    def _first_line(self, place: Place) -> float:
        """Return the middle of the first lane: titles stay at the top of tall rows."""
        return place.lane_y(0) + place.lane_height / 2 if not place.collapsed else place.middle

    # drawing

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the titles."""
        painter = QPainter(self)
        try:
            painter.fillRect(self.rect(), QColor(self._state.theme.panel))
            painter.setFont(label_font())
            pinned_px = self._layout.pinned_px
            below = QRectF(0, pinned_px, self.width(), self.height())
            for place in sorted(self._layout.places, key=lambda each: not each.pinned):
                if place.y + place.height <= 0 or place.y >= self.height():
                    continue
                if not place.pinned and pinned_px:
                    painter.setClipRect(below)
                self._draw(painter, place)
            painter.setClipping(False)
            if self._dragging:
                self._draw_drop(painter)
        finally:
            painter.end()

    def _draw(self, painter: QPainter, place: Place) -> None:
        theme, dpr = self._state.theme, self.devicePixelRatioF()
        rect = QRectF(0, place.y, self.width(), place.height)
        if place.key == self._current and self.hasFocus():
            painter.fillRect(rect, QColor(theme.field))
            painter.fillRect(QRectF(0, place.y, 2, place.height), QColor(theme.accent))
        line = QRectF(0, rect.bottom() - 1, self.width(), 1)
        painter.fillRect(line, QColor(theme.stripe))
        if place.height < LEAST_TITLE_PX:
            return
        middle = self._first_line(place)
        shape = glyph("closed" if place.collapsed else "open", theme.faint, dpr, 8)
        painter.drawImage(QPointF(MARGIN_PX, middle - 4), shape)
        if place.pinned or place.key == self._hovered:
            colour = theme.accent if place.pinned else theme.faint
            painter.drawImage(self.pin_rect(place).topLeft(), glyph("pin", colour, dpr))
        left = MARGIN_PX + 8 + MARGIN_PX
        room = self.pin_rect(place).left() - left - MARGIN_PX
        metrics = painter.fontMetrics()
        text = metrics.elidedText(self.title(place), Qt.TextElideMode.ElideRight, int(room))
        painter.setPen(QColor(theme.faint if place.collapsed else theme.text))
        base = middle + (metrics.ascent() - metrics.descent()) / 2
        painter.drawText(QPointF(left, base), text)

    def _draw_drop(self, painter: QPainter) -> None:
        """Draw where the dragged row would go."""
        y = self._drop.y if self._drop is not None else self._layout.bottom
        painter.setPen(QPen(QColor(self._state.theme.accent), 2))
        painter.drawLine(QPointF(0, y), QPointF(self.width(), y))

    # mouse

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of a row."""
        place = self._layout.at(event.position().y())
        if event.button() == Qt.MouseButton.LeftButton and place is not None:
            self._pressed = (place, event.position().toPoint())
            self._set_current(place.key)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Show the pin of the row under the pointer, or where a dragged row would go."""
        y = event.position().y()
        place = self._layout.at(y)
        self._hovered = place.key if place is not None else ""
        if self._pressed is not None:
            moved = event.position().toPoint() - self._pressed[1]
            if moved.manhattanLength() >= QApplication.startDragDistance():
                self._dragging = True
            after = place is not None and y > place.y + place.height / 2
            self._drop = self._next(place) if after else place
        self.update()

    def _next(self, place: Place | None) -> Place | None:
        places = self._layout.places
        index = places.index(place) + 1 if place is not None else len(places)
        return places[index] if index < len(places) else None

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Drop a row, or do what was clicked."""
        pressed, self._pressed = self._pressed, None
        dragging, self._dragging = self._dragging, False
        if pressed is None:
            return
        key, arrangement = pressed[0].key, self._state.arrangement
        if dragging:
            before = self._drop.key if self._drop is not None else ""
            if before != key:
                self._state.arrange(arrangement.move(self._rows, key, before))
        elif self.pin_rect(pressed[0]).adjusted(-3, -6, 6, 6).contains(event.position()):
            self._state.arrange(arrangement.toggle_pin(key))
        else:
            self._state.arrange(arrangement.toggle_collapse(key))
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        """Hide the pin."""
        self._hovered = ""
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll as over the rows."""
        self.wheel.emit(event)

    def event(self, event: QEvent) -> bool:
        """Show the whole title of a row whose title may be cut."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            place = self._layout.at(event.pos().y())
            QToolTip.showText(event.globalPos(), self.title(place) if place else "", self)
            return True
        return bool(super().event(event))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer what can be done with a row."""
        place = self._layout.at(event.pos().y())
        arrangement = self._state.arrangement
        menu = QMenu(self)
        if place is not None:
            key = place.key
            for text, changed in (
                ("Unpin" if place.pinned else "Pin to the top", arrangement.toggle_pin(key)),
                ("Open" if place.collapsed else "Collapse", arrangement.toggle_collapse(key)),
                ("Hide", arrangement.toggle_hidden(key)),
            ):
                menu.addAction(text).triggered.connect(
                    lambda _=False, to=changed: self._state.arrange(to)
                )
        if arrangement.hidden:
            text = f"Show hidden rows ({len(arrangement.hidden)})"
            menu.addAction(text).triggered.connect(
                lambda: self._state.arrange(arrangement.show_all())
            )
        menu.exec(event.globalPos())
        menu.deleteLater()

    # keys

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Choose a row, and do with it what the mouse can."""
        keys = [each.key for each in self._layout.places]
        if not keys:
            return super().keyPressEvent(event)
        index = keys.index(self._current) if self._current in keys else -1
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()), 0)
        arrangement = self._state.arrangement
        if step and event.modifiers() & Qt.KeyboardModifier.AltModifier and index >= 0:
            target = index + (2 if step > 0 else -1)
            if 0 <= target <= len(keys):
                before = keys[target] if target < len(keys) else ""
                self._state.arrange(arrangement.move(self._rows, self._current, before))
        elif step:
            self._set_current(keys[min(max(index + step, 0), len(keys) - 1)])
        elif index >= 0 and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._state.arrange(arrangement.toggle_collapse(self._current))
        elif index >= 0 and event.key() == Qt.Key.Key_P:
            self._state.arrange(arrangement.toggle_pin(self._current))
        else:
            super().keyPressEvent(event)
        return None

    def _set_current(self, key: str) -> None:
        """Make a row the current one, and say so to a screen reader."""
        self._current = key
        place = self._layout.of(key)
        if place is not None:
            said = [self.title(place)]
            said += ["pinned"] * place.pinned + ["collapsed"] * place.collapsed
            self.setAccessibleDescription(", ".join(said))
        self.update()
