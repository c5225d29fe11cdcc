"""Memory of a GPU's backend: when it may be used."""

from types import SimpleNamespace

import numpy as np
import pytest

from syncscope.sched_core.cuda_memory import Memory


def pretended_driver(calls: list[str]) -> SimpleNamespace:
    """A driver that notes its calls; what fills memory is done by the default stream, later."""
    return SimpleNamespace(
        mem_alloc=lambda nbytes: 4096,
        memset_d8=lambda *_: calls.append("memset"),
        memcpy_htod=lambda *_: calls.append("copy"),
        Context=SimpleNamespace(synchronize=lambda: calls.append("synchronize")),
    )


@pytest.mark.parametrize("contents", [None, np.arange(8, dtype=np.uint8)])
def test_device_memory_is_filled_before_another_stream_can_use_it(contents) -> None:
    calls: list[str] = []
    Memory(pretended_driver(calls), "device", 8, contents)
    assert calls == ["memset" if contents is None else "copy", "synchronize"]
