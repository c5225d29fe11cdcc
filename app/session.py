"""Runs: a model, a prompt and a list of variants in, a BenchResult out.

The flow of the whole product in one place: model graph -> split -> baseline plan -> passes ->
engine on a device -> spans and outputs -> metrics.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from syncscope.app.bench.metrics import host_period_us, measure, pool
from syncscope.app.devices import CudaDevice, Device, describe_recording
from syncscope.app.environment import describe_environment
from syncscope.app.interrupts import Interrupts
from syncscope.app.report.site_table import site_rows
from syncscope.app.results import BenchResult, SiteRow, VariantResult
from syncscope.app.variants import REFERENCE, Planned, Variant, plan_variant
from syncscope.app.verdicts import hazards_of, with_verdicts
from syncscope.app.workload import Workload
from syncscope.kernels.registry import Model
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import DeviceError, KernelFault, UsageError
from syncscope.sched_core.order import RULES
from syncscope.sched_core.records import Finding
from syncscope.sched_core.trace import Trace
from syncscope.sched_core.verdict import analyse

Progress = Callable[[str, int, int], None]
"""Called with the variant's id, steps done and steps in all."""


@dataclass(slots=True)
class Run:
    """One run of a plan in one data order; filled in as it goes, so that a stop loses nothing."""

    order: str
    engine: Engine
    recording: Mapping[str, Any]
    base_ns: int = 0
    token_ids: tuple[int, ...] = ()
    logits: str | None = None
    fault: str | None = None
    failure: str = ""
    interrupted: bool = False
    counts: tuple[int, int, int] = (0, 0, 0)
    stale: tuple[tuple[int, str, str, str], ...] = ()
    wrong: tuple[tuple[int, str, str, str], ...] = ()

    @property
    def harmed(self) -> bool:
        """Whether the simulator saw a race here, or a kernel refused a value."""
        return bool(self.counts[0] or self.counts[1] or self.fault)


def run_plan(
    workload: Workload,
    device: Device,
    planned: Planned,
    late: frozenset[str],
    progress: Progress,
    interrupts: Interrupts,
) -> Run:
    """Run one plan in one data order; an interrupt or a fault ends it and keeps what there is."""
    backend = device.make_backend(workload, late)
    total = sum(steps for _, steps in workload.segments)
    with closing(backend), closing(Engine(backend, planned.plan)) as engine:
        run = Run(device.order_name(planned.plan, late), engine, {})
        run.base_ns = 0 if device.simulated else time.time_ns()
        interrupts.stop = engine.stop
        try:
            for phase, steps in workload.segments:
                for piece in _pieces(steps):
                    if not interrupts.hit:
                        engine.run(phase, piece)
                        progress(planned.variant.id, engine.step, total)
            engine.drain()
        except KernelFault as fault:
            run.fault = str(fault)
        except DeviceError as error:
            run.failure = str(error)
        interrupts.stop = lambda: None
        run.interrupted = interrupts.hit
        run.recording = describe_recording(backend, engine.recorder.dropped)
        run.counts = backend.counts
        run.stale = tuple(backend.stale_reads())
        run.wrong = tuple(backend.wrong_writes())
        if device.compute and not run.failure:
            begin = len(workload.prompt)
            tokens = backend.read("tokens").view(np.int32)
            sampled = sum(phase != "prompt" for phase in engine.phases)
            run.token_ids = tuple(map(int, tokens[begin : begin + sampled]))
            run.logits = hashlib.sha256(backend.read("tap").tobytes()).hexdigest()
    return run


def _pieces(steps: int, size: int = 64) -> Iterator[int]:
    """Cut a number of steps so that progress moves."""
    while steps > 0:
        yield min(size, steps)
        steps -= size


@dataclass(frozen=True, slots=True)
class Reference:
    """Output of the reference variant."""

    token_ids: tuple[int, ...]
    logits: str | None


