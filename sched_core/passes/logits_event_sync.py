"""Wait for an event after the logits copy instead of for the whole stream."""

from __future__ import annotations

from dataclasses import replace

from syncscope.sched_core.passes.base import Pass, edit_phases, taken_over
from syncscope.sched_core.records import Event, Kind, Op, Plan

EVENT = "logits.copied"


def _is_getter(op: Op) -> bool:
    return op.kind == Kind.SYNC and op.scope == "stream" and op.site.startswith("logits.get")


def _wait_for_copy(ops: tuple[Op, ...]) -> list[Op]:
    """The first getter's wait becomes the guard's own site; further getters wait in place."""
    getters = [op for op in ops if _is_getter(op)]
    if not getters:
        return list(ops)
    me = LOGITS_EVENT_SYNC.id
    out: list[Op] = []
    for op in ops:
        if op is getters[0]:
            out.append(
                Op(
                    "logits.copied.sync",
                    Kind.SYNC,
                    event=EVENT,
                    scope="event",
                    origin=me,
                    replaces=taken_over([op]),
                )
            )
        elif _is_getter(op):
            out.append(replace(op, stream="", event=EVENT, scope="event", origin=me))
        else:
            out.append(op)
        if op.site == "logits.copy":
            out.append(Op("logits.copied.record", Kind.RECORD, op.stream, EVENT, origin=me))
    return out


def apply(plan: Plan, value: int) -> Plan:
    """Each getter sync still present becomes a wait for one event right after the logits copy."""
    edited = edit_phases(plan, _wait_for_copy)
    if all(before == edited.phases[name] for name, before in plan.phases.items()):
        return plan
    device = next(stream.device for stream in plan.streams)
    return replace(edited, events=(*plan.events, Event(EVENT, device)))


LOGITS_EVENT_SYNC = Pass(
    id="logits-event-sync",
    title="Wait for the logits copy, not for the stream",
    source="llama.cpp's output getters",
    apply=apply,
    capabilities=("events",),
)
