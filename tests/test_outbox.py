"""Batches wait in order, in bounded memory, and are joined up to where a sequence begins anew."""

import numpy as np

from syncscope.app import outbox as module
from syncscope.app.live_batch import LiveBatch, has_news, join_batches, no_spans, standing
from syncscope.app.outbox import Outbox
from syncscope.sched_core.recorder import SPAN


def batch(first, n=1, **fields):
    spans = np.zeros(n, SPAN)
    spans["step"] = np.arange(first, first + n)
    return LiveBatch("running", spans, **fields)


def test_what_was_put_is_taken_once_and_in_order():
    box = Outbox()
    assert box.take() is None
    box.put(batch(0, 2, phases=("prompt", "decode"), text="a", token_ids=(1,)))
    box.put(batch(2, 3, phases=("decode",), text="b", token_ids=(2, 3), steps_done=5))
    taken = box.take()
    assert taken.spans["step"].tolist() == [0, 1, 2, 3, 4]
    assert taken.phases == ("prompt", "decode", "decode")
    assert (taken.text, taken.token_ids, taken.steps_done) == ("ab", (1, 2, 3), 5)
    assert box.take() is None


def test_a_batch_is_of_one_sequence():
    box = Outbox()
    for first, sequence in ((0, 0), (1, 0), (2, 1), (3, 1), (4, 3)):
        box.put(batch(first, sequence=sequence))
    taken = [box.take() for _ in range(4)]
    assert [each.spans["step"].tolist() for each in taken[:3]] == [[0, 1], [2, 3], [4]]
    assert [each.sequence for each in taken[:3]] == [0, 1, 3]
    assert taken[3] is None


def test_it_is_full_until_something_is_taken():
    box = Outbox(capacity=4)
    box.put(batch(0, 3))
    assert not box.is_full
    box.put(batch(3, 3))
    assert box.is_full
    assert len(box.take().spans) == 6
    assert not box.is_full


def test_batches_without_spans_fill_it_too(monkeypatch):
    monkeypatch.setattr(module, "MAX_BATCHES", 3)
    for drops in (False, True):
        box = Outbox(drops)
        for _ in range(3):
            assert not box.is_full
            box.put(LiveBatch("running", no_spans()))
        assert box.is_full


def test_spans_that_do_not_fit_are_dropped_and_counted_and_nothing_else_is():
    box = Outbox(drops=True, capacity=4)
    for first in (0, 3, 6):
        box.put(batch(first, 3, phases=("decode",) * 3, dropped=1))
    assert not box.is_full
    taken = box.take()
    assert taken.spans["step"].tolist() == [0, 1, 2]
    assert taken.phases == ("decode",) * 9
    assert taken.dropped == 1 + 6
    box.put(batch(9, 4))
    assert box.take().dropped == 6


def test_a_batch_is_news_when_it_has_anything_new_or_the_outcome_changed():
    last = batch(0, 0)
    assert not has_news(last, last)
    assert not has_news(
        standing(batch(0, 3, text="x", stale=((0, "a", "b", "c"),)), "running"), last
    )
    for news in (
        {"text": "a"},
        {"phases": ("decode",)},
        {"messages": ("hello",)},
        {"stale": ((1, "decode", "sample", "logits"),)},
        {"failure": "lost"},
        {"first_difference": 0},
        {"bit_exact": False},
    ):
        assert has_news(batch(0, 0, **news), last)
    assert has_news(batch(0, 1), last)
    assert has_news(LiveBatch("paused", no_spans()), last)


def test_one_batch_joined_is_itself():
    one = batch(3, 2, text="x", changes=(), counts=(1, 2, 3), bit_exact=True)
    joined = join_batches([one])
    assert np.array_equal(joined.spans, one.spans)
    assert (joined.text, joined.counts, joined.bit_exact) == ("x", (1, 2, 3), True)
