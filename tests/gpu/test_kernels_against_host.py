"""Each device kernel against its host twin: values, indices out of range, stamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from syncscope.kernels.cuda_launch import FAULTS, LaunchShape, launch_shape
from syncscope.kernels.host import host_table, run_instance
from syncscope.kernels.signature import KERNELS, Instance
from syncscope.kernels.weights import DTYPES
from syncscope.sched_core.errors import KernelFault

if TYPE_CHECKING:
    from conftest import KernelRunner

pytestmark = pytest.mark.gpu

Array = NDArray[Any]
TYPES = {**DTYPES, "i32": np.int32, "i64": np.int64}
ROPE = {"eps": 1e-5, "theta": 10000.0}
SHAPES: dict[str, dict[str, int]] = {
    "stories": {"D": 64, "H": 8, "G": 4, "S": 8, "F": 172, "V": 512, "C": 70},
    "odd": {"D": 45, "H": 6, "G": 3, "S": 10, "F": 37, "V": 97, "C": 61},
    "15m": {"D": 288, "H": 6, "G": 6, "S": 48, "F": 768, "V": 1000, "C": 64},
    "wide": {"D": 1100, "H": 2, "G": 1, "S": 256, "F": 90, "V": 33, "C": 50},
    "least": {"D": 1, "H": 3, "G": 1, "S": 2, "F": 1, "V": 1, "C": 40},
}
TOKENS = (1, 8, 33)


def normal(seed: int, shape: tuple[int, ...], dtype: str = "f32", scale: float = 1.0) -> Array:
    values = np.random.default_rng(seed).normal(size=shape) * scale
    return np.asarray(values, TYPES[dtype])


def make(kernel: str, values: dict[str, Any], **given: Any) -> tuple[Instance, list[Array]]:
    """Return an instance of a kernel and its arguments: those given, random inputs, NaN outputs."""
    known = {**ROPE, "pairing": 0, **values}
    instance = KERNELS[kernel].instance(**{k: known[k] for k in KERNELS[kernel].parameters})
    arrays: list[Array] = []
    for seed, (argument, shape) in enumerate(
        zip(instance.kernel.arguments, instance.shapes, strict=True)
    ):
        if argument.name in given:
            array = np.array(np.broadcast_to(given[argument.name], shape), TYPES[argument.dtype])
        elif argument.write:
            array = np.full(shape, -7 if argument.dtype[0] == "i" else np.nan).astype(
                TYPES[argument.dtype]
            )
        else:
            scale = shape[-1] ** -0.5 if argument.name[0] == "w" else 1.0
            array = normal(seed, shape, argument.dtype, scale)
        arrays.append(array)
    return instance, arrays


def rope_inputs(n_tokens: int, n_rows: int) -> dict[str, Any]:
    """Return positions and cache rows of a micro-batch, the rows in an order of their own."""
    rows = np.random.default_rng(5).permutation(n_rows)[:n_tokens]
    return {
        "pos": np.arange(n_tokens) + n_rows - n_tokens,
        "k_idxs": rows,
        "v_idxs": rows[::-1],
    }


def causal_mask(n_tokens: int, n_rows: int, start: int) -> Array:
    """Return a mask that shows token t the rows up to start + t."""
    shown = np.arange(n_rows) <= start + np.arange(n_tokens)[:, None]
    return np.where(shown, 0.0, -np.inf).astype(np.float16)


def close(found: Array, wanted: Array, tolerance: float = 3e-6) -> None:
    """Compare; what neither side wrote is NaN on both."""
    assert np.isfinite(wanted).any()
    scale = float(np.nanmax(np.abs(wanted)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale, equal_nan=True)


def same(found: Array, wanted: Array) -> None:
    """Compare bit for bit."""
    assert found.tobytes() == wanted.tobytes()


def on_both(
    runner: KernelRunner, kernel: str, values: dict[str, Any], **given: Any
) -> tuple[Instance, list[Array], list[Array]]:
    """Run on device and host; return the instance and the outputs of both."""
    instance, arrays = make(kernel, values, **given)
    twins = [array.copy() for array in arrays]
    assert runner.run(instance, arrays) is None
    run_instance(host_table([instance]), instance.name, twins)
    written = [i for i, argument in enumerate(instance.kernel.arguments) if argument.write]
    return instance, [arrays[i] for i in written], [twins[i] for i in written]


# ------------------------------------------------------------------------------ values


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("pairing", [0, 1])
def test_qkv(runner: KernelRunner, dtype: str, shape: str, n_tokens: int, pairing: int) -> None:
    values = {**SHAPES[shape], "T": n_tokens, "pairing": pairing}
    inputs = rope_inputs(n_tokens, values["C"])
    _, found, wanted = on_both(runner, f"qkv_{dtype}", values, **inputs)
    for device, host in zip(found, wanted, strict=True):
        close(device, host)


def test_rotation_holds_its_precision_at_high_positions(runner: KernelRunner) -> None:
    values = {"T": 4, "D": 64, "H": 2, "G": 1, "S": 64, "C": 8192, "theta": 500000.0}
    inputs = {"pos": [0, 1, 4097, 8191], "k_idxs": [8191, 0, 5, 17], "v_idxs": [1, 2, 3, 8191]}
    _, found, wanted = on_both(runner, "qkv_f32", values, **inputs)
    for device, host in zip(found, wanted, strict=True):
        close(device, host)


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention(runner: KernelRunner, shape: str, n_tokens: int) -> None:
    values = {**SHAPES[shape], "T": n_tokens}
    mask = causal_mask(n_tokens, values["C"], 3)
    _, (found,), (wanted,) = on_both(runner, "attention", values, mask=mask)
    close(found, wanted)


@pytest.mark.parametrize("size", [64, 256])
def test_attention_over_the_longest_context(runner: KernelRunner, size: int) -> None:
    values = {"T": 2, "H": 4, "G": 2, "S": size, "C": 8192}
    mask = causal_mask(2, 8192, 8190)
    _, (found,), (wanted,) = on_both(runner, "attention", values, mask=mask)
    close(found, wanted, 1e-5)


def test_attention_ignores_hidden_rows_and_adds_finite_masks(runner: KernelRunner) -> None:
    values = {"T": 2, "H": 4, "G": 2, "S": 16, "C": 40}
    mask = np.full((2, 40), -np.inf, np.float16)
    mask[0, [3, 17, 38]] = [0.0, -1.5, 2.0]
    instance, arrays = make("attention", values, mask=mask)  # token 1 sees nothing
    arrays[1][4] = arrays[2][4] = arrays[1][39] = arrays[2][39] = np.nan  # never written
    twins = [array.copy() for array in arrays]
    assert runner.run(instance, arrays) is None
    run_instance(host_table([instance]), instance.name, twins)
    close(arrays[-1], twins[-1])
    assert (arrays[-1][1] == 0).all()


def test_attention_does_not_depend_on_the_capacity_of_the_cache(runner: KernelRunner) -> None:
    keys, rows = normal(1, (300, 64)), normal(2, (300, 64))
    outs = []
    for capacity in (211, 300):
        values = {"T": 1, "H": 4, "G": 2, "S": 32, "C": capacity}
        instance, arrays = make(
            "attention", values, k_cache=keys[:capacity], v_cache=rows[:capacity],
            mask=causal_mask(1, capacity, 200),
        )  # fmt: skip
        assert runner.run(instance, arrays) is None
        outs.append(arrays[-1])
    same(*outs)


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize(
    ("length", "rows"), [(64, 64), (172, 64), (45, 37), (768, 288), (1500, 9), (8192, 20), (1, 1)]
)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_project(runner: KernelRunner, dtype: str, length: int, rows: int, n_tokens: int) -> None:
    values = {"T": n_tokens, "K": length, "D": rows}
    _, (found,), (wanted,) = on_both(runner, f"project_{dtype}", values)
    close(found, wanted)


def test_project_adds_in_place(runner: KernelRunner) -> None:
    instance, arrays = make("project_f16", {"T": 9, "K": 100, "D": 40})
    apart = [array.copy() for array in arrays]
    assert runner.run(instance, apart) is None
    arrays[3] = arrays[2]
    assert runner.run(instance, arrays) is None
    same(arrays[2], apart[3])


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_gate_up(runner: KernelRunner, dtype: str, shape: str, n_tokens: int) -> None:
    values = {**SHAPES[shape], "T": n_tokens}
    _, (found,), (wanted,) = on_both(runner, f"gate_up_{dtype}", values)
    close(found, wanted)


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_logits(runner: KernelRunner, dtype: str, shape: str, n_tokens: int) -> None:
    values = {**SHAPES[shape], "T": n_tokens}
    pos = np.arange(n_tokens) + 4
    _, found, wanted = on_both(runner, f"logits_{dtype}", values, pos=pos, out_ids=[n_tokens - 1])
    close(found[0], wanted[0])
    same(found[1][n_tokens + 3], found[0])
    close(found[1], wanted[1])


def test_logits_of_more_rows_than_warps(runner: KernelRunner) -> None:
    values = {"T": 1, "D": 64, "V": 5000, "C": 3}
    _, found, wanted = on_both(runner, "logits_f16", values, pos=[2], out_ids=[0])
    close(found[0], wanted[0])


@pytest.mark.parametrize("size", [1, 31, 1024, 5003])
def test_argmax(runner: KernelRunner, size: int) -> None:
    logits = normal(size, (size,))
    logits[[size // 3, size // 2, size - 1]] = 9.0  # the first of equals
    for given in (logits, np.full(size, -np.inf), np.full(size, np.nan), -np.abs(logits)):
        _, (found,), (wanted,) = on_both(runner, "argmax", {"V": size}, logits=given)
        assert found[0] == wanted[0]


def test_argmax_passes_over_nan(runner: KernelRunner) -> None:
    logits = np.full(2000, np.nan)
    logits[1500:] = -np.inf
    for last, expected in ((-np.inf, 1500), (-3.0, 1999)):
        logits[1999] = last
        _, (found,), (wanted,) = on_both(runner, "argmax", {"V": 2000}, logits=logits)
        assert found[0] == wanted[0] == expected


# ------------------------------------------------------------------------------ the same bits


def run_rows(
    runner: KernelRunner, kernel: str, values: dict[str, Any], arrays: list[Array], t: int
) -> list[Array]:
    """Run token `t` of a micro-batch alone; return all arguments."""
    alone, _ = make(kernel, {**values, "T": 1})
    parts = [
        array[t : t + 1].copy() if argument.shape[0] == "T" else array.copy()
        for argument, array in zip(alone.kernel.arguments, arrays, strict=True)
    ]
    assert runner.run(alone, parts) is None
    return parts


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "kernel",
    ["qkv_f16", "qkv_f32", "project_f16", "project_f32", "gate_up_f16", "gate_up_f32", "attention"],
)
def test_a_token_gets_the_same_bits_alone_and_among_eight(
    runner: KernelRunner, kernel: str, shape: str
) -> None:
    values = {**SHAPES[shape], "T": 8, "K": SHAPES[shape]["F"]}
    inputs = rope_inputs(8, values["C"]) if kernel[0] == "q" else {}
    mask = {"mask": causal_mask(8, values["C"], 5)} if kernel == "attention" else {}
    instance, batch = make(kernel, values, **inputs, **mask)
    fresh = [array.copy() for array in batch]
    assert runner.run(instance, batch) is None
    for t in (0, 7):
        parts = run_rows(runner, kernel, values, fresh, t)
        for argument, part, whole in zip(instance.kernel.arguments, parts, batch, strict=True):
            if not argument.write:
                continue
            if argument.shape[0] == "T":
                same(part[0], whole[t])
            else:
                row = int(inputs["k_idxs" if argument.name == "k_cache" else "v_idxs"][t])
                same(part[row], whole[row])


@pytest.mark.parametrize("kernel", ["qkv_f16", "project_f16", "gate_up_f32", "logits_f16"])
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_the_number_of_blocks_does_not_show(
    runner: KernelRunner, kernel: str, n_tokens: int
) -> None:
    values = {**SHAPES["wide"], "T": n_tokens, "K": 1500}
    inputs = rope_inputs(n_tokens, values["C"])
    given = {**inputs, "out_ids": [0]} if kernel[0] == "l" else inputs if kernel[0] == "q" else {}
    instance, arrays = make(kernel, values, **given)
    shape = launch_shape(instance)
    outs = []
    for row_blocks in (shape.grid[1], 1, 3):
        grid = (shape.grid[0], row_blocks, 1)
        copies = [array.copy() for array in arrays]
        other = LaunchShape(grid, shape.block, shape.shared_nbytes)
        assert runner.run(instance, copies, shape=other) is None
        outs.append(b"".join(array.tobytes() for array in copies))
    assert outs[0] == outs[1] == outs[2]


def test_runs_are_equal(runner: KernelRunner) -> None:
    values = {"T": 1, "H": 6, "G": 6, "S": 48, "C": 1000}
    instance, arrays = make("attention", values, mask=causal_mask(1, 1000, 998))
    outs = set()
    for _ in range(20):
        assert runner.run(instance, arrays) is None
        outs.add(arrays[-1].tobytes())
    assert len(outs) == 1


# ------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("kernel", "argument", "value"),
    [
        ("qkv_f16", "pos", -1),
        ("qkv_f32", "pos", 61),
        ("qkv_f32", "k_idxs", 982347234),
        ("qkv_f16", "v_idxs", -(1 << 40)),
        ("logits_f16", "out_ids", 9),
        ("logits_f32", "out_ids", -1),
        ("logits_f32", "pos", 61),
    ],
)
def test_an_index_out_of_range_is_reported_as_by_the_host(
    runner: KernelRunner, kernel: str, argument: str, value: int
) -> None:
    values = {**SHAPES["odd"], "T": 9}
    inputs: dict[str, Any] = {name: given.copy() for name, given in rope_inputs(9, 61).items()}
    if kernel[0] == "l":
        inputs = {"pos": inputs["pos"], "out_ids": np.array([8])}
    inputs[argument][-1] = value
    instance, arrays = make(kernel, values, **inputs)
    twins = [array.copy() for array in arrays]
    fault = runner.run(instance, arrays, slot=5)
    assert fault is not None
    with pytest.raises(KernelFault) as refused:
        run_instance(host_table([instance]), instance.name, twins)
    words = f"{FAULTS[fault.what]} {fault.value} outside {fault.low}..{fault.high}"
    assert words in str(refused.value)
    assert fault.kernel_slot == 5
    for record, found, twin in zip(instance.kernel.arguments, arrays, twins, strict=True):
        if record.write and kernel[0] == "l":
            same(found, twin)  # neither wrote anything
        elif record.name == "q":
            assert np.isnan(found[-1]).all()
            assert np.isfinite(found[:-1]).all()  # the other tokens are served


def test_the_first_fault_is_kept_and_the_next_run_works(runner: KernelRunner) -> None:
    values = {**SHAPES["odd"], "T": 3}
    inputs = rope_inputs(3, 61)
    instance, arrays = make("qkv_f32", values, **{**inputs, "pos": [77, 78, 79]})
    fault = runner.run(instance, arrays)
    assert fault is not None
    assert fault.value in (77, 78, 79)
    instance, arrays = make("qkv_f32", values, **inputs)
    assert runner.run(instance, arrays) is None


# ------------------------------------------------------------------------------ stamps


STAMPED = ("qkv_f16", "attention", "logits_f32", "argmax", "project_f16", "gate_up_f32")


def stamped(
    runner: KernelRunner, kernel: str, n_tokens: int = 1, **options: Any
) -> NDArray[np.int64]:
    """Run steps of a kernel on a ring of three; return all stamps."""
    values = {**SHAPES["15m"], "T": n_tokens, "K": 288}
    given: dict[str, dict[str, Any]] = {
        "qkv_f16": rope_inputs(n_tokens, 64),
        "attention": {"mask": causal_mask(n_tokens, 64, 40)},
        "logits_f32": {"pos": np.arange(n_tokens), "out_ids": [0]},
    }
    instance, arrays = make(kernel, values, **given.get(kernel, {}))
    fault, times = runner.run_steps(instance, arrays, 5, capacity=3, **options)
    assert fault is None
    return times.astype(np.int64)


ORDER = (1, 2, 0, 3)
"""Where steps 1 to 4 of five lie: in a ring of three, the last one behind it."""


@pytest.mark.parametrize(("slot", "n_slots"), [(0, 1), (1, 4), (600, 700)])
@pytest.mark.parametrize("n_tokens", [1, 17])
@pytest.mark.parametrize("kernel", STAMPED)
def test_stamps_go_to_the_row_of_the_step(
    runner: KernelRunner, kernel: str, n_tokens: int, slot: int, n_slots: int
) -> None:
    times = stamped(runner, kernel, n_tokens, slot=slot, n_slots=n_slots)
    begin, end = times[ORDER, slot, 0], times[ORDER, slot, 1]
    assert (begin > 0).all()
    assert (end >= begin).all()
    assert (begin[1:] >= end[:-1]).all()  # some GPUs' timers have long ticks
    times[:, slot] = 0
    assert not times.any()


def test_a_step_without_a_launch_leaves_zeros(runner: KernelRunner) -> None:
    for skipped in ({2}, {3}, {4}, {1, 4}):
        times = stamped(runner, "project_f16", slot=2, n_slots=3, skipped=skipped)
        ran = [bool(row.all()) for row in times[ORDER, 2]]
        assert ran == [step not in skipped for step in range(1, 5)]
        assert not times[ORDER, 2][np.logical_not(ran)].any()
