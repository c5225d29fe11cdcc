"""Rows of a timeline made by hand, and events as a user's hand makes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QMouseEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from syncscope.app.gui.lane_store import LaneStore
from syncscope.app.gui.row_source import ARROW
from syncscope.app.gui.theme import CATEGORIES


@dataclass
class MadeRow:
    key: str
    title: str
    kind: str
    lanes: list[LaneStore] = field(default_factory=list)


@dataclass(frozen=True)
class MadeStep:
    number: int
    begin_ns: int
    pattern: str


@dataclass(frozen=True)
class MadeGhost:
    row: int
    begin_ns: int
    end_ns: int
    site: str


@dataclass
class MadeRows:
    """Rows as `row_source.RowSource` wants them; `span` adds one and returns its ref."""

    rows: list[MadeRow] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    joined: list[tuple[int, ...]] = field(default_factory=list)
    step_list: list[MadeStep] = field(default_factory=list)
    ghost_list: list[MadeGhost] = field(default_factory=list)
    arrow_list: list[tuple[int, int, int, int]] = field(default_factory=list)
    n_spans: int = 0

    def row(self, key: str, kind: str, title: str = "", n_lanes: int = 1) -> MadeRow:
        self.rows.append(MadeRow(key, title or key, kind, [LaneStore(13) for _ in range(n_lanes)]))
        return self.rows[-1]

    def span(
        self,
        key: str,
        begin: int,
        end: int,
        category: str,
        name: str = "",
        flags: int = 0,
        lane: int = 0,
    ) -> int:
        if name not in self.names:
            self.names.append(name)
        row = next(each for each in self.rows if each.key == key)
        columns = (begin, end, CATEGORIES.index(category), self.names.index(name), flags)
        types = (np.int64, np.int64, np.uint8, np.uint32, np.uint8, np.int64)
        values = (*columns, self.n_spans)
        row.lanes[lane].append(*(np.array([v], t) for v, t in zip(values, types, strict=True)))
        self.n_spans += 1
        return self.n_spans - 1

    def extent(self) -> tuple[int, int]:
        found = [lane.extent() for row in self.rows for lane in row.lanes if len(lane)]
        return (min(a for a, _ in found), max(b for _, b in found)) if found else (0, 0)

    def links(self, ref: int) -> Sequence[int]:
        return [other for each in self.joined if ref in each for other in each if other != ref]

    def arrows(self, t0: int, t1: int, limit: int) -> Any:
        found = [each for each in self.arrow_list if each[0] < t1 and each[1] > t0]
        return np.array(found if len(found) <= limit else [], ARROW)

    def steps(self, t0: int, t1: int) -> Sequence[MadeStep]:
        ends = [*(each.begin_ns for each in self.step_list), 2**62][1:]
        return [
            step
            for step, end in zip(self.step_list, ends, strict=True)
            if step.begin_ns < t1 and end > t0
        ]

    def buffer_rows(self, name: str) -> Sequence[MadeRow]:
        return [each for each in self.rows if each.kind == "buffer" and each.key == name]

    def ghosts(self, t0: int, t1: int) -> Sequence[MadeGhost]:
        return [each for each in self.ghost_list if each.begin_ns < t1 and each.end_ns >= t0]


@dataclass
class MadeRecording:
    rows: MadeRows
    header: dict[str, Any] = field(default_factory=lambda: {"simulated": True})


def turn_wheel(
    widget: QWidget,
    at: QPoint,
    dy: int = 0,
    dx: int = 0,
    held: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier,
) -> None:
    """Turn the wheel over a widget, in eighths of a degree."""
    event = QWheelEvent(
        QPointF(at),
        QPointF(widget.mapToGlobal(at)),
        QPoint(0, 0),
        QPoint(dx, dy),
        Qt.MouseButton.NoButton,
        held,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(widget, event)


def move_mouse(
    widget: QWidget,
    at: QPoint,
    button: Qt.MouseButton = Qt.MouseButton.NoButton,
    held: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier,
) -> None:
    """Move the pointer; QTest.mouseMove would carry no button."""
    event = QMouseEvent(
        QEvent.Type.MouseMove,
        QPointF(at),
        QPointF(widget.mapToGlobal(at)),
        Qt.MouseButton.NoButton,
        button,
        held,
    )
    QApplication.sendEvent(widget, event)


def drag(
    widget: QWidget,
    begin: QPoint,
    end: QPoint,
    button: Qt.MouseButton = Qt.MouseButton.LeftButton,
    held: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier,
) -> None:
    """Press, move in five steps, release."""
    QTest.mousePress(widget, button, held, begin)
    for k in range(1, 6):
        move_mouse(widget, begin + (end - begin) * k / 5, button, held)
    QTest.mouseRelease(widget, button, held, end)
