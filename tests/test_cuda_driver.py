"""The driver's table without a driver: what is loaded, and what is said when it cannot be."""

import platform
import re
import sys
from pathlib import Path

import pytest

from syncscope.app.devices import choose_device, device_rows
from syncscope.sched_core import cuda_backend, cuda_driver
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.cuda_driver import FUNCTIONS, LIBRARY, OPTIONAL, driver_error, load
from syncscope.sched_core.errors import DeviceError, UsageError

PXD = Path(cuda_driver.__file__).with_name("cuda_driver.pxd")
NO_SUCH = "libsyncscope-no-such-driver.so.1"


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert text and "\n" not in text
    return text


def test_an_absent_driver_is_one_line_with_a_remedy() -> None:
    with pytest.raises(DeviceError) as error:
        load(NO_SUCH)
    text = one_line(error)
    assert NO_SUCH in text
    assert text.endswith(cuda_driver.NO_DRIVER)
    assert error.value.exit_code == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="loads a library of the GNU system")
def test_a_library_that_is_no_driver_names_what_it_lacks() -> None:
    with pytest.raises(DeviceError, match=f"libm.so.6 has no {FUNCTIONS[0]}") as error:
        load("libm.so.6")
    assert cuda_driver.TOO_OLD in one_line(error)


def test_the_table_lists_its_functions_in_the_order_of_its_members() -> None:
    members = re.findall(r"CUresult \(\*(\w+)\)", PXD.read_text(encoding="utf-8"))
    assert len(members) == len(FUNCTIONS)
    for member, name in zip(members, FUNCTIONS, strict=True):
        snake = re.sub(r"_v\d$", "", name.removeprefix("cu"))
        words = {
            "GraphInstantiateWithFlags": "graph_instantiate",
            "MemcpyHtoDAsync": "memcpy_htod_async",
            "MemcpyDtoHAsync": "memcpy_dtoh_async",
            "MemcpyDtoDAsync": "memcpy_dtod_async",
        }.get(snake, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", snake).lower())
        assert member == words, name
    assert set(FUNCTIONS) >= OPTIONAL


def test_the_library_is_that_of_the_platform() -> None:
    expected = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    assert expected == LIBRARY


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (2, "smaller model"),
        (100, "nvidia-smi"),
        (700, "run again"),
        (222, "driver"),
        (12345, "log"),
    ],
)
def test_every_error_names_the_call_and_a_remedy(status: int, remedy: str) -> None:
    text = str(driver_error(status, "step 7, layer.0.qkv: cuLaunchKernel"))
    assert text.startswith("step 7, layer.0.qkv: cuLaunchKernel failed: ")
    assert remedy in text
    assert "\n" not in text


def test_a_backend_refuses_what_it_does_not_know_before_it_looks_for_a_gpu() -> None:
    with pytest.raises(UsageError, match="--wait spins: did you mean spin"):
        cuda_backend.CudaBackend(KernelTable(), {}, {}, wait="spins")
    with pytest.raises(UsageError, match="--record"):
        cuda_backend.CudaBackend(KernelTable(), {}, {}, record="everything")


# ---- choosing a device --------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["hip", "cuda:x", "cuda:", "cuda:0,1", "cuda:-1", "sim:0"])
def test_a_device_that_is_none_is_refused(asked: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--device {asked}: ")):
        choose_device(asked)


def test_the_simulator_is_there_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise DeviceError("no NVIDIA driver: it is not there; install the NVIDIA driver")

    monkeypatch.setattr("syncscope.app.devices.list_gpus", absent)
    assert choose_device("sim").gpu is None
    chosen = choose_device("")
    assert chosen.gpu is None
    assert chosen.line.startswith("device: sim, since no NVIDIA driver")
    with pytest.raises(DeviceError, match="--device cuda:1: no NVIDIA driver"):
        choose_device("cuda:1")
    assert device_rows()[-1][2].startswith("unavailable: no NVIDIA driver")


def test_a_gpu_without_pycuda_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = cuda_driver.GPU(0, "a GPU", (9, 0), 80 << 30)
    monkeypatch.setattr("syncscope.app.devices.list_gpus", lambda: [gpu])
    monkeypatch.setattr("syncscope.app.devices.pycuda_problem", lambda: "no PyCUDA; install it")
    assert choose_device("").gpu is None
    with pytest.raises(DeviceError, match="no PyCUDA; install it"):
        choose_device("cuda")
    assert device_rows()[-1] == ("cuda:0", "a GPU", "unavailable: no PyCUDA; install it")
    monkeypatch.setattr("syncscope.app.devices.pycuda_problem", lambda: None)
    assert choose_device("").gpu == choose_device("cuda:0").gpu == gpu
    assert device_rows()[-1] == ("cuda:0", "a GPU", "sm_90, 80 GiB")
    with pytest.raises(DeviceError, match="no GPU 1: there are 1"):
        choose_device("cuda:1")
