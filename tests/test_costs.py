"""What each row costs under a profile: sums done by hand."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.plans import PROFILE, make_plan
from syncscope.sched_core.costs import Work, host_time_ns, kernel_time_ns, row_costs
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.program import unroll

KERNEL = replace(
    PROFILE, kernels={"matrix": 100.0}, kernel_ns=7, l2_load_ns=10, memory_load_ns=30,
    l2_nbytes=1000, device_bytes_per_ns=2, device_macs_per_ns=4,
)  # fmt: skip
"""A kernel named ``matrix`` takes 100 and what its loads, traffic or arithmetic add."""


def costs(text, steps=1, kernels=None, profile=PROFILE, **options):
    program = unroll(make_plan(text, **options), ["decode"] * steps)
    return row_costs(program, profile, kernels or {})


def test_calls_cost_what_the_profile_says():
    found = costs("s record e; s wait e; sync s; sync e; sync dev.s; s k1 w d; s copy h d")
    assert found.call_ns.tolist() == [1, 1, 3, 3, 3, 10, 4]
    assert (found.launch_start_ns, found.graph_start_ns, found.copy_start_ns) == (5, 7, 2)
    assert found.sync_return_ns == 6
    changed = costs("sync s", profile=replace(PROFILE, launch_gap_ns=8, switch_ns=9))
    assert (changed.launch_gap_ns, changed.switch_ns) == (8, 9)


# ---- kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "near", "far"),
    [
        (Work(kernel="matrix"), 100, 100),
        (Work(kernel="other"), 7, 7),
        (Work(kernel="matrix", l2_loads=3), 130, 130),
        (Work(kernel="matrix", loads=5), 150, 250),  # each load waits for the one before
        (Work(40.0, kernel="matrix", loads=1), 100 + 10, 100 + 30 + 20),
        (Work(230.0, kernel="matrix", loads=5), 100 + 50, 100 + 150),  # loads take longer
        (Work(250.0, kernel="matrix", loads=5), 100 + 50, 100 + 30 + 125),  # traffic does
        (Work(40.0, kernel="matrix"), 100, 120),  # no load to wait for
        (Work(40.0, 4000.0, "matrix", 1, 5), 110 + 1000, 110 + 1000),  # arithmetic
    ],
)
def test_a_kernel_takes_a_fixed_time_and_what_limits_it(work, near, far):
    assert kernel_time_ns(work, KERNEL, from_memory=False) == near
    assert kernel_time_ns(work, KERNEL, from_memory=True) == far


def test_loads_come_from_memory_where_a_step_moves_more_than_the_cache_holds():
    kernels = {"a": Work(600.0, kernel="matrix", loads=50), "b": Work(401.0)}
    from_memory = 100 + 50 * 30
    for graphs in (False, True):
        one = costs("s a w d", 3, kernels, KERNEL, graphs=graphs).exec_ns
        two = costs("s a w d; s b w d", 3, kernels, KERNEL, graphs=graphs).exec_ns
        assert set(one[one > 0].tolist()) == {100 + 50 * 10}
        assert from_memory in two.tolist() and 100 + 50 * 10 not in two.tolist()


def test_what_the_host_moves_does_not_fill_the_cache():
    kernels = {"a": Work(600.0, kernel="matrix", loads=50), "b": Work(401.0)}
    assert costs("s a w d; host b w h", 1, kernels, KERNEL).exec_ns.tolist()[0] == 600


def test_host_work_takes_a_call_and_the_larger_of_traffic_and_arithmetic():
    profile = replace(PROFILE, host_ns=7, host_bytes_per_ns=1, host_macs_per_ns=0.5)
    assert host_time_ns(Work(60.0, 8.0), profile) == 7 + 60
    assert host_time_ns(Work(2.0, 400.0), profile) == 7 + 800
    found = costs("host a w h; s a w d", kernels={"a": Work(60.0, 8.0)}, profile=profile)
    assert found.call_ns.tolist() == [67, 10]


def test_what_a_kernel_moves_counts_and_not_what_it_may_touch():
    work = Work(1000.0, loads=5)
    few = costs("s k w d", kernels={"k": work}, profile=KERNEL, nbytes=1 << 40)
    assert few.exec_ns.tolist() == [7 + 5 * 10]


def test_a_graph_costs_a_call_and_something_per_member_which_costs_no_call_of_its_own():
    kernels = {"a": Work(macs=11.0), "b": Work(macs=5.0)}
    found = costs("s a w d; s b w d", steps=3, kernels=kernels, graphs=True)
    assert found.call_ns.tolist()[:5] == [10, 10, 10, 10, 20 + 2]
    assert found.exec_ns.tolist()[4:] == [0, 11, 5]


# ---- copies -------------------------------------------------------------------------------------


def test_copies_use_the_engine_and_the_rate_of_their_direction():
    found = costs("s copy h d; s copy d h; s copy h[0:4] d[0:4]; s k1 w d; s copy d dx")
    assert found.engine.tolist() == [0, 1, 0, -1, 0]
    assert found.exec_ns.tolist() == [30 + 16, 30 + 8, 30 + 4, 0, 30 + 16]


def test_a_small_copy_to_the_device_travels_with_the_commands():
    profile = replace(PROFILE, inline_nbytes=8, inline_bytes_per_ns=2, inline_ns=11)
    text = "s copy h[0:8] d[0:8]; s copy h[0:9] d[0:9]; s copy d[0:8] h[0:8]; s copy p[0:8] d[0:8]"
    found = costs(text, profile=profile)
    assert found.engine.tolist() == [-1, 0, 1, 0]
    assert found.exec_ns.tolist() == [11 + 8, 30 + 9, 30 + 4, 30 + 8]
    assert found.call_ns.tolist() == [4 + 4, 4, 4, 9 + 2]


def test_pageable_memory_costs_the_host_its_staging():
    found = costs("s copy p d; s copy d p; s copy p[0:8] d[0:8]")
    assert found.call_ns.tolist() == [9 + 4, 9 + 4, 9 + 2]


def test_calls_that_return_after_their_copy_are_marked():
    found = costs("s copy h d; s copy! h d; s copy d h; s copy d p; s copy p d; s k1 w d")
    assert found.waits.tolist() == [0, 1, 0, 1, 0, 0]


def test_costs_are_whole_nanoseconds_of_every_row():
    program = unroll(make_plan("s copy h d; s a w d", graphs=True), ["decode"] * 5)
    found = row_costs(program, load_profile("h200"), {"a": Work(1e6, 1.0, "a", 3, 2.5)})
    n = len(program.ops) + len(program.members)
    assert len(found.call_ns) == len(found.exec_ns) == len(found.engine) == len(found.waits) == n
    assert found.call_ns.dtype == found.exec_ns.dtype == np.int64
