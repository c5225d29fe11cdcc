"""The device's seeded draw against its host twin: the same token, whatever the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.draws import KINDS, awkward_logits, host_token, sample_instance, settings

if TYPE_CHECKING:
    from conftest import KernelRunner

pytestmark = pytest.mark.gpu

Array = NDArray[Any]


def device_token(runner: KernelRunner, logits: Array, pos: list[int], **changed: float) -> int:
    """The token that the device draws."""
    instance = sample_instance(len(pos), len(logits), **changed)
    token = np.full(1, -9, np.int32)
    assert runner.run(instance, [logits, np.array(pos, np.int32), token]) is None
    return int(token[0])


@pytest.mark.parametrize("size", [1, 2, 31, 33, 1023, 1025, 5003])
@pytest.mark.parametrize("kind", KINDS)
def test_awkward_logits_give_the_host_s_token(runner: KernelRunner, kind: str, size: int) -> None:
    logits = awkward_logits(kind, size, size)
    for number, changed in enumerate(settings(size)):
        pos = [5, number]
        assert device_token(runner, logits, pos, **changed) == host_token(logits, pos, **changed)


@pytest.mark.parametrize("size", [32000, 128256])
@pytest.mark.parametrize("kind", ["normal", "wide", "ties", "equal", "rising", "holes"])
def test_large_vocabularies_give_the_host_s_token(
    runner: KernelRunner, kind: str, size: int
) -> None:
    logits = awkward_logits(kind, size, size)
    for position, changed in enumerate(settings(size)):
        for pos in ([position], [position + 4000]):
            found = device_token(runner, logits, pos, **changed)
            assert found == host_token(logits, pos, **changed), changed


def test_many_draws_give_the_host_s_tokens(runner: KernelRunner) -> None:
    rng = np.random.default_rng(1)
    found, wanted = [], []
    for position in range(300):
        logits = (rng.normal(size=997) * 3).astype(np.float32)
        changed = {
            "temperature": float(rng.uniform(0.1, 3)),
            "top_k": int(rng.integers(0, 200)),
            "top_p": float(rng.uniform(0.05, 1)),
            "seed": int(rng.integers(0, 1 << 53)),
        }
        found.append(device_token(runner, logits, [position], **changed))
        wanted.append(host_token(logits, [position], **changed))
    assert found == wanted
    assert len(set(wanted)) > 50


def test_draws_repeat(runner: KernelRunner) -> None:
    logits = awkward_logits("ties", 50000, 2)
    changed = {"top_k": 3000, "top_p": 0.9}
    assert len({device_token(runner, logits, [8], **changed) for _ in range(20)}) == 1


def test_stamps_enclose_a_draw(runner: KernelRunner) -> None:
    logits, token = awkward_logits("normal", 32000, 3), np.zeros(1, np.int32)
    arrays = [logits, np.array([4], np.int32), token]
    instance = sample_instance(1, len(logits), top_k=50, top_p=0.9)
    fault, times = runner.run_steps(instance, arrays, 3, capacity=3, slot=1, n_slots=2)
    assert fault is None
    done = times[[0, 1, 3]]  # two steps in the ring, the last one behind it
    begin, end = done[:, 1, 0].astype(np.int64), done[:, 1, 1].astype(np.int64)
    assert (begin > 0).all()
    assert (end >= begin).all()
    assert token[0] == host_token(logits, [4], top_k=50, top_p=0.9)
