"""Covered time is that of the union of all intervals, in whatever order they come."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncscope.app.gui.busy_time import BusyTime

INTERVALS = st.lists(st.tuples(st.integers(-50, 200), st.integers(0, 30)), max_size=40)


def covered(intervals, t0, t1):
    """Count the nanoseconds of a range that lie in an interval, one by one."""
    return sum(any(b <= t < b + n for b, n in intervals) for t in range(t0, t1))


def add(busy, intervals):
    begin = np.array([b for b, _ in intervals], np.int64)
    busy.add(begin, begin + np.array([n for _, n in intervals], np.int64))


@given(st.lists(INTERVALS, max_size=5), st.integers(-80, 260), st.integers(0, 300))
def test_covered_time_is_that_of_the_union(batches, t0, length):
    busy = BusyTime()
    for each in batches:
        add(busy, each)
    every = [one for each in batches for one in each]
    assert busy.between(t0, t0 + length) == covered(every, t0, t0 + length)


@given(INTERVALS, st.randoms())
def test_the_order_of_intervals_does_not_matter(intervals, random):
    one, other = BusyTime(), BusyTime()
    add(one, intervals)
    random.shuffle(intervals)
    for each in intervals:
        add(other, [each])
    times = np.arange(-60, 250)
    assert (np.diff(one.until(times)) == np.diff(other.until(times))).all()


def test_the_newest_are_kept_and_memory_does_not_grow():
    busy = BusyTime(capacity=8)
    nbytes = busy.nbytes
    for number in range(1000):
        add(busy, [(10 * number, 5)])
    assert busy.between(9930, 10_000) == 35
    assert busy.between(0, 9000) == 0
    assert busy.nbytes == nbytes


@given(st.lists(INTERVALS, max_size=8), st.integers(1, 6))
def test_from_a_time_on_all_is_known(batches, capacity):
    busy = BusyTime(capacity)
    for each in batches:
        add(busy, each)
    every = [one for each in batches for one in each]
    since = max(busy.since_ns, -60)
    for t1 in range(since, 250, 7):
        assert busy.between(since, t1) == covered(every, since, t1)


def test_nothing_is_added_where_intervals_were_forgotten():
    busy = BusyTime(capacity=2)
    add(busy, [(0, 1), (10, 1), (20, 1), (30, 1), (40, 1)])
    assert busy.since_ns == 21
    add(busy, [(2, 3), (5, 18)])
    assert busy.between(-100, 21) == 0
    assert busy.between(21, 45) == 4
