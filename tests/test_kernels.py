"""Each host kernel against a plain float64 computation of what it should do."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from syncscope.kernels.host import FUNCTIONS, host_table, run_instance, select_lanes
from syncscope.kernels.signature import KERNELS
from syncscope.kernels.weights import DTYPES
from syncscope.kernels.work import work_of
from syncscope.sched_core.errors import KernelFault, UsageError

Array = NDArray[Any]
TYPES = {**DTYPES, "i32": np.int32, "i64": np.int64}
ROPE = {"eps": 1e-5, "theta": 10000.0}
STORIES = {"D": 64, "H": 8, "G": 4, "S": 8, "F": 172, "V": 512}
ODD = {"D": 45, "H": 6, "G": 3, "S": 10, "F": 37, "V": 97}
WIDE = {"D": 288, "H": 6, "G": 2, "S": 48, "F": 100, "V": 61}


@pytest.fixture(params=[False, True], ids=["baseline", "wide"], autouse=True)
def lanes(request: pytest.FixtureRequest) -> Iterator[None]:
    select_lanes(request.param)
    yield
    select_lanes(True)


def run(
    kernel: str, values: dict[str, Any], **given: Array | list[int] | list[float]
) -> list[Array]:
    """Run a kernel on arrays by argument name; return what it wrote, in order of the arguments."""
    instance = KERNELS[kernel].instance(**values)
    arrays: list[Array] = []
    for argument, shape in zip(instance.kernel.arguments, instance.shapes, strict=True):
        array: Array = np.zeros(shape, TYPES[argument.dtype])
        if argument.name in given:
            value = np.asarray(given[argument.name])
            array = np.array(np.broadcast_to(value, shape), TYPES[argument.dtype])
        arrays.append(array)
    run_instance(host_table([instance]), instance.name, arrays)
    written = zip(instance.kernel.arguments, arrays, strict=True)
    return [array for argument, array in written if argument.write]


def normal(seed: int, *shape: int, dtype: str = "f32", scale: float = 1.0) -> Array:
    values = np.random.default_rng(seed).normal(size=shape) * scale
    return values.astype(TYPES[dtype])


def rms_norm(x: Array, norm: Array, eps: float) -> Array:
    x = x.astype(np.float64)
    scaled: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    return scaled * norm.astype(np.float64)


def rotate(x: Array, pos: Array, theta: float, pairing: int) -> Array:
    """Turn each pair of each head; x is [T, heads, S]."""
    size = x.shape[-1]
    pairs = np.arange(size // 2)
    first, second = (2 * pairs, 2 * pairs + 1) if pairing else (pairs, pairs + size // 2)
    angle = pos[:, None] * theta ** (-2.0 * pairs / size)
    cosine, sine = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    out = np.empty_like(x)
    out[..., first] = x[..., first] * cosine - x[..., second] * sine
    out[..., second] = x[..., first] * sine + x[..., second] * cosine
    return out


def close(found: Array, wanted: Array, tolerance: float = 2e-6) -> None:
    scale = np.abs(wanted).max() + 1e-30
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


def pick(shape: dict[str, Any], letters: str) -> dict[str, Any]:
    return {letter: shape[letter] for letter in letters}


# ------------------------------------------------------------------------------ the table


def test_every_kernel_has_a_host_twin() -> None:
    assert set(FUNCTIONS) == set(KERNELS)


def test_table_knows_instances_by_name_with_their_work() -> None:
    instance = KERNELS["argmax"].instance(V=5)
    table = host_table([instance, instance])
    assert len(table) == 1
    assert table.work == {"argmax(V=5)": work_of(instance)}
    with pytest.raises(UsageError, match=r"argmax\(V=6\)"):
        table.position("argmax(V=6)")


# ------------------------------------------------------------------------------ host inputs


def test_writers_write_what_the_cursor_says() -> None:
    (pos,) = run("write_positions", {"T": 3}, cursor=[5])
    assert pos.tolist() == [5, 6, 7]
    (idxs,) = run("write_kv_indices", {"T": 3, "C": 8}, cursor=[5])
    assert idxs.tolist() == [5, 6, 7]
    (out_ids,) = run("write_out_ids", {"T": 3})
    assert out_ids.tolist() == [2]
    (mask,) = run("write_mask", {"T": 2, "C": 6}, cursor=[3])
    inf = float("inf")
    assert mask.tolist() == [[0, 0, 0, 0, -inf, -inf], [0, 0, 0, 0, 0, -inf]]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_embedding_takes_rows_and_moves_the_cursor(dtype: str) -> None:
    table = normal(1, 11, 7, dtype=dtype)
    embd, cursor = run(
        f"embed_rows_{dtype}", {"T": 2, "D": 7, "V": 11, "N": 5},
        tokens=[9, 8, 10, 0, 3], cursor=[2], table=table,
    )  # fmt: skip
    assert (embd == table[[10, 0]].astype(np.float32)).all()
    assert cursor.tolist() == [4]


def test_every_half_becomes_its_float() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves = bits.view(np.float16).reshape(256, 256)
    embd, _ = run(
        "embed_rows_f16", {"T": 256, "D": 256, "V": 256, "N": 256},
        tokens=list(range(256)), table=halves,
    )  # fmt: skip
    wanted = halves.astype(np.float32)
    assert (np.isnan(embd) == np.isnan(wanted)).all()
    number = ~np.isnan(wanted)
    assert (embd[number].view(np.uint32) == wanted[number].view(np.uint32)).all()


@pytest.mark.parametrize("n_tokens", [1, 2])
def test_every_half_is_exact_as_a_weight(n_tokens: int) -> None:
    bits = np.arange(1 << 15, dtype=np.uint16)
    halves = bits.view(np.float16)[: 31 << 10].reshape(-1, 128)  # finite ones, subnormals first
    columns = np.concatenate([np.eye(128, dtype=np.float32)] * n_tokens)
    for row in (columns[:n_tokens], columns[77 : 77 + n_tokens]):
        (out,) = run("project_f16", {"T": n_tokens, "K": 128, "D": len(halves)}, a=row, w=halves)
        assert (out == row @ halves.astype(np.float32).T).all()
        assert (out[0] != 0).any()


# ------------------------------------------------------------------------------ model


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("pairing", [0, 1])
@pytest.mark.parametrize("shape", [STORIES, ODD, WIDE], ids=["stories", "odd", "wide"])
def test_qkv(shape: dict[str, int], pairing: int, dtype: str) -> None:
    D, H, G, S = (shape[letter] for letter in "DHGS")
    T, C = 5, 40
    given: dict[str, Any] = {
        "x": normal(1, T, D),
        "norm": normal(2, D, dtype=dtype),
        "wq": normal(3, H * S, D, dtype=dtype),
        "wk": normal(4, G * S, D, dtype=dtype),
        "wv": normal(5, G * S, D, dtype=dtype),
        "pos": [0, 3, 39, 7, 8],
        "k_idxs": [4, 0, 1, 30, 9],
        "v_idxs": [3, 2, 1, 39, 5],
        "k_cache": normal(6, C, G * S),
        "v_cache": normal(7, C, G * S),
    }
    values = {"T": T, "C": C, "pairing": pairing, **pick(shape, "DHGS"), **ROPE}
    q, k_cache, v_cache = run(f"qkv_{dtype}", values, **given)
    normed = rms_norm(given["x"], given["norm"], 1e-5)
    wide = {name: given[name].astype(np.float64) for name in ("wq", "wk", "wv")}
    pos = np.array(given["pos"])
    wanted_q = rotate((normed @ wide["wq"].T).reshape(T, H, S), pos, 1e4, pairing)
    wanted_k = rotate((normed @ wide["wk"].T).reshape(T, G, S), pos, 1e4, pairing)
    close(q, wanted_q.reshape(T, -1))
    wanted_cache = given["k_cache"].astype(np.float64)
    wanted_cache[given["k_idxs"]] = wanted_k.reshape(T, -1)
    close(k_cache, wanted_cache)
    wanted_cache = given["v_cache"].astype(np.float64)
    wanted_cache[given["v_idxs"]] = normed @ wide["wv"].T
    close(v_cache, wanted_cache)


@pytest.mark.parametrize("theta", [1.0, 10000.0, 500000.0])
def test_rotation_is_exact_at_far_positions(theta: float) -> None:
    pos = np.array([0, 1, 4095, 8191])
    values = {"T": 4, "D": 32, "H": 1, "G": 1, "S": 32, "C": 8192, "pairing": 0}
    x = np.ones((4, 32))
    q, *_ = run(
        "qkv_f32", {**values, "eps": 0.0, "theta": theta},
        x=x, norm=[1], wq=np.eye(32), pos=pos.tolist(),
    )  # fmt: skip
    np.testing.assert_allclose(q, rotate(x[:, None, :], pos, theta, 0)[:, 0], rtol=0, atol=3e-7)


@pytest.mark.parametrize("shape", [STORIES, ODD, WIDE], ids=["stories", "odd", "wide"])
def test_attention(shape: dict[str, int]) -> None:
    H, G, S = (shape[letter] for letter in "HGS")
    T, C = 4, 53
    q, k, v = normal(1, T, H * S), normal(2, C, G * S), normal(3, C, G * S)
    mask = np.zeros((T, C))
    mask[0, 1:] = -np.inf
    mask[1, ::2] = -np.inf
    mask[2] = normal(4, C, dtype="f16")
    mask[3] = -np.inf
    mask[:, 52] = -np.inf
    k[52] = v[52] = np.nan  # what is masked is not read
    (out,) = run(
        "attention", {"T": T, "C": C, **pick(shape, "HGS")},
        q=q, k_cache=k, v_cache=v, mask=mask,
    )  # fmt: skip
    heads = q.reshape(T, H, S).astype(np.float64)
    for t in range(3):
        seen = np.flatnonzero(mask[t] != -np.inf)
        for h in range(H):
            group = slice(h // (H // G) * S, (h // (H // G) + 1) * S)
            score = k[seen, group].astype(np.float64) @ heads[t, h] / np.sqrt(S) + mask[t, seen]
            weight = np.exp(score - score.max())
            close(out[t, h * S : (h + 1) * S], weight @ v[seen, group] / weight.sum(), 4e-6)
    assert (out[3] == 0).all()


def test_attention_does_not_depend_on_the_size_of_the_cache() -> None:
    values = {"T": 1, "H": 2, "G": 1, "S": 12}
    q, k, v = normal(1, 1, 24), normal(2, 100, 12), normal(3, 100, 12)
    results = set()
    for C in (37, 100):
        mask = np.where(np.arange(C) < 37, 0, -np.inf)
        (out,) = run("attention", {**values, "C": C}, q=q, k_cache=k[:C], v_cache=v[:C], mask=mask)
        results.add(out.tobytes())
    assert len(results) == 1


def test_attention_survives_huge_scores() -> None:
    q, k = np.full((1, 8), 1e4), np.full((3, 8), 1e4)
    k[1] *= -1
    v = np.arange(24).reshape(3, 8)
    (out,) = run(
        "attention", {"T": 1, "H": 1, "G": 1, "S": 8, "C": 3},
        q=q, k_cache=k, v_cache=v, mask=[0],
    )  # fmt: skip
    close(out[0], (v[0] + v[2]) / 2)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("K", [1, 31, 32, 33, 172, 8192])
def test_project(K: int, dtype: str) -> None:
    a, w, residual = normal(1, 3, K), normal(2, 9, K, dtype=dtype), normal(3, 3, 9)
    (out,) = run(f"project_{dtype}", {"T": 3, "K": K, "D": 9}, a=a, w=w, residual=residual)
    close(out, residual + a.astype(np.float64) @ w.astype(np.float64).T)


def test_project_may_write_onto_its_residual() -> None:
    instance = KERNELS["project_f32"].instance(T=40, K=50, D=60)
    a, w, x = normal(1, 40, 50), normal(2, 60, 50), normal(3, 40, 60)
    apart = np.empty_like(x)
    table = host_table([instance])
    run_instance(table, instance.name, [a, w, x, apart])
    run_instance(table, instance.name, [a, w, x, x])
    assert (apart == x).all()


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("shape", [STORIES, ODD, WIDE], ids=["stories", "odd", "wide"])
def test_gate_up(shape: dict[str, int], dtype: str) -> None:
    D, F = shape["D"], shape["F"]
    x, norm = normal(1, 4, D), normal(2, D, dtype=dtype)
    w_gate, w_up = normal(3, F, D, dtype=dtype, scale=3), normal(4, F, D, dtype=dtype)
    (h,) = run(
        f"gate_up_{dtype}", {"T": 4, "D": D, "F": F, "eps": 1e-5},
        x=x, norm=norm, w_gate=w_gate, w_up=w_up,
    )  # fmt: skip
    normed = rms_norm(x, norm, 1e-5)
    gate, up = normed @ w_gate.astype(np.float64).T, normed @ w_up.astype(np.float64).T
    with np.errstate(over="ignore"):
        close(h, gate / (1 + np.exp(-gate)) * up)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("shape", [STORIES, ODD, WIDE], ids=["stories", "odd", "wide"])
def test_logits(shape: dict[str, int], dtype: str) -> None:
    D, V = shape["D"], shape["V"]
    x, norm, w = normal(1, 3, D), normal(2, D, dtype=dtype), normal(3, V, D, dtype=dtype)
    logits, tap = run(
        f"logits_{dtype}", {"T": 3, "D": D, "V": V, "C": 9, "eps": 1e-5},
        x=x, out_ids=[1], pos=[6, 7, 8], norm=norm, w=w,
    )  # fmt: skip
    close(logits, rms_norm(x[1], norm, 1e-5) @ w.astype(np.float64).T)
    assert (tap[7] == logits).all()
    assert not tap[[0, 1, 2, 3, 4, 5, 6, 8]].any()


# ------------------------------------------------------------------------------ after the step


@pytest.mark.parametrize(
    ("logits", "token"),
    [
        ([1, 3, 2, 3], 1),
        ([np.nan, -1, np.nan, -2], 1),
        ([np.nan, np.nan], 0),
        ([np.nan, -np.inf], 1),
        ([-np.inf, -np.inf], 0),
        ([0, np.inf, np.nan], 1),
    ],
)
def test_argmax(logits: list[float], token: int) -> None:
    (found,) = run("argmax", {"V": len(logits)}, logits=logits)
    assert found.tolist() == [token]


def test_accepted_token_lands_at_the_cursor() -> None:
    (tokens,) = run("accept_token", {"V": 9, "N": 4}, token=[8], cursor=[2], tokens=[5])
    assert tokens.tolist() == [5, 5, 8, 5]


# ------------------------------------------------------------------------------ same bits


def test_one_token_at_a_time_gives_the_same_bits_as_eight() -> None:
    for dtype in ("f16", "f32"):
        for shape in (STORIES, ODD, WIDE):
            D, F = shape["D"], shape["F"]
            x, norm = normal(1, 8, D), normal(2, D, dtype=dtype)
            given: dict[str, Any] = {
                "norm": norm,
                "w_gate": normal(3, F, D, dtype=dtype),
                "w_up": normal(4, F, D, dtype=dtype),
            }
            values = {"D": D, "F": F, "eps": 1e-5}
            (whole,) = run(f"gate_up_{dtype}", {"T": 8, **values}, x=x, **given)
            for t in range(8):
                (row,) = run(f"gate_up_{dtype}", {"T": 1, **values}, x=x[t], **given)
                assert (row[0] == whole[t]).all()


def test_baseline_and_wide_lanes_give_the_same_bits() -> None:
    if not select_lanes(True):
        pytest.skip("this processor has the baseline lanes alone")
    values = {"T": 3, "C": 40, "pairing": 0, **pick(ODD, "DHGS"), **ROPE}
    D, H, G, S = (ODD[letter] for letter in "DHGS")
    results = set()
    for wide in (False, True):
        assert select_lanes(wide) is wide
        q, k, v = run(
            "qkv_f16", values,
            x=normal(1, 3, D), norm=normal(2, D), wq=normal(3, H * S, D), wk=normal(4, G * S, D),
            wv=normal(5, G * S, D), pos=[3, 4, 5], k_idxs=[3, 4, 5], v_idxs=[3, 4, 5],
        )  # fmt: skip
        (out,) = run(
            "attention", {"T": 3, "C": 40, **pick(ODD, "HGS")},
            q=q, k_cache=normal(6, 40, G * S), v_cache=normal(7, 40, G * S),
            mask=normal(8, 3, 40, dtype="f16"),
        )  # fmt: skip
        results.add((q.tobytes(), k.tobytes(), v.tobytes(), out.tobytes()))
    assert len(results) == 1


# ------------------------------------------------------------------------------ faults

QKV = {"T": 2, "D": 8, "H": 2, "G": 1, "S": 4, "C": 16, "pairing": 0, **ROPE}
LOGITS = {"T": 2, "D": 8, "V": 5, "C": 16, "eps": 1e-5}
EMBED = {"T": 2, "D": 4, "V": 5, "N": 6}
HUGE = 982347234


@pytest.mark.parametrize(
    ("kernel", "values", "given", "line"),
    [
        ("write_positions", {"T": 2}, {"cursor": [-1]}, "cursor -1 outside 0..2147483645"),
        ("write_kv_indices", {"T": 2, "C": 8}, {"cursor": [7]}, "cursor 7 outside 0..6"),
        ("write_mask", {"T": 2, "C": 8}, {"cursor": [1 << 62]}, f"cursor {1 << 62} outside 0..6"),
        ("embed_rows_f16", EMBED, {"cursor": [5]}, "cursor 5 outside 0..4"),
        ("embed_rows_f16", EMBED, {"tokens": [0, HUGE, 0, 0, 0, 0]}, f"id {HUGE} outside 0..4"),
        ("embed_rows_f32", EMBED, {"tokens": [0, -7, 0, 0, 0, 0]}, "token id -7 outside 0..4"),
        ("qkv_f16", QKV, {"pos": [0, 16]}, "position 16 outside 0..15"),
        ("qkv_f16", QKV, {"k_idxs": [0, -1]}, "k_idxs row -1 outside 0..15"),
        ("qkv_f32", QKV, {"v_idxs": [1 << 40, 0]}, f"v_idxs row {1 << 40} outside 0..15"),
        ("logits_f16", LOGITS, {"out_ids": [2]}, "out_ids row 2 outside 0..1"),
        ("logits_f32", LOGITS, {"pos": [0, -1], "out_ids": [1]}, "position -1 outside 0..15"),
        ("accept_token", {"V": 5, "N": 6}, {"token": [5]}, "token id 5 outside 0..4"),
        ("accept_token", {"V": 5, "N": 6}, {"cursor": [6]}, "cursor 6 outside 0..5"),
    ],
)
def test_values_out_of_range_are_refused(
    kernel: str, values: dict[str, Any], given: dict[str, Any], line: str
) -> None:
    with pytest.raises(KernelFault) as fault:
        run(kernel, values, **given)
    assert line in str(fault.value)


def test_a_refusing_kernel_writes_nothing() -> None:
    instance = KERNELS["qkv_f32"].instance(**QKV)
    arrays: list[Array] = [
        np.ones(shape, TYPES[argument.dtype])
        for argument, shape in zip(instance.kernel.arguments, instance.shapes, strict=True)
    ]
    arrays[7][1] = 99
    with pytest.raises(KernelFault):
        run_instance(host_table([instance]), instance.name, arrays)
    assert all((array == 1).all() for array in arrays[8:])
