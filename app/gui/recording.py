"""A recording: what the window shows, from a live run as it goes or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.catalog import Catalog
from syncscope.app.gui.categories import CATEGORIES
from syncscope.app.gui.latency_model import CAPACITY as LATENCY_STEPS
from syncscope.app.gui.latency_model import LatencyModel
from syncscope.app.gui.row import LEAST_LOG2
from syncscope.app.gui.rows import Rows
from syncscope.app.gui.sites_model import SitesModel
from syncscope.app.gui.span_log import CALL, EXEC, STEPS, SpanLog
from syncscope.app.gui.span_row import SpanRow
from syncscope.app.live_batch import Harm, LiveBatch, PlanChange
from syncscope.app.report.site_table import site_kind
from syncscope.app.report.trace_object import MAPPINGS
from syncscope.app.trace_changes import trace_changes
from syncscope.sched_core.backend import BOUNDED, LOWER_BOUND
from syncscope.sched_core.program import Site
from syncscope.sched_core.recorder import ROLES
from syncscope.sched_core.records import Kind, Plan
from syncscope.sched_core.trace import Lane, Trace

CAPACITY_LOG2 = 20
MAX_CAPACITY_LOG2 = 24
"""Of a recording from a file, which is kept whole if it fits."""

MAX_TOKENS = 1 << 16
MAX_TEXT = 1 << 18
MAX_MESSAGES = 256
"""Of output, messages and places of harm the newest are kept."""


class Recording:
    """All that is known of one run; it grows while the run is live, and never without bound.

    Parameters
    ----------
    header : mapping
        As `LiveSession.header`.
    capacity_log2 : int
        ``2 ** capacity_log2`` spans are kept, each lane of a row a quarter of that.
    n_steps : int
        So many steps are kept.

    Attributes
    ----------
    header : mapping
    state : str
        As `LiveBatch.state`.
    lanes : tuple of Lane
        All lanes of all plans; what `lane` of a span indexes.
    rows : Rows
    latency : LatencyModel
    table : SitesModel
    token_ids : tuple of int
    text : str
        Output of the sequence that runs, of which `sequence` is the number.
    token_at, logits_at : int or None
        As in `LiveBatch`, but in `text`; None also where that place is no longer kept.
    dropped : int
        Spans that the recorder lost.
    stale, wrong : tuple of Harm
    counts, fault, failure, steps_done, steps_total, first_difference, logit_difference, bit_exact
        As in `LiveBatch`.
    messages : tuple of str
    """

    def __init__(
        self, header: Mapping[str, Any], capacity_log2: int = CAPACITY_LOG2, n_steps: int = STEPS
    ) -> None:
        lanes_log2 = (max(LEAST_LOG2, capacity_log2 - 2), max(LEAST_LOG2, capacity_log2 - 6))
        self._start(header, 1 << capacity_log2, lanes_log2, n_steps)

    def _start(
        self, header: Mapping[str, Any], capacity: int, lanes_log2: tuple[int, int], n_steps: int
    ) -> None:
        self.header = header
        self.state = "starting"
        self.lanes: tuple[Lane, ...] = ()
        self.token_ids: tuple[int, ...] = ()
        self.text = ""
        self.sequence = 0
        self._text_begin = 0
        self.dropped = 0
        self.stale: tuple[Harm, ...] = ()
        self.wrong: tuple[Harm, ...] = ()
        self.counts = (0, 0, 0)
        self.fault = ""
        self.failure = ""
        self.messages: tuple[str, ...] = ()
        self.token_at: int | None = None
        self.logits_at: int | None = None
        self.first_difference: int | None = None
        self.logit_difference: int | None = None
        self.bit_exact: bool | None = None
        self.steps_done = 0
        self.steps_total = 0
        self._catalog = Catalog()
        self._log = SpanLog(capacity, n_steps)
        self.rows = Rows(self._log, self._catalog, *lanes_log2)
        self.latency = LatencyModel(min(n_steps, LATENCY_STEPS))
        self.table = SitesModel()

    @classmethod
    def from_trace(cls, trace: Trace, baseline: Plan | None = None) -> Recording:
        """Make a recording of a stored run; takes as long as the analysis of its plans.

        Parameters
        ----------
        trace : Trace
        baseline : Plan or None
            What ghosts are shown against, where the trace has no plan of a baseline.
        """
        size = min(max(LEAST_LOG2, len(trace.spans).bit_length()), MAX_CAPACITY_LOG2)
        header = {name: getattr(trace, name) for name in ("simulated", "base_ns", *MAPPINGS)}
        recording = cls.__new__(cls)
        n_steps = max(1, len(trace.phases))
        recording._start(header, 1 << size, (size, size), n_steps)
        recording.latency = LatencyModel(n_steps, len(trace.spans) // 2 + 1)
        recording.extend(
            LiveBatch(
                state="finished",
                spans=trace.spans,
                sites=trace.sites,
                phases=trace.phases,
                changes=trace_changes(trace, baseline),
                lanes=trace.lanes,
                dropped=trace.dropped,
                steps_done=len(trace.phases),
                steps_total=len(trace.phases),
            )
        )
        return recording

    # ---- growing --------------------------------------------------------------------------------

    def extend(self, batch: LiveBatch) -> None:
        """Take in a batch; batches come in the order in which they were taken."""
        self._catalog.add(batch.sites, batch.changes)
        self._log.add_steps(batch.phases)
        self._take_output(batch)
        self.state = batch.state
        self.dropped = batch.dropped
        self.counts = batch.counts
        self.fault, self.failure = batch.fault, batch.failure
        self.steps_done, self.steps_total = batch.steps_done, batch.steps_total
        self.stale = (*self.stale, *batch.stale)[-MAX_MESSAGES:]
        self.wrong = (*self.wrong, *batch.wrong)[-MAX_MESSAGES:]
        self.messages = (*self.messages, *batch.messages)[-MAX_MESSAGES:]
        spans = self._renumber(batch)
        changes = [each.step for each in batch.changes]
        self.latency.extend(spans, batch.sites, batch.phases, changes)
        for change in batch.changes:
            self.table.change(change)
        self.table.extend(spans, batch.sites, batch.phases)
        if len(spans):
            first_ref = self.n_spans
            self._log.append(spans, self._catalog.in_step[spans["op"]])
            self.rows.ingest(spans, first_ref)

    def _take_output(self, batch: LiveBatch) -> None:
        if batch.sequence != self.sequence:
            self.token_ids, self.text, self.sequence = (), "", batch.sequence
            self._text_begin = 0
        self.token_ids = (*self.token_ids, *batch.token_ids)[-MAX_TOKENS:]
        text = self.text + batch.text
        self.text = text[-MAX_TEXT:]
        self._text_begin += len(text) - len(self.text)
        self.token_at, self.logits_at = map(self._in_text, (batch.token_at, batch.logits_at))
        self.first_difference = batch.first_difference
        self.logit_difference = batch.logit_difference
        self.bit_exact = batch.bit_exact

    def _in_text(self, place: int | None) -> int | None:
        """Return where in the text that is kept a place in the text of the sequence is."""
        at = -1 if place is None else place - self._text_begin
        return at if at >= 0 else None

    def _renumber(self, batch: LiveBatch) -> npt.NDArray[Any]:
        """Return spans whose lanes are ours: another plan may have other streams."""
        self.lanes = tuple(dict.fromkeys((*self.lanes, *batch.lanes)))
        self.rows.lanes = self.lanes
        number = [self.lanes.index(each) for each in batch.lanes]
        if number == list(range(len(number))):
            return batch.spans
        spans = batch.spans.copy()
        spans["lane"] = np.array(number, np.uint16)[spans["lane"]]
        return spans

    # ---- what there is --------------------------------------------------------------------------

    @property
    def sites(self) -> tuple[Site, ...]:
        """What `op` of a span indexes."""
        return tuple(self._catalog.sites)

    @property
    def changes(self) -> tuple[PlanChange, ...]:
        """Changes of plan, the newest of them, in order."""
        return self._catalog.changes

    @property
    def forgotten_changes(self) -> int:
        """How many changes of plan came before `changes`."""
        return self._catalog.forgotten

    @property
    def base_step(self) -> int:
        """Number of the first step that is kept."""
        return self._log.steps.head

    @property
    def phases(self) -> tuple[str, ...]:
        """Phase of each step from `base_step` on."""
        return self._log.phases

    @property
    def n_spans(self) -> int:
        """How many spans came so far."""
        return self._log.spans.tail

    @property
    def spans(self) -> npt.NDArray[Any]:
        """The spans in memory, the newest, in the order of their refs; not to be written to."""
        return self._log.spans.view(self._log.spans.head, self._log.spans.tail)

    @property
    def evicted(self) -> int:
        """Spans that are no longer drawn, or no longer in memory, whichever are more."""
        drawn = (row.evicted for row in self.rows.rows if row.kind != "buffer")
        return max(self._log.spans.head, sum(drawn))

    @property
    def unplaced(self) -> int:
        """Spans that overlapped too many others to be drawn."""
        return self.rows.unplaced

    @property
    def nbytes(self) -> int:
        """Memory reserved for spans, rows and times of steps."""
        return self._log.nbytes + self.rows.nbytes + self.latency.nbytes

    @property
    def most_nbytes(self) -> int:
        """What `nbytes` can come to with the rows that there are, however long the run goes on."""
        return self._log.nbytes + self.rows.most_nbytes + self.latency.nbytes

    @property
    def n_steps(self) -> int:
        """How many steps came so far."""
        return self._log.steps.tail

    @property
    def is_hazardous(self) -> bool:
        """Whether a plan that ran is not ordered, or a race was seen."""
        return any(self.counts[:2]) or any(each.hazards for each in self.changes)

    def steps_range(self, first: int, end: int) -> tuple[int, int]:
        """Return when the steps ``[first, end)`` begin and end, of those that are kept.

        It is begin of the first call and end of the last span; (0, 0) if there is none.
        """
        rows = self._log.steps.view(first, end)
        rows = rows[(rows["first"] >= 0).any(axis=1)]
        called = rows[rows["first"][:, CALL] >= 0]
        if not len(called):
            return 0, 0
        return int(called["begin_ns"].min()), int(rows["end_ns"].max())

    def has(self, ref: int) -> bool:
        """Whether a span is in memory."""
        return ref in self._log.spans

    def op_of(self, ref: int) -> int:
        """Return the position of a span's site in `sites`; IndexError if it is not in memory."""
        return int(self._log.spans[ref]["op"])

    def refs_between(self, t0_ns: int, t1_ns: int) -> npt.NDArray[np.int64]:
        """Return the refs of the spans in memory that touch a range of time, by their begin."""
        spans = self.spans
        at = np.flatnonzero((spans["begin_ns"] < t1_ns) & (spans["end_ns"] >= t0_ns))
        order = np.argsort(spans["begin_ns"][at], kind="stable")
        refs: npt.NDArray[np.int64] = self._log.spans.head + at[order]
        return refs

    def phase(self, step: int) -> str:
        """Return the phase of a step, empty if it is not kept."""
        return self._log.phase(step)

    def change_at(self, step: int) -> PlanChange | None:
        """Return the change since which the plan of a step runs, None if no plan is known."""
        facts = self._catalog.facts_at(step)
        return None if facts is None else facts.change

    def span(self, ref: int) -> SpanRow:
        """Return all that is known of a span.

        Raises
        ------
        IndexError
            If it is no longer in memory.
        """
        row = self._log.spans[ref]
        site, step, role = self._catalog.sites[row["op"]], int(row["step"]), int(row["role"])
        key = (site.phase, site.name)
        facts = self._catalog.facts_at(step)
        finding = facts.findings.get(key) if facts is not None else None
        begin, end, size = int(row["begin_ns"]), int(row["end_ns"]), int(row["nbytes"])
        is_copy = site.kind == Kind.COPY and role == EXEC
        category = int(self._catalog.categories(self._log.spans.view(ref, ref + 1))[0])
        return SpanRow(
            ref=ref,
            site=site,
            phase=site.phase,
            kind=site_kind(site),
            direction=facts.direction(key) if facts is not None else "",
            role=ROLES[role],
            step=step,
            lane=self.lanes[row["lane"]].name,
            begin_ns=begin,
            end_ns=end,
            nbytes=0 if site.kind == Kind.GRAPH else size,
            n_nodes=size if site.kind == Kind.GRAPH else 0,
            bandwidth=size / (end - begin) * 1e9 if is_copy and end > begin else None,
            is_bounded=bool(row["flags"] & BOUNDED),
            is_lower_bound=bool(row["flags"] & LOWER_BOUND),
            category=CATEGORIES[category],
            verdict="" if finding is None else finding.verdict,
            finding=finding,
            reason=facts.change.reasons.get(key, "") if facts is not None else "",
            variant="" if facts is None else facts.change.planned.variant.id,
        )

    def to_trace(self) -> Trace:
        """Return what is kept as a trace, of whole steps from the first that is.

        Where older ones were evicted, steps are counted from 0 again; `dropped` counts the spans
        that are missing because of that too.
        """
        spans, phases, first = self.spans, self.phases, self.base_step
        if self._log.spans.head and len(spans):
            in_step = spans[self._catalog.in_step[spans["op"]]]
            first = max(first, int(in_step["step"].min()) + 1) if len(in_step) else first
        if first:
            spans = spans[spans["step"] >= first]
            spans["step"] -= first
            phases = phases[first - self.base_step :]
        changes = self.changes
        while len(changes) > 1 and changes[1].step <= first:
            changes = changes[1:]
        last = changes[-1] if changes else None
        described = {name: self.header.get(name, {}) for name in MAPPINGS}
        if last is not None:
            described["variant"] = last.planned.describe()
        return Trace(
            sites=self.sites,
            lanes=self.lanes,
            phases=phases,
            spans=spans,
            dropped=self.dropped + self.n_spans - len(spans),
            simulated=bool(self.header.get("simulated", False)),
            plans=tuple(each.planned.plan for each in changes),
            findings=last.findings if last is not None else (),
            base_ns=int(self.header.get("base_ns", 0)),
            **described,
        )
