"""Random small programs, and every data order of one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import settings
from hypothesis import strategies as st

from helpers.plans import PROFILE, make_plan, named_costs
from syncscope.sched_core.executor import Executor
from syncscope.sched_core.program import Program, unroll
from syncscope.sched_core.recorder import SpanRing
from syncscope.sched_core.records import Plan
from syncscope.sched_core.sim_backend import SimBackend

QUICK = settings(max_examples=60, deadline=None, derandomize=True)

HOST_BUFFERS, DEVICE_BUFFERS = ("ha", "hb", "pa"), ("da", "db")
RANGES = ("[0:4]", "[4:8]", "[2:6]", "[0:8]")
STREAM_SETS = (
    "s",
    "s t",
    "s t u",
    "s t:blocking z:legacy_default",
    "s:blocking t:per_thread_default z:legacy_default",
    "s t@1 u:blocking",
    "s:blocking t:blocking@1 z:legacy_default@1",
)


@st.composite
def plans(draw: st.DrawFn, kernels: bool = True) -> tuple[Plan, int]:
    """Draw a plan with the phases ``decode`` and ``end`` (which drains), and a number of steps."""
    streams = draw(st.sampled_from(STREAM_SETS))
    names = [text.partition("@")[0].partition(":")[0] for text in streams.split()]
    stream = st.sampled_from(names)
    event = st.sampled_from(["e", "f"])

    def use(buffers):
        one = st.tuples(st.sampled_from("rw"), st.sampled_from(buffers), st.sampled_from(RANGES))
        return st.lists(one.map(lambda t: f"{t[0]} {t[1]}{t[2]}"), min_size=1, max_size=3).map(
            " ".join
        )

    def copy(pair):
        letter, mark, source, target, span = pair
        return f"{letter} copy{mark} {source}{span} {target}{span}"

    both = st.sampled_from(HOST_BUFFERS + DEVICE_BUFFERS)
    mark = st.sampled_from(["", "", "", "!"])
    work = (
        use(HOST_BUFFERS).map(lambda text: f"host k3 {text}"),
        st.builds("{} k20 {}".format, stream, use((*DEVICE_BUFFERS, "ha"))),
    )
    statement = st.one_of(
        *(work if kernels else ()),
        st.tuples(stream, mark, both, both, st.sampled_from(RANGES)).map(copy),
        st.builds("{} record {}".format, stream, event),
        st.builds("{} wait {}".format, stream, event),
        st.builds("sync {}".format, st.one_of(stream, event)),
        st.builds("sync dev.{}".format, stream),
    )
    text = "\n".join(draw(st.lists(statement, min_size=5, max_size=20)))
    slots = st.sampled_from([1, 1, 2])
    plan = make_plan(
        {"decode": text, "end": "\n".join(f"sync dev.{name}" for name in names)},
        streams,
        nbytes=8,
        depth={name: draw(slots) for name in ("ha", "da", "e")},
        graphs=draw(st.booleans()),
    )
    return plan, draw(st.integers(1, 4))


def unrolled(plan: Plan, steps: int) -> Program:
    """Unroll a plan over steps, then its drain."""
    return unroll(plan, ["decode"] * steps + ["end"])


def run_rows(backend: SimBackend, program: Program) -> SpanRing:
    """Issue every row of a program once; spans then name rows, members after ops."""
    ring = SpanRing(12)
    backend.bind(program, ring)
    assert Executor(backend, ring).run(0, len(program.ops), 1, 0, 1) == (0, 1)
    return ring


def issue(program: Program, plan: Plan, late=()) -> tuple[SimBackend, SpanRing]:
    """Issue every row of a program without computing."""
    backend = SimBackend(PROFILE, named_costs(plan), late, compute=False)
    return backend, run_rows(backend, program)


def data_orders(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Every assignment of early and late, as the names of the late streams."""
    names = [stream.name for stream in plan.streams]
    for choice in product((False, True), repeat=len(names)):
        yield tuple(name for name, late in zip(names, choice, strict=True) if late)
