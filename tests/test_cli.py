"""The command: what it writes, its exit code, and one line for each kind of trouble."""

import errno
import json
import os
import signal
import subprocess
import sys
from importlib import resources

import jsonschema
import orjson
import pytest

from helpers.calibration import plain_traces, probe_trace
from syncscope.app import cli, devices
from syncscope.app.cli import main
from syncscope.app.report.chrome_trace import read_traces, write_traces
from syncscope.sched_core.errors import DeviceError, FileError
from syncscope.sched_core.profile import load_profile, render_profile

SCHEMA = resources.files("syncscope.app") / "schemas" / "bench-1.schema.json"
QUICK = ["--no-gui", "--tokens", "6", "--prompt", "Alice was"]


def run(capsys, *arguments):
    code = main([*QUICK, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, code, *arguments):
    """The one line of a run that must be refused before it prints anything."""
    found, out, err = run(capsys, *arguments)
    assert found == code, (out, err)
    assert out == ""
    assert err.startswith("syncscope: ")
    assert err.count("\n") == 1
    return err


def start(*arguments, **streams):
    """Run the command as a process of its own; return its exit code and what it said on stderr."""
    command = [sys.executable, "-m", "syncscope", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **streams)
    return done.returncode, done.stderr


def bench(tmp_path, name="bench.json"):
    return orjson.loads((tmp_path / name).read_bytes())


# ---- output --------------------------------------------------------------------------------------


def test_a_run_prints_text_patterns_table_and_two_variants(capsys):
    code, out, err = run(capsys)
    assert code == 0 and err == ""
    for part in (
        "baseline",
        "all",
        "ssassassassassassasgasssss",
        "EaegaeE",
        "agaeE",
        "input.pos.sync_before",
        "redundant",
        "without logits.copied.sync the host's sample.accept",
        "simulated",
        "calibrated",
        "same text as baseline",
    ):
        assert part in out, part


def test_json_has_both_variants_and_obeys_its_schema(tmp_path, capsys):
    code, _, _ = run(capsys, "--json", str(tmp_path / "bench.json"))
    data = bench(tmp_path)
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    assert code == 0
    assert [each["id"] for each in data["variants"]] == ["baseline", "all"]
    assert data["device"]["simulated"] is True
    assert all(each["bit_exact"] for each in data["variants"])


@pytest.mark.parametrize("sim", ["eager", "adversarial"])
def test_two_runs_write_the_same_json_apart_from_the_environment(tmp_path, capsys, sim):
    for name in ("one.json", "two.json"):
        files = ["--json", str(tmp_path / name), "--timeline", str(tmp_path / f"trace-{name}")]
        assert run(capsys, "--sim", sim, "--ubatch", "4", *files)[0] == 0
    one, two = bench(tmp_path, "one.json"), bench(tmp_path, "two.json")
    assert one.pop("environment") and two.pop("environment")
    assert one == two
    assert list(one) == list(two)
    first, second = (read_traces(tmp_path / f"trace-{n}") for n in ("one.json", "two.json"))
    assert all(a.spans.tobytes() == b.spans.tobytes() for a, b in zip(first, second, strict=True))


def test_timeline_of_both_variants_reads_back_and_exports_the_same_bytes(tmp_path, capsys):
    path, again = tmp_path / "trace.json", tmp_path / "again.json"
    assert run(capsys, "--timeline", str(path))[0] == 0
    traces = read_traces(path)
    assert [each.variant["id"] for each in traces] == ["baseline", "all"]
    write_traces(traces, again)
    assert again.read_bytes() == path.read_bytes()


def test_draws_are_seeded_shown_and_recorded(tmp_path, capsys):
    def texts(*arguments):
        file = tmp_path / "bench.json"
        code, out, _ = run(capsys, "--json", str(file), *arguments)
        assert code == 0
        data = bench(tmp_path)
        assert all(each["bit_exact"] for each in data["variants"])
        (text,) = {each["text"] for each in data["variants"]}
        return text, data["sampling"], out

    warm = ("--temperature", "0.9", "--top-k", "50", "--top-p", "0.9", "--sample-seed")
    text, sampling, out = texts(*warm, "5")
    assert sampling == {"temperature": 0.9, "top_k": 50, "top_p": 0.9, "seed": 5}
    assert "sampling   temperature 0.9, top-k 50, top-p 0.9, seed 5\n" in out
    assert texts(*warm, "5")[0] == text
    assert texts(*warm, "6")[0] != text
    greedy, sampling, out = texts()
    assert sampling["temperature"] == 0
    assert "\nsampling" not in out
    assert texts("--temperature", "0", "--top-k", "3")[0] == greedy != text


def test_quiet_prints_the_comparison_and_verbose_more(capsys):
    normal = run(capsys)[1]
    quiet, verbose = run(capsys, "-q")[1], run(capsys, "-v")[1]
    assert "tokens/s" in quiet
    assert len(quiet) < len(normal) < len(verbose)


def test_csv_and_markdown_are_written(tmp_path, capsys):
    files = ["--csv", str(tmp_path / "b.csv"), "--markdown", str(tmp_path / "b.md")]
    assert run(capsys, *files)[0] == 0
    assert (tmp_path / "b.csv").read_text("utf-8").count("\n") == 3
    assert "| baseline" in (tmp_path / "b.md").read_text("utf-8")


def test_models_and_devices_are_listed(capsys):
    assert main(["models"]) == 0
    assert "tiny" in capsys.readouterr().out
    assert main(["devices"]) == 0
    assert "h200" in capsys.readouterr().out


def test_passes_are_added_to_the_preset(capsys):
    out = run(capsys, "--passes", "repeat-sync-elision")[1]
    assert "sasasasasasasgas" in out


# ---- exit code 1 ---------------------------------------------------------------------------------


HAZARD = ["--ubatch", "3", "--sim", "adversarial", "--allow-hazards"]


def test_a_hazard_ends_with_1_also_when_it_was_allowed(tmp_path, capsys):
    arguments = ["--preset", "saaasg", "--drop", "inputs.sync_after", *HAZARD]
    code, out, _ = run(capsys, *arguments, "--json", str(tmp_path / "bench.json"))
    assert code == 1
    assert "dev0.compute late, dev0.per_thread early" in out
    last = bench(tmp_path)["variants"][-1]
    assert last["stale_reads"] > 0 and last["bit_exact"] is False
    assert "prompt:inputs.sync_after" in last["dropped_sites"]


def test_a_drop_that_is_proved_safe_needs_no_leave(capsys):
    drop = ["--drop", "decode:logits.get1.sync", "--sim", "adversarial"]
    code, out, _ = run(capsys, *drop)
    assert code == 0
    assert "decode:logits.get1.sync" in out


def test_hazards_are_reported_with_fix_and_whether_they_were_seen(tmp_path, capsys):
    arguments = ["--preset", "saaasg", "--drop", "inputs.sync_after", *HAZARD]
    run(capsys, *arguments, "--json", str(tmp_path / "bench.json"))
    hazards = bench(tmp_path)["hazards"]
    assert {each["type"] for each in hazards} == {"WAR"}
    assert any(each["seen"] and each["output_differs"] for each in hazards)
    assert all("record an event behind input." in each["fix"] for each in hazards)


def test_provoking_every_kept_sync_shows_what_goes_wrong_without_it(capsys):
    code, out, _ = run(capsys, "--provoke", "--minimal", "--ubatch", "3")
    assert code == 0
    assert out.count("stale read or wrong write seen with") == 7 + 4
    assert "not seen" not in out
    assert "100 smallest sets of 7 syncs" in out


@pytest.mark.parametrize(
    ("gates", "code"),
    [("syncs:18", 0), ("syncs:17", 1), ("slower:0", 0), ("hazard,mismatch", 0), ("syncs:0", 1)],
)
def test_gates_decide_the_exit_code(capsys, gates, code):
    found, _, err = run(capsys, "--fail-on", gates)
    assert found == code
    assert ("gate failed" in err) == bool(code)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--tokens", "1", "--fail-on", "syncs:99"], "more --tokens"),
        (["--tokens", "3", "--fail-on", "slower:1000"], "more --tokens"),
        (["--no-compute", "--fail-on", "mismatch"], "--no-compute"),
    ],
)
def test_a_gate_that_cannot_tell_fails_and_says_what_to_do(capsys, arguments, remedy):
    found, _, err = run(capsys, *arguments)
    assert found == 1
    lines = err.splitlines()
    assert len(lines) == 2
    assert all("gate failed: " in each and "cannot tell" in each for each in lines)
    assert all(remedy in each for each in lines)


