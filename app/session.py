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
import numpy.typing as npt

from syncscope.app.bench.metrics import measure
from syncscope.app.environment import describe_environment
from syncscope.app.report.site_table import site_rows
from syncscope.app.results import BenchResult, SiteRow, VariantResult
from syncscope.app.verdicts import hazards_of, with_verdicts
from syncscope.kernels.host import host_table
from syncscope.kernels.registry import Model
from syncscope.kernels.transformer import build_graph, instances
from syncscope.sched_core.backend import KernelTable
from syncscope.sched_core.capabilities import CUDA
from syncscope.sched_core.costs import Profile
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import KernelFault, UsageError
from syncscope.sched_core.missing import hazards_added
from syncscope.sched_core.order import RULES
from syncscope.sched_core.passes.drop_sites import drop_sites
from syncscope.sched_core.passes.registry import (
    FILTERED_PRESETS,
    PRESETS,
    Applied,
    apply_passes,
    preset_passes,
)
from syncscope.sched_core.planner import plan_baseline
from syncscope.sched_core.records import Finding, Plan
from syncscope.sched_core.sim_backend import SimBackend
from syncscope.sched_core.trace import Trace
from syncscope.sched_core.verdict import analyse
from syncscope.sched_core.why import missing_sentence

KV_GRANULE = 256
"""The KV cache is rounded up to this many rows, as llama.cpp does, so that shapes stay."""

MAX_ORDERS = 16
"""Data orders that are tried; all of them up to four streams, a seeded sample above."""

Progress = Callable[[str, int, int], None]
"""Called with the variant's id, steps done and steps in all."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is computed: the model, the prompt, how many tokens, in which micro-batches.

    Parameters
    ----------
    model : Model
    prompt : tuple of int
        Token ids, at least one.
    n_tokens : int
        Tokens to generate.
    ubatch : int
        Prompt tokens per step.
    """

    model: Model
    prompt: tuple[int, ...]
    n_tokens: int
    ubatch: int

    def __post_init__(self) -> None:
        context = self.model.config.context
        if not self.prompt:
            raise UsageError("the prompt has no tokens; give --prompt TEXT")
        if self.n_tokens < 1:
            raise UsageError(f"--tokens {self.n_tokens}: must be at least 1")
        if self.ubatch < 1:
            raise UsageError(f"--ubatch {self.ubatch}: must be at least 1")
        if self.n_positions > context:
            room = context - len(self.prompt) + 1
            remedy = f"use --tokens {room} or less" if room >= 1 else "use a shorter prompt"
            raise UsageError(
                f"a prompt of {len(self.prompt)} tokens and {self.n_tokens} to generate do not "
                f"fit the context of {context} of {self.model.id}; {remedy}"
            )

    @property
    def n_positions(self) -> int:
        """KV rows that are used; the last sampled token needs none."""
        return len(self.prompt) + self.n_tokens - 1

    @property
    def n_kv(self) -> int:
        """Rows of the KV cache."""
        rounded = -(-self.n_positions // KV_GRANULE) * KV_GRANULE
        return min(rounded, self.model.config.context)

    @property
    def capacity(self) -> int:
        """Length of the token list."""
        return len(self.prompt) + self.n_tokens

    @property
    def batch_sizes(self) -> dict[str, int]:
        """Tokens per step of each phase."""
        last = (len(self.prompt) - 1) % self.ubatch + 1
        whole = self.ubatch if len(self.prompt) > self.ubatch else last
        return {"prompt": whole, "prompt_last": last, "decode": 1}

    @property
    def segments(self) -> tuple[tuple[str, int], ...]:
        """The phases of the run, each with its number of steps."""
        batches = -(-len(self.prompt) // self.ubatch)
        runs = (("prompt", batches - 1), ("prompt_last", 1), ("decode", self.n_tokens - 1))
        return tuple(run for run in runs if run[1])

    def plan(self) -> Plan:
        """Return the baseline plan, without a captured graph."""
        shapes = self.batch_sizes.items()
        config = self.model.config
        return plan_baseline(
            {name: build_graph(config, size, self.n_kv, self.capacity) for name, size in shapes}
        )

    def kernels(self) -> KernelTable:
        """Return the host kernels that the plan names."""
        sizes = set(self.batch_sizes.values())
        config = self.model.config
        return host_table(
            each for size in sizes for each in instances(config, size, self.n_kv, self.capacity)
        )

    def contents(self) -> dict[str, npt.NDArray[Any]]:
        """Return what buffers hold before the first step: weights, and the prompt."""
        tokens = np.zeros(self.capacity, np.int32)
        tokens[: len(self.prompt)] = self.prompt
        return {**self.model.weights.arrays, "tokens": tokens}


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


@dataclass(frozen=True, slots=True)
class Variant:
    """What is run: passes on the baseline, and sync sites removed raw.

    `filtered` reports passes that are not built yet instead of refusing the variant;
    `allow_hazards` applies also what makes a hazard.
    """

    id: str
    passes: tuple[str, ...]
    drop: tuple[str, ...] = ()
    filtered: bool = False
    allow_hazards: bool = False


def preset_variant(
    preset: str,
    extra: Iterable[str] = (),
    drop: Iterable[str] = (),
    allow_hazards: bool = False,
) -> Variant:
    """Return a preset with extra passes and with syncs dropped.

    Raises
    ------
    UsageError
        For a preset that is unknown or needs passes that are not built yet.
    """
    extra, drop = tuple(extra), tuple(drop)
    name = "+".join((preset, *extra)) + (" -drop" if drop else "")
    passes = (*preset_passes(preset), *extra)
    return Variant(name, passes, drop, preset in FILTERED_PRESETS, allow_hazards)


REFERENCE = Variant("baseline", PRESETS["baseline"])
"""What the output of every other variant is compared with."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A variant's plan and how it came about."""

    variant: Variant
    plan: Plan
    applied: Applied
    dropped: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told."""
        notes = []
        if self.applied.pulled_in:
            notes.append(f"also applied, as needed: {', '.join(self.applied.pulled_in)}")
        if self.applied.guards_dropped:
            guards = ", ".join(self.applied.guards_dropped)
            notes.append(f"guards dropped where the kept set does without: {guards}")
        return tuple(notes)


def plan_variant(baseline: Plan, variant: Variant, rules: str = "practical") -> Planned:
    """Apply a variant to the baseline.

    Raises
    ------
    UsageError
        For a pass, value or site that is unknown, or a drop that makes a hazard under `rules` and
        was not allowed to.
    """
    applied = apply_passes(
        baseline, variant.passes, CUDA, rules, variant.filtered, variant.allow_hazards
    )
    plan, dropped = drop_sites(applied.plan, variant.drop)
    if dropped and not variant.allow_hazards:
        program, missing = hazards_added(applied.plan, plan, rules)
        if missing:
            raise UsageError(
                f"--drop {','.join(variant.drop)} is refused: "
                f"{missing_sentence(program, missing[0])}; --allow-hazards runs it all the same"
            )
    return Planned(variant, plan, applied, dropped)


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
