"""All figures of a run as JSON: ``syncscope-bench/1`` (app/schemas/bench-1.schema.json)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from syncscope.app.results import BenchResult, Hazard, SiteRow, VariantResult

SCHEMA = "syncscope-bench/1"

DEVICE = ("kind", "name", "profile", "simulated")
MODEL = ("id", "parameters", "layers", "experts")
RECORDING = ("mode", "overhead_share", "dropped", "clock_uncertainty_ns", "timer_step_ns")
ENVIRONMENT = (
    "commit",
    "version",
    "python",
    "driver",
    "cuda",
    "gpu",
    "clocks",
    "cpu",
    "time",
)


def render_json(result: BenchResult) -> str:
    """Return the JSON text; the same result gives the same bytes."""
    text = json.dumps(bench_object(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # half of a surrogate pair, which a model can emit, has no UTF-8
    return text.encode("utf-8", "replace").decode("utf-8")


def bench_object(result: BenchResult) -> dict[str, Any]:
    """Return the result as JSON values, with exactly the keys of the schema."""
    return {
        "schema": SCHEMA,
        "device": _pick(result.device, DEVICE),
        "model": _pick(result.model, MODEL),
        "sampling": asdict(result.sampling),
        "rules": result.rules,
        "recording": _pick(result.recording, RECORDING),
        "variants": [_variant(each) for each in result.variants],
        "sites": [_site(each) for each in result.sites],
        "predictions": [],
        "hazards": [_hazard(hazard) for each in result.variants for hazard in each.hazards],
        "environment": _pick(result.environment, ENVIRONMENT),
    }


def _hazard(hazard: Hazard) -> dict[str, Any]:
    missing = hazard.missing
    ends = ((missing.first, hazard.first_phase), (missing.second, hazard.second_phase))
    first, second = ({"step": node.step, "phase": phase, "site": node.site} for node, phase in ends)
    return {
        "type": missing.hazard,
        "buffer": missing.buffer,
        "begin": missing.begin,
        "end": missing.end,
        "first": first,
        "second": second,
        "rules": missing.rules,
        "fix": missing.fix,
        "seen": hazard.seen,
        "output_differs": hazard.output_differs,
    }


def _pick(mapping: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: _value(mapping.get(key)) for key in keys}


def _value(value: Any) -> Any:
    return _round(value, 6) if isinstance(value, float) else value


def _round(value: float | None, digits: int) -> float | None:
    """Return a figure with as many digits as mean something; None for what is no number."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def _variant(variant: VariantResult) -> dict[str, Any]:
    metrics = variant.metrics
    driver_calls = variant.trace.recording.get("driver_calls")
    return {
        "id": variant.id,
        "passes": list(variant.passes),
        "dropped_sites": list(variant.dropped_sites),
        "refused": dict(variant.refused),
        "pattern": dict(metrics.patterns),
        "syncs_per_step": metrics.syncs_per_step,
        "syncs_before_launch": metrics.syncs_before_launch,
        "syncs_after_launch": metrics.syncs_after_launch,
        "tokens_per_s": _figures(metrics.tokens_per_s, ("median", "low", "high")),
        "time_to_first_token_us": _round(metrics.time_to_first_token_us, 3),
        "step_us": _figures(metrics.step_us, ("median", "p99")),
        "host_blocked_us": _round(metrics.host_blocked_us, 3),
        "device_idle_share": _round(metrics.device_idle_share, 6),
        "output_sha256": variant.output_sha256,
        "logits_sha256": variant.logits_sha256,
        "bit_exact": variant.bit_exact,
        "stale_reads": variant.stale_reads,
        "text": variant.text,
        **({} if driver_calls is None else {"driver_calls": _driver_calls(driver_calls)}),
    }


def _driver_calls(calls: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    return {
        name: {key: _value(value) for key, value in figures.items()}
        for name, figures in calls.items()
    }


def _figures(values: tuple[float, ...] | None, keys: tuple[str, ...]) -> dict[str, Any] | None:
    if values is None:
        return None
    return {key: _round(value, 3) for key, value in zip(keys, values, strict=True)}


def _site(row: SiteRow) -> dict[str, Any]:
    return {
        "variant": row.variant,
        "phase": row.phase,
        "site": row.site,
        "kind": row.kind,
        "per_step": _round(row.per_step, 6),
        "wait_us": _round(row.wait_us, 3),
        "verdict": row.verdict or None,
        "alone_safe": row.alone_safe,
        "covered_by": list(row.covered_by),
        "why": row.why,
        "predicted_gain_us": None,
        "measured_gain_us": None,
    }
