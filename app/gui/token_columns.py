"""Times per token brought to so few columns that drawing many costs no more than drawing few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Columns side by side; those without a token are NaN.

    Parameters
    ----------
    edges : ndarray of float64, shape (n + 1,)
        Steps at which columns begin, and where the last one ends.
    period_us, busy_us, blocked_us : ndarray of float64, shape (n,)
        Means of the tokens of a column.
    longest_us : ndarray of float64, shape (n,)
        The longest period among them.
    steps_per_column : int
    """

    edges: Floats
    period_us: Floats
    busy_us: Floats
    blocked_us: Floats
    longest_us: Floats
    steps_per_column: int


def token_columns(tokens: npt.NDArray[Any], first: int, last: int, most: int) -> TokenColumns:
    """Bring tokens to columns.

    A column is a power of two of steps wide and begins at a multiple of that, so that columns stay
    what they are while a run grows.

    Parameters
    ----------
    tokens : ndarray of latency_model.TOKEN
        By step.
    first, last : int
        Steps that are shown.
    most : int
        So many columns at most, at least 2.
    """
    width = 1
    while last // width - first // width + 1 > most:
        width *= 2
    begin = first // width
    n = max(0, last // width - begin + 1)
    low, high = np.searchsorted(tokens["step"], [first, last + 1])
    shown = tokens[low:high]
    place = shown["step"] // width - begin
    count = np.bincount(place, minlength=n).astype(np.float64)
    count[count == 0] = np.nan

    def mean_us(values: npt.NDArray[Any]) -> Floats:
        return np.bincount(place, values, minlength=n) / count / 1000

    period = shown["end_ns"] - shown["begin_ns"]
    longest = np.full(n, np.nan)
    np.fmax.at(longest, place, period / 1000)
    return TokenColumns(
        edges=np.arange(begin, begin + n + 1, dtype=np.float64) * width,
        period_us=mean_us(period),
        busy_us=mean_us(shown["busy_ns"]),
        blocked_us=mean_us(shown["blocked_ns"]),
        longest_us=longest,
        steps_per_column=width,
    )


def top_us(columns: TokenColumns, least: float) -> float:
    """Return how high a plot must reach: beyond nearly all tokens, so that one slow one hides none.

    Parameters
    ----------
    columns : TokenColumns
    least : float
        What has to be seen in any case.
    """
    there = columns.longest_us[~np.isnan(columns.longest_us)]
    if not len(there):
        return max(least, 1.0)
    high = float(there.max())
    usual = float(np.percentile(there, 98))
    return max(least, high if high <= 2 * usual else 1.5 * usual, 0.001)


def n_beyond(columns: TokenColumns, top: float) -> int:
    """Return how many columns reach beyond the top of a plot."""
    return int(np.count_nonzero(columns.longest_us > top))
