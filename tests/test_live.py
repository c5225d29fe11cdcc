"""A live run: pieces from a worker thread, commands, changes of plan, ends of every kind."""

import gc
import threading
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from helpers.live import EXEC, watched
from syncscope.app import live_run, live_worker
from syncscope.app.changes import plan_change
from syncscope.app.data_order import worst_order
from syncscope.app.devices import SimDevice
from syncscope.app.interrupts import Interrupts
from syncscope.app.live import OVER, STATES, LiveBatch, LiveRequest, LiveSession
from syncscope.app.live_batch import standing
from syncscope.app.output import reference_output
from syncscope.app.session import run_plan
from syncscope.app.spool import Spool
from syncscope.app.variants import REFERENCE, plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import DeviceError, FileError, KernelFault, UsageError
from syncscope.sched_core.passes.registry import PASSES
from syncscope.sched_core.pattern import plan_pattern
from syncscope.sched_core.planner import compute_stream, copy_stream
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.records import diff
from syncscope.sched_core.sim_backend import SimBackend
from syncscope.sched_core.verdict import analyse

TINY = load_model("tiny")
SIM = SimDevice(load_profile("h200"))
COMPUTE, COPIES = compute_stream(0), copy_stream(0)

SHORT = LiveRequest(device="sim", n_tokens=24, ubatch=16)
"""A prompt of three micro-batches, then 23 decode steps."""

STEPS = 26
RACY = ("saaasg", (), ("inputs.sync_after",), True)
"""What `set_variant` takes to drop a sync that several micro-batches need."""


def workload_of(request):
    prompt = tuple(TINY.tokenizer.encode(request.prompt))
    return Workload(TINY, prompt, request.n_tokens, request.ubatch)


def reference_run(request, preset="baseline"):
    """The same run, at once."""
    workload = workload_of(request)
    planned = plan_variant(workload.plan(), preset_variant(preset))
    return run_plan(workload, SIM, planned, frozenset(), lambda *_: None, Interrupts())


def names():
    return [thread.name for thread in threading.enumerate()]


# ---- what comes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["baseline", "all"])
def test_batches_together_are_the_run(preset):
    with watched(replace(SHORT, preset=preset)) as seen:
        seen.session.start()
        seen.finish()
        header = seen.session.header
    run = reference_run(SHORT, preset)
    spans = run.engine.take_spans()
    assert np.array_equal(seen.spans, spans)
    assert seen.sites == tuple(run.engine.sites)
    assert seen.phases == tuple(run.engine.phases)
    assert seen.last.lanes == run.engine.lanes
    assert seen.tokens() == run.token_ids
    assert seen.text() == TINY.tokenizer.decode(run.token_ids)
    assert (seen.last.steps_done, seen.last.steps_total) == (STEPS, STEPS)
    assert seen.last.bit_exact is True
    assert (seen.last.first_difference, seen.last.logit_difference) == (None, None)
    assert header["device"] == SIM.describe()
    assert header["variant"]["id"] == preset
    assert (header["simulated"], header["base_ns"]) == (True, 0)
    assert header["why_device"] == "device: sim, as asked"
    assert header["recording"]["dropped"] == 0


def test_a_run_goes_through_its_states_and_leaves_no_thread():
    before = names()
    with watched(SHORT) as seen:
        seen.session.start()
        seen.finish()
    assert seen.states == ["starting", "running", "draining", "finished"]
    assert set(seen.states) <= set(STATES)
    assert names() == before
    assert seen.session.take() is None


def test_the_first_change_is_the_plan_that_the_run_begins_with():
    with watched(replace(SHORT, preset="saaasg")) as seen:
        seen.session.start()
        seen.finish()
    (change,) = seen.changes
    plan = change.planned.plan
    analysis = analyse(plan)
    assert change.step == 0
    assert change.findings == analysis.findings
    assert change.patterns == {phase: plan_pattern(ops) for phase, ops in plan.phases.items()}
    assert set(change.reasons) == {(each.phase, each.site) for each in analysis.findings}
    before = plan_variant(workload_of(SHORT).plan(), REFERENCE).plan
    assert change.ghosts == {
        phase: diff(before.phases[phase], ops) for phase, ops in plan.phases.items()
    }
    assert "input.pos.sync_after" in change.ghosts["decode"].removed
    assert (change.hazards, change.order) == ((), f"{COMPUTE} early, {COPIES} early")
    assert {seen.pattern(step) for step in range(3, STEPS)} == {change.patterns["decode"]}


