"""An independent draw of a token: sorted lists and whole numbers of Python, no radix, no masks."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncscope.kernels.host import host_table, run_instance
from syncscope.kernels.signature import KERNELS, Instance

Array = NDArray[Any]
F32 = np.float32
ONE = 1 << 39
BITS_64 = (1 << 64) - 1
DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}


def exp_f32(x: Array) -> Array:
    """The kernels' exponential for x in [-87, 0], each operation rounded to a float32."""
    shifted = x * F32(1.44269504) + F32(12582912.0)
    whole = shifted - F32(12582912.0)
    r = (x - whole * F32(0.693359375)) - whole * F32(-2.12194440e-4)
    p = np.full_like(r, F32(1.9875691500e-4))
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1):
        p = p * r + F32(factor)
    p = p * r + F32(5.0000001201e-1)
    p = p * (r * r) + r + F32(1.0)
    return np.ldexp(p, whole.astype(np.int32)).astype(F32)


def weights(logits: Array, temperature: float) -> list[int]:
    """Whole weights of logits; NaN has none.  There must be a number."""
    top = np.nanmax(logits)
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.where(logits == top, F32(0), (logits - top) / F32(temperature))
    seen = x > -87  # below, exp(x) * ONE is less than 1, far above -87 already
    parts = exp_f32(np.where(seen, x, F32(0))).astype(np.float64) * ONE
    return [int(part) if ok else 0 for part, ok in zip(parts.tolist(), seen.tolist(), strict=True)]


def mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & BITS_64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & BITS_64
    return z ^ z >> 31


def random_bits(seed: int, position: int) -> int:
    """Number `position` of SplitMix64 from the start that a seed gives."""
    step = 0x9E3779B97F4A7C15
    start = mix((seed + step) & BITS_64)
    return mix((start + (position + 1) * step) & BITS_64)


def kept(logits: Array, masses: list[int], top_k: int, top_p: float) -> list[int]:
    """Numbers of the tokens that top-k and top-p leave, in order."""
    order = sorted(np.flatnonzero(~np.isnan(logits)).tolist(), key=lambda i: (-logits[i], i))
    order = order[:top_k] if top_k else order
    if F32(top_p) < 1:
        wanted = Fraction(float(F32(top_p))) * sum(masses[i] for i in order)
        mass, n = 0, 0
        while mass < wanted:
            mass += masses[order[n]]
            n += 1
        order = order[:n]
    return sorted(order)


def expected_token(
    logits: Array, pos: Sequence[int], temperature: float, top_k: int, top_p: float, seed: int
) -> int:
    """The token that has to be drawn after the last position of a micro-batch."""
    if np.isnan(logits).all():
        return 0
    masses = weights(logits, temperature)
    tokens = kept(logits, masses, top_k, top_p)
    left = random_bits(seed, pos[-1] + 1) * sum(masses[i] for i in tokens) >> 64
    for token in tokens:
        if left < masses[token]:
            return token
        left -= masses[token]
    raise AssertionError("the masses do not add up to their sum")


def sample_instance(n_tokens: int, n_logits: int, **changed: float) -> Instance:
    return KERNELS["sample"].instance(T=n_tokens, V=n_logits, **{**DEFAULTS, **changed})


def host_token(logits: Array, pos: Sequence[int], **changed: float) -> int:
    """The token that the host kernel draws."""
    instance = sample_instance(len(pos), len(logits), **changed)
    token = np.full(1, -7, np.int32)
    arrays = [np.asarray(logits, F32), np.array(pos, np.int32), token]
    run_instance(host_table([instance]), instance.name, arrays)
    return int(token[0])


def awkward_logits(kind: str, size: int, seed: int) -> Array:
    """Logits that are hard to draw from, each kind in its own way."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=size)
    if kind == "wide":
        values *= 40
    elif kind == "ties":
        values = np.round(values * 2)
    elif kind == "equal":
        values[:] = -3.25
    elif kind == "rising":
        values = np.arange(size) * 0.01
    elif kind == "extreme":
        values = rng.choice([3.4e38, -3.4e38, 1e-45, -1e-45, 0.0, -0.0, 1.0], size)
    elif kind == "holes":
        values[rng.random(size) < 0.4] = np.nan
        values[rng.random(size) < 0.3] = -np.inf
    elif kind == "infinite":
        values[rng.random(size) < 0.2] = np.inf
        values[rng.random(size) < 0.2] = -np.inf
    elif kind == "none":
        values[:] = np.nan
    elif kind == "least":
        values[:] = -np.inf
        values[size // 2] = np.nan
    return values.astype(F32)


KINDS = (
    "normal", "wide", "ties", "equal", "rising", "extreme", "holes", "infinite", "none", "least",
)  # fmt: skip
"""Of `awkward_logits`."""


def settings(size: int) -> list[dict[str, float]]:
    """Parameters that between them reach every branch, for `size` logits."""
    most = max(size - 1, 1)
    return [
        {},
        {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "seed": 1},
        {"temperature": 1e-4, "seed": 2},
        {"temperature": 1e4, "top_p": 0.5, "seed": 3},
        {"temperature": 2.0, "top_k": 1, "seed": 4},
        {"top_k": most, "seed": (1 << 53) - 1},
        {"top_k": size, "top_p": 0.9, "seed": 6},
        {"top_k": size + 1, "seed": 7},
        {"top_p": 1e-6, "seed": 8},
        {"top_k": most // 2 + 1, "top_p": 0.999, "seed": 9},
    ]