def test_drop_each_gives_a_variant_per_sync_in_every_output(tmp_path, capsys):
    files = [f"--{name}={tmp_path / name}" for name in ("json", "csv", "markdown")]
    code, out, _ = run(capsys, "--drop-each", "safe", "--sim", "adversarial", *files)
    assert code == 0
    variants = bench(tmp_path, "json")["variants"]
    assert len(variants) == 1 + 17
    assert all(each["bit_exact"] for each in variants)
    for each in variants[1:]:
        assert each["syncs_per_step"] == 17
        assert each["id"] in (tmp_path / "csv").read_text("utf-8")
        assert each["id"] in (tmp_path / "markdown").read_text("utf-8")
        assert each["id"] in out


def test_drop_each_refuses_what_is_not_safe_unless_it_is_allowed(capsys):
    needed = ["--drop-each", "input.out_ids.sync_after"]
    assert "may read" in refused(capsys, 2, *needed)
    code, out, _ = run(capsys, *needed, "--allow-hazards")
    assert code == 1
    assert "baseline -input.out_ids.sync_after" in out


def test_a_hazard_of_the_analysis_counts_without_a_stale_read(tmp_path, capsys):
    # in this data order the reads happen to be right
    drop = ["--preset", "saaasg", "--drop", "inputs.sync_after", "--ubatch", "3"]
    drop += ["--allow-hazards", "--json", str(tmp_path / "bench.json")]
    code, _, err = run(capsys, *drop)
    assert code == 1 and err == ""
    last = bench(tmp_path)["variants"][-1]
    assert last["stale_reads"] == 0 and last["bit_exact"] is True
    assert "hazards in the ordering analysis" in run(capsys, *drop, "--fail-on", "hazard")[2]


