"""Drop every sync outside the kept set of the ordering analysis."""

from __future__ import annotations

from syncscope.sched_core.passes.base import Pass
from syncscope.sched_core.passes.drop_sites import drop_sites, sync_sites
from syncscope.sched_core.passes.guards import drop_guards
from syncscope.sched_core.records import Plan
from syncscope.sched_core.verdict import find_kept


def apply(plan: Plan, value: int) -> Plan:
    """All redundant syncs go together: that is what the kept set is proved for."""
    plan, _ = drop_guards(plan)
    kept = find_kept(plan)
    redundant = [site for site in sync_sites(plan) if site not in kept]
    return drop_sites(plan, redundant)[0] if redundant else plan


KEEP_SET = Pass(
    id="keep-set",
    title="No sync outside the kept set",
    source="new",
    apply=apply,
)
