"""Host cost of issuing an op against verbs that do nothing, beside the same loop in Python.

The ops are those of a baseline decode step of a small model, recorded in both loops.

Usage: python tests/bench/bench_executor.py [OPS]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.plans import model_plan
from syncscope.sched_core.backend import Backend
from syncscope.sched_core.executor import Executor
from syncscope.sched_core.program import tabulate
from syncscope.sched_core.recorder import SpanRing

BAR_NS = 150
ROUNDS = 5


class NullDevice:
    """Seven verbs that do nothing, as Python sees them."""

    def verb(self, op: int, step: int) -> int:
        return 0


def core_ns(steps: int) -> tuple[float, int]:
    """Return ns per op of the executor, the best of some rounds, and ops per step."""
    table = tabulate(model_plan())
    block = table.blocks["decode", False]
    ring = SpanRing((steps * block.n_ops - 1).bit_length())
    backend = Backend()
    backend.bind(table.program, ring)
    executor = Executor(backend, ring)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        executor.run(block.row0, block.n_ops, table.period, 0, steps)
        best = min(best, (time.perf_counter_ns() - began) / (steps * block.n_ops))
        assert len(ring.take()) == steps * block.n_ops and not ring.dropped
    return best, block.n_ops


def python_ns(steps: int, n_ops: int) -> float:
    """Return ns per op of a Python loop that calls a verb and keeps a tuple per op."""
    issue = NullDevice().verb
    now = time.perf_counter_ns
    best = float("inf")
    for _ in range(ROUNDS):
        spans: list[tuple[int, ...]] = []
        keep = spans.append
        began = begin = now()
        for step in range(steps):
            for op in range(n_ops):
                issue(op, step)
                end = now()
                keep((begin, end, op, step, 0, 0))
                begin = end
        best = min(best, (now() - began) / (steps * n_ops))
    return best


def main(n_ops: int = 1_000_000) -> int:
    """Print both costs and their ratio; return 1 when the executor is above its bar."""
    _, per_step = core_ns(1)
    steps = -(-n_ops // per_step)
    core, _ = core_ns(steps)
    python = python_ns(steps, per_step)
    print(f"{steps * per_step:,} ops of {steps:,} steps, every call recorded, best of {ROUNDS}")
    print(f"  executor {core:8.1f} ns per op (bar {BAR_NS})")
    print(f"  Python   {python:8.1f} ns per op, {python / core:.1f} times as much")
    return int(core > BAR_NS)


if __name__ == "__main__":
    raise SystemExit(main(*(int(each) for each in sys.argv[1:2])))
