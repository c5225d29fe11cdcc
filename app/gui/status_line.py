"""The line at the bottom: state of the run, what was lost or left the memory, work going on."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QProgressBar, QStatusBar, QToolButton, QWidget

from syncscope.app.gui.tasks import Tasks
from syncscope.app.gui.view_state import ViewState


def memory_text(n_spans: int, evicted: int, dropped: int, nbytes: int, most_nbytes: int) -> str:
    """Say how many spans there are, what became of the others, and how much memory they take."""
    parts = [f"{n_spans:,} spans"]
    if evicted:
        parts.append(f"{evicted:,} older ones no longer in memory")
    parts.append(f"{dropped:,} DROPPED" if dropped else "none dropped")
    parts.append(f"{nbytes / 2**20:,.0f} of at most {most_nbytes / 2**20:,.0f} MiB")
    return "  ·  ".join(parts)


class StatusLine(QStatusBar):
    """Shows; computes nothing."""

    def __init__(self, view: ViewState, tasks: Tasks, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("status_line")
        self._view, self._tasks = view, tasks
        self.state = QLabel("idle")
        self.state.setObjectName("status.state")
        self.memory = QLabel()
        self.memory.setObjectName("status.memory")
        self.work = QLabel()
        self.bar = QProgressBar(textVisible=False)
        self.bar.setFixedWidth(90)
        self.cancel = QToolButton()
        self.cancel.setText("Cancel")
        self.cancel.clicked.connect(self._cancel)
        self.addWidget(self.state)
        for each in (self.work, self.bar, self.cancel, self.memory):
            self.addPermanentWidget(each)
        view.recording_changed.connect(self.show_memory)
        view.grown.connect(self.show_memory)
        tasks.changed.connect(self.show_work)
        self.show_work()

    def show_state(self, state: str) -> None:
        """Show what the run does."""
        self.state.setText(state)

    def show_memory(self) -> None:
        """Show how much is kept of the recording."""
        recording = self._view.recording
        self.memory.setText(
            ""
            if recording is None
            else memory_text(
                recording.n_spans - recording.evicted,
                recording.evicted,
                recording.dropped,
                recording.nbytes,
                recording.most_nbytes,
            )
        )

    def show_work(self) -> None:
        """Show the newest piece of work that takes long."""
        task = self._tasks.running[-1] if self._tasks.running else None
        for each in (self.work, self.bar, self.cancel):
            each.setVisible(task is not None)
        if task is not None:
            done, total = task.position
            self.work.setText(f"{task.title}…")
            self.bar.setRange(0, total)
            self.bar.setValue(min(done, total))

    def _cancel(self) -> None:
        if self._tasks.running:
            self._tasks.running[-1].cancel()
