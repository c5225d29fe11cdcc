"""How figures and names are written in reports for people; text and Markdown share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncscope.app.results import BenchResult, SiteRow, VariantResult
from syncscope.kernels.sampling import Sampling

COMPARISON = (
    "variant",
    "syncs/step",
    "step us",
    "p99",
    "tokens/s [95 % interval]",
    "TTFT us",
    "blocked us",
    "idle",
    "bit-exact",
    "stale",
    "hazards",
)
"""Headers of the table that compares variants."""

SITES = (
    "phase",
    "site",
    "kind",
    "per step",
    "wait us",
    "verdict",
    "alone safe",
    "covered by / why",
)
"""Headers of the site table."""

DRIVER_CALLS = ("variant", "driver call", "per step", "before launch", "launch and after", "in all")
"""Headers of the table of driver calls."""

MAX_HAZARDS = 3
"""Hazards of a variant that text and Markdown spell out."""


def figures_are(device: Mapping[str, Any]) -> str:
    """Say where figures come from: simulated (and on what costs), or measured on a device."""
    name = device.get("name") or device.get("kind") or "unknown device"
    if not device.get("simulated"):
        return f"measured on {name}"
    profile = str(device.get("profile") or name)
    status = ", estimated costs" if "estimated" in profile else ""
    return f"simulated: {profile}{status}"


def describe_device(device: Mapping[str, Any]) -> str:
    """Return the device's name; a simulated one is called so."""
    name = str(device.get("name") or device.get("kind") or "unknown")
    return f"simulated {name}" if device.get("simulated") else name


def number(value: float | None, digits: int = 1) -> str:
    """Return a figure with thousands separated; a dash when it is not known."""
    return "-" if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """Return a share as percent; a dash when it is not known."""
    return "-" if share is None else f"{100 * share:.1f} %"


def yes_no(value: bool | None) -> str:
    """Return ``yes``, ``no`` or a dash."""
    return "-" if value is None else "yes" if value else "no"


def comparison_rows(result: BenchResult) -> list[tuple[str, ...]]:
    """Return one row per variant, under the headers `COMPARISON`."""
    return [_comparison_row(variant) for variant in result.variants]


def _comparison_row(variant: VariantResult) -> tuple[str, ...]:
    metrics = variant.metrics
    syncs = "-"
    if metrics.syncs_per_step is not None:
        before, after = metrics.syncs_before_launch, metrics.syncs_after_launch
        syncs = f"{metrics.syncs_per_step} ({before}+{after})"
    tokens = "-"
    if metrics.tokens_per_s is not None:
        median, low, high = (f"{each:,.0f}" for each in metrics.tokens_per_s)
        tokens = f"{median} [{low}, {high}]"
    step = metrics.step_us or (None, None)
    return (
        variant.id,
        syncs,
        number(step[0]),
        number(step[1]),
        tokens,
        number(metrics.time_to_first_token_us),
        number(metrics.host_blocked_us),
        percent(metrics.device_idle_share),
        yes_no(variant.bit_exact),
        str(variant.stale_reads),
        str(len(variant.hazards)),
    )


def site_cells(row: SiteRow) -> tuple[str, ...]:
    """Return a row of the site table, under the headers `SITES`."""
    reason = ", ".join(row.covered_by)
    return (
        row.phase,
        row.site,
        row.kind,
        f"{row.per_step:.2f}".rstrip("0").rstrip("."),
        number(row.wait_us, 2),
        row.verdict or "-",
        yes_no(row.alone_safe),
        "; ".join(each for each in (reason, row.why) if each),
    )


def describe_model(model: Mapping[str, Any]) -> str:
    """Return the model in one line."""
    parts = [str(model.get("id"))]
    if model.get("parameters") is not None:
        parts.append(f"{model['parameters']:,} parameters")
    if model.get("layers") is not None:
        parts.append(f"{model['layers']} layers")
    if model.get("experts"):
        parts.append(f"{model['experts']} experts")
    return ", ".join(parts)


def describe_sampling(sampling: Sampling) -> str:
    """Return how tokens were chosen, in one line."""
    if sampling.greedy:
        return "greedy"
    parts = [f"temperature {sampling.temperature:g}"]
    if sampling.top_k:
        parts.append(f"top-k {sampling.top_k}")
    if sampling.top_p < 1:
        parts.append(f"top-p {sampling.top_p:g}")
    return ", ".join((*parts, f"seed {sampling.seed}"))


