"""Every recording on a real GPU: all that ran has its time, and nothing else changes."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.gpu import GROUPED_F16, first_gpu, has_context, open_backend, small_workload
from syncscope.app.devices import CudaDevice
from syncscope.app.session import run_bench
from syncscope.app.variants import plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.sched_core.backend import BOUNDED, LOWER_BOUND, KernelTable
from syncscope.sched_core.cuda_backend import RECORDS, CudaBackend
from syncscope.sched_core.engine import SWITCH, Engine
from syncscope.sched_core.errors import KernelFault
from syncscope.sched_core.passes.registry import available_presets
from syncscope.sched_core.records import Kind, Op, Plan

pytestmark = pytest.mark.gpu

CALL, EXEC = 0, 1
WITH_TIMES = [each for each in RECORDS if each != "off"]
TOKENS = 60


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(first_gpu())


@pytest.fixture(autouse=True)
def _stack_stays_empty(device: CudaDevice) -> Iterator[None]:
    yield
    assert not has_context()


def plan_of(workload: Workload, preset: str) -> Plan:
    return plan_variant(workload.plan(), preset_variant(preset)).plan


@dataclass
class Recorded:
    """What a run left behind."""

    engine: Engine
    spans: Any
    dropped: int
    driver_calls: Any
    uncertainty_ns: int
    timer_step_ns: int
    output: tuple[bytes, bytes]

    def of(self, step: int, role: int) -> Any:
        """Spans of a step by begin; drains left out."""
        sites = self.engine.sites
        mine = self.spans[(self.spans["step"] == step) & (self.spans["role"] == role)]
        mine = mine[[sites[op].phase != SWITCH for op in mine["op"]]]
        return mine[np.argsort(mine["begin_ns"], kind="stable")]

    def names(self, spans: Any) -> list[str]:
        return [self.engine.sites[op].name for op in spans["op"]]

    def decode_steps(self) -> list[int]:
        return [step for step, phase in enumerate(self.engine.phases) if phase == "decode"]

    def medians(self, skip: int = 10) -> dict[str, float]:
        """Median duration of each site's executions in decode steps, the first ones left out."""
        sites = self.engine.sites
        steps = self.decode_steps()[skip:]
        spans = self.spans[(self.spans["role"] == EXEC) & np.isin(self.spans["step"], steps)]
        return {
            sites[op].name: float(np.median(each["end_ns"] - each["begin_ns"]))
            for op in np.unique(spans["op"])
            for each in [spans[spans["op"] == op]]
        }


def run(workload: Workload, device: CudaDevice, record: str, preset: str) -> Recorded:
    with closing(open_backend(workload, replace(device, record=record))) as backend:
        engine = Engine(backend, plan_of(workload, preset))
        for phase, steps in workload.segments:
            engine.run(phase, steps)
        engine.drain()
        return Recorded(
            engine,
            engine.take_spans(),
            backend.dropped + engine.recorder.dropped,
            backend.driver_calls,
            backend.clock_uncertainty_ns or 0,
            backend.timer_step_ns or 0,
            (backend.read("tokens").tobytes(), backend.read("tap").tobytes()),
        )


def works(op: Op) -> bool:
    return op.kind in (Kind.LAUNCH, Kind.COPY)


# ---- what every recording owes ------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["baseline", "all"])
def test_no_recording_changes_the_output(device: CudaDevice, preset: str) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=TOKENS)
    outputs = {record: run(workload, device, record, preset).output for record in RECORDS}
    assert len(set(outputs.values())) == 1, [*outputs]


