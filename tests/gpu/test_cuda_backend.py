"""The same plans on a real GPU: same output in every variant, honest times, clean ends."""

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from helpers.gpu import (
    GROUPED_F16,
    ODD_F32,
    first_gpu,
    has_context,
    open_backend,
    results,
    small_workload,
)
from helpers.plans import make_plan
from syncscope.app.devices import CudaDevice, SimDevice, device_table
from syncscope.app.session import run_bench
from syncscope.app.variants import REFERENCE, Planned, plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.cuda_launch import FAULTS
from syncscope.kernels.registry import load_model
from syncscope.kernels.transformer import ModelConfig, instances
from syncscope.sched_core.backend import BOUNDED, LOWER_BOUND, KernelTable
from syncscope.sched_core.cuda_backend import WAITS, CudaBackend
from syncscope.sched_core.cuda_stamps import STAMP_STEPS
from syncscope.sched_core.engine import SWITCH, Engine
from syncscope.sched_core.errors import DeviceError, KernelFault, UsageError
from syncscope.sched_core.passes.drop_sites import sync_sites
from syncscope.sched_core.passes.registry import available_presets
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.records import Kind

pytestmark = pytest.mark.gpu

CALL, EXEC = 0, 1
PRESETS = [preset for preset in available_presets() if preset != "baseline"]


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(first_gpu())


@pytest.fixture(autouse=True)
def _stack_stays_empty(device: CudaDevice) -> Iterator[None]:
    yield
    assert not has_context()


def tiny_workload(n_tokens: int = 24) -> Workload:
    model = load_model("tiny")
    prompt = tuple(model.tokenizer.encode("Alice looked at the Queen and said"))
    return Workload(model, prompt, n_tokens, 12)


def planned(workload: Workload, preset: str = "baseline") -> Planned:
    return plan_variant(workload.plan(), preset_variant(preset))


def run_phases(engine: Engine, workload: Workload) -> None:
    for phase, steps in workload.segments:
        engine.run(phase, steps)
    engine.drain()


def output_of(backend: CudaBackend, workload: Workload) -> tuple[bytes, bytes]:
    return backend.read("tokens").tobytes(), backend.read("tap").tobytes()


# ---- exactness ----------------------------------------------------------------------------------


def test_every_preset_gives_the_output_and_pattern_of_the_simulator_on_tiny(
    device: CudaDevice,
) -> None:
    workload = tiny_workload()
    variants = [preset_variant(preset) for preset in PRESETS]
    real = results(workload, device, variants)
    simulated = run_bench(workload, SimDevice(load_profile("h200")), variants).variants
    for each in simulated:
        assert real[each.id].bit_exact is not False, each.id
        assert real[each.id].metrics.patterns == each.metrics.patterns, each.id
        assert real[each.id].fault is None
        assert real[each.id].text == each.text, each.id


@pytest.mark.parametrize("config", [GROUPED_F16, ODD_F32], ids=["grouped-f16", "odd-f32"])
def test_every_preset_is_bit_exact_on_random_models(
    device: CudaDevice, config: ModelConfig
) -> None:
    found = results(small_workload(config), device, [preset_variant(each) for each in PRESETS])
    outputs = {(each.token_ids, each.logits_sha256) for each in found.values()}
    assert len(outputs) == 1
    assert len(found["baseline"].token_ids) == 12


def test_micro_batches_of_any_size_give_the_same_logits(device: CudaDevice) -> None:
    outputs = set()
    for ubatch in (1, 3, 8, 11):
        workload = small_workload(GROUPED_F16, ubatch=ubatch)
        with closing(open_backend(workload, device)) as backend:
            run_phases(Engine(backend, planned(workload).plan), workload)
            tap = backend.read("tap").view(np.float32).reshape(-1, GROUPED_F16.V)
            outputs.add(tap[len(workload.prompt) - 1 : workload.n_positions].tobytes())
    assert len(outputs) == 1


def test_replayed_graphs_are_launched_and_change_nothing(device: CudaDevice) -> None:
    found = results(small_workload(GROUPED_F16), device, [preset_variant("no-graph")])
    kinds = {
        name: {each.trace.sites[op].kind for op in np.unique(each.trace.spans["op"])}
        for name, each in found.items()
    }
    assert Kind.GRAPH in kinds["baseline"]
    assert Kind.GRAPH not in kinds["no-graph"]
    assert found["no-graph"].bit_exact


