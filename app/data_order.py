"""Which of the simulator's data orders shows the hazards of a plan."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from syncscope.app.devices import SimDevice
from syncscope.app.workload import Workload
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.records import Plan

TRIED_STEPS = 8
"""Steps of each phase that an order is tried with."""


def worst_order(workload: Workload, device: SimDevice, plan: Plan) -> frozenset[str]:
    """Return the streams that are late in the data order that does most harm.

    Every order is tried, timing the plan without computing it.  Of orders that do equal harm it is
    the first, so none is late where no order does any.
    """
    timed = replace(device, adversarial=True, compute=False)

    def harm(late: frozenset[str]) -> int:
        backend = timed.make_backend(workload, late)
        with closing(backend), closing(Engine(backend, plan)) as engine:
            engine.recorder.recording = False
            for phase, steps in workload.segments:
                engine.run(phase, min(steps, TRIED_STEPS))
            engine.drain()
            return sum(backend.counts[:2])

    return max(timed.orders(plan), key=harm)
