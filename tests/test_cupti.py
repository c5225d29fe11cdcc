"""CUPTI without a GPU: its records, whose they are, and whole runs on a pretended GPU."""

import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from helpers.fake_gpu import FakeGPU
from helpers.plans import make_plan, model_plan
from syncscope.app.report.chrome_trace import read_traces
from syncscope.sched_core import cupti
from syncscope.sched_core.cupti import (
    DRIVER_FUNCTIONS,
    FUNCTIONS,
    OPTIONAL,
    candidates,
    load,
    plain_name,
)
from syncscope.sched_core.cupti_records import CALL, KINDS, OFFSETS, WORK, can_read, read_records
from syncscope.sched_core.cupti_spans import CuptiSpans, timer_step_ns
from syncscope.sched_core.errors import DeviceError
from syncscope.sched_core.pattern import count_syncs, plan_pattern
from syncscope.sched_core.program import tabulate
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Kind

ROOT = Path(__file__).parents[1]
COMPILER = shutil.which("cc") or shutil.which("gcc")
CUDA_HOMES = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
INCLUDES = [
    folder
    for home in CUDA_HOMES
    if home
    for folder in (Path(home, "include"), Path(home, "extras", "CUPTI", "include"))
    if (folder / "cupti_activity.h").is_file()
]
THREAD = 77
DAY_NS = 86_400 * 10**9


# ---- the library --------------------------------------------------------------------------------


def test_the_table_lists_its_functions_in_the_order_of_its_members() -> None:
    text = Path(cupti.__file__).with_name("cupti.pxd").read_text(encoding="utf-8")
    text = text[text.index("ctypedef struct cupti_t") : text.index("cdef int start")]
    members = re.findall(r"CUptiResult \(\*(\w+)\)|next_record_t (\w+)", text)
    named = [
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("cupti")).lower()
        for name in FUNCTIONS
    ]
    assert ["".join(each) for each in members] == named
    assert set(FUNCTIONS) >= OPTIONAL


def make_files(root: Path, *names: str) -> list[str]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return [str(root / name) for name in names]


def test_cupti_is_looked_for_by_the_loader_first_then_where_toolkits_and_packages_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_files(
        tmp_path / "home",
        "extras/CUPTI/lib64/libcupti.so.13",
        "targets/x86_64-linux/lib/libcupti.so.13",
        "lib64/libcupti.so.12",
    )
    old = make_files(tmp_path / "old", "lib/libcupti.so.12")
    packages = tmp_path / "packages"
    pip = make_files(
        packages / "nvidia", "cu13/lib/libcupti.so.13", "cuda_cupti/lib/libcupti.so.12"
    )
    monkeypatch.syspath_prepend(packages)
    environ = {"CUDA_HOME": str(tmp_path / "home"), "CUDA_PATH": str(tmp_path / "old")}
    found = [each for each in candidates(13, environ) if not each.startswith("/usr/local")]
    mine = [each for each in found if each.startswith(str(tmp_path)) or "/" not in each]
    assert mine == [
        "libcupti.so.13", home[0], home[1], pip[0], "libcupti.so.12", home[2], old[0], pip[1],
    ]  # fmt: skip
    assert not [each for each in candidates(12, environ) if each.endswith("13")]
    assert "libcupti.so.14" in candidates(14, {})


def test_no_library_is_one_line_with_a_remedy() -> None:
    with pytest.raises(DeviceError) as error:
        load(["libsyncscope-no-such-cupti.so.13"])
    text = str(error.value)
    assert text.startswith("--record cupti: no CUPTI is here; ")
    assert "pip install nvidia-cuda-cupti" in text and "--record stamps" in text
    assert "\n" not in text and error.value.exit_code == 3


def test_a_library_that_is_no_cupti_names_what_it_lacks(fake_gpu: FakeGPU) -> None:
    text = fake_gpu("load_cupti", paths=["libc.so.6"])
    assert "the CUPTI in libc.so.6 has no cuptiGetVersion" in text


@pytest.mark.parametrize("version", [17, 100, 129999, 140000])
def test_a_version_whose_records_are_not_known_is_refused(fake_gpu: FakeGPU, version: int) -> None:
    path = "libcupti.so.13"
    text = fake_gpu("load_cupti", options=f"version={version}", paths=[path])
    assert f"the CUPTI in {path} is version {version}, of no CUDA 12 or 13" in text
    assert "--record stamps" in text and "\n" not in text


