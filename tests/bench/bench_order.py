"""Orders the issued rows of the baseline plan; prints rows a second, on one core.

Beside it, where torch is installed, the handler of torch.cuda._sanitizer on the same sequence: its
kernel launches (copies and graphs are launches to it), syncs and events; host work it cannot see.

Usage: python tests/bench/bench_order.py [ROWS ...]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.plans import model_plan
from syncscope.sched_core.order import Order
from syncscope.sched_core.program import SCOPES, Program, unroll
from syncscope.sched_core.records import Kind, Plan

SIZES = (10_000, 100_000, 1_000_000)
BAR_NS = 1_000
SANITIZER_ROWS = 100_000
"""What it is given at most: it takes its time."""


def fastest(job: Callable[[], Any], times: int = 5) -> float:
    """Seconds of CPU time that the fastest of several runs took."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        job()
        best = min(best, time.process_time() - began)
    return best


def issued(plan: Plan, n_rows: int) -> tuple[Program, float]:
    """Unroll a prompt and as many tokens as make so many rows; return how long that took."""
    phases = ["prompt"] * 3 + ["prompt_last"]
    per_step = len(unroll(plan, ["decode"] * 101).ops) - len(unroll(plan, ["decode"] * 100).ops)
    phases += ["decode"] * max(1, n_rows // per_step)
    began = time.process_time()
    program = unroll(plan, phases)
    return program, time.process_time() - began


def sanitizer_calls(program: Program, handler: Any) -> Iterator[Callable[[], Any]]:
    """What torch's handler would be told of a program."""
    place0 = np.cumsum([0, *(buffer.depth for buffer in program.buffers)])
    accesses = program.accesses
    place = (place0[accesses["buffer"]] + accesses["slot"] + 1).tolist()
    write = accesses["write"].tolist()
    for op in program.ops:
        kind, stream, event = Kind(op["kind"]), int(op["stream"]) + 1, int(op["event"])
        scope = SCOPES[op["scope"]]
        mine = range(int(op["access0"]), int(op["access0"]) + int(op["n_access"]))
        if kind in (Kind.LAUNCH, Kind.COPY, Kind.GRAPH):
            written = {place[i] for i in mine if write[i]}
            read = {place[i] for i in mine} - written
            names: dict[int, list[str]] = {each: [] for each in read | written}
            launch = handler._handle_kernel_launch
            yield partial(launch, stream, read, written, set(), kind.name, names)
        elif kind == Kind.RECORD:
            yield partial(handler._handle_event_record, event, stream)
        elif kind == Kind.WAIT:
            yield partial(handler._handle_event_wait, event, stream)
        elif kind == Kind.SYNC and scope == "stream":
            yield partial(handler._handle_stream_synchronization, stream)
        elif kind == Kind.SYNC and scope == "event":
            yield partial(handler._handle_event_synchronization, event)
        elif kind == Kind.SYNC:
            yield handler._handle_device_synchronization


def compare(program: Program) -> None:
    """Print what torch's handler and ours take for the same rows."""
    try:
        from torch.cuda._sanitizer import EventHandler
    except ImportError:
        print("torch is not installed: its stream sanitizer is not compared")
        return
    ours = fastest(Order(program).hazards) / len(program.ops)
    calls = list(sanitizer_calls(program, EventHandler()))
    theirs = fastest(lambda: [call() for call in calls], times=1) / len(calls)
    print(
        f"torch's stream sanitizer: {len(calls):,} calls of {len(program.ops):,} rows, "
        f"{theirs * 1e9:,.0f} ns a call; order: {ours * 1e9:.0f} ns a row, "
        f"{theirs / ours:,.0f} times faster"
    )


def main(*sizes: int) -> None:
    print(f"{'':28}{'rows':>12}{'rows/s':>14}{'ns/row':>9}{'to first':>10}{'unroll rows/s':>16}")
    compared = None
    for name, passes in (("baseline", ("cuda-graph",)), ("baseline, no graph", ())):
        plan = model_plan(*passes)
        first = None
        for n_rows in sizes or SIZES:
            program, unrolling = issued(plan, n_rows)
            if not passes and n_rows <= SANITIZER_ROWS:
                compared = program
            n = len(program.ops)
            order = Order(program)
            assert not len(order.hazards())
            ns = fastest(order.hazards) / n * 1e9
            first = first or ns
            slow = "" if ns <= BAR_NS else f"  above the bar of {BAR_NS} ns"
            print(
                f"  {name:<26}{n:>12,}{1e9 / ns:>14,.0f}{ns:>9.0f}{ns / first:>10.2f}"
                f"{n / unrolling:>16,.0f}{slow}"
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of all: {peak:.0f} MB")
    if compared is not None:
        compare(compared)


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
