"""How the device kernels of ``kernels/cuda`` are launched: source file, grid, block, shared memory.

A kernel takes the arguments of its signature as pointers, then the signature's parameters by value
(of the type that `signature.parameter_type` says), then the address of a fault record, that of the
launch's stamp record or 0, and the launch's slot, which a fault names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syncscope.kernels.signature import Instance
from syncscope.sched_core.errors import UsageError

N_THREADS = 256
"""Threads of a block; with TILE and STAGED as in ``common.cuh``, which a test compares."""

TILE = 8
"""Tokens that share one pass over the weights."""

STAGED = 8192
"""Floats of a tile that are staged in shared memory."""

ATTENTION_PARTIAL = 1024
"""Floats that the attention kernel keeps beside the scores."""

ARGMAX_THREADS = 1024
"""Threads of the one block of argmax."""

SAMPLE_THREADS = 1024
"""Threads of the one block of sample."""

MAX_BLOCKS = 384
"""Blocks of a matrix kernel: what fits a large GPU at once.  More would norm the tokens more often,
fewer leave multiprocessors idle; each loops over its share of the rows."""

MIN_ROW_BLOCKS = 8
"""Blocks that share a token tile's rows, however many tiles there are."""

ADVANCE_STEP = "advance_step"
"""The kernel that begins a step: takes the addresses of a counter record and of the stamp records
of all slots, and the number of slots."""

SOURCE_OF: Mapping[str, str] = {
    **{f"{name}_{dtype}": f"{name}.cu"
       for name in ("qkv", "project", "gate_up", "logits") for dtype in ("f16", "f32")},
    "attention": "attention.cu",
    "argmax": "argmax.cu",
    "sample": "sample.cu",
    ADVANCE_STEP: "advance_step.cu",
}  # fmt: skip
"""The file under ``kernels/cuda`` of each device kernel."""

FAULTS: Mapping[int, str] = {1: "position", 2: "k_idxs row", 3: "v_idxs row", 4: "out_ids row"}
"""What a fault record's code says was out of range, in the words of the host twins."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The configuration of a launch.

    Parameters
    ----------
    grid, block : tuple of int
        Blocks of the grid and threads of a block, x, y and z.
    shared_nbytes : int
        Dynamic shared memory of a block, below the 48 KiB that need no asking.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_nbytes: int


ADVANCE_SHAPE = LaunchShape((1, 1, 1), (N_THREADS, 1, 1), 0)
"""How `ADVANCE_STEP` is launched."""


def _up(n: int, parts: int) -> int:
    """Return n / parts, rounded up."""
    return -(-n // parts)


def _matrix(n_tokens: int, length: int, n_units: int) -> LaunchShape:
    """Return the shape of a kernel whose warps take units of rows of `length`."""
    tile = 1 if n_tokens == 1 else TILE
    n_tiles = _up(n_tokens, tile)
    row_blocks = min(_up(n_units, N_THREADS // 32), max(MAX_BLOCKS // n_tiles, MIN_ROW_BLOCKS))
    stride = min(_up(length, 8) * 8, STAGED // tile)
    return LaunchShape((n_tiles, row_blocks, 1), (N_THREADS, 1, 1), 4 * tile * stride)


def _qkv(v: Mapping[str, int]) -> LaunchShape:
    return _matrix(v["T"], v["D"], (v["H"] + 2 * v["G"]) * v["S"] // 2)


def _project(v: Mapping[str, int]) -> LaunchShape:
    rows_at_once = 1 if v["T"] == 1 else 2
    return _matrix(v["T"], v["K"], _up(v["D"], rows_at_once))


def _gate_up(v: Mapping[str, int]) -> LaunchShape:
    return _matrix(v["T"], v["D"], v["F"])


def _logits(v: Mapping[str, int]) -> LaunchShape:
    return _matrix(1, v["D"], v["V"])


def _attention(v: Mapping[str, int]) -> LaunchShape:
    nbytes = 4 * (ATTENTION_PARTIAL + v["C"])
    return LaunchShape((v["H"], v["T"], 1), (N_THREADS, 1, 1), nbytes)


def _argmax(v: Mapping[str, int]) -> LaunchShape:
    return LaunchShape((1, 1, 1), (ARGMAX_THREADS, 1, 1), 0)


def _sample(v: Mapping[str, int]) -> LaunchShape:
    return LaunchShape((1, 1, 1), (SAMPLE_THREADS, 1, 1), 0)


_SHAPES: Mapping[str, Callable[[Mapping[str, int]], LaunchShape]] = {
    "qkv.cu": _qkv,
    "project.cu": _project,
    "gate_up.cu": _gate_up,
    "logits.cu": _logits,
    "attention.cu": _attention,
    "argmax.cu": _argmax,
    "sample.cu": _sample,
}


def launch_shape(instance: Instance) -> LaunchShape:
    """Return how a kernel instance is launched, the same on every GPU.

    Raises
    ------
    UsageError
        If the kernel runs on the host alone.
    """
    source = SOURCE_OF.get(instance.kernel.name)
    if source is None:
        raise UsageError(f"kernel {instance.kernel.name} runs on the host; give a device kernel")
    return _SHAPES[source]({name: int(value) for name, value in instance.values.items()})
