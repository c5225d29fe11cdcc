"""One sync, all input copies, one sync: ``saaasg``."""

from __future__ import annotations

from syncscope.sched_core.passes.base import (
    Pass,
    edit_phases,
    is_input_copy,
    is_input_sync,
    taken_over,
)
from syncscope.sched_core.records import Kind, Op, Plan


def _batch(ops: tuple[Op, ...]) -> list[Op]:
    syncs = [op for op in ops if is_input_sync(op)]
    kept = [op for op in ops if not is_input_sync(op)]
    copies = [i for i, op in enumerate(kept) if is_input_copy(op)]
    if not syncs or not copies:
        return list(ops)
    stream = kept[copies[0]].stream
    me = BATCH_INPUT_SYNCS.id
    before = taken_over(op for op in syncs if not op.site.endswith(".sync_after"))
    after = taken_over(op for op in syncs if op.site.endswith(".sync_after"))
    end = copies[-1] + 1
    return [
        *kept[: copies[0]],
        Op("inputs.sync_before", Kind.SYNC, stream, origin=me, replaces=before),
        *kept[copies[0] : end],
        Op("inputs.sync_after", Kind.SYNC, stream, origin=me, replaces=after),
        *kept[end:],
    ]


def apply(plan: Plan, value: int) -> Plan:
    """Replace the syncs around each input copy by one before and one after all of them."""
    return edit_phases(plan, _batch)


BATCH_INPUT_SYNCS = Pass(
    id="batch-input-syncs",
    title="One sync, all input copies, one sync",
    source="llama.cpp #17795, #20793",
    apply=apply,
    needs=("async-input-copies",),
)
