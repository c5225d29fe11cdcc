"""Draws the timeline at 1600x600 without a screen; prints milliseconds per frame beside the bars.

Usage: python tests/bench/bench_timeline.py [LIVE_SECONDS]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from PySide6.QtWidgets import QApplication

from helpers.timeline import MadeRecording, MadeRow, MadeStep
from syncscope.app.gui.lane_store import LaneStore
from syncscope.app.gui.row_source import ARROW
from syncscope.app.gui.theme import CATEGORIES, DARK, apply_theme
from syncscope.app.gui.timeline_view import TimelineView
from syncscope.app.gui.view_state import ViewState
from syncscope.app.gui.wide_spans import SPAN_BOUNDED, SPAN_LOWER_BOUND

BARS_MS = {1_000_000: 8.0, 10_000_000: 16.0}
FRAMES = 40
SHARES = (1.0, 0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
LIVE_RATE = 200_000
FRAME_S = 1 / 60

ROWS = (
    ("host", ("host_api", "graph"), 0),
    ("sync", ("sync_required", "sync_reuse", "sync_redundant", "sync_other"), 0),
    ("cpu_split", ("host_work",), 0),
    ("stream", ("kernel",), SPAN_LOWER_BOUND),
    ("stream", ("kernel", "d2d"), SPAN_LOWER_BOUND),
    ("stream", ("kernel", "graph"), 0),
    ("copy_engine", ("h2d",), SPAN_BOUNDED),
    ("copy_engine", ("d2h",), SPAN_BOUNDED),
)
"""Kind of each row, its categories and the flags of its spans."""


@dataclass
class BenchRows:
    """Rows with random spans; every 300th span begins a step, every 20th has an arrow."""

    rows: list[MadeRow]
    names: list[str] = field(default_factory=lambda: [f"layer.{k}.ffn.gate" for k in range(200)])
    random: Any = field(default_factory=lambda: np.random.default_rng(1))
    ends: list[int] = field(default_factory=lambda: [0] * len(ROWS))
    n_spans: int = 0
    marks: Any = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def empty(cls, capacity_log2: int) -> BenchRows:
        return cls(
            [
                MadeRow(f"{kind}{k}", f"{kind} {k}", kind, [LaneStore(capacity_log2)])
                for k, (kind, _, _) in enumerate(ROWS)
            ]
        )

    def add(self, n: int) -> None:
        """Append `n` spans to each row."""
        for k, (row, (_, categories, flags)) in enumerate(zip(self.rows, ROWS, strict=True)):
            width = self.random.integers(200, 8000, n)
            end = self.ends[k] + np.cumsum(width + self.random.integers(0, 4000, n))
            choice = np.array([CATEGORIES.index(each) for each in categories], np.uint8)
            row.lanes[0].append(
                end - width,
                end,
                choice[self.random.integers(0, len(choice), n)],
                self.random.integers(0, len(self.names), n).astype(np.uint32),
                np.full(n, flags, np.uint8),
                self.n_spans + np.arange(n),
            )
            self.ends[k] = int(end[-1])
            self.n_spans += n
        self.marks = np.arange(0, max(self.ends), 6000 * 20)

    def extent(self) -> tuple[int, int]:
        found = [row.lanes[0].extent() for row in self.rows]
        return min(a for a, _ in found), max(b for _, b in found)

    def links(self, ref: int) -> Sequence[int]:
        return ()

    def arrows(self, t0: int, t1: int, limit: int) -> Any:
        first, last = np.searchsorted(self.marks, (t0, t1))
        if last - first > limit:
            return np.zeros(0, ARROW)
        found = np.zeros(last - first, ARROW)
        found["from_ns"] = self.marks[first:last]
        found["to_ns"] = found["from_ns"] + 9000
        found["to_row"] = 3
        return found

    def steps(self, t0: int, t1: int) -> Sequence[MadeStep]:
        first, last = np.searchsorted(self.marks[::15], (t0, t1))
        if last - first > 1000:
            return [MadeStep(0, t0, "")] * int(last - first)
        return [
            MadeStep(k, int(self.marks[15 * k]), "saaaaaasgaeE")
            for k in range(max(int(first) - 1, 0), int(last))
        ]

    def ghosts(self, t0: int, t1: int) -> Sequence[Any]:
        return ()


def timed(frame: Callable[[], None]) -> float:
    """Return the milliseconds of one frame, from the change to the last pixel."""
    began = time.perf_counter()
    frame()
    QApplication.processEvents()
    return (time.perf_counter() - began) * 1e3


def shown(rows: BenchRows) -> TimelineView:
    """Return a visible timeline whose drawing area is 1600 by 600."""
    view = TimelineView(ViewState())
    view.resize(1600, 600)
    view.show()
    QApplication.processEvents()
    view.resize(3200 - view.plot.width(), 1200 - view.plot.height())
    view.state.set_recording(MadeRecording(rows))
    QApplication.processEvents()
    return view


def still(n_spans: int) -> None:
    """Pan at several zooms, and zoom from all of it to a few spans and back."""
    n = n_spans // len(ROWS)
    rows = BenchRows.empty(max(int(np.ceil(np.log2(n))), 13))
    rows.add(n)
    view = shown(rows)
    length = rows.extent()[1]
    bar = BARS_MS[n_spans]
    print(f"{n_spans:,} spans, {view.plot.width()}x{view.plot.height()}, bar {bar:g} ms")
    for share in SHARES:
        window = max(int(length * share), 1000)
        places = np.linspace(0, max(length - window, length // 50), FRAMES).astype(np.int64)
        times = [timed(lambda t=int(t), w=window: view.state.set_range(t, t + w)) for t in places]
        report(f"pan, {share:g} of it in view", times, bar)
    view.state.set_range(0, length)
    times = [timed(lambda: view.run("zoom_in")) for _ in range(FRAMES)]
    times += [timed(lambda: view.run("zoom_out")) for _ in range(FRAMES)]
    report("zoom in and out", times, bar)
    view.close()


def live(seconds: float) -> None:
    """Follow 200,000 spans a second; the rings are full before, so that memory is at its most."""
    rows = BenchRows.empty(17)
    for _ in range(20):
        rows.add(2**17 // 16)
    view = shown(rows)
    view.state.set_range(0, 5_000_000)
    view.state.set_follow(True)
    kept = sum(len(row.lanes[0]) for row in rows.rows)
    nbytes = sum(row.lanes[0].nbytes for row in rows.rows)
    before, times, late = memory_mb(), [], 0
    per_frame = round(LIVE_RATE * FRAME_S / len(ROWS))
    began = time.perf_counter()
    n_frames = int(seconds / FRAME_S)

    def frame() -> None:
        rows.add(per_frame)
        view.state.grow()

    for k in range(n_frames):
        times.append(timed(frame))
        left = began + (k + 1) * FRAME_S - time.perf_counter()
        late += left < 0
        time.sleep(max(left, 0))
    rate = n_frames * per_frame * len(ROWS) / (time.perf_counter() - began)
    print(f"live, {rate:,.0f} spans/s for {seconds:g} s, bar {LIVE_RATE:,} at 60 Hz")
    report("append and draw", times, FRAME_S * 1e3)
    print(f"  {'frames that were late':<28}{late:8d} of {n_frames}")
    print(f"  {'rings':<28}{nbytes / 1e6:8.1f} MB for the newest {kept:,} spans")
    print(f"  {'process, before and after':<28}{before:8.1f} MB {memory_mb():8.1f} MB")
    view.close()


def report(what: str, times_ms: Sequence[float], bar_ms: float) -> None:
    """Print median and 95th percentile, and whether the median is within the bar."""
    median, high = np.percentile(times_ms, (50, 95))
    verdict = "ok" if median <= bar_ms else "TOO SLOW"
    print(f"  {what:<28}{median:8.2f} ms  p95 {high:6.2f}  bar {bar_ms:5.1f}  {verdict}")


def memory_mb() -> float:
    """Return the resident memory of this process; 0 where that cannot be told."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    line = next(each for each in status.read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main(seconds: float = 5.0) -> None:
    app = QApplication([])
    apply_theme(app, DARK)
    for n_spans in BARS_MS:
        still(n_spans)
    live(seconds)


if __name__ == "__main__":
    main(*(float(each) for each in sys.argv[1:2]))
