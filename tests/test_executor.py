"""The loop that issues rows."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from helpers.plans import PROFILE, make_plan, model_plan, named_costs
from syncscope.kernels.host import host_table
from syncscope.kernels.signature import KERNELS
from syncscope.sched_core.backend import Backend
from syncscope.sched_core.errors import KernelFault, UsageError
from syncscope.sched_core.executor import Executor
from syncscope.sched_core.program import tabulate, unroll
from syncscope.sched_core.recorder import SpanRing
from syncscope.sched_core.records import Kind
from syncscope.sched_core.sim_backend import SimBackend


def executor_of(program, backend=None, ring=None):
    backend, ring = backend or Backend(), ring or SpanRing(12)
    backend.bind(program, ring)
    return Executor(backend, ring)


def test_rows_are_issued_in_order_step_by_step_from_the_cyclic_table():
    table = tabulate(make_plan("host k1 w h; sync s; sync t", depth={"h": 3}))
    executor = executor_of(table.program)
    block = table.blocks["decode", False]
    assert executor.run(block.row0, block.n_ops, table.period, 2, 4) == (0, 4)
    spans = executor.recorder.take()
    rows = [block.row0 + step % 3 * 3 + i for step in (2, 3, 4, 5) for i in range(3)]
    assert spans["op"].tolist() == rows
    assert spans["step"].tolist() == [2] * 3 + [3] * 3 + [4] * 3 + [5] * 3
    assert set(spans["lane"]) == {0} and set(spans["role"]) == {0}


def test_a_call_begins_when_the_one_before_it_ends():
    program = unroll(model_plan(), ["decode"] * 4)
    executor = executor_of(program)
    executor.run(0, len(program.ops), 1, 0, 1)
    spans = executor.recorder.take()
    assert np.array_equal(spans["begin_ns"][1:], spans["end_ns"][:-1])
    assert (spans["end_ns"] >= spans["begin_ns"]).all()


def test_the_span_of_a_call_has_the_lane_of_its_thread():
    plan = make_plan("host k1 w h; host k1 w h")
    first, second = plan.phases["decode"]
    program = unroll(
        replace(plan, phases={"decode": (first, replace(second, thread=1))}), ["decode"]
    )
    executor = executor_of(program)
    executor.run(0, 2, 1, 0, 1)
    assert program.n_threads == 2
    assert executor.recorder.take()["lane"].tolist() == [0, 1]


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_it_reports_how_many_steps_it_completed(steps):
    executor = executor_of(unroll(make_plan("sync s"), ["decode"]))
    assert executor.run(0, 1, 1, 5, steps) == (0, steps)
    assert len(executor.recorder.take()) == steps


def test_a_stop_asked_for_before_takes_effect_before_the_next_step_and_once():
    executor = executor_of(unroll(make_plan("sync s"), ["decode"]))
    executor.stop()
    assert executor.run(0, 1, 1, 0, 5) == (Executor.STOPPED, 0)
    assert executor.run(0, 1, 1, 0, 5) == (0, 5)


def test_another_thread_can_stop_a_run_between_two_steps():
    executor = executor_of(unroll(make_plan("sync s; sync t"), ["decode"]), ring=SpanRing(4))
    timer = threading.Timer(0.02, executor.stop)
    timer.start()
    status, done = executor.run(0, 2, 1, 0, 1 << 30)
    timer.join()
    assert status == Executor.STOPPED
    assert 0 < done < 1 << 30
    assert executor.recorder.dropped == 2 * done - 16


@pytest.mark.parametrize(
    ("row0", "n_ops", "period"),
    [
        (-1, 1, 1),
        (0, -1, 1),
        (0, 1, 0),
        (0, 4, 1),
        (3, 1, 1),
        (1, 1, 3),
        (0, 2, 2),
        (1 << 62, 1, 1),
    ],
)
def test_rows_outside_the_program_are_refused(row0, n_ops, period):
    executor = executor_of(unroll(make_plan("sync s; sync s; sync s"), ["decode"]))
    with pytest.raises(ValueError, match="outside the bound program"):
        executor.run(row0, n_ops, period, 0, 1)


def test_members_of_graphs_are_no_rows_to_issue():
    program = unroll(make_plan("s k1 w d", graphs=True), ["decode"] * 3)
    assert len(program.members) == 1
    with pytest.raises(ValueError, match="outside the bound program"):
        executor_of(program).run(len(program.ops), 1, 1, 0, 1)


def test_a_backend_without_a_program_is_refused():
    backend = Backend()
    executor = Executor(backend, SpanRing(4))
    with pytest.raises(ValueError, match="bind one first"):
        executor.run(0, 0, 1, 0, 1)
    backend.bind(unroll(make_plan("sync s"), ["decode"]), executor.recorder)
    assert executor.run(0, 1, 1, 0, 1) == (0, 1)
    backend.close()
    backend.close()
    with pytest.raises(ValueError, match="bind one first"):
        executor.run(0, 1, 1, 0, 1)


def test_kinds_that_are_no_verbs_are_refused():
    program = unroll(make_plan("sync s"), ["decode"])
    program.ops["kind"] = Kind.MEMSET
    with pytest.raises(UsageError, match="0: MEMSET can be analysed, not issued"):
        Backend().bind(program, SpanRing(4))


def test_an_empty_program_can_be_issued():
    backend = SimBackend(PROFILE, named_costs(make_plan("sync s")), compute=False)
    for each in (Backend(), backend):
        executor = executor_of(unroll(make_plan("sync s"), []), each)
        assert executor.run(0, 0, 1, 0, 3) == (0, 3)


# ---- on the simulated device --------------------------------------------------------------------

ACCEPT = KERNELS["accept_token"].instance(V=8, N=4)
WRITE = KERNELS["write_out_ids"].instance(T=3)


def simulated(text, contents, **fields):
    """Bind one host op, with fields changed, whose buffers hold `contents`."""
    plan = make_plan(text, nbytes=8)
    ops = tuple(replace(op, **fields) if op.kernel else op for op in plan.phases["decode"])
    size = {name: array.nbytes for name, array in contents.items()}
    plan = replace(
        plan,
        phases={"decode": ops},
        buffers=tuple(replace(each, nbytes=size[each.name]) for each in plan.buffers),
    )
    backend = SimBackend(PROFILE, host_table([ACCEPT, WRITE]))
    backend.load(contents)
    return executor_of(unroll(plan, ["decode"]), backend)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_op_is_skipped_when_its_count_is_zero_at_issue(count):
    counter = np.array([count], np.int64)
    out = np.full(1, 77, np.int32)
    executor = simulated(
        f"x: host {WRITE.name} w h; s copy ha db",
        {"h": out, "ha": counter, "db": np.zeros(1, np.int64)},
        count="ha",
    )
    assert executor.run(0, 2, 1, 0, 1) == (0, 1)
    issued = executor.recorder.take()
    assert [row for row, role in zip(issued["op"], issued["role"], strict=True) if not role] == (
        [0, 1] if count else [1]
    )
    assert out[0] == (2 if count else 77)
    counter[0] = 1 - bool(count)
    executor.run(0, 2, 1, 0, 1)
    assert out[0] == 2


def test_a_kernel_that_refuses_ends_the_run_and_says_where():
    token = np.array([3], np.int32)
    executor = simulated(
        f"x: host {ACCEPT.name} r hb r hc w hd",
        {"hb": token, "hc": np.zeros(1, np.int64), "hd": np.zeros(4, np.int32)},
    )
    assert executor.run(0, 1, 1, 0, 3) == (0, 3)
    token[0] = 9
    status, done = executor.run(0, 1, 1, 3, 4)
    assert (status != 0, done) == (True, 0)
    assert executor.recorder.take()["step"].tolist() == [0, 1, 2, 3]
    with pytest.raises(KernelFault, match=r"step 3, x: token.* 9 outside 0\.\.7") as caught:
        executor.backend.raise_fault(unroll(make_plan("x: sync s"), ["decode"]), status)
    assert (caught.value.step, caught.value.site, caught.value.value) == (3, "x", 9)