def test_a_slower_variant_fails_its_gate(capsys):
    found, _, err = run(capsys, "--preset", "no-graph", "--fail-on", "slower:10")
    assert found == 1
    assert "no-graph" in err and "slower than baseline" in err


# ---- exit code 2 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--model", "tinny"], "tiny"),
        (["--model", "shape:16m"], "shape:15m"),
        (["--model", "tiny-moe"], "not built yet"),
        (["--passes", "cuda-grap"], "cuda-graph"),
        (["--passes", "run-ahead"], "not built yet"),
        (["--passes", "input-slot-ring=9"], "2..4"),
        (["--passes", "input-slot-ring=x"], "2..4"),
        (["--passes", "pack-inputs=2"], "takes no value"),
        (["--preset", "basline"], "baseline"),
        (["--preset", "b9820"], "not built yet"),
        (["--drop", "input.pos.sync_befor", "--allow-hazards"], "input.pos.sync_before"),
        (["--drop", "decoed:graph", "--allow-hazards"], "decode"),
        (["--drop", "graph", "--allow-hazards"], "no such sync site"),
        (["--drop", "input.out_ids.sync_after"], "may read"),
        (["--drop", "input.*.sync_after"], "--allow-hazards"),
        (["--preset", "saaasg", "--drop", "prompt:inputs.sync_after"], "may overwrite"),
        (["--drop-each", "input.pos.sync_befor"], "input.pos.sync_before"),
        (["--drop-each", "logits.get1.sync,logits.copy"], "--drop-each logits.copy"),
        (["--rules", "lenient"], "strict"),
        (["--profile", "h20"], "h200"),
        (["--device", "simm"], "sim"),
        (["--tokens", "0"], "at least 1"),
        (["--tokens", "-4"], "at least 1"),
        (["--tokens", "many"], "many"),
        (["--tokens", "9999999999999"], "context"),
        (["--ubatch", "0"], "at least 1"),
        (["--prompt", "x" * 5000], "context"),
        (["--sim", "lazy"], "adversarial"),
        (["--fail-on", "synch:3"], "syncs"),
        (["--fail-on", "syncs"], "number"),
        (["--fail-on", "slower:-1"], "number"),
        (["--fail-on", "hazard:1"], "no number"),
        (["--preset", "all,all"], "twice"),
        (["--jsn", "x"], "--jsn"),
        (["--seed", "-1"], "--seed"),
        (["--temperature", "-1"], "temperature -1.0: must be in 0.0001..10000.0, or 0"),
        (["--temperature", "nan"], "temperature nan"),
        (["--temperature", "warm"], "warm"),
        (["--temperature", "1", "--top-k", "-1"], "0 keeps all"),
        (["--temperature", "1", "--top-p", "0"], "1 keeps all"),
        (["--temperature", "1", "--sample-seed", str(1 << 53)], str((1 << 53) - 1)),
        (["--top-k", "40"], "--temperature 1"),
        (["--sample-seed", "3"], "--temperature 1"),
    ],
)
def test_a_wrong_request_is_one_line_that_names_what_is_valid(capsys, arguments, names):
    assert names in refused(capsys, 2, *arguments)


