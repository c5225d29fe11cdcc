"""Colours can be told apart by everybody, text can be read, every verdict has its own shape."""

from itertools import combinations

import numpy as np
import pytest
from PySide6.QtGui import QImage, QPalette
from PySide6.QtWidgets import QApplication, QCheckBox, QStyle, QStyleOptionButton

from syncscope.app.gui.glyphs import glyph
from syncscope.app.gui.lane_store import N_CATEGORIES
from syncscope.app.gui.theme import (
    CATEGORIES,
    DARK,
    GLYPHS,
    LIGHT,
    PRIORITY_MASK,
    THEMES,
    TITLES,
    apply_theme,
    contrast,
    ink,
    opaque,
    qt_palette,
)

# Machado, Oliveira and Fernandes 2009: what is seen with one kind of cone missing, linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "no red cones": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green cones": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue cones": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
ROWS = {
    "host": ("host_api", "host_work", "graph"),
    "stream": ("kernel", "h2d", "d2h", "d2d", "graph"),
    "sync": tuple(each for each in CATEGORIES if each.startswith("sync")),
}
"""Categories that meet on one row."""


def lab(palette, sight) -> dict[str, np.ndarray]:
    """CIELAB (D65) of each category as somebody sees it."""
    value = palette / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    xyz = np.clip(linear @ SIGHTS[sight].T, 0, 1) @ TO_XYZ.T / [0.95047, 1, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = f.T
    return dict(
        zip(CATEGORIES, np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1), strict=True)
    )


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_categories_can_be_told_apart(theme, sight):
    seen = lab(theme.palette, sight)
    apart = {
        pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]]))
        for pair in combinations(CATEGORIES, 2)
    }
    assert min(apart.values()) >= 14
    for row in ROWS.values():
        assert min(apart[pair] for pair in combinations(row, 2)) >= 18
    assert apart["sync_required", "sync_redundant"] >= 40


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_categories_stand_out_from_the_background(theme):
    for colour in theme.categories:
        for behind in (theme.background, theme.stripe):
            assert contrast(colour, behind) >= 2.3


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_text_can_be_read(theme):
    for behind in (theme.background, theme.stripe, theme.panel, theme.field):
        assert contrast(theme.text, behind) >= 7
        assert contrast(theme.faint, behind) >= 4.5
        assert contrast(theme.accent, behind) >= 4.5
        assert contrast(theme.hazard, behind) >= 4.5
    for fill in theme.categories:
        assert contrast(ink(fill), fill) >= 4.5


def test_contrast_is_that_of_wcag():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_every_category_has_a_colour_and_a_title():
    assert N_CATEGORIES == len(CATEGORIES) == len(TITLES) == len(set(TITLES.values()))
    for theme in THEMES.values():
        assert theme.palette.shape == (N_CATEGORIES, 3)
        assert len(set(theme.categories)) == N_CATEGORIES


def test_only_what_could_go_has_priority():
    assert 1 << CATEGORIES.index("sync_redundant") == PRIORITY_MASK


def coverage(image: QImage) -> np.ndarray:
    data = np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), image.width())
    return (data >> 24) / 255


def test_verdicts_have_shapes_that_differ(qapp):
    assert set(GLYPHS) == {each for each in CATEGORIES if each.startswith("sync")}
    shapes = [coverage(glyph(each, "#000000")) for each in GLYPHS.values()]
    for shape in shapes:
        assert 8 < shape.sum() < 60
    for one, other in combinations(shapes, 2):
        assert np.abs(one - other).sum() > 12


def test_glyphs_are_sharp_on_fine_screens(qapp):
    fine = glyph("cross", "#123456", 2.0)
    assert (fine.width(), fine.height(), fine.devicePixelRatio()) == (20, 20, 2.0)
    assert fine.pixelColor(10, 10).name() == "#123456"


def test_the_palette_of_widgets_is_that_of_the_theme(qapp):
    for theme in (DARK, LIGHT):
        palette = qt_palette(theme)
        assert palette.color(QPalette.ColorRole.Window).name() == theme.panel
        assert palette.color(QPalette.ColorRole.Base).name() == theme.field
        disabled = palette.color(QPalette.ColorGroup.Disabled, QPalette.ColorRole.Text)
        assert disabled.name() == theme.faint


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_an_unchecked_box_has_a_frame_that_can_be_seen(qtbot, theme):
    app = QApplication.instance()
    apply_theme(app, theme)
    box = QCheckBox("option")
    qtbot.addWidget(box)
    box.resize(120, 24)
    image = box.grab().toImage()
    option = QStyleOptionButton()
    box.initStyleOption(option)
    rect = box.style().subElementRect(QStyle.SubElement.SE_CheckBoxIndicator, option, box)
    scale = image.devicePixelRatio()
    edge = image.pixelColor(int((rect.left() + 0.5) * scale), int(rect.center().y() * scale))
    assert contrast(edge.name(), theme.panel) >= 3
    app.setStyleSheet("")


def test_pixels_of_a_colour_are_opaque():
    assert opaque("#14181d") == 0xFF14181D
