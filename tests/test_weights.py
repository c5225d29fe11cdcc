"""Reading checkpoints: what is right is read exactly, what is wrong gets one line."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from helpers.stories import stories_model
from syncscope.kernels.transformer import ModelConfig
from syncscope.kernels.weights import (
    checkpoint_config,
    checkpoint_name,
    random_weights,
    read_weights,
)
from syncscope.sched_core.errors import FileError

CONFIG = ModelConfig(2, 16, 4, 2, 4, 24, 40, 64, dtype="f16")
SETTINGS: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


class Checkpoint:
    """A checkpoint that a test spoils before it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "model.safetensors"
        self.settings = dict(SETTINGS)
        self.arrays: dict[str, NDArray[Any]] = {
            checkpoint_name(name): array
            for name, array in random_weights(CONFIG, 1).arrays.items()
            if name != "output.weight"
        }
        self.write()

    def write(self) -> None:
        save_file(self.arrays, self.path)
        (self.folder / "config.json").write_text(json.dumps(self.settings), encoding="utf-8")

    def error(self, path: Path | None = None) -> str:
        with pytest.raises(FileError) as error:
            read_weights(path or self.path)
        assert "\n" not in str(error.value)
        assert str(self.folder) in str(error.value)
        assert error.value.exit_code == 3
        return str(error.value)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_arrays_are_those_of_the_file(checkpoint: Checkpoint, dtype: str) -> None:
    if dtype == "f32":
        checkpoint.arrays = {n: a.astype(np.float32) for n, a in checkpoint.arrays.items()}
        checkpoint.write()
    for path in (checkpoint.path, checkpoint.folder):
        weights = read_weights(path)
        assert weights.config.dtype == dtype
        assert {n: a.shape for n, a in weights.arrays.items()} == CONFIG.weight_shapes()
        for name, array in weights.arrays.items():
            source = "token_embd.weight" if name == "output.weight" else name
            wanted = checkpoint.arrays[checkpoint_name(source)]
            assert array.dtype == wanted.dtype
            assert (array == wanted).all()
            assert not array.flags.writeable or array.base is None
        assert weights.arrays["output.weight"] is weights.arrays["token_embd.weight"]


def test_an_output_matrix_of_its_own_is_read(checkpoint: Checkpoint) -> None:
    checkpoint.settings["tie_word_embeddings"] = False
    checkpoint.write()
    assert "lm_head.weight is missing" in checkpoint.error()
    checkpoint.arrays["lm_head.weight"] = checkpoint.arrays["model.embed_tokens.weight"] * 2
    checkpoint.write()
    weights = read_weights(checkpoint.path)
    assert not weights.config.tied
    assert (weights.arrays["output.weight"] == checkpoint.arrays["lm_head.weight"]).all()


def test_configuration_is_read() -> None:
    config = stories_model().config
    assert config == ModelConfig(5, 64, 8, 4, 8, 172, 512, 512, dtype="f32")


def test_defaults_of_the_format_hold(checkpoint: Checkpoint) -> None:
    for key in ("rms_norm_eps", "rope_theta", "hidden_act"):
        del checkpoint.settings[key]
    checkpoint.settings |= {
        "max_position_embeddings": 131072,
        "head_dim": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    }
    checkpoint.write()
    config = checkpoint_config(checkpoint.path)
    assert (config.eps, config.theta, config.context) == (1e-6, 5e5, 8192)


# ------------------------------------------------------------------------------ wrong files


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image"),
        (b"GGUF\x03\0\0\0" + bytes(100), "a GGUF file"),
        (b'{"model_type": "llama", "hidden_size": 16}', "a JSON file"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b"\x01\x02\x03", "no whole safetensors file (3 bytes"),
        (bytes(range(256)) * 4, "no whole safetensors file (1024 bytes"),
        (struct.pack("<Q", 1 << 62) + b"{" + bytes(90), "no whole safetensors file"),
        (struct.pack("<Q", 60) + b"[" * 60, "no whole safetensors file"),
    ],
)
def test_alien_files_are_named(checkpoint: Checkpoint, content: bytes, line: str) -> None:
    checkpoint.path.write_bytes(content)
    assert line in checkpoint.error()


