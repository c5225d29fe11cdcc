"""Live runs of the simulator as batches, for panels, and looks at what panels show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QAbstractScrollArea, QLabel, QTableView, QWidget

from helpers.live import watched
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.theme import rgb
from syncscope.app.live_batch import LiveBatch, LiveRequest

Run = tuple[dict[str, Any], tuple[LiveBatch, ...]]
"""Header of a live run, and all its batches."""

CLEAN = LiveRequest(device="sim", n_tokens=24, ubatch=16)
RACY = LiveRequest(
    device="sim",
    prompt="once upon a time",
    n_tokens=32,
    ubatch=8,
    preset="saaasg",
    drop=("inputs.sync_after",),
    allow_hazards=True,
)
"""Drops a sync that several micro-batches need: reads are stale, tokens differ."""


@cache
def live_run(request: LiveRequest = CLEAN) -> Run:
    """Run to the end."""
    with watched(request) as seen:
        seen.session.start()
        seen.finish()
    return dict(seen.session.header), tuple(seen.batches)


@cache
def toggled_run() -> Run:
    """Run the baseline, then all passes, for some steady tokens each."""
    with watched(LiveRequest(device="sim", n_tokens=120, speed=0.02)) as seen:
        seen.session.start()
        seen.until_step(40)
        seen.session.pause()
        seen.session.set_variant("all")
        seen.until(lambda seen: len(seen.changes) == 2)
        seen.session.resume()
        seen.finish()
    return dict(seen.session.header), tuple(seen.batches)


def recorded(run: Run) -> Recording:
    """Record all batches of a run."""
    header, batches = run
    recording = Recording(header)
    for each in batches:
        recording.extend(each)
    return recording


@contextmanager
def clean_clipboard(app: Any) -> Iterator[Any]:
    """Return the clipboard, emptied before and after."""
    app.clipboard().clear()
    yield app.clipboard()
    app.clipboard().clear()


def cells(table: QTableView) -> list[list[str]]:
    """Return the text of a table as it is shown, row by row."""
    model = table.model()
    return [
        [str(model.index(row, column).data()) for column in range(model.columnCount())]
        for row in range(model.rowCount())
    ]


def titles(table: QTableView) -> list[str]:
    model = table.model()
    return [model.headerData(i, Qt.Orientation.Horizontal) for i in range(model.columnCount())]


def picture(widget: QWidget) -> QImage:
    return widget.grab().toImage()


def has_colour(image: QImage, colour: str, least: int = 4) -> bool:
    """Whether so many pixels have just this colour."""
    wanted, found = QColor(colour).rgb(), 0
    for y in range(image.height()):
        for x in range(image.width()):
            found += image.pixel(x, y) == wanted
            if found >= least:
                return True
    return False


def pixel(image: QImage, point: QPoint) -> tuple[int, int, int]:
    """Return the colour at a point in logical pixels."""
    scale = image.devicePixelRatio()
    return QColor(image.pixel(round(point.x() * scale), round(point.y() * scale))).getRgb()[:3]


def near(one: tuple[int, int, int], colour: str, by: int = 12) -> bool:
    return all(abs(a - b) <= by for a, b in zip(one, rgb(colour), strict=True))


def without_name(widget: QWidget) -> list[str]:
    """Return what can have the focus, or says something, and has no name for a screen reader."""
    return [
        f"{type(each).__name__} {each.objectName()}"
        for each in (widget, *widget.findChildren(QWidget))
        if each.focusPolicy() != Qt.FocusPolicy.NoFocus
        and not each.objectName().startswith("qt_")
        and not (isinstance(each.parent(), QAbstractScrollArea) and not each.accessibleName())
        and not each.accessibleName()
        and not getattr(each, "text", str)()
    ]


def cut_labels(widget: QWidget) -> list[str]:
    """Return the texts of visible labels that have less room than they need."""
    return [
        each.text()
        for each in widget.findChildren(QLabel)
        if each.isVisible()
        and each.text()
        and (
            each.height() < each.heightForWidth(each.width())
            if each.wordWrap()
            else each.width() < each.sizeHint().width()
        )
    ]
