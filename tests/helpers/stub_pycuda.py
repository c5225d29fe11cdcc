"""What the backend asks of ``pycuda.driver``, on the host's memory, beside ``stub_driver.cpp``."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Error(Exception): ...


class MemoryError(Error): ...


class Allocation:
    """Memory of the host that is given back by hand."""

    def __init__(self, nbytes: int) -> None:
        self._memory = ctypes.create_string_buffer(b"\xee" * nbytes, nbytes)
        self.__array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (int(self), False), "version": 3,
        }  # fmt: skip

    def __int__(self) -> int:
        return ctypes.addressof(self._memory)

    def free(self) -> None: ...


class Context:
    """A context; any one will do."""

    def push(self) -> None: ...

    def detach(self) -> None: ...

    @staticmethod
    def pop() -> None: ...

    @staticmethod
    def synchronize() -> None: ...


class Device:
    """The one device."""

    def __init__(self, index: int) -> None: ...

    def make_context(self, flags: int) -> Context:
        return Context()


ctx_flags = SimpleNamespace(SCHED_SPIN=1, SCHED_YIELD=2, SCHED_BLOCKING_SYNC=4, MAP_HOST=8)
mem_alloc = Allocation


def init() -> None: ...


def pagelocked_empty(nbytes: int, dtype: Any) -> NDArray[Any]:
    return np.asarray(Allocation(nbytes)).view(dtype)


def memset_d8(address: int, value: int, nbytes: int) -> None:
    ctypes.memset(address, value, nbytes)


def memcpy_htod(address: int, contents: NDArray[Any]) -> None:
    ctypes.memmove(address, contents.ctypes.data, contents.nbytes)


def memcpy_dtoh(contents: NDArray[Any], address: int) -> None:
    ctypes.memmove(contents.ctypes.data, address, contents.nbytes)