def test_without_computing_the_times_are_the_same_and_there_is_no_output():
    with watched(replace(SHORT, compute=False)) as seen:
        seen.session.start()
        seen.finish()
    assert np.array_equal(seen.spans, reference_run(SHORT).engine.take_spans())
    assert (seen.tokens(), seen.text(), seen.last.bit_exact) == ((), "", None)


# ---- commands -----------------------------------------------------------------------------------


def test_commands_given_before_the_start_are_obeyed_before_the_first_step():
    with watched(SHORT) as seen:
        seen.session.pause()
        seen.session.step()
        seen.session.step()
        seen.session.start()
        seen.until(lambda seen: seen.steps == 2 and seen.last.state == "paused")
        assert len(seen.phases) == 2
        assert set(seen.spans["step"]) == {0, 1}


def test_each_step_is_one_token_and_resume_runs_the_rest():
    with watched(SHORT) as seen:
        seen.session.pause()
        seen.session.start()
        for step in range(1, 8):
            seen.session.step()
            seen.until(lambda seen, step=step: seen.steps == step)
            seen.until(lambda seen: seen.last.state == "paused")
            assert len(seen.tokens()) == max(0, step - 2)
        seen.session.resume()
        seen.finish()
    assert np.array_equal(seen.spans, reference_run(SHORT).engine.take_spans())
    assert seen.last.bit_exact is True


def test_pause_issues_nothing_until_resume():
    with watched(replace(SHORT, repeat=True)) as seen:
        seen.session.start()
        seen.until_step(5)
        seen.session.pause()
        seen.until(lambda seen: seen.last.state == "paused")
        step = seen.steps
        seen.session.set_variant("no such preset")  # an answer shows that the worker is awake
        seen.until_told("no such preset")
        assert seen.steps == step == len(seen.phases)
        seen.session.resume()
        seen.until_step(step + 5)


def test_a_pause_at_the_end_of_a_sequence_is_told_too():
    with watched(replace(SHORT, repeat=True)) as seen:
        seen.session.pause()
        for _ in range(STEPS):
            seen.session.step()
        seen.session.start()
        seen.until(lambda seen: seen.last.sequence == 1 and seen.last.state == "paused")
        assert seen.steps == STEPS
        seen.session.step()
        seen.until_step(STEPS + 1)


@pytest.mark.parametrize("paused", [False, True])
def test_stop_ends_the_run_after_a_drain(paused):
    with watched(replace(SHORT, repeat=True)) as seen:
        if paused:
            seen.session.pause()
            seen.session.step()
        seen.session.start()
        seen.until_step(1)
        seen.session.stop()
        seen.finish()
    assert seen.last.state == "stopped"
    assert (seen.last.fault, seen.last.failure) == ("", "")
    assert seen.drains("run.end.sync")[-1] == seen.steps == len(seen.phases)


def test_a_run_that_is_stopped_before_it_starts_issues_nothing():
    with watched(SHORT) as seen:
        seen.session.stop()
        seen.session.start()
        seen.finish()
    assert (seen.last.state, seen.steps) == ("stopped", 0)


def test_a_slow_clock_lets_steps_through_one_by_one():
    with watched(replace(SHORT, speed=1e-9)) as seen:  # 50 us of a step take half a day
        seen.session.start()
        seen.until_step(1)
        seen.session.set_variant("no such preset")
        seen.until_told("no such preset")
        assert seen.steps == 1
        seen.session.step()
        seen.until_step(2)
        seen.session.resume()
        seen.session.set_speed(0)
        seen.finish()
    assert np.array_equal(seen.spans, reference_run(SHORT).engine.take_spans())


