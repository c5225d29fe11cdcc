"""Runs a model graph on the host kernels, op by op: the plainest way to compute a model."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syncscope.kernels.host import host_table, run_instance
from syncscope.kernels.transformer import build_graph, instances
from syncscope.kernels.weights import Weights
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.graph import Graph


class HostRunner:
    """One sequence of a model; any number of tokens may be consumed at once."""

    def __init__(self, weights: Weights, n_kv: int, capacity: int | None = None) -> None:
        self.config = weights.config
        self.shape = (n_kv, capacity or n_kv + 1)
        self.arrays = dict(weights.arrays)
        self._built: dict[int, tuple[Graph, KernelTable]] = {}
        self.state = {
            tensor.name: np.zeros(tensor.nbytes, np.uint8)
            for tensor in build_graph(self.config, 1, *self.shape).tensors
            if tensor.role == "state"
        }

    @property
    def cursor(self) -> int:
        return int(self.state["cursor"].view(np.int64)[0])

    @property
    def tokens(self) -> NDArray[np.int32]:
        return self.state["tokens"].view(np.int32)

    @property
    def tap(self) -> NDArray[np.float32]:
        return self.state["tap"].view(np.float32).reshape(self.shape[0], self.config.V)

    def step(self, n_tokens: int, sample: bool = False) -> NDArray[np.float32]:
        """Consume tokens from the list and return the logits of the last; put the next in it."""
        if n_tokens not in self._built:
            graph = build_graph(self.config, n_tokens, *self.shape)
            table = host_table(instances(self.config, n_tokens, *self.shape))
            self._built[n_tokens] = graph, table
        graph, table = self._built[n_tokens]
        arrays = {**self.arrays, **self.state}
        for tensor in graph.tensors:
            if tensor.name not in arrays:
                arrays[tensor.name] = np.zeros(tensor.nbytes, np.uint8)
        for node in (*graph.writers, *graph.nodes, *(graph.samplers if sample else ())):
            run_instance(table, node.kernel, [arrays[use.tensor] for use in node.uses])
        return arrays["logits"].view(np.float32)

    def prefill(self, ids: Sequence[int], micro_batch: int) -> None:
        """Consume ids, `micro_batch` at a time, and sample the token after them."""
        start = self.cursor
        self.tokens[start : start + len(ids)] = ids
        while self.cursor < start + len(ids):
            n = min(micro_batch, start + len(ids) - self.cursor)
            self.step(n, sample=self.cursor + n == start + len(ids))