@pytest.mark.parametrize("keep", [4, 100, 2000, -1])
def test_truncated_files_are_refused(checkpoint: Checkpoint, keep: int) -> None:
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:keep])
    assert "get the file again" in checkpoint.error()


def test_offsets_beyond_the_file_take_no_memory(checkpoint: Checkpoint) -> None:
    size = 1 << 50
    header = {"x": {"dtype": "F16", "shape": [size // 2], "data_offsets": [0, size]}}
    raw = json.dumps(header).encode()
    checkpoint.path.write_bytes(struct.pack("<Q", len(raw)) + raw)
    assert "no whole safetensors file" in checkpoint.error()


def test_missing_files_are_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert "no such file" in checkpoint.error(checkpoint.folder / "other.safetensors")
    (tmp_path / "config.json").unlink()
    assert "config.json: missing; put the model's config.json beside" in checkpoint.error()
    checkpoint.path.unlink()
    assert "no .safetensors file here" in checkpoint.error(tmp_path)


def test_several_files_in_a_directory_need_a_name(checkpoint: Checkpoint) -> None:
    checkpoint.path.rename(checkpoint.folder / "model-00001-of-00002.safetensors")
    save_file({"x": np.zeros(1)}, checkpoint.folder / "model-00002-of-00002.safetensors")
    assert "2 .safetensors files here" in checkpoint.error(checkpoint.folder)


def test_a_pipe_is_refused_without_waiting(checkpoint: Checkpoint) -> None:
    pipe = checkpoint.folder / "pipe.safetensors"
    os.mkfifo(pipe)
    assert "no regular file" in checkpoint.error(pipe)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_what_is_no_file_is_refused_without_waiting(
    checkpoint: Checkpoint, name: str, kind: str
) -> None:
    path = checkpoint.folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    for given in {checkpoint.folder, checkpoint.folder / "model.safetensors"}:
        if kind != "folder" or name == "config.json":
            assert f"{name}: no regular file" in checkpoint.error(given)


def test_a_name_that_is_too_long_is_one_line(checkpoint: Checkpoint) -> None:
    assert "File name too long" in checkpoint.error(checkpoint.folder / ("x" * 3000))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_named(checkpoint: Checkpoint) -> None:
    checkpoint.path.chmod(0)
    assert "cannot be read: Permission denied" in checkpoint.error()


# ------------------------------------------------------------------------------ wrong contents


def _drop(c: Checkpoint) -> None:
    del c.arrays["model.layers.1.mlp.up_proj.weight"]


def _reshape(c: Checkpoint) -> None:
    c.arrays["model.norm.weight"] = np.zeros((4, 4), np.float16)


def _mix(c: Checkpoint) -> None:
    c.arrays["model.norm.weight"] = np.zeros(16, np.float32)


def _double(c: Checkpoint) -> None:
    c.arrays = {name: array.astype(np.float64) for name, array in c.arrays.items()}


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (_drop, "tensor model.layers.1.mlp.up_proj.weight is missing"),
        (_reshape, "tensor model.norm.weight has shape [4, 4], config.json means [16]"),
        (_mix, "tensor model.norm.weight is f32, others are f16"),
        (_double, "has type F64; convert the model to F16 or F32"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    checkpoint: Checkpoint, spoil: Callable[[Checkpoint], None], line: str
) -> None:
    spoil(checkpoint)
    checkpoint.write()
    assert line in checkpoint.error()


def test_bfloat16_is_refused(checkpoint: Checkpoint) -> None:
    raw = checkpoint.path.read_bytes().replace(b'"F16"', b'"BF16"')
    length = struct.unpack("<Q", raw[:8])[0] + raw.count(b'"BF16"')
    checkpoint.path.write_bytes(struct.pack("<Q", length) + raw[8:])
    assert "has type BF16; convert the model to F16 or F32" in checkpoint.error()


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("model_type", "gpt2", "model_type is 'gpt2'; only 'llama' models are read"),
        ("model_type", None, "model_type is None"),
        ("hidden_act", "gelu", "hidden_act 'gelu' is not supported"),
        ("rope_scaling", {"factor": 8}, "rope_scaling {'factor': 8} is not supported"),
        ("rope_parameters", {"rope_type": "llama3"}, "rope_parameters"),
        ("attention_bias", True, "attention_bias True is not supported"),
        ("hidden_size", None, "hidden_size is missing"),
        ("hidden_size", 1 << 40, f"hidden_size {1 << 40} is no whole number in 1..8192"),
        ("hidden_size", "16", "hidden_size '16' is no whole number"),
        ("num_hidden_layers", 10**9, "num_hidden_layers 1000000000 is no whole number in 1..1024"),
        ("num_hidden_layers", 3, "tensor model.layers.2.input_layernorm.weight is missing"),
        ("num_key_value_heads", 3, "4 heads of size 4 in 3 groups do not fit"),
        ("num_attention_heads", 100, "head_dim 0 is no whole number"),
        ("vocab_size", 41, "config.json means [41, 16]"),
        ("rms_norm_eps", "x", "rms_norm_eps 'x' is no number"),
        ("rope_theta", float("nan"), "rope_theta nan is no number"),
    ],
)
def test_configurations_that_do_not_fit_are_named(
    checkpoint: Checkpoint, key: str, value: Any, line: str
) -> None:
    checkpoint.settings[key] = value
    checkpoint.write()
    assert line in checkpoint.error()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "no valid JSON"),
        (b"{", "no valid JSON"),
        (b"\xff\xfe", "no valid JSON"),
        (b"[" * 100000, "no valid JSON"),
        (b"[1]", "no JSON object"),
        (b" " * (1 << 21), "over 1048576 bytes"),
    ],
)
def test_spoiled_configurations_are_refused(
    checkpoint: Checkpoint, content: bytes, line: str
) -> None:
    (checkpoint.folder / "config.json").write_bytes(content)
    assert line in checkpoint.error()


