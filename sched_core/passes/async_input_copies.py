"""Move the input copies to the compute stream."""

from __future__ import annotations

from dataclasses import replace

from syncscope.sched_core.passes.base import Pass, edit_phases, is_input_copy, is_input_sync
from syncscope.sched_core.planner import compute_stream, copy_stream
from syncscope.sched_core.records import Op, Plan


def apply(plan: Plan, value: int) -> Plan:
    """Copies go from pinned sources on the compute stream; their syncs stay and move with them."""
    moved = {copy_stream(s.device): compute_stream(s.device) for s in plan.streams}

    def edit(ops: tuple[Op, ...]) -> list[Op]:
        return [
            replace(op, stream=moved[op.stream], origin=ASYNC_INPUT_COPIES.id)
            if (is_input_copy(op) or is_input_sync(op)) and op.stream in moved
            else op
            for op in ops
        ]

    return edit_phases(plan, edit)


ASYNC_INPUT_COPIES = Pass(
    id="async-input-copies",
    title="Input copies on the compute stream, from pinned memory",
    source="llama.cpp #17795, #20793 (b9820)",
    apply=apply,
    capabilities=("async_host_source",),
)
