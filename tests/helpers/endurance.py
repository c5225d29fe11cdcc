"""What must stay flat over many cycles, sequences without end on one backend, and counts of spans.

Flat: the first fifth of the cycles is warm-up; of the rest, the median over the second half exceeds
that over the first by no more than a margin per cycle (`MARGINS`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syncscope.app.workload import Workload
from syncscope.kernels.signature import KERNELS
from syncscope.sched_core.engine import SWITCH, Engine
from syncscope.sched_core.program import Site, replay_begins
from syncscope.sched_core.recorder import ROLES
from syncscope.sched_core.records import Access, Buffer, Kind, Op, Plan

Gauge = Callable[[], float]

CALL = ROLES.index("call")

# ---- flat ---------------------------------------------------------------------------------------


def n_objects() -> int:
    """Return the number of Python's objects that hold others."""
    return len(gc.get_objects())


def resident_nbytes() -> int:
    """Return the memory of this process that is in RAM."""
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def n_threads() -> int:
    """Return the number of threads of this process, Python's and others."""
    return len(os.listdir("/proc/self/task"))


def n_files() -> int:
    """Return the number of open file descriptors."""
    return len(os.listdir("/proc/self/fd"))


HOST_GAUGES: Mapping[str, Gauge] = {
    "objects": n_objects,
    "host_nbytes": resident_nbytes,
    "threads": n_threads,
    "files": n_files,
}
"""What is read after each cycle, with or without a GPU."""

MARGINS: Mapping[str, float] = {
    "objects": 0.5,
    "host_nbytes": 256 << 10,
    "device_nbytes": 256 << 10,
    "threads": 0.5,
    "files": 0.5,
}
"""How much each gauge may rise per cycle.

One leaked object, thread or file per cycle is seen.  Of memory that no Python object holds, 256 KiB
per cycle are: less than the weights, the KV cache or the ring of stamps of the model `tiny`.  A GPU
hands out memory in pieces of 2 MiB, and one piece more in the middle of 20 cycles is no leak.
"""


def growth(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much each column rises per row, behind the warm-up.

    Parameters
    ----------
    samples : ndarray, shape (cycles, gauges)
    """
    behind = samples[len(samples) // 5 :]
    half = len(behind) // 2
    first, second = behind[:half], behind[-half:]
    rise: NDArray[np.float64] = np.median(second, axis=0) - np.median(first, axis=0)
    return rise / (len(behind) - half)


def growth_per_cycle(
    cycle: Callable[[], None], n_cycles: int, gauges: Mapping[str, Gauge] = HOST_GAUGES
) -> dict[str, float]:
    """Run a cycle again and again; return by how much each gauge grows."""
    samples = np.zeros((n_cycles, len(gauges)))  # now: a list would grow with the rest
    for row in range(n_cycles):
        cycle()
        gc.collect()
        for column, gauge in enumerate(gauges.values()):
            samples[row, column] = gauge()
    return dict(zip(gauges, growth(samples).tolist(), strict=True))


def risen(found: Mapping[str, float], allowed: Mapping[str, float] | None = None) -> dict[str, str]:
    """Return what is not flat, in words.

    Parameters
    ----------
    found : mapping of str to float
        Growth per cycle.
    allowed : mapping of str to float, optional
        Growth per cycle that is not ours: of the driver alone.
    """
    own = {name: max(0.0, (allowed or {}).get(name, 0.0)) for name in found}
    return {
        name: f"{value:,.1f} per cycle, {own[name] + MARGINS[name]:,.1f} allowed"
        for name, value in found.items()
        if value > own[name] + MARGINS[name]
    }


# ---- sequences without end ----------------------------------------------------------------------

RESTART = "restart"
"""Phase that takes the run back to the beginning of its prompt."""


def with_index_written(plan: Plan, phase: str, source: str, target: str, n_rows: int) -> Plan:
    """Add a phase in which the host writes the index in `source` (8 bytes, new) to `target`.

    The kernel is `write_kv_indices` of one token and `n_rows` rows: the backend must have it.
    """
    kernel = KERNELS["write_kv_indices"].instance(T=1, C=n_rows).name
    op = Op(
        f"{phase}.write",
        Kind.HOST,
        kernel=kernel,
        accesses=(Access(source, False), Access(target, True)),
    )
    buffers = (*plan.buffers, Buffer(source, 8, "pinned"))
    return replace(plan, buffers=buffers, phases={**plan.phases, phase: (op,)})


def with_restart(plan: Plan, workload: Workload) -> Plan:
    """Add `RESTART`, so that one backend computes one sequence after another.

    It sets the cursor to 0; the prompt still stands at the head of the list of tokens.
    """
    return with_index_written(plan, RESTART, "zero", "cursor", workload.n_kv)


def run_sequence(engine: Engine, workload: Workload) -> None:
    """Generate the workload's tokens from the beginning, and drain."""
    for phase, steps in ((RESTART, 1), *workload.segments):
        engine.run(phase, steps)
    engine.drain()


# ---- counts -------------------------------------------------------------------------------------


@dataclass
class Counts:
    """Numbers of spans: the host's calls, and what the device did."""

    calls: int = 0
    kernels: int = 0
    copies: int = 0

    def add(self, spans: NDArray[np.void], sites: Iterable[Site]) -> None:
        """Count spans that an engine has recorded."""
        kinds = np.array([int(site.kind) for site in sites])[spans["op"]]
        is_call = spans["role"] == CALL
        self.calls += int(np.count_nonzero(is_call))
        self.kernels += int(np.count_nonzero(~is_call & (kinds == Kind.LAUNCH)))
        self.copies += int(np.count_nonzero(~is_call & (kinds == Kind.COPY)))


def issued(plan: Plan, phases: Iterable[str], drains: int = 0) -> Counts:
    """Return what an engine issues for a plan on one device, from the plan alone.

    Parameters
    ----------
    plan : Plan
    phases : iterable of str
        Of every step, as `Engine.phases`.
    drains : int
        How often the engine was drained.
    """
    counts = Counts(calls=drains)
    for phase, steps in groupby(phases):
        assert phase != SWITCH
        ops = plan.phases[phase]
        n = sum(1 for _ in steps)
        eager = min(n, replay_begins(plan, phase))
        one_by_one = sum(op.kind != Kind.GRAPH for op in ops)
        replayed = sum(op.kind == Kind.GRAPH or op.graph < 0 for op in ops)
        counts.calls += eager * one_by_one + (n - eager) * replayed
        counts.kernels += n * sum(op.kind == Kind.LAUNCH for op in ops)
        counts.copies += n * sum(op.kind == Kind.COPY for op in ops)
    return counts
