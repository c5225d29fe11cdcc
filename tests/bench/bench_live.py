"""A live run as a window watches it: spans delivered, what the window spends on them, memory.

The run times the plan of `tiny` without computing it, on the simulator as fast as it goes, and
another thread takes what there is 60 times a second.  Once a second the plan is toggled.

Usage: python tests/bench/bench_live.py [SECONDS]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from syncscope.app.live import OVER, LiveBatch, LiveRequest, LiveSession
from syncscope.app.spool import Spool

BAR_SPANS_PER_S = 200_000
FRAME_SECONDS = 1 / 60
TOGGLES = ("all", "baseline", "saaasg", "baseline")


def frames(session: LiveSession, seconds: float) -> Iterator[tuple[float, LiveBatch | None]]:
    """Yield, frame by frame, how long it took to take what there was, and what it was."""
    end = time.perf_counter() + seconds
    due = time.perf_counter()
    while due < end:
        began = time.perf_counter()
        batch = session.take()
        yield time.perf_counter() - began, batch
        due += FRAME_SECONDS
        time.sleep(max(0.0, due - time.perf_counter()))


def resident_mb() -> float:
    """Return the resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def wait_for_steps(session: LiveSession) -> None:
    """Wait until the run has begun."""
    for _, batch in frames(session, 60):
        if batch is not None and batch.steps_done:
            return


def measure(seconds: float, spool: Spool | None) -> tuple[float, list[float], list[float]]:
    """Return spans per second, seconds of each taking, and resident memory at times."""
    request = LiveRequest(device="sim", compute=False, repeat=True)
    session = LiveSession(request, spool)
    session.start()
    wait_for_steps(session)
    began, spans = time.perf_counter(), 0
    taking: list[float] = []
    memory: list[float] = []
    for number, (took, batch) in enumerate(frames(session, seconds)):
        taking.append(took)
        spans += 0 if batch is None else len(batch.spans)
        if number % 60 == 30:
            memory.append(resident_mb())
            session.set_variant(TOGGLES[number // 60 % len(TOGGLES)])
    rate = spans / (time.perf_counter() - began)
    session.stop()
    session.join()
    return rate, taking, memory


def seconds_to_stop() -> float:
    """Return how long it takes from asking a computing run to stop until it has stopped."""
    session = LiveSession(LiveRequest(device="sim", repeat=True))
    session.start()
    wait_for_steps(session)
    began = time.perf_counter()
    session.stop()
    while (batch := session.take()) is None or batch.state not in OVER:
        time.sleep(0.0005)
    took = time.perf_counter() - began
    session.join()
    return took


def main(seconds: float = 10.0) -> int:
    """Print the figures; return 1 when fewer spans are delivered than the bar asks for."""
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool.in_folder(Path(folder))
        recorded = measure(seconds, spool)
        mb_per_s = spool.path.stat().st_size / 1e6 / seconds
        spool.discard()
    plain = measure(seconds, None)
    print(f"tiny, not computed, as fast as it goes, taken 60 times a second for {seconds:.0f} s")
    for name, (rate, taking, memory) in (("", plain), (", spooled", recorded)):
        p50, p99 = np.percentile(taking, [50, 99]) * 1e3
        print(f"  {rate:12,.0f} spans/s{name} (bar {BAR_SPANS_PER_S:,})")
        print(f"  {p50:12.2f} ms to take, median; p99 {p99:.2f}")
        print(
            f"  {memory[len(memory) // 2]:12.1f} MB resident half-way, {memory[-1]:.1f} at the end"
        )
    print(f"  {mb_per_s:12.1f} MB/s spooled")
    stops = sorted(seconds_to_stop() for _ in range(5))
    print(f"  {stops[2] * 1e3:12.1f} ms to stop a run that computes, median of 5")
    return int(plain[0] < BAR_SPANS_PER_S)


if __name__ == "__main__":
    raise SystemExit(main(*(float(each) for each in sys.argv[1:2])))
