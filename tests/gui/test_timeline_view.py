"""The timeline as a user drives it: what is drawn where, and what wheel, drag, click and key do."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QAccessible, QColor, QImage
from PySide6.QtTest import QTest

from helpers.timeline import (
    MadeGhost,
    MadeRecording,
    MadeRows,
    MadeStep,
    drag,
    move_mouse,
    turn_wheel,
)
from syncscope.app.gui.overlay import arrow_ends
from syncscope.app.gui.row_layout import Arrangement
from syncscope.app.gui.row_source import Spot
from syncscope.app.gui.theme import CATEGORIES, DARK, LIGHT, apply_theme
from syncscope.app.gui.timeline_keys import BINDINGS
from syncscope.app.gui.timeline_view import TimelineView
from syncscope.app.gui.view_state import NOTHING, ViewState
from syncscope.app.gui.wide_spans import SPAN_BOUNDED, SPAN_LOWER_BOUND

SPAN = 1_000_000
CTRL, SHIFT, ALT = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.AltModifier,
)


def made_rows() -> MadeRows:
    rows = MadeRows()
    for key, kind in (
        ("steps", "steps"),
        ("host", "host"),
        ("sync", "sync"),
        ("stream", "stream"),
        ("copies", "copy_engine"),
        ("kv", "buffer"),
    ):
        rows.row(key, kind, title=f"title of {key}")
    rows.call = rows.span("host", 100_000, 300_000, "host_api", "input.pos.copy")
    rows.redundant = rows.span("sync", 100_000, 200_000, "sync_redundant", "a")
    rows.required = rows.span("sync", 300_000, 400_000, "sync_required", "b")
    rows.reuse = rows.span("sync", 500_000, 600_000, "sync_reuse", "c")
    rows.other = rows.span("sync", 650_000, 750_000, "sync_other", "d")
    rows.unknown = rows.span("sync", 800_000, 900_000, "sync_unknown", "e")
    rows.kernel = rows.span("stream", 200_000, 500_000, "kernel", "layer.0.attn")
    rows.lower = rows.span("stream", 600_000, 900_000, "kernel", "layer.1", SPAN_LOWER_BOUND)
    rows.copy = rows.span("copies", 150_000, 450_000, "h2d", "input.pos.copy", SPAN_BOUNDED)
    rows.back = rows.span("copies", 500_000, 700_000, "d2h", "logits.copy")
    rows.span("kv", 200_000, 300_000, "d2h", "write")
    rows.joined = [(rows.call, rows.copy, rows.required)]
    return rows


@pytest.fixture
def rows():
    return made_rows()


@pytest.fixture
def view(qtbot, qapp, rows):
    apply_theme(qapp, DARK)
    state = ViewState()
    view = TimelineView(state)
    qtbot.addWidget(view)
    view.resize(1000 + view.headers.sizeHint().width(), 400)
    with qtbot.waitExposed(view):
        view.show()
    state.set_recording(MadeRecording(rows))
    state.set_range(0, SPAN)
    qapp.processEvents()
    return view


def x_of(view, t) -> int:
    return round(view.x_at(t))


def lane_top(view, key, lane=0) -> int:
    return view.row_layout.of(key).lane_y(lane)


def at(view, t, key, dy=12) -> QPoint:
    """Return the point of a time on a row, in the drawing area."""
    return QPoint(x_of(view, t), lane_top(view, key) + dy)


def picture(view) -> QImage:
    return view.grab().toImage()


def pixel(view, image, point: QPoint) -> tuple[int, int, int]:
    """Return the colour at a point of the drawing area, in a picture of the whole widget."""
    place = view.plot.viewport().mapTo(view, point)
    scale = image.devicePixelRatio()
    colour = image.pixelColor(int((place.x() + 0.5) * scale), int((place.y() + 0.5) * scale))
    return colour.red(), colour.green(), colour.blue()


def near(colour, wanted: str, tolerance: int = 10) -> bool:
    other = QColor(wanted)
    pairs = zip(colour, (other.red(), other.green(), other.blue()), strict=True)
    return all(abs(one - two) <= tolerance for one, two in pairs)


def colour_of(category: str, theme=DARK) -> str:
    return theme.categories[CATEGORIES.index(category)]


def ground(view, key, theme=DARK) -> str:
    """Return what is behind the spans of a row."""
    index = [each.key for each in view.row_layout.places].index(key)
    return theme.stripe if index % 2 else theme.background


def key(view, which, held=Qt.KeyboardModifier.NoModifier) -> None:
    QTest.keyClick(view.plot, which, held)


# what is drawn where


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_spans_have_the_colour_of_their_category(view, theme):
    view.state.set_theme(theme)
    image = picture(view)
    for t, row, category in (
        (250_000, "host", "host_api"),
        (350_000, "sync", "sync_required"),
        (550_000, "sync", "sync_reuse"),
        (700_000, "sync", "sync_other"),
        (850_000, "sync", "sync_unknown"),
        (450_000, "stream", "kernel"),
        (650_000, "copies", "d2h"),
    ):
        assert near(pixel(view, image, at(view, t, row, dy=3)), colour_of(category, theme))


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_gaps_show_the_background(view, theme):
    view.state.set_theme(theme)
    image = picture(view)
    for t, row in (
        (50_000, "host"),
        (320_000, "host"),
        (250_000, "sync"),
        (950_000, "sync"),
        (550_000, "stream"),
        (470_000, "copies"),
    ):
        assert near(pixel(view, image, at(view, t, row, dy=3)), ground(view, row, theme), 2)
    below = QPoint(x_of(view, 550_000), view.row_layout.content_px + 20)
    assert near(pixel(view, image, below), theme.background, 2)


def test_edges_are_where_they_belong_to_the_pixel(view):
    image = picture(view)
    y = lane_top(view, "stream") + 3
    kernel, empty = colour_of("kernel"), ground(view, "stream")
    first, last = x_of(view, 200_000), x_of(view, 500_000)
    for x, wanted in (
        (first - 2, empty),
        (first + 2, kernel),
        (last - 2, kernel),
        (last + 2, empty),
    ):
        assert near(pixel(view, image, QPoint(x, y)), wanted), x


def test_spans_fill_the_height_of_their_lane_and_no_more(view):
    image = picture(view)
    top, x = lane_top(view, "stream"), x_of(view, 450_000)
    height = view.row_layout.of("stream").lane_height
    kernel, empty = colour_of("kernel"), ground(view, "stream")
    for y, wanted in ((top - 1, empty), (top + 2, kernel), (top + height - 3, kernel)):
        assert near(pixel(view, image, QPoint(x, y)), wanted), y
    assert near(pixel(view, image, QPoint(x, top + height)), empty)


def colours_inside(view, image, t0, t1, row) -> list[tuple[int, int, int]]:
    y = lane_top(view, row)
    height = view.row_layout.of(row).lane_height
    return [
        pixel(view, image, QPoint(x, y + dy))
        for x in range(x_of(view, t0) + 4, x_of(view, t1) - 4)
        for dy in range(3, height - 3)
    ]


def test_a_redundant_sync_is_hatched_and_a_required_one_is_solid(view):
    image = picture(view)
    shares = {}
    for t, name in ((100_000, "sync_redundant"), (300_000, "sync_required")):
        inside = colours_inside(view, image, t + 50_000, t + 100_000, "sync")
        shares[name] = sum(near(each, colour_of(name)) for each in inside) / len(inside)
    assert 0.5 < shares["sync_redundant"] < 0.8
    assert shares["sync_required"] == 1


def test_verdicts_have_glyphs_in_ink(view):
    image = picture(view)
    seen = set()
    for t, category in (
        (100_000, "sync_redundant"),
        (300_000, "sync_required"),
        (500_000, "sync_reuse"),
        (650_000, "sync_other"),
        (800_000, "sync_unknown"),
    ):
        left, middle = x_of(view, t) + 4, lane_top(view, "sync") + 11
        dark = frozenset(
            (dx, dy)
            for dx in range(10)
            for dy in range(-5, 5)
            if max(pixel(view, image, QPoint(left + dx, middle + dy))) < 40
            or min(pixel(view, image, QPoint(left + dx, middle + dy))) > 215
        )
        assert 8 < len(dark) < 70, category
        seen.add(dark)
    assert len(seen) == 5


def test_a_bounded_copy_is_pale_between_open_brackets(view):
    image = picture(view)
    left, right = x_of(view, 150_000), x_of(view, 450_000)
    top = lane_top(view, "copies")
    solid, empty = colour_of("h2d"), ground(view, "copies")
    for x in (left + 1, right - 2):
        assert near(pixel(view, image, QPoint(x, top + 12)), solid)
    for x in (left + 4, right - 5):
        assert near(pixel(view, image, QPoint(x, top + 1)), solid)
    for dy in (1, 4, 12, 22):
        inside = pixel(view, image, QPoint(x_of(view, 400_000), top + dy))
        assert not near(inside, solid, 40) and not near(inside, empty, 20)


def test_a_lower_bound_fades_out_at_its_end(view):
    image = picture(view)
    y, end = lane_top(view, "stream") + 3, x_of(view, 900_000)
    blue = [pixel(view, image, QPoint(end - k, y))[2] for k in (12, 8, 5, 2)]
    assert near(pixel(view, image, QPoint(end - 14, y)), colour_of("kernel"))
    assert blue == sorted(blue, reverse=True) and blue[0] - blue[-1] > 80
    sure = pixel(view, image, QPoint(x_of(view, 500_000) - 2, y))
    assert near(sure, colour_of("kernel"))


def test_ghosts_are_outlines(view, rows):
    rows.ghost_list = [MadeGhost(2, 420_000, 480_000, "x")]
    view.state.grow()
    image = picture(view)
    left, right = x_of(view, 420_000), x_of(view, 480_000)
    top = lane_top(view, "sync")
    edge = [pixel(view, image, QPoint(x, top + 2)) for x in range(left, right)]
    dashed = sum(near(each, colour_of("sync_redundant"), 30) for each in edge)
    assert len(edge) / 3 < dashed < len(edge)
    inside = [pixel(view, image, QPoint(x, top + 10)) for x in range(left + 3, right - 3)]
    assert all(near(each, ground(view, "sync"), 2) for each in inside)


def test_steps_have_borders_and_their_pattern(view, rows):
    plain = picture(view)
    rows.step_list = [MadeStep(7, 0, "saaasg"), MadeStep(8, 570_000, "aaag")]
    view.state.grow()
    image = picture(view)
    x = x_of(view, 570_000)
    for y in (lane_top(view, "host"), view.row_layout.content_px + 10):
        assert not near(pixel(view, image, QPoint(x, y)), DARK.background, 30)
        assert near(pixel(view, plain, QPoint(x, y)), DARK.background, 10)
    inked = [
        max(pixel(view, image, QPoint(left, y))) > 150
        for left in range(x + 5, x + 60)
        for y in range(lane_top(view, "steps"), lane_top(view, "steps") + 20)
    ]
    assert sum(inked) > 40


def test_arrows_go_from_row_to_row(view, rows):
    plain = picture(view)
    rows.arrow_list = [(320_000, 560_000, 1, 3)]
    view.state.grow()
    image = picture(view)
    host, stream = view.row_layout.of("host"), view.row_layout.of("stream")
    middle = QPoint(x_of(view, 440_000), (host.y + host.height + stream.y) // 2)
    changed = [
        pixel(view, image, middle + QPoint(0, dy)) != pixel(view, plain, middle + QPoint(0, dy))
        for dy in range(-3, 4)
    ]
    assert any(changed)


def test_a_narrow_redundant_sync_among_others_is_seen(view, rows):
    for k in range(200):
        begin = 1_000_000 + 500 * k
        name = "sync_redundant" if k == 100 else "sync_required"
        rows.span("sync", begin, begin + 400, name, "s")
    view.state.set_range(1_000_000, 11_000_000)
    image = picture(view)
    x, y = x_of(view, 1_050_000), lane_top(view, "sync") + 8
    place, scale = view.plot.viewport().mapTo(view, QPoint(x, y)), image.devicePixelRatio()
    columns = [int(place.x() * scale) + k for k in range(-2, 4)]
    found = [image.pixelColor(column, int(place.y() * scale)) for column in columns]
    assert any(each.red() > each.green() for each in found)


# moving


def shown(view):
    return view.state.range


def test_ctrl_wheel_zooms_about_the_pointer(view):
    viewport = view.plot.viewport()
    point = at(view, 350_000, "stream")
    before = view.time_at(point.x())
    turn_wheel(viewport, point, 120, held=CTRL)
    t0, t1 = shown(view)
    assert t1 - t0 == pytest.approx(0.8 * SPAN, rel=0.001)
    assert abs(view.time_at(point.x()) - before) <= 2
    turn_wheel(viewport, point, -120, held=CTRL)
    assert shown(view) == pytest.approx((0, SPAN), abs=3)


def test_plain_wheel_scrolls_rows_and_leaves_time(view):
    view.resize(view.width(), 130)
    before = [each.y for each in view.row_layout.places]
    turn_wheel(view.plot.viewport(), QPoint(300, 50), -120)
    after = [each.y for each in view.row_layout.places]
    assert all(b - a == before[0] - after[0] > 0 for b, a in zip(before, after, strict=True))
    assert shown(view) == (0, SPAN)
    for _ in range(30):
        turn_wheel(view.plot.viewport(), QPoint(300, 50), -120)
    last = view.row_layout.places[-1]
    assert last.y + last.height == view.plot.height()
    for _ in range(30):
        turn_wheel(view.plot.viewport(), QPoint(300, 50), 120)
    assert [each.y for each in view.row_layout.places] == before


def test_plain_wheel_zooms_if_it_is_set_to(view):
    view.plot.wheel_zooms = True
    turn_wheel(view.plot.viewport(), QPoint(500, 50), 120)
    assert shown(view)[1] - shown(view)[0] == pytest.approx(0.8 * SPAN, rel=0.001)


@pytest.mark.parametrize(
    "turn",
    [{"dy": -120, "held": SHIFT}, {"dx": -120}],
    ids=["shift", "sideways"],
)
def test_shift_wheel_and_wheel_sideways_pan(view, turn):
    turn_wheel(view.plot.viewport(), QPoint(300, 50), **turn)
    assert shown(view) == (100_000, 1_100_000)


@pytest.mark.parametrize(
    ("button", "held"),
    [
        (Qt.MouseButton.MiddleButton, Qt.KeyboardModifier.NoModifier),
        (Qt.MouseButton.LeftButton, SHIFT),
    ],
    ids=["middle", "shift"],
)
def test_dragging_pans(view, button, held):
    drag(view.plot.viewport(), QPoint(300, 50), QPoint(500, 50), button, held)
    assert shown(view) == pytest.approx((-200_000, 800_000), abs=2000)
    assert view.state.measured is None


@pytest.mark.parametrize("held", [CTRL, ALT], ids=["ctrl", "alt"])
def test_dragging_with_ctrl_or_alt_zooms_to_the_range(view, held):
    drag(view.plot.viewport(), QPoint(300, 50), QPoint(500, 50), held=held)
    assert shown(view) == pytest.approx((300_000, 500_000), abs=2000)
    assert view.state.measured is None


def test_keys_zoom_and_pan(view):
    for which, wanted in (
        (Qt.Key.Key_D, (100_000, 1_100_000)),
        (Qt.Key.Key_A, (0, 1_000_000)),
        (Qt.Key.Key_Right, (100_000, 1_100_000)),
        (Qt.Key.Key_Left, (0, 1_000_000)),
        (Qt.Key.Key_W, (100_000, 900_000)),
        (Qt.Key.Key_S, (0, 1_000_000)),
        (Qt.Key.Key_Plus, (100_000, 900_000)),
        (Qt.Key.Key_Minus, (0, 1_000_000)),
    ):
        key(view, which)
        assert shown(view) == pytest.approx(wanted, abs=3), which


def test_zoom_keys_zoom_about_the_pointer(view):
    move_mouse(view.plot.viewport(), QPoint(250, 50))
    key(view, Qt.Key.Key_W)
    assert shown(view) == pytest.approx((50_000, 850_000), abs=500)


def test_backspace_takes_a_zoom_back(view):
    for _ in range(3):
        key(view, Qt.Key.Key_W)
    key(view, Qt.Key.Key_Backspace)
    assert shown(view) == (0, SPAN)
    key(view, Qt.Key.Key_Right, ALT)
    assert shown(view)[1] - shown(view)[0] == pytest.approx(0.512 * SPAN, rel=0.01)
    key(view, Qt.Key.Key_Left, ALT)
    assert shown(view) == (0, SPAN)


@pytest.mark.parametrize("which", [Qt.Key.Key_0, Qt.Key.Key_Home])
def test_the_whole_recording_is_shown(view, which):
    view.state.set_range(5_000, 5_500)
    key(view, which)
    assert shown(view) == (100_000, 900_000)


def test_zooming_stops_at_what_can_be_seen(view):
    for _ in range(80):
        key(view, Qt.Key.Key_W)
    assert shown(view)[1] - shown(view)[0] == 20
    for _ in range(160):
        key(view, Qt.Key.Key_S)
    assert shown(view)[1] - shown(view)[0] == 4 * 800_000
    for _ in range(200):
        key(view, Qt.Key.Key_D)
    t0, t1 = shown(view)
    assert t0 < 900_000 < t1


def test_page_keys_scroll_rows(view):
    view.resize(view.width(), 130)
    key(view, Qt.Key.Key_PageDown)
    assert view.row_layout.places[0].y < 0
    key(view, Qt.Key.Key_PageUp)
    assert view.row_layout.places[0].y == 0


# following


@pytest.mark.parametrize("which", [Qt.Key.Key_Space, Qt.Key.Key_End])
def test_following_keeps_the_newest_span_in_view(view, rows, which):
    view.state.set_range(0, 200_000)
    key(view, which)
    for k in range(3):
        end = 2_000_000 * (k + 1)
        rows.span("host", end - 1000, end, "host_api", "n")
        view.state.grow()
        t0, t1 = shown(view)
        assert t0 < end < t1 and t1 - t0 == 200_000


@pytest.mark.parametrize(
    "by_hand",
    [
        lambda view: key(view, Qt.Key.Key_A),
        lambda view: turn_wheel(view.plot.viewport(), QPoint(300, 50), 120, held=CTRL),
        lambda view: drag(view.plot.viewport(), QPoint(300, 50), QPoint(400, 50), held=SHIFT),
    ],
    ids=["key", "wheel", "drag"],
)
def test_moving_by_hand_leaves_follow_mode(view, rows, by_hand):
    view.state.set_follow(True)
    by_hand(view)
    assert not view.state.follow
    before = shown(view)
    rows.span("host", 5_000_000, 5_000_100, "host_api", "n")
    view.state.grow()
    assert shown(view) == before


def test_new_spans_are_drawn(view, rows):
    view.state.set_range(0, 2 * SPAN)
    picture(view)
    rows.span("stream", 1_200_000, 1_600_000, "kernel", "new")
    view.state.grow()
    image = picture(view)
    assert near(pixel(view, image, at(view, 1_500_000, "stream", 3)), colour_of("kernel"))


def test_a_hidden_timeline_waits_and_catches_up(view, rows, qapp):
    view.state.set_follow(True)
    before = shown(view)
    view.hide()
    rows.span("host", 5_000_000, 5_000_100, "host_api", "n")
    view.state.grow()
    assert shown(view) == before
    view.show()
    assert shown(view)[0] < 5_000_100 < shown(view)[1]


def test_the_follow_button_says_and_sets_the_mode(view, qtbot):
    button = view.findChild(object, "follow")
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert view.state.follow and button.isChecked()
    key(view, Qt.Key.Key_W)
    assert not button.isChecked()


# selecting


def click(view, point, held=Qt.KeyboardModifier.NoModifier):
    QTest.mouseClick(view.plot.viewport(), Qt.MouseButton.LeftButton, held, point)


def test_a_click_selects_the_span_under_it(view, rows):
    for t, row, ref in (
        (350_000, "stream", rows.kernel),
        (850_000, "sync", rows.unknown),
        (650_000, "copies", rows.back),
    ):
        click(view, at(view, t, row))
        assert view.state.selection == ref


def test_a_click_on_empty_ground_clears(view, rows):
    click(view, at(view, 350_000, "stream"))
    view.state.measure((5, 10))
    click(view, at(view, 550_000, "stream"))
    assert view.state.selection == NOTHING and view.state.measured is None


def test_a_click_beside_a_span_hits_it_within_two_pixels(view, rows):
    right = at(view, 500_000, "stream")
    click(view, right + QPoint(2, 0))
    assert view.state.selection == rows.kernel
    click(view, right + QPoint(6, 0))
    assert view.state.selection == NOTHING


def test_hovering_tells_what_is_under_the_pointer(view, rows):
    move_mouse(view.plot.viewport(), at(view, 350_000, "stream"))
    assert view.state.hover == rows.kernel
    move_mouse(view.plot.viewport(), at(view, 550_000, "stream"))
    assert view.state.hover == NOTHING


def ink_beside_pointer(view, point) -> bool:
    """Tell whether there is a box with text beside a point."""
    image = picture(view)
    spots = [QPoint(18 + dx, 24 + dy) for dx in range(40) for dy in range(14)]
    return any(near(pixel(view, image, point + each), DARK.text, 60) for each in spots)


def test_what_is_hovered_is_explained_beside_the_pointer(view, rows):
    point = at(view, 550_000, "stream")
    move_mouse(view.plot.viewport(), point)
    assert not ink_beside_pointer(view, point)
    point = at(view, 350_000, "stream")
    move_mouse(view.plot.viewport(), point)
    assert ink_beside_pointer(view, point)


def test_a_ghost_is_explained_beside_the_pointer(view, rows):
    point = at(view, 450_000, "sync")
    move_mouse(view.plot.viewport(), point)
    assert not ink_beside_pointer(view, point)
    rows.ghost_list = [MadeGhost(2, 420_000, 480_000, "input.pos.sync_after")]
    view.state.grow()
    assert ink_beside_pointer(view, point)


def test_selected_and_joined_spans_stay_bright_and_others_are_dimmed(view, rows):
    view.state.select(rows.call)
    image = picture(view)
    assert near(pixel(view, image, at(view, 200_000, "host", 4)), colour_of("host_api"))
    assert near(pixel(view, image, at(view, 350_000, "sync", 4)), colour_of("sync_required"))
    dimmed = pixel(view, image, at(view, 450_000, "stream", 4))
    assert max(dimmed) < max(QColor(colour_of("kernel")).getRgb()[:3]) * 0.7
    view.state.select(NOTHING)
    image = picture(view)
    assert near(pixel(view, image, at(view, 450_000, "stream", 4)), colour_of("kernel"))


def test_the_selection_has_an_outline(view, rows):
    view.state.select(rows.kernel)
    image = picture(view)
    left, top = x_of(view, 200_000), lane_top(view, "stream")
    column = [pixel(view, image, QPoint(left + dx, top + 12)) for dx in (-1, 0)]
    assert any(near(each, DARK.text, 30) for each in column)


def test_the_path_of_a_reason_is_lit_and_drawn(view, rows):
    plain = picture(view)
    view.state.set_path((rows.call, rows.kernel, rows.back))
    image = picture(view)
    for t, row, category in (
        (200_000, "host", "host_api"),
        (450_000, "stream", "kernel"),
        (650_000, "copies", "d2h"),
    ):
        assert near(pixel(view, image, at(view, t, row, 4)), colour_of(category))
    assert not near(pixel(view, image, at(view, 850_000, "sync", 4)), colour_of("sync_unknown"))
    accent = 0
    for x in range(x_of(view, 150_000), x_of(view, 550_000)):
        for y in range(lane_top(view, "host"), lane_top(view, "copies")):
            accent += near(pixel(view, image, QPoint(x, y)), DARK.accent, 25)
            accent -= near(pixel(view, plain, QPoint(x, y)), DARK.accent, 25)
    assert accent > 20


def test_keys_go_to_the_next_and_the_previous_span_of_the_row(view, rows):
    view.state.select(rows.redundant)
    key(view, Qt.Key.Key_Period)
    assert view.state.selection == rows.required
    key(view, Qt.Key.Key_Comma)
    key(view, Qt.Key.Key_Comma)
    assert view.state.selection == rows.redundant


def test_keys_follow_dependencies(view, rows):
    view.state.select(rows.call)
    for which, held, wanted in (
        (Qt.Key.Key_BracketRight, Qt.KeyboardModifier.NoModifier, rows.copy),
        (Qt.Key.Key_BracketRight, Qt.KeyboardModifier.NoModifier, rows.required),
        (Qt.Key.Key_BracketRight, Qt.KeyboardModifier.NoModifier, rows.required),
        (Qt.Key.Key_BracketLeft, Qt.KeyboardModifier.NoModifier, rows.copy),
        (Qt.Key.Key_BracketLeft, CTRL, rows.call),
        (Qt.Key.Key_BracketRight, CTRL, rows.required),
        (Qt.Key.Key_BracketLeft, CTRL, rows.call),
    ):
        key(view, which, held)
        assert view.state.selection == wanted


def test_a_selection_made_elsewhere_is_brought_into_view(view, rows):
    view.resize(view.width(), 110)
    view.state.set_range(0, 50_000)
    view.state.set_follow(True)
    view.state.set_range(0, 50_000)
    view.state.select(rows.back)
    t0, t1 = shown(view)
    assert t0 < 600_000 < t1 and t1 - t0 == 50_000
    place = view.row_layout.of("copies")
    assert place.y >= 0 and place.y + place.height <= view.plot.height()
    assert not view.state.follow


def test_f_centres_the_selection_and_then_fits_it(view, rows):
    view.state.select(rows.back)
    key(view, Qt.Key.Key_F)
    assert shown(view) == (100_000, 1_100_000)
    key(view, Qt.Key.Key_F)
    assert shown(view) == (480_000, 720_000)


def test_a_double_click_zooms_to_the_span(view, rows):
    point = at(view, 600_000, "copies")
    click(view, point)
    QTest.mouseDClick(
        view.plot.viewport(),
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
        point,
    )
    assert shown(view) == (480_000, 720_000)


def test_what_is_selected_is_told_to_screen_readers(view, rows):
    view.state.select(rows.kernel)
    reader = QAccessible.queryAccessibleInterface(view.plot)
    assert reader.text(QAccessible.Text.Name) == "Timeline"
    assert reader.text(QAccessible.Text.Description) == "layer.0.attn, kernel, 300 µs simulated"


def spot(category, begin, end) -> Spot:
    return Spot(0, 0, 0, begin, end, CATEGORIES.index(category), 0, 0, 0)


@pytest.mark.parametrize(
    ("one", "other", "times"),
    [
        (("host_api", 0, 10), ("kernel", 30, 40), (10, 30)),
        (("host_api", 0, 10), ("h2d", 5, 40), (5, 5)),
        (("h2d", 5, 40), ("sync_required", 10, 50), (40, 40)),
        (("h2d", 5, 40), ("sync_redundant", 45, 50), (40, 45)),
        (("sync_required", 10, 20), ("sync_required", 30, 40), (20, 30)),
    ],
    ids=["call, later execution", "call, at once", "waited for", "over before", "two syncs"],
)
def test_arrows_lead_to_executions_and_to_waits(one, other, times):
    first, second = spot(*one), spot(*other)
    assert arrow_ends(first, second) == (first, times[0], second, times[1])
    assert arrow_ends(second, first) == (first, times[0], second, times[1])


# measuring and marking


def test_a_drag_measures(view):
    drag(view.plot.viewport(), QPoint(300, 50), QPoint(700, 60))
    assert view.state.measured == pytest.approx((300_000, 700_000), abs=1500)
    assert shown(view) == (0, SPAN)


def test_a_drag_backwards_measures_the_same(view):
    drag(view.plot.viewport(), QPoint(700, 60), QPoint(300, 50))
    assert view.state.measured == pytest.approx((300_000, 700_000), abs=1500)


def test_edges_of_the_measured_range_can_be_dragged(view):
    view.state.measure((300_000, 700_000))
    drag(view.plot.viewport(), QPoint(x_of(view, 700_000) + 2, 80), QPoint(800, 80))
    assert view.state.measured == pytest.approx((300_000, 800_000), abs=1500)
    drag(view.plot.viewport(), QPoint(x_of(view, 300_000) - 2, 80), QPoint(900, 80))
    assert view.state.measured == pytest.approx((800_000, 900_000), abs=1500)


def test_a_measured_range_is_tinted_and_the_rest_is_not(view):
    view.state.measure((500_000, 700_000))
    image = picture(view)
    y = view.plot.height() - 3
    inside = pixel(view, image, QPoint(x_of(view, 690_000), y))
    outside = pixel(view, image, QPoint(x_of(view, 750_000), y))
    assert near(outside, DARK.background, 2) and not near(inside, DARK.background, 4)
    edge = pixel(view, image, QPoint(x_of(view, 700_000), y))
    assert near(edge, DARK.accent, 40)


def test_enter_zooms_to_the_measured_range(view):
    view.state.measure((400_000, 600_000))
    key(view, Qt.Key.Key_Return)
    assert shown(view) == (380_000, 620_000)


def test_r_measures_the_selection(view, rows):
    view.state.select(rows.back)
    key(view, Qt.Key.Key_R)
    assert view.state.measured == (500_000, 700_000)


def test_m_marks_and_shift_m_takes_the_last_mark_away(view, rows):
    move_mouse(view.plot.viewport(), QPoint(x_of(view, 950_000), 200))
    key(view, Qt.Key.Key_M)
    assert view.state.marks[0] == pytest.approx((950_000, 950_000), abs=1000)
    view.state.select(rows.back)
    key(view, Qt.Key.Key_M)
    view.state.measure((5, 10))
    key(view, Qt.Key.Key_M)
    key(view, Qt.Key.Key_M)
    assert view.state.marks[1:] == ((500_000, 700_000), (5, 10))
    key(view, Qt.Key.Key_M, SHIFT)
    assert view.state.marks[1:] == ((500_000, 700_000),)


def test_escape_clears(view, rows):
    view.state.select(rows.kernel)
    view.state.measure((5, 10))
    view.state.set_path((rows.call, rows.kernel))
    key(view, Qt.Key.Key_Escape)
    assert (view.state.selection, view.state.measured, view.state.path) == (NOTHING, None, ())


# rows


def header(view, row) -> QPoint:
    place = view.row_layout.of(row)
    return QPoint(60, int(place.y + place.height / 2))


def test_a_click_on_a_title_collapses_the_row(view, qtbot):
    before = view.row_layout.of("stream").height
    qtbot.mouseClick(view.headers, Qt.MouseButton.LeftButton, pos=header(view, "stream"))
    assert view.row_layout.of("stream").height < before
    image = picture(view)
    place = view.row_layout.of("stream")
    y = place.lane_y(0) + 2
    assert near(pixel(view, image, QPoint(x_of(view, 450_000), y)), colour_of("kernel"))
    qtbot.mouseClick(view.headers, Qt.MouseButton.LeftButton, pos=header(view, "stream"))
    assert view.row_layout.of("stream").height == before


def test_a_click_on_the_pin_keeps_the_row_at_the_top(view, qtbot):
    pin = view.headers.pin_rect(view.row_layout.of("copies")).center().toPoint()
    qtbot.mouseClick(view.headers, Qt.MouseButton.LeftButton, pos=pin)
    assert view.row_layout.places[0].key == "copies"
    view.resize(view.width(), 130)
    turn_wheel(view.headers, QPoint(20, 60), -120)
    assert view.row_layout.of("copies").y == 0 and view.row_layout.of("steps").y < 30
    image = picture(view)
    assert near(pixel(view, image, at(view, 650_000, "copies", 3)), colour_of("d2h"))


def test_nothing_of_scrolled_rows_is_drawn_over_pinned_ones(view, rows):
    rows.step_list = [MadeStep(7, 0, "saaasg")]
    rows.ghost_list = [MadeGhost(2, 420_000, 480_000, "x")]
    view.resize(view.width(), 130)
    view.state.arrange(Arrangement().toggle_pin("host"))
    view.state.set_range(400_000, 500_000)
    height = view.row_layout.of("host").height
    for _ in range(14):
        view.scroll_rows(5)
        image = picture(view)
        points = [QPoint(x, y) for x in range(3, view.plot.width() - 3, 7) for y in range(height)]
        assert max(max(pixel(view, image, each)) for each in points) < 90
    assert view.row_layout.of("sync").y < height


def test_a_dragged_title_moves_its_row(view, qtbot):
    target = view.row_layout.of("host")
    drag(view.headers, header(view, "copies"), QPoint(60, target.y + 2))
    order = [each.key for each in view.row_layout.places]
    assert order == ["steps", "copies", "host", "sync", "stream", "kv"]
    image = picture(view)
    assert near(pixel(view, image, at(view, 650_000, "copies", 3)), colour_of("d2h"))
    click(view, at(view, 650_000, "copies"))
    assert view.state.selection == view.source.rows[4].lanes[0].get(1)[5]


def test_titles_can_be_worked_by_keys(view, qtbot):
    view.headers.setFocus()
    for which, held in (
        (Qt.Key.Key_Down, Qt.KeyboardModifier.NoModifier),
        (Qt.Key.Key_Down, Qt.KeyboardModifier.NoModifier),
        (Qt.Key.Key_Return, Qt.KeyboardModifier.NoModifier),
        (Qt.Key.Key_P, Qt.KeyboardModifier.NoModifier),
    ):
        qtbot.keyClick(view.headers, which, held)
    assert view.state.arrangement.collapsed == view.state.arrangement.pinned == {"host"}
    assert view.headers.accessibleDescription() == "title of host"
    view.state.arrange(Arrangement())
    qtbot.keyClick(view.headers, Qt.Key.Key_Down, ALT)
    assert [each.key for each in view.row_layout.places][:3] == ["steps", "sync", "host"]
    qtbot.keyClick(view.headers, Qt.Key.Key_Up, ALT)
    assert [each.key for each in view.row_layout.places][:2] == ["steps", "host"]


def test_b_leaves_the_rows_of_buffers_out_and_shows_them(view):
    image = picture(view)
    assert near(pixel(view, image, at(view, 280_000, "kv", 3)), colour_of("d2h"))
    key(view, Qt.Key.Key_B)
    assert view.row_layout.of("kv") is None
    key(view, Qt.Key.Key_B)
    assert view.row_layout.of("kv") is not None


def test_a_buffer_is_shown_alone_and_scrolled_to(view, rows):
    rows.row("mask", "buffer")
    rows.span("mask", 200_000, 300_000, "h2d", "write")
    view.state.grow()
    view.resize(view.width(), 110)
    view.show_buffer("mask")
    assert view.row_layout.of("kv") is None
    place = view.row_layout.of("mask")
    assert place.y + place.height <= view.plot.height()
    image = picture(view)
    assert near(pixel(view, image, at(view, 250_000, "mask", 4)), colour_of("h2d"))
    view.show_buffer("")
    assert view.row_layout.of("mask") is None


def test_the_selection_can_be_brought_back_into_view(view, rows):
    view.state.select(rows.back)
    view.state.set_range(5_000_000, 5_100_000)
    view.show_selection()
    assert shown(view) == (550_000, 650_000)


def test_a_watermark_is_on_the_drawing_and_goes_again(view):
    def reddish() -> int:
        image = picture(view)
        corner = [
            pixel(view, image, QPoint(view.plot.width() - dx, view.plot.height() - dy))
            for dx in range(20, 200)
            for dy in range(10, 50)
        ]
        return sum(red > 120 > green for red, green, _ in corner)

    assert reddish() == 0
    view.state.set_watermark("HAZARDS ALLOWED")
    assert reddish() > 200
    view.state.set_watermark("")
    assert reddish() == 0


# the table of keys, other scales, odd states


def test_every_key_has_a_command_and_no_key_has_two(view):
    keys = [key for binding in BINDINGS for key in binding.keys]
    assert len(set(keys)) == len(keys)
    assert {binding.command for binding in BINDINGS} <= set(view.commands)
    assert all(binding.text for binding in BINDINGS)


def test_keys_that_the_timeline_does_not_know_go_on_to_the_window(view):
    heard = []
    view.keyPressEvent = lambda event: heard.append(event.key())
    key(view, Qt.Key.Key_Q)
    key(view, Qt.Key.Key_W, CTRL)
    assert heard == [Qt.Key.Key_Q, Qt.Key.Key_Control, Qt.Key.Key_W] and shown(view) == (0, SPAN)


def test_every_command_does_without_a_recording(qtbot):
    view = TimelineView(ViewState())
    qtbot.addWidget(view)
    view.resize(600, 200)
    with qtbot.waitExposed(view):
        view.show()
    said = picture(view)
    points = [QPoint(x, view.plot.height() // 2) for x in range(view.plot.width())]
    assert any(not near(pixel(view, said, each), DARK.background, 40) for each in points)
    for command in view.commands:
        view.run(command)
    view.state.set_recording(MadeRecording(MadeRows()))
    for command in view.commands:
        view.run(command)
    assert not view.grab().isNull()


def test_a_selected_span_that_is_evicted_is_forgotten_quietly(view, rows):
    view.state.select(rows.kernel)
    lane = rows.rows[3].lanes[0]
    for k in range(lane.capacity):
        begin = 2_000_000 + 10 * k
        rows.span("stream", begin, begin + 5, "kernel", "n")
    view.state.grow()
    assert lane.head > 0
    for command in view.commands:
        view.run(command)
    picture(view)


def test_the_window_may_be_as_small_as_it_likes(view):
    for width, height in ((200, 60), (120, 20), (1, 1), (2000, 900)):
        view.resize(width, height)
        picture(view)


def test_a_long_recording_is_drawn_at_nanoseconds(view, rows):
    begin = 3_600_000_000_000
    rows.span("stream", begin, begin + 100, "kernel", "late")
    view.state.set_range(begin - 100, begin + 300)
    image = picture(view)
    y = lane_top(view, "stream") + 3
    first, last = x_of(view, begin), x_of(view, begin + 100)
    assert near(pixel(view, image, QPoint(first + 2, y)), colour_of("kernel"))
    assert near(pixel(view, image, QPoint(last - 2, y)), colour_of("kernel"))
    assert near(pixel(view, image, QPoint(first - 2, y)), ground(view, "stream"), 2)
    assert near(pixel(view, image, QPoint(last + 2, y)), ground(view, "stream"), 2)


def test_a_closed_timeline_leaves_nothing_behind(qapp, rows):
    state = ViewState()
    state.set_recording(MadeRecording(rows))
    gone = []
    for _ in range(3):
        view = TimelineView(state)
        view.show()
        view.grab()
        gone.append(weakref.ref(view))
        view.close()
        view.deleteLater()
        del view
        qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        qapp.processEvents()
        gc.collect()
    assert [each() for each in gone] == [None] * 3
    state.select(rows.kernel)
    state.set_range(5, 500)
    state.grow()


@pytest.mark.skipif("QT_SCALE_FACTOR" in os.environ, reason="is what this test runs")
def test_all_of_this_holds_at_scale_2():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    result = subprocess.run(
        command,
        env={**os.environ, "QT_SCALE_FACTOR": "2"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert "1 skipped" in result.stdout
