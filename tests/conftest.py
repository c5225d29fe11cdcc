"""Fixtures of several files."""

import sys

import pytest

from helpers.fake_gpu import COMPILER, FakeGPU, build, run_scenario


@pytest.fixture(scope="session")
def fake_gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGPU:
    """Run scenarios on the pretended GPU."""
    if COMPILER is None or sys.platform != "linux":
        pytest.skip("no C compiler to make a pretended GPU with")
    folder = tmp_path_factory.mktemp("fake_gpu")
    build(folder)
    return lambda name, **arguments: run_scenario(folder, name, **arguments)
