"""The script that checks a GPU machine: every step by itself, bounded, and packed whatever happens.

A script stands in for Python, and for compute-sanitizer: what would be run is noted, not run.
"""

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "packaging" / "gpu_check.sh"
STEPS = ("build", "test", "bench", "drops", "record", "text", "calibrate", "memcheck")

PYTHON = r"""#!/usr/bin/env bash
echo "$*" >>"$NOTES/calls"
case "$*" in
    *"calibrate --help"*) exit "$CALIBRATE" ;;
    *RECORDS*) echo "stamps off"; exit ;;
    *"$FAILING"*) echo "it failed"; exit 3 ;;
    *"$HANGING"*) exec sleep 600 ;;
esac
[ "$1" = packaging/greedy_text.py ] && echo '{}' >"$2"
for word; do
    case $before in --json | --out | --markdown) echo '{}' >"$word" ;; esac
    before=$word
done
exit 0
"""
SANITIZER = '#!/usr/bin/env bash\necho "$*" >>"$NOTES/calls"\necho "ERROR SUMMARY: 0 errors"\n'


@pytest.fixture
def check(tmp_path):
    """Return what runs the script, and gives its exit code, its output, its calls and its files."""
    for name, text in (("python", PYTHON), ("sanitizer", SANITIZER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(steps, failing="nothing fails", hanging="nothing hangs", calibrate=0, limit=570):
        out = tmp_path / "out"
        done = subprocess.run(
            [SCRIPT, out],
            env={
                **os.environ,
                "STEPS": steps,
                "LIMIT_S": str(limit),
                "PYTHON": str(tmp_path / "python"),
                "COMPUTE_SANITIZER": str(tmp_path / "sanitizer"),
                "NOTES": str(tmp_path),
                "FAILING": failing,
                "HANGING": hanging,
                "CALIBRATE": str(calibrate),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert sorted(os.listdir(out)) == ["h200.tar.gz", "logs.tar.gz", "summary.txt"], done.stdout
        packed = {}
        for name in ("h200", "logs"):
            with tarfile.open(out / f"{name}.tar.gz") as archive:
                packed[name] = {Path(each).name for each in archive.getnames()} - {"", "."}
        summary = (out / "summary.txt").read_text("utf-8")
        assert all(line in done.stdout for line in summary.splitlines() if line.startswith("=="))
        calls = tmp_path / "calls"
        noted = calls.read_text("utf-8").splitlines() if calls.exists() else []
        return done.returncode, summary, noted, packed

    return run


def test_every_step_that_the_script_names_is_one_that_it_does():
    text = SCRIPT.read_text("utf-8")
    listed = re.findall(r"^#   (\w+)  +\S", text, re.M)
    assert tuple(listed[: len(STEPS)]) == STEPS  # the list of what memcheck leaves out follows
    assert tuple(re.findall(r"^if wanted (\w+);", text, re.M)) == STEPS


def test_all_steps_end_in_one_archive_of_results_and_one_of_logs(check):
    code, summary, calls, packed = check(" ".join(STEPS))
    assert code == 0, summary
    models = {"tiny", "stories260K", "shape-15m", "shape-135m", "shape-1b"}
    drops = {"drops-15m", "drops-135m", "drops-1b"}
    names = {*models, *drops, "record-stamps", "record-off", "greedy-text", "h200"}
    assert packed["h200"] == {f"{each}.json" for each in names}
    assert {"build.log", "tests.log", "memcheck-runs.log", "racecheck-others.log"} <= packed["logs"]
    assert "left out, there is no --record cupti" in summary
    for name in drops:
        (call,) = [each for each in calls if f"/{name}.json" in each]
        assert f"--model shape:{name.removeprefix('drops-')} --drop-each safe" in call
        assert "--rounds 4" in call and "--device cuda" in call


@pytest.mark.parametrize("step", STEPS)
def test_a_step_runs_without_the_others(check, step):
    code, summary, calls, packed = check(step)
    assert code == 0, summary
    assert summary.count("== ") >= 1
    assert len(packed["logs"]) >= 1
    assert bool(packed["h200"]) == (step not in ("build", "test", "memcheck"))
    assert calls


def test_a_step_that_fails_is_named_and_costs_no_other(check):
    code, summary, _, packed = check("test bench text", failing="--model tiny")
    assert code == 1
    assert "== tiny: FAILED with status 3" in summary
    assert "it failed" in summary
    assert "== tests: ok" in summary and "== greedy-text: ok" in summary
    assert "tiny.json" not in packed["h200"]
    assert {"shape-15m.json", "greedy-text.json"} <= packed["h200"]


def test_a_step_that_hangs_is_cut_short_and_what_there_is_is_packed(check):
    code, summary, calls, packed = check("test text", hanging="-m pytest", limit=26)
    assert code == 1
    assert "== tests: CUT SHORT" in summary
    assert "== greedy-text: CUT SHORT" in summary
    assert not any("greedy_text" in each for each in calls)
    assert packed["logs"] == {"tests.log", "greedy-text.log"}


def test_a_command_that_is_not_there_is_left_out_with_a_word(check):
    code, summary, _, packed = check("calibrate", calibrate=2)
    assert code == 0
    assert "calibrate: left out" in summary
    assert not packed["h200"]


def test_memcheck_runs_every_test_but_those_it_names_and_why(check):
    text = SCRIPT.read_text("utf-8")
    _, summary, calls, _ = check("memcheck")
    found = {}
    for call in calls:
        tool = re.search(r"--tool (\w+)", call)
        if tool:
            found.setdefault(tool[1], []).append(call)
    assert {tool: len(each) for tool, each in found.items()} == {"memcheck": 2, "racecheck": 2}
    assert all("--error-exitcode" in call for each in found.values() for call in each)
    assert "ERROR SUMMARY: 0 errors" in summary
    (unchecked,) = re.findall(r'^unchecked="(.*)"$', text, re.M)
    tests = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests" / "gpu").glob("test_*.py"))
    for name in unchecked.split(" or "):
        assert re.search(rf"^def test_\w*{name}", tests, re.M), name
        assert re.search(rf"^#   {name} ", text, re.M), name
    assert (ROOT / "tests" / "gpu" / "test_endurance.py").exists()
