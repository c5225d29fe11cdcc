"""Compiles the device kernels for a GPU's architecture, once: the cubins are cached.

``--fmad=false`` keeps the compiler from fusing a product into an addition in one instance of a
kernel and not in another: the micro-batch size would show in the last bit.  The dot products ask
for the fused operation by name, so this costs nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from syncscope.kernels.cuda_launch import SOURCE_OF
from syncscope.sched_core.errors import DeviceError

SOURCES = Path(__file__).parent / "cuda"
"""Where the sources of the device kernels are."""

HEADERS = ("common.cuh", "../shared_math.h")
"""What the sources include."""

FLAGS = ("-O3", "--fmad=false", "-std=c++17")
"""What every kernel is compiled with."""

_TIMEOUT_S = 600
_ELF = b"\x7fELF"


def cache_folder() -> Path:
    """Return where this user's compiled kernels are kept."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "syncscope" / "cubin"


def find_nvcc() -> str | None:
    """Return the path of nvcc: the one on PATH, or that of an installed toolkit; None without."""
    found = shutil.which("nvcc")
    if found:
        return found
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for home in homes:
        if home and (found := shutil.which("nvcc", path=str(Path(home) / "bin"))):
            return found
    return None


def load_modules(
    arch: str, cache_dir: Path | None = None, extra_flags: Sequence[str] = ()
) -> dict[str, bytes]:
    """Return the cubin of each device kernel, compiled now or before.

    Without nvcc a cubin of the same source, architecture and flags is used, whichever nvcc made it.

    Parameters
    ----------
    arch : str
        Architecture of the GPU, such as ``sm_90``.
    cache_dir : path, optional
        Instead of `cache_folder`.  A folder that cannot be written costs time, nothing else.
    extra_flags : sequence of str
        Given to nvcc after `FLAGS`.

    Returns
    -------
    dict
        Cubin by kernel name; kernels of one file share one.

    Raises
    ------
    DeviceError
        If a kernel is not in the cache and cannot be compiled.
    """
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise DeviceError(f"architecture {arch!r} is not of the form sm_90; check the device")
    build = _Build(arch, cache_dir or cache_folder(), (*FLAGS, *extra_flags))
    files = sorted(set(SOURCE_OF.values()))
    with ThreadPoolExecutor(max(1, min(len(files), os.cpu_count() or 1))) as pool:
        cubins = dict(zip(files, pool.map(build.cubin, files), strict=True))
    return {kernel: cubins[file] for kernel, file in SOURCE_OF.items()}


class _Build:
    """Compiles for one architecture with one set of flags.

    Parameters
    ----------
    arch : str
    folder : path
        The cache.
    flags : tuple of str
    """

    def __init__(self, arch: str, folder: Path, flags: tuple[str, ...]) -> None:
        self.arch = arch
        self.folder = folder
        self.flags = flags
        self.nvcc = find_nvcc()
        self.version = _nvcc_version(self.nvcc) if self.nvcc else "*"

    def cubin(self, file: str) -> bytes:
        """Return the cubin of a source file, from the cache if it is there."""
        digest = hashlib.sha256("\0".join(self.flags).encode())
        for name in (*HEADERS, file):
            digest.update((SOURCES / name).read_bytes())
        stem = f"{Path(file).stem}-{self.arch}-{digest.hexdigest()[:24]}"
        for path in sorted(self.folder.glob(f"{stem}-{self.version}.cubin")):
            found = _read_cubin(path)
            if found is not None:
                return found
        if self.nvcc is None:
            raise DeviceError(
                f"no nvcc to compile {file} for {self.arch}, and no cubin in {self.folder}; "
                "install the CUDA toolkit or put its nvcc on PATH"
            )
        compiled = self._compile(self.nvcc, file)
        _store(self.folder / f"{stem}-{self.version}.cubin", compiled)
        return compiled

    def _compile(self, nvcc: str, file: str) -> bytes:
        """Return what nvcc makes of a source file."""
        with tempfile.TemporaryDirectory(prefix="syncscope-nvcc-") as scratch:
            out = Path(scratch, "out.cubin")
            command = [nvcc, "-cubin", f"-arch={self.arch}", *self.flags, "-o", str(out)]
            try:
                done = subprocess.run(
                    [*command, str(SOURCES / file)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    cwd=scratch,
                    timeout=_TIMEOUT_S,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise DeviceError(
                    f"{nvcc} could not be run on {file} ({error}); "
                    "check the CUDA toolkit's installation"
                ) from None
            found = _read_cubin(out) if done.returncode == 0 else None
            if found is not None:
                return found
            log = self._keep_log(file, " ".join([*command, file]) + "\n" + done.stdout)
        raise DeviceError(
            f"nvcc could not compile {file} for {self.arch}: {_first_error(done.stdout)}; "
            f"full log: {log}"
        )

    def _keep_log(self, file: str, text: str) -> Path:
        """Write what nvcc said where it outlives this call; return where."""
        name = f"nvcc-{Path(file).stem}-{self.arch}.log"
        for folder in (self.folder, Path(tempfile.gettempdir())):
            if _store(folder / name, text.encode()):
                return folder / name
        return Path(os.devnull)


def _nvcc_version(nvcc: str) -> str:
    """Return nvcc's version for use in a file name."""
    try:
        done = subprocess.run(
            [nvcc, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(
            f"{nvcc} could not be run ({error}); check the CUDA toolkit's installation"
        ) from None
    match = re.search(r"\bV(\d+(?:\.\d+)+)", done.stdout)
    if match is None:
        raise DeviceError(f"{nvcc} --version names no version; check the CUDA toolkit")
    return f"nvcc{match[1]}"


def _first_error(log: str) -> str:
    """Return the line of nvcc's output that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in lines:
        if re.search(r"\b(error|fatal)\b", line):
            return line
    return lines[0] if lines else "it said nothing"


def _read_cubin(path: Path) -> bytes | None:
    """Return the contents of a cubin, None if there is none or it is of another kind."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    return found if found.startswith(_ELF) else None


def _store(path: Path, contents: bytes) -> bool:
    """Put a file in its place whole, or not at all; return whether it is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=path.stem[:40], suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(contents)
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError:
        return False
    return True
