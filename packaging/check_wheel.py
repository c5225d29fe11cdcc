"""Check that a wheel holds the whole product and nothing else, and that the product starts.

Usage: python packaging/check_wheel.py dist/syncscope-*.whl, from the project root.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

NAME = "syncscope"
FOLDERS = {
    "packaging/syncscope": NAME,
    "app": f"{NAME}/app",
    "sched_core": f"{NAME}/sched_core",
    "kernels": f"{NAME}/kernels",
}
BUILT = {".so", ".pyd"}
LEFT_OUT = {".c", ".pyc", *BUILT}  # made by a build, in the tree only by accident


def problems(wheel: Path) -> list[str]:
    """Return one line per fault of `wheel`, compared with the tree in the working directory."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    found = [
        f"stray top-level name: {top}"
        for top in sorted({name.split("/")[0] for name in names})
        if top != NAME and not top.endswith(".dist-info")
    ]
    modules = {
        str(PurePosixPath(name).parent / PurePosixPath(name).name.split(".")[0])
        for name in names
        if PurePosixPath(name).suffix in BUILT
    }
    for folder, target in FOLDERS.items():
        for path in sorted(Path(folder).rglob("*")):
            if not path.is_file() or path.suffix in LEFT_OUT:
                continue
            installed = f"{target}/{path.relative_to(folder).as_posix()}"
            if path.suffix == ".pyx":
                if installed.removesuffix(".pyx") not in modules:
                    found.append(f"not compiled: {path}")
            elif installed not in names:
                found.append(f"missing: {path} (package-data or packages in pyproject.toml)")
    return found


def start_failure(wheel: Path) -> list[str]:
    """Import the command from the unpacked wheel; return the error's last line, if any."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        done = subprocess.run(
            [sys.executable, "-c", f"import {NAME}.app.cli as cli; print(cli.__file__)"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return [f"does not start: {done.stderr.strip().splitlines()[-1]}"]
        if not done.stdout.startswith(os.path.realpath(folder)):
            return [f"imported from elsewhere: {done.stdout.strip()}"]
    return []


def main(wheels: list[str]) -> int:
    """Check each wheel, print what is wrong, and return the exit code."""
    if not wheels:
        print(__doc__, file=sys.stderr)
        return 2
    bad = 0
    for wheel in wheels:
        faults = problems(Path(wheel)) or start_failure(Path(wheel))
        bad += len(faults)
        print(f"{wheel}: {'complete' if not faults else f'{len(faults)} faults'}")
        for fault in faults:
            print(f"  {fault}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
