"""Plans become rows with the layout of the C structs."""

import ctypes
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.plans import make_plan, model_plan
from helpers.programs import QUICK
from helpers.shared import ROOT
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.program import (
    ACCESS,
    BLOCKING,
    EAGER_STEPS,
    NO_KERNEL,
    OP,
    period,
    replay_begins,
    tabulate,
    unroll,
)
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import PHASES, Access, Kind
from syncscope.sched_core.verdict import analyse

# ---- layout -------------------------------------------------------------------------------------


def c_layout(struct):
    """Offsets and size of a struct as declared in backend.pxd."""
    text = (ROOT / "sched_core" / "backend.pxd").read_text(encoding="utf-8")
    body = re.search(rf"^ctypedef struct {struct}:.*\n((?: +.*\n)+)", text, re.MULTILINE)[1]
    fields = []
    for line in body.splitlines():
        declaration = re.sub(r"\bconst ", "", line.partition("#")[0]).strip()
        match = re.fullmatch(r"(u?int\d+)_t (.*)|void \*(\w+)", declaration)
        if match:
            kind = getattr(ctypes, f"c_{match[1]}") if match[1] else ctypes.c_void_p
            fields += [(name.strip(), kind) for name in (match[2] or match[3]).split(",")]
    made = type(struct, (ctypes.Structure,), {"_fields_": fields})
    return [(name, getattr(made, name).offset) for name, _ in fields], ctypes.sizeof(made)


@pytest.mark.parametrize(
    ("struct", "dtype", "size"), [("op_t", OP, 64), ("access_t", ACCESS, 24), ("span_t", SPAN, 32)]
)
def test_rows_have_the_layout_of_the_c_structs(struct, dtype, size):
    offsets, nbytes = c_layout(struct)
    assert [(name, dtype.fields[name][1]) for name in dtype.names] == offsets
    assert dtype.itemsize == nbytes == size


# ---- unroll -------------------------------------------------------------------------------------


def test_a_row_says_what_its_op_says():
    plan = make_plan("copy: s copy! h[2:6] d[4:8]; k: t k7 r d w dq; s record e; sync dev.t")
    program = unroll(plan, ["decode"])
    copy, kernel, record, sync = program.ops
    assert (copy["kind"], copy["flags"], copy["stream"], copy["nbytes"]) == (Kind.COPY, 1, 0, 4)
    assert copy["flags"] == BLOCKING and copy["kernel"] == NO_KERNEL
    assert program.accesses[copy["access0"]]["begin"] == 2
    assert program.accesses[copy["access0"] + 1]["end"] == 8
    assert program.kernels[kernel["kernel"]] == "k7"
    assert (kernel["n_access"], kernel["nbytes"], kernel["stream"]) == (2, 32, 1)
    assert (record["event"], record["stream"]) == (0, 0)
    assert (sync["scope"], sync["event"]) == (2, -1)
    assert [program.sites[each].name for each in program.ops["site"]] == ["copy", "k", "2", "3"]
    assert (program.accesses["known"] == 1).all()


