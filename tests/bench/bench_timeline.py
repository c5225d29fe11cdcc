"""Draws the timeline at 1600x600 without a screen; prints milliseconds per frame beside the bars.

Usage: python tests/bench/bench_timeline.py [LIVE_SECONDS]

The spans are those of a simulated run of the baseline, repeated; they go through a recording as
those of a live run do.  A frame is timed from the change to the last pixel, ruler and scroll bars
with it.  Beside the median stands the time that this thread computed, which is less where other
programs keep the machine busy.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from PySide6.QtWidgets import QApplication

from helpers.recordings import HEADER, batch, toggled, whole
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.theme import DARK, apply_theme
from syncscope.app.gui.timeline_view import TimelineView
from syncscope.app.gui.view_state import ViewState
from syncscope.app.live_batch import PlanChange
from syncscope.sched_core.trace import Trace

BARS_MS = {1_000_000: 8.0, 10_000_000: 16.0}
FRAMES = 40
SHARES = (1.0, 0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
LIVE_RATE = 200_000
FRAME_S = 1 / 60


def long_run(n_spans: int) -> tuple[Trace, tuple[PlanChange, ...]]:
    """Repeat a simulated run of 400 decode steps until it has that many spans."""
    trace, changes = toggled(("baseline", (("decode", 400),)))
    spans, n_steps = trace.spans, len(trace.phases)
    times = -(-n_spans // len(spans))
    turn = np.repeat(np.arange(times), len(spans))
    repeated = np.tile(spans, times)
    for name in ("begin_ns", "end_ns"):
        repeated[name] += turn * (int(spans["end_ns"].max()) + 1000)
    repeated["step"] += (turn * n_steps).astype(np.int32)
    return replace(trace, spans=repeated, phases=trace.phases * times), changes


def timed(frame: Callable[[], None]) -> tuple[float, float]:
    """Return the milliseconds of one frame, on the clock and computed."""
    began, computed = time.perf_counter(), time.thread_time()
    frame()
    QApplication.processEvents()
    return (time.perf_counter() - began) * 1e3, (time.thread_time() - computed) * 1e3


def shown(recording: Recording) -> TimelineView:
    """Return a visible timeline whose drawing area is 1600 by 600."""
    view = TimelineView(ViewState())
    view.resize(1600, 600)
    view.show()
    QApplication.processEvents()
    view.resize(3200 - view.plot.width(), 1200 - view.plot.height())
    view.state.set_recording(recording)
    QApplication.processEvents()
    return view


def still(n_spans: int) -> None:
    """Pan at several zooms, and zoom from all of it to a few spans and back."""
    trace, changes = long_run(n_spans)
    view = shown(whole(trace, changes, capacity_log2=24))
    length = view.state.recording.rows.extent()[1]
    bar = BARS_MS[n_spans]
    print(f"{len(trace.spans):,} spans, {view.plot.width()}x{view.plot.height()}, bar {bar:g} ms")
    for share in SHARES:
        window = max(int(length * share), 1000)
        places = np.linspace(0, max(length - window, length // 50), FRAMES).astype(int).tolist()
        moves = [lambda t=t, w=window: view.state.set_range(t, t + w) for t in places]
        report(f"pan, {share:g} of it in view", [timed(each) for each in moves], bar)
    view.state.set_range(0, length)
    zooms = ["zoom_in"] * FRAMES + ["zoom_out"] * FRAMES
    report("zoom in and out", [timed(lambda z=each: view.run(z)) for each in zooms], bar)
    view.close()


def live(seconds: float) -> None:
    """Follow 200,000 spans a second; the rings are full before, so that memory is at its most."""
    per_frame, n_frames = round(LIVE_RATE * FRAME_S), int(seconds / FRAME_S)
    full = 3 << 20
    trace, changes = long_run(full + per_frame * n_frames)
    recording = Recording(HEADER)
    recording.extend(
        batch(trace, trace.spans[:full], sites=trace.sites, phases=trace.phases, changes=changes)
    )
    view = shown(recording)
    view.state.set_range(0, 5_000_000)
    view.state.set_follow(True)
    before, times, late = memory_mb(), [], 0

    def frame(k: int) -> None:
        first = full + k * per_frame
        recording.extend(batch(trace, trace.spans[first : first + per_frame]))
        view.state.grow()

    began = time.perf_counter()
    for k in range(n_frames):
        times.append(timed(lambda k=k: frame(k)))
        left = began + (k + 1) * FRAME_S - time.perf_counter()
        late += left < 0
        time.sleep(max(left, 0))
    rate = n_frames * per_frame / (time.perf_counter() - began)
    kept = sum(len(lane) for row in recording.rows.rows for lane in row.lanes)
    print(f"live, {rate:,.0f} spans/s for {seconds:g} s, bar {LIVE_RATE:,} at 60 Hz")
    report("take in, append and draw", times, FRAME_S * 1e3)
    print(f"  {'frames that were late':<28}{late:8d} of {n_frames}")
    print(f"  {'rows':<28}{recording.rows.nbytes / 1e6:8.1f} MB, {kept:,} spans in them")
    print(f"  {'process, before and after':<28}{before:8.1f} MB {memory_mb():8.1f} MB")
    view.close()


def report(what: str, times_ms: Sequence[tuple[float, float]], bar_ms: float) -> None:
    """Print medians and the 95th percentile, and whether the median is within the bar."""
    clock, computed = np.array(times_ms).T
    median, high = np.percentile(clock, (50, 95))
    verdict = "ok" if median <= bar_ms else "TOO SLOW"
    print(
        f"  {what:<28}{median:8.2f} ms  p95 {high:6.2f}  computed {np.median(computed):6.2f}"
        f"  bar {bar_ms:5.1f}  {verdict}"
    )


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
