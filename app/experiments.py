"""Questions that take runs of their own: provoke every kept sync, name the smallest sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncscope.app.bench.metrics import measure
from syncscope.app.devices import SimDevice
from syncscope.app.interrupts import Interrupts
from syncscope.app.results import BenchResult, Provoked
from syncscope.app.session import make_trace, run_plan
from syncscope.app.variants import REFERENCE, Planned, Variant, plan_variant
from syncscope.app.workload import Workload
from syncscope.sched_core.analyser import analysis_phases
from syncscope.sched_core.minimal import minimal_sets
from syncscope.sched_core.passes.drop_sites import drop_sites, sync_sites
from syncscope.sched_core.program import unroll
from syncscope.sched_core.records import Plan
from syncscope.sched_core.verdict import analyse

TIMED_TOKENS = 16
"""Tokens of a run that times a set of syncs."""


def with_experiments(
    result: BenchResult,
    workload: Workload,
    device: SimDevice,
    variants: Sequence[Variant],
    provoke: bool,
    minimal: bool,
) -> BenchResult:
    """Add what was asked for to each variant of a result."""
    wanted = {each.id: each for each in (REFERENCE, *variants)}
    baseline = workload.plan()
    first = result.variants[0]
    reference = (first.token_ids, first.logits_sha256)
    changed = []
    for each in result.variants:
        planned = plan_variant(baseline, wanted[each.id], device.rules)
        changed.append(
            replace(
                each,
                provoked=_provoke(workload, device, planned, reference) if provoke else (),
                minimal=_name_minimal(workload, device, planned.plan) if minimal else "",
            )
        )
    return replace(result, variants=tuple(changed))


def _without(planned: Planned, kept: Sequence[str]) -> Planned:
    """Return a plan with every sync dropped but those of `kept`."""
    gone = [site for site in sync_sites(planned.plan) if site not in kept]
    return replace(planned, plan=drop_sites(planned.plan, gone)[0]) if gone else planned


def _provoke(
    workload: Workload,
    device: SimDevice,
    planned: Planned,
    reference: tuple[tuple[int, ...], str | None],
) -> tuple[Provoked, ...]:
    """Keep the kept set but for one sync, each in turn, and try every data order."""
    device = replace(device, adversarial=True)
    analysis = analyse(planned.plan, device.rules)
    ran = {phase for phase, _ in workload.segments}
    found = []
    for finding in analysis.findings:
        unit = f"{finding.phase}:{finding.site}"
        phases = {
            analysis.program.phases[node.step] for node in (finding.first, finding.second) if node
        }
        if unit not in analysis.kept:
            continue
        if not phases <= ran:
            found.append(Provoked(finding.phase, finding.site, finding.verdict, None, None, None))
            continue
        changed = _without(planned, [each for each in analysis.kept if each != unit])
        runs = [
            run_plan(workload, device, changed, late, lambda *_: None, Interrupts())
            for late in device.orders(changed.plan)
        ]
        harmful = [run for run in runs if run.harmed]
        differs = any((run.token_ids, run.logits) != reference for run in runs)
        found.append(
            Provoked(
                phase=finding.phase,
                site=finding.site,
                verdict=finding.verdict,
                seen=bool(harmful),
                output_differs=differs if device.compute else None,
                order=harmful[0].order if harmful else None,
            )
        )
    return tuple(found)


def _name_minimal(workload: Workload, device: SimDevice, plan: Plan) -> str:
    """Name the smallest sets of syncs, and the one with the least simulated step time."""
    sets = minimal_sets(unroll(plan, analysis_phases(plan)), device.rules)
    timer = replace(device, compute=False, adversarial=False)
    short = replace(workload, n_tokens=min(workload.n_tokens, TIMED_TOKENS))
    planned = replace(plan_variant(workload.plan(), REFERENCE), plan=plan)

    def step_us(kept: tuple[str, ...]) -> float:
        changed = _without(planned, kept)
        run = run_plan(short, timer, changed, frozenset(), lambda *_: None, Interrupts())
        step = measure(make_trace(short, timer, changed, run, {})).step_us
        return step[0] if step else 0.0

    best = sets.quickest(step_us)
    count = f"{len(sets.sets):,}{'' if sets.complete else ' and more'}"
    return (
        f"{count} smallest sets of {sets.size} syncs; least simulated step time "
        f"({step_us(best):.1f} us): {', '.join(best)}"
    )
