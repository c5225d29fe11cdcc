"""Two greedy texts are compared up to the first difference, and the gap is the host's there."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.greedy_text import TIE, Greedy, compare, on_the_host
from helpers.shared import shared_path
from syncscope.app.workload import Workload
from syncscope.kernels.registry import load_model

ROOT = Path(__file__).parents[1]
LOGITS = np.array([[0, 3, 1], [5, 0, 4.9995], [0, 1, 7]], np.float32)
HOST = Greedy((1, 0, 2), LOGITS)


def test_equal_texts_have_no_difference():
    found = compare(HOST, Greedy((1, 0, 2), LOGITS + np.float32(0.25)))
    assert (found.tokens, found.first_difference, found.gap) == (3, None, None)
    assert found.largest_difference == 0.25


def test_a_tie_is_told_by_the_logits_of_the_host():
    other = LOGITS.copy()
    other[1] = [5, 0, 5.0001]
    other[2] = 100  # behind the difference: another text
    found = compare(HOST, Greedy((1, 2, 0), other))
    assert found.first_difference == 1
    assert found.gap == pytest.approx(0.0005, rel=1e-2)
    assert found.gap <= TIE
    assert found.largest_difference < 1e-3


def test_another_token_than_the_second_best_is_no_tie():
    found = compare(HOST, Greedy((1, 1, 2), LOGITS))
    assert found.first_difference == 1
    assert found.gap == 5 > TIE


def test_what_was_generated_are_the_best_tokens_of_its_logits():
    model = load_model("tiny")
    found = on_the_host(Workload(model, tuple(model.tokenizer.encode("Alice was")), 12, 4))
    assert len(found.token_ids) == 12
    assert found.logits.shape == (12, model.config.V)
    assert found.logits.argmax(axis=1).tolist() == list(found.token_ids)


def test_the_stored_comparison_has_both_texts_and_where_it_was_made(tmp_path):
    shared_path("data", "models", "stories260K.safetensors")
    script = ROOT / "packaging" / "greedy_text.py"
    out = tmp_path / "greedy-text.json"
    done = subprocess.run(
        [sys.executable, script, out, "sim"], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("256 tokens, equal") == 2
    found = json.loads(out.read_text("utf-8"))
    assert found["schema"] == "syncscope-greedy-text/1"
    assert found["device"]["simulated"]
    assert found["environment"]["time"]
    assert [each["model"] for each in found["models"]] == ["tiny", "stories260K"]
    for each in found["models"]:
        assert each["tokens"] >= 200
        assert each["first_difference"] is None and each["gap"] is None
        assert each["largest_logit_difference"] == 0
        assert len(each["host_text"]) > 200
        assert each["host_text"] == each["device_text"]