LISTS = ["preset", "passes", "drop", "drop-each", "fail-on"]


@pytest.mark.parametrize("option", ["device", "profile", "model", *LISTS, *cli.OUTPUTS])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_value_is_refused(capsys, option, value):
    assert f"--{option}: the value is empty" in refused(capsys, 2, f"--{option}", value)


@pytest.mark.parametrize("option", LISTS)
def test_a_list_of_nothing_is_refused(capsys, option):
    assert f"--{option}: the value is empty" in refused(capsys, 2, f"--{option}", ", ,")


def test_a_pass_with_two_values_is_refused(capsys):
    passes = "input-slot-ring=2,input-slot-ring=3"
    assert "also given as 2" in refused(capsys, 2, "--passes", passes)
    same = "repeat-sync-elision,repeat-sync-elision"
    assert run(capsys, "--passes", same)[0] == 0


def test_a_drop_that_one_of_the_presets_lacks_names_it(capsys):
    drop = ["--preset", "baseline,aaag", "--drop", "input.pos.sync_before"]
    assert "aaag: --drop input.pos.sync_before: no such sync site" in refused(capsys, 2, *drop)


@pytest.mark.parametrize("second", ["--csv", "--markdown", "--timeline"])
def test_two_outputs_in_one_file_are_refused_before_anything_runs(
    tmp_path, capsys, monkeypatch, second
):
    monkeypatch.setattr(cli, "run_bench", lambda *_: pytest.fail("ran"))
    (tmp_path / "link").symlink_to("out")
    for other in ("out", "./out", "link"):
        files = ["--json", str(tmp_path / "out"), second, f"{tmp_path}/{other}"]
        assert "is this file too" in refused(capsys, 2, *files)
    assert os.listdir(tmp_path) == ["link"]


def test_a_device_may_take_several_outputs(capsys):
    assert run(capsys, "--json", os.devnull, "--csv", os.devnull)[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "a\nb"],
        ["--model", "a\x1b[31m\u2028b/"],
        ["--preset", "a\rb"],
        ["--device", "a\nb"],
        ["--json", "no\nwhere/x"],
        ["--no\nsuch", "x"],
        ["--fail-on", "a\nb"],
    ],
)
def test_what_would_break_the_line_is_escaped(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert code in (2, 3) and out == ""
    assert err.endswith("\n") and err[:-1].isprintable()


def test_a_model_name_that_is_too_long_is_one_line(capsys):
    refused(capsys, 2, "--model", "x" * 3000)


def test_an_unknown_command_names_the_known_ones(capsys):
    assert main(["modles"]) == 2
    assert "models" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "is_desktop"),
    [
        ([], True),
        (["run.json"], True),
        (["--trace", "run.json", "--theme=light"], True),
        (["--preset", "all"], False),
        (["--no-gui", "--tokens", "0"], False),
        (["models"], False),
        (["foo"], False),
    ],
)
def test_what_the_desktop_app_takes_goes_to_it(capsys, arguments, is_desktop):
    taken = []
    code = cli.main(arguments, lambda each: taken.append(list(each)) or 7)
    assert (code == 7) == is_desktop
    assert taken == ([arguments] if is_desktop else [])


def test_without_no_gui_it_says_what_to_do(capsys):
    assert main([]) == 2
    assert "--no-gui" in capsys.readouterr().err


# ---- exit code 3 ---------------------------------------------------------------------------------


def test_a_missing_or_alien_model_file_is_one_line(tmp_path, capsys):
    alien = tmp_path / "model.safetensors"
    alien.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert str(alien) in refused(capsys, 3, "--model", str(alien))
    assert "missing" in refused(capsys, 3, "--model", str(tmp_path / "missing.safetensors"))


def test_cuda_without_a_gpu_is_refused_with_what_to_use(capsys):
    assert "--device sim" in refused(capsys, 3, "--device", "cuda:0")


@pytest.mark.parametrize("option", ["--json", "--timeline", "--csv", "--markdown"])
def test_an_unwritable_path_is_refused_before_anything_runs(tmp_path, capsys, monkeypatch, option):
    monkeypatch.setattr(cli, "run_bench", lambda *_: pytest.fail("ran"))
    assert "no/where" in refused(capsys, 3, option, str(tmp_path / "no" / "where" / "x.json"))
    assert str(tmp_path) in refused(capsys, 3, option, str(tmp_path))


