"""Watches a live run as a window does, until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from syncscope.app.live import OVER, LiveBatch, LiveRequest, LiveSession
from syncscope.app.spool import Spool
from syncscope.sched_core.engine import SWITCH
from syncscope.sched_core.pattern import letter, pattern
from syncscope.sched_core.program import Site
from syncscope.sched_core.recorder import ROLES

CALL, EXEC = (ROLES.index(role) for role in ("call", "exec"))


class Watched:
    """A live run and all that it has handed out so far."""

    def __init__(self, request: LiveRequest, spool: Spool | None = None) -> None:
        self.session = LiveSession(request, spool)
        self.batches: list[LiveBatch] = []

    def look(self) -> None:
        """Take what there is."""
        while (batch := self.session.take()) is not None:
            self.batches.append(batch)

    def until(self, so: Callable[[Watched], bool]) -> Watched:
        """Look until something is so; the test's own time limit ends what never comes."""
        self.look()
        while not so(self):
            if self.is_over:
                raise AssertionError(f"the run ended before that: {self.last}")
            time.sleep(0.001)
            self.look()
        return self

    def until_step(self, step: int) -> Watched:
        return self.until(lambda seen: seen.steps >= step)

    def until_told(self, words: str) -> Watched:
        return self.until(lambda seen: any(words in each for each in seen.messages))

    def finish(self) -> Watched:
        """Look until the run is over and its threads are gone."""
        self.until(lambda seen: seen.is_over)
        assert self.session.join(60)
        self.look()
        return self

    @property
    def last(self) -> LiveBatch:
        return self.batches[-1]

    @property
    def is_over(self) -> bool:
        return bool(self.batches) and self.last.state in OVER

    @property
    def steps(self) -> int:
        return self.last.steps_done if self.batches else 0

    @property
    def states(self) -> list[str]:
        """States in the order in which they were seen, each once in a row."""
        seen = [batch.state for batch in self.batches]
        return [each for i, each in enumerate(seen) if i == 0 or seen[i - 1] != each]

    @property
    def spans(self) -> np.ndarray[Any, Any]:
        return np.concatenate([batch.spans for batch in self.batches])

    def __getattr__(self, name: str) -> tuple[Any, ...]:
        """What was new in each batch, together: sites, phases, changes, stale, messages, .."""
        return tuple(each for batch in self.batches for each in getattr(batch, name))

    def tokens(self, sequence: int = 0) -> tuple[int, ...]:
        mine = [batch for batch in self.batches if batch.sequence == sequence]
        return tuple(each for batch in mine for each in batch.token_ids)

    def text(self, sequence: int = 0) -> str:
        return "".join(batch.text for batch in self.batches if batch.sequence == sequence)

    def outcome(self, sequence: int = 0) -> LiveBatch:
        """The last batch of a sequence."""
        return [batch for batch in self.batches if batch.sequence == sequence][-1]

    def drains(self, name: str) -> list[int]:
        """Steps at which a drain of that name was issued."""
        spans, sites = self.spans, self.sites
        return [
            int(span["step"])
            for span in spans[spans["role"] == CALL]
            if sites[span["op"]].phase == SWITCH and sites[span["op"]].name == name
        ]

    def pattern(self, step: int) -> str:
        """The pattern of a step, from what was executed."""
        spans, sites = self.spans, self.sites
        mine = spans[(spans["step"] == step) & (spans["role"] == CALL)]
        issued: list[Site] = [sites[op] for op in mine["op"]]
        return pattern(
            letter(each.kind, each.blocking, each.scope) for each in issued if each.phase != SWITCH
        )


@contextmanager
def watched(request: LiveRequest, spool: Spool | None = None) -> Iterator[Watched]:
    """Return a run that is not started, and end it whatever happens."""
    seen = Watched(request, spool)
    try:
        yield seen
    finally:
        if seen.session.is_alive:
            seen.session.stop()
            assert seen.session.join(60)