def result_of(
    workload: Workload,
    device: Device,
    planned: Planned,
    runs: Sequence[Run],
    wanted: Reference,
    environment: Mapping[str, Any],
) -> tuple[VariantResult, tuple[SiteRow, ...]]:
    """Analyse a variant and put together what its runs found.

    Times are of the runs in the first data order (they are the same in all), counts of the run
    that did most harm, outputs are compared with the reference's.
    """
    first = runs[0]

    def differs(run: Run) -> bool:
        return device.compute and Reference(run.token_ids, run.logits) != wanted

    interrupted = runs[-1].interrupted
    failure = next((run.failure for run in runs if run.failure), "")
    harmful = [run for run in runs if run.harmed or (differs(run) and not run.interrupted)]
    worst = max(
        harmful, key=lambda run: (run.counts[0] + run.counts[1], differs(run)), default=first
    )
    others = [rules for rules in RULES if rules != device.rules]
    analysis, other = (analyse(planned.plan, rules) for rules in (device.rules, *others))
    trace = make_trace(workload, device, planned, first, environment, analysis.findings)
    measured = [trace] + [
        make_trace(workload, device, planned, run, environment)
        for run in runs[1:]
        if run.order == first.order
    ]
    tokens = worst.token_ids
    bit_exact = (
        None if interrupted or failure or not device.compute else not any(map(differs, runs))
    )
    differed = None if bit_exact is None else not bit_exact
    seen = [(site, buffer) for run in runs for _, _, site, buffer in (*run.stale, *run.wrong)]
    tried = device.adversarial and not interrupted
    result = VariantResult(
        id=planned.variant.id,
        passes=planned.plan.passes,
        dropped_sites=planned.dropped,
        refused=dict(planned.applied.refused),
        notes=planned.notes,
        trace=trace,
        metrics=pool(measured) if len(measured) > 1 else measure(trace),
        token_ids=tokens,
        text=workload.model.tokenizer.decode(tokens) if device.compute else None,
        output_sha256=_sha256(tokens) if device.compute else None,
        logits_sha256=worst.logits,
        bit_exact=bit_exact,
        stale_reads=worst.counts[0],
        wrong_last_writes=worst.counts[1],
        waits_without_effect=worst.counts[2],
        first_stale_reads=tuple(
            f"step {step} ({phase}): {site} read {buffer} before or after its time"
            for step, phase, site, buffer in worst.stale[:8]
        ),
        orders=tuple(dict.fromkeys(run.order for run in runs)),
        harmful_order=harmful[0].order if harmful else None,
        fault=next((run.fault for run in runs if run.fault), None),
        hazards=hazards_of(analysis, seen, tried, differed),
    )
    return result, with_verdicts(site_rows(result.id, trace), analysis, other)


def _recording(
    recording: Mapping[str, Any], dropped: int, overhead: float | None
) -> dict[str, Any]:
    """Return how the whole run was recorded; `overhead` is what was measured of it."""
    share = recording.get("overhead_share") if overhead is None else overhead
    return {**recording, "dropped": dropped, "overhead_share": share}


def _overhead(
    workload: Workload,
    device: CudaDevice,
    planned: Planned,
    rounds: int,
    interrupts: Interrupts,
) -> float | None:
    """Return by which share recording lengthens the reference's step, from runs back and forth."""
    silent = replace(device, record="off")
    periods: dict[str, list[float]] = {"on": [], "off": []}
    for number in range(2 * rounds):
        pair = (("on", device), ("off", silent))
        for name, each in pair if number % 2 == 0 else reversed(pair):
            if interrupts.hit:
                return None
            run = run_plan(workload, each, planned, frozenset(), lambda *_: None, interrupts)
            period = host_period_us(make_trace(workload, each, planned, run, {}))
            if period is not None:
                periods[name].append(period)
    if not periods["on"] or not periods["off"]:
        return None
    return float(np.median(periods["on"]) / np.median(periods["off"])) - 1


