"""Whose records CUPTI's are: of which driver call, of which op in which step.

The executor's calls and the driver's have times of one clock, read in one thread, and the one lies
inside the other: so a driver call belongs to the op whose call encloses it, and one that nothing
encloses belongs to no step.  What the device did has the correlation id of the driver call that
asked for it.  A graph's kernels and copies all have that of its launch; it was captured on one
stream, so they ran in the order of its members.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.cupti_records import CALL, WORK
from syncscope.sched_core.program import BLOCKING, SCOPES, Program
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Kind

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

EXEC = 1
"""Role of a span, as in ``recorder.ROLES``."""

MAX_TIMER_STEP_NS = 1024
MIN_DURATIONS = 16
"""Durations from which the timer's step can be told."""

_NEVER = np.iinfo(np.int64).max


class Parts:
    """What one issued row makes the device do: itself, or the members of a graph.

    Parameters
    ----------
    program : Program
    rows : ndarray of OP
        Bound rows, members after ops.
    """

    def __init__(self, program: Program, rows: Array) -> None:
        kind = rows["kind"]
        works = (kind == Kind.LAUNCH) | ((kind == Kind.COPY) & (rows["nbytes"] > 0))
        n_ops = len(program.ops)
        parts: list[list[int]] = []
        for row in range(n_ops):
            if kind[row] == Kind.GRAPH:
                first = n_ops + int(program.ops["dst"][row])
                members = range(first, first + int(program.ops["nbytes"][row]))
                parts.append([member for member in members if works[member]])
            else:
                parts.append([row] if works[row] else [])
        blocking = (kind == Kind.COPY) & (rows["flags"] & BLOCKING != 0)
        self.n = np.array([len(each) for each in parts], np.int64)
        self.first = np.cumsum(self.n) - self.n
        self.rows = np.array([row for each in parts for row in each], np.int64)
        self.n_calls = np.where(kind == Kind.HOST, 0, 1 + blocking)[:n_ops]
        """Driver calls that a row makes."""


