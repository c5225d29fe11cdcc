"""Carries batches from a live run to the recording that is shown, and commands back."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from syncscope.app.gui.recording import Recording
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState
from syncscope.app.live import OVER, LiveBatch, LiveRequest, LiveSession
from syncscope.app.spool import Spool
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.records import Plan

FRAME_MS = 16
"""How often what is new is taken: 60 times a second."""

IDLE = "idle"
"""The state in which there is no run."""

END_SECONDS = 10.0
"""How long the window waits for a run that is told to end; a device may hang."""


class RunController(QObject):
    """The live run of a window, at most one.

    Batches are taken in the window's thread, once a frame; nothing here waits for the run.

    Parameters
    ----------
    view : ViewState
    variant : VariantState
        Every change of it is handed to the run.
    folder : Path
        Where runs are spooled.
    """

    state_changed = Signal(str)
    progressed = Signal(int, int)
    said = Signal(str)

    def __init__(
        self, view: ViewState, variant: VariantState, folder: Path, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.state = IDLE
        self.spool: Spool | None = None
        self._view = view
        self._variant = variant
        self._folder = folder
        self.rules = LiveRequest().rules
        self._session: LiveSession | None = None
        self._newest: LiveSession | None = None
        self._recording: Recording | None = None
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._take)
        variant.changed.connect(self._hand_on_variant)

    @property
    def is_live(self) -> bool:
        """Whether a run is going on, paused or not."""
        return self._session is not None

    @property
    def baseline(self) -> Plan | None:
        """The plan without any pass of the newest run, once it is known."""
        return None if self._newest is None else self._newest.baseline

    def run(self, request: LiveRequest) -> None:
        """Begin a run in place of the one before; what is not to be lost has been asked for."""
        self.end()
        self.release_spool()
        try:
            self.spool = Spool.in_folder(self._folder)
        except FileError as error:
            self.said.emit(f"this run is not kept on disk: {error}")
        self._recording = None
        self.rules = request.rules
        self._session = self._newest = LiveSession(request, self.spool)
        self._session.start()
        self._set_state("starting")
        self._timer.start()

    def pause(self, on: bool) -> None:
        """Issue no more steps, or go on."""
        if self._session is not None:
            if on:
                self._session.pause()
            else:
                self._session.resume()

    def step(self) -> None:
        """Issue one step and pause."""
        if self._session is not None:
            self._session.step()

    def stop(self) -> None:
        """Ask the run to end; `state_changed` tells when it has."""
        if self._session is not None:
            self._session.stop()

    def set_speed(self, speed: float) -> None:
        """Run the simulated clock at another speed."""
        if self._session is not None:
            self._session.set_speed(speed)

    def end(self) -> None:
        """End the run and wait for it: before the window closes or another run begins."""
        if self._session is not None:
            self._session.stop()
            if not self._session.join(END_SECONDS):
                self.said.emit("the device does not answer; its run was left behind")
            self._take()
            self._over(self.state if self.state in OVER else "stopped")

    def release_spool(self) -> None:
        """Remove the spool: what it holds was saved or is not wanted."""
        spool, self.spool = self.spool, None
        if spool is not None:
            try:
                spool.discard()
            except FileError as error:
                self.said.emit(str(error))

    def _hand_on_variant(self) -> None:
        if self._session is not None:
            self._session.set_variant(*self._variant.request())

    def _take(self) -> None:
        """Take what is new into the recording, and tell the views once."""
        if self._session is None:
            return
        batch = self._session.take()
        while batch is not None:
            self._add(batch)
            if batch.state in OVER:
                self._over(batch.state)
                return
            batch = self._session.take() if len(batch.spans) == 0 else None
        if self._recording is not None:
            self._view.grow()

    def _add(self, batch: LiveBatch) -> None:
        assert self._session is not None
        if self._recording is None and self._session.header:
            self._recording = Recording(self._session.header)
            self._view.set_recording(self._recording)
            self._view.set_follow(True)
        if self._recording is not None:
            self._recording.extend(batch)
        if batch.state not in OVER:
            self._set_state(batch.state)
        self.progressed.emit(batch.steps_done, batch.steps_total)
        for text in (*batch.messages, batch.fault, batch.failure):
            if text:
                self.said.emit(text)

    def _over(self, state: str) -> None:
        """The run has ended: its device is closed, its recording stays."""
        self._timer.stop()
        self._session = None
        if self.spool is not None:
            try:
                self.spool.close()
            except FileError as error:
                self.said.emit(str(error))
        if self._recording is not None:
            self._view.grow()
        self._set_state(state)

    def _set_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self.state_changed.emit(state)
