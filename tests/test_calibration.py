"""Calibration: a known profile is found again from the traces that it makes."""

from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from helpers.calibration import MODELS, model_trace, plain_traces, probe_trace
from helpers.plans import PROFILE, make_plan, run_by_hand
from syncscope.app import calibrate
from syncscope.app.calibration.fit import fit
from syncscope.app.calibration.kernels import KernelCase, fit_arithmetic, fit_kernels
from syncscope.app.calibration.observe import observe
from syncscope.app.calibration.probe import PAUSE, UPLOADS
from syncscope.app.devices import SimDevice
from syncscope.app.report.chrome_trace import read_traces, write_traces
from syncscope.app.simulated import simulate, step_us
from syncscope.kernels.host import host_table
from syncscope.kernels.signature import parse_instance
from syncscope.sched_core.costs import Work, kernel_time_ns
from syncscope.sched_core.errors import FileError, UsageError
from syncscope.sched_core.profile import FIGURES, load_profile, parse_profile, render_profile
from syncscope.sched_core.records import Kind
from syncscope.sched_core.trace import Trace

START = load_profile("h200")
NEVER_SEEN = {"host_macs_per_ns", "l2_nbytes"}
FACTORS = (0.8, 1.3, 0.7, 1.25, 0.9, 1.15)


def other(profile, seed):
    """Change every figure by a third or less; small copies still take longer than their calls."""
    draw = np.random.default_rng(seed)
    terms = [name for name in FIGURES if name not in NEVER_SEEN | {"inline_nbytes", "kernel_ns"}]
    figures = {
        name: round(getattr(profile, name) * float(draw.choice(FACTORS)), 3) for name in terms
    }
    figures["inline_ns"] = 2 * figures["copy_call_ns"] + 100.5
    figures["inline_nbytes"] = float(UPLOADS[6 + seed])
    names = ("argmax", "attention", "gate_up", "logits", "project", "qkv")
    kernels = {name: round(2500 * float(draw.choice(FACTORS)), 3) for name in names}
    return replace(profile, kernels=kernels, **figures)


TRUTHS = [other(START, seed) for seed in (0, 1)]


@pytest.fixture(scope="module", params=TRUTHS, ids=["one", "another"])
def truth(request):
    return request.param


@pytest.fixture(scope="module")
def traces(truth):
    return plain_traces(truth)


@pytest.fixture(scope="module")
def found(traces):
    return fit(traces, START, "found")


# ---- round trip ---------------------------------------------------------------------------------

LOOSE = {
    "host_ns": 0.01,  # of 50 ns in whole ones
    "graph_call_per_node_ns": 0.05,  # a nanosecond in the calls for 60 nodes more
}


@pytest.mark.parametrize("name", [each for each in FIGURES if each not in ("kernel_ns",)])
def test_every_figure_of_a_known_profile_is_found_again(truth, found, name):
    tolerance = LOOSE.get(name, 1e-3)
    assert getattr(found.profile, name) == pytest.approx(getattr(truth, name), rel=tolerance)


def test_every_kernel_of_a_known_profile_is_found_again(truth, found):
    assert found.profile.kernels == pytest.approx(truth.kernels, rel=2e-3)
    assert found.profile.kernel_ns == median(found.profile.kernels.values())
    for each in found.kernels:
        assert each.fitted_ns == pytest.approx(each.measured_ns, rel=1e-3), each.name


def test_what_no_trace_shows_is_kept_and_named(found):
    assert set(found.kept) == NEVER_SEEN
    assert set(found.seen) == set(FIGURES) - NEVER_SEEN
    assert all(getattr(found.profile, name) == getattr(START, name) for name in NEVER_SEEN)


@pytest.mark.parametrize("preset", ["baseline", "no-graph", "saaasg", "aaag", "all"])
def test_steps_that_were_not_fitted_are_predicted(truth, found, preset):
    wanted = step_us(model_trace("shape:135m", preset, truth))
    assert step_us(model_trace("shape:135m", preset, found.profile)) == pytest.approx(
        wanted, rel=2e-3
    )