class CuptiSpans:
    """Turns records into spans, and counts driver calls; begins with `bind`.

    Parameters
    ----------
    thread : int
        The executor's, as the system numbers threads.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._forget()
        self.lost = 0
        """Calls whose records did not all arrive: each counts once, a graph once per member."""
        self.decode_steps = 0
        self.counts: dict[int, tuple[int, int]] = {}
        """Function of the driver -> its calls in decode steps; of these, before the launch."""
        self.timer_step_ns: int | None = None
        self.slack_ns: tuple[int, int] | None = None
        """How long after its driver call any work began at least, and before its wait it ended."""

    def _forget(self) -> None:
        self._calls = np.zeros(0, SPAN)  # of the executor, not accounted for yet
        self._early = np.zeros(0, bool)  # of each: before its step's first launch
        self._driver_calls = np.zeros(0, CALL)
        self._works = np.zeros(0, WORK)

    def bind(self, program: Program, rows: Array) -> None:
        """Go on with another program; what is pending is forgotten.

        Parameters
        ----------
        program : Program
        rows : ndarray of OP
            Bound rows, members after ops.
        """
        self._forget()
        self._rows, self._n_threads = rows, program.n_threads
        self._parts = Parts(program, rows)
        phases = [program.sites[site].phase for site in rows["site"].tolist()]
        self._in_decode = np.array([phase == "decode" for phase in phases], bool)

    @property
    def pending(self) -> int:
        """Calls whose records have not all arrived."""
        return len(self._calls)

    def note(self, calls: Array) -> None:
        """Take in what the executor called: whole steps, in order."""
        kind = self._rows["kind"][calls["op"]]
        n = len(calls)
        steps, step = np.unique(calls["step"], return_inverse=True)
        launch = np.full(len(steps), n)
        launches = np.flatnonzero((kind == Kind.LAUNCH) | (kind == Kind.GRAPH))
        np.minimum.at(launch, step[launches], launches)
        early = (np.arange(n) < launch[step]) & (launch[step] < n)
        self.decode_steps += len(np.unique(calls["step"][self._in_decode[calls["op"]]]))
        drives = self._parts.n_calls[calls["op"]] > 0
        self._calls = np.concatenate([self._calls, calls[drives]])
        self._early = np.concatenate([self._early, early[drives]])

    def add(self, driver_calls: Array, works: Array, base_ns: int) -> None:
        """Take in records, in any order.

        Parameters
        ----------
        driver_calls : ndarray of CALL
        works : ndarray of WORK
        base_ns : int
            The time of the host's monotonic clock from which the executor counts.
        """
        driver_calls = driver_calls[driver_calls["thread"] == self._thread]
        works = works[works["end_ns"] > 0]
        for each in (driver_calls, works):
            each["begin_ns"] -= base_ns
            each["end_ns"] -= base_ns
        self._driver_calls = np.concatenate([self._driver_calls, driver_calls])
        self._works = np.concatenate([self._works, works])

    def take(self, all_arrived: bool) -> Array:
        """Return spans of the calls whose records have all arrived, and forget those.

        Parameters
        ----------
        all_arrived : bool
            Whether no record will come any more: what is missing is lost.
        """
        driver_calls, caller = self._enclosed()
        works, cause = self._caused(driver_calls, caller)
        n = len(self._calls)
        row = self._calls["op"]
        wanted = self._parts.n[row]
        found = np.bincount(cause[cause >= 0], minlength=n)
        whole = np.where(wanted == 1, found >= 1, found == wanted)
        whole &= np.bincount(caller, minlength=n) >= self._parts.n_calls[row]
        ended = whole | all_arrived
        self._count(driver_calls[ended[caller]], caller[ended[caller]])
        mine = (cause >= 0) & whole[cause] if n else np.zeros(len(works), bool)
        spans, span_cause = self._spans(works[mine], cause[mine])
        self._measure(spans, span_cause, driver_calls, caller)
        self.lost += int(np.maximum(wanted, 1)[ended & ~whole].sum())
        self._driver_calls = driver_calls[~ended[caller]]
        self._works = works[:0] if all_arrived else works[~mine]
        self._calls, self._early = self._calls[~ended], self._early[~ended]
        return spans[np.argsort(spans["begin_ns"], kind="stable")]

    def _enclosed(self) -> tuple[Array, Ints]:
        """Return the driver calls that lie inside a call of the executor, and which one."""
        calls, inner = self._calls, self._driver_calls
        at = np.searchsorted(calls["begin_ns"], inner["begin_ns"], side="right") - 1
        inside = at >= 0
        inside[inside] = inner["end_ns"][inside] <= calls["end_ns"][at[inside]]
        return inner[inside], at[inside]

    def _caused(self, driver_calls: Array, caller: Ints) -> tuple[Array, Ints]:
        """Return what the device did, and the executor's call that asked for it; -1 not known."""
        works = self._works
        cause = np.full(len(works), -1, np.int64)
        if len(driver_calls):
            order = np.argsort(driver_calls["correlation"], kind="stable")
            known = driver_calls["correlation"][order]
            at = np.minimum(np.searchsorted(known, works["correlation"]), len(known) - 1)
            found = known[at] == works["correlation"]
            cause[found] = caller[order[at[found]]]
        return works, cause

    def _count(self, driver_calls: Array, caller: Ints) -> None:
        """Count those of decode steps."""
        decode = self._in_decode[self._calls["op"][caller]]
        functions, early = driver_calls["function"][decode], self._early[caller[decode]]
        for function in np.unique(functions).tolist():
            this = functions == function
            all_of_it, before = self.counts.get(function, (0, 0))
            self.counts[function] = (
                all_of_it + int(this.sum()),
                before + int((this & early).sum()),
            )

    def _spans(self, works: Array, cause: Ints) -> tuple[Array, Ints]:
        """Return what the device did as spans, and the call behind each; mismatches are lost."""
        order = np.lexsort((works["begin_ns"], cause))
        works, cause = works[order], cause[order]
        row = self._calls["op"][cause]
        rank = np.arange(len(cause)) - np.searchsorted(cause, cause)
        # a copy in pieces is one op
        part = self._parts.first[row] + np.minimum(rank, self._parts.n[row] - 1)
        first = np.flatnonzero(np.diff(part, prepend=-1) | np.diff(cause, prepend=-1))
        op = self._parts.rows[part[first]]
        spans = np.zeros(len(first), SPAN)
        if len(first):
            spans["begin_ns"] = works["begin_ns"][first]
            spans["end_ns"] = np.maximum.reduceat(works["end_ns"], first)
        spans["op"], spans["step"] = op, self._calls["step"][cause[first]]
        spans["lane"] = self._n_threads + self._rows["stream"][op]
        spans["role"] = EXEC
        spans["nbytes"] = np.minimum(self._rows["nbytes"][op], 0xFFFFFFFF)
        fits = (self._rows["kind"][op] == Kind.COPY) == works["is_copy"][first].astype(bool)
        self.lost += int((~fits).sum())
        return spans[fits], cause[first][fits]

    # ---- what the records tell of their own clock -------------------------------------------

    def _measure(self, spans: Array, cause: Ints, driver_calls: Array, caller: Ints) -> None:
        """See how far device times can be off, and in which steps they go.

        Work begins after the driver call that asks for it, and has ended when a host wait for it
        returns.  Were all device times off by some amount, it would be no more than what lies
        between, where that is least.
        """
        if not len(spans):
            return
        asked = np.full(len(self._calls), _NEVER)
        np.minimum.at(asked, caller, driver_calls["begin_ns"])
        after = int((spans["begin_ns"] - asked[cause]).min())
        before = _NEVER
        for wait, until, stream in self._waits():
            mine = self._rows["stream"][spans["op"]] == stream
            ends = np.maximum.accumulate(spans["end_ns"][mine])
            last = np.searchsorted(cause[mine], until) - 1
            known = last >= 0
            if known.any():
                left = self._calls["end_ns"][wait[known]] - ends[last[known]]
                before = min(before, int(left.min()))
        known_after, known_before = self.slack_ns or (_NEVER, _NEVER)
        self.slack_ns = min(after, known_after), min(before, known_before)
        durations = (spans["end_ns"] - spans["begin_ns"])[spans["end_ns"] > spans["begin_ns"]]
        if len(durations) >= MIN_DURATIONS:
            step = timer_step_ns(durations)
            self.timer_step_ns = min(step, self.timer_step_ns or step)

    def _waits(self) -> list[tuple[Ints, Ints, int]]:
        """Return host waits: the calls, up to which call each waits, and the one stream of all."""
        rows = self._rows[self._calls["op"]]
        syncs = np.flatnonzero(rows["kind"] == Kind.SYNC)
        scope = rows["scope"][syncs]
        device = scope == SCOPES.index("device")
        found = []
        for stream in range(int(self._rows["stream"].max(initial=-1)) + 1):
            own = (scope == SCOPES.index("stream")) & (rows["stream"][syncs] == stream)
            found.append((syncs[own | device], syncs[own | device], stream))
        for event in np.unique(rows["event"][syncs[scope == SCOPES.index("event")]]).tolist():
            records = np.flatnonzero((rows["kind"] == Kind.RECORD) & (rows["event"] == event))
            waits = syncs[(scope == SCOPES.index("event")) & (rows["event"][syncs] == event)]
            at = np.searchsorted(records, waits) - 1
            for stream in np.unique(rows["stream"][records]).tolist():
                own = (at >= 0) & (rows["stream"][records[at]] == stream)
                found.append((waits[own], records[at[own]], stream))
        return found

    @property
    def uncertainty_ns(self) -> int | None:
        """How far device times may be off on the host's clock; None if no wait has told."""
        if self.slack_ns is None or _NEVER in self.slack_ns:
            return None
        return max(map(abs, self.slack_ns))


def timer_step_ns(durations: Array) -> int:
    """Return the step of the timer that durations were taken with, in ns.

    The largest power of two that (nearly) all are multiples of, rounded to a nanosecond at either
    end; GPUs count time in such steps.
    """
    step = MAX_TIMER_STEP_NS
    while step > 2:
        rest = (durations + step // 2) % step - step // 2
        if np.mean(np.abs(rest) <= 1) > 0.99:
            return step
        step //= 2
    return 1
