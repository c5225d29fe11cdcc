"""The simulated device: memory for buffers, kernels that compute, counts."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.plans import PROFILE, make_plan, named_costs, run_by_hand
from syncscope.kernels.host import host_table
from syncscope.kernels.signature import KERNELS
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import DeviceError, KernelFault, UsageError
from syncscope.sched_core.program import NO_KERNEL, unroll
from syncscope.sched_core.recorder import SpanRing
from syncscope.sched_core.sim_backend import SimBackend

ACCEPT = KERNELS["accept_token"].instance(V=8, N=4)
ARGMAX = KERNELS["argmax"].instance(V=4)
COPY = make_plan("s copy h d; s copy d hb; sync s")


def backend_of(*instances, late=(), **contents):
    backend = SimBackend(PROFILE, host_table(instances), late)
    backend.load(contents)
    return backend


def sized(plan, **nbytes):
    return replace(
        plan, buffers=tuple(replace(b, nbytes=nbytes.get(b.name, b.nbytes)) for b in plan.buffers)
    )


def test_given_contents_are_read_and_other_buffers_begin_as_zeros():
    backend = backend_of(h=np.arange(16, dtype=np.uint8))
    backend.bind(unroll(COPY, ["decode"]), SpanRing(4))
    assert backend.read("h").tolist() == list(range(16))
    assert backend.read("d").tolist() == [0] * 16


def test_contents_are_used_in_place_and_read_returns_a_copy():
    target = np.zeros(4, np.float32)
    backend = backend_of(h=np.arange(4, dtype=np.float32), hb=target)
    engine = Engine(backend, COPY)
    engine.run("decode", 1)
    assert target.tolist() == [0, 1, 2, 3]
    backend.read("hb")[:] = 9
    assert target.tolist() == [0, 1, 2, 3]


def test_contents_of_another_size_are_refused():
    with pytest.raises(UsageError, match="buffer h has 16 B, its contents 3 B"):
        backend_of(h=np.zeros(3, np.uint8)).bind(unroll(COPY, ["decode"]), SpanRing(4))


def test_each_slot_has_memory_of_its_own():
    plan = make_plan("s copy h d; sync s", depth={"d": 3})
    backend = backend_of(h=np.full(16, 7, np.uint8))
    engine = Engine(backend, plan)
    engine.run("decode", 2)
    assert [int(backend.read("d", slot)[0]) for slot in range(3)] == [7, 7, 0]
    with pytest.raises(KeyError):
        backend.read("d", 3)
    with pytest.raises(KeyError):
        backend.read("nowhere")


def test_what_a_buffer_held_survives_another_bind_also_at_another_depth():
    backend = backend_of(h=np.full(16, 7, np.uint8))
    engine = Engine(backend, COPY)
    engine.run("decode", 1)
    deeper = tuple(replace(b, depth=2) if b.name == "d" else b for b in COPY.buffers)
    engine.set_plan(replace(COPY, buffers=deeper))
    assert backend.read("d", 0).tolist() == [7] * 16
    assert backend.read("d", 1).tolist() == [0] * 16


def test_kernels_compute_what_their_host_twins_do():
    plan = sized(make_plan(f"s copy d h; sync s; host {ARGMAX.name} r h w ha"), ha=4)
    logits = np.array([1, 5, 9, 2], np.float32)
    backend = backend_of(ARGMAX, d=logits)
    Engine(backend, plan).run("decode", 1)
    assert backend.read("ha").view(np.int32)[0] == 2


def test_a_kernel_on_a_late_stream_runs_when_something_waits_for_it():
    plan = sized(make_plan(f"s {ARGMAX.name} r d w db; s copy db ha; k: sync s"), db=4, ha=4)
    backend = backend_of(ARGMAX, late=["s"], d=np.array([1, 5, 9, 2], np.float32))
    engine = Engine(backend, replace(plan, phases={"decode": plan.phases["decode"][:2]}))
    engine.run("decode", 1)
    assert backend.read("ha").view(np.int32)[0] == 0
    engine.drain()
    assert backend.read("ha").view(np.int32)[0] == 2


def test_data_read_while_stale_is_reported_as_a_fault_with_its_place():
    text = f"s copy da hb\nhost {ACCEPT.name} r hb r hc w hd\nsync s"
    plan = sized(make_plan(text), da=4, hb=4, hc=8)
    stale, fresh = np.array([99], np.int32), np.array([5], np.int32)
    engine = Engine(backend_of(ACCEPT, late=["s"], da=fresh, hb=stale.copy()), plan)
    with pytest.raises(KernelFault, match=r"step 0, 1: token.* 99 outside 0\.\.7"):
        engine.run("decode", 2)
    assert engine.backend.counts[0] == 1
    early = Engine(backend_of(ACCEPT, da=fresh, hb=stale.copy()), plan)
    assert early.run("decode", 2) == 2


def test_after_a_fault_nothing_more_takes_effect():
    text = f"host {ACCEPT.name} r hb r hc w hd; s copy ha d"
    plan = sized(make_plan(text), hb=4, hc=8)
    backend = backend_of(ACCEPT, hb=np.array([-1], np.int32), ha=np.full(16, 7, np.uint8))
    engine = Engine(backend, plan)
    for _ in range(2):
        with pytest.raises(KernelFault, match="step 0"):
            engine.run("decode", 1)
    with pytest.raises(KernelFault, match="step 0"):
        engine.drain()
    assert backend.read("d").tolist() == [0] * 16


def test_a_kernel_that_the_table_lacks_is_refused_when_bound():
    with pytest.raises(UsageError, match=r"no kernel nothing here; known: 1 instances"):
        backend_of(ARGMAX).bind(unroll(make_plan("s nothing w d"), ["decode"]), SpanRing(4))


def test_an_op_without_a_kernel_fails_instead_of_crashing():
    plan = make_plan("host k w h")
    op = replace(plan.phases["decode"][0], kernel="")
    engine = Engine(backend_of(), replace(plan, phases={"decode": (op,)}))
    with pytest.raises(DeviceError, match="step 0, 0: status 2 of the device"):
        engine.run("decode", 1)
    assert unroll(engine.plan, ["decode"]).ops["kernel"][0] == NO_KERNEL


def test_counts_add_up_over_plans_and_stale_reads_have_a_place():
    racy = make_plan("s k1 w d; here: t k1 r d; s record f; t wait e")
    backend, engine = run_by_hand(racy, late=["s"])
    assert backend.counts == (1, 0, 1)
    assert backend.stale_reads() == [(0, "decode", "here", "d")]
    engine.set_plan(racy)
    engine.run("decode", 1)
    assert backend.counts == (2, 0, 2)


def test_without_computing_there_is_no_memory_and_the_same_time():
    spans = []
    for compute in (True, False):
        backend = SimBackend(PROFILE, KernelTable(), (), compute)
        backend.load({"h": np.zeros(16, np.uint8)})
        engine = Engine(backend, COPY)
        engine.run("decode", 3)
        spans.append(engine.take_spans())
    assert np.array_equal(*spans)
    with pytest.raises(KeyError):
        backend.read("h")


def test_it_gives_its_memory_back_once():
    backend = backend_of(h=np.zeros(16, np.uint8))
    backend.bind(unroll(COPY, ["decode"]), SpanRing(4))
    backend.close()
    backend.close()
    assert backend.rows is None
    with pytest.raises(KeyError):
        backend.read("h")


def test_streams_are_late_by_name():
    backend = SimBackend(PROFILE, named_costs(COPY), ["s", "t"], compute=False)
    assert backend.late == {"s", "t"}
    assert (backend.profile, backend.compute) == (PROFILE, False)


# ---- beginning again ----------------------------------------------------------------------------


def test_a_reset_gives_written_buffers_their_first_bytes_and_leaves_the_others():
    weights = np.arange(16, dtype=np.uint8)
    backend = backend_of(h=weights, d=np.full(16, 5, np.uint8))
    engine = Engine(backend, make_plan("s copy h d; s copy d hb; sync s", depth={"hb": 2}))
    engine.run("decode", 2)
    assert backend.read("hb", 1).tolist() == weights.tolist()
    weights[:] = 3  # nothing writes it: it is used in place as before
    engine.restart({"d": np.full(16, 6, np.uint8)})
    assert backend.read("d").tolist() == [6] * 16
    assert [backend.read("hb", slot).tolist() for slot in range(2)] == [[0] * 16] * 2
    assert backend.read("h").tolist() == [3] * 16


def test_after_a_reset_no_byte_is_stale_whoever_wrote_it_last():
    plan = make_plan({"prompt": "s copy h d; t copy hb d", "decode": "s copy d hc; sync s"})
    backend = backend_of(late=["s"])
    engine = Engine(backend, plan)
    engine.run("prompt", 1)
    engine.restart({})
    assert backend.counts[:2] == (0, 1)
    engine.run("decode", 1)
    assert backend.counts[:2] == (0, 1)


def test_a_new_data_order_holds_from_the_next_program_on():
    plan = make_plan("s copy h d; t copy d hb; sync t; sync s")
    backend = backend_of()
    engine = Engine(backend, plan)
    engine.run("decode", 1)
    backend.late = {"s"}
    engine.run("decode", 1)
    assert backend.counts[0] == 0
    engine.set_plan(plan)
    engine.run("decode", 1)
    assert backend.counts[0] == 1


def test_a_host_buffer_is_seen_as_it_is_now():
    backend = backend_of(h=np.full(16, 7, np.uint8), late=["s"])
    engine = Engine(backend, make_plan("s copy h hb; sync s"))
    assert backend.peek("hb").tolist() == [0] * 16
    engine.run("decode", 1)
    assert backend.peek("hb").tolist() == [7] * 16
    backend.peek("hb")[:] = 1
    assert backend.peek("hb").tolist() == [7] * 16
