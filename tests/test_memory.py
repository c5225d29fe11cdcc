"""The simulator's data order: it sees exactly the races that a program has."""

import numpy as np
import pytest
from hypothesis import given

from helpers.order import Order
from helpers.plans import PROFILE, make_plan, run_by_hand
from helpers.programs import QUICK, data_orders, issue, plans, run_rows, unrolled
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.sim_backend import SimBackend


def harm(plan, steps=1):
    """Stale reads and wrong last writes of each data order, by the names of the late streams."""
    found = {}
    for late in data_orders(plan):
        backend, _ = run_by_hand(plan, ["decode"] * steps, late)
        found[late] = backend.counts[:2]
    return found


def is_safe(plan, steps=1):
    return not any(map(any, harm(plan, steps).values()))


# ---- races --------------------------------------------------------------------------------------


def test_a_read_that_nothing_orders_after_the_write_is_stale_when_the_write_is_late():
    found = harm(make_plan("s k1 w d; t k1 r d"))
    assert found[("s",)] == (1, 0)
    assert found[()] == (0, 0)


def test_a_write_that_nothing_orders_after_a_read_is_seen_when_the_read_is_late():
    found = harm(make_plan("s k1 r d; t k1 w d"))
    assert found[("s",)] == (1, 0)
    assert found[()] == (0, 0)


def test_a_write_that_nothing_orders_after_a_write_is_a_wrong_last_write():
    found = harm(make_plan("s k1 w d; t k1 w d"))
    assert found[("s",)] == (0, 1)
    assert found[()] == (0, 0)


@pytest.mark.parametrize("uses", ["w d / r d", "r d / w d", "w d / w d"])
@pytest.mark.parametrize(
    "between",
    [
        "sync s",
        "sync dev.t",
        "s record e; sync e",
        "s record e; t wait e",
        "s record e; u wait e; u record f; t wait f",
        "s record e; u wait e; sync u",
    ],
)
def test_no_data_order_does_harm_where_a_sync_stands_between(uses, between):
    first, second = uses.split(" / ")
    assert is_safe(make_plan(f"s k1 {first}; {between}; t k1 {second}", "s t u"))
    assert not is_safe(make_plan(f"s k1 {first}; t k1 {second}", "s t u"))


def test_the_host_races_with_a_copy_that_still_reads_its_pinned_source():
    assert not is_safe(make_plan("host w w h; s copy h d; host w w h"))
    assert is_safe(make_plan("host w w h; s copy h d; sync s; host w w h"))


def test_the_host_reads_too_early_what_a_copy_brings_back():
    assert not is_safe(make_plan("s copy d h; host k r h; s k w d"))
    assert is_safe(make_plan("s copy d h; sync s; host k r h; s k w d"))


def test_a_ring_without_its_event_only_delays_the_hazard():
    text = "host w w h; s copy h d; s k1 r d"
    deep = make_plan(text, depth={"h": 2})
    assert is_safe(deep, steps=2)
    assert not is_safe(deep, steps=3)
    guarded = make_plan(f"sync e; {text}; s record e", depth={"h": 2, "e": 2})
    assert is_safe(guarded, steps=6)


def test_a_race_over_two_streams_shows_only_when_the_third_does_not_hide_it():
    plan = make_plan("s k1 w d; s record e; u wait e; u k1 r d; t k1 r d", "s t u")
    found = harm(plan)
    assert found[("s", "u")] == (1, 0)
    assert found[("s",)] == (0, 0)


# ---- byte ranges --------------------------------------------------------------------------------


def test_ranges_that_touch_do_not_conflict_and_ranges_that_overlap_by_a_byte_do():
    assert is_safe(make_plan("s k1 w d[0:8]; t k1 r d[8:16]"))
    assert not is_safe(make_plan("s k1 w d[0:9]; t k1 r d[8:16]"))


def test_slots_of_one_buffer_do_not_conflict():
    text = "s k1 w d; t k1 r d@1"
    assert not is_safe(make_plan(text))
    assert is_safe(make_plan(text, depth={"d": 2}))


def test_one_access_with_several_stale_cells_counts_once():
    plan = make_plan("s k1 w d[0:4]; s k1 w d[4:8]; t k1 r d[0:8]")
    assert harm(plan)[("s",)] == (1, 0)


# ---- events -------------------------------------------------------------------------------------


def test_a_wait_for_an_event_that_was_never_recorded_orders_nothing_and_is_counted():
    for wait in ("t wait e", "sync e"):
        plan = make_plan(f"s k1 w d; {wait}; t k1 r d; s record e")
        assert run_by_hand(plan)[0].counts == (0, 0, 1)
        assert not is_safe(plan)


