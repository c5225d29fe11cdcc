"""Runs made at random, and cut into batches as a live run hands them out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from helpers.traces import COMPUTE, COPIES, TraceBuilder
from syncscope.sched_core.program import Site
from syncscope.sched_core.trace import Trace

_DEVICE = {"a": COPIES, "A": COMPUTE, "g": COMPUTE}


def made_run(seed: int, n_steps: int = 30, patterns: Sequence[str] = ()) -> Trace:
    """Make a run of random length per op, with prompts in between, drains and graphs.

    Device times of a step may lie in the next one, and those of two streams overlap.
    """
    rng = np.random.default_rng(seed)
    build = TraceBuilder()
    now = 0
    free = {COPIES: 0, COMPUTE: 0}
    patterns = patterns or ("hsagE", "hAagEs", "haewGs")
    letters = patterns[0]
    for _ in range(n_steps):
        phase = str(rng.choice(["decode"] * 12 + ["prompt", "prompt_last"]))
        if rng.random() < 0.15:
            build.drain(now, now + int(rng.integers(0, 50)))
            now += 50
            letters = str(rng.choice(patterns))
        build.step(phase)
        for i, each in enumerate(letters):
            end = now + int(rng.integers(1, 100))
            build.call(f"{each}:{each}{i}", now, end)
            if each in "aAgG":
                lane = _DEVICE.get(each, COMPUTE)
                begin = max(free[lane], now + int(rng.integers(0, 150)))
                free[lane] = begin + int(rng.integers(0, 200))
                build.run(f"{'g' if each == 'G' else each}:{each}{i}", begin, free[lane], lane)
            now = end
    build.drain(now, now + 10, "run.end.sync")
    return build.trace()


@dataclass(frozen=True)
class Piece:
    """What a batch has that is new."""

    spans: np.ndarray[Any, Any]
    sites: tuple[Site, ...]
    phases: tuple[str, ...]


def pieces(trace: Trace, cuts: Sequence[int]) -> Iterator[Piece]:
    """Cut a run before the spans of some numbers; sites and phases come when they are needed."""
    n_sites = n_steps = 0
    edges = [0, *sorted(min(max(each, 0), len(trace.spans)) for each in cuts), len(trace.spans)]
    for begin, end in pairwise(edges):
        spans = trace.spans[begin:end].copy()
        sites, steps = n_sites, n_steps
        if len(spans):
            sites = max(n_sites, int(spans["op"].max()) + 1)
            steps = min(max(n_steps, int(spans["step"].max()) + 1), len(trace.phases))
        if end == len(trace.spans):
            sites, steps = len(trace.sites), len(trace.phases)
        yield Piece(spans, trace.sites[n_sites:sites], trace.phases[n_steps:steps])
        n_sites, n_steps = sites, steps
