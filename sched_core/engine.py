"""An engine runs a plan on a backend, step by step, and collects the spans."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.backend import Backend
from syncscope.sched_core.executor import Executor
from syncscope.sched_core.program import Block, Site, Table, tabulate
from syncscope.sched_core.recorder import SPAN, SpanRing
from syncscope.sched_core.records import Kind, Op, Plan
from syncscope.sched_core.trace import Lane

SWITCH = "switch"
"""Phase of the drains that belong to no step."""

CHUNK_SECONDS = 0.02
"""Wall time between two returns from the executor: how soon Ctrl-C and a stop are seen."""


def _drain_ops(plan: Plan, site: str) -> tuple[Op, ...]:
    """One device-wide sync per device."""
    first = {stream.device: stream.name for stream in reversed(plan.streams)}
    return tuple(
        Op(
            site if device == min(first) else f"{site}.dev{device}",
            Kind.SYNC,
            stream,
            scope="device",
            origin="engine",
        )
        for device, stream in sorted(first.items())
    )


class Engine:
    """Runs the steps of a plan.

    A change of plan drains the devices once, visibly (`plan.switch.sync`).  Spans name their site
    by position in `sites`, which grows when a plan has sites that none before it had.  Spans and
    phases are kept until they are taken; nothing else grows with the steps.

    Parameters
    ----------
    backend : Backend
        Must not be bound yet; the engine binds each plan to it.
    plan : Plan
    recorder : SpanRing or None
        A ring of the default size when None.
    """

    def __init__(self, backend: Backend, plan: Plan, recorder: SpanRing | None = None) -> None:
        self.backend = backend
        self.recorder = SpanRing() if recorder is None else recorder
        self.executor = Executor(backend, self.recorder)
        self.sites: list[Site] = []
        self.phases: list[str] = []
        self.plans: list[Plan] = []
        self.step = 0
        self._phase = ""
        self._site_index: dict[Site, int] = {}
        self._batches: list[npt.NDArray[Any]] = []
        self._site_of_row = np.zeros(0, np.int32)
        self._bind(plan)

    @property
    def plan(self) -> Plan:
        """The plan that runs now."""
        return self.plans[-1]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What the lanes of spans are: host threads, then streams."""
        program = self._table.program
        hosts = [Lane(f"host thread {i}", "host") for i in range(program.n_threads)]
        return (*hosts, *(Lane(s.name, "stream", s.device) for s in program.streams))

    def _bind(self, plan: Plan) -> None:
        drains = {
            SWITCH: _drain_ops(plan, "plan.switch.sync"),
            f"{SWITCH}.end": _drain_ops(plan, "run.end.sync"),
        }
        self._table: Table = tabulate(replace(plan, phases={**plan.phases, **drains}))
        program = self._table.program
        self.backend.bind(program, self.recorder)
        rows = np.concatenate([program.ops["site"], program.members["site"]])
        self._site_of_row = np.array([self._number(each) for each in program.sites], np.int32)[rows]
        self.plans.append(plan)
        self._phase = ""

    def _number(self, site: Site) -> int:
        """Return the position of a site in `sites`, where it is put if no plan before had it."""
        if site.phase.startswith(SWITCH):
            site = replace(site, phase=SWITCH)
        number = self._site_index.setdefault(site, len(self.sites))
        if number == len(self.sites):
            self.sites.append(site)
        return number

    def run(self, phase: str, steps: int) -> int:
        """Issue steps of one phase; return how many completed, fewer after `stop`.

        Raises
        ------
        KernelFault
            A kernel refused a value; spans so far are kept.
        DeviceError
            The device refused an op.
        """
        if phase != self._phase:
            self._phase, self._in_a_row = phase, 0
        warm_up = self._table.replay_begins[phase]
        left, chunk = steps, 1
        while left:
            replay = self._in_a_row >= warm_up
            block = self._table.blocks[phase, replay]
            fits = self._room() // self._spans_per_step(phase)
            n = min(
                left,
                chunk,
                max(1, fits),
                self.backend.max_steps,
                left if replay else warm_up - self._in_a_row,
            )
            started = time.perf_counter()
            status, done = self._issue(block, n)
            issued = done if status in (0, self.executor.STOPPED) else done + 1
            self.phases += [phase] * issued
            self.step += issued
            self._in_a_row += done
            left -= done
            self.collect()
            if status == self.executor.STOPPED:
                break
            if status:
                self.backend.raise_fault(self._table.program, status)
            if time.perf_counter() - started < CHUNK_SECONDS / 2:
                chunk *= 2
        return steps - left

    def _issue(self, block: Block, steps: int) -> tuple[int, int]:
        with self.backend.active():
            return self.executor.run(block.row0, block.n_ops, self._table.period, self.step, steps)

    def stop(self) -> None:
        """Make a running `run` return before its next step; may be called from any thread."""
        self.executor.stop()

    def drain(self) -> None:
        """Wait for every device; shows as `run.end.sync`."""
        self._issue_drain(f"{SWITCH}.end")

    def set_plan(self, plan: Plan) -> None:
        """Run `plan` from the next step on, after one visible drain."""
        self._issue_drain(SWITCH)
        self._bind(plan)

    def restart(self, contents: Mapping[str, npt.NDArray[Any]]) -> None:
        """Let the next step find every buffer as the first one did; steps and time go on.

        Parameters
        ----------
        contents : mapping of str to ndarray
            What buffers hold then; the others hold zeros.
        """
        self.drain()
        self.backend.reset(contents)
        self._phase = ""

    def _issue_drain(self, phase: str) -> None:
        status = self.executor.STOPPED
        while status == self.executor.STOPPED:  # a stop ends steps, not the drain after them
            status, _ = self._issue(self._table.blocks[phase, False], 1)
        self.collect()
        if status:
            self.backend.raise_fault(self._table.program, status)

    def _spans_per_step(self, phase: str) -> int:
        """Upper bound of the spans of a step: a call and an execution per op."""
        return 2 * max(1, self._table.blocks[phase, False].n_ops + 1)

    def _room(self) -> int:
        return self.recorder.capacity - 16

    def collect(self) -> None:
        """Note what is known of the device by now; `run` does so too."""
        calls = self.recorder.take()
        for spans in (*self.backend.collect(calls), calls):
            if len(spans):
                spans["op"] = self._site_of_row[spans["op"]]
                self._batches.append(spans)

    def take_spans(self) -> npt.NDArray[Any]:
        """Return the spans recorded since the last call, as one array of SPAN."""
        batches, self._batches = self._batches, []
        return np.concatenate([np.zeros(0, SPAN), *batches])

    def take_phases(self) -> list[str]:
        """Return the phases of the steps issued since the last call; `phases` is empty then."""
        phases, self.phases = self.phases, []
        return phases

    def close(self) -> None:
        """Give back what the backend holds."""
        self.backend.close()
