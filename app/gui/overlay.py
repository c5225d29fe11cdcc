"""What lies above the spans: what is selected and joined to it, borders of steps, ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPen

from syncscope.app.gui.arrows import draw_arrow, draw_arrows
from syncscope.app.gui.range_statistics import RangeStatistics, statistics_lines
from syncscope.app.gui.row_layout import Layout, Place
from syncscope.app.gui.row_source import Ghost, RowSource, Spot, Step, find_span
from syncscope.app.gui.span_labels import SpanLabels
from syncscope.app.gui.text_box import Line, draw_box
from syncscope.app.gui.theme import CATEGORIES, GLYPHS, TITLES, Theme, label_font
from syncscope.app.gui.time_text import duration_text
from syncscope.app.gui.time_window import TimeWindow
from syncscope.app.gui.view_state import Range, ViewState
from syncscope.app.gui.wide_spans import SPAN_BOUNDED, SPAN_LOWER_BOUND

DIM_ALPHA = 150
LEAST_PX = 2
MIN_ARROWED_PX = 24
"""Of narrower steps no arrows are drawn: they would cover everything."""

GHOST_PX = 8
WATERMARK_PX = 26
STEP_TEXT_PX = 5
SYNCS = frozenset(CATEGORIES.index(each) for each in GLYPHS)
NOTHING_YET = "Nothing recorded yet: run, or open a recording"


@dataclass(frozen=True, slots=True)
class Scene:
    """What one frame is drawn from."""

    window: TimeWindow
    layout: Layout
    places: Mapping[int, Place]
    """Of rows that nothing covers, by their index."""

    source: RowSource
    n_steps: int
    steps: Sequence[Step]
    """Of the `n_steps` in the window; none if they are too narrow to be seen."""

    state: ViewState
    statistics: RangeStatistics | None
    pointer: QPointF | None
    step_labels: SpanLabels
    origin: str
    """Where times come from: ``simulated`` or ``measured``."""

    @property
    def theme(self) -> Theme:
        """Colours."""
        return self.state.theme

    def rect(self, spot: Spot) -> QRectF | None:
        """Return where a span is drawn, cut a little outside the window; None if its row is not."""
        place = self.places.get(spot.row)
        if place is None:
            return None
        y = place.lane_y(min(spot.lane, place.n_lanes - 1))
        left, right = (
            min(max(self.window.x(t), -8.0), self.window.width + 8)
            for t in (spot.begin_ns, spot.end_ns)
        )
        return QRectF(left, y, max(right - left, LEAST_PX), place.lane_height)

    def spots(self, refs: Sequence[int]) -> list[Spot]:
        """Return where spans are, of those that are in memory."""
        found = (find_span(self.source.rows, ref) for ref in refs)
        return [each for each in found if each is not None]


def draw_overlay(painter: QPainter, scene: Scene, image: QImage) -> None:
    """Draw everything above the picture of the rows, which `image` is."""
    state = scene.state
    painter.setClipRect(QRectF(0, 0, scene.window.width, scene.window.height))
    _name_steps(painter, scene)
    _draw_ghosts(painter, scene)
    selected = scene.spots([state.selection])
    linked = scene.spots(scene.source.links(state.selection)) if selected else []
    path = scene.spots(state.path)
    if selected or path:
        _dim(painter, scene)
        for spot in (*selected, *linked, *path):
            _light(painter, scene, spot, image)
    if scene.n_steps * MIN_ARROWED_PX <= scene.window.width:
        draw_arrows(painter, scene.source, scene.window, scene.places, scene.theme)
    _join(painter, scene, [(selected[0], each) for each in linked], scene.theme.text)
    _join(painter, scene, list(pairwise(path)), scene.theme.accent)
    _outline(painter, scene, linked, scene.theme.accent, 1)
    _outline(painter, scene, selected, scene.theme.text, 2)
    hovered = scene.spots([state.hover])
    if hovered and state.hover != state.selection:
        _outline(
            painter, scene, scene.spots(scene.source.links(state.hover)), scene.theme.accent, 1
        )
        _outline(painter, scene, hovered, scene.theme.accent, 2)
    _draw_ranges(painter, scene)
    _draw_watermark(painter, scene)
    _explain(painter, scene, hovered)
    if not scene.source.rows:
        painter.setFont(label_font(13))
        painter.setPen(QColor(scene.theme.faint))
        box = QRectF(0, 0, scene.window.width, scene.window.height)
        painter.drawText(box, Qt.AlignmentFlag.AlignCenter, NOTHING_YET)


def _explain(painter: QPainter, scene: Scene, hovered: Sequence[Spot]) -> None:
    """Say beside the pointer what is under it."""
    if scene.pointer is None:
        return
    said = _span_lines(hovered[0], scene) if hovered else _ghost_lines(scene, scene.pointer)
    if said:
        at = scene.pointer + QPointF(14, 18)
        draw_box(painter, at, [Line(each) for each in said], scene.theme, scene.window)


def _dim(painter: QPainter, scene: Scene) -> None:
    veil = QColor(scene.theme.background)
    veil.setAlpha(DIM_ALPHA)
    painter.fillRect(QRectF(0, 0, scene.window.width, scene.window.height), veil)


def _light(painter: QPainter, scene: Scene, spot: Spot, image: QImage) -> None:
    """Show a span as it was before the picture was dimmed."""
    rect = scene.rect(spot)
    if rect is not None:
        dpr = scene.window.dpr
        part = QRectF(rect.x() * dpr, rect.y() * dpr, rect.width() * dpr, rect.height() * dpr)
        painter.drawImage(rect, image, part)


def _outline(
    painter: QPainter, scene: Scene, spots: Sequence[Spot], colour: str, width: int
) -> None:
    pen = QPen(QColor(colour), width)
    pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for rect in filter(None, map(scene.rect, spots)):
        painter.drawRect(rect)


def _join(painter: QPainter, scene: Scene, pairs: Sequence[tuple[Spot, Spot]], colour: str) -> None:
    """Draw a bold arrow between the spans of each pair."""
    for pair in pairs:
        source, from_ns, target, to_ns = arrow_ends(*pair)
        begin, end = scene.rect(source), scene.rect(target)
        if begin is not None and end is not None:
            x0, x1 = scene.window.x(from_ns), scene.window.x(to_ns)
            draw_arrow(painter, begin, x0, end, x1, colour)


def arrow_ends(one: Spot, other: Spot) -> tuple[Spot, int, Spot, int]:
    """Return from which span and time to which span and time an arrow goes.

    From what a sync waits for to the sync, at the end of what it waits for; otherwise from the
    earlier span to the begin of the later one.
    """
    source, target = sorted((one, other), key=lambda spot: (spot.category in SYNCS, spot.begin_ns))
    if target.category in SYNCS and source.category not in SYNCS:
        return source, source.end_ns, target, _within(source.end_ns, target)
    return source, _within(target.begin_ns, source), target, target.begin_ns


def _within(t: int, spot: Spot) -> int:
    """Return the moment of a span that is nearest to a time."""
    return min(max(t, spot.begin_ns), spot.end_ns)


def _name_steps(painter: QPainter, scene: Scene) -> None:
    """Write what each step does where there is room."""
    row = next((each for each in scene.places.values() if each.kind == "steps"), None)
    if row is None or row.collapsed:
        return
    window, labels = scene.window, scene.step_labels
    painter.setFont(labels.font)
    painter.setPen(QColor(scene.theme.text))
    metrics = painter.fontMetrics()
    base = row.middle + (metrics.ascent() - metrics.descent()) / 2
    ends = [*(step.begin_ns for step in scene.steps), window.t1][1:]
    for step, end in zip(scene.steps, ends, strict=True):
        left, right = max(window.x(step.begin_ns), 0) + STEP_TEXT_PX, window.x(end)
        number = f"{step.number:,}"
        after = left + len(number) * metrics.averageCharWidth()
        if after <= right:
            painter.drawText(QPointF(left, base), number)
            left = after + 2 * STEP_TEXT_PX
            labels.draw(painter, left, row.middle, right - left, step.pattern)


def _draw_ghosts(painter: QPainter, scene: Scene) -> None:
    """Outline what a pass removed."""
    pen = QPen(scene.theme.colour(CATEGORIES.index("sync_redundant")), 1, Qt.PenStyle.DashLine)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for _, rect in _ghosts(scene):
        painter.drawRect(rect)


def _ghosts(scene: Scene) -> Iterator[tuple[Ghost, QRectF]]:
    """Yield what was removed and where it is outlined."""
    window = scene.window
    for ghost in scene.source.ghosts(window.t0, window.t1):
        place = scene.places.get(ghost.row)
        if place is not None and not place.collapsed:
            left, right = window.x(ghost.begin_ns), window.x(ghost.end_ns)
            width = max(right - left, GHOST_PX)
            top, height = place.lane_y(0) + 2.5, place.lane_height - 5
            yield ghost, QRectF(left + 0.5, top, width - 1, height)


def _ghost_lines(scene: Scene, at: QPointF) -> list[str]:
    """Say what was removed at a point; nothing if nothing was."""
    sites = [ghost.site for ghost, rect in _ghosts(scene) if rect.contains(at)]
    return [sites[0], "removed by a pass"] if sites else []


def _draw_ranges(painter: QPainter, scene: Scene) -> None:
    """Draw what is marked and what is measured."""
    for mark in scene.state.marks:
        _shade(painter, scene, mark, scene.theme.faint)
    measured = scene.state.measured
    if measured is None:
        return
    _shade(painter, scene, measured, scene.theme.accent)
    if scene.statistics is not None:
        lines = [
            Line(text, scene.theme.categories[category] if category >= 0 else "")
            for category, text in statistics_lines(scene.statistics, scene.origin)
        ]
        left = max(scene.window.x(measured[0]), 0) + 8
        draw_box(painter, QPointF(left, scene.layout.bottom + 8), lines, scene.theme, scene.window)


def _shade(painter: QPainter, scene: Scene, times: Range, colour: str) -> None:
    """Tint a range and draw its edges."""
    left, right = (scene.window.x(t) for t in times)
    if right < 0 or left > scene.window.width:
        return
    tint = QColor(colour)
    tint.setAlpha(28)
    painter.fillRect(QRectF(left, 0, right - left, scene.window.height), tint)
    for x in (left, right):
        _upright(painter, x, scene, QColor(colour))


def _draw_watermark(painter: QPainter, scene: Scene) -> None:
    """Write the watermark where it hides least, on every picture that is made of the drawing."""
    colour = QColor(scene.theme.hazard)
    colour.setAlpha(150)
    painter.setPen(colour)
    painter.setFont(label_font(WATERMARK_PX, bold=True))
    box = QRectF(0, 0, scene.window.width - WATERMARK_PX, scene.window.height - WATERMARK_PX / 2)
    corner = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom
    painter.drawText(box, corner, scene.state.watermark)


def _upright(painter: QPainter, x: float, scene: Scene, colour: QColor) -> None:
    """Draw a line from top to bottom that is sharp on any screen."""
    dpr = scene.window.dpr
    painter.fillRect(QRectF(int(x * dpr) / dpr, 0, 1, scene.window.height), colour)


def _span_lines(spot: Spot, scene: Scene) -> list[str]:
    """Say what a span is, in two or three lines."""
    length = duration_text(spot.end_ns - spot.begin_ns)
    lines = [scene.source.names[spot.name], f"{length} {scene.origin}".strip()]
    lines.append(TITLES[CATEGORIES[spot.category]])
    if spot.flags & SPAN_BOUNDED:
        lines.append("ran somewhere between these times")
    elif spot.flags & SPAN_LOWER_BOUND:
        lines.append("may have ended a little later")
    return lines