@pytest.mark.parametrize("speed", [-1.0, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_refused_at_once(speed):
    with pytest.raises(UsageError, match="speed"):
        LiveSession(replace(SHORT, speed=speed))
    session = LiveSession(SHORT)
    with pytest.raises(UsageError, match="speed"):
        session.set_speed(speed)


# ---- changes of plan ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_that_is_toggled_shows_one_drain_another_plan_and_the_same_output(name):
    before = "no-graph" if name == "cuda-graph" else "baseline"
    with watched(replace(SHORT, preset=before)) as seen:
        seen.session.pause()
        for _ in range(8):
            seen.session.step()
        seen.session.start()
        seen.until_step(8)
        seen.session.set_variant(before, (name,))
        seen.until(lambda seen: len(seen.changes) == 2)
        seen.session.resume()
        seen.finish()
    first, second = seen.changes
    assert second.step == 8
    assert name in [each.partition("=")[0] for each in second.planned.plan.passes]
    assert seen.drains("plan.switch.sync") == [8]
    assert {seen.pattern(step) for step in range(3, 8)} == {first.patterns["decode"]}
    assert {seen.pattern(step) for step in range(8, STEPS)} == {second.patterns["decode"]}
    shown = second.ghosts["decode"]
    assert shown.removed or shown.added or shown.changed or name == "cuda-graph"
    assert seen.messages == ()
    assert seen.last.counts == (0, 0, 0)
    assert seen.tokens() == reference_run(SHORT).token_ids
    assert seen.last.bit_exact is True


def test_a_plan_is_toggled_back_and_forth_with_one_drain_each():
    with watched(replace(SHORT, repeat=True)) as seen:
        seen.session.start()
        for number, preset in enumerate(("all", "baseline", "aaag", "all", "baseline"), 2):
            seen.session.set_variant(preset)
            seen.until(lambda seen, number=number: len(seen.changes) == number)
            seen.until_step(seen.changes[-1].step + 3)
        seen.session.stop()
        seen.finish()
    assert seen.drains("plan.switch.sync") == [each.step for each in seen.changes[1:]]
    assert seen.changes[1].planned is seen.changes[4].planned  # planned once
    assert len(set(seen.sites)) == len(seen.sites)
    over = [number for number in range(seen.last.sequence) if seen.outcome(number).bit_exact]
    assert over == list(range(seen.last.sequence))


def test_of_several_variants_asked_for_the_last_one_is_run():
    with watched(SHORT) as seen:
        seen.session.pause()
        for preset in ("saaasg", "no-graph", "aaag"):
            seen.session.set_variant(preset)
        seen.session.start()
        seen.until(lambda seen: len(seen.changes) == 2)
        seen.session.resume()
        seen.finish()
    assert [each.planned.variant.id for each in seen.changes] == ["baseline", "aaag"]
    assert len(seen.drains("plan.switch.sync")) == 1


def test_the_run_goes_on_while_a_plan_is_made_and_only_the_last_wish_counts(monkeypatch):
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(baseline, variant, rules):
        if variant.id != "baseline":
            begun.release()
            assert go_on.wait(60)
        return plan_change(baseline, variant, rules)

    monkeypatch.setattr(live_worker, "plan_change", slow)
    with watched(replace(SHORT, repeat=True)) as seen:
        try:
            seen.session.start()
            seen.session.set_variant("all")
            assert begun.acquire(timeout=60)
            seen.until_step(seen.steps + 200)
            seen.session.set_variant("saaasg")
            assert begun.acquire(timeout=60)
            seen.session.set_variant("no-graph")
            seen.session.set_variant("aaag")
            seen.until_step(seen.steps + 200)
            assert len(seen.changes) == 1
        finally:
            go_on.set()
        seen.until(lambda seen: len(seen.changes) == 2)
        seen.until_step(seen.steps + 50)
    assert [each.planned.variant.id for each in seen.changes] == ["baseline", "aaag"]


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        (("nothing",), "unknown preset nothing"),
        (("fork-pr",), "not built yet"),
        (("baseline", ("cuda-grph",)), "unknown pass cuda-grph; did you mean cuda-graph"),
        (("baseline", ("run-ahead=2",)), "not built yet"),
        (("baseline", ("input-slot-ring=9",)), "outside 2..4"),
        (("baseline", (), ("input.pos.sync_aftr",)), "no such sync site"),
        (("baseline", (), ("logits.get*.sync",)), "--allow-hazards runs it all the same"),
        (("baseline", ("cuda-graph",)), "this is the plan that runs already"),
    ],
    ids=str,
)
def test_a_refused_variant_leaves_the_run_as_it_is_and_says_why(variant, words):
    with watched(SHORT) as seen:
        seen.session.pause()
        seen.session.step()
        seen.session.set_variant(*variant)
        seen.session.start()
        seen.until_told(words)
        seen.session.resume()
        seen.finish()
    assert len(seen.messages) == 1
    assert "\n" not in seen.messages[0]
    assert len(seen.changes) == 1
    assert seen.drains("plan.switch.sync") == []
    assert np.array_equal(seen.spans, reference_run(SHORT).engine.take_spans())


