"""Weights of a model: read from a Hugging Face Llama checkpoint, or drawn at random."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from syncscope.kernels.signature import LIMITS
from syncscope.kernels.transformer import ModelConfig
from syncscope.sched_core.errors import FileError

MAX_CONTEXT = LIMITS["C"][1]

DTYPES: Mapping[str, type[np.floating[Any]]] = {"f16": np.float16, "f32": np.float32}

_FILE_DTYPES = {"F16": "f16", "F32": "f32"}

_KINDS = (
    (b"\x89PNG", "a PNG image"),
    (b"GGUF", "a GGUF file"),
    (b"PK\x03\x04", "a ZIP archive (perhaps a PyTorch checkpoint)"),
    (b"\x80\x02", "a pickle (perhaps a PyTorch checkpoint)"),
    (b"\x1f\x8b", "a gzip file"),
    (b"version https://git-lfs", "a Git LFS pointer (run: git lfs pull)"),
    (b'{"', "a JSON file"),
    (b"{\n", "a JSON file"),
    (b"<!", "an HTML page"),
)
"""How files that are often taken for a checkpoint begin."""

_MAX_CONFIG = 1 << 20
_MAX_LAYERS = 1024

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's configuration and its arrays, by the names that the graph uses.

    Arrays of a checkpoint are read-only and mapped from the file; a tied output matrix is the same
    array as the embedding table.
    """

    config: ModelConfig
    arrays: Mapping[str, NDArray[Any]]


# ------------------------------------------------------------------------------ checkpoints


def find_checkpoint(path: Path) -> Path:
    """Return the safetensors file that a path means: itself, or the one in the directory.

    Raises
    ------
    FileError
        If there is none, or more than one.
    """
    if not os.path.isdir(path):
        return path
    usual = path / "model.safetensors"
    if usual.exists():
        return usual
    found = sorted(path.glob("*.safetensors"))
    if not found:
        raise FileError(f"{path}: no .safetensors file here; name a directory that has one")
    if len(found) > 1:
        raise FileError(
            f"{path}: {len(found)} .safetensors files here; name the one to read "
            "(a model cut into several files is not read)"
        )
    return found[0]


def read_settings(checkpoint: Path) -> dict[str, Any]:
    """Return the contents of the ``config.json`` beside a checkpoint.

    Raises
    ------
    FileError
        If it is missing, too large or no JSON object.
    """
    path = checkpoint.parent / "config.json"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileError(f"{path}: no regular file; put the model's config.json there")
        with path.open("rb") as file:
            data = file.read(_MAX_CONFIG + 1)
        if len(data) > _MAX_CONFIG:
            raise FileError(f"{path}: over {_MAX_CONFIG} bytes, no model configuration")
        settings = json.loads(data.decode("utf-8"))
    except FileNotFoundError:
        raise FileError(
            f"{path}: missing; put the model's config.json beside {checkpoint.name}"
        ) from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise FileError(f"{path}: no valid JSON; get the model's config.json again") from None
    if not isinstance(settings, dict):
        raise FileError(f"{path}: no JSON object; get the model's config.json again")
    return settings


