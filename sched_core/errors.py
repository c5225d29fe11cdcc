"""The exceptions of Syncscope; each carries the exit code that the command ends with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SyncscopeError(Exception):
    """Something the user can act on: one line with what happened, where, and what to do."""

    exit_code = 3


class UsageError(SyncscopeError):
    """A name, value or combination that cannot be used as asked."""

    exit_code = 2


class FileError(SyncscopeError):
    """A file that is missing, unreadable, unwritable, truncated or of another kind."""


class DeviceError(SyncscopeError):
    """A device that is missing, failed or refused an operation."""


class KernelFault(DeviceError):
    """A kernel met a value out of range: wrong input, or data read while stale.

    Parameters
    ----------
    step : int
    site : str
    what : str
        What the value is, such as ``token id``.
    value, low, high : int
        The value and the range it should be in, both ends included.
    """

    def __init__(self, step: int, site: str, what: str, value: int, low: int, high: int) -> None:
        super().__init__(f"step {step}, {site}: {what} {value} outside {low}..{high}")
        self.step = step
        self.site = site
        self.value = value


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean ...`` with the known names closest to `name`, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