@pytest.mark.parametrize("option", ["--json", "--timeline", "--csv", "--markdown"])
def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(
    tmp_path, capsys, monkeypatch, option
):
    target = tmp_path / "out.json"
    target.write_text("older")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    code, _, err = run(capsys, option, str(target))
    monkeypatch.undo()
    assert code == 3
    assert "No space left" in err and str(target) in err
    assert target.read_text() == "older"
    assert os.listdir(tmp_path) == ["out.json"]


# ---- where the output goes -----------------------------------------------------------------------

FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@FULL
@pytest.mark.parametrize("arguments", [["models"], ["devices"], ["--help"], ["--version"]])
def test_a_full_stdout_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        code, err = start(*arguments, stdout=full)
    assert code == 3
    assert err == "syncscope: cannot write to the standard output: No space left on device\n"


@FULL
def test_a_full_stdout_costs_no_file(tmp_path):
    with open("/dev/full", "w") as full:
        code, err = start(*QUICK, "--json", str(tmp_path / "bench.json"), stdout=full)
    assert code == 3 and err.count("\n") == 1
    assert len(bench(tmp_path)["variants"]) == 2


@pytest.mark.parametrize(("gate", "code"), [("syncs:18", 0), ("syncs:17", 1)])
def test_a_reader_that_is_gone_changes_neither_files_nor_exit_code(tmp_path, gate, code):
    reader, writer = os.pipe()
    os.close(reader)
    files = ["--json", str(tmp_path / "bench.json"), "--fail-on", gate]
    found, err = start(*QUICK, *files, stdout=writer)
    os.close(writer)
    assert found == code
    assert err.count("\n") == code and "Broken" not in err
    assert len(bench(tmp_path)["variants"]) == 2


def test_a_file_that_fails_does_not_cost_the_text(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "render_csv", lambda _: (_ for _ in ()).throw(FileError("no csv")))
    code, out, err = run(capsys, "--csv", str(tmp_path / "b.csv"))
    assert code == 3 and err == "syncscope: no csv\n"
    assert "tokens/s" in out


def test_json_goes_down_a_pipe(tmp_path):
    with open(tmp_path / "bench.json", "wb") as file:
        command = [sys.executable, "-m", "syncscope", *QUICK, "-q", "--json", "/dev/stderr"]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            file.write(process.communicate(timeout=60)[1])
    assert process.returncode == 0
    assert len(bench(tmp_path)["variants"]) == 2


def test_without_a_driver_the_reason_for_the_simulator_is_short(capsys, monkeypatch):
    def lacks(what):
        def list_gpus():
            raise DeviceError(what)

        monkeypatch.setattr(devices, "list_gpus", list_gpus)
        return devices.choose_device("").line

    why = f"no NVIDIA driver: {devices.LIBRARY}: "
    short = lacks(f"{why}cannot open shared object file: No such file or directory; install it")
    assert short == "device: sim, since no NVIDIA driver is installed here"
    assert "wrong ELF class" in lacks(f"{why}wrong ELF class; install it")


# ---- profiles and calibration --------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Traces of the simulator as `calibrate --timeline` writes them."""
    path = tmp_path_factory.mktemp("traces") / "traces.json"
    write_traces(plain_traces(load_profile("h200"), ("tiny",)), path)
    return str(path)