def read_config(settings: Mapping[str, Any], where: Path) -> ModelConfig:
    """Return the configuration of a Hugging Face Llama model; its type of weights is left f32.

    Raises
    ------
    FileError
        If the model is of another architecture or a value is missing or out of range.
    """
    kind = settings.get("model_type")
    if kind != "llama":
        raise FileError(f"{where}: model_type is {kind!r}; only 'llama' models are read")
    for key, wanted in (
        ("hidden_act", ("silu", None)),
        ("rope_scaling", (None,)),
        ("attention_bias", (False, None)),
        ("mlp_bias", (False, None)),
    ):
        if settings.get(key) not in wanted:
            raise FileError(f"{where}: {key} {settings[key]!r} is not supported; use another model")
    heads = _whole(settings, "num_attention_heads", LIMITS["H"], where)
    hidden = _whole(settings, "hidden_size", LIMITS["D"], where)
    groups = _whole(settings, "num_key_value_heads", LIMITS["G"], where, heads)
    head = _whole(settings, "head_dim", LIMITS["S"], where, hidden // heads)
    if heads % groups or head % 2 or heads * head > LIMITS["K"][1]:
        raise FileError(
            f"{where}: {heads} heads of size {head} in {groups} groups do not fit; "
            "correct the file or use another model"
        )
    rope = settings.get("rope_parameters") or {}  # where newer files keep the base
    if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default":
        raise FileError(f"{where}: rope_parameters {rope!r} is not supported; use another model")
    longest = _whole(settings, "max_position_embeddings", (1, 1 << 30), where)
    return ModelConfig(
        n_layers=_whole(settings, "num_hidden_layers", (1, _MAX_LAYERS), where),
        D=hidden,
        H=heads,
        G=groups,
        S=head,
        F=_whole(settings, "intermediate_size", LIMITS["F"], where),
        V=_whole(settings, "vocab_size", LIMITS["V"], where),
        context=min(longest, MAX_CONTEXT),
        eps=_real(settings, "rms_norm_eps", (0.0, 1.0), where, 1e-6),
        theta=_real({**rope, **settings}, "rope_theta", (1.0, 1e12), where, 10000.0),
        pairing=0,
        dtype="f32",
        tied=bool(settings.get("tie_word_embeddings", False)),
    )


def _whole(
    settings: Mapping[str, Any], key: str, limits: tuple[int, int], where: Path, default: int = -1
) -> int:
    """Return a whole number of the configuration, `default` if it is absent or null."""
    value = settings.get(key)
    if value is None:
        value = default
        if value < 0:
            raise FileError(f"{where}: {key} is missing; get the model's config.json again")
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise FileError(f"{where}: {key} {value!r} is no whole number in {low}..{high}")
    return value


def _real(
    settings: Mapping[str, Any],
    key: str,
    limits: tuple[float, float],
    where: Path,
    default: float,
) -> float:
    """Return a number of the configuration, `default` if it is absent or null."""
    value = settings.get(key)
    if value is None:
        value = default
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise FileError(f"{where}: {key} {value!r} is no number in {low}..{high}")
    return float(value)


def checkpoint_name(name: str) -> str:
    """Return the name that a Hugging Face checkpoint gives a weight of the graph."""
    if name.startswith("blk."):
        _, layer, part, _ = name.split(".")
        return f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"
    return {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }[name]


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A checked checkpoint: where each weight of the graph lies in which file."""

    path: Path
    config: ModelConfig
    ranges: Mapping[str, tuple[int, int]]


def _open_checkpoint(path: Path) -> _Checkpoint:
    """Return a checkpoint after checking everything but its numbers."""
    path = find_checkpoint(path)
    header, start = _read_header(path)
    config = read_config(read_settings(path), path.parent / "config.json")
    source = {name: checkpoint_name(name) for name in config.weight_shapes()}
    if config.tied:
        source["output.weight"] = source["token_embd.weight"]
    dtype = _check_tensors(config, source, header, path)
    ranges = {}
    for name, stored in source.items():
        begin, end = header[stored]["data_offsets"]
        ranges[name] = (start + begin, start + end)
    return _Checkpoint(path, replace(config, dtype=dtype), ranges)


def checkpoint_config(path: str | Path) -> ModelConfig:
    """Return the configuration of a checkpoint, read as `read_weights` does, without its arrays."""
    return _open_checkpoint(Path(path)).config


def read_weights(path: str | Path) -> Weights:
    """Return the weights of a Llama checkpoint in safetensors form.

    Parameters
    ----------
    path : path
        A .safetensors file with its ``config.json`` beside it, or the directory of both.

    Raises
    ------
    FileError
        If a file is missing, unreadable, truncated, of another kind or architecture, or lacks
        a tensor or has one of another shape or type.
    """
    checkpoint = _open_checkpoint(Path(path))
    config = checkpoint.config
    dtype = np.dtype(DTYPES[config.dtype])
    block = np.memmap(checkpoint.path, dtype=np.uint8, mode="r")
    arrays: dict[str, NDArray[Any]] = {}
    for name, shape in config.weight_shapes().items():
        begin, end = checkpoint.ranges[name]
        raw = block[begin:end] if begin % dtype.alignment == 0 else block[begin:end].copy()
        arrays[name] = raw.view(dtype).reshape(shape)
    if config.tied:
        arrays["output.weight"] = arrays["token_embd.weight"]
    return Weights(config, arrays)


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the tensor table of a safetensors file and where its data starts."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileError(f"{path}: no regular file; give a .safetensors file")
        with path.open("rb") as file:
            begin = file.read(32)
    except FileNotFoundError:
        raise FileError(
            f"{path}: no such file; give a .safetensors file or its directory"
        ) from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None
    if not begin:
        raise FileError(f"{path}: empty; get the file again")
    size = path.stat().st_size
    length = int.from_bytes(begin[:8], "little")
    for magic, kind in _KINDS:
        if begin.startswith(magic) and not (begin[8:9] == b"{" and length <= size):
            raise FileError(f"{path}: this is {kind}, not safetensors; give a .safetensors file")
    try:
        with safe_open(path, framework="numpy"):  # the library checks sizes and ranges
            pass
    except SafetensorError as error:
        raise FileError(
            f"{path}: no whole safetensors file ({size} bytes; {error}); get the file again"
        ) from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from None
    with path.open("rb") as file:
        file.seek(8)
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def _check_tensors(
    config: ModelConfig, source: Mapping[str, str], header: Mapping[str, Any], path: Path
) -> str:
    """Return the type of all weights; FileError unless each is there, of one type and its shape."""
    dtype = ""
    for name, shape in config.weight_shapes().items():
        entry = header.get(source[name])
        if entry is None:
            raise FileError(
                f"{path}: tensor {source[name]} is missing; config.json describes another model, "
                "or the file is one part of several"
            )
        if entry["dtype"] not in _FILE_DTYPES:
            raise FileError(
                f"{path}: tensor {source[name]} has type {entry['dtype']}; "
                "convert the model to F16 or F32"
            )
        if tuple(entry["shape"]) != shape:
            raise FileError(
                f"{path}: tensor {source[name]} has shape {list(entry['shape'])}, config.json "
                f"means {list(shape)}; the two files do not belong together"
            )
        found = _FILE_DTYPES[entry["dtype"]]
        if dtype not in ("", found):
            raise FileError(
                f"{path}: tensor {source[name]} is {found}, others are {dtype}; "
                "convert the model to one type"
            )
        dtype = found
    return dtype


# ------------------------------------------------------------------------------ random weights

_BLOCK = 8388593
"""Values drawn at most; prime, so that no two rows of a matrix that repeats them are equal."""


def random_weights(config: ModelConfig, seed: int) -> Weights:
    """Return weights of a shape, normal with variance 1 / fan-in; norms are ones.

    The same seed gives the same bits.  Values beyond the first few million repeat in another
    place: drawing a billion would take longer than most runs.
    """
    shapes = config.weight_shapes()
    if config.tied:
        del shapes["output.weight"]
    generator = np.random.Generator(np.random.PCG64(seed))
    dtype = DTYPES[config.dtype]
    largest = max(prod(shape) for shape in shapes.values())
    normal = generator.standard_normal(min(_BLOCK, largest), dtype=np.float32)
    scaled: dict[int, NDArray[Any]] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            arrays[name] = np.ones(shape, dtype)
            continue
        fan_in = shape[-1]
        if fan_in not in scaled:
            scaled[fan_in] = (normal * np.float32(fan_in**-0.5)).astype(dtype)
        offset = int(generator.integers(normal.size))
        arrays[name] = _fill(scaled[fan_in], offset, prod(shape)).reshape(shape)
    if config.tied:
        arrays["output.weight"] = arrays["token_embd.weight"]
    return Weights(config, arrays)


def _fill(block: NDArray[Any], offset: int, size: int) -> NDArray[Any]:
    """Return `size` values of a block that repeats, from `offset` on."""
    out = np.empty(size, block.dtype)
    at = 0
    while at < size:
        part = block[offset : offset + size - at]
        out[at : at + part.size] = part
        at += part.size
        offset = 0
    return out
