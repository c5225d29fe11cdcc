"""A live run: a worker thread that owns device, backend and engine, and hands out batches."""

from __future__ import annotations

from syncscope.app.live_batch import (
    OVER,
    STATES,
    Harm,
    LiveBatch,
    LiveRequest,
    PlanChange,
)

__all__ = ["OVER", "STATES", "Harm", "LiveBatch", "LiveRequest", "PlanChange"]
