"""What is computed: model, prompt, how many tokens, in which micro-batches, how sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.kernels.host import host_table
from syncscope.kernels.registry import Model
from syncscope.kernels.sampling import GREEDY, Sampling
from syncscope.kernels.signature import Instance
from syncscope.kernels.transformer import ModelConfig, build_graph, instances
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.errors import UsageError
from syncscope.sched_core.planner import plan_baseline
from syncscope.sched_core.records import Plan

DEFAULT_PROMPT = "Alice looked at the Queen and said"

KV_GRANULE = 256
"""The KV cache is rounded up to this many rows, as llama.cpp does, so that shapes stay."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is computed: model, prompt, how many tokens, in which micro-batches, how sampled.

    Parameters
    ----------
    model : Model
    prompt : tuple of int
        Token ids, at least one.
    n_tokens : int
        Tokens to generate.
    ubatch : int
        Prompt tokens per step.
    sampling : Sampling
    """

    model: Model
    prompt: tuple[int, ...]
    n_tokens: int
    ubatch: int
    sampling: Sampling = GREEDY

    def __post_init__(self) -> None:
        context = self.model.config.context
        if not self.prompt:
            raise UsageError("the prompt has no tokens; give --prompt TEXT")
        if self.n_tokens < 1:
            raise UsageError(f"--tokens {self.n_tokens}: must be at least 1")
        if self.ubatch < 1:
            raise UsageError(f"--ubatch {self.ubatch}: must be at least 1")
        if self.n_positions > context:
            room = context - len(self.prompt) + 1
            remedy = f"use --tokens {room} or less" if room >= 1 else "use a shorter prompt"
            raise UsageError(
                f"a prompt of {len(self.prompt)} tokens and {self.n_tokens} to generate do not "
                f"fit the context of {context} of {self.model.id}; {remedy}"
            )

    @property
    def n_positions(self) -> int:
        """KV rows that are used; the last sampled token needs none."""
        return len(self.prompt) + self.n_tokens - 1

    @property
    def visible(self) -> float:
        """KV rows that attention looks at in a decode step, on average."""
        return len(self.prompt) + self.n_tokens / 2

    @property
    def n_kv(self) -> int:
        """Rows of the KV cache."""
        rounded = -(-self.n_positions // KV_GRANULE) * KV_GRANULE
        return min(rounded, self.model.config.context)

    @property
    def capacity(self) -> int:
        """Length of the token list."""
        return len(self.prompt) + self.n_tokens

    @property
    def batch_sizes(self) -> dict[str, int]:
        """Tokens per step of each phase."""
        last = (len(self.prompt) - 1) % self.ubatch + 1
        whole = self.ubatch if len(self.prompt) > self.ubatch else last
        return {"prompt": whole, "prompt_last": last, "decode": 1}

    @property
    def segments(self) -> tuple[tuple[str, int], ...]:
        """The phases of the run, each with its number of steps."""
        batches = -(-len(self.prompt) // self.ubatch)
        runs = (("prompt", batches - 1), ("prompt_last", 1), ("decode", self.n_tokens - 1))
        return tuple(run for run in runs if run[1])

    def _shape(self, size: int) -> tuple[ModelConfig, int, int, int, Sampling]:
        """What the graph of a step of `size` tokens is made from."""
        return self.model.config, size, self.n_kv, self.capacity, self.sampling

    def plan(self) -> Plan:
        """Return the baseline plan, without a captured graph."""
        shapes = self.batch_sizes.items()
        return plan_baseline({name: build_graph(*self._shape(size)) for name, size in shapes})

    def instances(self) -> tuple[Instance, ...]:
        """Return the kernel instances that the plan names, each once."""
        sizes = dict.fromkeys(self.batch_sizes.values())
        every = (each for size in sizes for each in instances(*self._shape(size)))
        return tuple({each.name: each for each in every}.values())

    def kernels(self) -> KernelTable:
        """Return the host kernels that the plan names."""
        return host_table(self.instances(), self.visible)

    def contents(self) -> dict[str, npt.NDArray[Any]]:
        """Return what buffers hold before the first step: weights, and the prompt."""
        tokens = np.zeros(self.capacity, np.int32)
        tokens[: len(self.prompt)] = self.prompt
        return {**self.model.weights.arrays, "tokens": tokens}