def test_a_wait_means_the_last_record_before_it():
    stale = make_plan("s record e; s k1 w d; t wait e; t k1 r d")
    assert not is_safe(stale)
    assert is_safe(make_plan("s record e; s k1 w d; s record e; t wait e; t k1 r d"))


def test_a_later_record_does_not_move_a_wait_that_was_issued_before():
    plan = make_plan("s record e; t wait e; s k1 w d; s record e; t k1 r d")
    assert not is_safe(plan)


def test_event_slots_are_told_apart():
    text = "s k1 w d; s record e; t wait e; t k1 r d; t record f; s wait f"
    assert is_safe(make_plan(text, depth={"e": 2, "f": 2}), steps=5)


def test_an_event_of_one_device_orders_a_stream_of_another():
    assert is_safe(make_plan("s k1 w d; s record e; t wait e; t k1 r d", "s t@1"))
    assert not is_safe(make_plan("s k1 w d; sync dev.t; t k1 r d", "s t@1"))


# ---- implicit order -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ordered"), [("blocking", True), ("per_thread_default", True), ("nonblocking", False)]
)
@pytest.mark.parametrize("text", ["s k1 w d; z k1 r d", "z k1 w d; s k1 r d"])
def test_the_legacy_stream_orders_blocking_streams_and_no_other(kind, ordered, text):
    assert is_safe(make_plan(text, f"s:{kind} z:legacy_default")) is ordered


def test_two_blocking_streams_do_not_order_each_other():
    assert not is_safe(make_plan("s k1 w d; t k1 r d", "s:blocking t:blocking"))
    assert not is_safe(make_plan("s k1 w d; t k1 r d", "s:blocking t:per_thread_default"))


def test_the_legacy_stream_orders_its_own_device_alone():
    assert not is_safe(make_plan("s k1 w d; z k1 r d", "s:blocking z:legacy_default@1"))


def test_work_on_the_legacy_stream_passes_order_on_from_one_blocking_stream_to_another():
    plan = make_plan("s k1 w d; z k1 r d2; t k1 r d", "s:blocking t:blocking z:legacy_default")
    assert is_safe(plan)


def test_a_sync_of_the_legacy_stream_waits_for_blocking_streams():
    assert is_safe(make_plan("s copy d h; sync z; host k w h", "s:blocking z:legacy_default"))
    assert not is_safe(make_plan("s copy d h; sync z; host k w h", "s z:legacy_default"))


# ---- host memory --------------------------------------------------------------------------------


def test_a_copy_from_pageable_memory_has_read_its_source_when_it_returns():
    assert is_safe(make_plan("host k w p; s copy p d; host k w p; sync s"))


def test_a_copy_from_pageable_memory_still_writes_late():
    assert not is_safe(make_plan("s copy p d; t k1 r d"))


def test_a_copy_to_pageable_memory_is_done_when_it_returns():
    assert is_safe(make_plan("s k1 w d; s copy d p; host k r p; t k1 r d"))


def test_a_blocking_copy_is_done_when_it_returns():
    assert is_safe(make_plan("s k1 w d; s copy! d h; host k r h; t k1 r d"))


# ---- limits -------------------------------------------------------------------------------------


def test_more_pending_work_than_fits_changes_no_result():
    plan = make_plan("host k w h[0:8]\ns copy h d\ns k1 r d\nsync s")
    assert not any(run_by_hand(plan, ["decode"] * 3, ["s", "t"])[0].counts)
    deep = make_plan("\n".join(["t k1 w d", "s k1 w dq", "s k1 r dq"] * 3000))
    assert run_by_hand(deep, late=["s", "t"])[0].counts == (0, 0, 0)


def test_more_staged_copies_than_fit_change_no_result():
    pairs = "\n".join(
        f"t copy! h{'abc'[i % 3]}[0:1] p[0:1]\ns copy p[0:1] d[{i}:{i + 1}]" for i in range(200)
    )
    late, counts = copied(pairs, ("s", "t"), nbytes=200)
    assert counts == (0, 0)
    assert late == copied(pairs, (), nbytes=200)[0]
    assert late["d"] == [[late[f"h{x}"][0] for x in "abc"][i % 3] for i in range(200)]


def test_more_expected_versions_than_fit_change_no_result():
    cells = " ".join(f"w d[{i}:{i + 1}]" for i in range(300))
    reads = "\n".join(["s k1 r d"] * 10)
    plan = make_plan(f"s k1 {cells}\n{reads}", nbytes=300)
    assert not any(run_by_hand(plan, ["decode"] * 60, ["s"])[0].counts)


def test_a_race_within_the_limits_is_seen_behind_much_other_pending_work():
    other = "\n".join(["u k1 w dq"] * 3000)
    assert not is_safe(make_plan(f"s k1 w d\n{other}\nt k1 r d", "s t u"))