def test_stalls_in_a_few_steps_change_nothing(traces, truth):
    draw = np.random.default_rng(3)
    shaken = [stalled(trace, draw) for trace in traces]
    calm, rough = (fit(each, START, "x").profile for each in (traces, shaken))
    for name in FIGURES:
        assert getattr(rough, name) == pytest.approx(getattr(calm, name), rel=0.01), name


def stalled(trace: Trace, draw) -> Trace:
    """Let the host lose 300 us in one call of every sixth step: all that comes later is later."""
    spans = trace.spans.copy()
    for step in range(5, len(trace.phases), 6):
        calls = spans[(spans["step"] == step) & (spans["role"] == 0)]
        quiet = [each for each in calls if trace.sites[each["op"]].kind == Kind.HOST]
        at = quiet[int(draw.integers(len(quiet)))]["begin_ns"] if quiet else calls["begin_ns"].min()
        spans["end_ns"][spans["end_ns"] > at] += 300_000
        spans["begin_ns"][spans["begin_ns"] > at] += 300_000
    return replace(trace, spans=spans)


@pytest.mark.parametrize("shift", [-1500, -700, 700])
def test_clocks_that_are_not_quite_aligned_change_no_step(traces, truth, shift):
    moved = []
    for trace in traces:
        spans = trace.spans.copy()
        kernel = np.array([site.kind == Kind.LAUNCH for site in trace.sites])[spans["op"]]
        for name in ("begin_ns", "end_ns"):
            spans[name][kernel & (spans["role"] == 1)] += shift
        moved.append(replace(trace, spans=spans))
    profile = fit(moved, START, "x").profile
    for preset in ("baseline", "saaasg", "all"):
        wanted = step_us(model_trace("tiny", preset, truth))
        found = step_us(model_trace("tiny", preset, profile))
        assert found == pytest.approx(wanted, rel=0.01), preset


def test_a_return_that_copies_contradict_is_held_to_what_they_allow(traces):
    copied = [row for row in observe(traces[0]).uploads_done if row[0] == 4]
    late = [replace(trace, spans=trace.spans.copy()) for trace in traces]
    for trace in late:
        kernel = np.array([site.kind == Kind.LAUNCH for site in trace.sites])[trace.spans["op"]]
        for name in ("begin_ns", "end_ns"):
            trace.spans[name][kernel & (trace.spans["role"] == 1)] -= 9000
    profile = fit(late, START, "x").profile
    alone = profile.copy_start_ns + profile.inline_ns + profile.sync_return_ns
    assert alone == pytest.approx(copied[0][1], rel=1e-3)
    assert profile.copy_start_ns == pytest.approx(0, abs=1)


@pytest.mark.parametrize("model", MODELS)
def test_one_model_alone_gives_its_own_graph_call(truth, model):
    few = fit(plain_traces(truth, (model,)), START, "few")
    assert "graph_call_per_node_ns" in few.kept and "graph_call_ns" in few.seen
    for preset in ("baseline", "no-graph"):
        wanted = step_us(model_trace(model, preset, truth))
        assert step_us(model_trace(model, preset, few.profile)) == pytest.approx(wanted, rel=0.01)


# ---- nothing per preset, nothing per model ------------------------------------------------------


def test_traces_of_other_plans_are_left_out(traces, truth, found):
    wild = other(START, 5)
    presets = ("saaasg", "aaag", "all")
    extra = [model_trace("shape:135m", preset, wild) for preset in presets]
    dropped = replace(
        model_trace("tiny", "baseline", wild),
        variant={"id": "baseline -drop", "passes": ["cuda-graph"], "dropped_sites": ["decode:x"]},
    )
    again = fit([*extra, *traces, dropped], START, "found")
    assert again.profile == found.profile
    assert again.left_out == (*(f"shape:135m {each}" for each in presets), "tiny baseline -drop")
    assert again.used == found.used == ("probe", *(
        f"{model} {preset}" for model in MODELS for preset in ("baseline", "no-graph")
    ))  # fmt: skip


