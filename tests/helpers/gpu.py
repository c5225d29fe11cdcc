"""What tests on a real GPU share: the GPU, small models, and a look at PyCUDA's context stack."""

from collections.abc import Iterable

import pytest

from syncscope.app.devices import CudaDevice
from syncscope.app.results import BenchResult, VariantResult
from syncscope.app.session import run_bench
from syncscope.app.variants import Variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import Model
from syncscope.kernels.tokenizer import NumberTokenizer
from syncscope.kernels.transformer import ModelConfig
from syncscope.kernels.weights import random_weights
from syncscope.sched_core.cuda_backend import CudaBackend
from syncscope.sched_core.cuda_driver import GPU, list_gpus
from syncscope.sched_core.errors import DeviceError

GROUPED_F16 = ModelConfig(3, D=64, H=8, G=4, S=8, F=172, V=512, context=256)
ODD_F32 = ModelConfig(2, D=45, H=6, G=3, S=10, F=37, V=97, context=96, dtype="f32", pairing=1)


def first_gpu() -> GPU:
    """Return the first GPU; skip where there is none."""
    try:
        return list_gpus()[0]
    except DeviceError as error:
        pytest.skip(f"no CUDA device: {error}")


def random_model(config: ModelConfig, seed: int = 3) -> Model:
    return Model("random", config, random_weights(config, seed), NumberTokenizer(1, config.V))


def small_workload(
    config: ModelConfig, n_prompt: int = 11, n_tokens: int = 12, ubatch: int = 4
) -> Workload:
    prompt = tuple((7 * i + 1) % config.V for i in range(n_prompt))
    return Workload(random_model(config), prompt, n_tokens, ubatch)


def results(
    workload: Workload, device: CudaDevice, variants: Iterable[Variant]
) -> dict[str, VariantResult]:
    """Run variants and the reference; nothing may fail."""
    found: BenchResult = run_bench(workload, device, list(variants))
    assert not found.failure
    return {each.id: each for each in found.variants}


def open_backend(workload: Workload, device: CudaDevice) -> CudaBackend:
    """Return a backend that holds what the workload starts with."""
    backend = device.make_backend(workload, frozenset())
    assert isinstance(backend, CudaBackend)
    return backend


def has_context() -> bool:
    """Whether a context of PyCUDA's is current in this thread; it is popped if so."""
    import pycuda.driver as drv

    try:
        drv.Context.pop()
    except drv.LogicError:
        return False
    return True
