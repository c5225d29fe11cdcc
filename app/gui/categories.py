"""What spans are drawn as."""

from __future__ import annotations

from collections.abc import Mapping

CATEGORIES = (
    "kernel",
    "h2d",
    "d2h",
    "d2d",
    "host_api",
    "host_work",
    "sync_required",
    "sync_reuse",
    "sync_redundant",
    "sync_other",
    "sync_unknown",
    "graph",
)
"""The order is that of the colours and of `lane_store` categories."""

VERDICT_CATEGORY: Mapping[str, str] = {
    "required": "sync_required",
    "required-for-reuse": "sync_reuse",
    "redundant": "sync_redundant",
    "interchangeable": "sync_other",
    "demotable": "sync_other",
    "unknown": "sync_unknown",
}
"""What a sync with a verdict of `records.VERDICTS` is drawn as."""


def verdict_category(verdict: str) -> str:
    """Return what a sync with a verdict is drawn as; one without is drawn as unknown."""
    return VERDICT_CATEGORY[verdict or "unknown"]
