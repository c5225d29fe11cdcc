"""Memory of a GPU as PyCUDA has it, with a driver that only notes what it is asked."""

from types import SimpleNamespace

import numpy as np
import pytest

from syncscope.sched_core.cuda_memory import Memory

BYTES = np.arange(4, dtype=np.uint8)


class Driver:
    """Gives out memory at address 4096 and notes what is written there."""

    def __init__(self):
        self.asked = []
        self.Context = SimpleNamespace(synchronize=lambda: self.asked.append(("synchronize",)))

    def mem_alloc(self, nbytes):
        self.asked.append(("alloc", nbytes))
        return Allocation(4096)

    def memset_d8(self, address, value, nbytes):
        self.asked.append(("zero", address, nbytes))

    def memcpy_htod(self, address, contents):
        self.asked.append(("copy", address, contents.tolist()))


class Allocation(int):
    def free(self):
        pass


@pytest.mark.parametrize(("contents", "written"), [
    (None, ("zero", 4096, 4)),
    (BYTES, ("copy", 4096, [0, 1, 2, 3])),
])  # fmt: skip
def test_device_memory_is_written_by_the_driver_at_first_and_again(contents, written):
    driver = Driver()
    memory = Memory(driver, "device", 4, contents)
    # other streams do not wait for the one that writes: it is waited for
    assert driver.asked == [("alloc", 4), written, ("synchronize",)]
    memory.write(contents)
    assert driver.asked[3:] == [written]


def test_host_memory_is_written_in_place():
    mine = BYTES.copy()
    memory = Memory(Driver(), "pageable", 4, mine)
    memory.write(None)
    assert mine.tolist() == [0, 0, 0, 0]
    memory.write(BYTES)
    assert mine.tolist() == memory.read().tolist() == [0, 1, 2, 3]
