"""Spans as the columns that a row takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.gui.catalog import Catalog
from syncscope.app.gui.row import Row

Columns = tuple[npt.NDArray[Any], ...]


def columns_of(catalog: Catalog, spans: npt.NDArray[Any], refs: npt.NDArray[np.int64]) -> Columns:
    """Return begin, end, category, name, flags and ref of spans; none ends before it begins."""
    begin = np.ascontiguousarray(spans["begin_ns"])
    return (
        begin,
        np.maximum(spans["end_ns"], begin),
        catalog.categories(spans),
        spans["op"].astype(np.uint32),
        np.ascontiguousarray(spans["flags"]),
        refs,
    )


def append_some(row: Row, columns: Columns, mine: npt.NDArray[np.bool_]) -> None:
    """Add those spans to a row that are its own."""
    begin, end, category, name, flags, ref = (each[mine] for each in columns)
    row.append(begin, end, category, name, flags, ref)
