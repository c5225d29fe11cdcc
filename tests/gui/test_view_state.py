"""Views hear of every change once, and of nothing that is not one."""

import pytest

from syncscope.app.gui.row_layout import Arrangement
from syncscope.app.gui.theme import DARK, LIGHT
from syncscope.app.gui.view_state import MAX_HISTORY, MIN_RANGE_NS, NOTHING, ViewState


@pytest.fixture
def state(qapp):
    return ViewState()


@pytest.mark.parametrize(
    ("change", "signal", "values"),
    [
        (lambda s, v: s.select(v), "selection_changed", (3, 2**40)),
        (lambda s, v: s.set_hover(v), "hover_changed", (3, 2**40)),
        (lambda s, v: s.set_path(v), "path_changed", ((1, 2), ())),
        (lambda s, v: s.measure(v), "measured_changed", ((5, 9), None)),
        (lambda s, v: s.set_marks(v), "marks_changed", (((5, 9),), ())),
        (lambda s, v: s.set_theme(v), "theme_changed", (LIGHT, DARK)),
        (lambda s, v: s.set_follow(v), "follow_changed", (True, False)),
        (lambda s, v: s.set_watermark(v), "watermark_changed", ("hazards", "")),
        (
            lambda s, v: s.arrange(v),
            "rows_changed",
            (Arrangement().toggle_pin("a"), Arrangement()),
        ),
    ],
)
def test_a_change_is_told_once(state, change, signal, values):
    heard = []
    getattr(state, signal).connect(lambda *each: heard.append(each))
    for value in values:
        change(state, value)
        change(state, value)
    assert len(heard) == 2


def test_refs_and_times_beyond_32_bits_arrive(state):
    heard = []
    state.selection_changed.connect(heard.append)
    state.range_changed.connect(lambda *times: heard.append(times))
    state.select(2**40)
    state.set_range(10**15, 10**15 + 500)
    assert heard == [2**40, (10**15, 10**15 + 500)]


def test_a_window_is_never_shorter_than_what_can_be_seen(state):
    state.set_range(1000, 1001)
    t0, t1 = state.range
    assert t1 - t0 == MIN_RANGE_NS and t0 <= 1000 < 1001 <= t1


def test_undo_goes_back_to_before_a_run_of_the_same_gesture(state):
    state.set_range(0, 10_000)
    for k in range(1, 6):
        state.set_range(0, 10_000 - 1000 * k, "zoom")
    state.set_range(500, 5500, "pan")
    state.undo_range()
    assert state.range == (0, 5000)
    state.undo_range()
    assert state.range == (0, 10_000)
    state.undo_range()
    assert state.range == (0, 10_000)
    state.redo_range()
    state.redo_range()
    assert state.range == (500, 5500)
    state.redo_range()
    assert state.range == (500, 5500)


def test_following_is_not_undone(state):
    state.set_range(0, 1000)
    state.set_range(0, 500, "zoom")
    for k in range(50):
        state.set_range(k, 500 + k)
    state.undo_range()
    assert state.range == (0, 1000)


def test_a_new_gesture_forgets_what_was_undone(state):
    state.set_range(0, 1000)
    state.set_range(0, 500, "zoom")
    state.undo_range()
    state.set_range(100, 1100, "pan")
    state.redo_range()
    assert state.range == (100, 1100)


def test_the_history_is_bounded(state):
    for k in range(3 * MAX_HISTORY):
        state.set_range(k, k + 100, ("zoom", "pan")[k % 2])
    for _ in range(3 * MAX_HISTORY):
        state.undo_range()
    assert state.range[0] == 3 * MAX_HISTORY - 1 - MAX_HISTORY


def test_a_measured_range_is_in_order(state):
    state.measure((9, 5))
    assert state.measured == (5, 9)


def test_another_recording_forgets_what_was_selected(state):
    state.select(5)
    state.set_path((1, 2))
    state.measure((0, 5))
    state.set_marks(((1, 1),))
    state.set_range(0, 100, "zoom")
    state.set_recording("another")
    assert (state.selection, state.hover, state.path) == (NOTHING, NOTHING, ())
    assert (state.measured, state.marks, state.recording) == (None, (), "another")
    before = state.range
    state.undo_range()
    assert state.range == before
