"""What each kernel is called with: name, type, shape and access of every argument.

Shapes are written in uniform letters: T tokens of a micro-batch, D hidden size, H heads, G key and
value heads, S head size, F feed-forward size, V vocabulary, C rows of the KV cache, K columns of a
projection, N capacity of the token list.  An `Instance` is a kernel with numbers for its letters;
its name is what ops and kernel tables use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from syncscope.sched_core.errors import UsageError

ITEM_SIZE: Mapping[str, int] = {"f16": 2, "f32": 4, "i32": 4, "i64": 8}
"""Bytes of one element of each type."""

LIMITS: Mapping[str, tuple[int, int]] = {
    "T": (1, 8192),
    "D": (1, 8192),
    "H": (1, 8192),
    "G": (1, 8192),
    "S": (2, 256),
    "F": (1, 8192),
    "K": (1, 8192),
    "C": (1, 8192),
    "V": (1, 1 << 24),
    "N": (1, 1 << 24),
    "pairing": (0, 1),
    "top_k": (0, 1 << 24),
    "seed": (0, (1 << 53) - 1),
}
"""Least and greatest value of each letter; the host twins' scratch on the stack depends on them.
Parameters are kept as float64, which holds a seed of 53 bits."""

FLOAT_LIMITS: Mapping[str, tuple[float, float]] = {
    "eps": (0.0, 1.0),
    "theta": (1.0, 1e12),
    "temperature": (1e-4, 1e4),
    "top_p": (1e-6, 1.0),
}
"""Least and greatest value of each parameter that is no whole number."""


def parameter_type(name: str) -> str:
    """Return the type in which device functions take a parameter: ``i32``, ``f32`` or ``u64``."""
    return "f32" if name in FLOAT_LIMITS else "u64" if name == "seed" else "i32"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel.

    Parameters
    ----------
    name : str
    dtype : str
        ``f16``, ``f32``, ``i32`` or ``i64``.
    shape : tuple of str
        Letters, products of letters such as ``H*S``, or ``1``.
    write : bool
    moved : tuple of str
        Shape of the part that one run reads or writes: rows of a table, of the KV cache, ...
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    write: bool
    moved: tuple[str, ...]

    def dimensions(self, values: Mapping[str, float]) -> tuple[int, ...]:
        """Return the shape in numbers."""
        return tuple(_product(term, values) for term in self.shape)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's signature.

    Parameters
    ----------
    name : str
    arguments : tuple of Argument
        In the order in which the host and device functions take them.
    parameters : tuple of str
        Letters and constants, in the order in which the functions take them.
    work : str
        Multiply-adds of one run: a sum of products such as ``T*K*D``; ``0`` if it only moves data.
    """

    name: str
    arguments: tuple[Argument, ...]
    parameters: tuple[str, ...]
    work: str

    def instance(self, **values: float) -> Instance:
        """Return this kernel with numbers for its parameters.

        Raises
        ------
        UsageError
            If a parameter is missing, unknown or out of its limits.
        """
        if set(values) != set(self.parameters):
            wanted, given = ", ".join(self.parameters), ", ".join(values)
            raise UsageError(f"kernel {self.name} takes {wanted}; given: {given or 'nothing'}")
        checked = tuple(_check(self.name, name, values[name]) for name in self.parameters)
        _check_heads(self.name, dict(zip(self.parameters, checked, strict=True)))
        return Instance(self, checked)


@dataclass(frozen=True, slots=True)
class Instance:
    """A kernel of one shape; `params` are the numbers of ``kernel.parameters``, in order."""

    kernel: Kernel
    params: tuple[float, ...]

    @property
    def values(self) -> dict[str, float]:
        """The number of each parameter."""
        return dict(zip(self.kernel.parameters, self.params, strict=True))

    @property
    def name(self) -> str:
        """A readable name, unique among instances: ``argmax(V=512)``."""
        return f"{self.kernel.name}({','.join(f'{k}={v!r}' for k, v in self.values.items())})"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each argument."""
        values = self.values
        return tuple(argument.dimensions(values) for argument in self.kernel.arguments)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """The size of each argument."""
        return tuple(
            ITEM_SIZE[argument.dtype] * prod(shape)
            for argument, shape in zip(self.kernel.arguments, self.shapes, strict=True)
        )

    @property
    def moved(self) -> float:
        """Bytes that one run reads and writes; gathered tables count by their rows."""
        values = self.values
        return float(
            sum(
                ITEM_SIZE[argument.dtype] * prod(_product(term, values) for term in argument.moved)
                for argument in self.kernel.arguments
            )
        )

    @property
    def work(self) -> float:
        """Multiply-adds of one run."""
        values = self.values
        return float(sum(_product(term, values) for term in self.kernel.work.split("+")))


def _product(term: str, values: Mapping[str, float]) -> int:
    """Return the value of a product of letters and whole numbers."""
    return prod(int(f) if f.isdigit() else int(values[f]) for f in term.split("*"))


def _check(kernel: str, name: str, value: float) -> float:
    """Return a parameter's value as it is stored; UsageError if it is out of its limits."""
    if name in FLOAT_LIMITS:
        least, greatest = FLOAT_LIMITS[name]
        if not least <= value <= greatest:
            raise UsageError(f"kernel {kernel}: {name}={value!r} outside {least}..{greatest}")
        return float(value)
    low, high = LIMITS[name]
    if int(value) != value or not low <= value <= high:
        raise UsageError(f"kernel {kernel}: {name}={value!r} is no whole number in {low}..{high}")
    return int(value)