def test_names_of_models_and_presets_mean_nothing(traces, found):
    renamed = [
        replace(trace, model={"id": f"m{i}"}, variant={**trace.variant, "id": f"v{i}"})
        for i, trace in enumerate(traces)
    ]
    again = fit(renamed, START, "found").profile
    assert replace(again, source="") == replace(found.profile, source="")


# ---- what a profile says of itself --------------------------------------------------------------


def test_only_what_was_measured_is_calibrated(traces, found):
    assert found.profile.status == "estimated"
    assert "no measurement" in found.profile.source
    measured = [replace(each, simulated=False) for each in traces]
    again = fit(measured, START, "mine").profile
    assert (again.name, again.status) == ("mine", "calibrated")
    assert "shape:1b no-graph" in again.source and "no measurement" not in again.source
    assert "l2_nbytes" in again.source


def test_without_the_probe_the_source_names_what_was_not_measured(truth):
    few = fit(plain_traces(truth, ("tiny",))[1:], START, "few")
    absent = {"inline_ns", "h2d_ns", "sync_return_ns", "memory_load_ns", "record_call_ns"}
    assert absent <= set(few.kept)
    for name in few.kept:
        assert getattr(few.profile, name) == getattr(START, name), name
        assert name in few.profile.source


# ---- refusals -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return plain_traces(START, ("tiny",))


def test_traces_of_two_devices_are_refused(tiny):
    mixed = [*tiny, replace(tiny[0], device={"name": "other"})]
    with pytest.raises(UsageError, match=r"several devices .*: NVIDIA H200 simulated, other sim"):
        fit(mixed, START, "x")
    with pytest.raises(UsageError, match="several devices"):
        fit([*tiny, replace(tiny[0], simulated=False)], START, "x")


@pytest.mark.parametrize("which", [[], [0], [2], [0, 2]])
def test_without_a_baseline_there_is_no_fit(tiny, which):
    with pytest.raises(UsageError, match="no trace of the plan baseline"):
        fit([tiny[i] for i in which], START, "x")


def without_device_times(trace):
    return replace(trace, spans=trace.spans[trace.spans["role"] == 0])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: replace(t, plans=()), "has 0 plans"),
        (lambda t: replace(t, plans=t.plans * 2), "has 2 plans"),
        (lambda t: replace(t, dropped=7), "lost 7 spans"),
        (without_device_times, "too few decode steps with device times"),
        (lambda t: replace(t, phases=("prompt_last", "x" * 99)), "which its plan lacks"),
        (lambda t: replace(t, sites=(replace(t.sites[0], name="?"), *t.sites[1:])), "a site '\\?'"),
        (
            lambda t: replace(t, plans=(make_plan("s k5 w d"),)),
            "cannot be used: 'k5' is no kernel instance",
        ),
        (
            lambda t: replace(t, plans=(make_plan("s copy h d", depth={"h": 65}),)),
            "a plan with 65 slots",
        ),
        (
            lambda t: replace(t, plans=(replace(t.plans[0], buffers=()),)),
            "cannot be used: .* unknown buffer",
        ),
    ],
)
def test_a_trace_that_lacks_something_is_one_line_that_names_it(tiny, change, complaint):
    with pytest.raises(FileError, match=f"the trace tiny baseline .*{complaint}") as error:
        fit([change(tiny[1])], START, "x")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("passes", [None, 3, "cuda-graph", [{}], ["cuda-graph", "x"], {"a": 1}])
def test_a_trace_that_does_not_say_that_it_is_the_baseline_is_left_out(tiny, passes):
    odd = replace(tiny[1], variant={"id": "odd", "passes": passes})
    found = fit([*tiny, odd], START, "x")
    assert found.left_out == ("tiny odd",)
    assert found.profile == fit(tiny, START, "x").profile


def test_a_trace_in_which_no_time_passes_gives_no_fit(tiny):
    frozen = []
    for trace in tiny:
        spans = trace.spans.copy()
        spans["begin_ns"] = spans["end_ns"] = spans["step"]
        frozen.append(replace(trace, spans=spans))
    with pytest.raises(UsageError, match="no trace of the plan baseline"):
        fit(frozen, START, "x")


