"""The changes of plan of a stored run, with what views show of each."""

from __future__ import annotations

import numpy as np

from syncscope.app.live_batch import PlanChange
from syncscope.app.variants import Planned, Variant
from syncscope.sched_core.engine import SWITCH
from syncscope.sched_core.passes.registry import PRESETS, Applied
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.records import Finding, Plan, diff
from syncscope.sched_core.trace import Trace
from syncscope.sched_core.verdict import Analysis, analyse
from syncscope.sched_core.why import missing_sentence, why

SWITCH_SITE = "plan.switch.sync"


def trace_changes(trace: Trace, baseline: Plan | None = None) -> tuple[PlanChange, ...]:
    """Analyse each plan of a trace, and find from which step on it ran.

    The last plan keeps the findings that the trace has.  Takes as long as the analysis of each.

    Parameters
    ----------
    trace : Trace
    baseline : Plan or None
        What ghosts are shown against; if None, a plan of the trace that is a baseline.  If there is
        none either, there are no ghosts.
    """
    if not trace.plans:
        return ()
    rules = trace.findings[0].rules if trace.findings else "practical"
    if baseline is None:
        baseline = next((each for each in trace.plans if is_baseline(each)), None)
    begins = _begins(trace)
    last = len(trace.plans) - 1
    analysed: list[tuple[Plan, Analysis]] = []
    changes = []
    for i, (plan, step) in enumerate(zip(trace.plans, begins, strict=True)):
        if step < 0:
            continue
        analysis = next((known for each, known in analysed if each == plan), None)
        if analysis is None:
            analysis = analyse(plan, rules)
            analysed.append((plan, analysis))
        told = trace.findings if i == last else ()
        variant = _variant(trace, plan, i == last)
        changes.append(_change(plan, step, variant, told or analysis.findings, baseline, analysis))
    return tuple(changes)


def is_baseline(plan: Plan) -> bool:
    """Whether nothing was done to a plan but what is done to the baseline."""
    return plan.passes == PRESETS["baseline"]


def _begins(trace: Trace) -> list[int]:
    """Return the first step of each plan, -1 of those that ended before the spans begin.

    Before each plan but the first there is a drain, which bears the number of the step after it.
    """
    drains = [
        i for i, each in enumerate(trace.sites) if each.phase == SWITCH and each.name == SWITCH_SITE
    ]
    calls = trace.spans[np.isin(trace.spans["op"], drains) & (trace.spans["role"] == 0)]
    steps = np.sort(calls["step"]).tolist()[max(0, len(calls) - len(trace.plans) + 1) :]
    unknown = len(trace.plans) - len(steps) - 1
    return [-1] * unknown + [0, *steps]


def _variant(trace: Trace, plan: Plan, is_last: bool) -> Variant:
    """Name the variant of a plan: that of the trace, the preset it is, or its passes."""
    preset = next((name for name, passes in PRESETS.items() if passes == plan.passes), "")
    if not is_last:
        return Variant(preset or "+".join(plan.passes), plan.passes)
    dropped = tuple(trace.variant.get("dropped_sites", ()))
    return Variant(str(trace.variant.get("id", preset)), plan.passes, dropped)


def _change(
    plan: Plan,
    step: int,
    variant: Variant,
    findings: tuple[Finding, ...],
    baseline: Plan | None,
    analysis: Analysis,
) -> PlanChange:
    before = baseline.phases if baseline is not None else {}
    return PlanChange(
        step=step,
        planned=Planned(variant, plan, Applied(plan, (), {}), variant.drop),
        findings=findings,
        patterns={phase: plan_pattern(ops) for phase, ops in plan.phases.items()},
        reasons={(each.phase, each.site): why(analysis.program, each) for each in findings},
        ghosts={
            phase: diff(before[phase], ops) for phase, ops in plan.phases.items() if phase in before
        },
        hazards=tuple(missing_sentence(analysis.program, each) for each in analysis.missing),
    )
