"""Reports of a run: what people read, and the JSON and CSV that programs read."""

import csv
import io
import json
import math
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import pytest

from helpers.traces import decode_run, pattern_trace
from syncscope.app.bench.metrics import measure
from syncscope.app.report.csv_report import COLUMNS, render_csv
from syncscope.app.report.figures import figures_are
from syncscope.app.report.json_export import bench_object, render_json
from syncscope.app.report.markdown import render_markdown
from syncscope.app.report.site_table import site_rows
from syncscope.app.report.text import WIDTH, render_text
from syncscope.app.results import BenchResult, Metrics, VariantResult
from syncscope.kernels.sampling import Sampling

SHA = "0123456789abcdef" * 4
BASELINE = "ssassassassassassasgasssss"

# The keys of the JSON as users of it rely on them; nested ones in braces.
KEYS = {
    "device": "kind name profile simulated",
    "model": "id parameters layers experts",
    "recording": "mode overhead_share dropped clock_uncertainty_ns timer_step_ns",
    "variants": "id passes dropped_sites refused pattern syncs_per_step syncs_before_launch "
    "syncs_after_launch tokens_per_s time_to_first_token_us step_us host_blocked_us "
    "device_idle_share output_sha256 logits_sha256 bit_exact stale_reads text",
    "sites": "variant phase site kind per_step wait_us verdict alone_safe covered_by why "
    "predicted_gain_us measured_gain_us",
    "environment": "commit version python driver cuda gpu clocks cpu time",
}


def variant(name: str, pattern: str, **changes: Any) -> VariantResult:
    """Return a variant of eight decode steps with a pattern."""
    trace = pattern_trace([("prompt_last", pattern), *[("decode", pattern)] * 8], 60_000)
    fields: dict[str, Any] = {
        "id": name,
        "passes": ("cuda-graph",),
        "dropped_sites": (),
        "refused": {},
        "notes": (),
        "trace": trace,
        "metrics": measure(trace),
        "token_ids": (1, 2, 3),
        "text": "Once upon a time",
        "output_sha256": SHA,
        "logits_sha256": SHA,
        "bit_exact": True,
        "stale_reads": 0,
        "wrong_last_writes": 0,
        "waits_without_effect": 0,
        "first_stale_reads": (),
        "orders": ("all early",),
        "harmful_order": None,
        "fault": None,
    }
    return VariantResult(**(fields | changes))


def bench(*variants: VariantResult, **changes: Any) -> BenchResult:
    variants = variants or (variant("baseline", BASELINE), variant("all", "EaegaeE"))
    fields: dict[str, Any] = {
        "device": {
            "kind": "sim",
            "name": "NVIDIA H200",
            "profile": "h200 (provisional)",
            "simulated": True,
        },
        "model": {"id": "tiny", "parameters": 1_623_744, "layers": 4, "experts": 0},
        "rules": "practical",
        "recording": {
            "mode": "stamps",
            "overhead_share": 0.0,
            "dropped": 0,
            "clock_uncertainty_ns": 0,
            "timer_step_ns": 1,
        },
        "variants": variants,
        "sites": tuple(row for each in variants for row in site_rows(each.id, each.trace)),
        "environment": {"version": "0.1.0", "python": "3.11.7", "cpu": "some CPU"},
        "prompt": "Once",
    }
    return BenchResult(**(fields | changes))


MEASURED = {"kind": "cuda", "name": "NVIDIA H200", "profile": None, "simulated": False}
NOTHING = Metrics({}, None, None, None, None, None, None, None, None)


# ----------------------------------------------------------------------------------------- text


def test_text_says_what_was_run_and_that_it_is_simulated():
    text = render_text(bench())
    assert text.startswith("Syncscope 0.1.0, simulated: h200 (provisional), practical rules\n")
    assert "model      tiny, 1,623,744 parameters, 4 layers" in text
    assert "prompt     Once" in text
    assert "mode stamps, 0 spans dropped, overhead none: virtual time" in text


@pytest.mark.parametrize("render", [render_text, render_markdown])
@pytest.mark.parametrize(
    ("device", "word"),
    [
        (bench().device, "simulated: h200 (provisional)"),
        (dict(bench().device, profile="rtx3090 (estimated)"), "estimated costs"),
        (MEASURED, "measured on NVIDIA H200"),
    ],
)
def test_every_table_says_where_its_figures_come_from(render, device, word):
    report = render(bench(device=device))
    tables = [each for each in report.split("\n\n") if "tokens/s" in each or "wait us" in each]
    assert len(tables) == 3
    if render is render_text:
        assert all(word in each.splitlines()[0] for each in tables)
    else:
        assert report.count(word) >= 4


