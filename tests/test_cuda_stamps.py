"""Stamps on their way from kernels through the ring to spans, on a driver that is a stub."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import stub_run
from syncscope.kernels.loader import SOURCES

HELPERS = Path(stub_run.__file__).parent

needs_compiler = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("c++") is None, reason="no C++ compiler for the stub"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `helpers.stub_run` prints."""
    library = tmp_path_factory.mktemp("stub") / "libcuda-stub.so"
    build = ["c++", "-std=c++17", "-shared", "-fPIC", "-Wall", "-I", str(SOURCES)]
    source = HELPERS / "stub_driver.cpp"
    subprocess.run([*build, str(source), "-o", str(library)], check=True, timeout=120)
    done = subprocess.run(
        [sys.executable, "-m", "helpers.stub_run", str(library)],
        env={**os.environ, "PYTHONPATH": str(HELPERS.parent)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_compiler
@pytest.mark.parametrize("name", ["eager", "replays", "phases", "plans", "busy"])
def test_every_launch_of_every_step_is_a_span_with_its_own_stamps(
    runs: dict[str, Any], name: str
) -> None:
    launched, spans = runs[name]["launched"], runs[name]["spans"]
    wanted = [(step, site) for step, sites in enumerate(launched) for site in sites]
    length = {(step, site): ns for step, site, ns in spans}
    assert len(spans) == len(length)
    assert sorted(length) == sorted(wanted)
    first = round(length[wanted[0]] / 1000)  # lengths tell which launch wrote: 1 to 61, in turn
    for n, each in enumerate(wanted):
        assert abs(length[each] - 1000 * ((first - 1 + n) % 61 + 1)) <= 200, each
