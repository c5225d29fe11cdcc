"""Contexts that are counted, and memory that is the host's."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np

ctx_flags = SimpleNamespace(SCHED_SPIN=1, SCHED_YIELD=2, SCHED_BLOCKING_SYNC=4, MAP_HOST=8)
live = {"contexts": 0, "allocations": 0}
_current: list["Context"] = []


class Error(Exception):
    """Base of what PyCUDA raises."""


class MemoryError(Error):
    """Not enough of it."""


class LogicError(Error):
    """What should not have been asked."""


class Context:
    """A context, current where it is on top of the stack."""

    def push(self) -> None:
        _current.append(self)

    @staticmethod
    def pop() -> None:
        if not _current:
            raise LogicError("no context is current")
        _current.pop()

    @staticmethod
    def synchronize() -> None:
        """Nothing of PyCUDA's own is ever pending here."""

    def detach(self) -> None:
        assert self not in _current
        live["contexts"] -= 1


class Device:
    """The one GPU."""

    def __init__(self, index: int) -> None:
        assert index == 0

    def make_context(self, flags: int) -> Context:
        live["contexts"] += 1
        _current.append(Context())
        return _current[-1]


class _Memory:
    def __init__(self, nbytes: int) -> None:
        live["allocations"] += 1
        self._array = np.zeros(nbytes, np.uint8)
        self.__array_interface__ = self._array.__array_interface__

    def __int__(self) -> int:
        return self._array.ctypes.data

    def free(self) -> None:
        live["allocations"] -= 1


def init() -> None:
    """Start the driver."""


def mem_get_info() -> tuple[int, int]:
    return (1 << 34) - 4096 * live["allocations"], 1 << 34


def mem_alloc(nbytes: int) -> _Memory:
    return _Memory(nbytes)


def pagelocked_empty(nbytes: int, dtype: Any) -> np.ndarray:
    return np.asarray(_Memory(nbytes)).view(dtype)


def memset_d8(address: int, value: int, nbytes: int) -> None:
    ctypes.memset(address, value, nbytes)


def memcpy_htod(address: int, array: np.ndarray) -> None:
    ctypes.memmove(address, array.ctypes.data, array.nbytes)


def memcpy_dtoh(array: np.ndarray, address: int) -> None:
    ctypes.memmove(array.ctypes.data, address, array.nbytes)
