"""What the worker thread of a live run does: issue pieces, obey commands, change plans."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from typing import Any

from syncscope.app.changes import plan_change
from syncscope.app.data_order import worst_order
from syncscope.app.devices import SimDevice
from syncscope.app.environment import describe_environment
from syncscope.app.live_batch import (
    LiveBatch,
    LiveRequest,
    PlanChange,
    has_news,
    no_spans,
    standing,
)
from syncscope.app.live_run import LiveRun, check_streams, find_device
from syncscope.app.outbox import Outbox
from syncscope.app.output import Output, reference_output
from syncscope.app.pace import Pace
from syncscope.app.session import describe_model
from syncscope.app.spool import Spool
from syncscope.app.variants import Variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model
from syncscope.sched_core.errors import FileError, KernelFault, SyncscopeError, UsageError
from syncscope.sched_core.records import Plan

FULL_SECONDS = 0.005
"""How long a run that may not go on until something is taken sleeps before it looks again."""

PAUSED_SECONDS = 0.05
"""How often a paused run looks whether a GPU has finished something."""

MAX_PLANS = 32
"""Plans that are kept, so that to toggle back costs nothing."""


class LiveWorker:
    """Does all that a live run does; its methods run in the worker thread.

    Plans, and the simulator's reference output, are made by other threads meanwhile, which answer
    through the queue of commands.

    Parameters
    ----------
    request : LiveRequest
    pace : Pace
    outbox : Outbox
        Where batches go.
    commands : SimpleQueue
        What is to be done between two pieces.
    spool : Spool or None
        Where batches are recorded.
    """

    def __init__(
        self,
        request: LiveRequest,
        pace: Pace,
        outbox: Outbox,
        commands: SimpleQueue[Callable[[], None]],
        spool: Spool | None,
    ) -> None:
        self.header: Mapping[str, Any] = {}
        self.baseline: Plan | None = None
        self.stop_asked = threading.Event()
        self._request = request
        self._pace = pace
        self._outbox = outbox
        self._commands = commands
        self._spool = spool
        self._jobs = ThreadPoolExecutor(2, "live job")
        self._paused = False
        self._steps = 0
        self._asked = 0
        self._planning: Future[Any] = Future()
        self._messages: list[str] = []
        self._last = LiveBatch("starting", no_spans())

    def work(self) -> None:
        """Open what was asked for, run it to its end, and close it on every path."""
        state, fault, failure = "failed", "", ""
        try:
            self._outbox.put(self._last)
            self._prepare()
            with _closed_after(self._open()) as self._run:
                state = self._drive()
        except KernelFault as error:
            fault = str(error)
        except SyncscopeError as error:
            failure = str(error)
        except MemoryError:
            failure = "memory is short; use a smaller model or fewer tokens"
        except BaseException as error:
            failure = f"an error in Syncscope itself: {type(error).__name__}: {error}"
            raise
        finally:
            state = "failed" if fault or failure else state
            self._put(replace(standing(self._last, state), fault=fault, failure=failure))
            self.stop_asked.set()
            self._jobs.shutdown(cancel_futures=True)

    # ---- beginning ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Find the device, read the model, make the first plan."""
        request = self._request
        self._device, self._why_device = find_device(request)
        model = load_model(request.model, request.seed)
        prompt = tuple(model.tokenizer.encode(request.prompt))
        self._workload = Workload(model, prompt, request.n_tokens, request.ubatch)
        self._baseline = self.baseline = self._workload.plan()
        check_streams(request.late, self._baseline)
        self._plan = lru_cache(MAX_PLANS)(self._make_plan)
        self._variant = preset_variant(
            request.preset, request.passes, request.drop, request.allow_hazards
        )
        self._change, self._late = self._plan(self._variant)
        self._messages += refusals(self._change, request.passes)
        self._environment = {**describe_environment(), **self._device.environment()}

    def _open(self) -> LiveRun:
        """Open the device.

        The baseline's output is found before that on a GPU, so that nothing else keeps it busy,
        and meanwhile on the simulator.
        """
        reference = None
        if not self._device.simulated:
            self._pace = Pace(0.0)
            self._outbox.drops = True
            reference = self._find_reference()
        run = LiveRun(self._workload, self._device, self._change, self._late, self._request.repeat)
        run.reference = reference
        self._awaited = self._device.simulated and self._device.compute
        if self._awaited:
            self._submit(self._find_reference, self._on_reference)
        return run

    def _describe(self) -> None:
        """Fill in the header."""
        self.header = {
            "device": self._device.describe(),
            "model": describe_model(self._workload.model),
            "variant": self._change.planned.describe(),
            "recording": self._run.recording(),
            "environment": self._environment,
            "simulated": self._device.simulated,
            "why_device": self._why_device,
            "base_ns": self._run.base_ns,
        }

    # ---- running --------------------------------------------------------------------------------

    def _drive(self) -> str:
        """Run until the end or a stop; return the state to end in."""
        run = self._run
        self._describe()
        self._record(lambda spool: spool.begin(self.header))
        try:
            self._put(run.news(self._state))
            self._pace.begin(run.now_ns)
            while True:
                patience = self._patience()
                if patience != 0:
                    self._put(run.news(self._state))
                self._obey(patience)
                if self.stop_asked.is_set():
                    run.end_sequence()
                    run.compare()
                    return "stopped"
                if not run.phase:
                    self._end_sequence()
                    if not self._request.repeat:
                        return "finished"
                    run.restart()
                elif self._patience() == 0:
                    self._advance()
                else:
                    run.collect()
        finally:
            self._put(run.news("draining"))
            self.header = {**self.header, "recording": run.recording()}

    @property
    def _state(self) -> str:
        return "paused" if self._paused and not self._steps else "running"

    def _patience(self) -> float | None:
        """Return how many seconds there are until the next step; None: until something is asked."""
        if not self._run.phase:
            return 0
        if self._outbox.is_full:
            return FULL_SECONDS
        if self._steps:
            return 0
        if self._paused:
            return None if self._device.simulated else PAUSED_SECONDS
        return self._pace.wait_seconds(self._run.now_ns)

    def _obey(self, patience: float | None) -> None:
        """Carry out what is asked for, waiting for it if there is nothing else to do."""
        try:
            self._commands.get(patience != 0, patience)()
            while True:
                self._commands.get_nowait()()
        except Empty:
            pass

    def _advance(self) -> None:
        """Issue a piece."""
        run, phase, began_ns = self._run, self._run.phase, self._run.now_ns
        steps = self._pace.steps(phase, began_ns)
        if self._steps:
            steps = min(steps, self._steps)
        began = time.perf_counter()
        done = run.advance(steps)
        seconds = time.perf_counter() - began
        self._steps = max(0, self._steps - done)
        self._put(run.news(self._state))
        self._pace.note(phase, done, seconds, run.now_ns - began_ns)

    def _end_sequence(self) -> None:
        """Drain and compare, if need be once the reference is known."""
        self._run.end_sequence()
        self._put(self._run.news("draining"))
        while self._awaited and not self.stop_asked.is_set():
            self._obey(None)
        self._run.compare()
        self._put(self._run.news("draining"))

    def _put(self, batch: LiveBatch) -> None:
        """Hand out and record a batch, unless it says nothing new."""
        if not (has_news(batch, self._last) or self._messages):
            return
        self._last = batch
        self._record(lambda spool: spool.append(batch))
        messages, self._messages = tuple(self._messages), []
        self._outbox.put(replace(batch, messages=messages))

    def _record(self, write: Callable[[Spool], None]) -> None:
        """Write to the spool; when that fails the run goes on without it."""
        if self._spool is None:
            return
        try:
            write(self._spool)
        except FileError as error:
            self._spool = None
            step = self._last.steps_done
            self._messages.append(f"the recording on disk is incomplete since step {step}: {error}")

    # ---- commands -------------------------------------------------------------------------------

    def on_pause(self) -> None:
        """Issue no more steps."""
        self._paused, self._steps = True, 0

    def on_resume(self) -> None:
        """Issue steps again."""
        self._paused, self._steps = False, 0
        self._pace.begin(self._run.now_ns)

    def on_step(self) -> None:
        """Issue one step and pause."""
        self._paused = True
        self._steps += 1

    def on_stop(self) -> None:
        """Wake up: `stop_asked` says what to do."""

    def on_speed(self, pace: Pace) -> None:
        """Hold virtual time back to another share of real time."""
        if self._device.simulated:
            self._pace = pace
            pace.begin(self._run.now_ns)

    def on_variant(
        self, preset: str, passes: tuple[str, ...], drop: tuple[str, ...], allow_hazards: bool
    ) -> None:
        """Have another variant planned; of several only the last one asked for is run."""
        self._asked += 1
        try:
            variant = preset_variant(preset, passes, drop, allow_hazards)
        except UsageError as error:
            self._messages.append(str(error))
            return
        new = tuple(each for each in passes if each not in self._variant.passes)
        self._planning.cancel()
        self._planning = self._submit(
            partial(self._plan, variant), partial(self._on_plan, self._asked, variant, new)
        )

    def _on_plan(
        self,
        number: int,
        variant: Variant,
        new: tuple[str, ...],
        planned: Future[tuple[PlanChange, frozenset[str]]],
    ) -> None:
        """Run the plan that was made, if it is still wanted and not refused."""
        if number != self._asked:
            return
        try:
            change, late = planned.result()
        except UsageError as error:
            self._messages.append(str(error))
            return
        refused = refusals(change, new)
        if refused:
            self._messages += refused
            return
        self._variant = variant
        plan, now = change.planned.plan, self._change.planned.plan
        if replace(plan, passes=now.passes) == now and late == self._late:
            self._messages.append(f"{variant.id}: this is the plan that runs already")
            return
        self._put(self._run.news("draining"))
        self._run.change_plan(change, late)
        self._change, self._late = change, late

    # ---- jobs of other threads ------------------------------------------------------------------

    def _submit(self, job: Callable[[], Any], answer: Callable[[Future[Any]], None]) -> Future[Any]:
        """Let another thread do a job; the worker gets the answer as a command."""
        future = self._jobs.submit(job)
        future.add_done_callback(lambda done: self._commands.put(partial(answer, done)))
        return future

    def _make_plan(self, variant: Variant) -> tuple[PlanChange, frozenset[str]]:
        """Plan and analyse a variant, and choose the data order to run it in."""
        change = plan_change(self._baseline, variant, self._request.rules)
        late = self._request.late
        if change.hazards and not late and isinstance(self._device, SimDevice):
            late = worst_order(self._workload, self._device, change.planned.plan)
        return change, late

    def _find_reference(self) -> Output | None:
        return reference_output(self._workload, self._device, self.stop_asked.is_set)

    def _on_reference(self, found: Future[Output | None]) -> None:
        self._awaited = False
        try:
            self._run.reference = found.result()
        except (SyncscopeError, MemoryError) as error:
            self._messages.append(f"the output cannot be compared with the baseline's: {error}")


@contextmanager
def _closed_after(run: LiveRun) -> Iterator[LiveRun]:
    """Close a run on every path; what a broken device says to that hides no earlier error."""
    try:
        yield run
    except BaseException:
        with suppress(Exception):
            run.close()
        raise
    run.close()


def refusals(change: PlanChange, asked: tuple[str, ...]) -> list[str]:
    """Return a line for each pass that was asked for and not applied."""
    refused = change.planned.applied.refused
    ids = [each.partition("=")[0] for each in asked]
    return [f"pass {each} is not applied: {refused[each]}" for each in ids if each in refused]
