"""Slots of launches, the rows that begin a step, and between which times a copy ran."""

import numpy as np
import pytest

from helpers.plans import make_plan, model_plan
from syncscope.sched_core.backend import BOUNDED
from syncscope.sched_core.program import Program, tabulate
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Kind, Plan
from syncscope.sched_core.stamps import (
    CopyBounds,
    kernel_neighbours,
    kernel_spans,
    launch_slots,
    ring_parts,
    step_starts,
)

CALL, EXEC = 0, 1


def rows_of(plan: Plan) -> tuple[Program, np.ndarray]:
    program = tabulate(plan).program
    return program, np.concatenate([program.ops, program.members])


class Recording:
    """Calls of the first block of a plan, one every ten nanoseconds, and stamps for its kernels."""

    def __init__(self, text: str, **options: object) -> None:
        self.program, self.rows = rows_of(make_plan(text, **options))  # type: ignore[arg-type]
        self.slot, self.first = launch_slots(self.rows)
        self.bounds = CopyBounds(self.program, self.rows, self.slot)
        self.n_ops = int(self.program.step0[1])

    def calls(self, step: int) -> np.ndarray:
        spans = np.zeros(self.n_ops, SPAN)
        spans["op"] = np.arange(self.n_ops)
        spans["step"] = step
        spans["begin_ns"] = 10 * (np.arange(self.n_ops) + step * self.n_ops)
        spans["end_ns"] = spans["begin_ns"] + 10
        return spans

    def take(
        self, steps: list[int], kernels: list[list[tuple[int, int]]], all_done: bool = False
    ) -> list[tuple[int, int, int]]:
        n_slots = max(1, len(self.first))
        times = np.zeros((len(steps), n_slots, 2), np.int64)
        for i, stamps in enumerate(kernels):
            times[i, : len(stamps)] = np.array(stamps, np.int64).reshape(-1, 2)
        ran = times[:, :, 1] > 0
        last = np.zeros((len(steps), len(self.program.streams)), np.int64)
        found = self.bounds.take(
            self.program.n_threads, np.array(steps, np.int64), times, ran, last, all_done
        )
        assert (found["role"] == EXEC).all() and (found["flags"] == BOUNDED).all()
        return [(int(f["step"]), int(f["begin_ns"]), int(f["end_ns"])) for f in found]


# ---- slots and steps ----------------------------------------------------------------------------


def test_every_site_that_launches_has_one_slot_in_every_block_and_graph() -> None:
    program, rows = rows_of(model_plan("cuda-graph"))
    slot, first = launch_slots(rows)
    launches = rows["kind"] == Kind.LAUNCH
    assert np.array_equal(slot >= 0, launches)
    assert sorted(set(slot[launches].tolist())) == list(range(len(first)))
    for number, row in enumerate(first):
        mine = rows["site"][slot == number]
        assert set(mine.tolist()) == {rows["site"][row]}
        assert len(mine) == 2  # one by one, and as a member of a graph
    assert len({program.sites[rows["site"][row]] for row in first}) == len(first)


def test_each_step_begins_with_its_first_launch_or_graph() -> None:
    program, rows = rows_of(model_plan("cuda-graph"))
    starts = step_starts(program)
    for begin, end in zip(program.step0[:-1], program.step0[1:], strict=True):
        (found,) = np.flatnonzero(starts[begin:end])
        kinds = rows["kind"][begin : begin + found]
        assert not np.isin(kinds, (Kind.LAUNCH, Kind.GRAPH)).any()
        assert rows["kind"][begin + found] in (Kind.LAUNCH, Kind.GRAPH)


def test_a_plan_without_kernels_has_no_slot_and_begins_nothing() -> None:
    program, rows = rows_of(make_plan("s copy hp dp; sync s"))
    slot, first = launch_slots(rows)
    assert (slot == -1).all() and len(first) == 0
    assert not step_starts(program).any()


@pytest.mark.parametrize("n_rows", [1, 3, 8])
def test_the_parts_of_a_ring_are_the_rows_of_the_steps_in_order(n_rows: int) -> None:
    for begin in range(20):
        for end in range(begin - 2, begin + n_rows + 1):
            parts = ring_parts(begin, end, n_rows)
            rows = [row for first, n in parts for row in range(first, first + n)]
            assert rows == [step % n_rows for step in range(begin, end)]
            assert len(parts) <= 2 and all(n > 0 for _, n in parts)


