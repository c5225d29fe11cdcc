"""Drop the sync before the input copies."""

from __future__ import annotations

from syncscope.sched_core.passes.base import Pass, edit_phases
from syncscope.sched_core.records import Plan


def apply(plan: Plan, value: int) -> Plan:
    """Stream order already keeps the copies behind the kernels that read the old inputs (WAR)."""
    return edit_phases(plan, lambda ops: (op for op in ops if op.site != "inputs.sync_before"))


DROP_LEADING_SYNC = Pass(
    id="drop-leading-sync",
    title="No sync before the input copies",
    source="llama.cpp #17795",
    apply=apply,
    needs=("batch-input-syncs",),
)
