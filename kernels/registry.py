"""The models that can be named: bundled, of a known shape with random weights, or a path."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from syncscope.kernels.tokenizer import ByteTokenizer, NumberTokenizer, Tokenizer
from syncscope.kernels.transformer import ModelConfig
from syncscope.kernels.weights import (
    Weights,
    checkpoint_config,
    find_checkpoint,
    random_weights,
    read_settings,
    read_weights,
)
from syncscope.sched_core.errors import FileError, UsageError

BUNDLED: Mapping[str, Path] = {"tiny": Path(__file__).parent / "models" / "tiny"}
"""Directory of each bundled model."""

SHAPES: Mapping[str, ModelConfig] = {
    "shape:15m": ModelConfig(6, 288, 6, 6, 48, 768, 32000, 2048),
    "shape:15m-f32": ModelConfig(6, 288, 6, 6, 48, 768, 32000, 2048, dtype="f32"),
    "shape:135m": ModelConfig(30, 576, 9, 3, 64, 1536, 49152, 2048),
    "shape:1b": ModelConfig(16, 2048, 32, 8, 64, 8192, 128256, 8192, theta=500000.0),
}
"""Shapes that get random weights."""

PLANNED = ("tiny-moe", "shape:15m-moe")
"""Known ids that this version cannot build."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is ready to be run.

    Parameters
    ----------
    id : str
        What it was asked for by.
    config : ModelConfig
    weights : Weights
    tokenizer : Tokenizer
    note : str
        What a user should know about it, one line or empty.
    """

    id: str
    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    note: str = ""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of a list of models; `parameters` is 0 where `note` says why it is not known."""

    id: str
    parameters: int
    layers: int
    hidden: int
    dtype: str
    context: int
    source: str
    note: str


def load_model(model_id: str, seed: int = 0, tokenizer: Tokenizer | None = None) -> Model:
    """Return a model by id or path.

    Parameters
    ----------
    model_id : str
        An id of `list_models`, a .safetensors file or a directory that has one.
    seed : int
        Of the random weights of a shape.
    tokenizer : Tokenizer, optional
        Instead of the model's own.

    Raises
    ------
    UsageError
        If no model has that id.
    FileError
        If a file is missing or unfit.
    """
    if model_id in PLANNED:
        raise UsageError(f"model {model_id!r}: mixture of experts is not built yet; {_choices()}")
    if model_id in SHAPES:
        config = SHAPES[model_id]
        note = "random weights: the text means nothing"
        weights = random_weights(config, seed)
        return Model(model_id, config, weights, tokenizer or ByteTokenizer(), note)
    if model_id in BUNDLED:
        return _load_path(model_id, BUNDLED[model_id], tokenizer)
    if not _is_path(model_id):
        near = difflib.get_close_matches(model_id, (*BUNDLED, *SHAPES, *PLANNED), 3, 0.4)
        nearest = f"nearest: {', '.join(near)}" if near else _choices()
        raise UsageError(f"model {model_id!r} is not known; {nearest}; or give a path")
    return _load_path(model_id, Path(model_id), tokenizer)


def list_models() -> tuple[ModelRow, ...]:
    """Return a row for each model id, and one for paths."""
    rows = []
    for model_id, path in BUNDLED.items():
        try:
            rows.append(_row(model_id, checkpoint_config(path), "bundled", "bytes as tokens"))
        except FileError as error:
            rows.append(ModelRow(model_id, 0, 0, 0, "", 0, "bundled", str(error)))
    for model_id, config in SHAPES.items():
        rows.append(_row(model_id, config, "random", "random weights of this shape"))
    for model_id in PLANNED:
        rows.append(ModelRow(model_id, 0, 0, 0, "", 0, "planned", "not built yet"))
    note = "a Llama .safetensors file, or its directory, with config.json"
    rows.append(ModelRow("PATH", 0, 0, 0, "", 0, "path", note))
    return tuple(rows)


def _row(model_id: str, config: ModelConfig, source: str, note: str) -> ModelRow:
    return ModelRow(
        model_id,
        config.n_parameters,
        config.n_layers,
        config.D,
        config.dtype,
        config.context,
        source,
        note,
    )


def _choices() -> str:
    return f"choose one of {', '.join((*BUNDLED, *SHAPES))}"


def _is_path(model_id: str) -> bool:
    """Whether an id that is none of ours is meant as a path."""
    return (
        os.sep in model_id
        or model_id.endswith((".safetensors", ".gguf"))
        or os.path.exists(model_id)
    )


def _load_path(model_id: str, path: Path, tokenizer: Tokenizer | None) -> Model:
    """Return the model of a checkpoint."""
    weights = read_weights(path)
    config = weights.config
    checkpoint = find_checkpoint(path)
    settings = read_settings(checkpoint)
    bos = settings.get("bos_token_id")
    if not isinstance(bos, int) or not 0 <= bos < config.V:
        bos = 1 if config.V > 1 else 0  # Llama's own default
    kind = settings.get("tokenizer")
    note = ""
    if tokenizer is None and kind == "bytes":
        if bos > 255 or config.V < 256:
            raise FileError(
                f"{checkpoint.parent / 'config.json'}: tokenizer 'bytes' needs a vocabulary of at "
                f"least 256 and bos_token_id under 256; found {config.V} and {bos}"
            )
        tokenizer = ByteTokenizer(bos)
    elif tokenizer is None:
        tokenizer = NumberTokenizer(bos, config.V)
        note = "no tokenizer for this model: prompt and text are token ids"
    return Model(model_id, config, weights, tokenizer, note)
