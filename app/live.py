"""A live run: a worker thread that owns device, backend and engine, and hands out batches.

Who looks calls the methods of `LiveSession`, none of which waits, and takes what is new as often as
it likes.  All that is asked for goes through one queue, which the worker reads between two pieces
of about 10 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from syncscope.app.live_batch import OVER, STATES, Harm, LiveBatch, LiveRequest, PlanChange
from syncscope.app.live_worker import LiveWorker
from syncscope.app.outbox import Outbox
from syncscope.app.pace import Pace
from syncscope.app.spool import Spool
from syncscope.sched_core.records import Plan

__all__ = ["OVER", "STATES", "Harm", "LiveBatch", "LiveRequest", "LiveSession", "PlanChange"]


class LiveSession:
    """A run that can be paused, stepped, stopped and given another plan.

    Commands may be given before `start`: they are carried out, in order, before the first step.
    Once `take` has returned a batch with a state of `OVER`, the device is closed.

    Parameters
    ----------
    request : LiveRequest
    spool : Spool or None
        Where the run is recorded as it goes.  It is left open for its owner when the run is over.

    Raises
    ------
    UsageError
        For a speed that is no number from 0 on.
    """

    def __init__(self, request: LiveRequest, spool: Spool | None = None) -> None:
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._outbox = Outbox()
        self._worker = LiveWorker(request, Pace(request.speed), self._outbox, self._commands, spool)
        self._thread = threading.Thread(target=self._worker.work, name="live run", daemon=True)

    @property
    def header(self) -> Mapping[str, Any]:
        """What a trace says of the run and why it is on this device; empty until it is known.

        Keys: device, model, variant (the first), recording, environment, simulated, why_device,
        base_ns.
        """
        return self._worker.header

    @property
    def baseline(self) -> Plan | None:
        """The plan without passes; None until it is known."""
        return self._worker.baseline

    @property
    def is_alive(self) -> bool:
        """Whether the worker runs: it was started, and has not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def pause(self) -> None:
        """Issue no more steps."""
        self._commands.put(self._worker.on_pause)

    def resume(self) -> None:
        """Issue steps again."""
        self._commands.put(self._worker.on_resume)

    def step(self) -> None:
        """Issue one step, a token or a micro-batch of the prompt, and pause."""
        self._commands.put(self._worker.on_step)

    def stop(self) -> None:
        """End the run after the step that is being issued."""
        self._commands.put(self._worker.on_stop)
        self._worker.stop_asked.set()

    def set_variant(
        self,
        preset: str,
        passes: tuple[str, ...] = (),
        drop: tuple[str, ...] = (),
        allow_hazards: bool = False,
    ) -> None:
        """Run another variant from the next step on; if it is refused, a message says why."""
        self._commands.put(partial(self._worker.on_variant, preset, passes, drop, allow_hazards))

    def set_speed(self, speed: float) -> None:
        """Run the simulator's clock at another speed; a GPU takes no notice.

        Raises
        ------
        UsageError
            For a speed that is no number from 0 on.
        """
        self._commands.put(partial(self._worker.on_speed, Pace(speed)))

    def take(self) -> LiveBatch | None:
        """Return what is new since the last call; None if nothing is.

        What another sequence has begun with comes in a batch of its own: who wants all takes again.
        """
        return self._outbox.take()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the worker; return whether it came."""
        self._thread.join(timeout)
        return not self.is_alive