def test_a_measured_run_is_never_called_simulated():
    report = render_text(bench(device=MEASURED))
    assert "simulated" not in report
    assert "virtual" not in report


@pytest.mark.parametrize("render", [render_text, render_markdown])
def test_draws_are_told_in_one_line_and_greed_in_none(render):
    drawn = render(bench(sampling=Sampling(0.8, 40, 0.95, 7)))
    (line,) = [each for each in drawn.splitlines() if "sampling" in each]
    assert line.endswith("temperature 0.8, top-k 40, top-p 0.95, seed 7")
    plain = render(bench(sampling=Sampling(1.0)))
    (line,) = [each for each in plain.splitlines() if "sampling" in each]
    assert line.endswith("temperature 1, seed 0")
    assert "sampling" not in render(bench())


def test_text_shows_patterns_of_every_phase():
    text = render_text(bench())
    assert f"pattern  prompt_last  {BASELINE}" in text
    assert f"decode       {BASELINE}" in text
    assert "EaegaeE" in text


def test_the_first_text_is_whole_and_later_ones_only_where_they_differ():
    one, two = variant("baseline", "sg"), variant("all", "sg")
    three = variant("broken", "g", text="Once upon a tile", bit_exact=False)
    text = render_text(bench(one, two, three))
    assert text.count("Once upon a time") == 1
    assert "same text as baseline" in text
    assert "Once upon a tile" in text
    assert "differs from the first" in text
    assert "nothing was computed" in render_text(bench(variant("x", "sg", text=None)))


def test_comparison_has_the_figures_of_each_variant():
    metrics = Metrics(
        {"decode": "sagas"}, 2, 1, 1, (1488.4, 1480.1, 1495.0), 812.25, (671.9, 690.2), 301.5, 0.25
    )
    row = next(
        line
        for line in render_text(bench(variant("v", "sagas", metrics=metrics))).splitlines()
        if line.startswith("v ")
    )
    wanted = (
        "v | 2 (1+1) | 671.9 | 690.2 | 1,488 [1,480, 1,495] | 812.2 | 301.5 | 25.0 % | yes | 0 | 0"
    )
    assert " ".join(row.split()) == wanted.replace("| ", "")


def test_what_is_not_known_is_a_dash():
    text = render_text(bench(variant("short", "g", metrics=NOTHING, bit_exact=None)))
    row = next(line for line in text.splitlines() if line.startswith("short  "))
    assert row.split() == ["short", *["-"] * 8, "0", "0"]


def test_text_tells_refusals_notes_harm_and_faults():
    harmed = variant(
        "saaasg -drop",
        "ag",
        refused={"pack-inputs": "no site"},
        notes=("also applied: batch-input-syncs",),
        dropped_sites=("decode:inputs.sync_after",),
        stale_reads=7,
        first_stale_reads=tuple(f"step {i}: stale" for i in range(5)),
        orders=("early", "late"),
        harmful_order="dev0.compute late",
        wrong_last_writes=2,
        waits_without_effect=1,
        fault="step 7, sample: token id 99 outside 0..5",
    )
    text = render_text(bench(harmed))
    for part in (
        "refused  pack-inputs: no site",
        "also applied: batch-input-syncs",
        "decode:inputs.sync_after",
        "2 data orders tried",
        "dev0.compute late",
        "7 stale reads",
        "step 2: stale",
        "2 times the wrong write",
        "1 waits without effect",
        "token id 99 outside 0..5",
    ):
        assert part in text
    assert "step 3: stale" not in text


def test_site_table_has_syncs_only_unless_every_site_is_asked_for():
    brief, full = render_text(bench()), render_text(bench(), verbose=True)
    assert "stream sync" in brief
    assert "async copy" not in brief
    assert "async copy" in full
    assert "unknown" in brief
    assert "s*" in brief and "s*" not in full


def test_quiet_is_the_comparison_alone():
    text = render_text(bench(), quiet=True)
    assert len(text.splitlines()) == 5
    assert "simulated" in text


def test_dropped_spans_and_interruption_are_never_hidden():
    result = bench(recording=dict(bench().recording, dropped=1234), interrupted=True)
    for render in (render_text, render_markdown):
        assert "1,234 spans dropped: figures are incomplete" in render(result)
        assert "interrupted" in render(result)
    assert "interrupted" in render_text(result, quiet=True)


def test_overhead_of_a_real_run_is_shown():
    recording = dict(bench().recording, overhead_share=0.0312)
    assert "overhead 3.1 %" in render_text(bench(device=MEASURED, recording=recording))
    recording["overhead_share"] = None
    assert "overhead not measured" in render_text(bench(device=MEASURED, recording=recording))


