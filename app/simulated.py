"""What a profile says a plan takes: runs on the simulated device that time and compute nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import groupby

from syncscope.app.bench.metrics import measure
from syncscope.app.calibration.observe import visible_rows
from syncscope.kernels.host import host_table
from syncscope.kernels.signature import parse_instance
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.profile import Profile
from syncscope.sched_core.records import Plan
from syncscope.sched_core.sim_backend import SimBackend
from syncscope.sched_core.trace import Trace


def simulate(plan: Plan, kernels: KernelTable, phases: Iterable[str], profile: Profile) -> Trace:
    """Return the trace of a plan under a profile.

    Parameters
    ----------
    plan : Plan
    kernels : KernelTable
        The instances that it names.
    phases : iterable of str
        Phase of each step.
    profile : Profile
    """
    backend = SimBackend(profile, kernels, compute=False)
    with closing(backend), closing(Engine(backend, plan)) as engine:
        for phase, steps in groupby(phases):
            engine.run(phase, len(list(steps)))
        engine.drain()
        return Trace(
            sites=tuple(engine.sites),
            lanes=engine.lanes,
            phases=tuple(engine.phases),
            spans=engine.take_spans(),
            dropped=engine.recorder.dropped,
            simulated=True,
            device={"kind": "sim", "name": profile.device_name},
            plans=(plan,),
        )


def simulate_again(trace: Trace, profile: Profile) -> Trace:
    """Return what the steps of a trace would be under a profile."""
    (plan,) = trace.plans
    names = {op.kernel for ops in plan.phases.values() for op in ops if op.kernel}
    table = host_table(map(parse_instance, sorted(names)), visible_rows(trace))
    return simulate(plan, table, trace.phases, profile)


def step_us(trace: Trace) -> float | None:
    """Return the median step time of a trace; None where it has too few steps."""
    found = measure(trace).step_us
    return found[0] if found else None
