"""What tests run on the pretended GPU, each in a process of its own: prints what happened as JSON.

`python -m helpers.fake_cuda.scenarios NAME ARGUMENTS`, the arguments as a JSON object.
"""

import contextlib
import ctypes
import io
import json
import sys
import threading
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np
import pycuda.driver as fake_pycuda

from helpers.plans import make_plan
from syncscope.app import cli, devices
from syncscope.kernels.signature import Instance
from syncscope.sched_core import cupti
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.cuda_backend import CudaBackend
from syncscope.sched_core.cuda_launches import ADVANCE
from syncscope.sched_core.cuda_memory import DeviceKernel
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import DeviceError, KernelFault
from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Plan

ONE = (1, 1, 1)


def live_objects() -> dict[str, int]:
    driver = ctypes.CDLL("libcuda.so.1")
    made = ctypes.c_int.in_dll(driver, "fake_live_objects").value
    return {**fake_pycuda.live, "driver objects": made}


def kernels_of(plan: Plan) -> dict[str, DeviceKernel]:
    ops = [op for phase in plan.phases.values() for op in phase if op.kernel]
    return {
        op.kernel: DeviceKernel(b"", op.kernel, len(op.accesses), (), ONE, ONE) for op in ops
    } | {ADVANCE: DeviceKernel(b"", ADVANCE, 1, (), ONE, ONE)}


def open_engine(plan: Plan, record: str) -> Engine:
    return Engine(CudaBackend(KernelTable(), kernels_of(plan), {}, record=record), plan)


def outcome(engine: Engine, spans: np.ndarray) -> dict[str, Any]:
    backend = engine.backend
    assert isinstance(backend, CudaBackend)
    sites: list[Site] = engine.sites
    return {
        "spans": [
            {
                "role": ("call", "exec")[each["role"]],
                "phase": sites[each["op"]].phase,
                "site": sites[each["op"]].name,
                "kind": sites[each["op"]].kind.name,
                "lane": engine.lanes[each["lane"]].name,
                **{
                    name: int(each[name])
                    for name in ("step", "begin_ns", "end_ns", "flags", "nbytes")
                },
            }
            for each in spans
        ],
        "dropped": backend.dropped,
        "ring_dropped": engine.recorder.dropped,
        "driver_calls": backend.driver_calls,
        "clock_uncertainty_ns": backend.clock_uncertainty_ns,
        "timer_step_ns": backend.timer_step_ns,
    }


def record(
    mode: str, plan: str | dict[str, str], phases: Iterable[tuple[str, int]], **options: Any
) -> dict[str, Any]:
    """Run phases of a hand-written plan, drain, and tell what was recorded."""
    with closing(open_engine(make_plan(plan, **options), mode)) as engine:
        for phase, steps in phases:
            engine.run(phase, steps)
        engine.drain()
        return outcome(engine, engine.take_spans())


def switch(mode: str, plans: list[str], steps: int) -> dict[str, Any]:
    """Run one plan after the other in one engine."""
    made = [make_plan(plan) for plan in plans]
    backend = CudaBackend(
        KernelTable(), {k: v for plan in made for k, v in kernels_of(plan).items()}, {}, record=mode
    )
    with closing(Engine(backend, made[0])) as engine:
        for number, plan in enumerate(made):
            if number:
                engine.set_plan(plan)
            engine.run("decode", steps)
        engine.drain()
        return outcome(engine, engine.take_spans())


def take_turns(mode: str, plan: str, steps: int) -> list[dict[str, Any]]:
    """Run two backends step by step in turns, with a stranger's driver calls between and beside."""
    driver = ctypes.CDLL("libcuda.so.1")
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            driver.cuStreamSynchronize(None)

    stranger = threading.Thread(target=disturb)
    engines = [open_engine(make_plan(plan), mode) for _ in range(2)]
    stranger.start()
    try:
        for _ in range(steps):
            for engine in engines:
                driver.cuCtxSynchronize()
                engine.run("decode", 1)
        for engine in engines:
            engine.drain()
    finally:
        done.set()
        stranger.join()
    found = [outcome(engine, engine.take_spans()) for engine in engines]
    for engine in engines:
        engine.close()
    return found


def cycle(mode: str, plan: str, times: int) -> list[dict[str, int]]:
    """Open, run and close again and again; what lives after each time."""
    left = []
    for _ in range(times):
        with closing(open_engine(make_plan(plan), mode)) as engine:
            engine.run("decode", 3)
        left.append(live_objects())
    return left


def long_run(mode: str, plan: str, steps: int) -> dict[str, Any]:
    """Run many steps; only counts come back."""
    with closing(open_engine(make_plan(plan), mode)) as engine:
        most = engine.backend.max_steps
        engine.run("decode", steps)
        engine.drain()
        spans = engine.take_spans()
        spans = spans[spans["role"] == 1]
        found = outcome(engine, spans[:0])
        _, per_step = np.unique(spans["step"], return_counts=True)
        return found | {
            "max_steps": most,
            "steps": len(per_step),
            "per_step": np.unique(per_step).tolist(),
        }


def without_recording(mode: str, plan: str, steps: int) -> dict[str, Any]:
    """Run with the ring switched off, then on."""
    with closing(open_engine(make_plan(plan), mode)) as engine:
        engine.recorder.recording = False
        engine.run("decode", steps)
        engine.drain()
        assert not len(engine.take_spans())
        engine.recorder.recording = True
        engine.run("decode", steps)
        engine.drain()
        return outcome(engine, engine.take_spans())


def fault(mode: str, plan: str, steps: int) -> dict[str, Any]:
    """Run until a kernel refuses a value; no drain follows."""
    with closing(open_engine(make_plan(plan), mode)) as engine:
        try:
            engine.run("decode", steps)
        except KernelFault as refusal:
            return outcome(engine, engine.take_spans()) | {"refused_at": refusal.step}
    raise AssertionError("nothing was refused")


def refuse(mode: str) -> dict[str, Any]:
    """Try to open a backend that cannot be, then one that can."""
    try:
        CudaBackend(KernelTable(), {}, {}, record=mode)
    except DeviceError as error:
        CudaBackend(KernelTable(), {}, {}, record="off").close()
        return {"text": str(error), "live": live_objects()}
    return {}


def load_cupti(paths: list[str]) -> str:
    """Load CUPTI from one of some paths; return what is said if that cannot be."""
    try:
        cupti.load(paths)
    except DeviceError as error:
        return str(error)
    return ""


def device_table(wanted: Iterable[Instance], arch: str) -> dict[str, DeviceKernel]:
    """Stand in for compiled kernels."""
    assert arch == "sm_90"
    return {
        each.name: DeviceKernel(b"", each.name, len(each.kernel.arguments), (), ONE, ONE)
        for each in wanted
    } | {ADVANCE: DeviceKernel(b"", ADVANCE, 1, (), ONE, ONE)}


def command(arguments: list[str]) -> dict[str, Any]:
    """Run the command on the pretended GPU; its kernels compute nothing, so tokens mean nothing."""
    devices.device_table = device_table
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue(), "live": live_objects()}


if __name__ == "__main__":
    name, text = sys.argv[1:]
    print(json.dumps(globals()[name](**json.loads(text))))