def test_text_fits_in_its_width():
    long = variant(
        "saaasg+pack-inputs+drop-leading-sync+drop-trailing-sync -drop",
        BASELINE,
        text="word " * 80,
        refused={"run-ahead": "because " * 30},
        passes=tuple(f"pass-number-{i}" for i in range(20)),
    )
    assert max(map(len, render_text(bench(long), verbose=True).splitlines())) <= WIDTH


@pytest.mark.parametrize("render", [render_text, render_markdown])
def test_generated_text_cannot_command_the_terminal(render):
    evil = "bell\x07 \x1b[2J\x9b31m \u202egnp.exe\rnew\nline"
    report = render(bench(variant("baseline", "sg", text=evil), prompt="p\x1b]0;title\x07"))
    assert not set(report) & set("\x07\x1b\x9b\u202e\r")
    assert "\\x1b[2J" in report
    assert "line" in report


# ------------------------------------------------------------------------------------- Markdown


def test_markdown_tables_have_as_many_cells_as_headers():
    lines = render_markdown(bench(variant("a|b", "sg"), variant("all", "g"))).splitlines()
    widths = [len(line.replace("\\|", "").split("|")) for line in lines if line.startswith("|")]
    assert widths and set(widths) <= {13, 10}


def test_markdown_fence_cannot_be_closed_by_the_text():
    report = render_markdown(bench(variant("baseline", "sg", text="```\n# not a title")))
    assert "````text\n```\n# not a title\n````" in report


# ----------------------------------------------------------------------------------------- JSON


def schema() -> dict[str, Any]:
    file = resources.files("syncscope.app") / "schemas" / "bench-1.schema.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def test_json_has_exactly_the_keys_of_version_1():
    data = json.loads(render_json(bench()))
    assert list(data) == [
        "schema",
        "device",
        "model",
        "sampling",
        "rules",
        "recording",
        "variants",
        "sites",
        "predictions",
        "hazards",
        "environment",
    ]
    assert data["schema"] == "syncscope-bench/1"
    for key, wanted in KEYS.items():
        entries = data[key] if isinstance(data[key], list) else [data[key]]
        assert all(list(entry) == wanted.split() for entry in entries), key
    assert list(data["variants"][0]["tokens_per_s"]) == ["median", "low", "high"]
    assert list(data["variants"][0]["step_us"]) == ["median", "p99"]


@pytest.mark.parametrize(
    "result",
    [
        bench(),
        bench(device=MEASURED),
        bench(variant("x", "g", metrics=NOTHING, text=None, output_sha256=None, bit_exact=None)),
        bench(variant("x", "g", refused={"a": "b"}, dropped_sites=("decode:x",), stale_reads=3)),
        bench(environment={}),
    ],
)
def test_json_conforms_to_its_schema(result):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(render_json(result)), schema())


