"""Where the times of a recording come from, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def origin_word(header: Mapping[str, Any]) -> str:
    """Return ``simulated`` or ``measured``."""
    return "simulated" if header.get("simulated") else "measured"


def origin_text(header: Mapping[str, Any]) -> str:
    """Return the word and what stands behind it: the profile, or the device."""
    device = header.get("device", {})
    if header.get("simulated"):
        source = str(device.get("profile") or "").partition(" ")[0]
    else:
        source = str(device.get("name") or "")
    return f"{origin_word(header)} ({source})" if source else origin_word(header)
