"""Replace the sync after the input copies by an event that guards the host's next write."""

from __future__ import annotations

from dataclasses import replace

from syncscope.sched_core.passes.base import Pass, edit_phases, taken_over
from syncscope.sched_core.records import Event, Kind, Op, Plan

EVENT = "inputs.copied"


def _guard(ops: tuple[Op, ...]) -> list[Op]:
    """Record after the last copy; wait for it at the start of the step, before the host writes."""
    sync = next((op for op in ops if op.site == "inputs.sync_after"), None)
    if sync is None:
        return list(ops)
    me = DROP_TRAILING_SYNC.id
    record = Op("inputs.copied.record", Kind.RECORD, sync.stream, EVENT, origin=me)
    wait = Op(
        "inputs.copied.sync",
        Kind.SYNC,
        event=EVENT,
        scope="event",
        origin=me,
        replaces=taken_over([sync]),
    )
    return [wait, *(record if op is sync else op for op in ops)]


def apply(plan: Plan, value: int) -> Plan:
    """The copies are ordered before the launch by their stream; what is left is host reuse."""
    edited = edit_phases(plan, _guard)
    if all(before == edited.phases[name] for name, before in plan.phases.items()):
        return plan
    device = next(stream.device for stream in plan.streams)
    return replace(edited, events=(*plan.events, Event(EVENT, device)))


DROP_TRAILING_SYNC = Pass(
    id="drop-trailing-sync",
    title="No sync after the input copies; an event guards their sources",
    source="llama.cpp #25319",
    apply=apply,
    needs=("batch-input-syncs",),
    capabilities=("events", "copy_launch_order"),
)