def test_a_pass_that_changes_nothing_causes_no_drain():
    with watched(replace(SHORT, preset="all")) as seen:
        seen.session.pause()
        seen.session.step()
        seen.session.set_variant("all", ("keep-set",))
        seen.session.start()
        seen.until_told("this is the plan that runs already")
        seen.session.resume()
        seen.finish()
    assert len(seen.changes) == 1
    assert seen.drains("plan.switch.sync") == []


def test_a_pass_that_was_asked_for_and_not_applied_is_named(monkeypatch):
    refused = {"pack-inputs": "no site here"}

    def lacking(baseline, variant, rules):
        change = plan_change(baseline, variant, rules)
        applied = replace(change.planned.applied, refused=refused)
        return replace(change, planned=replace(change.planned, applied=applied))

    monkeypatch.setattr(live_worker, "plan_change", lacking)
    with watched(replace(SHORT, passes=("pack-inputs",))) as seen:
        seen.session.pause()
        seen.session.set_variant("aaag")  # the same is refused, but nobody asks for it now
        seen.session.start()
        seen.until(lambda seen: len(seen.changes) == 2)
        seen.session.set_variant("saaasg", ("pack-inputs",))
        seen.until(lambda seen: len(seen.messages) == 2)
    assert set(seen.messages) == {"pass pack-inputs is not applied: no site here"}
    assert len(seen.changes) == 2


# ---- hazards ------------------------------------------------------------------------------------


def test_a_hazard_run_shows_its_stale_reads_and_a_proved_plan_mends_the_next_sequence():
    with watched(replace(SHORT, ubatch=8, repeat=True)) as seen:
        seen.session.start()
        seen.until(lambda seen: seen.last.sequence >= 1)
        seen.session.set_variant(*RACY)
        seen.until(lambda seen: len(seen.changes) == 2)
        racy = seen.changes[1].step
        seen.until(lambda seen: seen.last.sequence >= seen.batches[-1].sequence)
        begun = seen.last.sequence + 1
        seen.until(lambda seen: seen.last.sequence > begun)
        seen.session.set_variant("baseline")
        seen.until(lambda seen: len(seen.changes) == 3)
        mended = seen.last.sequence + 1
        seen.until(lambda seen: seen.last.sequence > mended)
        seen.session.stop()
        seen.finish()
    safe, unsafe, again = seen.changes
    assert unsafe.order == f"{COMPUTE} late, {COPIES} early"
    assert unsafe.hazards and not safe.hazards and not again.hazards
    assert safe.order == again.order == f"{COMPUTE} early, {COPIES} early"
    assert seen.stale and all(racy <= step for step, *_ in seen.stale)
    assert all(step < again.step for step, *_ in (*seen.stale, *seen.wrong))
    assert len(set(seen.stale)) == len(seen.stale)
    assert seen.last.counts[0] >= len(seen.stale)
    bad, good = seen.outcome(begun), seen.outcome(mended)
    assert bad.bit_exact is False and bad.logit_difference is not None
    assert good.bit_exact is True
    assert (good.first_difference, good.logit_difference) == (None, None)