def test_any_times_end_in_a_profile_or_in_one_line(tiny, tmp_path):
    draw = np.random.default_rng(8)
    for _ in range(12):
        wild = []
        for trace in tiny:
            spans = trace.spans.copy()
            spans["begin_ns"] = draw.integers(0, 10 ** int(draw.integers(1, 12)), len(spans))
            spans["end_ns"] = spans["begin_ns"] + draw.integers(0, 1000, len(spans))
            wild.append(replace(trace, spans=spans))
        try:
            calibrate.save(fit(wild, START, "x").profile, tmp_path / "x.json")
        except (UsageError, FileError) as error:
            assert "\n" not in str(error)


# ---- what is observed, by hand ------------------------------------------------------------------


def seen(text, steps=8, **options):
    """Observe steps of a hand-written plan; costs as in test_machine."""
    plan = make_plan(text, **options)
    _, engine = run_by_hand(plan, ["decode"] * steps)
    return observe(
        Trace(
            sites=tuple(engine.sites),
            lanes=engine.lanes,
            phases=tuple(engine.phases),
            spans=engine.take_spans(),
            dropped=0,
            simulated=True,
            plans=(plan,),
        )
    )


def test_a_copy_and_the_sync_behind_it_are_taken_together():
    found = seen("s copy h d; sync s; sync s; s copy d h; sync s")
    assert found.uploads == ((16, 4),)
    assert found.uploads_done == ((16, 2 + 30 + 16 + 6),)
    assert found.downloads_done == ((16, 2 + 30 + 8 + 6),)
    assert found.idle_syncs == ((3,),)


def test_a_sync_of_a_stream_of_which_nothing_is_known_counts_as_nothing():
    assert seen("s copy h d; sync s; t copy hq dq; sync e; s record e").idle_syncs == ()
    assert len(seen("s copy h d; sync s; sync t").idle_syncs) == 1


def test_copies_behind_each_other_are_a_burst_only_if_they_are_equal():
    burst = seen("s copy h d; s copy h d; s copy h d; sync s")
    assert burst.bursts == ((3, 16, 2 + 3 * 46 + 6),)
    assert burst.uploads_done == ()
    mixed = seen("s copy h d; s copy h[0:8] d[0:8]; sync s")
    assert mixed.bursts == mixed.uploads_done == ()
    assert seen("s copy h d; s copy d h; sync s").bursts == ()


def test_what_lies_behind_a_kernel_is_taken_from_its_end():
    kernel = "s argmax(V=256) r d w dt"
    found = seen(f"sync s; {kernel}; sync s; {kernel}; s copy d h; sync s")
    assert found.returns == ((6,),)
    assert found.downloads_after == ((16, 1 + 30 + 8 + 6),)  # 1: the kernel ends before its call
    assert found.launch_starts == ((5,), (5,))
    assert found.launches == ()


def test_events_are_calls_and_host_work_has_its_traffic():
    found = seen("sync s; host argmax(V=256) r h w hq; s record e; t wait e; s copy h d; sync s")
    assert (found.records, found.event_waits) == (((1,),), ((1,),))
    ((work, ns),) = found.host
    assert (work.kernel, work.moved) == ("argmax", 1028.0)
    assert ns == 0


def test_kernels_are_timed_up_to_the_next_one_of_their_stream():
    profile = replace(PROFILE, kernels={"argmax": 1000.0})
    plan = make_plan("s argmax(V=256) r d w dt; s argmax(V=512) r d w dt; sync s", graphs=True)
    table = host_table([parse_instance(f"argmax(V={size})") for size in (256, 512)])
    found = observe(simulate(plan, table, ["decode"] * 8, profile))
    assert [(each.name, each.run_ns, each.next_ns) for each in found.in_graph] == [
        ("argmax(V=256)", 1001, 1001),
        ("argmax(V=512)", 1001, None),
    ]
    assert found.one_by_one == ()
    assert found.graphs == ((2, 22),)


def test_the_probe_leaves_every_stream_alone_between_two_things():
    found = observe(probe_trace(START))
    assert {size for size, _ in found.uploads_done} == set(UPLOADS)
    assert len(found.idle_syncs) >= PAUSE * len(UPLOADS)
    assert len(found.bursts) == len(found.records) == len(found.event_waits) == 1