@pytest.mark.parametrize("version", [18, 22, 28, 130000, 130100])
def test_versions_of_cuda_12_and_13_are_taken(fake_gpu: FakeGPU, version: int) -> None:
    assert can_read(version)
    path = "libcupti.so.13"
    assert fake_gpu("load_cupti", options=f"version={version}", paths=[path]) == ""


@pytest.mark.parametrize(
    ("status", "word", "remedy"),
    [
        (39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "end the profiler"),
        (999, "CUPTI_ERROR_UNKNOWN", "use --record stamps"),
    ],
)
def test_a_cupti_that_refuses_is_one_line_and_leaves_nothing_behind(
    fake_gpu: FakeGPU, status: int, word: str, remedy: str
) -> None:
    found = fake_gpu("refuse", options=f"fail={status}", mode="cupti")
    assert found["text"].startswith("--record cupti: cuptiActivityEnable(")
    assert word in found["text"] and remedy in found["text"]
    assert "\n" not in found["text"]
    assert set(found["live"].values()) == {0}


def test_the_command_says_so_too_and_ends_with_3(fake_gpu: FakeGPU) -> None:
    arguments = ["--no-gui", "--device", "cuda", "--record", "cupti", "--tokens", "4"]
    found = fake_gpu("command", options="fail=39", arguments=arguments)
    assert found["code"] == 3
    assert found["err"].startswith("syncscope: --record cupti: cuptiActivityEnable(")
    assert len(found["err"].splitlines()) == 1


def test_names_are_plain() -> None:
    assert plain_name("cuMemcpyHtoDAsync_v2_ptsz") == "cuMemcpyHtoDAsync"
    assert plain_name("cuStreamSynchronize_ptsz") == "cuStreamSynchronize"
    assert plain_name("cuMemcpyDtoH_v2_ptds") == "cuMemcpyDtoH"
    assert plain_name("cuCtxSynchronize_v2") == "cuCtxSynchronize"
    assert plain_name("cuGraphLaunch") == "cuGraphLaunch"
    assert plain_name("cu_very") == "cu_very"


# ---- records ------------------------------------------------------------------------------------