def test_every_access_keeps_the_place_of_its_first_stale_read_and_all_are_counted():
    lines = ["s k1 w d", *["t k1 r d"] * 99, "last: t k1 r d r da", "s k1 w da"]
    backend, _ = run_by_hand(make_plan("\n".join(lines)), ["decode"] * 50, late=["s"])
    assert backend.counts[0] > 50 * 100
    reads = [*((f"{i}", "d") for i in range(1, 100)), ("last", "d")]
    first = [(0, "decode", *read) for read in reads]
    again = [(2, "decode", *read) for read in [*reads, ("last", "da")]]  # rows that follow replays
    assert backend.stale_reads() == [*first, (1, "decode", "last", "da"), *again]


def test_wrong_last_writes_keep_their_place_apart_from_stale_reads():
    text = "one: s k1 w d; t k1 w d; two: s k1 w da; t k1 w da; sync s; read: u k1 r d; sync dev.s"
    backend, _ = run_by_hand(make_plan(text, "s t u"), ["decode"] * 80, late=["s"])
    assert backend.counts == (80, 160, 0)
    first = [(0, "decode", "one", "d"), (0, "decode", "two", "da")]
    assert backend.wrong_writes() == [*first, *((2, *each[1:]) for each in first)]
    assert backend.stale_reads() == [(step, "decode", "read", "d") for step in (0, 2)]


def test_members_of_a_graph_keep_their_places():
    plan = make_plan("s k1 w d; s k1 w da; x: t k1 r d w da", graphs=True)
    backend, _ = run_by_hand(plan, ["decode"] * 4, late=["s"])
    assert {each[2:] for each in backend.stale_reads()} == {("x", "d")}
    assert {each[2:] for each in backend.wrong_writes()} == {("1", "da")}


# ---- bytes --------------------------------------------------------------------------------------


def copied(text, late, steps=1, **options):
    """Bytes of every buffer after copies, each buffer first filled with its own number."""
    plan = make_plan({"decode": text}, **options)
    backend = SimBackend(PROFILE, KernelTable(), late)
    backend.load({b.name: np.full(b.nbytes, i + 1, np.uint8) for i, b in enumerate(plan.buffers)})
    engine = Engine(backend, plan)
    engine.run("decode", steps)
    engine.drain()
    return {b.name: backend.read(b.name).tolist() for b in plan.buffers}, backend.counts[:2]


def test_a_stale_read_finds_the_old_bytes():
    text = "s copy ha da; t copy da hb"
    assert copied(text, (), nbytes=2)[0] == {"ha": [1, 1], "da": [1, 1], "hb": [1, 1]}
    assert copied(text, ("s",), nbytes=2) == ({"ha": [1, 1], "da": [1, 1], "hb": [2, 2]}, (1, 0))


def test_a_wrong_last_write_leaves_the_old_bytes():
    text = "s copy ha d; t copy hb d"
    assert copied(text, ("s",), nbytes=1) == ({"ha": [1], "d": [1], "hb": [3]}, (0, 1))
    assert copied(text, ("t",), nbytes=1) == ({"ha": [1], "d": [3], "hb": [3]}, (0, 0))


def test_a_staged_copy_brings_the_bytes_of_its_issue():
    text = "s copy p d; t copy! h p"
    assert copied(text, ("s",), nbytes=1) == ({"p": [3], "d": [1], "h": [3]}, (0, 0))


def test_copies_move_exactly_their_range():
    text = "s copy ha[2:4] da[5:7]"
    assert copied(text, ("s",), nbytes=8)[0]["da"] == [2, 2, 2, 2, 2, 1, 1, 2]


# ---- any program --------------------------------------------------------------------------------


@QUICK
@given(plans())
def test_some_data_order_does_harm_if_and_only_if_two_conflicting_accesses_are_unordered(drawn):
    plan, steps = drawn
    program = unrolled(plan, steps)
    races = Order(program).races()
    harmful = [late for late in data_orders(plan) if any(issue(program, plan, late)[0].counts[:2])]
    assert bool(races) == bool(harmful), (races[:5], harmful)


@QUICK
@given(plans(kernels=False))
def test_a_data_order_without_harm_leaves_the_bytes_of_issue_order(drawn):
    plan, steps = drawn
    program = unrolled(plan, steps)

    def outcome(late):
        backend = SimBackend(PROFILE, KernelTable(), late)
        backend.load(
            {
                b.name: np.arange(b.nbytes, dtype=np.uint8) + 16 * i
                for i, b in enumerate(plan.buffers)
            }
        )
        run_rows(backend, program)
        slots = [(b.name, slot) for b in plan.buffers for slot in range(b.depth)]
        return any(backend.counts[:2]), [backend.read(*each).tolist() for each in slots]

    harmed, expected = outcome(())
    assert not harmed
    for late in data_orders(plan):
        harmed, found = outcome(late)
        assert harmed or found == expected
