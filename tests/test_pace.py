"""Pieces are short, and virtual time keeps to its share of real time."""

import pytest

from syncscope.app.pace import LONGEST_LAG_SECONDS, PIECE_SECONDS, Pace

STEP_NS = 100_000


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def learned(speed, clock):
    """A pace that knows how long a decode step is, and starts at virtual time 0."""
    pace = Pace(speed, clock)
    pace.note("decode", 1000, 1e-9, 1000 * STEP_NS)
    pace.begin(0)
    return pace


def test_pieces_grow_until_they_take_their_time_and_shrink_when_steps_are_slow():
    pace = Pace(0.0, Clock())
    sizes = []
    for _ in range(12):
        steps = pace.steps("decode", 0)
        sizes.append(steps)
        pace.note("decode", steps, steps * 1e-4, steps * STEP_NS)
    assert sizes[:4] == [1, 2, 4, 8]
    assert sizes[-1] == pytest.approx(PIECE_SECONDS / 1e-4, abs=1)
    pace.note("decode", sizes[-1], sizes[-1] * 1e-2, sizes[-1] * STEP_NS)
    assert pace.steps("decode", 0) == 1


def test_each_phase_has_pieces_of_its_own():
    pace = Pace(0.0, Clock())
    pace.note("decode", 100, 1e-3, 1)
    assert pace.steps("decode", 0) > 1
    assert pace.steps("prompt", 0) == 1


def test_a_clock_without_a_limit_never_waits():
    pace = learned(0.0, Clock())
    assert pace.wait_seconds(10**15) == 0


@pytest.mark.parametrize("speed", [1e-3, 1.0, 20.0])
def test_virtual_time_keeps_to_its_share_of_real_time(speed):
    clock = Clock()
    pace = learned(speed, clock)
    virtual = 0
    for _ in range(1000):
        wait = pace.wait_seconds(virtual)
        clock.now += wait if wait else 1e-4
        while pace.wait_seconds(virtual) == 0:
            virtual += pace.steps("decode", virtual) * STEP_NS
    # no step begins before its time, and the last piece is not longer than it may be
    assert 0 <= virtual - clock.now * speed * 1e9 <= 1.001 * STEP_NS + 1e5 * speed


def test_a_step_waits_until_its_time_has_come():
    clock = Clock()
    pace = learned(1e-3, clock)
    assert pace.wait_seconds(0) == 0
    assert pace.wait_seconds(STEP_NS) == pytest.approx(0.1)
    clock.now = 0.06
    assert pace.wait_seconds(STEP_NS) == pytest.approx(0.04)
    clock.now = 0.2
    assert pace.wait_seconds(STEP_NS) == 0


def test_it_counts_anew_where_it_begins():
    clock = Clock()
    pace = learned(1e-3, clock)
    clock.now = 1000.0
    pace.begin(7 * STEP_NS)
    assert pace.wait_seconds(7 * STEP_NS) == 0
    assert pace.wait_seconds(8 * STEP_NS) == pytest.approx(0.1)


def test_what_cannot_be_kept_up_with_is_not_caught_up_with():
    clock = Clock()
    pace = learned(1.0, clock)
    clock.now = 2 * LONGEST_LAG_SECONDS
    assert pace.steps("decode", 0) == 1
    assert pace.wait_seconds(STEP_NS) == pytest.approx(1e-4)
