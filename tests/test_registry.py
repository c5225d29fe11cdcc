from pathlib import Path

import pytest

from helpers.shared import shared_path
from syncscope.kernels.registry import BUNDLED, PLANNED, SHAPES, list_models, load_model
from syncscope.kernels.tokenizer import ByteTokenizer, NumberTokenizer
from syncscope.sched_core.errors import FileError, UsageError


def test_bytes_round_trip_and_the_start_token_has_no_text() -> None:
    tokenizer = ByteTokenizer()
    text = "Zoë × 3\n"
    assert tokenizer.encode(text) == [0, *text.encode()]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("") == [0]
    assert tokenizer.decode([0, 65, 0xC3, 66, 300]) == "A\ufffdB\ufffd"


def test_numbers_stand_for_unknown_tokens() -> None:
    tokenizer = NumberTokenizer(1, 512)
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("403, 7 511") == [1, 403, 7, 511]
    assert tokenizer.decode([1, 403]) == "1 403"
    for text in ("512", "hello", "-1", "12345678901234567890", "²"):
        with pytest.raises(UsageError, match=r"token ids in 0\.\.511"):
            tokenizer.encode(text)


@pytest.mark.parametrize("model_id", ["shape:15m", "shape:15m-f32"])
def test_shapes_load_with_random_weights(model_id: str) -> None:
    model = load_model(model_id, seed=3)
    assert model.config == SHAPES[model_id]
    assert model.note == "random weights: the text means nothing"
    assert model.tokenizer.encode("a") == [0, 97]
    assert model.weights.arrays["output.weight"].shape == (32000, 288)


def test_shapes_have_the_sizes_of_their_models() -> None:
    millions = {name: round(c.n_parameters / 1e6) for name, c in SHAPES.items()}
    assert millions == {"shape:15m": 15, "shape:15m-f32": 15, "shape:135m": 135, "shape:1b": 1236}


@pytest.mark.parametrize(
    ("model_id", "line"),
    [
        ("tinny", "model 'tinny' is not known; nearest: tiny"),
        ("shape:15", "nearest: shape:15m"),
        ("135m", "nearest: shape:135m"),
        ("???", "choose one of tiny, shape:15m"),
        ("", "choose one of tiny"),
        ("tiny-moe", "mixture of experts is not built yet"),
        ("shape:15m-moe", "mixture of experts is not built yet"),
    ],
)
def test_unknown_models_name_the_nearest(model_id: str, line: str) -> None:
    with pytest.raises(UsageError) as error:
        load_model(model_id)
    assert line in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("path", ["./nowhere", "nowhere.safetensors", "/nowhere/model"])
def test_a_missing_path_is_a_missing_file(path: str) -> None:
    with pytest.raises(FileError, match="no such file"):
        load_model(path)


def test_a_directory_without_weights_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no \.safetensors file here"):
        load_model(str(tmp_path))


def test_a_path_without_a_tokenizer_speaks_in_numbers() -> None:
    model = load_model(str(shared_path("data", "models", "stories260K.safetensors")))
    assert model.tokenizer == NumberTokenizer(1, 512)
    assert "no tokenizer" in model.note


def test_every_id_has_a_row() -> None:
    rows = {row.id: row for row in list_models()}
    assert list(rows) == [*BUNDLED, *SHAPES, *PLANNED, "PATH"]
    assert rows["shape:1b"].layers == 16
    assert rows["shape:1b"].source == "random"
    assert rows["shape:15m-moe"].note == "not built yet"