# ------------------------------------------------------------------------------ random weights


def test_random_weights_follow_the_seed() -> None:
    first, again, other = (random_weights(CONFIG, seed).arrays for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["blk.0.attn_q.weight"] != other["blk.0.attn_q.weight"]).any()
    assert (first["blk.0.attn_q.weight"] != first["blk.1.attn_q.weight"]).any()
    assert first["output.weight"] is first["token_embd.weight"]


def test_random_weights_have_variance_one_over_fan_in() -> None:
    config = ModelConfig(1, 256, 4, 4, 64, 1024, 3000, 64, dtype="f16")
    arrays = random_weights(config, 1).arrays
    for name, fan_in in (("ffn_down", 1024), ("ffn_up", 256), ("attn_output", 256)):
        values = arrays[f"blk.0.{name}.weight"].astype(np.float64)
        assert values.std() == pytest.approx(fan_in**-0.5, rel=0.02)
        assert abs(values.mean()) < 0.02 * fan_in**-0.5
    assert (arrays["output_norm.weight"] == 1).all()
    assert arrays["output_norm.weight"].dtype == np.float16


def test_long_random_matrices_repeat_no_row() -> None:
    config = ModelConfig(1, 2048, 2, 1, 64, 64, 16384, 64, dtype="f16", tied=True)
    table = random_weights(config, 1).arrays["token_embd.weight"]
    assert table.size > 2 * 8388593
    assert len(np.unique(table[:, :4].astype(np.float32), axis=0)) == len(table)
