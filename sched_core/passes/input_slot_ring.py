"""Several host slots per input, so that the guard waits for an older step."""

from __future__ import annotations

from dataclasses import replace

from syncscope.sched_core.passes.base import Parameter, Pass, is_input_copy
from syncscope.sched_core.passes.drop_trailing_sync import EVENT
from syncscope.sched_core.planner import compute_stream
from syncscope.sched_core.records import Plan


def apply(plan: Plan, value: int) -> Plan:
    """Give copy sources `value` slots and their event as many.

    Device slots only where the copy runs on another stream than the kernels that read it: on one
    stream its order already keeps them apart.
    """
    copies = [op for ops in plan.phases.values() for op in ops if is_input_copy(op)]
    device = {stream.name: stream.device for stream in plan.streams}
    ring = {op.accesses[0].buffer for op in copies}
    ring |= {
        op.accesses[1].buffer for op in copies if op.stream != compute_stream(device[op.stream])
    }
    return replace(
        plan,
        buffers=tuple(replace(b, depth=value) if b.name in ring else b for b in plan.buffers),
        events=tuple(replace(e, depth=value) if e.name == EVENT else e for e in plan.events),
    )


INPUT_SLOT_RING = Pass(
    id="input-slot-ring",
    title="A ring of host slots per input, an event per slot",
    source="llama.cpp #27311",
    apply=apply,
    needs=("drop-trailing-sync",),
    parameter=Parameter("depth", 2, 4, 2),
)
