"""Runs plans on the stub driver and prints what their kernels stamped.

A process loads one driver: this is the main program of a process of its own.  Its argument is the
path of the stub.  It prints, as JSON and by the name of the run, the sites that each step launched,
in order, and the kernels' spans as step, site and length in ns.
"""

from __future__ import annotations

import ctypes
import json
import sys
from contextlib import closing
from types import ModuleType
from typing import Any

import numpy as np

from helpers import stub_pycuda
from helpers.plans import make_plan
from syncscope.sched_core import cuda_driver
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.cuda_backend import CudaBackend
from syncscope.sched_core.cuda_launches import ADVANCE
from syncscope.sched_core.cuda_memory import DeviceKernel
from syncscope.sched_core.cuda_stamps import STAMP_STEPS
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.records import Kind, Plan

EXEC = 1
ONE = (1, 1, 1)
FUNCTIONS = {ADVANCE: ADVANCE, "k0": "stamped_1", "k1": "stamped_1"}
KERNELS = {
    name: DeviceKernel(b"stub", function, 1, (), ONE, ONE) for name, function in FUNCTIONS.items()
}
TWO = "s copy hp da; s k0 w da; s k1 w da; s copy da hq; sync s"
ONE_EACH = {"prompt": "s k1 w da; sync s", "decode": TWO}
DECODE = [("decode", 3 * STAMP_STEPS + 5)]

Turn = tuple[Plan, list[tuple[str, int]]]


def run(*turns: Turn) -> dict[str, Any]:
    """Run phases of plans, one after the other, on one backend."""
    launched: list[list[str]] = []
    with closing(CudaBackend(KernelTable(), KERNELS, {})) as backend:
        engine = Engine(backend, turns[0][0])
        for plan, phases in turns:
            if plan is not engine.plan:
                engine.set_plan(plan)
            for phase, steps in phases:
                engine.run(phase, steps)
                sites = [op.site for op in plan.phases[phase] if op.kind == Kind.LAUNCH]
                launched += [sites] * steps
        engine.drain()
        spans, names = engine.take_spans(), [site.name for site in engine.sites]
    kernels = [i for i, site in enumerate(engine.sites) if site.kind == Kind.LAUNCH]
    stamped = spans[(spans["role"] == EXEC) & np.isin(spans["op"], kernels)]
    found = [
        (int(span["step"]), names[span["op"]], int(span["end_ns"] - span["begin_ns"]))
        for span in stamped
    ]
    return {"launched": launched, "spans": found}


def main(library: str) -> None:
    """Load the stub in place of the driver, and run."""
    cuda_driver.load(library)
    package = ModuleType("pycuda")
    package.driver = stub_pycuda  # type: ignore[attr-defined]
    sys.modules |= {"pycuda": package, "pycuda.driver": stub_pycuda}
    eager, graphs = make_plan(TWO), make_plan(TWO, graphs=True)
    found = {
        "eager": run((eager, DECODE)),
        "replays": run((graphs, DECODE)),
        "phases": run((make_plan(ONE_EACH, graphs=True), [("prompt", 3), ("decode", 4)] * 9)),
        "plans": run(*[(eager, [("decode", 5)]), (graphs, [("decode", 7)])] * 3),
    }
    ctypes.CDLL(library).stub_busy(1)
    found["busy"] = run((graphs, DECODE))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
