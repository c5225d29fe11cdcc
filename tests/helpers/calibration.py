"""Traces to calibrate with: of models without weights and of the probe, under a profile."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from syncscope.app.calibration.probe import probe_instances, probe_plan
from syncscope.app.simulated import simulate
from syncscope.app.variants import REFERENCE, plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.host import host_table
from syncscope.kernels.registry import BUNDLED, SHAPES, Model
from syncscope.kernels.tokenizer import ByteTokenizer
from syncscope.kernels.weights import Weights, checkpoint_config
from syncscope.sched_core.profile import Profile
from syncscope.sched_core.records import Plan
from syncscope.sched_core.trace import Trace

MODELS = ("tiny", "shape:15m", "shape:1b")


def weightless(model_id: str) -> Model:
    """Return a model that can be timed and not computed."""
    config = SHAPES.get(model_id) or checkpoint_config(BUNDLED[model_id])
    return Model(model_id, config, Weights(config, {}), ByteTokenizer())


def workload(model_id: str, n_prompt: int = 35, n_tokens: int = 12) -> Workload:
    return Workload(weightless(model_id), tuple(range(n_prompt)), n_tokens, 512)


@cache
def plan_of(model_id: str, preset: str) -> Plan:
    """Return a preset's plan of a model."""
    variant = REFERENCE if preset == "baseline" else preset_variant(preset)
    return plan_variant(workload(model_id).plan(), variant).plan


def model_trace(model_id: str, preset: str, profile: Profile) -> Trace:
    """Return what a preset's run of a model would be under a profile."""
    work, plan = workload(model_id), plan_of(model_id, preset)
    phases = [phase for phase, steps in work.segments for _ in range(steps)]
    return replace(
        simulate(plan, work.kernels(), phases, profile),
        model={"id": model_id},
        variant={"id": preset, "passes": list(plan.passes), "dropped_sites": []},
    )


def probe_trace(profile: Profile) -> Trace:
    """Return what the probe would be under a profile."""
    table = host_table(probe_instances())
    found = simulate(probe_plan(), table, ["decode"] * 8, profile)
    return replace(found, variant={"id": "probe", "passes": [], "dropped_sites": []})


def plain_traces(profile: Profile, models: tuple[str, ...] = MODELS) -> list[Trace]:
    """Return the traces that a profile is fitted to."""
    presets = ("baseline", "no-graph")
    return [
        probe_trace(profile),
        *(model_trace(model, preset, profile) for model in models for preset in presets),
    ]
