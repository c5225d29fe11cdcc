"""Calibration: record what a profile is fitted to, and say how well the profile holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from tabulate import tabulate

from syncscope.app.calibration.fit import Fit, is_plain
from syncscope.app.calibration.observe import label, problem
from syncscope.app.calibration.probe import STEPS, probe_contents, probe_instances, probe_plan
from syncscope.app.devices import Device, describe_recording
from syncscope.app.environment import describe_environment
from syncscope.app.interrupts import Interrupts
from syncscope.app.report.atomic import StrPath, write_atomic
from syncscope.app.report.chrome_trace import read_traces
from syncscope.app.session import Progress, make_trace, run_plan
from syncscope.app.simulated import simulate_again, step_us
from syncscope.app.variants import REFERENCE, plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.host import host_table
from syncscope.kernels.registry import load_model
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import DeviceError, FileError
from syncscope.sched_core.profile import FIGURES, Profile, parse_profile, render_profile
from syncscope.sched_core.trace import Trace

MODELS = ("tiny", "shape:15m", "shape:1b")
"""What is fitted: two models that the L2 cache of a large GPU holds, and one that it does not."""

PROMPT = "Alice looked at the Queen and said"
TOKENS = 200
UBATCH = 512


def record(
    device: Device, model_ids: Sequence[str], n_tokens: int, progress: Progress
) -> tuple[Trace, ...]:
    """Record the probe, and each model under the baseline, with its graph and without.

    Raises
    ------
    DeviceError
        When the device fails.
    """
    with Interrupts() as interrupts:
        traces = [record_probe(device)]
        for model_id in model_ids:
            traces += _record_model(device, model_id, n_tokens, progress, interrupts)
    return tuple(traces)


def record_probe(device: Device) -> Trace:
    """Record the probe alone."""
    wanted = probe_instances()
    backend = device.open(host_table(wanted), wanted, probe_contents())
    with closing(backend), closing(Engine(backend, probe_plan())) as engine:
        engine.run("decode", STEPS)
        engine.drain()
        return Trace(
            sites=tuple(engine.sites),
            lanes=engine.lanes,
            phases=tuple(engine.phases),
            spans=engine.take_spans(),
            dropped=engine.recorder.dropped,
            simulated=device.simulated,
            device=device.describe(),
            variant={"id": "probe", "passes": [], "dropped_sites": []},
            recording=describe_recording(backend, engine.recorder.dropped),
            environment={**describe_environment(), **device.environment()},
            plans=tuple(engine.plans),
        )


def _record_model(
    device: Device, model_id: str, n_tokens: int, progress: Progress, interrupts: Interrupts
) -> Iterator[Trace]:
    model = load_model(model_id)
    workload = Workload(model, tuple(model.tokenizer.encode(PROMPT)), n_tokens, UBATCH)
    environment = {**describe_environment(), **device.environment()}
    for variant in (REFERENCE, preset_variant("no-graph")):
        planned = plan_variant(workload.plan(), variant)
        run = run_plan(workload, device, planned, frozenset(), progress, interrupts)
        if run.interrupted:
            raise KeyboardInterrupt
        problem = run.failure or run.fault
        if problem:
            raise DeviceError(f"{model_id} {variant.id}: {problem}")
        yield make_trace(workload, device, planned, run, environment)


def read(paths: Sequence[StrPath]) -> tuple[Trace, ...]:
    """Read stored traces, all that each file holds."""
    return tuple(trace for path in paths for trace in read_traces(path))


def save(profile: Profile, path: StrPath) -> None:
    """Write a profile as JSON, atomically.

    Raises
    ------
    FileError
        If it cannot be written, or holds a value that no profile may have.
    """
    text = render_profile(profile).encode()
    try:
        parse_profile(text)
    except FileError as error:
        raise FileError(f"the traces give no usable profile: {error}; record them anew") from None
    write_atomic(path, [text])


@dataclass(frozen=True, slots=True)
class StepCheck:
    """A trace's step time, beside what the profile says of the same plan."""

    trace: str
    fitted: bool
    measured_us: float
    simulated_us: float


def check_steps(traces: Sequence[Trace], profile: Profile) -> tuple[StepCheck, ...]:
    """Compare the step times of traces of models with those of the simulator."""
    found = []
    for trace in traces:
        if not trace.model.get("id") or problem(trace):
            continue
        measured, simulated = step_us(trace), step_us(simulate_again(trace, profile))
        if measured is not None and simulated is not None:
            found.append(StepCheck(label(trace), is_plain(trace), measured, simulated))
    return tuple(found)


def render(fit: Fit, steps: Sequence[StepCheck]) -> str:
    """Return a fit as text: its terms, its kernels, and the steps that it explains."""
    profile = fit.profile
    origin = {name: f"{count} figures" for name, count in fit.seen.items()}
    terms = [(name, f"{getattr(profile, name):,.6g}", origin.get(name, "kept")) for name in FIGURES]
    terms += [(f"kernels.{name}", f"{ns:,.6g}", "") for name, ns in profile.kernels.items()]
    kernels = [
        (each.name, *_compared(each.measured_ns / 1e3, each.fitted_ns / 1e3))
        for each in fit.kernels
    ]
    compared = [
        (
            each.trace,
            "fitted" if each.fitted else "not fitted",
            *_compared(each.measured_us, each.simulated_us),
        )
        for each in steps
    ]
    figures = ("measured us", "simulated us", "error")
    tables = (
        (terms, ("term", "value", "from")),
        (kernels, ("kernel", *figures)),
        (compared, ("step of", "", *figures)),
    )
    head = f"profile {profile.name} ({profile.status}), {profile.device_name}"
    texts = (tabulate(rows, headers, disable_numparse=True) for rows, headers in tables if rows)
    return "\n\n".join((head, *texts))


def _compared(measured: float, simulated: float) -> tuple[str, str, str]:
    return f"{measured:,.2f}", f"{simulated:,.2f}", f"{100 * (simulated / measured - 1):+.1f} %"
