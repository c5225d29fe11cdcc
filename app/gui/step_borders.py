"""Borders between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.catalog import Catalog
from syncscope.app.gui.span_log import SpanLog


@dataclass(frozen=True, slots=True)
class StepBorder:
    """As `row_source.Step`; `pattern` is that of the plan that ran."""

    number: int
    begin_ns: int
    phase: str
    pattern: str


def step_border(log: SpanLog, catalog: Catalog, number: int) -> StepBorder:
    """Return a step that the log has."""
    phase, facts = log.phase(number), catalog.facts_at(number)
    pattern = facts.change.patterns.get(phase, "") if facts is not None else ""
    return StepBorder(number, int(log.steps[number]["begin_ns"]), phase, pattern)


class StepBorders(Sequence[StepBorder]):
    """Steps, each made when it is asked for: a window may have more than anyone looks at."""

    def __init__(self, log: SpanLog, catalog: Catalog, numbers: npt.NDArray[np.int64]) -> None:
        self._log = log
        self._catalog = catalog
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> StepBorder: ...
    @overload
    def __getitem__(self, index: slice) -> StepBorders: ...
    def __getitem__(self, index: int | slice) -> StepBorder | StepBorders:
        if isinstance(index, slice):
            return StepBorders(self._log, self._catalog, self._numbers[index])
        return step_border(self._log, self._catalog, int(self._numbers[index]))
