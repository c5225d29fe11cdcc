"""A change of plan and all that views show of it: verdicts, reasons, what was removed."""

from __future__ import annotations

from syncscope.app.live_batch import PlanChange
from syncscope.app.variants import REFERENCE, Variant, plan_variant
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.records import Plan, diff
from syncscope.sched_core.verdict import analyse
from syncscope.sched_core.why import missing_sentence, why


def plan_change(baseline: Plan, variant: Variant, rules: str = "practical") -> PlanChange:
    """Plan a variant and analyse it; it is not known yet from which step it runs.

    Parameters
    ----------
    baseline : Plan
        Without a captured graph, as `Workload.plan` returns it.
    variant : Variant
    rules : str

    Raises
    ------
    UsageError
        As `plan_variant`.
    """
    planned = plan_variant(baseline, variant, rules)
    analysis = analyse(planned.plan, rules)
    before = plan_variant(baseline, REFERENCE, rules).plan.phases
    after = planned.plan.phases
    return PlanChange(
        step=0,
        planned=planned,
        findings=analysis.findings,
        patterns={phase: plan_pattern(ops) for phase, ops in after.items()},
        reasons={
            (each.phase, each.site): why(analysis.program, each) for each in analysis.findings
        },
        ghosts={phase: diff(before[phase], ops) for phase, ops in after.items()},
        hazards=tuple(missing_sentence(analysis.program, each) for each in analysis.missing),
    )