def test_slots_of_buffers_and_events_go_round_by_step():
    plan = make_plan("s k1 r h w d@1; s record e", depth={"h": 2, "d": 3, "e": 4})
    program = unroll(plan, ["decode"] * 6)
    assert program.accesses["slot"][0::2].tolist() == [0, 1, 0, 1, 0, 1]
    assert program.accesses["slot"][1::2].tolist() == [1, 2, 0, 1, 2, 0]
    assert program.ops["event"][1::2].tolist() == [0, 1, 2, 3, 0, 1]
    assert program.ops["step"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert program.step0.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert period(plan) == 12


def test_events_have_instances_of_their_own():
    plan = make_plan("s record e; s record f", depth={"e": 3, "f": 2})
    program = unroll(plan, ["decode"] * 4)
    assert program.event_base.tolist() == [0, 3, 5]
    assert program.ops["event"].tolist() == [0, 3, 1, 4, 2, 3, 0, 4]


def test_a_stride_moves_the_range_step_by_step():
    program = unroll(make_plan("s k1 w d[0:4]+4 r dq"), ["decode"] * 4)
    assert program.accesses["begin"][0::2].tolist() == [0, 4, 8, 12]
    assert program.accesses["end"][0::2].tolist() == [4, 8, 12, 16]
    assert set(program.accesses["end"][1::2]) == {16}


@pytest.mark.parametrize("use", ["d[0:17]", "d[12:8]"])
def test_a_range_outside_its_buffer_is_refused(use):
    with pytest.raises(UsageError, match=r"buffer d: bytes .* lie outside its 16"):
        unroll(make_plan(f"s k1 w {use}"), ["decode"])


def test_a_range_that_moves_out_of_its_buffer_is_refused_at_the_step_where_it_does():
    plan = make_plan("s k1 w d[0:4]+4")
    with pytest.raises(UsageError, match=r"buffer d, step 4: bytes 16\.\.20"):
        unroll(plan, ["decode"] * 5)


def test_phases_share_buffers_but_not_sites():
    plan = make_plan({"prompt": "x: s k1 w d", "decode": "x: s k1 r d"})
    program = unroll(plan, ["prompt", "decode", "prompt"])
    assert program.phases == ("prompt", "decode", "prompt")
    assert program.ops["site"].tolist() == [0, 1, 0]
    assert [each.phase for each in program.sites] == ["prompt", "decode"]


def test_no_phases_make_an_empty_program():
    program = unroll(make_plan("s k1 w d"), [])
    assert (len(program.ops), len(program.accesses), program.step0.tolist()) == (0, 0, [0])
    assert program.n_threads == 1


def altered(plan, **fields):
    op = replace(plan.phases["decode"][0], **fields)
    return replace(plan, phases={"decode": (op,)})


@pytest.mark.parametrize(
    ("text", "fields", "lacking"),
    [
        ("s k1 w d", {"stream": ""}, "LAUNCH without a stream"),
        ("s copy h d", {"stream": ""}, "COPY without a stream"),
        ("sync s", {"stream": ""}, "SYNC without a stream"),
        ("sync s", {"scope": "event", "stream": ""}, "SYNC without an event"),
        ("s record e", {"event": ""}, "RECORD without an event"),
        ("s wait e", {"stream": ""}, "WAIT without a stream"),
        ("s copy h d", {"accesses": ()}, "COPY without a source, then a target"),
    ],
)
def test_an_op_that_lacks_what_its_kind_works_on_is_refused(text, fields, lacking):
    with pytest.raises(UsageError, match=f"decode:0: {lacking}"):
        unroll(altered(make_plan(text), **fields), ["decode"])


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        ("s k1 w d", {"stream": "q"}, "decode:0: unknown stream q; known: s, t"),
        ("s record ev", {"event": "ew"}, "decode:0: unknown event ew; did you mean ev?"),
        ("s k1 w d", {"accesses": (Access("x", True),)}, "decode:0: unknown buffer x; known: d"),
        ("s k1 w d", {"count": "n"}, "decode:0: unknown buffer n; known: d"),
        ("sync s", {"scope": "steam"}, "decode:0: unknown scope steam; did you mean stream?"),
        ("s k1 w d", {"thread": -1}, "decode:0: thread -1 lies outside 0..1023"),
        ("s k1 w d", {"thread": 1 << 32}, "decode:0: thread 4294967296 lies outside 0..1023"),
    ],
)
def test_an_op_with_an_unknown_name_or_number_is_refused(text, fields, words):
    plan = altered(make_plan(text), **fields)
    for issue in (lambda: unroll(plan, ["decode"]), lambda: tabulate(plan), lambda: analyse(plan)):
        with pytest.raises(UsageError, match=f"^{re.escape(words)}$"):
            issue()


def test_a_site_that_is_twice_in_a_phase_is_refused():
    with pytest.raises(UsageError, match="decode:x: two ops of this phase have this site"):
        unroll(make_plan("x: s k1 w d; x: sync s"), ["decode"])


@pytest.mark.parametrize(("name", "what"), [("d", "buffer d"), ("e", "event e")])
def test_a_buffer_or_event_without_slots_is_refused(name, what):
    plan = make_plan("s k1 w d; s record e", depth={name: 0})
    with pytest.raises(UsageError, match=f"^{what}: depth 0 is below 1$"):
        analyse(plan)


def test_a_copy_onto_another_number_of_bytes_is_refused():
    with pytest.raises(UsageError, match="decode:0: copies 4 bytes onto 8"):
        unroll(make_plan("s copy h[0:4] d[0:8]"), ["decode"])


# ---- graphs -------------------------------------------------------------------------------------


GRAPHS = "host k1 w h; s copy h d; s k1 r d w dq; s k2 r dq w dr; sync s"


def test_two_eager_steps_then_the_graph_is_launched_in_place_of_its_members():
    program = unroll(make_plan(GRAPHS, graphs=True), ["decode"] * 4)
    kinds = [
        [Kind(each).name for each in program.ops["kind"][begin:end]]
        for begin, end in zip(program.step0[:-1], program.step0[1:], strict=True)
    ]
    eager = ["HOST", "COPY", "LAUNCH", "LAUNCH", "SYNC"]
    assert kinds == [eager, eager] + [["HOST", "COPY", "GRAPH", "SYNC"]] * 2
    assert EAGER_STEPS == 2


def test_a_graph_row_names_its_members_and_holds_their_accesses():
    program = unroll(make_plan(GRAPHS, graphs=True), ["decode"] * 4)
    launches = program.ops[program.ops["kind"] == Kind.GRAPH]
    assert launches["dst"].tolist() == [0, 2]
    assert launches["nbytes"].tolist() == [2, 2]
    for launch in launches:
        first = int(launch["dst"])
        members = program.members[first : first + int(launch["nbytes"])]
        assert [program.kernels[each] for each in members["kernel"]] == ["k1", "k2"]
        assert (members["step"] == launch["step"]).all()
        assert members["access0"][0] == launch["access0"]
        assert members["n_access"].sum() == launch["n_access"]
        assert members["access0"][1] == members["access0"][0] + members["n_access"][0]