# ---- kernels ------------------------------------------------------------------------------------


def test_a_kernel_fit_needs_no_more_than_what_the_cases_show():
    cases = [KernelCase("a", Work(kernel="a", l2_loads=n), False, 100.0 + 40 * n) for n in (1, 5)]
    profile, depends = fit_kernels(cases, START)
    assert depends == {"l2_load_ns"}
    assert profile.kernels["a"] == pytest.approx(100)
    assert profile.l2_load_ns == pytest.approx(40)
    assert profile.memory_load_ns == START.memory_load_ns


def test_a_fit_finds_out_what_limits_each_kernel():
    truth = replace(
        START, kernels={"a": 500.0}, l2_load_ns=300.0, memory_load_ns=900.0,
        device_bytes_per_ns=2000.0,
    )  # fmt: skip
    works = [Work(moved, 0.0, "a", 2, loads) for moved in (1e4, 1e6, 1e8) for loads in (1, 4, 40)]
    cases = [
        KernelCase("a", work, far, kernel_time_ns(work, truth, far))
        for work in works
        for far in (False, True)
    ]
    for start in (START, replace(START, memory_load_ns=50.0, device_bytes_per_ns=9000.0)):
        profile, _ = fit_kernels(cases, start)
        for name in ("l2_load_ns", "memory_load_ns", "device_bytes_per_ns"):
            assert getattr(profile, name) == pytest.approx(getattr(truth, name), rel=1e-4), name


def test_times_that_would_need_less_than_nothing_give_no_negative_cost():
    cases = [KernelCase("a", Work(kernel="a", l2_loads=n), False, 900.0 - 40 * n) for n in (1, 5)]
    profile, _ = fit_kernels(cases, START)
    assert profile.l2_load_ns == 0
    assert profile.kernels["a"] > 0


def test_arithmetic_shows_where_nothing_else_explains_the_time():
    work = Work(1e3, 1e9, "qkv", 1, 1)
    profile = replace(START, device_macs_per_ns=5000.0)
    case = KernelCase("q", work, True, kernel_time_ns(work, profile, True))
    assert fit_arithmetic([case], START) == pytest.approx(5000)
    assert fit_arithmetic([replace(case, work=replace(work, macs=0.0))], START) is None
    assert fit_arithmetic([], START) is None


# ---- the whole way ------------------------------------------------------------------------------


def test_a_recording_on_a_device_is_fitted_read_back_and_fitted_again(tmp_path):
    truth = TRUTHS[0]
    device = SimDevice(truth, compute=False)
    steps = []
    recorded = calibrate.record(device, ["tiny"], 12, lambda *step: steps.append(step))
    assert [each.variant["id"] for each in recorded] == ["probe", "baseline", "no-graph"]
    assert steps
    write_traces(recorded, tmp_path / "traces.json")
    first = fit(recorded, START, "x").profile
    assert fit(read_traces(tmp_path / "traces.json"), START, "x").profile == first
    assert first.switch_ns == pytest.approx(truth.switch_ns, rel=1e-3)
    calibrate.save(first, tmp_path / "x.json")
    assert load_profile(str(tmp_path / "x.json")) == parse_profile(render_profile(first).encode())
    for each in calibrate.check_steps(recorded, first):
        assert each.fitted
        assert each.simulated_us == pytest.approx(each.measured_us, rel=2e-3)


def test_a_fit_as_text_has_every_term_kernel_and_step(traces, found):
    text = calibrate.render(found, calibrate.check_steps(traces, found.profile))
    for name in (*FIGURES, *found.profile.kernels, "shape:1b no-graph", "project_f16(T=1,K=8192"):
        assert name in text, name
    assert text.count("kept") == len(NEVER_SEEN)
    assert "+0.0 %" in text or "-0.0 %" in text


def test_a_profile_that_could_not_be_read_back_is_not_written(tmp_path):
    with pytest.raises(FileError, match="no usable profile: host_ns is -1"):
        calibrate.save(replace(START, host_ns=-1.0), tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
