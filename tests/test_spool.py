"""Recordings on disk: complete to the last whole frame, whatever happens to their owner."""

import errno
import os
import signal
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from helpers.live import CALL, watched
from helpers.plans import make_plan
from helpers.traces import LANES, TraceBuilder
from syncscope.app import spool as module
from syncscope.app.live import LiveBatch, LiveRequest, PlanChange
from syncscope.app.report.chrome_trace import read_trace
from syncscope.app.spool import (
    HEAD,
    MAGIC,
    NEWS,
    SPANS,
    Spool,
    convert_spool,
    read_spool,
    spool_folder,
    unfinished,
)
from syncscope.app.variants import Planned, Variant
from syncscope.sched_core.engine import SWITCH
from syncscope.sched_core.errors import FileError
from syncscope.sched_core.passes.registry import Applied
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Finding

HEADER = {
    "device": {"kind": "sim", "name": "test"},
    "model": {"id": "tiny"},
    "variant": {"id": "first"},
    "recording": {"mode": "stamps", "dropped": 0},
    "environment": {},
    "simulated": True,
    "why_device": "as asked",
    "base_ns": 7,
}
PLAN = make_plan("s copy h d; sync s")
SHORT = LiveRequest(device="sim", n_tokens=12, ubatch=16)


def change(step, name):
    plan = replace(PLAN, passes=(name,))
    planned = Planned(Variant(name, ()), plan, Applied(plan, (), {}), ("decode:done.sync",))
    finding = Finding("decode", f"{name}.sync", "redundant", True)
    return PlanChange(step, planned, (finding,), {}, {}, {})


def batches():
    """Three batches: a plan, only steps, another plan with a site more and spans dropped."""
    build = TraceBuilder()
    build.step("prompt").call("h:sample", 0, 5).call("a:copy", 5, 9, 64).run("a:copy", 7, 30)
    first = LiveBatch(
        "running", np.array(build.spans, SPAN), tuple(build.sites), ("prompt",),
        (change(0, "first"),), lanes=LANES,
    )  # fmt: skip
    build.spans.clear()
    build.step("decode").call("h:again", 31, 40).step("decode").call("h:again", 41, 50)
    second = LiveBatch(
        "running", np.array(build.spans, SPAN), tuple(build.sites[2:]), ("decode",) * 2,
        lanes=LANES,
    )  # fmt: skip
    build.spans.clear()
    build.drain(51, 60)
    third = LiveBatch(
        "paused", np.array(build.spans, SPAN), tuple(build.sites[3:]), (),
        (change(3, "second"),), lanes=LANES, dropped=4,
    )  # fmt: skip
    return [first, second, third]


def written(path, upto=3):
    """Write a spool; return it and its size when it had begun and after each batch."""
    spool = Spool(path)
    spool.begin(HEADER)
    sizes = [path.stat().st_size]
    for batch in batches()[:upto]:
        spool.append(batch)
        sizes.append(path.stat().st_size)
    return spool, sizes


def whole(path):
    spool, _ = written(path)
    spool.close()
    return path.read_bytes()


def frame(kind, payload):
    body = bytes([kind]) + payload
    return struct.pack("<II", len(body), zlib.crc32(body)) + body


def head(**changes):
    kept = {name: value for name, value in HEADER.items() if name != "why_device"}
    return MAGIC + frame(HEAD, orjson.dumps(kept | changes))


# ---- what was written is read -------------------------------------------------------------------


def test_what_was_appended_is_read_back(tmp_path):
    spool, _ = written(tmp_path / "a.spool")
    trace = read_spool(spool.path)
    spool.discard()
    parts = batches()
    assert np.array_equal(trace.spans, np.concatenate([each.spans for each in parts]))
    assert trace.sites == tuple(site for each in parts for site in each.sites)
    assert trace.phases == ("prompt", "decode", "decode")
    assert trace.lanes == LANES
    assert [plan.passes for plan in trace.plans] == [("first",), ("second",)]
    assert trace.plans[0].phases == PLAN.phases
    assert trace.findings == parts[2].changes[0].findings
    assert trace.variant == {
        "id": "second", "passes": ["second"], "dropped_sites": ["decode:done.sync"],
    }  # fmt: skip
    assert (trace.dropped, trace.simulated, trace.base_ns) == (4, True, 7)
    assert trace.recording == {"mode": "stamps", "dropped": 4}
    assert (trace.device, trace.model) == (HEADER["device"], HEADER["model"])