@pytest.mark.parametrize("wait", WAITS)
def test_the_way_of_waiting_changes_no_output(device: CudaDevice, wait: str) -> None:
    workload = small_workload(GROUPED_F16)
    outputs = {
        each.logits_sha256
        for chosen in (device, replace(device, wait=wait), replace(device, record="off"))
        for each in results(workload, chosen, [preset_variant("all")]).values()
    }
    assert len(outputs) == 1


def test_dropping_any_sync_ends_without_a_crash_and_the_next_run_is_right(
    device: CudaDevice,
) -> None:
    workload = small_workload(GROUPED_F16)
    expected = results(workload, device, [])["baseline"]
    sites = [each for each in sync_sites(planned(workload).plan) if each.startswith("decode:")]
    assert len(sites) == 18
    for site in [*sites, "*"]:
        variant = preset_variant("baseline", drop=[site], allow_hazards=True)
        with closing(open_backend(workload, device)) as backend:
            engine = Engine(backend, plan_variant(workload.plan(), variant).plan)
            with suppress(KernelFault):
                run_phases(engine, workload)
            engine.drain()
    assert results(workload, device, [])["baseline"].logits_sha256 == expected.logits_sha256


# ---- memory -------------------------------------------------------------------------------------


def test_copies_between_pinned_pageable_and_device_memory(device: CudaDevice) -> None:
    backend = CudaBackend(KernelTable(), {}, {}, record="off")
    given = np.arange(16, dtype=np.uint8)
    plan = make_plan("s copy hp dp; s copy dp dq; s copy dq hq; s copy! dq pr; sync s")
    with closing(backend):
        backend.load({"hp": given})
        engine = Engine(backend, plan)
        assert not backend.read("dp").any()
        engine.run("decode", 1)
        for name in ("hp", "dp", "dq", "hq", "pr"):
            assert np.array_equal(backend.read(name), given), name


def test_slots_events_and_graphs_rotate_with_the_step(device: CudaDevice) -> None:
    plan = make_plan(
        "s copy hp dp; s record e; t wait e; t copy dp hq; t record f; sync f",
        depth={"hp": 3, "dp": 3, "hq": 3, "e": 3, "f": 2},
    )
    with closing(CudaBackend(KernelTable(), {}, {})) as backend:
        backend.load({"hp": np.full(16, 5, np.uint8)})
        engine = Engine(backend, plan)
        engine.run("decode", 12)
        engine.drain()
        assert [int(backend.read("hq", slot)[0]) for slot in range(3)] == [5, 0, 0]
        spans = engine.take_spans()
        copies = spans[spans["role"] == EXEC]
        assert len(copies) == 24
        assert (copies["flags"] == BOUNDED).all()
        assert (copies["begin_ns"] <= copies["end_ns"]).all()