def test_the_first_token_and_position_that_differ_are_those_of_the_outputs():
    request = replace(SHORT, ubatch=8, preset="saaasg", drop=("inputs.sync_after",))
    with watched(replace(request, allow_hazards=True)) as seen:
        seen.session.start()
        seen.finish()
    workload = workload_of(request)
    wanted = reference_output(workload, SIM, lambda: False)
    tokens = seen.tokens()
    differ = [i for i, pair in enumerate(zip(tokens, wanted.token_ids, strict=True)) if
              pair[0] != pair[1]]  # fmt: skip
    assert seen.last.bit_exact is False
    assert seen.last.first_difference == min(differ, default=None)
    assert 0 <= seen.last.logit_difference < workload.n_positions
    text = workload.model.tokenizer.decode
    for place, token in (
        (seen.last.token_at, seen.last.first_difference),
        (seen.last.logits_at, seen.last.logit_difference + 1 - len(workload.prompt)),
    ):
        is_there = token is not None and token >= 0
        assert place == (len(text(tokens[:token]).rstrip("\ufffd")) if is_there else None)


def test_streams_that_are_asked_to_be_late_are():
    request = replace(SHORT, ubatch=8, late=frozenset([COMPUTE, COPIES]))
    with watched(request) as seen:
        seen.session.start()
        seen.finish()
    assert seen.changes[0].order == f"{COMPUTE} late, {COPIES} late"
    assert seen.last.bit_exact is True and seen.stale == ()


def test_the_worst_order_is_found_and_none_is_late_where_nothing_does_harm():
    workload = workload_of(replace(SHORT, ubatch=8))
    racy = plan_variant(
        workload.plan(), preset_variant("saaasg", (), ("inputs.sync_after",), True)
    ).plan
    assert worst_order(workload, SIM, racy) == {COMPUTE}
    assert worst_order(workload, SIM, plan_variant(workload.plan(), REFERENCE).plan) == frozenset()


# ---- repetition ---------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [(), (COMPUTE, COPIES)], ids=["early", "late"])
def test_a_repeated_sequence_has_the_same_output_while_steps_and_time_go_on(late):
    request = replace(SHORT, repeat=True, preset="all", late=frozenset(late))
    with watched(request) as seen:
        seen.session.start()
        seen.until(lambda seen: seen.last.sequence >= 4)
        seen.session.stop()
        seen.finish()
    wanted = reference_run(SHORT)
    for number in range(4):
        assert seen.tokens(number) == wanted.token_ids
        assert seen.text(number) == TINY.tokenizer.decode(wanted.token_ids)
    assert [seen.outcome(number).bit_exact for number in range(4)] == [True] * 4
    assert seen.last.steps_total == 0
    assert seen.phases[:STEPS] * 4 == seen.phases[: 4 * STEPS]
    spans = seen.spans
    assert np.array_equal(np.unique(spans["step"]), np.arange(len(seen.phases) + 1))
    kernels = spans[spans["role"] == EXEC]
    assert (np.diff(kernels["begin_ns"][kernels["lane"] == 1]) >= 0).all()
    assert seen.last.counts[:2] == (0, 0)


def test_memory_is_flat_however_long_a_run_is():
    steps, sizes = [4_000, 12_000, 20_000, 28_000], []
    request = replace(SHORT, compute=False, repeat=True, preset="all")
    with watched(request) as seen:
        tracemalloc.start()
        try:
            seen.session.start()
            for step in steps:
                seen.until_step(step)
                seen.session.pause()
                seen.until(lambda seen: seen.last.state == "paused")
                # what a window would have drawn, and the spans of the last batch
                seen.batches[:] = [standing(seen.last, "paused")]
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
                seen.session.resume()
        finally:
            tracemalloc.stop()
    # a byte per step, or a pointer per piece, would show
    assert max(sizes[1:]) - min(sizes[1:]) < 64_000, sizes


def test_a_run_that_nobody_looks_at_waits_in_bounded_memory():
    request = replace(SHORT, compute=False, repeat=True)
    with watched(request) as seen:
        outbox = seen.session._outbox
        outbox.capacity = 5_000
        seen.session.start()
        while not outbox.is_full:
            time.sleep(0.001)
        seen.session.set_variant("no such preset")  # it still answers
        seen.until_told("no such preset")
        seen.session.stop()
        seen.finish()
    spans = seen.spans
    assert seen.last.dropped == 0
    steps = np.unique(spans["step"])
    assert np.array_equal(steps, np.arange(len(seen.phases) + 1))


# ---- ends ---------------------------------------------------------------------------------------


