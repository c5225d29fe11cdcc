"""Guards of passes: a host wait for an event, and that phase's record of it."""

from __future__ import annotations

from dataclasses import replace

from syncscope.sched_core.missing import hazards_added
from syncscope.sched_core.records import Kind, Op, Plan
from syncscope.sched_core.verdict import find_kept


def guard_events(ops: tuple[Op, ...]) -> tuple[str, ...]:
    """Return the events that a guard of a phase waits for, and nothing else there does.

    A guard's sites are named by its event: ``EVENT.sync`` and ``EVENT.record``.
    """
    sites = {op.site for op in ops}
    waits = [op for op in ops if op.event and op.kind in (Kind.SYNC, Kind.WAIT)]
    return tuple(
        op.event
        for op in waits
        if op.site == f"{op.event}.sync"
        and f"{op.event}.record" in sites
        and sum(other.event == op.event for other in waits) == 1
    )


def drop_guards(plan: Plan, rules: str = "practical") -> tuple[Plan, tuple[str, ...]]:
    """Drop each guard in the phases where the kept set does not hold its wait.

    Wait and record go together, or neither.

    Returns
    -------
    plan : Plan
    dropped : tuple of str
        The waits that went, as ``phase:site``.
    """
    if not any(guard_events(ops) for ops in plan.phases.values()):
        return plan, ()
    kept = find_kept(plan, rules)
    phases = {}
    dropped: list[str] = []
    for phase, ops in plan.phases.items():
        events = [each for each in guard_events(ops) if f"{phase}:{each}.sync" not in kept]
        gone = {f"{event}.{part}" for event in events for part in ("sync", "record")}
        phases[phase] = tuple(op for op in ops if op.site not in gone)
        dropped += [f"{phase}:{event}.sync" for event in events]
    without = replace(plan, phases=phases)
    # A record that went may have been what another phase waited for.
    return (plan, ()) if hazards_added(plan, without, rules)[1] else (without, tuple(dropped))
