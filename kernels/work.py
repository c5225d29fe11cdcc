"""What one run of a kernel instance has to do: its traffic, its arithmetic, and loads that wait.

The CUDA kernels are short.  Their time is mostly that of loads of which the next one waits for the
one before, so those are counted here, as the loops of ``kernels/cuda`` make them: of the warp that
has most, a load that the compiler puts beside others counted once with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncscope.kernels.cuda_launch import (
    ARGMAX_THREADS,
    MAX_BLOCKS,
    N_THREADS,
    SAMPLE_THREADS,
    SOURCE_OF,
    STAGED,
    TILE,
    launch_shape,
)
from syncscope.kernels.signature import ITEM_SIZE, Instance
from syncscope.sched_core.costs import Work

IN_FLIGHT = 4
"""Loads of a loop that are under way together: its unrolling, in ``common.cuh`` and the others."""

LANES, AT_ONCE, MAX_GROUPS = 8, 4, 32
"""Of the attention kernel: threads to a key row, key rows of each in flight, groups of threads."""

VALUE_ROWS_IN_FLIGHT = 2
"""Value rows that wait for memory together, as measured: the loop is unrolled by four, but its
last rows are not."""

_N_WARPS = N_THREADS // 32


def _up(n: float, parts: int) -> int:
    """Return n / parts, rounded up."""
    return int(-(-n // parts))


def _row_loads(length: int, item_size: int, in_flight: int) -> int:
    """Return the waits of a warp for one row of weights: 16 bytes a lane at a time."""
    whole, rest = divmod(length, 32 * (16 // item_size))
    return whole // in_flight + whole % in_flight + (rest > 0)


def _matrix(
    instance: Instance, n_tokens: int, length: int, n_units: int, is_normed: bool
) -> tuple[float, float]:
    """Return the loads of input and of weights: a kernel whose warps take units of rows."""
    tiles, row_blocks, _ = launch_shape(instance).grid
    is_tiled = n_tokens > 1
    rounds = _up(tiles * row_blocks, MAX_BLOCKS)
    units = _up(n_units, row_blocks * _N_WARPS)
    # a tile has TILE loads in flight by itself; what does not fit is staged anew for every unit
    in_flight = 1 if is_tiled else IN_FLIGHT
    stages = units if is_tiled and length > STAGED // TILE else 1
    item_size = ITEM_SIZE[instance.kernel.name.rpartition("_")[2]]
    inputs = _up(length, N_THREADS * in_flight) * (stages + is_normed)
    return rounds * inputs, rounds * units * _row_loads(length, item_size, in_flight)


def _qkv(instance: Instance, v: Mapping[str, int], visible: float) -> tuple[float, float]:
    pairs = (v["H"] + 2 * v["G"]) * v["S"] // 2
    return _matrix(instance, v["T"], v["D"], pairs, True)


def _project(instance: Instance, v: Mapping[str, int], visible: float) -> tuple[float, float]:
    rows_at_once = 1 if v["T"] == 1 else 2
    return _matrix(instance, v["T"], v["K"], _up(v["D"], rows_at_once), False)


def _gate_up(instance: Instance, v: Mapping[str, int], visible: float) -> tuple[float, float]:
    return _matrix(instance, v["T"], v["D"], v["F"], True)


def _logits(instance: Instance, v: Mapping[str, int], visible: float) -> tuple[float, float]:
    return _matrix(instance, 1, v["D"], v["V"], True)


def _attention(instance: Instance, v: Mapping[str, int], visible: float) -> tuple[float, float]:
    """Scores: passes over the keys; then the value rows, shared among groups of threads."""
    has_vectors = v["S"] % 4 == 0
    width = 4 if has_vectors else 1
    passes = max(1, _up(visible, N_THREADS // LANES * AT_ONCE))
    groups = min(MAX_GROUPS, N_THREADS // (v["S"] // width))
    rounds = _up(v["H"] * v["T"], MAX_BLOCKS)
    loads = passes * _up(v["S"], LANES * width) + visible / groups / VALUE_ROWS_IN_FLIGHT
    return 0.0, rounds * loads


def _argmax(instance: Instance, v: Mapping[str, int], visible: float) -> tuple[float, float]:
    return _up(v["V"], ARGMAX_THREADS * IN_FLIGHT), 0.0


def _sample(instance: Instance, v: Mapping[str, int], visible: float) -> tuple[float, float]:
    """Greatest logit, sum of weights, choice; three passes more for each cut (top-k, top-p)."""
    passes = 3 + 3 * (v["top_k"] > 0) + 3 * (v["top_p"] < 1)
    return passes * _up(v["V"], SAMPLE_THREADS), 0.0


_LOADS: Mapping[str, Callable[[Instance, Mapping[str, int], float], tuple[float, float]]] = {
    "qkv.cu": _qkv,
    "project.cu": _project,
    "gate_up.cu": _gate_up,
    "logits.cu": _logits,
    "attention.cu": _attention,
    "argmax.cu": _argmax,
    "sample.cu": _sample,
}


def work_of(instance: Instance, visible: float = 0.0) -> Work:
    """Return what one run of a kernel instance has to do.

    Parameters
    ----------
    instance : Instance
    visible : float
        Rows of the KV cache that attention looks at, on average over the steps in question.
    """
    source = SOURCE_OF.get(instance.kernel.name)
    if source is None:
        return Work(instance.moved, instance.work, instance.kernel.name)
    values = {name: int(value) for name, value in instance.values.items()}
    l2_loads, loads = _LOADS[source](instance, values, visible)
    return Work(instance.moved, instance.work, source.removesuffix(".cu"), l2_loads, loads)
