"""Spans wide enough to be drawn by themselves: what their ends and their fill say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.row_layout import Place
from syncscope.app.gui.shades import FADE_STEPS, Pixels, Shades
from syncscope.app.gui.theme import CATEGORIES

SPAN_BOUNDED = 1
SPAN_LOWER_BOUND = 2
"""Flags of a span, as in sched_core/backend.pxd."""

WIDE_PX = 8
"""From how many logical pixels on a span is wide."""

HATCH_PX = 6
BRACKET_PX = 2
ARM_PX = 5
_REDUNDANT = CATEGORIES.index("sync_redundant")

Indexes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WideSpans:
    """Wide spans of one lane.

    `left` and `right` are the first column and the one after the last, in device pixels, cut to
    the window; `begins` and `ends` say where nothing was cut.
    """

    place: Place
    lane: int
    left: Indexes
    right: Indexes
    begins: Mask
    ends: Mask
    category: npt.NDArray[np.uint8]
    name: npt.NDArray[np.uint32]
    flags: npt.NDArray[np.uint8]

    @property
    def bounded(self) -> Mask:
        """Which of them ran somewhere between their begin and their end."""
        bounded: Mask = (self.flags & SPAN_BOUNDED) != 0
        return bounded


def draw_ends(pixels: Pixels, spans: WideSpans, shades: Shades, dpr: float) -> None:
    """Draw what is known of the ends of spans that are painted already.

    A bounded span becomes a pale range between open brackets, a lower bound fades out at its end,
    a redundant sync is hatched; every begin that is known has an edge.

    Parameters
    ----------
    pixels : ndarray of uint32, shape (lane's height, width)
    spans : WideSpans
    shades : Shades
    dpr : float
        Device pixels per logical pixel.
    """
    redundant = spans.category == _REDUNDANT
    if redundant.any():
        _hatch(pixels, spans, redundant, shades, dpr)
    if spans.bounded.any():
        _bracket(pixels, spans, shades, dpr)
    lower = ((spans.flags & SPAN_LOWER_BOUND) != 0) & spans.ends & ~spans.bounded
    if lower.any():
        _fade(pixels, spans, lower, shades, dpr)
    edges = spans.begins & ~spans.bounded
    for k in range(max(round(dpr), 1)):
        pixels[:, spans.left[edges] + k] = shades.edge[spans.category[edges]]


def _columns(left: Indexes, right: Indexes) -> tuple[Indexes, Indexes]:
    """Return all columns of ranges, and of each which range it is from."""
    length = right - left
    owner = np.repeat(np.arange(len(left)), length)
    before = np.cumsum(length) - length
    return np.arange(len(owner)) - before[owner] + left[owner], owner


def _hatch(pixels: Pixels, spans: WideSpans, which: Mask, shades: Shades, dpr: float) -> None:
    """Draw stripes that move with their span."""
    period = HATCH_PX * dpr
    columns, owner = _columns(spans.left[which], spans.right[which])
    since = columns - spans.left[which][owner]
    striped = (since[None, :] + np.arange(len(pixels))[:, None]) % period < period / 3
    category = spans.category[which][owner]
    pixels[:, columns] = np.where(striped, shades.hatch[category], pixels[:, columns])


def _bracket(pixels: Pixels, spans: WideSpans, shades: Shades, dpr: float) -> None:
    """Draw pale ranges with a bracket at each end that is in the window."""
    thick, arm = max(round(BRACKET_PX * dpr), 1), round(ARM_PX * dpr)
    which = spans.bounded
    left, right, category = spans.left[which], spans.right[which], spans.category[which]
    columns, owner = _columns(left, right)
    pixels[:, columns] = shades.soft[category[owner]]
    solid = shades.solid[category]
    reach = np.minimum(arm, (right - left) // 2)
    for begin, at, arms in (
        (left, spans.begins[which], (left, left + reach)),
        (right - thick, spans.ends[which], (right - reach, right)),
    ):
        for k in range(thick):
            pixels[:, begin[at] + k] = solid[at]
        columns, owner = _columns(arms[0][at], arms[1][at])
        for edge in (slice(0, thick), slice(-thick, None)):
            pixels[edge, columns] = solid[at][owner]


def _fade(pixels: Pixels, spans: WideSpans, which: Mask, shades: Shades, dpr: float) -> None:
    """Let spans fade out over their last pixels, at most a third of them."""
    right, category = spans.right[which], spans.category[which]
    length = np.minimum(round(FADE_STEPS * dpr), (right - spans.left[which]) // 3)
    columns, owner = _columns(right - length, right)
    step = (right[owner] - 1 - columns) * FADE_STEPS // length[owner]
    pixels[:, columns] = shades.fade[step, category[owner]]