def test_a_live_run_is_recorded_as_it_was(tmp_path):
    spool = Spool.in_folder(tmp_path / "runs")
    with watched(SHORT, spool) as seen:
        seen.session.pause()
        for _ in range(5):
            seen.session.step()
        seen.session.start()
        seen.until_step(5)
        seen.session.set_variant("all")
        seen.until(lambda seen: len(seen.changes) == 2)
        seen.session.resume()
        seen.finish()
        header = seen.session.header
    spool.close()
    trace = read_spool(spool.path)
    assert np.array_equal(trace.spans, seen.spans)
    assert (trace.sites, trace.phases, trace.lanes) == (seen.sites, seen.phases, seen.last.lanes)
    assert trace.plans == tuple(each.planned.plan for each in seen.changes)
    assert trace.findings == seen.changes[-1].findings
    assert trace.variant["id"] == "all"
    assert (trace.device, trace.environment) == (header["device"], header["environment"])
    assert trace.recording == header["recording"]


def test_a_spool_is_converted_to_a_timeline(tmp_path):
    spool, _ = written(tmp_path / "a.spool")
    spool.close()
    convert_spool(spool.path, tmp_path / "a.json")
    trace, again = read_spool(spool.path), read_trace(tmp_path / "a.json")
    assert np.array_equal(again.spans, trace.spans)
    assert replace(again, spans=trace.spans) == trace


def test_many_spans_of_one_batch_are_cut_into_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SPANS_PER_FRAME", 2)
    spool, _ = written(tmp_path / "a.spool", upto=1)
    spool.close()
    assert len(read_spool(spool.path).spans) == 3
    data = spool.path.read_bytes()
    spool.path.write_bytes(data[:-1])
    assert len(read_spool(spool.path).spans) == 2


# ---- cut off and damaged ------------------------------------------------------------------------


def test_wherever_it_is_cut_off_it_is_complete_to_the_last_whole_frame(tmp_path):
    spool, sizes = written(tmp_path / "a.spool")
    spool.close()
    data = spool.path.read_bytes()
    spans = [each.spans for each in batches()]
    whole_frames = set()
    path = tmp_path / "cut.spool"
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        if cut < sizes[0]:
            with pytest.raises(FileError, match=r"empty|before its run had begun"):
                read_spool(path)
            continue
        trace = read_spool(path)
        n_batches = sum(size <= cut for size in sizes[1:])
        expected = np.concatenate([np.zeros(0, SPAN), *spans[:n_batches]])
        assert np.array_equal(trace.spans, expected)
        note = trace.recording.get("incomplete")
        if note is None:
            whole_frames.add(cut)
        else:
            end = max(each for each in whole_frames if each < cut)
            assert note == f"{cut - end} bytes after byte {end} are no whole frame"
    assert set(sizes) < whole_frames
    assert len(whole_frames) == 1 + 2 * 3