def test_a_phase_warms_up_anew_when_it_returns():
    plan = make_plan({"prompt": "s k1 w d", "decode": "s k1 w d"}, graphs=True)
    program = unroll(plan, ["decode"] * 3 + ["prompt"] + ["decode"] * 3)
    letters = "".join("g" if kind == Kind.GRAPH else "l" for kind in program.ops["kind"])
    assert letters == "llgl" + "llg"


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_slot_that_members_touch_has_a_graph_of_its_own(depth):
    plan = make_plan(GRAPHS, graphs=True, depth={"d": depth, "h": 4})
    assert replay_begins(plan, "decode") == EAGER_STEPS * depth
    program = unroll(plan, ["decode"] * (3 * depth))
    launches = program.ops[program.ops["kind"] == Kind.GRAPH]
    assert len(launches) == depth
    slots = program.accesses["slot"][launches["access0"]]
    assert slots.tolist() == list(range(depth))


def test_a_member_without_its_graph_before_it_is_refused():
    plan = make_plan("s k1 w d; sync s; k: s k1 w d", graphs=True)
    graph, first, sync, _, last = plan.phases["decode"]
    torn = replace(plan, phases={"decode": (graph, first, sync, replace(last, graph=0))})
    with pytest.raises(UsageError, match="decode:k: graph 0 has no GRAPH op before it"):
        unroll(torn, ["decode"] * 3)


# ---- the cyclic table ---------------------------------------------------------------------------


RING = ("cuda-graph", "pack-inputs", "drop-leading-sync", "logits-event-sync")
PLANS = {
    "baseline": model_plan(),
    "graphs": model_plan("cuda-graph"),
    **{f"ring {n}": model_plan(*RING, f"input-slot-ring={n}") for n in (2, 3, 4)},
    "graphs of three slots": make_plan(
        dict.fromkeys(PHASES, GRAPHS), graphs=True, depth={"d": 3, "h": 2}
    ),
}
TABLES = {name: tabulate(plan) for name, plan in PLANS.items()}
ONLY_POSITIONS = ["step", "site", "access0", "kernel", "dst"]


def described(program, row):
    """All that a row says, with names and accesses in place of positions."""
    first = int(row["access0"])
    rest = [row[name].item() for name in OP.names if name not in ONLY_POSITIONS]
    members = ()
    if row["kind"] == Kind.GRAPH:
        run = program.members[int(row["dst"]) : int(row["dst"]) + int(row["nbytes"])]
        members = tuple(described(program, member) for member in run)
    kernel = None if row["kernel"] == NO_KERNEL else program.kernels[row["kernel"]]
    accesses = program.accesses[first : first + row["n_access"]].tolist()
    return program.sites[row["site"]], kernel, rest, accesses, members


def issued_from(table, phases):
    """Rows that an executor takes from the table, step by step."""
    in_a_row = 0
    for step, phase in enumerate(phases):
        in_a_row = in_a_row + 1 if step and phases[step - 1] == phase else 1
        block = table.blocks[phase, in_a_row > table.replay_begins[phase]]
        begin = block.row0 + step % table.period * block.n_ops
        for row in table.program.ops[begin : begin + block.n_ops]:
            yield described(table.program, row)


@QUICK
@given(st.sampled_from(list(PLANS)), st.lists(st.sampled_from(PHASES), min_size=1, max_size=12))
def test_the_table_issues_what_the_unrolled_program_does(name, phases):
    program = unroll(PLANS[name], phases)
    expected = [described(program, row) for row in program.ops]
    assert list(issued_from(TABLES[name], phases)) == expected


def test_the_table_holds_one_period_of_each_phase_eager_and_replayed():
    for plan, table in zip(PLANS.values(), TABLES.values(), strict=True):
        assert table.period == period(plan)
        assert set(table.blocks) == set(product(PHASES, (False, True)))
        size = sum(block.n_ops * table.period for block in table.blocks.values())
        assert size == len(table.program.ops)


def test_ranges_in_the_table_stay_where_they_are_in_step_0():
    plan = make_plan("s k1 w d[0:4]+4; s k1 r h", depth={"h": 3})
    assert set(tabulate(plan).program.accesses["begin"]) == {0}


def test_a_long_run_unrolls_to_rows_of_one_piece():
    program = unroll(model_plan("cuda-graph"), ["decode"] * 500)
    assert program.ops.flags["C_CONTIGUOUS"]
    assert len(program.ops) == program.step0[-1]
    assert np.array_equal(np.unique(program.ops["step"]), np.arange(500))
