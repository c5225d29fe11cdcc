"""Runs: a model, a prompt and a list of variants in, a BenchResult out.

The flow of the whole product in one place: model graph -> split -> baseline plan -> passes ->
engine on a device -> spans and outputs -> metrics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from syncscope.app.bench.metrics import measure
from syncscope.app.environment import describe_environment
from syncscope.app.report.site_table import site_rows
from syncscope.app.results import BenchResult, SiteRow, VariantResult
from syncscope.app.variants import REFERENCE, Planned, Variant, plan_variant
from syncscope.app.verdicts import hazards_of, with_verdicts
from syncscope.app.workload import Workload
from syncscope.kernels.registry import Model
from syncscope.sched_core.costs import Profile
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import KernelFault, UsageError
from syncscope.sched_core.order import RULES
from syncscope.sched_core.records import Finding, Plan
from syncscope.sched_core.sim_backend import SimBackend
from syncscope.sched_core.trace import Trace
from syncscope.sched_core.verdict import analyse

MAX_ORDERS = 16
"""Data orders that are tried; all of them up to four streams, a seeded sample above."""

Progress = Callable[[str, int, int], None]
"""Called with the variant's id, steps done and steps in all."""


@dataclass(frozen=True, slots=True)
class Device:
    """The simulated device that a run uses.

    `rules` is the rule set that it obeys and that verdicts are given under; `adversarial` runs
    every variant in every data order, `seed` chooses among them where there are too many;
    `compute` False times the plan without computing it.
    """

    profile: Profile
    rules: str = "practical"
    adversarial: bool = False
    seed: int = 0
    compute: bool = True

    def orders(self, plan: Plan) -> tuple[frozenset[str], ...]:
        """Return the data orders to try, each as the set of streams that are late; eager first."""
        streams = [stream.name for stream in plan.streams]
        if not self.adversarial:
            return (frozenset(),)
        if 2 ** len(streams) <= MAX_ORDERS:
            choices: Iterable[Sequence[bool]] = product((False, True), repeat=len(streams))
        else:
            draw = np.random.Generator(np.random.PCG64(self.seed))
            drawn = draw.integers(0, 2, (MAX_ORDERS - 2, len(streams))).astype(bool).tolist()
            choices = [[False] * len(streams), [True] * len(streams), *drawn]
        return tuple(
            frozenset(name for name, late in zip(streams, choice, strict=True) if late)
            for choice in choices
        )

    def describe(self) -> dict[str, Any]:
        """Return the `device` object of the JSON report."""
        return {
            "kind": "sim",
            "name": self.profile.device_name,
            "profile": f"{self.profile.name} ({self.profile.status})",
            "simulated": True,
        }


@dataclass(slots=True)
class Run:
    """One run of a plan in one data order; filled in as it goes, so that a stop loses nothing."""

    order: str
    engine: Engine
    token_ids: tuple[int, ...] = ()
    logits: str | None = None
    fault: str | None = None
    interrupted: bool = False
    counts: tuple[int, int, int] = (0, 0, 0)
    stale: tuple[tuple[int, str, str, str], ...] = ()

    @property
    def harmed(self) -> bool:
        """Whether the simulator saw a race here, or a kernel refused a value."""
        return bool(self.counts[0] or self.counts[1] or self.fault)


def order_name(plan: Plan, late: frozenset[str]) -> str:
    """Name a data order by what each stream does."""
    return ", ".join(
        f"{stream.name} {'late' if stream.name in late else 'early'}" for stream in plan.streams
    )


def run_plan(
    workload: Workload, device: Device, planned: Planned, late: frozenset[str], progress: Progress
) -> Run:
    """Run one plan in one data order; an interrupt or a fault ends it and keeps what there is."""
    backend = SimBackend(device.profile, workload.kernels(), late, device.compute, device.rules)
    backend.load(workload.contents())
    total = sum(steps for _, steps in workload.segments)
    with closing(Engine(backend, planned.plan)) as engine:
        run = Run(order_name(planned.plan, late), engine)
        try:
            for phase, steps in workload.segments:
                for piece in _pieces(steps):
                    engine.run(phase, piece)
                    progress(planned.variant.id, engine.step, total)
            engine.drain()
        except KernelFault as fault:
            run.fault = str(fault)
        except KeyboardInterrupt:
            run.interrupted = True
        run.counts = backend.counts
        run.stale = tuple(backend.stale_reads())
        if device.compute:
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


