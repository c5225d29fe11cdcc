"""The span ring."""

import numpy as np
import pytest

from helpers.plans import make_plan
from syncscope.sched_core.backend import Backend
from syncscope.sched_core.executor import Executor
from syncscope.sched_core.program import unroll
from syncscope.sched_core.recorder import SPAN, SpanRing


class Pusher:
    """Pushes spans through an executor on the null device; their `op` counts up from 0."""

    def __init__(self, ring, n=200):
        plan = make_plan("\n".join(["sync s"] * n))
        backend = Backend()
        backend.bind(unroll(plan, ["decode"]), ring)
        self.executor = Executor(backend, ring)
        self.at = 0

    def push(self, n):
        assert self.executor.run(self.at, n, 1, 0, 1) == (0, 1)
        self.at += n


@pytest.fixture
def ring():
    return SpanRing(4)


def test_spans_come_out_once_in_the_order_in_which_they_went_in(ring):
    pusher = Pusher(ring)
    pusher.push(5)
    assert ring.take()["op"].tolist() == [0, 1, 2, 3, 4]
    assert len(ring.take()) == 0
    pusher.push(2)
    assert ring.take()["op"].tolist() == [5, 6]


def test_a_full_ring_keeps_the_oldest_and_counts_what_it_drops(ring):
    pusher = Pusher(ring)
    pusher.push(16)
    assert ring.dropped == 0
    pusher.push(7)
    assert ring.dropped == 7
    assert ring.take()["op"].tolist() == list(range(16))
    pusher.push(1)
    assert ring.take()["op"].tolist() == [23]
    assert ring.dropped == 7


@pytest.mark.parametrize("first", [1, 9, 15, 16])
@pytest.mark.parametrize("second", [1, 7, 15, 16])
def test_spans_keep_their_order_across_the_end_of_the_ring(ring, first, second):
    pusher = Pusher(ring)
    for n in (first, second, 16):
        begin = pusher.at
        pusher.push(n)
        assert ring.take()["op"].tolist() == list(range(begin, begin + n))
    assert ring.dropped == 0


def test_what_was_taken_is_not_changed_by_later_spans(ring):
    pusher = Pusher(ring)
    pusher.push(3)
    taken = ring.take()
    before = taken.copy()
    pusher.push(16)
    assert np.array_equal(taken, before)


def test_without_recording_nothing_is_kept_and_nothing_is_dropped(ring):
    ring.recording = False
    Pusher(ring).push(100)
    assert (len(ring.take()), ring.dropped, ring.recording) == (0, 0, False)
    ring.recording = True
    Pusher(ring).push(1)
    assert len(ring.take()) == 1


@pytest.mark.parametrize("size", [4, 10])
def test_capacity_is_a_power_of_two(size):
    assert SpanRing(size).capacity == 2**size


@pytest.mark.parametrize("size", [-1, 3, 27, 64])
def test_a_capacity_beyond_reason_is_refused(size):
    with pytest.raises(ValueError, match=f"{size} outside 4..26"):
        SpanRing(size)


def test_bytes_beyond_32_bits_are_capped(ring):
    plan = make_plan("s copy h d; s copy h[0:8] d[0:8]", nbytes=5 << 30)
    backend = Backend()
    backend.bind(unroll(plan, ["decode"]), ring)
    Executor(backend, ring).run(0, 2, 1, 0, 1)
    spans = ring.take()
    assert spans.dtype == SPAN
    assert spans["nbytes"].tolist() == [2**32 - 1, 8]
