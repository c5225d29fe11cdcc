"""Batches on their way from the thread that runs to the one that looks, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace

from syncscope.app.live_batch import LiveBatch, join_batches, no_spans

MAX_SPANS = 1 << 17
"""Spans that may wait to be taken: 4 MiB."""

MAX_BATCHES = 1 << 12
"""Batches that may wait, with or without spans: where nobody looks for that long, nothing runs."""


class Outbox:
    """Batches that wait to be taken.  One thread puts, one takes, neither waits for the other.

    Parameters
    ----------
    drops : bool
        Whether spans beyond `capacity` are dropped and counted, so that what runs need not wait.
    capacity : int
        Spans.
    """

    def __init__(self, drops: bool = False, capacity: int = MAX_SPANS) -> None:
        self.drops = drops
        self.capacity = capacity
        self._lock = threading.Lock()
        self._batches: deque[LiveBatch] = deque()
        self._waiting = 0
        self._dropped = 0

    @property
    def is_full(self) -> bool:
        """Whether who puts should run no further until something was taken."""
        if len(self._batches) >= MAX_BATCHES:
            return True
        return not self.drops and self._waiting >= self.capacity

    def put(self, batch: LiveBatch) -> None:
        """Add a batch; of one that does not fit the spans are dropped, where that is allowed."""
        with self._lock:
            if self.drops and self._waiting + len(batch.spans) > self.capacity:
                self._dropped += len(batch.spans)
                batch = replace(batch, spans=no_spans())
            self._batches.append(replace(batch, dropped=batch.dropped + self._dropped))
            self._waiting += len(batch.spans)

    def take(self) -> LiveBatch | None:
        """Return what waits as one batch, up to where another sequence begins; None if nothing."""
        with self._lock:
            taken: list[LiveBatch] = []
            sequence = self._batches[0].sequence if self._batches else 0
            while self._batches and self._batches[0].sequence == sequence:
                taken.append(self._batches.popleft())
            self._waiting -= sum(len(each.spans) for each in taken)
        return join_batches(taken) if taken else None
