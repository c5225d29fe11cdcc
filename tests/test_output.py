"""Outputs of sequences: read back, compared, and their text as it comes."""

from contextlib import closing

import numpy as np
import pytest

from syncscope.app.devices import SimDevice
from syncscope.app.interrupts import Interrupts
from syncscope.app.output import TextStream, first_difference, read_output, reference_output
from syncscope.app.session import run_plan
from syncscope.app.variants import REFERENCE, plan_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.kernels.tokenizer import ByteTokenizer, NumberTokenizer
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.profile import load_profile

SIM = SimDevice(load_profile("h200"))
TINY = load_model("tiny")
WORKLOAD = Workload(TINY, tuple(TINY.tokenizer.encode("Alice was")), 12, 4)


def test_the_reference_is_what_a_run_of_the_baseline_computes():
    found = reference_output(WORKLOAD, SIM, lambda: False)
    planned = plan_variant(WORKLOAD.plan(), REFERENCE)
    run = run_plan(WORKLOAD, SIM, planned, frozenset(), lambda *_: None, Interrupts())
    assert found.token_ids == run.token_ids
    assert len(found.logits) == WORKLOAD.n_positions


def test_a_reference_that_is_not_wanted_any_more_is_none():
    answers = iter([False, False, True])
    assert reference_output(WORKLOAD, SIM, lambda: next(answers)) is None


def test_each_position_has_a_digest_of_its_own_logits():
    backend = SIM.make_backend(WORKLOAD, frozenset())
    with closing(Engine(backend, plan_variant(WORKLOAD.plan(), REFERENCE).plan)) as engine:
        for phase, steps in WORKLOAD.segments:
            engine.run(phase, steps)
        engine.drain()
        before = read_output(backend, WORKLOAD, 12, WORKLOAD.n_positions)
        tap = backend.read("tap").reshape(-1, 4 * TINY.config.V)
        computed = np.flatnonzero(tap.any(axis=1))
        assert len({before.logits[i] for i in computed}) == len(computed) >= 12
        assert read_output(backend, WORKLOAD, 5, 7).token_ids == before.token_ids[:5]
        assert read_output(backend, WORKLOAD, 5, 7).logits == before.logits[:7]


@pytest.mark.parametrize(
    ("text", "token", "place"),
    [
        ("abc", 2, 2),
        ("aé🙂b", 1, 1),  # the first byte of é
        ("aé🙂b", 2, 1),  # its second
        ("aé🙂b", 4, 2),
        ("aé🙂b", 7, 3),
    ],
)
def test_a_token_begins_where_the_character_that_it_is_part_of_does(text, token, place):
    stream = TextStream(ByteTokenizer())
    assert stream.place(tuple(text.encode()), token) == place


def test_a_token_begins_behind_bytes_that_are_no_text():
    assert TextStream(ByteTokenizer()).place((97, 0xFF, 98), 2) == 2
    assert TextStream(NumberTokenizer(1, 100)).place((7, 12, 5), 1) == 1


@pytest.mark.parametrize(
    ("mine", "wanted", "expected"),
    [
        ((), (), None),
        ((1, 2), (1, 2, 3), None),
        ((1, 2, 3), (1, 2), None),
        ((1, 5, 3), (1, 2, 3), 1),
        ((9,), (1, 2), 0),
    ],
)
def test_the_first_difference_is_looked_for_as_far_as_both_go(mine, wanted, expected):
    assert first_difference(mine, wanted) == expected


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語", "🙂 and 🙃", "a\ufffdb"])
def test_text_that_comes_byte_by_byte_is_the_text(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    stream = TextStream(tokenizer)
    parts = [stream.new(ids[:n]) for n in range(len(ids) + 1)]
    assert not [part for part in parts if part.endswith("\ufffd")]
    assert "".join(parts) + stream.new(ids, is_over=True) == text


def test_bytes_that_never_become_a_character_are_shown_in_the_end():
    tokenizer = ByteTokenizer()
    ids = [97, 0xE6, 0x97]
    stream = TextStream(tokenizer)
    assert stream.new(ids) == "a"
    assert stream.new(ids, is_over=True) == tokenizer.decode(ids)[1:] != ""
    assert stream.new(ids, is_over=True) == ""


def test_numbers_come_one_by_one():
    stream = TextStream(NumberTokenizer(1, 100))
    assert [stream.new((7, 8, 9)[:n]) for n in range(1, 4)] == ["7", " 8", " 9"]
