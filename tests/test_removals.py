"""Analysis and simulator agree: a removal is racy if and only if some data order shows it."""

from dataclasses import replace
from itertools import product

import numpy as np

from helpers.verdicts import baseline, phases_of, planned, random_requests
from syncscope.kernels.host import host_table
from syncscope.sched_core.analyser import Analyser
from syncscope.sched_core.executor import Executor
from syncscope.sched_core.order import Order
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.program import OP, SCOPES, unroll
from syncscope.sched_core.recorder import SpanRing
from syncscope.sched_core.records import Kind
from syncscope.sched_core.sim_backend import SimBackend

PROFILE = load_profile("h200")
TABLE = host_table(())
REMOVALS = 2000


def without(program, units):
    """Leave the rows of some syncs out, and wait for the device at the end."""
    ops = program.ops[~np.isin(program.ops["site"], units)]
    end = np.zeros(1, OP)
    end["kind"], end["scope"] = int(Kind.SYNC), SCOPES.index("device")
    end["event"] = end["graph"] = -1
    return replace(program, ops=np.concatenate([ops, end]))


def seen_by_simulator(program):
    """Whether some assignment of early and late shows a stale read or a wrong last write."""
    streams = [stream.name for stream in program.streams]
    for choice in product((False, True), repeat=len(streams)):
        late = [name for name, is_late in zip(streams, choice, strict=True) if is_late]
        ring = SpanRing(4)
        ring.recording = False
        backend = SimBackend(PROFILE, TABLE, late, compute=False)
        backend.bind(program, ring)
        Executor(backend, ring).run(0, len(program.ops), 1, 0, 1)
        stale, wrong, _ = backend.counts
        if stale or wrong:
            return True
    return False


def cases():
    """Plans of all kinds with prompts of all lengths."""
    draw = np.random.default_rng(5)
    for request in ((), *random_requests(39, seed=9)):
        plan = baseline() if not request else planned(request)
        for _ in range(2):
            yield unroll(plan, phases_of(int(draw.integers(1, 5)), decode=3))


def test_2000_random_removals_are_racy_exactly_when_the_simulator_shows_it():
    draw = np.random.default_rng(1)
    programs = list(cases())
    racy = 0
    for number in range(REMOVALS):
        program = programs[number % len(programs)]
        units = np.array(Analyser(program).units)
        gone = units[draw.random(len(units)) < draw.choice([0.03, 0.1, 0.3, 0.6])].tolist()
        by_analysis = len(Order(program).hazards(gone, 1)) > 0
        assert seen_by_simulator(without(program, gone)) == by_analysis, (number, gone)
        racy += by_analysis
    assert 0.2 < racy / REMOVALS < 0.9
