"""Rows of the timeline, filled as spans arrive.

Of a host thread there is a row of calls, one of the calls at which the host waits, and one of its
own work; of a stream a row of what it executes, but for copies between host and device: these are
on the rows of their device's copy engines alone, one per direction, so that every span is on one
row.  A row comes into being with its first span.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.buffer_rows import BufferRows
from syncscope.app.gui.catalog import KINDS, Catalog
from syncscope.app.gui.columns import append_some, columns_of
from syncscope.app.gui.ghosts import GhostSpan, find_ghosts
from syncscope.app.gui.joins import find_joins
from syncscope.app.gui.links import Links
from syncscope.app.gui.nearest import nearest
from syncscope.app.gui.paths import find_path
from syncscope.app.gui.row import LEAST_LOG2, Row
from syncscope.app.gui.span_log import CALL, SpanLog
from syncscope.app.gui.step_borders import StepBorder, StepBorders, step_border
from syncscope.sched_core.records import Finding
from syncscope.sched_core.trace import Lane

ARROW = np.dtype([("from_ns", "<i8"), ("to_ns", "<i8"), ("from_row", "<i8"), ("to_row", "<i8")])

SPANS_PER_ARROW = 64
"""So many spans in a window for each arrow that may be drawn, and no arrow is looked for."""

TITLES = {
    "host": "{}",
    "sync": "{}: syncs",
    "cpu_split": "{}: work",
    "stream": "{}",
    "h2d": "dev{} copies H2D",
    "d2h": "dev{} copies D2H",
}

STEPS_KEY = "steps"
ENGINES = ("h2d", "d2h")
SECTIONS = ("steps", "host", "device", "buffer")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ghost:
    """As `row_source.Ghost`."""

    row: int
    begin_ns: int
    end_ns: int
    site: str


class Rows:
    """All rows of a recording; answers what `row_source.RowSource` asks.

    Parameters
    ----------
    log : SpanLog
        Has the spans that are drawn, before they are.
    catalog : Catalog
    capacity_log2 : int
        Of the first lane of a row.
    later_log2 : int or None
        Of its other lanes, if not the same.
    """

    def __init__(
        self, log: SpanLog, catalog: Catalog, capacity_log2: int, later_log2: int | None = None
    ) -> None:
        self.log = log
        self.catalog = catalog
        self.link_finder = Links(log, catalog)
        self.lanes: tuple[Lane, ...] = ()
        self.rows: list[Row] = [Row(STEPS_KEY, "steps", "steps", (0,), LEAST_LOG2)]
        self._capacities_log2 = (capacity_log2, later_log2)
        self._by_key: dict[str, Row] = {}
        self._row_of: dict[int, Row] = {}
        self._buffers = BufferRows(log, catalog, SECTIONS.index("buffer"))

    @property
    def names(self) -> Sequence[str]:
        """Names of sites, by what the name of a span indexes."""
        return self.catalog.names

    @property
    def nbytes(self) -> int:
        """Memory reserved."""
        return sum(each.nbytes for each in self.rows)

    @property
    def most_nbytes(self) -> int:
        """What the rows that there are can come to."""
        return sum(each.most_nbytes for each in self.rows)

    @property
    def unplaced(self) -> int:
        """Spans that overlapped too many others to be drawn."""
        return sum(row.unplaced for row in self.rows if row.kind != "buffer")

    # ---- filling --------------------------------------------------------------------------------

    def ingest(self, spans: npt.NDArray[Any], first_ref: int) -> None:
        """Draw spans that the log has.

        Parameters
        ----------
        spans : ndarray of SPAN
            In the order of arrival.
        first_ref : int
            Ref of the first of them.
        """
        if not len(spans):
            return
        refs = np.arange(first_ref, first_ref + len(spans), dtype=np.int64)
        columns = columns_of(self.catalog, spans, refs)
        place = self._places(spans)
        codes: dict[str, list[int]] = {}
        for code in np.flatnonzero(np.bincount(place)).tolist():
            codes.setdefault(self._row(code).key, []).append(code)
        for key, mine in codes.items():
            append_some(self._by_key[key], columns, np.isin(place, mine))
        self._buffers.ingest(spans, first_ref)

    def _places(self, spans: npt.NDArray[Any]) -> Ints:
        """Return lane and kind of row of each span in one number."""
        return spans["lane"].astype(np.int64) * len(KINDS) + self.catalog.kinds(spans)

    def _row(self, place: int) -> Row:
        """Return the row of what a lane does; it is made if this is the first of it."""
        if place not in self._row_of:
            lane, kind = divmod(place, len(KINDS))
            self._row_of[place] = self._make(self.lanes[lane], lane, KINDS[kind])
        return self._row_of[place]

    def _make(self, lane: Lane, number: int, kind: str) -> Row:
        if kind in ENGINES:
            key, title = f"{kind} {lane.device}", TITLES[kind].format(lane.device)
            order = (SECTIONS.index("device"), max(0, lane.device), 1, ENGINES.index(kind), 0)
        else:
            key, title = f"{kind} {lane.name}", TITLES[kind].format(lane.name)
            section = SECTIONS.index("host" if lane.kind == "host" else "device")
            order = (section, max(0, lane.device), 0, number, KINDS.index(kind))
        if key not in self._by_key:
            shown = "copy_engine" if kind in ENGINES else kind
            self._by_key[key] = Row(key, title, shown, order, *self._capacities_log2)
            self._add(self._by_key[key])
        return self._by_key[key]

    def _add(self, row: Row) -> None:
        self.rows = sorted([*self.rows, row], key=lambda each: each.order)

    # ---- asked by the view ----------------------------------------------------------------------

    def extent(self) -> tuple[int, int]:
        """Return begin and end of all that is in memory; (0, 0) if nothing is."""
        found = [lane.extent() for row in self.rows for lane in row.lanes if len(lane)]
        if not found:
            return 0, 0
        return min(begin for begin, _ in found), max(end for _, end in found)

    def steps(self, t0: int, t1: int) -> StepBorders:
        """Return the steps that touch a window, each up to the begin of the next."""
        return StepBorders(self.log, self.catalog, self.log.begun(t0, t1))

    def step(self, number: int) -> StepBorder:
        """Return a step that is kept."""
        return step_border(self.log, self.catalog, number)

    def ghosts(self, t0: int, t1: int) -> tuple[Ghost, ...]:
        """Return what was removed in a window; nothing if it has too many steps."""
        index = {row.key: i for i, row in enumerate(self.rows)}
        return tuple(
            Ghost(index[key], each.at_ns, each.at_ns, each.site)
            for each in find_ghosts(self.log, self.catalog, t0, t1)
            if (key := self._ghost_row(each)) in index
        )

    def _ghost_row(self, ghost: GhostSpan) -> str:
        hosts = [lane.name for lane in self.lanes if lane.kind == "host"]
        name = hosts[ghost.thread] if ghost.thread < len(hosts) else ""
        return f"{ghost.kind} {name}"

    def links(self, ref: int) -> tuple[int, ...]:
        """Return the refs of what belongs to a span: see `links.Links.of`."""
        return self.link_finder.of(ref)

    def arrows(self, t0: int, t1: int, limit: int) -> npt.NDArray[Any]:
        """Return what joins spans in a window.

        An arrow to an execution goes from its call to its begin; one to a call that waits goes
        from the end of what is waited for to the same time, or to the call's begin if that is
        later.

        Returns
        -------
        ndarray of ARROW
            None if there were more than `limit`.
        """
        none = np.zeros(0, ARROW)
        begin, end = self.log.touching(t0, t1)
        if self.log.count(begin, end) > limit * SPANS_PER_ARROW:
            return none
        reach = self.link_finder.reach
        one, other = find_joins(self.link_finder, begin - reach, end + reach)
        source, target = self._spans(one), self._spans(other)
        begins = np.clip(target["begin_ns"], source["begin_ns"], source["end_ns"])
        waited = np.clip(source["end_ns"], target["begin_ns"], target["end_ns"])
        waits = target["role"] == CALL
        arrows = np.zeros(len(one), ARROW)
        arrows["from_ns"] = np.where(waits, source["end_ns"], begins)
        arrows["to_ns"] = np.where(waits, waited, target["begin_ns"])
        seen = (arrows["from_ns"] < t1) & (arrows["to_ns"] >= t0)
        if np.count_nonzero(seen) > limit:
            return none
        index = {id(row): i for i, row in enumerate(self.rows)}
        arrows["from_row"] = self._row_index(source, index)
        arrows["to_row"] = self._row_index(target, index)
        return arrows[seen]

    def _spans(self, refs: Ints) -> npt.NDArray[Any]:
        log = self.log.spans
        return log.view(log.head, log.tail)[refs - log.head]

    def _row_index(self, spans: npt.NDArray[Any], index: dict[int, int]) -> Ints:
        place = self._places(spans)
        out = np.zeros(len(spans), np.int64)
        for code in np.unique(place).tolist():
            out[place == code] = index[id(self._row(code))]
        return out

    # ---- asked by panels ------------------------------------------------------------------------

    def hit(self, row: int, t_ns: int, tolerance_ns: int) -> int:
        """Return the ref of the span of a row nearest to a time, -1 if none is near."""
        for lane in self.rows[row].lanes:
            index = lane.hit(t_ns, tolerance_ns)
            if index >= 0:
                return int(lane.get(index)[5])
        return -1

    def search(self, text: str) -> Ints:
        """Return the refs of all spans in memory that have all words of a text.

        Words are looked for in phase, site, kind, direction and verdict, capitals or not.
        """
        return self.searcher(text)()

    def searcher(self, text: str) -> Callable[[], Ints]:
        """Return a search, as `search`, that another thread may carry out while spans come in.

        It looks at what is in memory now; of spans that are overwritten meanwhile it may be wrong.
        """
        words = text.lower().split()
        log = self.log.spans
        head = log.head
        matches = self.catalog.matches(words)
        spans = log.view(head, log.tail if words else head)
        return lambda: head + np.flatnonzero(self.catalog.look_up(matches, spans))

    def same_site(self, ref: int, direction: int) -> int:
        """Return the next (1) or previous (-1) span of a span's site and role, -1 if none is."""
        log = self.log.spans
        if ref not in log:
            return -1
        span = log[ref]
        key = self.catalog.key_of_site[span["op"]]
        begin, end = (ref + 1, log.tail) if direction > 0 else (log.head, ref)
        spans = log.view(begin, end)
        same = (self.catalog.key_of_site[spans["op"]] == key) & (spans["role"] == span["role"])
        at = np.flatnonzero(same)
        if not len(at):
            return -1
        return begin + int(at[0 if direction > 0 else -1])

    def nearest(self, ops: Sequence[int], t0: int, t1: int) -> int:
        """Return the ref of a span of some sites in or near a window: see `nearest.nearest`."""
        return nearest(self.log, ops, len(self.catalog.sites), t0, t1)

    def buffer_rows(self, name: str) -> tuple[Row, ...]:
        """Return the rows of who writes a buffer and who reads it; from now on they are there.

        Raises
        ------
        KeyError
            If no plan that ran has such a buffer.
        """
        if name not in self._buffers:
            for row in self._buffers.add(name):
                self._add(row)
        return self._buffers[name]

    def path_refs(self, finding: Finding, step: int) -> tuple[int, ...]:
        """Return the refs that a finding's path leads through, nearest to a step."""
        return find_path(self.link_finder, finding, step)

    def call_of(self, step: int, site: str) -> int:
        """Return the ref of a site's call in a step, of its execution if it has none, or -1."""
        return self.link_finder.either(step, site, CALL)
