"""Where and when a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from syncscope import __version__


def describe_environment() -> dict[str, Any]:
    """Return the `environment` object of the JSON report; None for what is not known here."""
    return {
        "commit": _commit(),
        "version": __version__,
        "python": platform.python_version(),
        "driver": None,
        "cuda": None,
        "gpu": None,
        "clocks": None,
        "cpu": _cpu(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """Return the commit of the checkout this runs from, marked when it has been changed since.

    `SYNCSCOPE_COMMIT` names it where the checkout was copied without its history.
    """
    if os.environ.get("SYNCSCOPE_COMMIT"):
        return os.environ["SYNCSCOPE_COMMIT"]
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _cpu() -> str:
    """Return the processor's name as Linux tells it, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
