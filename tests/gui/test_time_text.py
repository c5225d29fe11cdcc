"""How times read, and where a time axis has its ticks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncscope.app.gui.time_text import duration_text, ticks, time_text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (850, "850 ns"),
        (1_000, "1.00 µs"),
        (2_314, "2.31 µs"),
        (12_345, "12.3 µs"),
        (123_456, "123 µs"),
        (99_960, "100 µs"),
        (9_996, "10.0 µs"),
        (1_500_000, "1.50 ms"),
        (2_000_000_000, "2.00 s"),
        (3_600_000_000_000, "3,600 s"),
        (-2_314, "-2.31 µs"),
    ],
)
def test_durations_have_three_digits(ns, text):
    assert duration_text(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (12_345_678, "12.345678 ms"),
        (5_000, "5 µs"),
        (1_000_000_001, "1.000000001 s"),
        (-1_500, "-1.5 µs"),
    ],
)
def test_times_are_exact(ns, text):
    assert time_text(ns) == text


def test_ticks_are_round_and_named_in_the_unit_of_their_distance():
    found = ticks(0, 1_000_000, 11)
    assert found.spacing_ns == 100_000 and found.base == ""
    assert found.labels[:3] == ((0, "0 µs"), (100_000, "100 µs"), (200_000, "200 µs"))
    assert found.labels[-1] == (1_000_000, "1,000 µs")


def test_far_into_a_run_labels_come_on_top_of_a_base():
    found = ticks(9_123_456_700, 9_123_457_700, 6)
    assert found.base == "9.123456 s"
    assert found.labels[0] == (9_123_456_800, "+800 ns")
    assert found.labels[-1] == (9_123_457_600, "+1,600 ns")


def test_no_label_shows_a_wall_clock():
    for label in ticks(1_764_000_000_000_000_000, 1_764_000_000_000_001_000, 5).labels:
        assert label[1].startswith("+")


@given(st.integers(-(10**13), 10**15), st.integers(20, 10**13), st.integers(2, 20))
def test_ticks_are_in_the_window_evenly_and_not_too_many(t0, length, most):
    found = ticks(t0, t0 + length, most)
    times = [t for t, _ in found.labels]
    assert len(times) <= most
    assert all(t0 <= t <= t0 + length and t % found.spacing_ns == 0 for t in times)
    assert times == list(range(times[0], times[-1] + 1, found.spacing_ns)) if times else True
    assert str(found.spacing_ns).rstrip("0") in {"1", "2", "5"}
    assert length // found.spacing_ns < most
    finer = {1: 2, 2: 2, 5: 2.5}[int(str(found.spacing_ns)[0])]
    assert found.spacing_ns == 1 or length // int(found.spacing_ns / finer) >= most


@given(st.integers(0, 10**15), st.integers(20, 10**13))
def test_labels_differ(t0, length):
    labels = [text for _, text in ticks(t0, t0 + length, 12).labels]
    assert len(set(labels)) == len(labels)
    assert all(len(each) <= 14 for each in labels)
