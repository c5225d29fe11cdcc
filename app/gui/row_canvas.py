"""The picture of all rows for one window of time: one opaque image in device pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QRectF
from PySide6.QtGui import QImage, QPainter

from syncscope.app.gui.lane_store import LaneStore
from syncscope.app.gui.row_layout import Layout, Place
from syncscope.app.gui.row_source import Row
from syncscope.app.gui.shades import Pixels, Shades, shades
from syncscope.app.gui.span_labels import SpanLabels
from syncscope.app.gui.theme import PRIORITY_MASK, Theme, label_font
from syncscope.app.gui.time_window import TimeWindow
from syncscope.app.gui.wide_spans import WIDE_PX, WideSpans, draw_ends

Columns = npt.NDArray[np.int64]


class RowCanvas:
    """Keeps an image from frame to frame and fills it when asked to."""

    def __init__(self) -> None:
        self.image = QImage()
        self._pixels: Pixels = np.zeros((0, 0), np.uint32)
        self._line: Pixels = np.zeros(0, np.uint32)
        self._wide: Columns = np.zeros((0, 3), np.int64)
        self._labels = SpanLabels(label_font())

    def draw(
        self,
        rows: Sequence[Row],
        names: Sequence[str],
        layout: Layout,
        window: TimeWindow,
        theme: Theme,
        grid: Sequence[int] = (),
        borders: Sequence[int] = (),
    ) -> QImage:
        """Draw every row that is in view.

        Parameters
        ----------
        rows : sequence of Row
            What the places of the layout index.
        names : sequence of str
            What the name of a span indexes.
        layout : Layout
        window : TimeWindow
        theme : Theme
        grid : sequence of int
            Times of vertical lines behind the spans.
        borders : sequence of int
            Times of vertical lines over them.
        """
        self._fit(window)
        columns = _columns(grid, window)
        wide: list[WideSpans] = []
        for k, place in enumerate(layout.places):
            under = 0 if place.pinned else round(layout.pinned_px * window.dpr)
            top = max(round(place.y * window.dpr), under)
            bottom = round((place.y + place.height) * window.dpr)
            if top < min(bottom, window.height_px):
                shade = shades(theme, theme.stripe if k % 2 else theme.background)
                self._fill(top, bottom, shade, columns)
                wide += self._row(rows[place.row], place, window, shade, columns, under)
        end = max(round(layout.bottom * window.dpr), 0)
        self._fill(end, window.height_px, shades(theme, theme.background), columns)
        for k in range(max(round(window.dpr), 1)):
            lines = np.minimum(_columns(borders, window) + k, window.width_px - 1)
            self._pixels[:, lines] = shades(theme, theme.background).border
        self._write(wide, names, layout, window, theme)
        return self.image

    def _fit(self, window: TimeWindow) -> None:
        """Make the image as large as the window."""
        width, height = window.width_px, window.height_px
        if (self.image.width(), self.image.height()) != (width, height):
            self.image = QImage(width, height, QImage.Format.Format_RGB32)
            self._pixels = np.frombuffer(self.image.bits(), np.uint32).reshape(height, width)
            self._line = np.zeros(width, np.uint32)
            self._wide = np.zeros((width // WIDE_PX + 2, 3), np.int64)
        self.image.setDevicePixelRatio(window.dpr)

    def _fill(self, top: int, bottom: int, shade: Shades, grid: Columns) -> None:
        """Fill lines of pixels with a background and its grid."""
        self._pixels[top:bottom] = shade.background
        self._pixels[top:bottom, grid] = shade.grid

    def _row(
        self,
        row: Row,
        place: Place,
        window: TimeWindow,
        shade: Shades,
        grid: Columns,
        under: int,
    ) -> Iterator[WideSpans]:
        """Draw the lanes of a row below line `under`; yield what of them is wide."""
        gap = 0 if place.collapsed else 1
        for k, lane in enumerate(row.lanes[: place.n_lanes]):
            y = place.lane_y(k)
            top = round((y + gap) * window.dpr)
            bottom = round((y + place.lane_height - gap) * window.dpr)
            if max(top, under) >= min(bottom, window.height_px) or not len(lane):
                continue
            n_wide = lane.paint(
                window.t0,
                window.t1,
                window.width_px,
                shade.palette,
                PRIORITY_MASK,
                self._line,
                self._wide,
                round(WIDE_PX * window.dpr),
                shade.background,
            )
            at_grid = self._line[grid]
            self._line[grid] = np.where(at_grid == shade.background, shade.grid, at_grid)
            pixels = self._pixels[max(top, under) : bottom]
            pixels[:] = self._line
            if n_wide and not place.collapsed:
                wide = _wide_spans(lane, self._wide[:n_wide], place, k, window)
                draw_ends(pixels, wide, shade, window.dpr)
                yield wide

    def _write(
        self,
        wide: Sequence[WideSpans],
        names: Sequence[str],
        layout: Layout,
        window: TimeWindow,
        theme: Theme,
    ) -> None:
        """Write names and glyphs; those of scrolled rows end below the pinned ones."""
        below = QRectF(0, layout.pinned_px, window.width, window.height)
        painter = QPainter(self.image)
        try:
            painter.setFont(self._labels.font)
            for spans in sorted(wide, key=lambda each: not each.place.pinned):
                if not spans.place.pinned and layout.pinned_px:
                    painter.setClipRect(below)
                self._labels.write(painter, spans, names, theme, window.dpr)
        finally:
            painter.end()


def _columns(times: Sequence[int], window: TimeWindow) -> Columns:
    """Return the columns of times that are in the window."""
    columns = np.array([int(window.x(t) * window.dpr) for t in times], np.int64)
    return columns[(columns >= 0) & (columns < window.width_px)]


def _wide_spans(
    lane: LaneStore, found: Columns, place: Place, k: int, window: TimeWindow
) -> WideSpans:
    """Look up what the lane noted as wide."""
    index, left, right = found.T.copy()
    begin, end, category, name, flags, _ref = lane.take(index)
    begins, ends = begin >= window.t0, end <= window.t1
    return WideSpans(place, k, left, right, begins, ends, category, name, flags)
