"""Writes and reads a timeline file of a million spans; prints seconds and megabytes.

Usage: python tests/bench/bench_trace.py [SPANS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.traces import token_trace
from syncscope.app.bench.metrics import measure
from syncscope.app.report.chrome_trace import read_trace, write_trace
from syncscope.app.report.site_table import site_rows
from syncscope.sched_core.timeline import Timeline


def main(n_spans: int = 1_000_000) -> None:
    trace = token_trace(n_spans)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        jobs = {
            "write": lambda: write_trace(trace, path),
            "read": lambda: read_trace(path),
            "timeline columns": lambda: Timeline.from_trace(trace),
            "metrics": lambda: measure(trace),
            "site table": lambda: site_rows("baseline", trace),
        }
        print(f"{len(trace.spans):,} spans")
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            print(f"  {name:<18}{time.perf_counter() - began:8.2f} s")
        print(f"  {'file':<18}{path.stat().st_size / 1e6:8.1f} MB")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:2]))
