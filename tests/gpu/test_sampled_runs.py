"""Runs that draw their tokens on a real GPU: where the draw is made does not show."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from helpers.draws import host_token
from helpers.gpu import (
    GROUPED_F16,
    ODD_F32,
    first_gpu,
    has_context,
    open_backend,
    results,
    small_workload,
)
from syncscope.app.devices import CudaDevice
from syncscope.app.results import VariantResult
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.sampling import Sampling
from syncscope.kernels.transformer import ModelConfig
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.passes.registry import available_presets
from syncscope.sched_core.records import Kind

pytestmark = pytest.mark.gpu

PRESETS = [preset for preset in available_presets() if preset != "baseline"]
WARM = Sampling(temperature=1.5, top_k=60, top_p=0.97, seed=11)


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(first_gpu())


@pytest.fixture(autouse=True)
def _stack_stays_empty(device: CudaDevice) -> Iterator[None]:
    yield
    assert not has_context()


def workload_of(config: ModelConfig, sampling: Sampling = WARM, ubatch: int = 4) -> Workload:
    workload = small_workload(config, n_tokens=20, ubatch=ubatch)
    return replace(workload, sampling=sampling)


def sampled_by(result: VariantResult) -> set[Kind]:
    """The kinds of op that draw: host work or a kernel."""
    return {site.kind for site in result.trace.sites if site.name == "sample"}


@pytest.mark.parametrize("config", [GROUPED_F16, ODD_F32], ids=["grouped-f16", "odd-f32"])
@pytest.mark.parametrize("sampling", [WARM, Sampling(1.0, seed=2)], ids=["cut", "plain"])
def test_every_preset_draws_the_same_tokens(
    device: CudaDevice, config: ModelConfig, sampling: Sampling
) -> None:
    found = results(
        workload_of(config, sampling), device, [preset_variant(each) for each in PRESETS]
    )
    assert len({(each.token_ids, each.logits_sha256) for each in found.values()}) == 1
    assert len(found["baseline"].token_ids) == 20
    assert all(each.bit_exact for each in found.values())
    assert sampled_by(found["baseline"]) == {Kind.HOST}
    assert sampled_by(found["all"]) == {Kind.LAUNCH}


@pytest.mark.parametrize("preset", ["baseline", "all"])
def test_each_token_of_replayed_graphs_is_the_host_s_draw_from_the_tapped_logits(
    device: CudaDevice, preset: str
) -> None:
    workload = workload_of(GROUPED_F16)
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, plan_variant(workload.plan(), preset_variant(preset)).plan)
        for phase, steps in workload.segments:
            engine.run(phase, steps)
        engine.drain()
        rows = backend.read("tap").view(np.float32).reshape(workload.n_kv, -1).copy()
        tokens = backend.read("tokens").view(np.int32).tolist()
        kinds = {engine.sites[op].kind for op in np.unique(engine.take_spans()["op"])}
    first = len(workload.prompt)
    parameters = {
        "temperature": WARM.temperature,
        "top_k": WARM.top_k,
        "top_p": WARM.top_p,
        "seed": WARM.seed,
    }
    wanted = [
        host_token(rows[position], [position], **parameters)
        for position in range(first - 1, workload.n_positions)
    ]
    assert tokens[first:] == wanted
    assert wanted != rows[first - 1 : workload.n_positions].argmax(axis=1).tolist()
    assert Kind.GRAPH in kinds


def test_micro_batches_do_not_change_the_draws_and_seeds_do(device: CudaDevice) -> None:
    def tokens(sampling: Sampling, ubatch: int) -> tuple[int, ...]:
        workload = workload_of(GROUPED_F16, sampling, ubatch)
        return results(workload, device, [preset_variant("all")])["all"].token_ids

    assert len({tokens(WARM, ubatch) for ubatch in (1, 3, 8, 11)}) == 1
    assert len({tokens(replace(WARM, seed=seed), 4) for seed in range(4)}) == 4