def calibrate(capsys, *arguments):
    code = main(["calibrate", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_profile_is_fitted_to_stored_traces_and_used(tmp_path, monkeypatch, capsys, recorded):
    monkeypatch.chdir(tmp_path)
    code, out, err = calibrate(capsys, "--from", recorded, "--name", "mine")
    assert (code, err) == (0, "")
    assert out.startswith("profile mine (estimated), NVIDIA H200\n")
    assert "tiny no-graph" in out and "switch_ns" in out
    assert os.listdir(tmp_path) == ["mine.json"]
    code, out, _ = run(capsys, "--no-compute", "--profile", "mine.json")
    assert code == 0
    assert "simulated: mine (estimated)" in out


def test_the_profile_that_a_fit_starts_from_may_be_a_file(tmp_path, capsys, recorded):
    start = {**json.loads(render_profile(load_profile("h200"))), "l2_nbytes": 12345, "name": "s"}
    (tmp_path / "s.json").write_text(json.dumps(start))
    out = str(tmp_path / "out.json")
    arguments = ["--from", recorded, "--profile", str(tmp_path / "s.json"), "--out", out]
    assert calibrate(capsys, *arguments)[0] == 0
    found = load_profile(out)
    assert found.l2_nbytes == 12345
    assert "kept from profile s: " in found.source


def test_calibrating_without_a_gpu_is_one_line(tmp_path, monkeypatch, capsys):
    def lacks():
        raise DeviceError("no NVIDIA driver: none; install it, or use --device sim")

    monkeypatch.setattr(devices, "list_gpus", lacks)
    monkeypatch.chdir(tmp_path)
    for device in ([], ["--device", "cuda"], ["--device", "cuda:1"]):
        code, out, err = calibrate(capsys, *device)
        assert (code, out) == (3, "")
        assert err.count("\n") == 1 and "or fit stored traces with --from" in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (["--device", "sim"], 2, "a GPU is measured"),
        (["--device", "gpu"], 2, "cuda:N"),
        (["--from", "{traces}", "--device", "cuda"], 2, "--device"),
        (["--from", "{traces}", "--models", "tiny"], 2, "--models"),
        (["--from", "{traces}", "--tokens", "9"], 2, "--tokens"),
        (["--from", "{traces}", "--timeline", "t.json"], 2, "--timeline"),
        (["--from", "{traces}", "--out", "{traces}"], 2, "is this file too"),
        (["--from", "{traces}", "--profile", "h20"], 2, "h200"),
        (["--from", "{traces}", "--profile", "no.json"], 3, "cannot read profile no.json"),
        (["--from", "no.json"], 3, "no.json"),
        (["--from", "{model}"], 3, "no timeline of Syncscope"),
        (["--from", "{traces}", "--out", "no/x.json"], 3, "no/x.json"),
        (["--name", " "], 2, "the value is empty"),
        (["--models", ","], 2, "the value is empty"),
    ],
)
def test_a_wrong_calibration_is_one_line_and_leaves_no_file(
    tmp_path, monkeypatch, capsys, recorded, arguments, code, names
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    filled = [each.format(traces=recorded, model="other.json") for each in arguments]
    found, out, err = calibrate(capsys, *filled)
    assert (found, out) == (code, ""), err
    assert err.count("\n") == 1 and names in err
    assert os.listdir(tmp_path) == ["other.json"]


def test_a_fit_that_fails_leaves_the_profile_as_it_was(tmp_path, capsys):
    traces, out = tmp_path / "traces.json", tmp_path / "mine.json"
    write_traces([probe_trace(load_profile("h200"))], traces)
    out.write_text("before")
    code, _, err = calibrate(capsys, "--from", str(traces), "--out", str(out))
    assert code == 2 and "no trace of the plan baseline" in err
    assert out.read_text() == "before"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "no JSON"), ('{"name": "x"}', "it has no"), ("[]", "of another kind")],
)
def test_a_profile_file_that_is_none_is_one_line(tmp_path, capsys, text, complaint):
    path = tmp_path / "p.json"
    path.write_text(text)
    err = refused(capsys, 3, "--profile", str(path))
    assert complaint in err and str(path) in err


# ---- interruption --------------------------------------------------------------------------------


def test_what_a_run_cannot_provoke_is_said(capsys):
    out = run(capsys, "--preset", "baseline", "--provoke")[1]  # one prompt micro-batch
    assert out.count("not tried, the race needs a phase that this run does not have") >= 2
    assert "not seen" not in out


def test_ctrl_c_keeps_and_exports_what_was_recorded(tmp_path):
    files = ["--json", str(tmp_path / "bench.json"), "--timeline", str(tmp_path / "trace.json")]
    program = """
import sys
from syncscope.app import cli
cli._progress = lambda enabled: (lambda *step: print("step", flush=True), lambda: None)
raise SystemExit(cli.main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", program, "--no-gui", "--model", "shape:135m"]
    with subprocess.Popen(
        [*command, "--tokens", "2000", "--prompt", "Alice", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "step\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err and "Traceback" not in err
    trace = read_traces(tmp_path / "trace.json")[0]
    assert 0 < len(trace.phases) < 2000
    assert len(bench(tmp_path)["variants"]) == 1


@pytest.mark.parametrize("module", ["numpy", "tqdm", "syncscope.sched_core.order"])
def test_ctrl_c_during_the_first_imports_is_one_line(module):
    program = f"""
import os, runpy, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["syncscope", "models"]
runpy.run_module("syncscope", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "syncscope: interrupted\n"
