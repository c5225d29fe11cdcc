"""Capture the kernels of a split, replay them with one launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from syncscope.sched_core.passes.base import Pass, edit_phases
from syncscope.sched_core.records import Kind, Op, Plan


def _capture(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Put a GRAPH op in front of each run of launches on one stream."""
    graph = -1
    stream = ""
    for op in ops:
        if op.kind == Kind.LAUNCH:
            if op.stream != stream:
                graph += 1
                stream = op.stream
                site = "graph" if graph == 0 else f"graph.{graph}"
                yield Op(site, Kind.GRAPH, stream, graph=graph, origin=CUDA_GRAPH.id)
            yield replace(op, graph=graph)
        else:
            stream = ""
            yield op


def apply(plan: Plan, value: int) -> Plan:
    """Copies stay outside, on stable addresses; each slot of device memory has its own graph."""
    return edit_phases(plan, _capture)


CUDA_GRAPH = Pass(
    id="cuda-graph",
    title="Capture after two identical steps, then replay",
    source="llama.cpp (CUDA graphs of a split, warm-up of #19754)",
    apply=apply,
    capabilities=("graphs",),
)
