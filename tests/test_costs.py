"""Profiles, and what each row costs under one."""

import json
from dataclasses import fields, replace
from importlib import resources

import numpy as np
import pytest

from helpers.plans import PROFILE, make_plan
from syncscope.sched_core.costs import PROFILES, Profile, load_profile, profile_rows, row_costs
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.program import unroll


def costs(text, steps=1, kernels=None, profile=PROFILE, **options):
    program = unroll(make_plan(text, **options), ["decode"] * steps)
    return row_costs(program, profile, kernels or {})


def test_calls_cost_what_the_profile_says():
    found = costs("s record e; s wait e; sync s; sync e; sync dev.s; s k1 w d; s copy h d")
    assert found.call_ns.tolist() == [1, 1, 3, 3, 3, 10, 4]
    assert (found.launch_start_ns, found.graph_start_ns, found.copy_start_ns) == (5, 7, 2)
    assert found.sync_return_ns == 6


def test_a_kernel_costs_a_base_and_the_larger_of_traffic_and_arithmetic():
    profile = replace(
        PROFILE, kernel_ns=100, device_bytes_per_ns=2, device_macs_per_ns=4,
        host_ns=7, host_bytes_per_ns=1, host_macs_per_ns=0.5,
    )  # fmt: skip
    kernels = {"traffic": (60.0, 8.0), "arithmetic": (2.0, 400.0)}
    text = "s traffic w d; s arithmetic w d; host traffic w h; host arithmetic w h; s other w d"
    found = costs(text, kernels=kernels, profile=profile)
    assert found.exec_ns.tolist() == [100 + 30, 100 + 100, 0, 0, 100]
    assert found.call_ns.tolist() == [10, 10, 7 + 60, 7 + 800, 10]


def test_what_a_kernel_moves_counts_and_not_what_it_may_touch():
    few = costs("s k w d", kernels={"k": (8.0, 0.0)}, nbytes=1 << 40)
    assert few.exec_ns.tolist() == [0]


def test_a_graph_costs_a_call_and_something_per_member_which_costs_no_call_of_its_own():
    found = costs("s a w d; s b w d", steps=3, kernels={"a": (0, 11.0), "b": (0, 5.0)}, graphs=True)
    assert found.call_ns.tolist()[:5] == [10, 10, 10, 10, 20 + 2]
    assert found.exec_ns.tolist()[4:] == [0, 11, 5]


def test_copies_use_the_engine_and_the_rate_of_their_direction():
    found = costs("s copy h d; s copy d h; s copy h[0:4] d[0:4]; s k1 w d")
    assert found.engine.tolist() == [0, 1, 0, -1]
    assert found.exec_ns.tolist() == [30 + 16, 30 + 8, 30 + 4, 0]


def test_pageable_memory_costs_the_host_its_staging():
    found = costs("s copy p d; s copy d p; s copy p[0:8] d[0:8]")
    assert found.call_ns.tolist() == [9 + 4, 9 + 4, 9 + 2]


def test_calls_that_return_after_their_copy_are_marked():
    found = costs("s copy h d; s copy! h d; s copy d h; s copy d p; s copy p d; s k1 w d")
    assert found.waits.tolist() == [0, 1, 0, 1, 0, 0]


def test_costs_are_whole_nanoseconds_of_every_row():
    program = unroll(make_plan("s copy h d; s a w d", graphs=True), ["decode"] * 5)
    found = row_costs(program, load_profile("h200"), {"a": (1e6, 1.0)})
    n = len(program.ops) + len(program.members)
    assert len(found.call_ns) == len(found.exec_ns) == len(found.engine) == len(found.waits) == n
    assert found.call_ns.dtype == found.exec_ns.dtype == np.int64


@pytest.mark.parametrize("name", PROFILES)
def test_every_shipped_profile_is_complete_and_says_where_its_figures_come_from(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.status in ("calibrated", "provisional", "estimated")
    assert profile.device_name and profile.source
    path = resources.files("syncscope.sched_core") / "profiles" / f"{name}.json"
    assert set(json.loads(path.read_text(encoding="utf-8"))) == {
        each.name for each in fields(Profile)
    }
    for each in fields(Profile):
        value = getattr(profile, each.name)
        assert isinstance(value, str) or value > 0


def test_profiles_are_listed_with_their_status():
    rows = {row["profile"]: row["status"] for row in profile_rows()}
    assert rows == {name: load_profile(name).status for name in PROFILES}
    assert rows["rtx3090"] == "estimated"
    assert rows["h200"] != "estimated"


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(UsageError, match=r"unknown profile h20; did you mean h200\?"):
        load_profile("h20")