class Noted(SimBackend):
    """A backend that notes by whom it is made and that it is closed."""

    log: list = []  # noqa: RUF012

    def __init__(self, *arguments):
        super().__init__(*arguments)
        Noted.log.append(("made", threading.current_thread().name))

    def close(self):
        if self.rows is not None:
            Noted.log.append(("closed", threading.current_thread().name))
        super().close()


@pytest.fixture
def noted(monkeypatch):
    """Let the simulated device make backends that are noted; return the notes."""
    monkeypatch.setattr(Noted, "log", [])

    def make_backend(self, workload, late):
        backend = Noted(self.profile, workload.kernels(), late, self.compute, self.rules)
        backend.load(workload.contents())
        return backend

    monkeypatch.setattr(SimDevice, "make_backend", make_backend)
    return Noted.log


def failing_at(monkeypatch, step, error):
    """Let engines of live runs fail once they have issued some steps."""
    run = Engine.run

    def fail(self, phase, steps):
        if threading.current_thread().name == "live run" and self.step >= step:
            raise error
        return run(self, phase, min(steps, 1))

    monkeypatch.setattr(Engine, "run", fail)


@pytest.mark.parametrize(
    ("error", "fault", "failure"),
    [
        (DeviceError("step 7, graph: cuGraphLaunch: ERROR"), "", "step 7, graph: cuGraphLaunch: "
         "ERROR"),
        (KernelFault(7, "sample", "token id", 9, 0, 4), "step 7, sample: token id 9 outside 0..4",
         ""),
        (MemoryError(), "", "memory is short; use a smaller model or fewer tokens"),
    ],
    ids=["device", "fault", "memory"],
)  # fmt: skip
def test_a_failure_in_the_run_is_told_and_keeps_what_was_recorded(
    monkeypatch, noted, error, fault, failure
):
    failing_at(monkeypatch, 7, error)
    with watched(SHORT) as seen:
        seen.session.start()
        seen.finish()
    assert seen.last.state == "failed"
    assert (seen.last.fault, seen.last.failure) == (fault, failure)
    assert len(seen.phases) == 7
    assert set(seen.spans["step"]) == set(range(7))
    assert len(seen.tokens()) == 5
    mine = [what for what, thread in noted if thread == "live run"]
    assert mine.count("made") == mine.count("closed") == 1
    assert len(noted) == 2 * len([what for what, _ in noted if what == "made"])


def test_a_device_that_fails_in_the_drain_of_a_change_is_told(monkeypatch, noted):
    def lost(self, plan):
        raise DeviceError("cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED")

    monkeypatch.setattr(Engine, "set_plan", lost)
    with watched(SHORT) as seen:
        seen.session.pause()
        seen.session.step()
        seen.session.start()
        seen.until_step(1)
        seen.session.set_variant("all")
        seen.finish()
    assert seen.last.state == "failed"
    assert seen.last.failure == "cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED"
    assert len(seen.phases) == 1
    assert ("closed", "live run") in noted


def test_a_device_that_cannot_be_closed_either_hides_nothing(monkeypatch, noted):
    def broken(self):
        close(self)
        raise RuntimeError("context::detach failed")

    close = live_run.LiveRun.close
    monkeypatch.setattr(live_run.LiveRun, "close", broken)
    failing_at(monkeypatch, 3, DeviceError("cuStreamSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE"))
    with watched(SHORT) as seen:
        seen.session.start()
        seen.finish()
    assert seen.last.state == "failed"
    assert seen.last.failure == "cuStreamSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE"
    assert ("closed", "live run") in noted


def test_an_error_of_our_own_ends_the_run_and_not_the_application(monkeypatch, noted):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    failing_at(monkeypatch, 3, ZeroDivisionError("oops"))
    with watched(SHORT) as seen:
        seen.session.start()
        seen.finish()
    assert seen.last.state == "failed"
    assert seen.last.failure == "an error in Syncscope itself: ZeroDivisionError: oops"
    assert ("closed", "live run") in noted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "tniy"}, "model 'tniy' is not known"),
        ({"prompt": "x" * 5000}, "do not fit the context"),
        ({"n_tokens": 0}, "must be at least 1"),
        ({"profile": "h300"}, "h300"),
        ({"preset": "fork-pr"}, "not built yet"),
        ({"device": "cuda:0", "compute": False}, "needs the simulator"),
        ({"device": "cuda:0", "late": frozenset(["dev0.compute"])}, "needs the simulator"),
        ({"device": "tpu"}, "unknown device"),
        ({"late": frozenset(["dev0.copmute"])}, "did you mean dev0.compute"),
        ({"drop": ("input.*.sync_after",)}, "--allow-hazards"),
    ],
    ids=str,
)
def test_what_cannot_begin_says_why_in_one_line(changes, words):
    with watched(replace(SHORT, **changes)) as seen:
        seen.session.start()
        seen.finish()
    assert seen.last.state == "failed"
    assert words in seen.last.failure
    assert "\n" not in seen.last.failure
    assert len(seen.spans) == 0


