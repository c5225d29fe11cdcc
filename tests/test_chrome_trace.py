"""The timeline file: what viewers need, read back without loss, and what is refused."""

import json
import os
import time
from collections import defaultdict
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from helpers.traces import COPIES, LANES, TraceBuilder, awkward_trace, small_plan, token_trace
from syncscope.app.report import chrome_trace
from syncscope.app.report.chrome_trace import read_trace, read_traces, write_trace, write_traces
from syncscope.sched_core.backend import BOUNDED, LOWER_BOUND
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.trace import Lane, Trace


def full_trace(**changes: Any) -> Trace:
    """Return a trace with a value in every field."""
    build = TraceBuilder().step("prompt_last")
    build.call("a:inputs.copy", 0, 2_100, nbytes=64).run("a:inputs.copy", 4_000, 5_503, COPIES, 64)
    build.call("s:inputs.sync", 2_100, 6_000).call("g:mul", 6_000, 9_900).run("g:mul", 9_000, 9_950)
    build.step("decode").call("G:graph", 10_000, 12_001, nbytes=2)
    build.run("g:mul", 15_000, 16_234).run("g:add", 16_234, 17_000)
    build.call("s:get", 12_001, 18_000).drain(18_000, 18_700, "run.end.sync")
    fields: dict[str, Any] = {
        "dropped": 3,
        "device": {"kind": "sim", "name": "NVIDIA H200", "profile": "h200", "simulated": True},
        "model": {"id": "tiny", "parameters": 12, "scale": 0.1},
        "variant": {"id": "baseline", "passes": ["cuda-graph"]},
        "recording": {"mode": "stamps", "overhead_share": None},
        "environment": {"cpu": 'an "odd" name \u00b5 \n', "time": None},
        "plans": (small_plan(),),
        "base_ns": 1_764_547_200_123_456_789,
    }
    return build.trace(**(fields | changes))


def load(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_bytes())
    return data


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    return [each for each in load(path)["traceEvents"] if each["ph"] == kind]