def run_variant(
    workload: Workload,
    device: Device,
    planned: Planned,
    reference: Reference | None,
    environment: Mapping[str, Any],
    progress: Progress,
) -> tuple[VariantResult, tuple[SiteRow, ...], Reference, bool]:
    """Run a variant in every data order, and analyse it.

    Returns
    -------
    result : VariantResult
        Times of the first order (they are the same in all), counts of the one that did most harm.
    sites : tuple of SiteRow
    reference : Reference
        The output in the first order.
    interrupted : bool
    """
    runs: list[Run] = []
    for late in device.orders(planned.plan):
        runs.append(run_plan(workload, device, planned, late, progress))
        if runs[-1].interrupted:
            break
    first = runs[0]
    own = Reference(first.token_ids, first.logits)
    wanted = reference or own

    def differs(run: Run) -> bool:
        return device.compute and Reference(run.token_ids, run.logits) != wanted

    interrupted = runs[-1].interrupted
    harmful = [run for run in runs if run.harmed or (differs(run) and not run.interrupted)]
    worst = max(
        harmful, key=lambda run: (run.counts[0] + run.counts[1], differs(run)), default=first
    )
    others = [rules for rules in RULES if rules != device.rules]
    analysis, other = (analyse(planned.plan, rules) for rules in (device.rules, *others))
    trace = make_trace(workload, device, planned, first, environment, analysis.findings)
    tokens = worst.token_ids
    bit_exact = None if interrupted or not device.compute else not any(map(differs, runs))
    differed = None if bit_exact is None else not bit_exact
    stale = [(site, buffer) for run in runs for _, _, site, buffer in run.stale]
    tried = device.adversarial and not interrupted
    result = VariantResult(
        id=planned.variant.id,
        passes=planned.plan.passes,
        dropped_sites=planned.dropped,
        refused=dict(planned.applied.refused),
        notes=planned.notes,
        trace=trace,
        metrics=measure(trace),
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
        orders=tuple(run.order for run in runs),
        harmful_order=harmful[0].order if harmful else None,
        fault=next((run.fault for run in runs if run.fault), None),
        hazards=hazards_of(analysis, stale, tried, differed),
    )
    rows = with_verdicts(site_rows(result.id, trace), analysis, other)
    return result, rows, own, interrupted


def _sha256(token_ids: tuple[int, ...]) -> str:
    return hashlib.sha256(np.array(token_ids, "<i4").tobytes()).hexdigest()


def describe_model(model: Model) -> dict[str, Any]:
    """Return the `model` object of the JSON report."""
    config = model.config
    return {
        "id": model.id,
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
        dropped=engine.recorder.dropped,
        simulated=True,
        device=device.describe(),
        model=describe_model(workload.model),
        variant={
            "id": planned.variant.id,
            "passes": list(planned.plan.passes),
            "dropped_sites": list(planned.dropped),
        },
        recording=describe_recording(engine.recorder.dropped),
        environment=environment,
        plans=tuple(engine.plans),
        findings=findings,
    )


def describe_recording(dropped: int) -> dict[str, Any]:
    """Return the `recording` object of the JSON report; on virtual time recording costs nothing."""
    return {
        "mode": "stamps",
        "overhead_share": 0.0,
        "dropped": dropped,
        "clock_uncertainty_ns": 0,
        "timer_step_ns": 1,
    }


def run_bench(
    workload: Workload,
    device: Device,
    variants: Sequence[Variant],
    progress: Progress = lambda variant, done, total: None,
    prompt: str = "",
) -> BenchResult:
    """Run the reference and the variants, one after another.

    Every variant is planned before the first one runs, so that a wrong name costs no time.

    Raises
    ------
    UsageError
        For a variant that cannot be planned.
    """
    wanted = [REFERENCE, *(each for each in variants if each != REFERENCE)]
    ids = [each.id for each in wanted]
    if len(set(ids)) != len(ids):
        raise UsageError(f"a variant is asked for twice: {', '.join(ids)}")
    baseline = workload.plan()
    planned = [plan_variant(baseline, each, device.rules) for each in wanted]
    environment = describe_environment()
    results: list[VariantResult] = []
    sites: list[SiteRow] = []
    reference: Reference | None = None
    interrupted = False
    for each in planned:
        result, rows, own, interrupted = run_variant(
            workload, device, each, reference, environment, progress
        )
        reference = reference or own
        results.append(result)
        sites += rows
        if interrupted:
            break
    return BenchResult(
        device=device.describe(),
        model=describe_model(workload.model),
        rules=device.rules,
        recording=describe_recording(sum(each.trace.dropped for each in results)),
        variants=tuple(results),
        sites=tuple(sites),
        environment=environment,
        prompt=prompt,
        interrupted=interrupted,
    )
