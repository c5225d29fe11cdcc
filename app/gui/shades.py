"""Pixels of the categories on one background: full, at an edge, fading, hatched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.theme import Theme, opaque, rgb

FADE_STEPS = 10

Pixels = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Shades:
    """Opaque pixels, 0xffRRGGBB, by category; `palette` are the colours themselves, shape (12, 3).

    `fade` has shape (FADE_STEPS, categories), the faintest first.
    """

    background: int
    grid: int
    border: int
    palette: npt.NDArray[np.uint8]
    solid: Pixels
    edge: Pixels
    soft: Pixels
    hatch: Pixels
    fade: Pixels


@lru_cache(maxsize=16)
def shades(theme: Theme, background: str) -> Shades:
    """Mix the colours of a theme with a background of it."""
    under = np.array(rgb(background), float)
    colours = theme.palette.astype(float)
    line = np.array([rgb(theme.line)], float)
    steps = [(k + 1) / (FADE_STEPS + 1) for k in range(FADE_STEPS)]
    return Shades(
        background=opaque(background),
        grid=int(_mixed(line, under, 0.3)[0]),
        border=int(_mixed(np.array([rgb(theme.faint)], float), under, 0.6)[0]),
        palette=theme.palette,
        solid=_mixed(colours, under, 1.0),
        edge=_mixed(colours, under, 0.55),
        soft=_mixed(colours, under, 0.35),
        hatch=_mixed(colours, under, 0.65),
        fade=np.stack([_mixed(colours, under, each) for each in steps]),
    )


def _mixed(colours: npt.NDArray[np.float64], under: npt.NDArray[np.float64], part: float) -> Pixels:
    """Return colours over a background as pixels; `part` 1 is the colour alone."""
    red, green, blue = np.rint(colours * part + under * (1 - part)).astype(np.uint32).T
    pixels: Pixels = (0xFF << 24) | (red << 16) | (green << 8) | blue
    return pixels
