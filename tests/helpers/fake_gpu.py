"""A pretended GPU: a driver, a CUPTI and a PyCUDA for processes of their own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAKE = Path(__file__).with_name("fake_cuda")
TESTS = Path(__file__).parents[1]
COMPILER = shutil.which("cc") or shutil.which("gcc")

FakeGPU = Callable[..., Any]
"""Called with the name of a scenario and its arguments."""


def build(folder: Path) -> None:
    """Make the driver and CUPTI, one library under two names."""
    library = folder / "libcuda.so.1"
    sources = [str(FAKE / "driver.c"), str(FAKE / "cupti.c")]
    command = [str(COMPILER), "-shared", "-fPIC", "-O1", "-pthread", "-o", str(library), *sources]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "libcupti.so.13").symlink_to(library)


def run_scenario(folder: Path, name: str, options: str = "", **arguments: Any) -> Any:
    """Run a function of `scenarios` in a process that finds the pretended GPU; return its result.

    `options` is what the pretended CUPTI shall do wrong.
    """
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join([str(FAKE), str(TESTS)]),
        "FAKE_CUPTI": options,
    }
    done = subprocess.run(
        [sys.executable, "-m", "helpers.fake_cuda.scenarios", name, json.dumps(arguments)],
        env=environment,
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
