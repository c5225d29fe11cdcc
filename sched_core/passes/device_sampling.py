"""Sample on the device; the token comes back instead of the logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from syncscope.sched_core.passes.base import Pass, Refused, edit_phases, is_input_copy
from syncscope.sched_core.planner import device_copy
from syncscope.sched_core.records import Access, Buffer, Kind, Op, Plan


def _sample_on_device(ops: tuple[Op, ...], token: Buffer, logits: Mapping[str, str]) -> list[Op]:
    """Move `sample` in front of the copy, onto the stream and into the graph of the logits.

    It reads the logits, and the inputs that the step copies to the device, where they are there.
    """
    sample = next((op for op in ops if op.site == "sample" and op.kind == Kind.HOST), None)
    copy = next((op for op in ops if op.site == "logits.copy"), None)
    if sample is None or copy is None:
        return list(ops)
    producer = next(op for op in reversed(ops) if op.kind == Kind.LAUNCH)
    me = DEVICE_SAMPLING.id
    inputs = {op.accesses[0].buffer: op.accesses[1].buffer for op in ops if is_input_copy(op)}
    there = {**inputs, **logits}
    for each in sample.accesses:
        if not each.write and each.buffer not in there:
            raise Refused(f"the sampling kernel reads {each.buffer}, which is not on the device")
    moved = replace(
        sample,
        kind=Kind.LAUNCH,
        stream=copy.stream,
        accesses=tuple(
            replace(each, buffer=token.name if each.write else there[each.buffer])
            for each in sample.accesses
        ),
        graph=producer.graph,
        origin=me,
    )
    target = next(each.buffer for each in sample.accesses if each.write)
    back = replace(copy, accesses=(Access(token.name, False), Access(target, True)), origin=me)
    out: list[Op] = []
    for op in ops:
        if op is copy:
            out.append(back)
        elif op is not sample:
            out.append(op)
        if op is producer:
            out.append(moved)
    return out


def apply(plan: Plan, value: int) -> Plan:
    """Run the sampling kernel after the logits; `logits.copy` then carries the token's bytes."""
    sites = [(ops, op) for ops in plan.phases.values() for op in ops if op.site == "logits.copy"]
    samples = [
        op
        for ops in plan.phases.values()
        for op in ops
        if op.site == "sample" and op.kind == Kind.HOST
    ]
    if not sites or not samples:
        return plan
    copy = sites[0][1]
    device = plan.buffer(copy.accesses[0].buffer).device
    written = [each.buffer for each in samples[0].accesses if each.write]
    if len(written) != 1:
        raise Refused("the sampling kernel writes more than the token")
    host = plan.buffer(written[0])
    token = Buffer(device_copy(host.name, device), host.nbytes, "device", device)
    logits = {copy.accesses[1].buffer: copy.accesses[0].buffer}
    edited = edit_phases(plan, lambda ops: _sample_on_device(ops, token, logits))
    used = {access.buffer for ops in edited.phases.values() for op in ops for access in op.accesses}
    kept = tuple(each for each in plan.buffers if each.name in used or each.name not in logits)
    return replace(edited, buffers=(*kept, token))


DEVICE_SAMPLING = Pass(
    id="device-sampling",
    title="Sample on the device; four bytes come back",
    source="llama.cpp's device samplers",
    apply=apply,
    scheduling_only=False,
)
