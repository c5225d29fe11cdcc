"""Documents of measured results say what the stored files say."""

import importlib.util
import json
import re
import shutil
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "results" / "h200"
DOCUMENT = FOLDER / "README.md"
SCHEMA = resources.files("syncscope.app") / "schemas" / "bench-1.schema.json"


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location(
        "results_table", ROOT / "packaging" / "results_table.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "results")
    return tmp_path / "results"


def changed(path, change):
    result = json.loads(path.read_text("utf-8"))
    change(result)
    path.write_text(json.dumps(result), "utf-8")


def bench_like(folder, name, mode, share):
    def change(result):
        result["recording"] |= {"mode": mode, "overhead_share": share}
        if mode == "off":
            result["variants"][0] |= {"step_us": None, "tokens_per_s": None}

    shutil.copy(folder / "shape-15m.json", folder / name)
    changed(folder / name, change)


# ---- what is stored ------------------------------------------------------------------------------


def test_the_document_is_that_of_the_stored_files(tables):
    text = DOCUMENT.read_text("utf-8")
    assert set(re.findall(r"<!-- (\w+) -->", text)) == {*tables.TABLES, "end"}
    assert tables.fill(text, FOLDER) == text


def test_the_stored_files_obey_the_schema_and_are_bit_exact(tables):
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    paths = [*tables.bench_files(FOLDER), *tables.drop_files(FOLDER), *FOLDER.glob("record-*")]
    assert len(paths) >= 5
    for path in paths:
        result = json.loads(path.read_text("utf-8"))
        validator.validate(result)
        assert not result["device"]["simulated"]
        assert all(each["bit_exact"] for each in result["variants"]), path
        assert not result["hazards"], path
        assert result["environment"]["commit"], path


def baseline_us(folder, name):
    """Return the stored median step of the baseline of a model."""
    result = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return result["variants"][0]["step_us"]["median"]


# ---- a document follows its files ----------------------------------------------------------------


def test_another_step_shows_in_the_document(tables, copied):
    before = tables.fill(DOCUMENT.read_text("utf-8"), copied)
    median = baseline_us(copied, "tiny")

    def slower(result):
        result["variants"][0]["step_us"]["median"] += 1000

    changed(copied / "tiny.json", slower)
    after = tables.fill(before, copied)
    assert (
        len([a for a, b in zip(before.split("\n"), after.split("\n"), strict=True) if a != b]) == 1
    )
    assert f"| tiny | {median + 1000:,.1f} |" in after


def test_what_is_not_bit_exact_is_called_so(tables, copied):
    def wrong(result):
        result["variants"][1]["bit_exact"] = False

    changed(copied / "tiny.json", wrong)
    assert "tiny (NOT bit-exact)" in "\n".join(tables.rows(copied))

    def wrong_once(result):
        for each in result["variants"]:
            if each["id"].endswith("input.pos.sync_before"):
                each["bit_exact"] = False

    changed(copied / "drops-15m.json", wrong_once)
    (line,) = [each for each in tables.drops(copied) if "input.pos.sync_before" in each]
    assert line.endswith("| NO |")


def test_drops_of_one_process_are_a_line_per_sync_and_a_column_per_model(tables, copied):
    for path in copied.glob("drops-*.json"):
        path.unlink()
    assert tables.drops(copied) == [tables.NOTHING]

    def each_dropped(result):
        reference = result["variants"][0]
        result["variants"] = [reference]
        for i in range(2):
            step = reference["step_us"]["median"] - 2 * (i + 1)
            result["variants"].append(
                {
                    **reference,
                    "id": f"baseline -logits.get{i}.sync",
                    "dropped_sites": [f"{p}:logits.get{i}.sync" for p in ("prompt_last", "decode")],
                    "step_us": {"median": step, "p99": step},
                    "tokens_per_s": {"median": 1e6 / step, "low": 1e6 / step, "high": 1e6 / step},
                }
            )
        median = reference["step_us"]["median"]
        reference["tokens_per_s"] |= {"low": 1e6 / (median + 0.5), "high": 1e6 / (median - 0.5)}

    for model in ("15m", "1b"):
        shutil.copy(copied / f"shape-{model}.json", copied / f"drops-{model}.json")
        changed(copied / f"drops-{model}.json", each_dropped)
    assert tables.drops(copied) == [
        "| dropped in every phase | shape:15m | shape:1b | bit-exact |",
        "|---|---:|---:|---:|",
        "| step of the baseline | {} | {} |  |".format(
            *(f"{baseline_us(copied, model):,.1f}" for model in ("shape-15m", "shape-1b"))
        ),
        "| `logits.get0.sync` | +2.0 [+1.5, +2.5] | +2.0 [+1.5, +2.5] | yes |",
        "| `logits.get1.sync` | +4.0 [+3.5, +4.5] | +4.0 [+3.5, +4.5] | yes |",
    ]


def test_ways_of_recording_are_a_line_each_and_no_line_of_the_steps(tables, copied):
    steps, step = tables.rows(copied), f"{baseline_us(copied, 'shape-15m'):,.1f}"
    for path in copied.glob("record-*.json"):
        path.unlink()
    bench_like(copied, "record-stamps.json", "stamps", 0.0432)
    bench_like(copied, "record-off.json", "off", None)
    bench_like(copied, "record-cupti.json", "cupti", 0.5)
    assert tables.record(copied)[2:] == [
        "| off | shape:15m | - | - | 0 |",
        f"| stamps | shape:15m | {step} | +4.3 % | 0 |",
        f"| cupti | shape:15m | {step} | +50.0 % | 0 |",
    ]
    assert tables.rows(copied) == steps


def test_greedy_texts_say_where_they_part(tables, copied):
    part = {"model": "tiny", "tokens": 256, "largest_logit_difference": 2e-5}
    models = [
        {**part, "first_difference": None, "gap": None},
        {**part, "first_difference": 41, "gap": 0.00072},
    ]
    stored = {
        "schema": tables.TEXT,
        "device": {"name": "a GPU"},
        "models": models,
        "environment": {"driver": "1", "cuda": "2", "commit": "3", "time": "2026-12-02T10:00:00"},
    }
    (copied / "greedy-text.json").write_text(json.dumps(stored), "utf-8")
    assert tables.text(copied)[2:] == [
        "| tiny | 256 | none | - | 2.0e-05 |",
        "| tiny | 256 | 41 | 7.2e-04 | 2.0e-05 |",
    ]
    assert "| `greedy-text.json` | a GPU | 1 | 2 | 3 | 2026-12-02 |" in tables.origin(copied)


def test_files_of_another_kind_are_left_alone(tables, copied):
    before = tables.fill(DOCUMENT.read_text("utf-8"), copied)
    (copied / "h200.json").write_text('{"name": "h200"}', "utf-8")
    assert tables.fill(before, copied) == before
