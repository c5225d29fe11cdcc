"""All inputs of a step in one pinned block: one copy."""

from __future__ import annotations

from dataclasses import replace

from syncscope.sched_core.passes.base import Pass, edit_phases, is_input_copy, taken_over
from syncscope.sched_core.planner import device_copy
from syncscope.sched_core.records import Access, Buffer, Kind, Op, Plan

ALIGNMENT = 256
"""Bytes: what device allocations are aligned to, so that packed inputs are as well."""

BLOCK = "inputs"


def apply(plan: Plan, value: int) -> Plan:
    """Lay the input buffers out in one host and one device block; copy the block once."""
    copies = [op for ops in plan.phases.values() for op in ops if is_input_copy(op)]
    device = {op.accesses[1].buffer: op.accesses[0].buffer for op in copies}
    if len(device) < 2:
        return plan
    offset: dict[str, int] = {}
    end = 0
    for source in dict.fromkeys(device.values()):
        offset[source] = end
        end += -(-plan.buffer(source).nbytes // ALIGNMENT) * ALIGNMENT
    target = plan.buffer(next(iter(device)))
    block = device_copy(BLOCK, target.device)
    moved = {name: (BLOCK, offset[name]) for name in offset}
    moved |= {name: (block, offset[source]) for name, source in device.items()}

    def move(access: Access) -> Access:
        if access.buffer not in moved:
            return access
        name, base = moved[access.buffer]
        last = plan.buffer(access.buffer).nbytes if access.end < 0 else access.end
        return replace(access, buffer=name, begin=base + access.begin, end=base + last)

    def edit(ops: tuple[Op, ...]) -> list[Op]:
        mine = [op for op in ops if is_input_copy(op)]
        out: list[Op] = []
        for op in ops:
            if not is_input_copy(op):
                out.append(replace(op, accesses=tuple(map(move, op.accesses))))
            elif op is mine[0]:
                used = max(move(each.accesses[0]).end for each in mine)
                out.append(
                    Op(
                        "inputs.copy",
                        Kind.COPY,
                        op.stream,
                        accesses=(Access(BLOCK, False, 0, used), Access(block, True, 0, used)),
                        origin=PACK_INPUTS.id,
                        replaces=taken_over(mine),
                    )
                )
        return out

    kept = tuple(each for each in plan.buffers if each.name not in moved)
    blocks = (Buffer(BLOCK, end, "pinned"), Buffer(block, end, "device", target.device))
    return edit_phases(replace(plan, buffers=kept + blocks), edit)


PACK_INPUTS = Pass(
    id="pack-inputs",
    title="All inputs in one pinned block, copied once",
    source="new",
    apply=apply,
    needs=("batch-input-syncs",),
)
