"""What the timeline asks of the rows that it draws; `rows.Rows` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.lane_store import LaneStore

ARROW = np.dtype([("from_ns", "<i8"), ("to_ns", "<i8"), ("from_row", "<i4"), ("to_row", "<i4")])
"""From a moment on a row, counted as in `RowSource.rows`, to a moment on another."""


class Row(Protocol):
    """One row; spans that overlap lie in lanes below each other."""

    @property
    def key(self) -> str:
        """Name that stays the same from run to run."""

    @property
    def title(self) -> str:
        """What people call it."""

    @property
    def kind(self) -> str:
        """A key of `row_layout.LANE_PX`."""

    @property
    def lanes(self) -> Sequence[LaneStore]:
        """Its spans, at least one lane of them."""


class Step(Protocol):
    """A step of the run and what it does, in llama.cpp's shorthand."""

    @property
    def number(self) -> int:
        """Counts from 0."""

    @property
    def begin_ns(self) -> int:
        """When it begins."""

    @property
    def pattern(self) -> str:
        """Such as ``saaasg``."""


class Ghost(Protocol):
    """What a pass removed, where it was."""

    @property
    def row(self) -> int:
        """Index of its row."""

    @property
    def begin_ns(self) -> int:
        """Where it would begin."""

    @property
    def end_ns(self) -> int:
        """Where it would end; the same if that is not known."""

    @property
    def site(self) -> str:
        """What is gone."""


class RowSource(Protocol):
    """All rows of a recording, and what joins their spans."""

    @property
    def rows(self) -> Sequence[Row]:
        """In their natural order."""

    @property
    def names(self) -> Sequence[str]:
        """What the name of a span indexes."""

    def extent(self) -> tuple[int, int]:
        """Return begin and end of all that is in memory."""

    def links(self, ref: int) -> Sequence[int]:
        """Return the refs of one correlation: call and execution, record and wait."""

    def arrows(self, t0: int, t1: int, limit: int) -> npt.NDArray[Any]:
        """Return what joins spans in a window, of dtype `ARROW`; none if more than `limit`."""

    def steps(self, t0: int, t1: int) -> Sequence[Step]:
        """Return the steps that touch a window."""

    def ghosts(self, t0: int, t1: int) -> Sequence[Ghost]:
        """Return what was removed in a window."""

    def buffer_rows(self, name: str) -> Sequence[Row]:
        """Return the rows of who writes and who reads a buffer; from now on they are there."""


class NoRows:
    """The rows of no recording."""

    rows: tuple[Row, ...] = ()
    names: tuple[str, ...] = ()

    def extent(self) -> tuple[int, int]:
        """Return no time."""
        return 0, 0

    def links(self, ref: int) -> tuple[int, ...]:
        """Return nothing."""
        return ()

    def arrows(self, t0: int, t1: int, limit: int) -> npt.NDArray[Any]:
        """Return nothing."""
        return np.zeros(0, ARROW)

    def steps(self, t0: int, t1: int) -> tuple[Step, ...]:
        """Return nothing."""
        return ()

    def ghosts(self, t0: int, t1: int) -> tuple[Ghost, ...]:
        """Return nothing."""
        return ()

    def buffer_rows(self, name: str) -> tuple[Row, ...]:
        """Return nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a span is, and what it is; row and lane count from 0."""

    row: int
    lane: int
    index: int
    begin_ns: int
    end_ns: int
    category: int
    name: int
    flags: int
    ref: int


def find_span(rows: Sequence[Row], ref: int) -> Spot | None:
    """Find a span by its number; None if no row has it, or has it no longer."""
    if ref < 0:
        return None
    for k, row in enumerate(rows):
        for j, lane in enumerate(row.lanes):
            index = lane.find(ref)
            if index >= 0:
                return Spot(k, j, index, *lane.get(index))
    return None