def _check_heads(kernel: str, values: Mapping[str, float]) -> None:
    """Raise UsageError unless heads divide into groups and a head into pairs."""
    if "H" not in values:
        return
    heads, groups, size = values["H"], values["G"], values["S"]
    if heads % groups:
        raise UsageError(f"kernel {kernel}: {heads} heads (H) are no multiple of {groups} (G)")
    if size % 2:
        raise UsageError(f"kernel {kernel}: head size S={size} is odd; RoPE needs pairs")


_ARGUMENT = re.compile(r"(\w+) ([rw]) (\w+)\[([^]]+)\](?: moves \[([^]]+)\])?")


def _kernel(name: str, parameters: str, work: str, *arguments: str) -> Kernel:
    """Return a kernel from its arguments, ``name r|w type[shape]`` or ``... moves [shape]``."""
    records = []
    for text in arguments:
        match = _ARGUMENT.fullmatch(text)
        if match is None:
            raise ValueError(f"kernel {name}: argument {text!r} is not 'name r|w type[shape]'")
        argument, access, dtype, shape, part = match.groups()
        whole = tuple(shape.split(","))
        moved = tuple(part.split(",")) if part else whole
        records.append(Argument(argument, dtype, whole, access == "w", moved))
    return Kernel(name, tuple(records), tuple(parameters.split()), work)


def _weighted(dtype: str) -> tuple[Kernel, ...]:
    """Return the kernels that read weights, for weights of one type."""
    return (
        _kernel(
            f"embed_rows_{dtype}", "T D V N", "0",
            "tokens r i32[N] moves [T]", "cursor r i64[1]",
            f"table r {dtype}[V,D] moves [T,D]",
            "embd w f32[T,D]", "cursor_out w i64[1]",
        ),
        _kernel(
            f"qkv_{dtype}", "T D H G S C eps theta pairing", "T*D*H*S+2*T*D*G*S",
            "x r f32[T,D]", f"norm r {dtype}[D]",
            f"wq r {dtype}[H*S,D]", f"wk r {dtype}[G*S,D]", f"wv r {dtype}[G*S,D]",
            "pos r i32[T]", "k_idxs r i64[T]", "v_idxs r i64[T]",
            "q w f32[T,H*S]",
            "k_cache w f32[C,G*S] moves [T,G*S]", "v_cache w f32[C,G*S] moves [T,G*S]",
        ),
        _kernel(
            f"project_{dtype}", "T K D", "T*K*D",
            "a r f32[T,K]", f"w r {dtype}[D,K]", "residual r f32[T,D]", "out w f32[T,D]",
        ),
        _kernel(
            f"gate_up_{dtype}", "T D F eps", "2*T*D*F",
            "x r f32[T,D]", f"norm r {dtype}[D]",
            f"w_gate r {dtype}[F,D]", f"w_up r {dtype}[F,D]", "h w f32[T,F]",
        ),
        _kernel(
            f"logits_{dtype}", "T D V C eps", "D*V",
            "x r f32[T,D] moves [D]", "out_ids r i32[1]", "pos r i32[T] moves [1]",
            f"norm r {dtype}[D]", f"w r {dtype}[V,D]", "logits w f32[V]",
            "tap w f32[C,V] moves [V]",
        ),
    )  # fmt: skip


KERNELS: Mapping[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _kernel("write_positions", "T", "0", "cursor r i64[1]", "pos w i32[T]"),
        _kernel("write_kv_indices", "T C", "0", "cursor r i64[1]", "idxs w i64[T]"),
        _kernel("write_mask", "T C", "0", "cursor r i64[1]", "mask w f16[T,C]"),
        _kernel("write_out_ids", "T", "0", "out_ids w i32[1]"),
        _kernel(
            "attention", "T H G S C", "2*T*H*S*C",
            "q r f32[T,H*S]", "k_cache r f32[C,G*S]", "v_cache r f32[C,G*S]",
            "mask r f16[T,C]", "out w f32[T,H*S]",
        ),
        _kernel("argmax", "V", "0", "logits r f32[V]", "token w i32[1]"),
        _kernel(
            "sample", "T V temperature top_k top_p seed", "0",
            "logits r f32[V]", "pos r i32[T] moves [1]", "token w i32[1]",
        ),
        _kernel(
            "accept_token", "V N", "0",
            "token r i32[1]", "cursor r i64[1]", "tokens w i32[N] moves [1]",
        ),
        *_weighted("f16"),
        *_weighted("f32"),
    )
}  # fmt: skip
"""Every kernel by name."""

_NAME = re.compile(r"(\w+)\(([^()]*)\)")


def parse_instance(name: str) -> Instance:
    """Return the instance of a name, such as ``argmax(V=512)``.

    Raises
    ------
    UsageError
        If no kernel's instance has that name.
    """
    match = _NAME.fullmatch(name)
    kernel = KERNELS.get(match[1]) if match else None
    try:
        if match is None or kernel is None:
            raise ValueError
        pairs = (part.partition("=") for part in match[2].split(","))
        return kernel.instance(**{key: float(value) for key, _, value in pairs})
    except (ValueError, OverflowError):
        raise UsageError(f"{name[:80]!r} is no kernel instance of this version") from None
