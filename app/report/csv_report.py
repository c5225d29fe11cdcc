"""The comparison of the variants as CSV: one row each, for spreadsheets and dashboards."""

from __future__ import annotations

import csv
import io

from syncscope.app.report.json_export import bench_object
from syncscope.app.results import BenchResult

COLUMNS = (
    "device",
    "profile",
    "simulated",
    "model",
    "rules",
    "variant",
    "passes",
    "dropped_sites",
    "pattern_decode",
    "syncs_per_step",
    "syncs_before_launch",
    "syncs_after_launch",
    "tokens_per_s",
    "tokens_per_s_low",
    "tokens_per_s_high",
    "time_to_first_token_us",
    "step_us",
    "step_us_p99",
    "host_blocked_us",
    "device_idle_share",
    "bit_exact",
    "stale_reads",
    "output_sha256",
    "logits_sha256",
    "version",
    "commit",
    "time",
)


def render_csv(result: BenchResult) -> str:
    """Return a header and one row per variant; figures as in the JSON, empty where not known."""
    data = bench_object(result)
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for variant in data["variants"]:
        tokens = variant["tokens_per_s"] or {}
        step = variant["step_us"] or {}
        row = {
            **data["environment"],
            **variant,
            "device": data["device"]["name"],
            "profile": data["device"]["profile"],
            "simulated": data["device"]["simulated"],
            "model": data["model"]["id"],
            "rules": data["rules"],
            "variant": variant["id"],
            "passes": " ".join(variant["passes"]),
            "dropped_sites": " ".join(variant["dropped_sites"]),
            "pattern_decode": variant["pattern"].get("decode"),
            "tokens_per_s": tokens.get("median"),
            "tokens_per_s_low": tokens.get("low"),
            "tokens_per_s_high": tokens.get("high"),
            "step_us": step.get("median"),
            "step_us_p99": step.get("p99"),
        }
        writer.writerow({key: _cell(row.get(key)) for key in COLUMNS})
    return out.getvalue()


def _cell(value: object) -> object:
    """Return true and false as in JSON; a quote goes before text that a spreadsheet would run."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