def test_whichever_byte_is_damaged_nothing_wrong_is_read(tmp_path):
    data = bytearray(whole(tmp_path / "a.spool"))
    path = tmp_path / "damaged.spool"
    every = np.concatenate([each.spans for each in batches()])
    read = 0
    for at in range(0, len(data), 3):
        data[at] ^= 0x41
        path.write_bytes(data)
        data[at] ^= 0x41
        try:
            trace = read_spool(path)
        except FileError as error:
            assert "\n" not in str(error)
            continue
        read += 1
        assert "incomplete" in trace.recording
        assert len(trace.spans) < len(every)
        assert np.array_equal(trace.spans, every[: len(trace.spans)])
    assert read > 100


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"\x7fELF and more", "it is no recording of Syncscope"),
        (b'{"traceEvents": []}', "it is no recording of Syncscope"),
        (b"syncscope-spool/2\n....", "written by a newer Syncscope"),
        (MAGIC, "before its run had begun"),
        (MAGIC + frame(NEWS, b"{}"), "before its run had begun"),
        (MAGIC + frame(HEAD, b"{}"), "the recording has no base_ns"),
        (MAGIC + frame(HEAD, b"[]"), "is no object"),
        (MAGIC + frame(HEAD, b"[" * 100_000), "is no JSON"),
        (head(simulated=1), "simulated is int, not bool"),
        (head(surprise=1), "an unknown key 'surprise'"),
        (head(dropped="many"), "dropped is 'many', not int"),
        (head(recording=[]), "recording is list, not an object"),
        (head() + frame(NEWS, b'{"sites": [{"phase": "decode"}]}'), "sites[0] has no kind"),
        (head() + frame(NEWS, b'{"phases": "decode"}'), "phases is 'decode', not a list"),
        (head() + frame(NEWS, b'{"lanes": null}'), "lanes is NoneType, not a list"),
        (head() + frame(NEWS, b'{"plans": [{}]}'), "plans[0] has no"),
        (head() + frame(NEWS, b"{"), "is no JSON"),
        (head() + frame(SPANS, bytes(31)), "is of no kind that there is"),
        (head() + frame(7, b""), "is of no kind that there is"),
        (head() + frame(SPANS, bytes(32)), "spans.op has 0, outside 0..-1"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_spool_of_ours_is_refused_in_one_line(tmp_path, data, words):
    path = tmp_path / "other.spool"
    path.write_bytes(data)
    with pytest.raises(FileError) as caught:
        read_spool(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"cannot read {path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [0, 2**24 + 1, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_is_where_reading_ends(tmp_path, length):
    path = tmp_path / "long.spool"
    with open(path, "wb") as file:
        file.write(head() + struct.pack("<II", length, 0))
        file.truncate(2**33)  # a hole: there is a file behind, but nothing to be read into memory
    with pytest.raises(FileError, match="more than"):
        read_spool(path)
    os.truncate(path, 2**32)
    trace = read_spool(path)
    assert len(trace.spans) == 0
    assert "no whole frame" in trace.recording["incomplete"]


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        read_spool(tmp_path / "gone.spool")
    with pytest.raises(FileError, match="no regular file"):
        read_spool(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="no regular file"):
        read_spool(tmp_path / "pipe")


# ---- bounds -------------------------------------------------------------------------------------


def test_of_more_spans_than_fit_the_newest_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_SPANS", 3)
    path = tmp_path / "a.spool"
    whole(path)
    trace = read_spool(path)
    assert np.array_equal(trace.spans, np.concatenate([each.spans for each in batches()[1:]]))
    assert trace.dropped == trace.recording["dropped"] == 4 + 3
    assert trace.recording["incomplete"] == "3 spans before the newest 3 were left out"
    assert trace.phases == ("prompt", "decode", "decode")


@pytest.mark.parametrize(("name", "words"), [
    ("MAX_FILE_BYTES", "it has reached"),
    ("MAX_NEWS_BYTES", "too many changes of plan"),
    ("MAX_FRAME_BYTES", "the plan is too large"),
])  # fmt: skip
def test_a_spool_that_has_grown_too_large_says_so_and_stays_readable(
    tmp_path, monkeypatch, name, words
):
    path = tmp_path / "a.spool"
    spool, sizes = written(path, upto=2)
    monkeypatch.setattr(module, name, sizes[-1] if "FILE" in name else 300)
    with pytest.raises(FileError, match=words):
        for _ in range(100):
            spool.append(batches()[2])
    monkeypatch.undo()
    spool.close()
    trace = read_spool(path)
    assert "incomplete" not in trace.recording
    assert len(trace.spans) >= 5


def test_a_file_with_more_beside_spans_than_is_written_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.spool"
    whole(path)
    monkeypatch.setattr(module, "MAX_NEWS_BYTES", 300)
    with pytest.raises(FileError, match="more than 300 bytes beside spans"):
        read_spool(path)


# ---- a disk that fails --------------------------------------------------------------------------


def test_a_full_disk_is_told_and_what_was_whole_stays(tmp_path, monkeypatch):
    path = tmp_path / "a.spool"
    spool, sizes = written(path, upto=2)
    write = os.write

    def full(file, data):
        if len(data) > 10:
            return write(file, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "write", full)
    with pytest.raises(FileError, match="No space left on device") as caught:
        spool.append(batches()[2])
    monkeypatch.undo()
    assert str(path) in str(caught.value)
    assert path.stat().st_size == sizes[2]
    spool.close()
    assert "incomplete" not in read_spool(path).recording


def test_a_folder_that_cannot_be_made_and_a_file_that_is_there_are_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot open"):
        Spool(tmp_path / "file")
    with pytest.raises(FileError, match=r"cannot write .*file"):
        Spool.in_folder(tmp_path / "file")


# ---- owners -------------------------------------------------------------------------------------


def test_only_what_nobody_holds_is_unfinished(tmp_path):
    assert unfinished(tmp_path / "not there") == ()
    spool, _ = written(tmp_path / "20261201-a.spool")
    other, _ = written(tmp_path / "20261202-b.spool")
    (tmp_path / "20261203-c.spool").write_bytes(MAGIC)  # died before its run began
    (tmp_path / "20261204-d.spool").write_bytes(b"something else")
    (tmp_path / "notes.txt").write_bytes(spool.path.read_bytes())
    assert unfinished(tmp_path) == ()
    spool.close()
    assert unfinished(tmp_path) == (spool.path,)
    other.close()
    assert unfinished(tmp_path) == (other.path, spool.path)
    spool.discard()
    other.discard()
    assert unfinished(tmp_path) == ()
    assert not spool.path.exists()


def test_a_spool_is_adopted_by_one_and_not_offered_to_others(tmp_path):
    path = tmp_path / "a.spool"
    whole(path)
    mine = Spool.adopt(path)
    assert unfinished(tmp_path) == ()
    with pytest.raises(FileError, match="open in another Syncscope"):
        Spool.adopt(path)
    assert len(read_spool(path).spans) == 6
    mine.close()
    Spool.adopt(path).discard()
    assert not path.exists()
    with pytest.raises(FileError, match="No such file"):
        Spool.adopt(path)


def test_close_and_discard_may_be_repeated(tmp_path):
    spool, _ = written(tmp_path / "a.spool")
    spool.close()
    spool.close()
    spool.discard()
    spool.discard()
    assert list(tmp_path.iterdir()) == []


def test_new_spools_of_one_moment_have_names_of_their_own(tmp_path):
    spools = [Spool.in_folder(tmp_path / "runs") for _ in range(20)]
    assert len({each.path for each in spools}) == 20
    for each in spools:
        each.discard()


def test_recordings_belong_where_state_does(tmp_path, monkeypatch):
    assert spool_folder({"XDG_STATE_HOME": "/somewhere"}) == Path("/somewhere/syncscope/runs")
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / ".local" / "state" / "syncscope" / "runs"
    assert spool_folder({}) == default
    assert spool_folder({"XDG_STATE_HOME": "relative"}) == default


LIVE_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from syncscope.app.live import LiveRequest, LiveSession
from syncscope.app.spool import Spool

request = LiveRequest(device="sim", compute=False, repeat=True, n_tokens=40, ubatch=16)
session = LiveSession(request, Spool.in_folder(Path(sys.argv[1])))
session.start()
while True:
    batch = session.take()
    if batch is None:
        time.sleep(0.001)
    elif batch.steps_done >= 2000:
        print(batch.steps_done, flush=True)
"""


def test_a_run_that_is_killed_is_complete_to_what_was_handed_out(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE_UNTIL_KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        steps = int(process.stdout.readline())
        assert unfinished(tmp_path) == ()  # its owner lives
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    (path,) = unfinished(tmp_path)
    trace = read_spool(path)
    assert len(trace.phases) >= steps >= 2000
    calls = trace.spans[trace.spans["role"] == CALL]
    in_step = np.array([site.phase != SWITCH for site in trace.sites])[calls["op"]]
    per_step = np.bincount(calls["step"][in_step], minlength=len(trace.phases))[:steps]
    by_phase = {}
    for phase, count in zip(trace.phases[:steps], per_step.tolist(), strict=True):
        by_phase.setdefault(phase, set()).add(count)
    # eager steps and replayed ones: no step lacks a call
    assert {phase: len(counts) for phase, counts in by_phase.items()} == {
        "prompt": 1, "prompt_last": 1, "decode": 2,
    }  # fmt: skip
