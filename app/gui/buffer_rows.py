"""Rows of buffers, made when they are asked for: who writes a buffer when, and who reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.catalog import READS, WRITES, Catalog
from syncscope.app.gui.columns import append_some, columns_of
from syncscope.app.gui.row import Row
from syncscope.app.gui.span_log import SpanLog

CAPACITY_LOG2 = 16
"""Of a lane: there may be many."""

USES = {WRITES: "written", READS: "read"}


class BufferRows:
    """Two rows for each buffer that was asked for.

    Parameters
    ----------
    log : SpanLog
    catalog : Catalog
    section : int
        Where they stand among all rows.
    """

    def __init__(self, log: SpanLog, catalog: Catalog, section: int) -> None:
        self._log = log
        self._catalog = catalog
        self._section = section
        self._rows: dict[str, tuple[Row, ...]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> tuple[Row, ...]:
        return self._rows[name]

    def add(self, name: str) -> tuple[Row, ...]:
        """Make the rows of a buffer and fill them with what is in memory.

        Raises
        ------
        KeyError
            If no plan that ran has such a buffer.
        """
        if name not in self._catalog.buffers():
            raise KeyError(name)
        self._rows[name] = tuple(
            Row(
                f"buffer {name} {use}",
                f"{name}: {use}",
                "buffer",
                (self._section, len(self._rows), i),
                CAPACITY_LOG2,
            )
            for i, use in enumerate(USES.values())
        )
        spans = self._log.spans
        self._fill(name, spans.view(spans.head, spans.tail), spans.head)
        return self._rows[name]

    def ingest(self, spans: npt.NDArray[Any], first_ref: int) -> None:
        """Draw new spans that use a buffer."""
        for name in self._rows:
            self._fill(name, spans, first_ref)

    def _fill(self, name: str, spans: npt.NDArray[Any], first_ref: int) -> None:
        uses = self._catalog.look_up(self._catalog.uses(name), spans)
        at = np.flatnonzero(uses)
        columns = columns_of(self._catalog, spans[at], first_ref + at)
        for row, bit in zip(self._rows[name], USES, strict=True):
            append_some(row, columns, (uses[at] & bit) > 0)