@pytest.mark.parametrize("graphs", [False, True])
def test_neighbours_are_those_on_the_same_stream_in_the_same_step(graphs: bool) -> None:
    text = "s copy hp dp; t copy hq dq; s k1 w da; s k2 w da; s copy da hr; t k3 w db"
    program, rows = rows_of(make_plan(text, graphs=graphs))
    slot, _ = launch_slots(rows)
    before, after = kernel_neighbours(program, slot)
    begin, end = program.step0[-2:] if graphs else program.step0[:2]
    copies = [i for i in range(begin, end) if rows["kind"][i] == Kind.COPY]
    assert [(int(before[i]), int(after[i])) for i in copies] == [(-1, 0), (-1, 2), (1, -1)]


def test_kernels_become_spans_on_the_lane_of_their_stream() -> None:
    program, rows = rows_of(make_plan("s k1 w da; t k2 w db"))
    _, first = launch_slots(rows)
    times = np.array([[[5, 9], [7, 6]], [[15, 19], [0, 0]]])
    spans = kernel_spans(
        rows, first, program.n_threads, np.array([3, 4]), times, times[:, :, 0] > 0
    )
    assert spans[["step", "lane", "begin_ns", "end_ns"]].tolist() == [
        (3, 1, 5, 9),
        (3, 2, 7, 7),
        (4, 1, 15, 19),
    ]


# ---- copies -------------------------------------------------------------------------------------


def test_a_copy_ends_at_the_latest_when_a_wait_for_it_returns() -> None:
    for wait in ("sync s", "sync dev.s", "s record e; sync e"):
        recording = Recording(f"s copy hp dp; {wait}")
        calls = recording.calls(0)
        recording.bounds.note(calls)
        assert recording.take([], [], all_done=True) == [(0, 0, int(calls["end_ns"][-1]))]


def test_a_wait_for_another_stream_or_an_earlier_event_tells_nothing() -> None:
    for wait in ("sync t", "t record e; sync e"):
        recording = Recording(f"s copy hp dp; {wait}")
        recording.bounds.note(recording.calls(0))
        assert recording.take([], [], all_done=True) == []
    recording = Recording("s record e; s copy hp dp; sync e")
    recording.bounds.note(recording.calls(0))
    assert recording.take([], [], all_done=True) == []


def test_a_later_wait_bounds_the_copies_of_earlier_steps() -> None:
    recording = Recording("s copy hp dp; s record e")
    recording.bounds.note(recording.calls(0))
    recording.bounds.note(recording.calls(1))
    assert recording.take([], [], all_done=True) == []
    waiting = Recording("s copy hp dp; sync s")
    waiting.bounds.note(waiting.calls(0)[:1])
    assert waiting.take([], [], all_done=False) == []
    waiting.bounds.note(waiting.calls(1))
    assert waiting.take([], [], all_done=True) == [(0, 0, 40), (1, 20, 40)]


def test_kernels_around_a_copy_narrow_its_bounds() -> None:
    recording = Recording("s copy hp dp; s k1 w da; s copy da hq; sync s")
    recording.bounds.note(recording.calls(0))
    assert recording.take([0], [[(14, 27)]]) == [(0, 0, 14), (0, 27, 40)]


def test_copies_of_a_step_that_is_not_over_stay_for_later() -> None:
    recording = Recording("s copy hp dp; s k1 w da; sync s")
    recording.bounds.note(np.concatenate([recording.calls(0), recording.calls(1)]))
    assert recording.take([0], [[(14, 20)]]) == [(0, 0, 14)]
    assert recording.take([], []) == []
    assert recording.take([1], [[(47, 52)]]) == [(1, 30, 47)]


def test_a_copy_that_blocks_or_goes_to_pageable_memory_is_done_on_return() -> None:
    for text in ("s copy! hp dp", "s copy dp pq"):
        recording = Recording(text)
        recording.bounds.note(recording.calls(0))
        assert recording.take([], [], all_done=True) == [(0, 0, 10)]


def test_many_copies_are_all_accounted_for_once() -> None:
    recording = Recording("s copy hp dp; t copy hq dq; sync s; sync t")
    found = []
    for step in range(500):
        recording.bounds.note(recording.calls(step))
        if step % 7 == 0:
            found += recording.take([], [], all_done=True)
    found += recording.take([], [], all_done=True)
    assert [step for step, _, _ in found] == [step for step in range(500) for _ in range(2)]
    assert all(end - begin in (30, 20 + 10) for _, begin, end in found)
