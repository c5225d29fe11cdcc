"""Compare the .pyi of every compiled module with the module itself (mypy's stubtest)."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDERS = ("app", "sched_core", "kernels")

# What Cython adds to a module or class by itself, and no user calls.
CYTHON_NAMES = r"""
.*\.__pyx_\w+
.*\.__test__
.*\.__reduce_cython__
.*\.__setstate_cython__
.*\.__reduce__
.*\.__setstate__
"""


def compiled_modules() -> list[str]:
    """Return the installed name of every .pyx in the tree."""
    found = [pyx for folder in FOLDERS for pyx in sorted(Path(folder).rglob("*.pyx"))]
    return [".".join(("syncscope", *pyx.with_suffix("").parts)) for pyx in found]


def main() -> int:
    """Run stubtest and return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        allowlist = Path(folder, "cython-names")
        allowlist.write_text(CYTHON_NAMES, encoding="utf-8")
        command = [sys.executable, "-m", "mypy.stubtest", *compiled_modules()]
        command += ["--allowlist", str(allowlist), "--ignore-unused-allowlist"]
        command += ["--concise", "--ignore-disjoint-bases"]
        environment = {**os.environ, "MYPYPATH": "build/cython-root"}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
