"""The newest rows of an array that grows for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Sliding:
    """Rows with numbers that count from 0 for ever, of which the newest are kept side by side.

    Memory for twice the capacity is reserved, so that rows move only once in a while.

    Parameters
    ----------
    dtype : numpy dtype
    capacity : int
        So many rows are kept.

    Attributes
    ----------
    head, tail : int
        Rows `head` to ``tail - 1`` are in memory.
    """

    def __init__(self, dtype: npt.DTypeLike, capacity: int) -> None:
        self.capacity = capacity
        self.tail = 0
        self._rows = np.zeros(2 * capacity, dtype)
        self._first = 0  # number of the row at place 0

    @property
    def head(self) -> int:
        """Number of the oldest row in memory."""
        return max(0, self.tail - self.capacity)

    @property
    def nbytes(self) -> int:
        """Memory reserved."""
        return self._rows.nbytes

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows; the oldest make room."""
        end = self.tail + len(rows)
        rows = rows[max(0, len(rows) - self.capacity) :]
        if end - self._first > len(self._rows):
            kept = max(0, self.capacity - len(rows))
            begin = self.tail - self._first - min(kept, self.tail - self.head)
            moved = self._rows[begin : self.tail - self._first].copy()
            self._rows[: len(moved)] = moved
            self._first = end - len(rows) - len(moved)
        self._rows[end - len(rows) - self._first : end - self._first] = rows
        self.tail = end

    def view(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Return rows ``[begin, end)``, those of them that are in memory, without a copy."""
        begin, end = max(begin, self.head), min(end, self.tail)
        return self._rows[begin - self._first : max(begin, end) - self._first]

    def first(self, begin: int) -> int:
        """Return the number of the first row that `view` from `begin` on shows."""
        return max(begin, self.head)

    def __contains__(self, number: int) -> bool:
        return self.head <= number < self.tail

    def __getitem__(self, number: int) -> Any:
        if number not in self:
            raise IndexError(f"row {number} is not in memory: {self.head}..{self.tail - 1} are")
        return self._rows[number - self._first]