def test_data_survives_a_change_of_plan_in_the_middle_of_a_run(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=30)
    plans = [planned(workload, preset).plan for preset in ("baseline", "all", "no-graph", "aaag")]
    with closing(open_backend(workload, device)) as backend:
        run_phases(Engine(backend, plans[0]), workload)
        expected = output_of(backend, workload)
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, plans[0])
        done = 0
        for phase, steps in workload.segments:
            for _ in range(steps):
                engine.run(phase, 1)
                done += 1
                if done % 5 == 0:
                    engine.set_plan(plans[done // 5 % len(plans)])
        engine.drain()
        assert output_of(backend, workload) == expected
        assert engine.recorder.dropped == 0


def test_two_backends_take_turns_in_one_thread(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16)
    plan = planned(workload).plan
    with (
        closing(open_backend(workload, device)) as one,
        closing(open_backend(workload, device)) as two,
    ):
        engines = [Engine(one, plan), Engine(two, plan)]
        for phase, steps in workload.segments:
            for _ in range(steps):
                for engine in engines:
                    engine.run(phase, 1)
        for engine in engines:
            engine.drain()
        assert output_of(one, workload) == output_of(two, workload)


def test_opening_and_closing_leaves_no_memory_behind(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16)
    with closing(CudaBackend(KernelTable(), {}, {}, record="off")) as watcher:

        def free_memory() -> int:
            import pycuda.driver as drv

            with watcher.active():
                return int(drv.mem_get_info()[0])

        left = []
        for _ in range(8):
            with closing(open_backend(workload, device)) as backend:
                Engine(backend, planned(workload, "all").plan).run("prompt", 1)
            left.append(free_memory())
    assert max(left[2:]) - min(left[2:]) <= 4 << 20


# ---- faults -------------------------------------------------------------------------------------


def test_a_corrupt_index_is_reported_with_its_value_and_the_device_goes_on(
    device: CudaDevice,
) -> None:
    workload = small_workload(GROUPED_F16)
    plan = planned(workload).plan
    corrupt = replace(
        plan,
        phases={
            phase: tuple(op for op in ops if op.site != "input.k_idxs.write")
            for phase, ops in plan.phases.items()
        },
    )
    with closing(open_backend(workload, device)) as backend:
        nbytes = plan.buffer("k_idxs").nbytes
        backend.load({"k_idxs": np.full(nbytes // 8, 982347234, np.int64)})
        engine = Engine(backend, corrupt)
        with pytest.raises(KernelFault, match=r"layer\.0\.qkv: k_idxs row 982347234 outside 0"):
            run_phases(engine, workload)
        engine.drain()
    assert results(workload, device, [])["baseline"].fault is None


def broken_kernels(workload: Workload, device: CudaDevice, part: str) -> CudaBackend:
    """Return a backend whose kernels of a name cannot be launched: too many threads."""
    wanted = {
        each.name: each
        for size in workload.batch_sizes.values()
        for each in instances(workload.model.config, size, workload.n_kv, workload.capacity)
    }
    table = {
        name: replace(kernel, block=(1 << 20, 1, 1)) if part in name else kernel
        for name, kernel in device_table(wanted.values(), device.gpu.arch).items()
    }
    backend = CudaBackend(workload.kernels(), table, FAULTS)
    backend.load(workload.contents())
    return backend


def test_a_launch_that_fails_names_the_call_and_the_place_and_the_next_run_works(
    device: CudaDevice,
) -> None:
    workload = small_workload(GROUPED_F16)
    with closing(broken_kernels(workload, device, "gate_up")) as backend:
        engine = Engine(backend, planned(workload, "no-graph").plan)
        with pytest.raises(
            DeviceError, match=r"step 0, layer\.0\.gate_up: cuLaunchKernel failed: CUDA_ERROR_\w+"
        ):
            engine.run("prompt", 1)
        engine.drain()
        with pytest.raises(DeviceError, match="cuLaunchKernel failed"):
            engine.set_plan(planned(workload, "baseline").plan)  # while it is captured
        with pytest.raises(ValueError, match="bind one first"):
            engine.run("prompt", 1)
    assert results(workload, device, [])["baseline"].fault is None


def test_what_cannot_be_run_is_refused_before_anything_is_issued(device: CudaDevice) -> None:
    cases = {
        "s k1 w dp": (DeviceError, "no kernel k1 for the GPU"),
        "s copy hp hq": (UsageError, "from host to host"),
        "host k1 r dp": (UsageError, "cannot reach"),
        "s k1 r pp": (UsageError, "cannot reach pageable"),
    }
    for text, (error, words) in cases.items():
        with (
            closing(CudaBackend(KernelTable(), {}, {}, record="off")) as backend,
            pytest.raises(error, match=words),
        ):
            Engine(backend, make_plan(text))
    with (
        closing(CudaBackend(KernelTable(), {}, {}, record="off")) as backend,
        pytest.raises(UsageError, match="2 devices"),
    ):
        Engine(backend, make_plan("s copy hp dp; t copy hp d1", "s t@1"))
    with pytest.raises(DeviceError, match="no GPU 99"):
        CudaBackend(KernelTable(), {}, {}, device=99)


def test_another_thread_is_refused_and_a_closed_backend_too(device: CudaDevice) -> None:
    backend = CudaBackend(KernelTable(), {}, {}, record="off")
    caught: list[str] = []

    def use() -> None:
        try:
            backend.read("dp")
        except DeviceError as error:
            caught.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert caught and "thread that opened it" in caught[0]
    backend.close()
    backend.close()
    with pytest.raises(DeviceError, match="closed"):
        backend.read("dp")


# ---- device times -------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["baseline", "no-graph", "all"])
def test_kernels_lie_between_their_launch_and_the_wait_for_them(
    device: CudaDevice, preset: str
) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=40)
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, planned(workload, preset).plan)
        run_phases(engine, workload)
        spans, sites = engine.take_spans(), engine.sites
        slack = 2 * backend.clock_uncertainty_ns + 2 * backend.timer_step_ns + 1000
        assert 0 < backend.timer_step_ns <= 1_000_000
        assert 0 < backend.clock_uncertainty_ns < 100_000
    launches = {i for i, site in enumerate(sites) if site.kind == Kind.LAUNCH}
    decode = [n for n, phase in enumerate(engine.phases) if phase == "decode"]
    in_decode = [i for i in launches if sites[i].phase == "decode"]
    for step in decode:
        mine = spans[spans["step"] == step]
        calls = mine[(mine["role"] == CALL) & [sites[op].phase != SWITCH for op in mine["op"]]]
        kernels = mine[(mine["role"] == EXEC) & np.isin(mine["op"], list(launches))]
        assert sorted(kernels["op"].tolist()) == sorted(in_decode)
        assert (kernels["flags"] == LOWER_BOUND).all()
        assert kernels["begin_ns"].min() >= calls["begin_ns"].min() - slack
        assert kernels["end_ns"].max() <= calls["end_ns"].max() + slack
        ordered = kernels[np.argsort(kernels["begin_ns"], kind="stable")]
        assert all(b["begin_ns"] >= a["begin_ns"] for a, b in pairwise(ordered))
        assert [sites[op].name for op in ordered["op"]] == [
            op.site for op in engine.plan.phases["decode"] if op.kind == Kind.LAUNCH
        ]


@pytest.mark.parametrize("preset", ["baseline", "all"])
def test_replays_of_a_graph_stamp_one_after_the_other(device: CudaDevice, preset: str) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=60)
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, planned(workload, preset).plan)
        run_phases(engine, workload)
        spans, sites = engine.take_spans(), engine.sites
        slack = 2 * backend.clock_uncertainty_ns + 2 * backend.timer_step_ns + 1000
    graphs, kernels = (
        [i for i, site in enumerate(sites) if site.kind == kind]
        for kind in (Kind.GRAPH, Kind.LAUNCH)
    )
    assert len(np.unique(spans["step"][np.isin(spans["op"], graphs)])) >= 30
    stamped = spans[(spans["role"] == EXEC) & np.isin(spans["op"], kernels)]
    stamped = np.sort(stamped, order=["step", "begin_ns"], kind="stable")
    launched = {
        phase: [op.site for op in ops if op.kind == Kind.LAUNCH]
        for phase, ops in engine.plan.phases.items()
    }
    assert [(int(span["step"]), sites[span["op"]].name) for span in stamped] == [
        (step, site) for step, phase in enumerate(engine.phases) for site in launched[phase]
    ]
    assert (stamped["end_ns"] >= stamped["begin_ns"]).all()
    passed = stamped["begin_ns"][1:] - stamped["end_ns"][:-1]
    same_step = np.diff(stamped["step"]) == 0
    assert (passed[same_step] >= 0).all()
    assert (passed[~same_step] >= -slack).all()  # the clock may be set between steps


def test_a_long_run_loses_no_stamps(device: CudaDevice) -> None:
    workload = small_workload(replace(GROUPED_F16, context=4096), n_tokens=2 * STAMP_STEPS + 100)
    with closing(open_backend(workload, device)) as backend:
        engine = Engine(backend, planned(workload, "all").plan)
        run_phases(engine, workload)
        spans, sites = engine.take_spans(), engine.sites
    assert engine.recorder.dropped == 0
    kernels = [i for i, site in enumerate(sites) if site.kind == Kind.LAUNCH]
    stamped = spans[(spans["role"] == EXEC) & np.isin(spans["op"], kernels)]
    launched = {
        phase: sum(op.kind == Kind.LAUNCH for op in ops)
        for phase, ops in engine.plan.phases.items()
    }
    assert len(stamped) == sum(launched[phase] for phase in engine.phases)
    copies = spans[(spans["role"] == EXEC) & ~np.isin(spans["op"], kernels)]
    copied = {
        phase: sum(op.kind == Kind.COPY for op in ops) for phase, ops in engine.plan.phases.items()
    }
    assert len(copies) == sum(copied[phase] for phase in engine.phases)


def test_nothing_of_the_device_is_recorded_when_it_is_off(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16)
    found = results(workload, replace(device, record="off"), [])[REFERENCE.id]
    assert (found.trace.spans["role"] == CALL).all()
    assert found.trace.recording["mode"] == "off"