def test_json_says_how_tokens_were_chosen():
    drawn = Sampling(0.8, 40, 0.95, (1 << 53) - 1)
    data = json.loads(render_json(bench(sampling=drawn)))
    wanted = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 9007199254740991}
    assert data["sampling"] == wanted
    jsonschema.validate(data, schema())
    greedy = json.loads(render_json(bench()))["sampling"]
    assert greedy == {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    for wrong in ({"temperature": -1}, {"top_p": 0}, {"seed": 1 << 53}, {"other": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(dict(data, sampling=wanted | wrong), schema())


def test_json_from_before_sampling_is_still_valid():
    data = json.loads(render_json(bench()))
    del data["sampling"]
    jsonschema.validate(data, schema())


@pytest.mark.parametrize("key", ["schema", "device", "variants", "sites", "environment"])
def test_schema_refuses_what_lacks_a_key_or_has_another(key):
    data = json.loads(render_json(bench()))
    jsonschema.validate(data, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(dict(data, other=1), schema())
    del data[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


DRIVER_CALLS = {
    "cuGraphLaunch": (9, 9 / 11, 0.0, 9 / 11),
    "cuStreamSynchronize": (1_980, 18.0, 13.0, 5.0),
}


def with_driver_calls():
    """A run whose first variant has recorded the driver's calls."""
    keys = ("count", "per_decode_step", "before_launch", "after_launch")
    one = variant("baseline", BASELINE)
    calls = {name: dict(zip(keys, each, strict=True)) for name, each in DRIVER_CALLS.items()}
    recording = {**one.trace.recording, "mode": "cupti", "driver_calls": calls}
    one = replace(one, trace=replace(one.trace, recording=recording))
    return bench(one, variant("all", "EaegaeE"), device=MEASURED)


def test_driver_calls_are_in_the_json_of_the_variants_that_recorded_them():
    data = json.loads(render_json(with_driver_calls()))
    jsonschema.validate(data, schema())
    found = [each.get("driver_calls") for each in data["variants"]]
    assert found[1] is None
    assert found[0]["cuStreamSynchronize"] == {
        "count": 1_980, "per_decode_step": 18.0, "before_launch": 13.0, "after_launch": 5.0,
    }  # fmt: skip
    assert found[0]["cuGraphLaunch"]["per_decode_step"] == 0.818182
    data["variants"][0]["driver_calls"]["cuGraphLaunch"]["other"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


def test_text_shows_driver_calls_when_every_detail_is_asked_for():
    lines = [" ".join(line.split()) for line in render_text(with_driver_calls()).splitlines()]
    assert not any("cuStreamSynchronize" in line for line in lines)
    text = render_text(with_driver_calls(), verbose=True)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "Driver calls of decode steps (measured on NVIDIA H200)" in lines
    assert "variant driver call per step before launch launch and after in all" in lines
    assert "baseline cuStreamSynchronize 18 13 5 1,980" in lines
    assert "baseline cuGraphLaunch 0.82 0 0.82 9" in lines


def test_a_measured_run_says_how_far_its_device_times_may_be_off():
    recording = dict(bench().recording, clock_uncertainty_ns=1_260, timer_step_ns=32)
    text = render_text(bench(device=MEASURED, recording=recording))
    assert "device times within 1.3 us of the host's clock, in steps of 32 ns" in text
    assert "host's clock" not in render_text(bench(recording=recording))
    unknown = dict(recording, clock_uncertainty_ns=None, timer_step_ns=None)
    assert "device times" not in render_text(bench(device=MEASURED, recording=unknown))


def test_json_has_figures_of_the_spans():
    trace = decode_run(range(93_530, 93_530 * 9, 93_530))
    data = bench_object(bench(variant("v", "s", trace=trace, metrics=measure(trace))))
    (found,) = data["variants"]
    assert found["step_us"] == {"median": 93.53, "p99": 93.53}
    assert found["tokens_per_s"] == {"median": 10691.757, "low": 10691.757, "high": 10691.757}
    assert found["pattern"] == {"decode": "gs"}
    assert found["syncs_per_step"] == 1


def test_json_is_the_same_bytes_for_the_same_result():
    assert render_json(bench()) == render_json(bench())


def test_json_stays_json_whatever_the_figures_and_the_text_are():
    metrics = replace(NOTHING, host_blocked_us=math.nan, device_idle_share=math.inf)
    odd = variant("v", "g", metrics=metrics, text="\ud800 \x00 \u2028 \U0001f600")
    data = json.loads(render_json(bench(odd)).encode("utf-8"))
    assert data["variants"][0]["host_blocked_us"] is None
    assert data["variants"][0]["device_idle_share"] is None
    assert data["variants"][0]["text"] == "? \x00 \u2028 \U0001f600"


def test_rows_that_are_no_sync_have_no_verdict():
    rows = {row["kind"]: row["verdict"] for row in bench_object(bench())["sites"]}
    assert rows["stream sync"] == "unknown"
    assert rows["async copy"] is None


# ------------------------------------------------------------------------------------------ CSV


def test_csv_has_a_row_per_variant_with_the_figures_of_the_json():
    result = bench()
    rows = list(csv.DictReader(io.StringIO(render_csv(result))))
    data = bench_object(result)
    assert tuple(rows[0]) == COLUMNS
    assert [row["variant"] for row in rows] == ["baseline", "all"]
    for row, found in zip(rows, data["variants"], strict=True):
        assert float(row["step_us"]) == found["step_us"]["median"]
        assert float(row["tokens_per_s_low"]) == found["tokens_per_s"]["low"]
        assert row["bit_exact"] == "true"
        assert row["simulated"] == "true"
        assert row["version"] == "0.1.0"


def test_csv_cells_are_empty_where_not_known_and_run_nothing():
    odd = variant('=cmd|"x",y\n', "g", metrics=NOTHING, bit_exact=None)
    (row,) = csv.DictReader(io.StringIO(render_csv(bench(odd))))
    assert row["variant"] == '\'=cmd|"x",y\n'
    assert row["step_us"] == row["bit_exact"] == row["tokens_per_s_high"] == ""


def test_figures_are_measured_unless_said_otherwise():
    assert figures_are({"name": "X"}) == "measured on X"
    assert figures_are({"kind": "sim", "simulated": True, "profile": "p"}) == "simulated: p"