@pytest.mark.parametrize("preset", ["baseline", "no-graph", "all"])
@pytest.mark.parametrize("record", ["stamps", "cupti"])
def test_every_kernel_and_copy_of_every_step_has_one_span(
    device: CudaDevice, record: str, preset: str
) -> None:
    found = run(small_workload(GROUPED_F16, n_tokens=TOKENS), device, record, preset)
    assert found.dropped == 0
    phases = found.engine.plan.phases
    for step, phase in enumerate(found.engine.phases):
        wanted = Counter(op.site for op in phases[phase] if works(op))
        assert Counter(found.names(found.of(step, EXEC))) == wanted, (step, phase)
    flags = {int(each) for each in np.unique(found.spans["flags"][found.spans["role"] == EXEC])}
    assert flags == ({0} if record == "cupti" else {BOUNDED, LOWER_BOUND})


@pytest.mark.parametrize("preset", ["baseline", "no-graph", "all"])
def test_events_time_what_is_issued_and_nothing_inside_graphs(
    device: CudaDevice, preset: str
) -> None:
    found = run(small_workload(GROUPED_F16, n_tokens=TOKENS), device, "events", preset)
    assert found.dropped == 0
    sites = found.engine.sites
    issued = (Kind.LAUNCH, Kind.COPY, Kind.GRAPH)
    graphs = 0
    for step in range(len(found.engine.phases)):
        calls = [op for op in found.of(step, CALL)["op"].tolist() if sites[op].kind in issued]
        assert Counter(calls) == Counter(found.of(step, EXEC)["op"].tolist()), step
        graphs += sum(sites[op].kind == Kind.GRAPH for op in calls)
    assert (graphs > 0) == (preset != "no-graph")
    assert (found.spans["flags"][found.spans["role"] == EXEC] == BOUNDED).all()


@pytest.mark.parametrize("preset", ["baseline", "no-graph", "all"])
@pytest.mark.parametrize("record", WITH_TIMES)
def test_work_lies_between_its_call_and_the_end_of_its_step(
    device: CudaDevice, record: str, preset: str
) -> None:
    found = run(small_workload(GROUPED_F16, n_tokens=TOKENS), device, record, preset)
    assert 0 < found.uncertainty_ns < 100_000
    assert 0 < found.timer_step_ns <= 1_000_000
    slack = 2 * found.uncertainty_ns + 2 * found.timer_step_ns + 1000
    for step in range(len(found.engine.phases)):
        calls, runs = found.of(step, CALL), found.of(step, EXEC)
        assert (runs["end_ns"] >= runs["begin_ns"]).all()
        begin_of = dict(zip(found.names(calls), calls["begin_ns"].tolist(), strict=True))
        earliest = [
            begin_of.get(name, begin_of.get("graph", calls["begin_ns"].min()))
            for name in found.names(runs)
        ]
        assert (runs["begin_ns"] >= np.array(earliest) - slack).all(), step
        if found.engine.phases[step] == "decode":  # whose last wait is for all of it
            assert runs["end_ns"].max() <= calls["end_ns"].max() + slack


@pytest.mark.parametrize("record", ["stamps", "cupti", "events"])
def test_work_of_a_stream_runs_in_the_order_of_issue(device: CudaDevice, record: str) -> None:
    found = run(small_workload(GROUPED_F16, n_tokens=TOKENS), device, record, "no-graph")
    ops = found.engine.plan.phases["decode"]
    stream_of = {op.site: op.stream for op in ops}
    for step in found.decode_steps():
        runs = found.of(step, EXEC)
        names = found.names(runs)
        for stream in {op.stream for op in ops if works(op)}:
            kind = Kind.LAUNCH if record == "stamps" else None  # its copies are bounds
            wanted = [
                op.site
                for op in ops
                if works(op) and op.stream == stream and kind in (None, op.kind)
            ]
            mine = [each for each in names if stream_of[each] == stream and each in wanted]
            assert mine == wanted, (step, stream)


def test_a_streams_kernels_and_copies_do_not_overlap_in_cuptis_times(device: CudaDevice) -> None:
    found = run(small_workload(GROUPED_F16, n_tokens=TOKENS), device, "cupti", "no-graph")
    slack = 2 * found.timer_step_ns + 500  # times are put on the host's clock one by one
    for step in found.decode_steps():
        runs = found.of(step, EXEC)
        for lane in np.unique(runs["lane"]):
            mine = runs[runs["lane"] == lane]
            assert all(b["begin_ns"] >= a["end_ns"] - slack for a, b in pairwise(mine)), step


