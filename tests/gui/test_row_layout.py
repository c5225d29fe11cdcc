"""Where rows are drawn when they are moved, pinned, collapsed, hidden and scrolled."""

import pytest

from helpers.timeline import MadeRows
from syncscope.app.gui.row_layout import (
    COLLAPSED_LANE_PX,
    LANE_PX,
    PADDING_PX,
    Arrangement,
    lay_out,
)


@pytest.fixture
def rows():
    made = MadeRows()
    for key, kind, n_lanes in (
        ("steps", "steps", 1),
        ("host", "host", 1),
        ("stream0", "stream", 2),
        ("stream1", "stream", 1),
    ):
        made.row(key, kind, n_lanes=n_lanes)
    return made.rows


def keys(rows, arrangement, scroll_px=0):
    return [each.key for each in lay_out(rows, arrangement, scroll_px).places]


def test_rows_follow_each_other_without_gaps(rows):
    layout = lay_out(rows, Arrangement())
    y = 0
    for place in layout.places:
        assert place.y == y
        assert place.height == LANE_PX[place.kind] * place.n_lanes + 2 * PADDING_PX
        y += place.height
    assert layout.content_px == y
    assert [each.row for each in layout.places] == [0, 1, 2, 3]


def test_lanes_of_a_row_lie_below_each_other(rows):
    place = lay_out(rows, Arrangement()).of("stream0")
    assert place.lane_y(0) == place.y + PADDING_PX
    assert place.lane_y(1) == place.lane_y(0) + LANE_PX["stream"]
    assert [place.lane_at(place.lane_y(k) + 1) for k in (0, 1)] == [0, 1]
    assert place.lane_at(place.y) == 0 and place.lane_at(place.y + place.height - 1) == 1


def test_rows_of_buffers_can_be_left_out(rows):
    made = MadeRows(rows)
    made.row("kv", "buffer")
    assert keys(rows, Arrangement())[-1] == "kv"
    assert "kv" not in keys(rows, Arrangement().toggle_buffers())


def test_the_rows_of_some_buffers_are_shown_and_of_no_others(rows):
    made = MadeRows(rows)
    for key in ("kv", "pos", "mask"):
        made.row(key, "buffer")
    plain = Arrangement().toggle_hidden("host").toggle_hidden("pos").toggle_buffers()
    assert keys(rows, plain.show_only(rows, ["pos"])) == ["steps", "stream0", "stream1", "pos"]
    assert keys(rows, plain.show_only(rows, [])) == ["steps", "stream0", "stream1"]


def test_pinned_rows_come_first_and_do_not_scroll(rows):
    layout = lay_out(rows, Arrangement().toggle_pin("stream0"), scroll_px=10)
    assert [each.key for each in layout.places][:2] == ["stream0", "steps"]
    pinned, below = layout.places[:2]
    assert pinned.y == 0 and layout.pinned_px == pinned.height
    assert below.y == pinned.height - 10
    assert layout.at(pinned.height - 5) is pinned
    assert layout.at(pinned.height + 1) is below


def test_a_collapsed_row_is_thin(rows):
    place = lay_out(rows, Arrangement().toggle_collapse("stream0")).of("stream0")
    assert place.height == 2 * COLLAPSED_LANE_PX + 2 * PADDING_PX
    assert place.collapsed


def test_hidden_rows_are_left_out_until_all_are_shown(rows):
    hidden = Arrangement().toggle_hidden("host").toggle_hidden("steps")
    assert keys(rows, hidden) == ["stream0", "stream1"]
    assert lay_out(rows, hidden).of("host") is None
    assert keys(rows, hidden.show_all()) == keys(rows, Arrangement())


def test_what_is_toggled_twice_is_as_it_was():
    plain = Arrangement()
    for toggle in ("pin", "collapse", "hidden"):
        name = f"toggle_{toggle}"
        assert getattr(getattr(plain, name)("a"), name)("a") == plain


@pytest.mark.parametrize(
    ("key", "before", "order"),
    [
        ("stream1", "host", ["steps", "stream1", "host", "stream0"]),
        ("steps", "stream1", ["host", "stream0", "steps", "stream1"]),
        ("steps", "", ["host", "stream0", "stream1", "steps"]),
    ],
)
def test_a_row_is_put_before_another(rows, key, before, order):
    assert keys(rows, Arrangement().move(rows, key, before)) == order


def test_rows_that_come_later_keep_their_natural_place(rows):
    moved = Arrangement().move(rows[:3], "stream0", "host")
    assert keys(rows, moved) == ["steps", "stream0", "host", "stream1"]


def test_nothing_is_below_the_last_row(rows):
    layout = lay_out(rows, Arrangement())
    assert layout.at(layout.content_px) is None
    assert layout.at(layout.content_px - 1).key == "stream1"


def test_a_row_that_is_partly_under_a_pinned_one_counts_as_covered(rows):
    layout = lay_out(rows, Arrangement().toggle_pin("stream1"), scroll_px=10)
    assert [each.key for each in layout.uncovered] == ["stream1", "host", "stream0"]
