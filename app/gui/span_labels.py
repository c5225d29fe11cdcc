"""Names and verdict glyphs in spans, shortened to the width that a span has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QStaticText, Qt

from syncscope.app.gui.glyphs import GLYPH_PX, glyph
from syncscope.app.gui.theme import CATEGORIES, GLYPHS, Theme, ink
from syncscope.app.gui.wide_spans import WideSpans

GLYPH_SPAN_PX = 14
LABEL_SPAN_PX = 30
"""From these widths on a span has the glyph of its verdict, and its name."""

LEAST_CHARACTERS = 3
"""A name of which less can be shown is left out."""

MAX_TEXTS = 8192
"""Shortened texts that are kept; then all are forgotten and made again."""

MARGIN_PX = 4
LANE_PX = 12
"""The least height of a lane with names."""

_DOTS = "…"
_GLYPH_OF = {CATEGORIES.index(category): name for category, name in GLYPHS.items()}


class SpanLabels:
    """Writes into spans, with laid out texts that are kept from frame to frame."""

    def __init__(self, font: QFont) -> None:
        self.font = font
        self._metrics = QFontMetricsF(font)
        self._height = self._metrics.height()
        self._dots = self._metrics.horizontalAdvance(_DOTS)
        self._forms: dict[str, list[tuple[list[float], str]]] = {}
        self._texts: dict[tuple[str, int], QStaticText | None] = {}

    def write(
        self, painter: QPainter, spans: WideSpans, names: Sequence[str], theme: Theme, dpr: float
    ) -> None:
        """Write names and glyphs into the wide spans of a lane."""
        if spans.place.lane_height < LANE_PX:
            return
        middle = spans.place.lane_y(spans.lane) + spans.place.lane_height / 2
        inks = [ink(each) for each in theme.categories]
        columns = (spans.left / dpr, spans.right / dpr, spans.category, spans.name, spans.bounded)
        pen = ""
        for left, right, category, name, bounded in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            if right - left < GLYPH_SPAN_PX:
                continue
            colour = theme.text if bounded else inks[category]
            x = left + MARGIN_PX
            if category in _GLYPH_OF:
                wide = right - left >= LABEL_SPAN_PX
                at = x if wide else (left + right - GLYPH_PX) / 2
                image = glyph(_GLYPH_OF[category], colour, dpr)
                painter.drawImage(QPointF(at, middle - GLYPH_PX / 2), image)
                x += GLYPH_PX + MARGIN_PX
            if right - left >= LABEL_SPAN_PX:
                if colour != pen:
                    painter.setPen(QColor(colour))
                    pen = colour
                self.draw(painter, x, middle, right - x - MARGIN_PX, names[name])

    def shortened(self, name: str, width: float) -> str:
        """Return the part of a dotted name that fits and says most; empty if none says anything.

        Leading parts go first, since they are those of all neighbours, but two are kept; then the
        end goes, for dots.
        """
        forms = self._forms.get(name)
        if forms is None:
            forms = self._forms[name] = self._measured(name)
        for reach, text in forms:
            if reach[-1] <= width:
                return text
        reach, text = forms[-1]
        n = bisect_right(reach, width - self._dots)
        return text[:n].rstrip("._") + _DOTS if n >= LEAST_CHARACTERS else ""

    def _measured(self, name: str) -> list[tuple[list[float], str]]:
        """Return the forms of a name, the longest first, and how far each character reaches."""
        parts = (name or " ").split(".")
        texts = [".".join(parts[k:]) for k in range(max(len(parts) - 1, 1))]
        advance = self._metrics.horizontalAdvance
        return [([advance(each[: k + 1]) for k in range(len(each))], each) for each in texts]

    def draw(self, painter: QPainter, x: float, middle: float, width: float, name: str) -> None:
        """Write a name from `x` on, as much as fits; the painter has the font."""
        room = (name, int(width))
        if room not in self._texts:
            if len(self._texts) >= MAX_TEXTS:
                self._texts.clear()
            self._texts[room] = self._laid_out(self.shortened(*room))
        text = self._texts[room]
        if text is not None:
            painter.drawStaticText(QPointF(x, middle - self._height / 2), text)

    def _laid_out(self, shown: str) -> QStaticText | None:
        """Return a text that is quick to draw; None for none."""
        if not shown:
            return None
        text = QStaticText(shown)
        text.setTextFormat(Qt.TextFormat.PlainText)
        text.setPerformanceHint(QStaticText.PerformanceHint.AggressiveCaching)
        text.prepare(font=self.font)
        return text
