"""A GPU for tests of kernels: a context that is popped on every path."""

import warnings
from collections.abc import Collection, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from syncscope.kernels.cuda_launch import (
    ADVANCE_SHAPE,
    ADVANCE_STEP,
    SOURCE_OF,
    LaunchShape,
    launch_shape,
)
from syncscope.kernels.loader import load_modules
from syncscope.kernels.signature import Instance, parameter_type
from syncscope.sched_core.cuda_driver import list_gpus
from syncscope.sched_core.errors import DeviceError

Array = NDArray[Any]

FAULT = np.dtype(
    {
        "names": ["set", "kernel_slot", "value", "low", "high", "what"],
        "formats": ["i4", "i4", "i8", "i8", "i8", "i4"],
        "offsets": [0, 4, 8, 16, 24, 32],
        "itemsize": 40,
    }
)
COUNTER = np.dtype([("row", "u8"), ("first", "u8"), ("last", "u8"), ("step", "i8")])
STRUCT_LETTERS = {"i32": "i", "f32": "f", "u64": "Q"}
CANARY = np.full(256, 0xA5, np.uint8)
"""Written behind each argument: a kernel that runs over its end changes it."""


class Fault(NamedTuple):
    """What a kernel refused."""

    kernel_slot: int
    value: int
    low: int
    high: int
    what: int


class KernelRunner:
    """Runs kernel instances on numpy arrays, in a context that is current."""

    def __init__(self, driver: ModuleType, arch: str) -> None:
        self._driver = driver
        cubins = load_modules(arch)
        self._modules = {
            file: driver.module_from_buffer(cubins[kernel]) for kernel, file in SOURCE_OF.items()
        }
        self._owned: list[Any] = []

    def _upload(self, contents: Array) -> int:
        """Return the address of a copy on the device."""
        memory = self._driver.mem_alloc(max(contents.nbytes, 1))
        self._owned.append(memory)
        if contents.nbytes:
            self._driver.memcpy_htod(memory, contents.reshape(-1).view(np.uint8))
        return int(memory)

    def _download(self, address: int, dtype: Any, *shape: int) -> Array:
        out = np.empty(shape, dtype)
        self._driver.memcpy_dtoh(out.reshape(-1).view(np.uint8), address)
        return out

    def _prepare(self, kernel: str, letters: str) -> Any:
        function = self._modules[SOURCE_OF[kernel]].get_function(kernel)
        function.prepare(letters)
        return function

    def free(self) -> None:
        """Give back all memory; before the context goes."""
        while self._owned:
            self._owned.pop().free()

    def run(
        self,
        instance: Instance,
        arrays: Sequence[Array],
        slot: int = 0,
        shape: LaunchShape | None = None,
    ) -> Fault | None:
        """Run once and write the results back into `arrays`; equal objects are one buffer."""
        fault, _ = self.run_steps(instance, arrays, 1, slot=slot, shape=shape)
        return fault

    def run_steps(
        self,
        instance: Instance,
        arrays: Sequence[Array],
        n_steps: int,
        capacity: int = 0,
        slot: int = 0,
        n_slots: int = 1,
        shape: LaunchShape | None = None,
        skipped: Collection[int] = (),
    ) -> tuple[Fault | None, Array]:
        """Run steps of one kernel, but in those skipped; return the fault and the stamps.

        The stamps are [capacity + 1, n_slots, 2] nanoseconds: the rows of a ring of `capacity`
        steps, then those of the last step.  With capacity 0 none are taken.
        """
        shape = shape or launch_shape(instance)
        address = {
            id(array): self._upload(np.concatenate([array.reshape(-1).view(np.uint8), CANARY]))
            for array in arrays
        }
        ring = self._upload(np.zeros((capacity, n_slots, 2), np.uint64))
        stamps = self._upload(np.zeros((n_slots, 2), np.uint64))
        row_nbytes = 16 * n_slots
        last = ring + max(capacity - 1, 0) * row_nbytes
        counter = self._upload(np.array([(last, ring, last, -1)], COUNTER))
        fault = self._upload(np.zeros(1, FAULT))
        stamp = stamps + 16 * slot if capacity else 0
        parameters = instance.kernel.parameters
        letters = "".join(STRUCT_LETTERS[parameter_type(name)] for name in parameters)
        function = self._prepare(instance.kernel.name, "P" * len(arrays) + letters + "PPi")
        advance = self._prepare(ADVANCE_STEP, "PPi")
        for step in range(n_steps):
            if capacity:
                advance.prepared_call(
                    ADVANCE_SHAPE.grid, ADVANCE_SHAPE.block, counter, stamps, n_slots
                )
            if step not in skipped:
                function.prepared_call(
                    shape.grid, shape.block, *(address[id(array)] for array in arrays),
                    *instance.params, fault, stamp, slot, shared_size=shape.shared_nbytes,
                )  # fmt: skip
        self._driver.Context.synchronize()
        if capacity:
            (count,) = self._download(counter, COUNTER, 1)
            assert count["step"] == n_steps - 1
            assert count["row"] == ring + (n_steps - 1) % capacity * row_nbytes
        for array in arrays:
            found = self._download(address[id(array)], np.uint8, array.nbytes + CANARY.size)
            assert (found[array.nbytes :] == CANARY).all(), "a kernel wrote behind an argument"
            array[...] = found[: array.nbytes].view(array.dtype).reshape(array.shape)
        (record,) = self._download(fault, FAULT, 1)
        taken = np.zeros((capacity + 1, n_slots, 2), np.uint64)
        if capacity:
            taken[:capacity] = self._download(ring, np.uint64, capacity, n_slots, 2)
            taken[capacity] = self._download(stamps, np.uint64, n_slots, 2)
        self.free()
        if not record["set"]:
            return None, taken
        return Fault(*(int(record[name]) for name in Fault._fields)), taken


@pytest.fixture(scope="session")
def cuda_driver() -> ModuleType:
    """PyCUDA's driver module, initialised; skips only where there is no GPU."""
    try:
        list_gpus()
    except DeviceError as error:
        pytest.skip(f"no CUDA device: {error}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PyCUDA imports is not ours to mend
            import pycuda.driver as driver
    except ImportError as error:
        pytest.fail(f"a GPU is here, but no PyCUDA: {error}")
    try:
        driver.init()
    except driver.Error as error:
        pytest.skip(f"no CUDA device: {error}")
    if driver.Device.count() == 0:
        pytest.skip("no CUDA device")
    return driver


@pytest.fixture(scope="module")
def runner(cuda_driver: ModuleType) -> Iterator[KernelRunner]:
    """A runner in a context of its own."""
    device = cuda_driver.Device(0)
    context = device.make_context()
    try:
        major, minor = device.compute_capability()
        made = KernelRunner(cuda_driver, f"sm_{major}{minor}")
        try:
            yield made
        finally:
            made.free()
            made._modules.clear()
    finally:
        context.pop()
        context.detach()