@pytest.mark.skipif(not INCLUDES or COMPILER is None, reason="no CUPTI headers or no compiler")
def test_layouts_and_numbers_are_those_of_the_installed_header(tmp_path: Path) -> None:
    header = (INCLUDES[0] / "cupti_activity.h").read_text(encoding="utf-8", errors="replace")
    lines = ['printf("version %u\\n", (unsigned)CUPTI_API_VERSION);']

    def show(name: str, value: str) -> None:
        lines.append(f'printf("{name} %zu\\n", (size_t)({value}));')

    for struct_name, members in OFFSETS.items():
        numbers = re.findall(rf"}} {struct_name}(\d*);", header)
        newest = struct_name + max(numbers, key=lambda each: int(each or 0))
        for member in members:
            show(f"{struct_name}.{member}", f"offsetof({newest}, {member})")
    for name in KINDS:
        show(name, f"CUPTI_ACTIVITY_KIND_{name}")
    for name in DRIVER_FUNCTIONS:
        show(name, f"CUPTI_DRIVER_TRACE_CBID_{name}")
    show("attribute", "CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER")
    show("thread", "CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM")
    show("domain", "CUPTI_CB_DOMAIN_DRIVER_API")
    show("forced", "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED")
    source = tmp_path / "layout.c"
    includes = "".join(f"#include <{each}>\n" for each in ("stddef.h", "stdio.h", "cupti.h"))
    source.write_text(includes + "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
    program = tmp_path / "layout"
    command = [str(COMPILER), "-w", *(f"-I{each}" for each in INCLUDES), "-o", str(program)]
    subprocess.run([*command, str(source)], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    found = {name: int(value) for name, value in map(str.split, printed.splitlines())}
    assert can_read(found.pop("version"))
    assert found == {
        **{f"{name}.{member}": at for name, each in OFFSETS.items() for member, at in each.items()},
        **KINDS,
        **DRIVER_FUNCTIONS,
        **{"attribute": 5, "thread": 1, "domain": 1, "forced": 1},
    }


SIZES = {"DRIVER": 40, "CONCURRENT_KERNEL": 216, "MEMCPY": 96, "SYNCHRONIZATION": 56}
NUMBERS = {**KINDS, "SYNCHRONIZATION": 38}


def driver_record(function: int, begin: int, end: int, thread: int, correlation: int) -> bytes:
    return struct.pack(
        "<IIqqIIII", NUMBERS["DRIVER"], function, begin, end, 4242, thread, correlation, 0
    )


def kernel_record(begin: int, end: int, correlation: int) -> bytes:
    head = struct.pack("<I12xqq60xI", NUMBERS["CONCURRENT_KERNEL"], begin, end, correlation)
    return head.ljust(SIZES["CONCURRENT_KERNEL"], b"\xee")


def copy_record(begin: int, end: int, correlation: int) -> bytes:
    head = struct.pack(
        "<IBBBBQqqIIII", NUMBERS["MEMCPY"], 1, 2, 3, 0, 64, begin, end, 0, 1, 7, correlation
    )
    return head.ljust(SIZES["MEMCPY"], b"\xee")


def other_record() -> bytes:
    return struct.pack("<I", NUMBERS["SYNCHRONIZATION"]).ljust(SIZES["SYNCHRONIZATION"], b"\x11")


def read(data: bytes) -> tuple[list[Any], list[Any]]:
    """Read a buffer with an iterator over records that knows their sizes."""
    size = {NUMBERS[name]: nbytes for name, nbytes in SIZES.items()}
    at: list[int] = []

    @ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
    )
    def following(begin: int, nbytes: int, record: Any) -> int:
        if not at:
            at.append(0)
        else:
            at[0] += size[struct.unpack_from("<I", data, at[0])[0]]
        if at[0] + 4 > nbytes:
            return 12
        kind = struct.unpack_from("<I", data, at[0])[0]
        if kind not in size or at[0] + size[kind] > nbytes:
            return 21
        record[0] = begin + at[0]
        return 0

    address = ctypes.cast(following, ctypes.c_void_p).value
    assert address is not None
    calls, works = read_records(np.frombuffer(data, np.uint8), address)
    assert calls.dtype == CALL and works.dtype == WORK
    names = ["begin_ns", "end_ns", "correlation", "thread", "function"]
    return calls[names].tolist(), works.tolist()


def test_records_of_a_buffer_are_read_in_order_and_other_kinds_left_out() -> None:
    data = b"".join(
        [
            driver_record(307, 100, 140, THREAD, 1),
            other_record(),
            kernel_record(150, 1 << 60, 1),
            copy_record(210, 250, 2),
            driver_record(126, 260, 300, THREAD + 1, 3),
        ]
    )
    assert read(data) == (
        [(100, 140, 1, THREAD, 307), (260, 300, 3, THREAD + 1, 126)],
        [(150, 1 << 60, 1, 0), (210, 250, 2, 1)],
    )


def test_a_buffer_that_is_empty_or_breaks_off_gives_what_is_whole() -> None:
    assert read(b"") == ([], [])
    data = driver_record(307, 1, 2, THREAD, 1) + kernel_record(3, 4, 1)[:100]
    assert read(data) == ([(1, 2, 1, THREAD, 307)], [])
    assert read(b"\xff" * 64) == ([], [])


def test_a_full_buffer_of_the_smallest_records_is_read_to_its_end() -> None:
    data = b"".join(driver_record(307, i, i + 1, THREAD, i) for i in range(6553))
    calls, _ = read(data)
    assert [call[2] for call in calls] == list(range(6553))


# ---- whose they are -----------------------------------------------------------------------------

LAUNCH, H2D, D2H, STREAM_SYNC, GRAPH = 307, 277, 279, 126, 514
FUNCTION_OF = {Kind.LAUNCH: LAUNCH, Kind.COPY: H2D, Kind.GRAPH: GRAPH, Kind.SYNC: STREAM_SYNC}
FUNCTION_OF |= {Kind.RECORD: 119, Kind.WAIT: 295, Kind.HOST: 0}


class Run:
    """The calls of a plan's step as an executor and a driver would record them, 100 ns each."""

    def __init__(self, text: str | dict[str, str], replay: bool = False, **options: Any) -> None:
        plan = make_plan(text, graphs=replay, **options)
        table = tabulate(plan)
        self.program = table.program
        self.block = {
            phase: table.blocks[phase, replay] for phase, _ in table.blocks if phase in plan.phases
        }
        self.rows = np.concatenate([self.program.ops, self.program.members])
        self.spans = CuptiSpans(THREAD)
        self.spans.bind(self.program, self.rows)
        self.now = 0
        self.correlation = 100

    def site(self, span: Any) -> str:
        return self.program.sites[self.rows["site"][span["op"]]].name

    def step(self, number: int, phase: str = "decode") -> tuple[np.ndarray, np.ndarray]:
        """Return the executor's calls of a step, noted already, and the driver's inside them."""
        block = self.block[phase]
        calls = np.zeros(block.n_ops, SPAN)
        driver = []
        for i in range(block.n_ops):
            row = self.rows[block.row0 + i]
            begin, self.now = self.now, self.now + 100
            calls[i] = (begin, self.now, block.row0 + i, number, 0, 0, 0, 0)
            functions = [] if row["kind"] == Kind.HOST else [FUNCTION_OF[Kind(row["kind"])]]
            if row["kind"] == Kind.COPY and row["flags"] & 1:
                functions.append(STREAM_SYNC)
            for k, function in enumerate(functions):
                self.correlation += 1
                at = begin + 10 + 40 * k
                driver.append((at, at + 30, self.correlation, THREAD, function, 0))
        self.spans.note(calls)
        return calls, np.array(driver, CALL)

    def add(
        self, driver: np.ndarray, works: Iterable[Sequence[int]] = (), base_ns: int = 0
    ) -> None:
        self.spans.add(driver, np.array([tuple(each) for each in works], WORK), base_ns)

    def take(self, all_arrived: bool = False) -> list[tuple[str, int, int, int]]:
        found = self.spans.take(all_arrived)
        assert (found["role"] == 1).all() and (found["flags"] == 0).all()
        return [
            (self.site(each), int(each["step"]), int(each["begin_ns"]), int(each["end_ns"]))
            for each in found
        ]


def of(driver: np.ndarray, function: int) -> list[int]:
    """Return the correlation ids of calls of a function."""
    return [int(each["correlation"]) for each in driver if each["function"] == function]


def test_work_belongs_to_the_op_whose_call_encloses_the_driver_call_that_asked_for_it() -> None:
    run = Run("up: s copy hp dp; s k1 r dp w dq; other: t k2 w dr; sync s")
    _, first = run.step(0)
    _, second = run.step(1)
    (copy_0,), (copy_1,) = of(first, H2D), of(second, H2D)
    (k1_0, k2_0), (k1_1, k2_1) = of(first, LAUNCH), of(second, LAUNCH)
    works = [
        (700, 730, k2_1, 0), (640, 690, k1_1, 0), (610, 620, copy_1, 1),
        (260, 330, k2_0, 0), (250, 290, k1_0, 0), (110, 150, copy_0, 1),
    ]  # fmt: skip
    run.add(np.concatenate([second, first]), works)
    assert run.take() == [
        ("up", 0, 110, 150), ("1", 0, 250, 290), ("other", 0, 260, 330),
        ("up", 1, 610, 620), ("1", 1, 640, 690), ("other", 1, 700, 730),
    ]  # fmt: skip
    assert run.spans.pending == run.spans.lost == 0


def test_spans_have_the_lane_of_their_stream_and_the_bytes_of_their_op() -> None:
    run = Run("s copy hp dp; t copy hq dq")
    _, driver = run.step(0)
    one, two = of(driver, H2D)
    run.add(driver, [(50, 60, one, 1), (150, 160, two, 1)])
    spans = run.spans.take(False)
    assert spans["lane"].tolist() == [1, 2]
    assert spans["nbytes"].tolist() == [16, 16]


def test_times_are_put_on_the_clock_of_the_executor() -> None:
    run = Run("s k1 w da")
    _, driver = run.step(0)
    for name in ("begin_ns", "end_ns"):
        driver[name] += DAY_NS
    works = [(DAY_NS + 50, DAY_NS + 80, int(driver["correlation"][0]), 0)]
    run.add(driver, works, DAY_NS)
    assert run.take() == [("0", 0, 50, 80)]


def test_calls_of_other_threads_and_outside_of_steps_belong_to_nobody() -> None:
    run = Run("s k1 w da; host f w ha; sync s")
    _, driver = run.step(0)
    stranger = driver.copy()
    stranger["thread"] += 1
    stranger["correlation"] += 1000
    outside = driver.copy()
    outside["begin_ns"] += 10_000
    outside["end_ns"] += 10_000
    outside["correlation"] += 2000
    across = driver[:1].copy()
    across["end_ns"] += 90  # begins in one call, ends in the next
    across["correlation"] = 3000
    in_host_work = driver[:1].copy()
    in_host_work["begin_ns"], in_host_work["end_ns"] = 120, 150
    in_host_work["correlation"] = 4000
    works = [(50, 60, correlation, 0) for correlation in (1101, 2101, 3000, 4000)]
    run.add(np.concatenate([stranger, outside, across, in_host_work, driver]), works)
    assert run.take() == []
    run.add(driver[:0], [(70, 80, int(driver["correlation"][0]), 0)])
    assert run.take() == [("0", 0, 70, 80)]
    assert run.spans.counts == {LAUNCH: (1, 0), STREAM_SYNC: (1, 0)}
    assert run.spans.pending == run.spans.lost == 0


def test_a_graphs_kernels_are_its_members_in_the_order_of_their_begin() -> None:
    run = Run("s copy hp dp; a: s k1 r dp w dq; b: s k2 r dq w dr; c: s k3 r dr w ds; sync s", True)
    _, driver = run.step(5)
    (copy,), (graph,) = of(driver, H2D), of(driver, GRAPH)
    works = [(500, 600, graph, 0), (90, 95, copy, 1), (300, 400, graph, 0), (200, 210, graph, 0)]
    run.add(driver, works)
    assert run.take() == [
        ("0", 5, 90, 95), ("a", 5, 200, 210), ("b", 5, 300, 400), ("c", 5, 500, 600),
    ]  # fmt: skip


def test_what_has_not_arrived_is_waited_for_until_all_has() -> None:
    run = Run("a: s k1 w da; b: s k2 r da w db; sync s", True)
    _, driver = run.step(0)
    (graph,) = of(driver, GRAPH)
    run.add(driver[driver["function"] == GRAPH], [(200, 210, graph, 0)])
    assert run.take() == [] and run.spans.pending == 2
    run.add(driver[:0], [(300, 310, graph, 0)])
    assert run.take() == [("a", 0, 200, 210), ("b", 0, 300, 310)]
    assert run.spans.pending == 1 and run.spans.lost == 0
    run.add(driver[driver["function"] == STREAM_SYNC])
    assert run.take() == [] and run.spans.pending == run.spans.lost == 0


def test_what_never_arrives_is_lost_and_counted() -> None:
    run = Run("a: s k1 w da; b: s k2 r da w db; up: s copy hp dp; sync s", True)
    _, first = run.step(0)
    _, second = run.step(1)
    (graph,), (copy,) = of(first, GRAPH), of(second, H2D)
    run.add(np.concatenate([first, second[1:2]]), [(200, 210, graph, 0), (450, 460, copy, 1)])
    assert run.take(True) == [("up", 1, 450, 460)]
    # a graph of two, a copy, and in the next step a graph of two and a sync without a driver call
    assert run.spans.lost == 2 + 1 + 2 + 1
    assert run.spans.pending == 0
    run.add(second, [(700, 710, of(second, GRAPH)[0], 0)])
    assert run.take(True) == [] and run.spans.lost == 6


def test_work_without_times_is_lost() -> None:
    run = Run("s k1 w da")
    _, driver = run.step(0)
    run.add(driver, [(0, 0, int(driver["correlation"][0]), 0)])
    assert run.take(True) == [] and run.spans.lost == 1


def test_work_of_another_kind_than_the_op_is_never_shown_as_it() -> None:
    run = Run("a: s k1 w da; b: s k2 r da w db", True)
    _, driver = run.step(0)
    (graph,) = of(driver, GRAPH)
    run.add(driver, [(200, 210, graph, 1), (300, 310, graph, 0)])
    assert run.take() == [("b", 0, 300, 310)]
    assert run.spans.lost == 1


def test_a_copy_in_pieces_is_one_span() -> None:
    run = Run("s copy pp dp")
    _, driver = run.step(0)
    (copy,) = of(driver, H2D)
    run.add(driver, [(150, 180, copy, 1), (110, 140, copy, 1), (190, 195, copy, 1)])
    assert run.take() == [("0", 0, 110, 195)]


def test_a_copy_that_blocks_has_two_driver_calls_and_one_of_nothing_no_work() -> None:
    run = Run("s copy! hp dp")
    _, driver = run.step(0)
    assert driver["function"].tolist() == [H2D, STREAM_SYNC]
    run.add(driver[:1], [(20, 30, int(driver["correlation"][0]), 1)])
    assert run.take() == [] and run.spans.pending == 1
    run.add(driver[1:])
    assert run.take() == [("0", 0, 20, 30)]
    empty = Run("s copy hp dp", nbytes=0)
    _, driver = empty.step(0)
    empty.add(driver)
    assert empty.take() == [] and empty.spans.pending == empty.spans.lost == 0


def test_another_program_begins_anew_but_keeps_what_was_counted() -> None:
    run = Run("s k1 w da; sync s")
    _, driver = run.step(0)
    run.add(driver, [(50, 60, int(driver["correlation"][0]), 0)])
    assert len(run.take(True)) == 1
    before = dict(run.spans.counts)
    run.spans.bind(run.program, run.rows)
    assert run.spans.counts == before == {LAUNCH: (1, 0), STREAM_SYNC: (1, 0)}
    assert run.spans.decode_steps == 1


def test_driver_calls_of_decode_steps_are_counted_before_and_from_the_launch_on() -> None:
    step = "sync s; s copy hp dp; sync s; s k1 r dp w dq; s k2 r dq w dr; s copy dr hq; sync s"
    run = Run({"prompt": step, "decode": step})
    _, prompt = run.step(0, "prompt")
    found = [run.step(number)[1] for number in (1, 2, 3)]
    run.add(np.concatenate([prompt, *found]))
    run.take(True)
    assert run.spans.decode_steps == 3
    assert run.spans.counts == {STREAM_SYNC: (9, 6), H2D: (6, 3), LAUNCH: (6, 0)}


def test_a_step_without_a_launch_has_nothing_before_it() -> None:
    run = Run("s copy hp dp; sync s")
    _, driver = run.step(0)
    run.add(driver)
    run.take(True)
    assert run.spans.counts == {STREAM_SYNC: (1, 0), H2D: (1, 0)}


# ---- the clock ----------------------------------------------------------------------------------


def with_times_off_by(offset: int, wait: str) -> int | None:
    """Run a kernel from 15 ns after its driver call begins to 25 ns before the wait returns."""
    run = Run(f"s k1 w da; {wait}")
    calls, driver = run.step(0)
    begin, end = int(driver["begin_ns"][0]) + 15, int(calls["end_ns"][-1]) - 25
    begin, end = (each + offset + DAY_NS for each in (begin, end))
    for name in ("begin_ns", "end_ns"):
        driver[name] += DAY_NS
    run.add(driver, [(begin, end, int(driver["correlation"][0]), 0)], DAY_NS)
    run.take(True)
    return run.spans.uncertainty_ns


@pytest.mark.parametrize("wait", ["sync s", "sync dev.s", "sync dev.t", "s record e; sync e"])
@pytest.mark.parametrize("offset", [-1000, -20, 0, 10, 20, 3000])
def test_the_uncertainty_is_never_less_than_what_times_are_off_by(wait: str, offset: int) -> None:
    found = with_times_off_by(offset, wait)
    assert found == max(abs(15 + offset), abs(25 - offset))
    assert found >= abs(offset)


@pytest.mark.parametrize("wait", ["sync t", "t record e; sync e", "s record f; sync e"])
def test_without_a_wait_for_the_work_nothing_is_known_of_the_clock(wait: str) -> None:
    assert with_times_off_by(0, wait) is None


def test_the_tightest_of_all_steps_tells_the_uncertainty() -> None:
    run = Run("s k1 w da; sync s")
    for after, before in ((40, 60), (15, 80), (70, 25)):
        calls, driver = run.step(0)
        begin = int(driver["begin_ns"][0]) + after
        end = int(calls["end_ns"][-1]) - before
        run.add(driver, [(begin, end, int(driver["correlation"][0]), 0)])
        run.take(False)
    assert run.spans.slack_ns == (15, 25) and run.spans.uncertainty_ns == 25


@pytest.mark.parametrize("step", [1, 8, 32, 1024])
def test_the_timers_step_is_told_by_durations(step: int) -> None:
    rng = np.random.default_rng(step)
    durations = step * rng.integers(1, 100_000 // step, 400)
    assert timer_step_ns(durations) == step
    rounded = durations + rng.integers(-1, 2, 400)
    assert timer_step_ns(rounded) == (1 if step <= 2 else step)


# ---- whole runs on a pretended GPU --------------------------------------------------------------

STEP = "s copy hp dp; s k30 r dp w dq; s k10 r dq w dr; s copy dr hq; sync s"


def spans_of(found: dict[str, Any], role: str) -> list[dict[str, Any]]:
    return [each for each in found["spans"] if each["role"] == role and each["phase"] != "switch"]


@pytest.mark.parametrize("graphs", [False, True])
def test_every_kernel_and_copy_has_one_exact_span(fake_gpu: FakeGPU, graphs: bool) -> None:
    found = fake_gpu("record", mode="cupti", plan=STEP, phases=[["decode", 5]], graphs=graphs)
    assert found["dropped"] == found["ring_dropped"] == 0
    runs = spans_of(found, "exec")
    assert [(each["step"], each["site"]) for each in runs] == [
        (step, site) for step in range(5) for site in "0123"
    ]
    assert {each["flags"] for each in runs} == {0}
    assert {each["lane"] for each in runs} == {"s"}
    length = {"0": 1, "1": 30, "2": 10, "3": 1}
    for each in runs:
        assert each["end_ns"] - each["begin_ns"] == 1024 * length[each["site"]]
    calls = {(each["step"], each["site"]): each for each in spans_of(found, "call")}
    slack = found["clock_uncertainty_ns"]
    for each in runs:
        call = calls.get((each["step"], each["site"])) or calls[each["step"], "graph"]
        assert call["begin_ns"] - slack <= each["begin_ns"]
        assert each["end_ns"] <= calls[each["step"], "4"]["end_ns"] + slack
    assert found["timer_step_ns"] == 1024


def test_a_run_longer_than_a_batch_of_records_loses_none(fake_gpu: FakeGPU) -> None:
    found = fake_gpu("long_run", mode="cupti", plan=STEP.replace("k30", "k1"), steps=8000)
    assert found["dropped"] == found["ring_dropped"] == 0
    assert (found["steps"], found["per_step"]) == (8000, [4])
    assert found["driver_calls"]["cuStreamSynchronize"]["count"] == 8000


def test_steps_that_never_wait_are_recorded_too(fake_gpu: FakeGPU) -> None:
    found = fake_gpu("long_run", mode="cupti", plan="s k1 w da; t k1 w db", steps=30_000)
    assert found["dropped"] == 0
    assert (found["steps"], found["per_step"]) == (30_000, [2])


def test_lost_records_are_counted_and_shown(fake_gpu: FakeGPU, tmp_path: Path) -> None:
    found = fake_gpu("record", options="lose=7", mode="cupti", plan=STEP, phases=[["decode", 20]])
    assert found["dropped"] == 80 // 7 == 80 - len(spans_of(found, "exec"))
    path = tmp_path / "lossy.json"
    arguments = ["--no-gui", "--device", "cuda", "--record", "cupti", "--tokens", "6"]
    result = fake_gpu("command", options="lose=9", arguments=[*arguments, "--json", str(path)])
    assert re.search(r"mode cupti, \d+ spans dropped: figures are incomplete", result["out"])
    assert json.loads(path.read_text())["recording"]["dropped"] > 0


def test_another_plan_in_the_same_run_is_recorded_as_its_own(fake_gpu: FakeGPU) -> None:
    plans = [STEP, "up: s copy hp dp; only: s k3 r dp w dq; sync s"]
    found = fake_gpu("switch", mode="cupti", plans=plans, steps=4)
    assert found["dropped"] == 0
    assert [(each["step"], each["site"]) for each in spans_of(found, "exec")] == [
        *((step, site) for step in range(4) for site in "0123"),
        *((step, site) for step in range(4, 8) for site in ("up", "only")),
    ]
    assert found["driver_calls"]["cuLaunchKernel"]["count"] == 4 * 2 + 4 * 1


def test_two_backends_keep_apart_what_is_theirs_and_what_is_a_strangers(fake_gpu: FakeGPU) -> None:
    for found in fake_gpu("take_turns", mode="cupti", plan=STEP, steps=20):
        assert found["dropped"] == 0
        assert [each["site"] for each in spans_of(found, "exec")] == [*"0123"] * 20
        syncs = found["driver_calls"]["cuStreamSynchronize"]
        assert syncs == {
            "count": 20, "per_decode_step": 1.0, "before_launch": 0.0, "after_launch": 1.0,
        }  # fmt: skip


def test_what_runs_while_nothing_is_recorded_leaves_no_trace(fake_gpu: FakeGPU) -> None:
    found = fake_gpu("without_recording", mode="cupti", plan=STEP, steps=6)
    assert found["dropped"] == 0
    assert [each["step"] for each in spans_of(found, "exec")] == [
        step for step in range(6, 12) for _ in range(4)
    ]
    assert found["driver_calls"]["cuStreamSynchronize"]["count"] == 6


def test_a_run_that_a_fault_ends_keeps_all_that_ran(fake_gpu: FakeGPU) -> None:
    plan = "s copy hp dp; s f2 r dp w dq; sync s; s copy dq hq; sync s"
    found = fake_gpu("fault", mode="cupti", plan=plan, steps=50)
    assert found["refused_at"] == 5 and found["dropped"] == 0
    assert [(each["step"], each["site"]) for each in spans_of(found, "exec")] == [
        *((step, site) for step in range(5) for site in "013"),
        (5, "0"),
        (5, "1"),
    ]


def test_opening_and_closing_leaves_nothing_behind(fake_gpu: FakeGPU) -> None:
    for left in fake_gpu("cycle", mode="cupti", plan=STEP, times=20):
        assert set(left.values()) == {0}


SYNCS = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")


def test_the_command_shows_the_syncs_of_each_variant_by_name_and_count(
    fake_gpu: FakeGPU, tmp_path: Path
) -> None:
    report, timeline = tmp_path / "report.json", tmp_path / "timeline.json"
    found = fake_gpu(
        "command",
        arguments=[
            *("--no-gui", "--device", "cuda", "--record", "cupti", "--tokens", "12", "-v"),
            *("--json", str(report), "--timeline", str(timeline)),
        ],
    )
    assert found["code"] == 0, found["err"]
    assert set(found["live"].values()) == {0}
    result = json.loads(report.read_text())
    schema = json.loads((ROOT / "app/schemas/bench-1.schema.json").read_text())
    jsonschema.validate(result, schema)
    assert result["recording"]["mode"] == "cupti"
    assert result["recording"]["dropped"] == 0
    assert isinstance(result["recording"]["overhead_share"], float)
    for variant in result["variants"]:
        pattern = variant["pattern"]["decode"]
        total, before, after = count_syncs(pattern)
        calls = {name: variant["driver_calls"].get(name) for name in SYNCS}
        known = [each for each in calls.values() if each]
        assert sum(each["per_decode_step"] for each in known) == total
        assert sum(each["before_launch"] for each in known) == before
        assert sum(each["after_launch"] for each in known) == after
        by_letter = {"cuStreamSynchronize": "s", "cuEventSynchronize": "E"}
        for name, letter in by_letter.items():
            assert (calls[name] or {"per_decode_step": 0})["per_decode_step"] == pattern.count(
                letter
            )
    baseline, everything = (each["driver_calls"] for each in result["variants"])
    assert baseline["cuStreamSynchronize"]["before_launch"] == 13
    assert baseline["cuStreamSynchronize"]["after_launch"] == 5
    assert everything["cuEventSynchronize"]["before_launch"] == 0
    assert everything["cuEventSynchronize"]["after_launch"] == 1
    lines = [" ".join(line.split()) for line in found["out"].splitlines()]
    assert "baseline cuStreamSynchronize 18 13 5 198" in lines
    assert "all cuEventSynchronize 1 0 1 11" in lines
    for trace, variant in zip(read_traces(timeline), result["variants"], strict=True):
        assert trace.recording["mode"] == "cupti"
        assert trace.recording["driver_calls"].keys() == variant["driver_calls"].keys()
        names = [trace.sites[op].name for op in trace.spans["op"][trace.spans["role"] == 1]]
        assert {site for site in names if site.startswith("layer.0.")}


def test_without_v_the_calls_of_the_driver_are_in_the_json_alone(fake_gpu: FakeGPU) -> None:
    arguments = ["--no-gui", "--device", "cuda", "--record", "cupti", "--tokens", "6"]
    found = fake_gpu("command", arguments=arguments)
    assert found["code"] == 0 and "cuStreamSynchronize" not in found["out"]


def test_the_plan_and_the_pattern_agree_on_what_the_baseline_waits_for() -> None:
    text = plan_pattern(model_plan("cuda-graph").phases["decode"])
    assert count_syncs(text) == (18, 13, 5)