def _turns(planned: Sequence[Planned], rounds: int) -> Iterator[Planned]:
    """Yield the variants as often as there are rounds, every other round backwards."""
    for number in range(rounds):
        yield from planned if number % 2 == 0 else reversed(planned)


def _failure(runs: Mapping[str, Sequence[Run]]) -> str:
    """Return why the device failed; empty if it did not."""
    return next((run.failure for each in runs.values() for run in each if run.failure), "")


def _sha256(token_ids: tuple[int, ...]) -> str:
    return hashlib.sha256(np.array(token_ids, "<i4").tobytes()).hexdigest()


def describe_model(model: Model) -> dict[str, Any]:
    """Return the `model` object of the JSON report."""
    config = model.config
    return {
        "id": Path(model.id).name,
        "parameters": config.n_parameters,
        "layers": config.n_layers,
        "experts": 0,
    }


def make_trace(
    workload: Workload,
    device: Device,
    planned: Planned,
    run: Run,
    environment: Mapping[str, Any],
    findings: tuple[Finding, ...] = (),
) -> Trace:
    """Return the recording of a run."""
    engine = run.engine
    return Trace(
        sites=tuple(engine.sites),
        lanes=engine.lanes,
        phases=tuple(engine.phases),
        spans=engine.take_spans(),
        dropped=run.recording["dropped"],
        simulated=device.simulated,
        device=device.describe(),
        model=describe_model(workload.model),
        variant=planned.describe(),
        recording=run.recording,
        environment=environment,
        plans=tuple(engine.plans),
        findings=findings,
        base_ns=run.base_ns,
    )


def run_bench(
    workload: Workload,
    device: Device,
    variants: Sequence[Variant],
    progress: Progress = lambda variant, done, total: None,
    prompt: str = "",
    rounds: int = 1,
) -> BenchResult:
    """Run the reference and the variants, in turn; further rounds go back and forth (ABBA).

    Every variant is planned before the first one runs, so that a wrong name costs no time.  After
    Ctrl-C, or when the device fails, the result holds what was recorded until then.

    Raises
    ------
    UsageError
        For a variant that cannot be planned.
    """
    wanted = [REFERENCE, *(each for each in variants if each.id != REFERENCE.id)]
    ids = [each.id for each in wanted]
    if len(set(ids)) != len(ids):
        raise UsageError(f"a variant is asked for twice: {', '.join(ids)}")
    baseline = workload.plan()
    planned = [plan_variant(baseline, each, device.rules) for each in wanted]
    environment = {**describe_environment(), **device.environment()}
    runs: dict[str, list[Run]] = {}
    with Interrupts() as interrupts:
        for each in _turns(planned, rounds):
            mine = runs.setdefault(each.variant.id, [])
            for late in device.orders(each.plan):
                if not interrupts.hit and not _failure(runs):
                    mine.append(run_plan(workload, device, each, late, progress, interrupts))
        overhead = None
        if isinstance(device, CudaDevice) and device.record != "off" and not _failure(runs):
            overhead = _overhead(workload, device, planned[0], rounds, interrupts)
        first = runs[REFERENCE.id][0]
        reference = Reference(first.token_ids, first.logits)
        found = [
            result_of(workload, device, each, runs[each.variant.id], reference, environment)
            for each in planned
            if runs.get(each.variant.id)
        ]
    results = [result for result, _ in found]
    dropped = sum(each.trace.dropped for each in results)
    return BenchResult(
        device=device.describe(),
        model=describe_model(workload.model),
        rules=device.rules,
        recording=_recording(results[-1].trace.recording, dropped, overhead),
        variants=tuple(results),
        sites=tuple(row for _, rows in found for row in rows),
        environment=environment,
        prompt=prompt,
        interrupted=interrupts.hit,
        failure=_failure(runs),
        sampling=workload.sampling,
    )
