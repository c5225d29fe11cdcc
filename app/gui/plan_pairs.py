"""Which sites of a plan belong together, as the plan says: records and waits, copies and waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncscope.sched_core.records import Kind, Op, Plan


@dataclass(frozen=True, slots=True)
class Pair:
    """A site of a step, and one of the same or of a later step that waits for it."""

    first: str
    second: str
    steps_later: int
    is_copy: bool


def horizon(plan: Plan) -> int:
    """Return over how many steps a pair can reach: until an event's slot is used again."""
    return max([1, *(each.depth for each in plan.events)])


def find_pairs(plan: Plan, phases: Sequence[str]) -> tuple[Pair, ...]:
    """Find what waits for the records and the copies of a step.

    A record is waited for by every wait for its event until the event is recorded again.  A copy
    is waited for by the first wait of host or stream that covers it: of its stream, its device, or
    an event recorded on its stream after it.  A copy that blocks waits for itself.

    Parameters
    ----------
    plan : Plan
    phases : sequence of str
        Phase of the step, and of those after it, `horizon` of them unless another plan or the end
        comes first.
    """
    issued = [
        (later, op)
        for later, phase in enumerate(phases)
        for op in plan.phases.get(phase, ())
        if op.kind in (Kind.COPY, Kind.RECORD, Kind.WAIT, Kind.SYNC)
    ]
    found: list[Pair] = []
    for i, (later, op) in enumerate(issued):
        if later:
            break
        if op.kind == Kind.RECORD:
            found += _waits(plan, op, issued[i + 1 :])
        elif op.kind == Kind.COPY and not op.blocking:
            found += _cover(plan, op, issued[i + 1 :])
    return tuple(found)


def _slot(plan: Plan, event: str, later: int) -> int:
    depth = next(each.depth for each in plan.events if each.name == event)
    return later % depth


def _is_wait(op: Op) -> bool:
    return op.kind == Kind.WAIT or (op.kind == Kind.SYNC and op.scope == "event")


def _waits(plan: Plan, record: Op, after: Sequence[tuple[int, Op]]) -> Iterator[Pair]:
    """Yield what waits for a record."""
    for later, op in after:
        if op.event == record.event and _slot(plan, op.event, later) == 0:
            if op.kind == Kind.RECORD:
                return
            if _is_wait(op):
                yield Pair(record.site, op.site, later, is_copy=False)


def _cover(plan: Plan, copy: Op, after: Sequence[tuple[int, Op]]) -> Iterator[Pair]:
    """Yield the first wait that covers a copy."""
    device = {each.name: each.device for each in plan.streams}
    recorded: set[tuple[str, int]] = set()
    for later, op in after:
        mark = (op.event, _slot(plan, op.event, later)) if op.event else ("", 0)
        if op.kind == Kind.RECORD:
            (recorded.add if op.stream == copy.stream else recorded.discard)(mark)
        elif (
            mark in recorded
            if _is_wait(op)
            else op.kind == Kind.SYNC
            and (
                op.stream == copy.stream
                or (op.scope == "device" and device[op.stream] == device[copy.stream])
            )
        ):
            yield Pair(copy.site, op.site, later, is_copy=True)
            return
