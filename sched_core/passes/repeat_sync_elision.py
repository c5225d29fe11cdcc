"""Drop a sync of a stream that has had nothing new since its last sync."""

from __future__ import annotations

from collections.abc import Iterator

from syncscope.sched_core.passes.base import Pass, edit_phases
from syncscope.sched_core.records import Kind, Op, Plan


def _elide(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Remember per stream whether it was synced with nothing enqueued since, in this step."""
    drained: set[str] = set()
    for op in ops:
        if op.kind == Kind.SYNC and op.scope == "stream":
            if op.stream in drained:
                continue
            drained.add(op.stream)
        elif op.stream:
            drained.discard(op.stream)
        yield op


def apply(plan: Plan, value: int) -> Plan:
    """Never looks across a step border: another step may have enqueued work."""
    return edit_phases(plan, _elide)


REPEAT_SYNC_ELISION = Pass(
    id="repeat-sync-elision",
    title="No second sync of a stream with nothing enqueued since",
    source="llama.cpp's repeated getter syncs",
    apply=apply,
)