def arrows(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the events at the ends of each arrow, joined as viewers do, in file order."""
    found, begun = [], {}
    for each in events(path, "X"):
        if "flow_out" in each:
            assert each["bind_id"] not in begun
            begun[each["bind_id"]] = each
        if "flow_in" in each:
            found.append((begun[each["bind_id"]], each))
    assert begun.keys() == {run["bind_id"] for _, run in found}
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


# ---------------------------------------------------------------------------------- round trip


def test_a_trace_reads_back_without_loss(path):
    trace = full_trace()
    write_trace(trace, path)
    again = read_trace(path)
    for field in fields(Trace):
        left, right = getattr(trace, field.name), getattr(again, field.name)
        if field.name == "spans":
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes()
        else:
            assert left == right, field.name


@pytest.mark.parametrize(
    "trace",
    [
        full_trace(),
        token_trace(3_000),
        awkward_trace(),
        TraceBuilder().trace(),
        TraceBuilder().step("x").trace(),
    ],
    ids=["full", "long", "awkward", "empty", "one step"],
)
def test_export_import_export_is_byte_identical(path, trace):
    write_trace(trace, path)
    first = path.read_bytes()
    write_trace(read_trace(path), path)
    assert path.read_bytes() == first


def test_several_traces_share_a_file(path):
    traces = [full_trace(variant={"id": name}) for name in ("baseline", "all")]
    write_traces(traces, path)
    again = read_traces(path)
    assert [each.variant for each in again] == [{"id": "baseline"}, {"id": "all"}]
    first = path.read_bytes()
    write_traces(again, path)
    assert path.read_bytes() == first
    with pytest.raises(FileError, match="it holds baseline, all"):
        read_trace(path)
    assert process_names(path) == {
        "baseline, simulated: h200: host",
        "baseline, simulated: h200: device 0",
        "all, simulated: h200: host",
        "all, simulated: h200: device 0",
    }


def test_a_file_that_another_tool_rewrote_reads_the_same(path):
    write_trace(full_trace(), path)
    before = path.read_bytes()
    path.write_text(json.dumps(load(path), indent=2), encoding="utf-8")
    write_trace(read_trace(path), path)
    assert path.read_bytes() == before


def test_extreme_numbers_survive(path):
    trace = full_trace()
    spans = trace.spans.copy()
    spans["nbytes"][0] = 2**32 - 1
    spans["flags"][0] = 255
    spans["begin_ns"][0] = -5
    spans["end_ns"][1] = 2**60
    write_trace(replace(trace, spans=spans), path)
    assert read_trace(path).spans.tobytes() == spans.tobytes()


# -------------------------------------------------------------------------------------- viewers


def test_the_file_conforms_to_its_schema(path):
    write_traces([full_trace(), token_trace(500), awkward_trace()], path)
    schema = json.loads(
        (resources.files("syncscope.app") / "schemas" / "trace-1.schema.json").read_text("utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(load(path), schema)


def test_times_are_relative_microseconds_with_three_decimals(path):
    trace = full_trace()
    write_trace(trace, path)
    data = load(path)
    assert data["displayTimeUnit"] == "ns"
    assert data["baseTimeNanoseconds"] == trace.base_ns
    assert b'"ts":4.000,"dur":1.503}' in path.read_bytes()
    drawn = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in events(path, "X"))
    spans = trace.spans
    kept = zip(spans["begin_ns"], spans["end_ns"] - spans["begin_ns"], strict=True)
    assert drawn == sorted((int(begin), int(dur)) for begin, dur in kept)


def test_syncs_of_a_host_thread_have_a_row_of_their_own(path):
    write_trace(full_trace(), path)
    names = {
        each["tid"]: each["args"]["name"]
        for each in events(path, "M")
        if each["name"] == "thread_name"
    }
    rows = defaultdict(set)
    for each in events(path, "X"):
        rows[names[each["tid"]]].add(each["name"])
    assert rows["host thread 0 syncs"] == {"inputs.sync", "get", "run.end.sync"}
    assert rows["host thread 0"] == {"inputs.copy", "mul", "graph"}
    assert rows["dev0.per_thread"] == {"inputs.copy"}


def test_every_row_is_named_and_ordered_and_belongs_to_one_process(path):
    write_traces([full_trace(), full_trace()], path)
    meta = events(path, "M")
    named = {(e["pid"], e["tid"]) for e in meta if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events(path, "X")} <= named
    assert len({tid for _, tid in named}) == len(named)
    assert {(e["pid"], e["tid"]) for e in meta if e["name"] == "thread_sort_index"} == named
    processes = {e["pid"] for e in meta if e["name"] == "process_name"}
    assert {pid for pid, _ in named} == processes
    assert not processes & {tid for _, tid in named}


def process_names(path: Path) -> set[str]:
    return {e["args"]["name"] for e in events(path, "M") if e["name"] == "process_name"}


def test_the_viewer_says_that_times_are_simulated(path):
    write_trace(full_trace(variant={}), path)
    assert process_names(path) == {"simulated: h200: host", "simulated: h200: device 0"}
    write_trace(full_trace(variant={}, device={}), path)
    assert process_names(path) == {"simulated: host", "simulated: device 0"}
    write_trace(full_trace(variant={}, simulated=False), path)
    assert process_names(path) == {"host", "device 0 (NVIDIA H200)"}


def test_no_event_is_before_0_since_viewers_drop_it(path):
    trace, other = awkward_trace(), full_trace()
    early = int(trace.spans["begin_ns"].min())
    assert early < 0
    write_traces([trace, other], path)
    assert load(path)["baseTimeNanoseconds"] == early
    drawn = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in events(path, "X"))
    spans = np.concatenate([trace.spans, other.spans])
    kept = zip(spans["begin_ns"] - early, spans["end_ns"] - spans["begin_ns"], strict=True)
    assert drawn == sorted((int(begin), int(dur)) for begin, dur in kept)
    assert drawn[0][0] == 0


def nests(found: list[dict[str, Any]]) -> bool:
    """Whether the events of a row hold each other or are apart, in file order."""
    open_ends: list[int] = []
    for each in found:
        begin = round(each["ts"] * 1000)
        end = begin + round(each["dur"] * 1000)
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            return False
        open_ends.append(end)
    return True


def test_events_of_a_row_nest_even_where_spans_overlap(path):
    rng = np.random.default_rng(3)
    build = TraceBuilder().step("decode")
    for begin in rng.integers(0, 4_000, 200).tolist():
        build.run("g:k", begin, begin + int(rng.integers(0, 300)))
    build.run("g:outer", 5_000, 6_000).run("g:inner", 5_000, 5_400).run("g:inner", 5_400, 6_000)
    write_trace(build.trace(), path)
    rows = defaultdict(list)
    for each in events(path, "X"):
        rows[each["tid"]].append(each)
    assert sum(map(len, rows.values())) == 203
    assert all(map(nests, rows.values()))
    assert not nests(sorted(events(path, "X"), key=lambda e: e["ts"]))
    last = [e for e in events(path, "X") if e["ts"] >= 5]
    assert len({e["tid"] for e in last}) == 1


def test_arrows_lead_from_each_call_to_its_execution(path):
    write_trace(full_trace(), path)
    assert all(call["args"]["step"] == run["args"]["step"] for call, run in arrows(path))
    assert sorted(
        (call["name"], run["name"], run["args"]["step"]) for call, run in arrows(path)
    ) == [
        ("graph", "mul", 1),
        ("inputs.copy", "inputs.copy", 0),
        ("mul", "mul", 0),
    ]


def test_arrows_join_the_right_ones_of_spans_that_begin_together(path):
    write_trace(awkward_trace(), path)
    assert len({call["bind_id"] for call, _ in arrows(path)}) == 9
    assert sorted((call["name"], run["name"]) for call, run in arrows(path)) == [
        ('a "graph" \u00b5 \\ </script>', "mul"),
        ("at_once", "at_once"),
        ("copies", "copies"),
        ("copies", "copies"),
        ("early", "early"),
        ("empty", "empty"),
        ("inner", "inner"),
        ("late", "late"),
        ("longer", "longer"),
        ("outer", "outer"),
    ]


def test_each_replay_has_one_arrow_and_ids_are_unique_in_the_file(path):
    traces = [token_trace(104 * 20), token_trace(104 * 5)]
    for trace in traces:
        for name in ("begin_ns", "end_ns"):
            trace.spans[name][trace.spans["role"] == 1] += 120_000  # a step later than their calls
    write_traces(traces, path)
    ids = [call["bind_id"] for call, _ in arrows(path)]
    assert len(ids) == len(set(ids)) == (13 + 1) * 25


def test_two_graphs_of_a_step_each_lead_to_their_own_members(path):
    build = TraceBuilder().step("decode").call("G:one", 0, 10).run("g:a", 20, 30)
    build.run("g:b", 30, 40).call("G:two", 50, 60).run("g:c", 70, 80)
    write_trace(build.trace(), path)
    assert [(call["ts"], run["ts"]) for call, run in arrows(path)] == [(0.0, 0.02), (0.05, 0.07)]


def test_a_million_spans_are_written_in_five_seconds(path):
    trace = token_trace(1_000_000)
    began = time.process_time()
    write_trace(trace, path)
    assert time.process_time() - began < 5
    began = time.process_time()
    assert len(read_trace(path).spans) == len(trace.spans)
    assert time.process_time() - began < 5
    path.unlink()  # pytest keeps folders


# ------------------------------------------------------------------------------------- refusals


def refusal(path: Path) -> str:
    with pytest.raises(FileError) as error:
        read_traces(path)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    assert text.startswith(f"cannot read {path}")
    return text


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "missing.json")
    assert "no regular file" in refusal(tmp_path)


def test_a_pipe_is_refused_without_waiting_for_a_writer(path):
    os.mkfifo(path)
    assert "no regular file" in refusal(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"hello", "no JSON"),
        (b"\x80\x04\x95pickle", "no JSON"),
        (b"\x00" * 5000, "no JSON"),
        (b"{}", "JSON of another kind"),
        (b"[1, 2, 3]", "JSON of another kind"),
        (b'{"schema": "syncscope-bench/1"}', "JSON of another kind"),
        (b'{"traceEvents": []}', "Chrome trace of another tool"),
        (b'{"note": "syncscope-trace/1"}', "JSON of another kind"),
        (b'"syncscope-trace/1"', "no JSON, so no timeline"),
        (b'{"syncscope": 1, "x": "syncscope-trace/1"}', "is no object"),
        (b'{"syncscope":{},\n"x":[\n]}\n', "its schema is NoneType"),
        (b'{"syncscope":nonsense,\n"x":[\n]}\n', "damaged"),
        (b'{"syncscope": "syncscope-trace/1" ' + b"[" * 100_000, "damaged"),
    ],
)
def test_other_files_are_refused(path, content, reason):
    path.write_bytes(content)
    assert reason in refusal(path)


def test_every_truncation_is_noticed(path):
    write_trace(full_trace(), path)
    whole = path.read_bytes()
    for length in [*range(1, 400), *range(400, len(whole) - 1, 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_large_file_is_refused_before_it_is_read(path):
    with path.open("wb") as file:
        file.truncate(chrome_trace.MAX_FILE_BYTES + 1)
    assert f"more than {chrome_trace.MAX_FILE_BYTES}" in refusal(path)


def test_a_large_file_of_another_tool_is_not_parsed(path, monkeypatch):
    write_trace(full_trace(), path)
    path.write_text(json.dumps(load(path), indent=1), encoding="utf-8")
    monkeypatch.setattr(chrome_trace, "MAX_REFORMATTED_BYTES", 100)
    assert "rewritten" in refusal(path)


@pytest.mark.parametrize("version", ["2", "10", "99999999999999999999"])
def test_a_newer_version_is_refused_with_a_remedy(path, version):
    write_trace(full_trace(), path)
    path.write_bytes(path.read_bytes().replace(b"trace/1", f"trace/{version}".encode(), 1))
    assert "newer Syncscope" in refusal(path)
    assert "update" in refusal(path)


@pytest.mark.parametrize("schema", ["syncscope-trace/0", "syncscope-trace/x", "other/1", 1, None])
def test_another_schema_is_refused(path, schema):
    edit(path, lambda root, _: root.update(schema=schema))
    assert "schema" in refusal(path)


def edit(path: Path, change: Any) -> None:
    """Write a trace with its `syncscope` object changed; `change` gets that and the trace."""
    write_trace(full_trace(), path)
    data = load(path)
    change(data["syncscope"], data["syncscope"]["traces"][0])
    head = json.dumps(data["syncscope"], separators=(",", ":")).encode()
    rest = path.read_bytes().split(b"\n", 1)[1]
    path.write_bytes(b'{"syncscope":' + head + b",\n" + rest)


def test_the_editing_of_these_tests_does_no_harm(path):
    edit(path, lambda root, trace: None)
    assert read_trace(path).sites == full_trace().sites


def deep(levels: int) -> list[Any]:
    out: list[Any] = []
    for _ in range(levels):
        out = [out]
    return out


HOSTILE = {
    "short column": (lambda t: t["spans"]["op"].pop(), "columns of spans differ in length"),
    "column missing": (lambda t: t["spans"].pop("lane"), "spans has no lane"),
    "column unknown": (lambda t: t["spans"].update(x=[]), "unknown key 'x'"),
    "column no list": (lambda t: t["spans"].update(op={}), "spans.op is dict, not a list"),
    "column of text": (lambda t: t["spans"]["op"].append("1"), "no whole numbers"),
    "column of floats": (lambda t: t["spans"]["op"].append(1.5), "no whole numbers"),
    "column of bools": (lambda t: t["spans"]["role"].append(True), "no whole numbers"),
    "column of lists": (lambda t: t["spans"]["op"].append([1]), "no whole numbers"),
    "number too large": (lambda t: t["spans"]["op"].__setitem__(0, 2**40), "outside"),
    "number negative": (lambda t: t["spans"]["nbytes"].__setitem__(0, -1), "outside"),
    "site out of range": (lambda t: t["spans"]["op"].__setitem__(0, 99), "spans.op has 99"),
    "site negative": (lambda t: t["spans"]["op"].__setitem__(0, -1), "spans.op has -1"),
    "lane out of range": (lambda t: t["spans"]["lane"].__setitem__(0, 3), "spans.lane has 3"),
    "role unknown": (lambda t: t["spans"]["role"].__setitem__(0, 2), "spans.role has 2"),
    "step out of range": (lambda t: t["spans"]["step"].__setitem__(0, 2), "spans.step has 2"),
    "step negative": (lambda t: t["spans"]["step"].__setitem__(0, -1), "spans.step has -1"),
    "backward span": (lambda t: t["spans"]["end_ns"].__setitem__(0, -9), "ends before it begins"),
    "absurd time": (lambda t: t["spans"]["end_ns"].__setitem__(0, 2**62), "time beyond"),
    "spans no object": (lambda t: t.update(spans=[]), "spans is list"),
    "sites no list": (lambda t: t.update(sites="abc"), "sites is 'abc'"),
    "site no object": (lambda t: t["sites"].append(3), "is int, not an object"),
    "site without name": (lambda t: t["sites"][0].pop("name"), "sites[0] has no name"),
    "site of no kind": (lambda t: t["sites"][0].update(kind="COPY"), "not a kind of op"),
    "site with more": (lambda t: t["sites"][0].update(__class__="x"), "unknown key '__class__'"),
    "flag as number": (lambda t: t["sites"][0].update(blocking=1), "is int, not bool"),
    "lane of huge device": (lambda t: t["lanes"][0].update(device=2**63), "64 bits"),
    "phase no text": (lambda t: t["phases"].append(None), "phases[2] is NoneType"),
    "dropped no number": (lambda t: t.update(dropped="0"), "dropped is '0', not int"),
    "simulated no bool": (lambda t: t.update(simulated=0), "simulated is int"),
    "device no object": (lambda t: t.update(device=[]), "device is list"),
    "no plans": (lambda t: t.pop("plans"), "traces[0] has no plans"),
    "plan with odd op": (
        lambda t: t["plans"][0]["phases"]["decode"][0].update(thread="0"),
        "plans[0].phases.'decode'[0].thread is '0'",
    ),
    "deep mapping": (lambda t: t["device"].update(x=deep(500)), "nested more than"),
    "long text": (lambda t: t.update(dropped="x" * 10_000), "dropped is 'xxx"),
    "line breaks": (lambda t: t.update(dropped="a\nb\x1b[31m"), r"dropped is 'a\nb\x1b[31m'"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_damaged_contents_are_refused_with_the_place(path, case):
    change, reason = HOSTILE[case]
    edit(path, lambda root, trace: change(trace))
    assert reason in refusal(path)


def test_traces_that_are_no_list_are_refused(path):
    edit(path, lambda root, trace: root.update(traces={}))
    assert "traces is dict" in refusal(path)


def test_a_lane_of_any_device_is_drawn(path):
    lanes = (LANES[0], Lane("a", "stream", 7), Lane("b", "stream", -1))
    write_trace(replace(full_trace(), lanes=lanes), path)
    assert read_trace(path).lanes == lanes
    assert len({e["pid"] for e in events(path, "X")}) == 3


def test_times_that_are_only_bounded_say_so(tmp_path):
    trace = token_trace(200)
    trace.spans["flags"][trace.spans["role"] == 1] = BOUNDED
    trace.spans["flags"][np.flatnonzero(trace.spans["role"] == 1)[0]] = LOWER_BOUND
    write_trace(trace, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    times = [each["args"].get("time") for each in events if each["ph"] == "X"]
    assert times.count("lower bound") == 1
    assert times.count("bounded") == (trace.spans["role"] == 1).sum() - 1
    assert times.count(None) == (trace.spans["role"] == 0).sum()