@pytest.mark.parametrize("record", WITH_TIMES)
def test_a_long_run_loses_nothing(device: CudaDevice, record: str) -> None:
    workload = small_workload(replace(GROUPED_F16, context=4096), n_tokens=3000)
    found = run(workload, device, record, "all")
    assert found.dropped == 0
    sites = found.engine.sites
    runs = found.spans[found.spans["role"] == EXEC]
    kinds = np.array([site.kind for site in sites])
    wanted = sum(
        sum(op.kind == Kind.COPY for op in found.engine.plan.phases[phase])
        for phase in found.engine.phases
    )
    assert int((kinds[runs["op"]] == Kind.COPY).sum()) == wanted


@pytest.mark.parametrize("record", WITH_TIMES)
def test_a_change_of_plan_is_recorded_without_loss(device: CudaDevice, record: str) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=40)
    presets = ("baseline", "all", "no-graph", "saaasg")
    with closing(open_backend(workload, replace(device, record=record))) as backend:
        engine = Engine(backend, plan_of(workload, presets[0]))
        done = 0
        copies = 0
        for phase, steps in workload.segments:
            for _ in range(steps):
                engine.run(phase, 1)
                copies += sum(op.kind == Kind.COPY for op in engine.plan.phases[phase])
                done += 1
                if done % 7 == 0:
                    engine.set_plan(plan_of(workload, presets[done // 7 % len(presets)]))
        engine.drain()
        spans, sites = engine.take_spans(), engine.sites
        assert backend.dropped == engine.recorder.dropped == 0
    runs = spans[spans["role"] == EXEC]
    assert sum(sites[op].kind == Kind.COPY for op in runs["op"].tolist()) == copies


def resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth_nbytes(device: CudaDevice, record: str) -> tuple[int, int]:
    """Return by how much GPU and host memory in use grow over 12 runs, a context each."""
    import pycuda.driver as drv

    workload = small_workload(GROUPED_F16)
    free, resident = [], []
    with closing(CudaBackend(KernelTable(), {}, {}, record="off")) as watcher:
        for _ in range(16):
            with closing(open_backend(workload, replace(device, record=record))) as backend:
                engine = Engine(backend, plan_of(workload, "all"))
                engine.run("prompt", 1)
                engine.drain()
            with watcher.active():
                free.append(int(drv.mem_get_info()[0]))
            resident.append(resident_nbytes())
    return free[3] - free[-1], resident[-1] - resident[3]


def test_opening_and_closing_leaves_no_memory_behind(device: CudaDevice) -> None:
    """The driver keeps host memory of each context and its modules: that of `off` counts as its."""
    _, kept_by_driver = growth_nbytes(device, "off")
    for record in WITH_TIMES:
        on_device, on_host = growth_nbytes(device, record)
        print(f"{record}: {on_device} B on the GPU, {on_host} B, {kept_by_driver} B with off")
        assert on_device <= 16 << 20
        assert on_host - kept_by_driver <= 32 << 20


def test_recordings_take_turns_in_one_process(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16)
    outputs = set()
    for record in ("cupti", "off", "stamps", "cupti", "events", "cupti"):
        found = run(workload, device, record, "baseline")
        outputs.add(found.output)
        assert found.dropped == 0
        assert (found.spans["role"] == EXEC).any() == (record != "off")
    assert len(outputs) == 1


def test_two_backends_with_cupti_take_turns_in_one_thread(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16)
    recording = replace(device, record="cupti")
    plan = plan_of(workload, "baseline")
    with (
        closing(open_backend(workload, recording)) as one,
        closing(open_backend(workload, recording)) as two,
    ):
        engines = [Engine(one, plan), Engine(two, plan)]
        for phase, steps in workload.segments:
            for _ in range(steps):
                for engine in engines:
                    engine.run(phase, 1)
        for engine, backend in zip(engines, (one, two), strict=True):
            engine.drain()
            spans = engine.take_spans()
            assert backend.dropped == 0
            wanted = sum(sum(map(works, plan.phases[phase])) for phase in engine.phases)
            assert int((spans["role"] == EXEC).sum()) == wanted
            assert backend.driver_calls == one.driver_calls


def with_bad_rows(op: Op) -> Op:
    """Let the copy of the rows of new keys take them from the buffer `bad`."""
    if op.site != "input.k_idxs.copy":
        return op
    source, target = op.accesses
    return replace(op, accesses=(replace(source, buffer="bad"), target))


@pytest.mark.parametrize("record", WITH_TIMES)
def test_a_run_that_a_fault_ends_keeps_what_it_recorded(device: CudaDevice, record: str) -> None:
    workload = small_workload(GROUPED_F16)
    plan = plan_of(workload, "baseline")
    bad = replace(plan.buffer("k_idxs"), name="bad")
    corrupt = replace(
        plan,
        buffers=(*plan.buffers, bad),
        phases={**plan.phases, "decode": tuple(map(with_bad_rows, plan.phases["decode"]))},
    )
    with closing(open_backend(workload, replace(device, record=record))) as backend:
        backend.load({"bad": np.full(bad.nbytes // 8, 982347234, np.int64)})
        engine = Engine(backend, plan)
        for phase, steps in workload.segments:
            if phase != "decode":
                engine.run(phase, steps)
        whole = engine.step
        engine.set_plan(corrupt)
        with pytest.raises(KernelFault, match="k_idxs row 982347234 outside 0"):
            engine.run("decode", 3)
        spans = engine.take_spans()
    ran = set(spans["step"][spans["role"] == EXEC].tolist())
    assert whole > 0 and set(range(whole)) <= ran
    assert whole in ran or record == "stamps"  # whose last step was not over


# ---- what CUPTI tells of the driver -------------------------------------------------------------


def planned_syncs(ops: tuple[Op, ...]) -> dict[str, tuple[int, int]]:
    """Return driver syncs by name as the plan has them: before the first launch, and after it."""
    found: dict[str, tuple[int, int]] = {}
    launched = False
    for op in ops:
        launched |= op.kind == Kind.LAUNCH
        if op.kind == Kind.SYNC:
            name = {
                "stream": "cuStreamSynchronize",
                "event": "cuEventSynchronize",
                "device": "cuCtxSynchronize",
            }[op.scope]
        elif op.kind == Kind.COPY and op.blocking:
            name = "cuStreamSynchronize"
        else:
            continue
        before, after = found.get(name, (0, 0))
        found[name] = (before, after + 1) if launched else (before + 1, after)
    return found


@pytest.mark.parametrize("preset", available_presets())
def test_syncs_of_decode_steps_are_by_name_and_count_those_of_the_plan(
    device: CudaDevice, preset: str
) -> None:
    found = run(small_workload(GROUPED_F16, n_tokens=30), device, "cupti", preset)
    assert found.dropped == 0
    counted = {
        name: (each["before_launch"], each["after_launch"])
        for name, each in found.driver_calls.items()
        if name.endswith("Synchronize")
    }
    assert counted == planned_syncs(found.engine.plan.phases["decode"])
    steps = len(found.decode_steps())
    for each in found.driver_calls.values():
        assert each["count"] == pytest.approx(each["per_decode_step"] * steps)


def test_the_baseline_waits_13_and_5_times_a_step_and_all_of_it_once(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=30)
    baseline = run(workload, device, "cupti", "baseline").driver_calls["cuStreamSynchronize"]
    assert (baseline["before_launch"], baseline["after_launch"]) == (13, 5)
    calls = run(workload, device, "cupti", "all").driver_calls
    assert [name for name in calls if name.endswith("Synchronize")] == ["cuEventSynchronize"]
    wait = calls["cuEventSynchronize"]
    assert (wait["before_launch"], wait["after_launch"]) == (0, 1)


def test_launches_and_copies_are_counted_as_issued(device: CudaDevice) -> None:
    found = run(small_workload(GROUPED_F16, n_tokens=30), device, "cupti", "baseline")
    sites = found.engine.sites
    calls = found.spans[found.spans["role"] == CALL]
    decode = [sites[op].kind for op in calls["op"] if sites[op].phase == "decode"]
    counts = {name: each["count"] for name, each in found.driver_calls.items()}
    assert counts["cuGraphLaunch"] == decode.count(Kind.GRAPH) > 0
    assert counts["cuLaunchKernel"] == decode.count(Kind.LAUNCH)
    copies = sum(count for name, count in counts.items() if name.startswith("cuMemcpy"))
    assert copies == decode.count(Kind.COPY)


def test_the_benchmark_measures_what_each_recording_costs(device: CudaDevice) -> None:
    workload = small_workload(GROUPED_F16, n_tokens=TOKENS)
    for record in WITH_TIMES:
        result = run_bench(workload, replace(device, record=record), [preset_variant("all")])
        assert not result.failure
        assert result.recording["mode"] == record
        assert result.recording["dropped"] == 0
        assert isinstance(result.recording["overhead_share"], float)
        assert all(each.bit_exact for each in result.variants)
        recorded = [each.trace.recording.get("driver_calls") for each in result.variants]
        assert all(recorded) == (record == "cupti")


# ---- times of different recordings --------------------------------------------------------------


@pytest.fixture(scope="module")
def fifteen_m() -> Workload:
    return Workload(load_model("shape:15m", 0), (1, 2, 3, 4), 120, 4)


def test_in_a_graph_each_kernel_takes_what_it_takes_by_itself(
    device: CudaDevice, fifteen_m: Workload
) -> None:
    alone = run(fifteen_m, device, "cupti", "no-graph").medians()
    in_graph = run(fifteen_m, device, "cupti", "baseline").medians()
    assert alone.keys() == in_graph.keys()
    longest = max(alone, key=alone.__getitem__)
    assert in_graph[longest] >= 0.8 * max(in_graph.values())
    for site, duration in alone.items():
        assert in_graph[site] <= 2 * duration + 2000, site
        assert duration <= 2 * in_graph[site] + 2000, site


def test_stamps_are_lower_bounds_of_what_cupti_sees(
    device: CudaDevice, fifteen_m: Workload
) -> None:
    stamped, seen = (run(fifteen_m, device, each, "baseline") for each in ("stamps", "cupti"))
    exact = seen.medians()
    launches = {op.site for op in stamped.engine.plan.phases["decode"] if op.kind == Kind.LAUNCH}
    lower = {site: each for site, each in stamped.medians().items() if site in launches}
    assert lower.keys() == launches
    steps = stamped.timer_step_ns + seen.timer_step_ns
    for site, duration in lower.items():
        # two runs, so clocks may differ; a begin or end that is another kernel's would differ more
        assert duration <= 1.5 * exact[site] + steps + 1000, site
        assert exact[site] <= 2 * duration + steps + 8000, site


def test_the_span_of_a_graph_holds_all_its_kernels(device: CudaDevice, fifteen_m: Workload) -> None:
    timed, stamped = (run(fifteen_m, device, each, "baseline") for each in ("events", "stamps"))
    launches = {op.site for op in stamped.engine.plan.phases["decode"] if op.kind == Kind.LAUNCH}
    kernels = sum(each for site, each in stamped.medians().items() if site in launches)
    assert timed.medians()["graph"] >= 0.8 * kernels
    for step in timed.decode_steps()[10:]:
        spans = timed.of(step, EXEC)
        assert all(b["begin_ns"] >= a["begin_ns"] for a, b in pairwise(spans))