def test_a_reference_that_cannot_be_computed_is_told_and_the_run_finishes(monkeypatch):
    def fail(*arguments):
        raise MemoryError("no room")

    monkeypatch.setattr(live_worker, "reference_output", fail)
    with watched(SHORT) as seen:
        seen.session.start()
        seen.finish()
    assert seen.last.state == "finished" and seen.last.bit_exact is None
    assert seen.messages == ("the output cannot be compared with the baseline's: no room",)


# ---- a GPU, as far as it can be had without one -------------------------------------------------


class StandIn(SimDevice):
    """The simulated device in the place of a GPU."""

    simulated = False


@pytest.fixture
def gpu(monkeypatch, noted):
    device = StandIn(load_profile("h200"))
    monkeypatch.setattr(live_worker, "find_device", lambda request: (device, "device: cuda:0"))
    monkeypatch.setattr(live_run.LiveRun, "base_ns", 5)
    return noted


def test_a_gpu_is_used_by_one_thread_which_computes_the_reference_first(gpu):
    with watched(replace(SHORT, speed=1e-9)) as seen:  # its clock cannot be held back
        seen.session.start()
        seen.finish()
    assert gpu == [("made", "live run"), ("closed", "live run")] * 2
    assert seen.last.bit_exact is True
    assert seen.changes[0].order == ""
    assert seen.session.header["base_ns"] == 5


def test_a_gpu_does_not_wait_for_who_looks_and_what_is_dropped_is_counted(gpu, tmp_path):
    spool = Spool(tmp_path / "run.spool")
    with watched(SHORT, spool) as seen:
        seen.session._outbox.capacity = 300
        seen.session.start()
        assert seen.session.join(60)
        seen.finish()
    spool.discard()
    run = reference_run(SHORT)
    assert len(seen.spans) + seen.last.dropped == len(run.engine.take_spans())
    assert seen.last.dropped > 0
    assert seen.phases == tuple(run.engine.phases)
    assert seen.tokens() == run.token_ids


def test_a_paused_gpu_is_looked_at_until_it_has_finished(gpu, monkeypatch):
    looks = threading.Semaphore(0)
    collect = Engine.collect

    def counted(self):
        looks.release()
        collect(self)

    with watched(SHORT) as seen:
        seen.session.pause()
        seen.session.step()
        seen.session.start()
        seen.until_step(1)
        seen.until(lambda seen: seen.last.state == "paused")
        monkeypatch.setattr(Engine, "collect", counted)
        for _ in range(3):
            assert looks.acquire(timeout=60)


# ---- recording ----------------------------------------------------------------------------------


def test_a_full_disk_ends_the_recording_and_not_the_run(monkeypatch, tmp_path):
    def full(self, batch):
        if batch.steps_done >= 5:
            raise FileError(f"cannot write {self.path}: No space left on device")

    monkeypatch.setattr(Spool, "append", full)
    spool = Spool(tmp_path / "run.spool")
    with watched(SHORT, spool) as seen:
        seen.session.pause()
        for _ in range(5):
            seen.session.step()
        seen.session.start()
        seen.until_step(5)
        seen.session.resume()
        seen.finish()
    spool.discard()
    (message,) = seen.messages
    assert message.startswith("the recording on disk is incomplete since step ")
    assert message.endswith("No space left on device")
    assert seen.last.state == "finished" and seen.last.bit_exact is True


def test_states_that_end_a_run_are_the_last_ones():
    assert OVER == ("finished", "stopped", "failed")
    assert LiveBatch("starting", np.zeros(0)).lanes == ()
