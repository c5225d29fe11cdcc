"""What a sequence computed, and where it differs from what the baseline computes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from syncscope.app.devices import Backend, Device
from syncscope.app.variants import REFERENCE, plan_variant
from syncscope.app.workload import Workload
from syncscope.kernels.tokenizer import Tokenizer
from syncscope.sched_core.engine import Engine

PIECE = 16
"""Steps of the reference between two looks at whether it is still wanted."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a sequence computed.

    Parameters
    ----------
    token_ids : tuple of int
        Generated tokens.
    logits : tuple of bytes
        A digest of the logits of each position, the prompt's included.
    """

    token_ids: tuple[int, ...]
    logits: tuple[bytes, ...]


def read_output(backend: Backend, workload: Workload, n_tokens: int, n_positions: int) -> Output:
    """Read back the first tokens and positions of a sequence; nothing may be pending."""
    begin = len(workload.prompt)
    tokens = backend.peek("tokens").view(np.int32)[begin : begin + n_tokens]
    tap = backend.read("tap").reshape(-1, 4 * workload.model.config.V)
    return Output(
        tuple(tokens.tolist()),
        tuple(hashlib.blake2b(row, digest_size=16).digest() for row in tap[:n_positions]),
    )


def reference_output(
    workload: Workload, device: Device, cancelled: Callable[[], bool]
) -> Output | None:
    """Compute a workload with the baseline plan, in issue order; None if cancelled.

    Raises
    ------
    DeviceError
        If the device cannot be used or fails.
    """
    plan = plan_variant(workload.plan(), REFERENCE).plan
    backend = device.make_backend(workload, frozenset())
    with closing(backend), closing(Engine(backend, plan)) as engine:
        engine.recorder.recording = False
        for phase, steps in workload.segments:
            for done in range(0, steps, PIECE):
                if cancelled():
                    return None
                engine.run(phase, min(PIECE, steps - done))
        engine.drain()
        return read_output(backend, workload, workload.n_tokens, workload.n_positions)


def first_difference(mine: Sequence[object], wanted: Sequence[object]) -> int | None:
    """Return where two sequences first differ, as far as both go."""
    pairs = enumerate(zip(mine, wanted, strict=False))
    return next((i for i, (one, other) in pairs if one != other), None)


class TextStream:
    """Text of tokens as they come; a character is held back until all its bytes are there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._shown = 0

    def new(self, token_ids: Sequence[int], is_over: bool = False) -> str:
        """Return what is new in the text of all tokens so far."""
        whole = self._tokenizer.decode(token_ids)
        if not is_over:
            whole = whole.rstrip("\ufffd")
        new, self._shown = whole[self._shown :], max(self._shown, len(whole))
        return new

    def place(self, token_ids: Sequence[int], token: int) -> int:
        """Return where in the text of all tokens so far the text of one of them begins."""
        before, whole = (self._tokenizer.decode(ids) for ids in (token_ids[:token], token_ids))
        at = first_difference(before, whole)
        return min(len(before), len(whole)) if at is None else at
