"""Drop every sync that the ordering analysis can do without, whatever the rule set."""

from __future__ import annotations

from syncscope.sched_core.missing import hazards_added
from syncscope.sched_core.order import RULES
from syncscope.sched_core.passes.base import Pass
from syncscope.sched_core.passes.drop_sites import drop_sites, sync_sites
from syncscope.sched_core.passes.guards import drop_guards
from syncscope.sched_core.records import Plan
from syncscope.sched_core.verdict import find_kept


def apply(plan: Plan, value: int) -> Plan:
    """All redundant syncs go together: that is what a kept set is proved for.

    A pass is not told the rule set, so only what is outside the kept sets of all of them goes.
    Under one of them a sync may be left that is redundant.
    """
    unguarded, _ = drop_guards(plan, "strict")
    plan = plan if hazards_added(plan, unguarded, "practical")[1] else unguarded
    kept = {site for rules in RULES for site in find_kept(plan, rules)}
    redundant = [site for site in sync_sites(plan) if site not in kept]
    return drop_sites(plan, redundant)[0] if redundant else plan


KEEP_SET = Pass(
    id="keep-set",
    title="No sync outside the kept set",
    source="new",
    apply=apply,
)
