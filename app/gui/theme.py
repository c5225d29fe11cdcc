"""Colours and fonts of the window, dark and light, and the glyph of each sync verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication

from syncscope.app.gui.categories import CATEGORIES as CATEGORIES

TITLES: Mapping[str, str] = {
    "kernel": "kernel",
    "h2d": "copy to device",
    "d2h": "copy to host",
    "d2d": "copy on device",
    "host_api": "host call",
    "host_work": "host work",
    "sync_required": "sync, required",
    "sync_reuse": "sync, required for reuse",
    "sync_redundant": "sync, redundant",
    "sync_other": "sync, interchangeable or demotable",
    "sync_unknown": "sync, verdict unknown",
    "graph": "graph",
}

GLYPHS: Mapping[str, str] = {
    "sync_required": "bar",
    "sync_reuse": "loop",
    "sync_redundant": "cross",
    "sync_other": "swap",
    "sync_unknown": "question",
}
"""Shape that says a verdict without its colour."""

PRIORITY_MASK = 1 << CATEGORIES.index("sync_redundant")
"""What must be seen among others: what could go."""


@dataclass(frozen=True, slots=True)
class Theme:
    """One set of colours, each ``#rrggbb``.

    `categories` go by `CATEGORIES`.  `background` is that of the timeline, `panel` of everything
    around it, `stripe` of every other row, `text` and `faint` are written on all three; `accent`
    marks what is selected or switched on, `hazard` what is wrong.
    """

    name: str
    background: str
    stripe: str
    panel: str
    field: str
    line: str
    text: str
    faint: str
    accent: str
    hazard: str
    categories: tuple[str, ...]

    @property
    def palette(self) -> npt.NDArray[np.uint8]:
        """Colours of the categories, shape (12, 3)."""
        return np.array([rgb(each) for each in self.categories], np.uint8)

    def colour(self, category: int) -> QColor:
        """Colour of a category."""
        return QColor(self.categories[category])


# Every pair of categories is at least 14 apart (CIE76) with normal, red-, green- and blue-blind
# sight (Machado 2009), those that meet on a row at least 18.
DARK = Theme(
    name="dark",
    background="#14181d",
    stripe="#181d23",
    panel="#1d2229",
    field="#12161a",
    line="#4a545f",
    text="#e4e8ec",
    faint="#9aa5b1",
    accent="#5aa9ff",
    hazard="#ff6b57",
    categories=(
        "#347fe4",
        "#f4b20c",
        "#ffde7a",
        "#96a653",
        "#677e91",
        "#b1a4fa",
        "#8ff1c5",
        "#1db28b",
        "#f3521c",
        "#b630c4",
        "#eeffaf",
        "#c299cc",
    ),
)
LIGHT = Theme(
    name="light",
    background="#fafafa",
    stripe="#f3f4f6",
    panel="#eceef1",
    field="#ffffff",
    line="#b3bbc4",
    text="#1b1f24",
    faint="#59636e",
    accent="#0a5fc4",
    hazard="#b3140b",
    categories=(
        "#4b83f1",
        "#bf804f",
        "#a6a000",
        "#2f2111",
        "#787b89",
        "#e275d1",
        "#233841",
        "#226c4a",
        "#bd1c13",
        "#5b26fd",
        "#6dab7e",
        "#6f3cab",
    ),
)
THEMES: Mapping[str, Theme] = {each.name: each for each in (DARK, LIGHT)}


def rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb``."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def opaque(colour: str) -> int:
    """Return ``#rrggbb`` as 0xffRRGGBB."""
    return 0xFF000000 | int(colour[1:], 16)


@lru_cache(maxsize=64)
def ink(fill: str) -> str:
    """Return black or white, whichever is easier to read on a fill."""
    return "#000000" if luminance(fill) > 0.179 else "#ffffff"


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.1)."""
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4
        for each in (value / 255 for value in rgb(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.1)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def qt_palette(theme: Theme) -> QPalette:
    """Return the palette that Fusion draws all widgets with."""
    role = QPalette.ColorRole
    colours = {
        role.Window: theme.panel,
        role.WindowText: theme.text,
        role.Base: theme.field,
        role.AlternateBase: theme.stripe,
        role.Text: theme.text,
        role.PlaceholderText: theme.faint,
        role.Button: theme.panel,
        role.ButtonText: theme.text,
        role.BrightText: theme.hazard,
        role.ToolTipBase: theme.field,
        role.ToolTipText: theme.text,
        role.Highlight: theme.accent,
        role.HighlightedText: ink(theme.accent),
        role.Link: theme.accent,
        role.LinkVisited: theme.accent,
        role.Accent: theme.accent,
        role.Light: theme.line,
        role.Midlight: theme.line,
        role.Mid: theme.line,
        role.Dark: theme.line,
        role.Shadow: theme.background,
    }
    palette = QPalette()
    for each, colour in colours.items():
        palette.setColor(each, QColor(colour))
    for each in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, each, QColor(theme.faint))
    return palette


# Fusion draws frames in a shade of the window that cannot be told from it on a dark one.
_STYLE = """
QCheckBox::indicator:unchecked, QRadioButton::indicator:unchecked, QGroupBox::indicator:unchecked,
QAbstractItemView::indicator:unchecked {{ border: 1px solid {faint}; background: {field}; }}
QRadioButton::indicator:unchecked {{ border-radius: 6px; }}
QCheckBox::indicator:unchecked, QGroupBox::indicator:unchecked {{ width: 11px; height: 11px; }}
QRadioButton::indicator:unchecked {{ width: 11px; height: 11px; }}
QToolTip {{ color: {text}; background: {field}; border: 1px solid {line}; padding: 3px; }}
"""


def apply_theme(app: QApplication, theme: Theme) -> None:
    """Draw the whole application in a theme."""
    app.setStyle("Fusion")
    app.setPalette(qt_palette(theme))
    app.setStyleSheet(
        _STYLE.format(faint=theme.faint, field=theme.field, text=theme.text, line=theme.line)
    )


def label_font(pixels: int = 11, bold: bool = False) -> QFont:
    """Return the font of labels in the timeline and of its row titles."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    font.setPixelSize(pixels)
    font.setBold(bold)
    return font


def pattern_font(pixels: int = 11) -> QFont:
    """Return the font in which pattern strings and numbers line up."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    font.setPixelSize(pixels)
    return font
