"""Memory, context and kernels of a GPU as PyCUDA has them; PyCUDA itself is handed in."""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.cuda_driver import driver_error
from syncscope.sched_core.errors import DeviceError


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel instance as the GPU runs it.

    Parameters
    ----------
    cubin : bytes
        The compiled module.
    function : str
        Name of the kernel in it.
    n_arguments : int
        How many pointers it takes before its parameters.
    params : tuple of bytes
        Its parameters by value, each as C holds it.
    grid, block : tuple of int
        Three numbers each.
    shared_nbytes : int
        Dynamic shared memory of a block.
    """

    cubin: bytes
    function: str
    n_arguments: int
    params: tuple[bytes, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_nbytes: int = 0


def translated(drv: Any, error: Exception, call: str) -> DeviceError:
    """Return the DeviceError for an exception of PyCUDA's."""
    if isinstance(error, drv.MemoryError):
        return driver_error(2, call)
    return DeviceError(
        f"{call}: {error}; look at nvidia-smi and the kernel log, or run again in a new process"
    )


class Pushed:
    """Makes a context current in this thread, and what was before current again."""

    def __init__(self, drv: Any, context: Any, thread: int) -> None:
        self._drv, self._context, self._thread = drv, context, thread

    def __enter__(self) -> None:
        if self._context is None:
            raise DeviceError("the device has been closed; open it again")
        if get_ident() != self._thread:
            raise DeviceError("a GPU is used by the thread that opened it, and by no other")
        self._context.push()

    def __exit__(self, *error: object) -> None:
        self._drv.Context.pop()


class Memory:
    """One slot of a buffer: where it is, and what keeps it alive."""

    def __init__(
        self, drv: Any, memory: str, nbytes: int, contents: npt.NDArray[np.uint8] | None = None
    ) -> None:
        self.memory, self.nbytes = memory, nbytes
        self.array: npt.NDArray[np.uint8] | None = None
        self._drv = drv
        self._owner: Any = None
        if memory == "device":
            self._owner = drv.mem_alloc(max(nbytes, 1))
            self.address = int(self._owner)
            self.write(contents)
            # by the default stream, which other streams do not wait for
            drv.Context.synchronize()
            return
        if memory == "pinned":
            array = drv.pagelocked_empty(max(nbytes, 1), np.uint8)[:nbytes]
            array[:] = 0 if contents is None else contents
            self._owner = array.base
            while isinstance(self._owner, np.ndarray):
                self._owner = self._owner.base
        else:
            array = np.zeros(nbytes, np.uint8) if contents is None else contents
        self.array = array
        self.address = array.ctypes.data

    def write(self, contents: npt.NDArray[np.uint8] | None) -> None:
        """Write all bytes, zeros for None; the device has them once it is idle."""
        if self.array is not None:
            self.array[:] = 0 if contents is None else contents
        elif contents is None:
            self._drv.memset_d8(self.address, 0, max(self.nbytes, 1))
        else:
            self._drv.memcpy_htod(self.address, contents)

    def read(self) -> npt.NDArray[np.uint8]:
        """Return a copy of the bytes."""
        if self.array is not None:
            return self.array.copy()
        out = np.empty(self.nbytes, np.uint8)
        if self.nbytes:
            self._drv.memcpy_dtoh(out, self.address)
        return out

    def free(self) -> None:
        """Give the memory back."""
        if self._owner is not None:
            self._owner.free()
        self._owner = self.array = None
