"""The engine of a live run, how far its sequence is, and what is new since the last batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from syncscope.app.devices import CudaDevice, Device, SimDevice, choose_device, describe_recording
from syncscope.app.live_batch import Harm, LiveBatch, LiveRequest, PlanChange
from syncscope.app.output import Output, TextStream, first_difference, read_output
from syncscope.app.workload import Workload
from syncscope.sched_core.engine import Engine
from syncscope.sched_core.errors import UsageError, nearest
from syncscope.sched_core.profile import load_profile
from syncscope.sched_core.records import Plan
from syncscope.sched_core.sim_backend import SimBackend


def find_device(request: LiveRequest) -> tuple[Device, str]:
    """Return the device of a request, and in one line why it is this one.

    Raises
    ------
    UsageError
        For an unknown device, or a GPU asked to do what only the simulator can.
    DeviceError
        If a GPU is asked for and cannot be used.
    """
    for_sim = "late streams" if request.late else "" if request.compute else "running uncomputed"
    if for_sim and request.device.startswith("cuda"):
        raise UsageError(f"{for_sim} needs the simulator: choose the device sim")
    choice = choose_device("sim" if for_sim else request.device)
    if choice.gpu is not None:
        return CudaDevice(choice.gpu, request.rules, request.wait, request.record), choice.line
    line = f"device: sim, for {for_sim}" if for_sim and not request.device else choice.line
    profile = load_profile(request.profile)
    return SimDevice(profile, request.rules, seed=request.seed, compute=request.compute), line


def check_streams(late: frozenset[str], plan: Plan) -> None:
    """Refuse streams that a plan does not have, with a UsageError that names the nearest."""
    known = [stream.name for stream in plan.streams]
    for name in sorted(late - set(known)):
        raise UsageError(f"late stream {name} is not known; {nearest(name, known)}")


@dataclass(slots=True)
class _Sequence:
    """How far a sequence is: the steps that are left of each phase, and what it computed.

    `positions` counts those that are computed, `sampled` the tokens.
    """

    number: int
    segments: tuple[tuple[str, int], ...]
    text: TextStream
    positions: int = 0
    sampled: int = 0
    tokens: list[int] = field(default_factory=list)
    first_difference: int | None = None
    logit_difference: int | None = None
    bit_exact: bool | None = None
    is_over: bool = False


class LiveRun:
    """Runs a workload piece by piece; belongs to the thread that made it.

    Parameters
    ----------
    workload : Workload
    device : Device
    change : PlanChange
        The plan to begin with.
    late : frozenset of str
        Streams of the simulator that are late.
    repeat : bool
        Whether the sequence is begun again; then there is no total of steps.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    """

    def __init__(
        self,
        workload: Workload,
        device: Device,
        change: PlanChange,
        late: frozenset[str],
        repeat: bool,
    ) -> None:
        self.workload = workload
        self.device = device
        self.reference: Output | None = None
        self.now_ns = 0
        self.steps_total = 0 if repeat else sum(steps for _, steps in workload.segments)
        self._backend = device.make_backend(workload, late)
        try:
            self._engine = Engine(self._backend, change.planned.plan)
        except BaseException:
            self._backend.close()
            raise
        self._sequence = _Sequence(0, workload.segments, TextStream(workload.model.tokenizer))
        self._sites = 0
        self._changes: list[PlanChange] = []
        self._began(change, late)

    # ---- running --------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """Phase of the next step; empty when the sequence is over."""
        return self._sequence.segments[0][0] if self._sequence.segments else ""

    def advance(self, steps: int) -> int:
        """Issue up to `steps` steps of the phase that is next; return how many were.

        Raises
        ------
        KernelFault, DeviceError
            What was recorded until then is kept.
        """
        sequence = self._sequence
        phase, left = sequence.segments[0]
        before, failed = self._engine.step, 1
        try:
            self._engine.run(phase, min(steps, left))
            failed = 0
        finally:
            done = max(0, self._engine.step - before - failed)
            rest = ((phase, left - done),) if left > done else ()
            sequence.segments = (*rest, *sequence.segments[1:])
            sequence.positions += done * self.workload.batch_sizes[phase]
            sequence.sampled += done if phase != "prompt" else 0
        return done

    def collect(self) -> None:
        """Note what the device has finished by now."""
        self._engine.collect()

    def change_plan(self, change: PlanChange, late: frozenset[str]) -> None:
        """Run another plan from the next step on, after a drain; the sequence goes on."""
        if isinstance(self._backend, SimBackend):
            self._backend.late = late
        self._engine.set_plan(change.planned.plan)
        self._began(change, late)

    def _began(self, change: PlanChange, late: frozenset[str]) -> None:
        """Note from where a plan runs; its stale reads are counted anew."""
        order = ""
        if self.device.simulated:
            order = self.device.order_name(change.planned.plan, late)
        self._changes.append(replace(change, step=self._engine.step, order=order))
        self._stale = self._wrong = 0
        self._counts = self._backend.counts

    # ---- sequences ------------------------------------------------------------------------------

    def end_sequence(self) -> None:
        """Drain: the sequence ends here, whether or not all its steps were issued."""
        self._engine.drain()
        self._sequence.is_over = True

    def compare(self) -> None:
        """Compare the output of the sequence, which has ended, with the reference's if known."""
        if self.reference is None:
            return
        sequence = self._sequence
        mine = read_output(self._backend, self.workload, sequence.sampled, sequence.positions)
        sequence.first_difference = first_difference(mine.token_ids, self.reference.token_ids)
        sequence.logit_difference = first_difference(mine.logits, self.reference.logits)
        if not sequence.segments:
            sequence.bit_exact = mine == self.reference

    def restart(self) -> None:
        """Begin the sequence again: what was computed is forgotten, steps and time go on."""
        self._engine.restart(self.workload.contents())
        self._sequence = _Sequence(
            self._sequence.number + 1,
            self.workload.segments,
            TextStream(self.workload.model.tokenizer),
        )

    # ---- what is new ----------------------------------------------------------------------------

    def news(self, state: str) -> LiveBatch:
        """Return what is new since the last call; waits for nothing."""
        engine, sequence = self._engine, self._sequence
        spans = engine.take_spans()
        if len(spans):
            self.now_ns = max(self.now_ns, int(spans["end_ns"].max()))
        sites, self._sites = tuple(engine.sites[self._sites :]), len(engine.sites)
        changes, self._changes = tuple(self._changes), []
        token_ids, text = self._new_output()
        stale, wrong = self._new_harm()
        return LiveBatch(
            state=state,
            spans=spans,
            sites=sites,
            phases=tuple(engine.take_phases()),
            changes=changes,
            token_ids=token_ids,
            lanes=engine.lanes,
            dropped=engine.recorder.dropped,
            stale=stale,
            counts=self._counts,
            steps_done=engine.step,
            steps_total=self.steps_total,
            text=text,
            sequence=sequence.number,
            first_difference=sequence.first_difference,
            logit_difference=sequence.logit_difference,
            bit_exact=sequence.bit_exact,
            token_at=self._place(sequence.first_difference),
            logits_at=self._place(self._drawn_from(sequence.logit_difference)),
            wrong=wrong,
        )

    def _new_output(self) -> tuple[tuple[int, ...], str]:
        """Return tokens that were sampled since the last call, and their text."""
        if not self.device.compute:
            return (), ""
        sequence = self._sequence
        known, begin = len(sequence.tokens), len(self.workload.prompt)
        if sequence.sampled > known:
            tokens = self._backend.peek("tokens").view(np.int32)
            sequence.tokens += tokens[begin + known : begin + sequence.sampled].tolist()
        if self.reference is not None and sequence.first_difference is None:
            sequence.first_difference = first_difference(sequence.tokens, self.reference.token_ids)
        return tuple(sequence.tokens[known:]), sequence.text.new(sequence.tokens, sequence.is_over)

    def _drawn_from(self, position: int | None) -> int | None:
        """Return the token that is drawn from the logits of a position; None if none is."""
        token = -1 if position is None else position + 1 - len(self.workload.prompt)
        return token if token >= 0 else None

    def _place(self, token: int | None) -> int | None:
        """Return where in the text of the sequence a token begins."""
        sequence = self._sequence
        return None if token is None else sequence.text.place(sequence.tokens, token)

    def _new_harm(self) -> tuple[tuple[Harm, ...], tuple[Harm, ...]]:
        """Return where stale reads and wrong last writes were seen since the last call."""
        counts = self._backend.counts
        if counts[:2] == self._counts[:2]:
            self._counts = counts
            return (), ()
        self._counts = counts
        stale = tuple(self._backend.stale_reads()[self._stale :])
        wrong = tuple(self._backend.wrong_writes()[self._wrong :])
        self._stale += len(stale)
        self._wrong += len(wrong)
        return stale, wrong

    def recording(self) -> dict[str, Any]:
        """Return how the run is recorded, as the `recording` object of a trace."""
        return describe_recording(self._backend, self._engine.recorder.dropped)

    @property
    def base_ns(self) -> int:
        """Wall-clock time of the run's start since the epoch; 0 on the simulator."""
        return 0 if isinstance(self._backend, SimBackend) else self._backend.base_ns

    def close(self) -> None:
        """Give back the device."""
        self._engine.close()
