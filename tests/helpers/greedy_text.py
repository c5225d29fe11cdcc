"""Greedy text of a device beside that of the host's kernels: where they part, and by how little."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncscope.app.devices import Device, SimDevice
from syncscope.app.variants import REFERENCE, plan_variant
from syncscope.app.workload import Workload
from syncscope.kernels.tokenizer import Tokenizer
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.profile import load_profile

TIE = 1e-3
"""Two logits this close may change places from one implementation to another."""


@dataclass(frozen=True)
class Greedy:
    """Token ids, and the logits [token, vocabulary] that they were taken from."""

    token_ids: tuple[int, ...]
    logits: NDArray[np.float32]


@dataclass(frozen=True)
class Comparison:
    """Greedy tokens of a device beside the host's.

    Parameters
    ----------
    tokens : int
        How many were generated.
    first_difference : int or None
        Number of the first token that differs, from 0.
    gap : float or None
        There: the host's logit of its own token less that of the device's token.
    largest_difference : float
        Of any two logits up to and with that token.
    """

    tokens: int
    first_difference: int | None
    gap: float | None
    largest_difference: float


def generate(workload: Workload, device: Device) -> Greedy:
    """Run the baseline and return what it generated."""
    with closing(device.make_backend(workload, frozenset())) as backend:
        engine = Engine(backend, plan_variant(workload.plan(), REFERENCE).plan)
        for phase, steps in workload.segments:
            engine.run(phase, steps)
        engine.drain()
        tokens = backend.read("tokens").view(np.int32)[len(workload.prompt) :]
        tap = backend.read("tap").view(np.float32).reshape(-1, workload.model.config.V)
    rows = tap[len(workload.prompt) - 1 : workload.n_positions].copy()
    return Greedy(tuple(map(int, tokens)), rows)


def on_the_host(workload: Workload) -> Greedy:
    """Run with the host's kernels."""
    return generate(workload, SimDevice(load_profile("h200")))


def compare(host: Greedy, device: Greedy) -> Comparison:
    """Compare what was generated from one prompt."""
    n = len(host.token_ids)
    assert n == len(device.token_ids) == len(host.logits) == len(device.logits)
    pairs = zip(host.token_ids, device.token_ids, strict=True)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    same = n if first is None else first + 1  # behind it the inputs differ
    gap = None
    if first is not None:
        row = host.logits[first].astype(np.float64)
        gap = float(row[host.token_ids[first]] - row[device.token_ids[first]])
    largest = float(np.abs(host.logits[:same] - device.logits[:same]).max())
    return Comparison(n, first, gap, largest)


def record(workload: Workload, prompt: str, device: Device, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a comparison with both texts, as JSON values."""
    host, other = on_the_host(workload), generate(workload, device)
    found = compare(host, other)
    return {
        "model": Path(workload.model.id).stem,
        "prompt": prompt,
        "tokens": found.tokens,
        "first_difference": found.first_difference,
        "gap": found.gap,
        "largest_logit_difference": found.largest_difference,
        "host_text": tokenizer.decode(host.token_ids),
        "device_text": tokenizer.decode(other.token_ids),
    }
