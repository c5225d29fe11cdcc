"""Cut a model graph where the device changes."""

from __future__ import annotations

from dataclasses import dataclass

from syncscope.sched_core.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Split:
    """A maximal run of consecutive nodes of one device.

    `inputs` names the tensors that live on another device, in the order of first use: each needs
    a copy before the split runs.
    """

    device: int
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]


def split_graph(graph: Graph) -> tuple[Split, ...]:
    """Cut `graph.nodes` into splits, in order."""
    home = {tensor.name: tensor.device for tensor in graph.tensors}
    runs: list[list[Node]] = []
    for node in graph.nodes:
        if not runs or runs[-1][-1].device != node.device:
            runs.append([])
        runs[-1].append(node)
    return tuple(
        Split(
            device=run[0].device,
            nodes=tuple(run),
            inputs=tuple(
                dict.fromkeys(
                    use.tensor
                    for node in run
                    for use in node.uses
                    if home[use.tensor] != node.device
                )
            ),
        )
        for run in runs
    )