def describe_recording(result: BenchResult) -> str:
    """Return how the run was recorded and what that cost, in one line."""
    recording = result.recording
    dropped = recording.get("dropped") or 0
    if result.device.get("simulated"):
        overhead = "none: virtual time"
    elif recording.get("overhead_share") is None:
        overhead = "not measured"
    else:
        overhead = percent(recording["overhead_share"])
    lost = f"{dropped:,} spans dropped" + (": figures are incomplete" if dropped else "")
    parts = [f"mode {recording.get('mode') or 'off'}", lost, f"overhead {overhead}"]
    uncertainty, step = recording.get("clock_uncertainty_ns"), recording.get("timer_step_ns")
    if not result.device.get("simulated") and uncertainty is not None:
        parts.append(f"device times within {uncertainty / 1e3:,.1f} us of the host's clock")
    if not result.device.get("simulated") and step is not None:
        parts.append(f"in steps of {step:,} ns")
    return ", ".join(parts)


def driver_call_rows(result: BenchResult) -> list[tuple[str, ...]]:
    """Return a row per driver call of each variant, under `DRIVER_CALLS`; none if not recorded."""
    return [
        (
            variant.id,
            name,
            *(
                f"{calls[key]:.2f}".rstrip("0").rstrip(".")
                for key in ("per_decode_step", "before_launch", "after_launch")
            ),
            f"{calls['count']:,}",
        )
        for variant in result.variants
        for name, calls in variant.trace.recording.get("driver_calls", {}).items()
    ]


def visible(text: str) -> str:
    """Return text with every character that a terminal would obey written as an escape."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text.replace("\r\n", "\n")
    )


def same_text_as(variants: Sequence[VariantResult], index: int) -> str | None:
    """Return the id of the first earlier variant with the same text, None if there is none."""
    for earlier in variants[:index]:
        if earlier.text == variants[index].text:
            return earlier.id
    return None


def remarks(variant: VariantResult) -> list[tuple[str, str]]:
    """Return what there is to say of a variant beside its figures, as label and text."""
    found = [("passes", ", ".join(variant.passes) or "none")]
    if variant.dropped_sites:
        found.append(("dropped", ", ".join(variant.dropped_sites)))
    found += [("refused", f"{name}: {why}") for name, why in variant.refused.items()]
    found += [("note", note) for note in variant.notes]
    if len(variant.orders) > 1:
        found.append(("orders", f"{len(variant.orders)} data orders tried"))
    if variant.harmed and variant.harmful_order is not None:
        found.append(("harm", f"in the data order {variant.harmful_order}"))
    if variant.stale_reads:
        found.append(("stale", f"{variant.stale_reads} stale reads; the first ones:"))
        found += [("", each) for each in variant.first_stale_reads[:3]]
    if variant.wrong_last_writes:
        found.append(("writes", f"{variant.wrong_last_writes} times the wrong write came last"))
    if variant.waits_without_effect:
        found.append(("waits", f"{variant.waits_without_effect} waits without effect"))
    found += _hazards(variant)
    for each in variant.provoked:
        if each.seen is None:
            found.append(
                (
                    "provoked",
                    f"without {each.phase}:{each.site} ({each.verdict}): not tried, the race needs "
                    "a phase that this run does not have; use a smaller --ubatch",
                )
            )
            continue
        seen = f"seen with {each.order}" if each.seen else "not seen"
        output = {True: "output differs", False: "output equal", None: "nothing computed"}
        dropped = f"without {each.phase}:{each.site} ({each.verdict}): stale read or wrong write"
        found.append(("provoked", f"{dropped} {seen}; {output[each.output_differs]}"))
    if variant.minimal:
        found.append(("minimal", variant.minimal))
    if variant.bit_exact is False:
        found.append(("output", "differs from the first variant's"))
    if variant.fault:
        found.append(("fault", f"the run ended early: {variant.fault}"))
    return found


def _hazards(variant: VariantResult) -> list[tuple[str, str]]:
    """Name what the ordering analysis misses; not seen means that the simulator did not see it."""
    found = []
    for hazard in variant.hazards[:MAX_HAZARDS]:
        seen = {True: " (seen)", False: " (not seen)", None: ""}[hazard.seen]
        found.append(("missing", f"{hazard.missing.hazard}: {hazard.why}{seen}"))
    more = len(variant.hazards) - MAX_HAZARDS
    if more > 0:
        found.append(("", f"{more} more hazards; --json has them all"))
    return found
