"""Calibration on a real GPU: everything that the probe and a model show is found, and used."""

from collections.abc import Iterator

import pytest

from helpers.gpu import first_gpu, has_context
from syncscope.app import calibrate
from syncscope.app.calibration.fit import Fit, fit
from syncscope.app.calibration.observe import observe
from syncscope.app.calibration.probe import BURST, DOWNLOADS, LOGITS, STAGED, UPLOADS
from syncscope.app.cli import main
from syncscope.app.devices import CudaDevice
from syncscope.app.report.chrome_trace import read_traces
from syncscope.sched_core.profile import FIGURES, load_profile, parse_profile, render_profile
from syncscope.sched_core.trace import Trace

pytestmark = pytest.mark.gpu

ONE_MODEL_HIDES = {
    "memory_load_ns", "device_bytes_per_ns", "device_macs_per_ns", "graph_call_per_node_ns",
}  # fmt: skip
"""A small model is found in the cache and computes too little, and one has one size of graph."""

MAY_HIDE = {"host_macs_per_ns", "l2_nbytes", "inline_nbytes", "inline_bytes_per_ns"}
"""Never measured; and on some GPU or driver calls may not grow with what they copy."""


@pytest.fixture(scope="module")
def traces() -> Iterator[tuple[Trace, ...]]:
    device = CudaDevice(first_gpu())
    yield calibrate.record(device, ["tiny"], 40, lambda *_: None)
    assert not has_context()


@pytest.fixture(scope="module")
def found(traces: tuple[Trace, ...]) -> Fit:
    return fit(traces, load_profile("h200"), "here")


def test_the_probe_shows_every_sort_of_copy_and_call(traces: tuple[Trace, ...]) -> None:
    seen = observe(traces[0])
    assert {size for size, _ in seen.uploads_done} == set(UPLOADS)
    assert {size for size, _ in seen.downloads_done} == set(DOWNLOADS)
    assert {size for size, _ in seen.downloads_after} == set(DOWNLOADS)
    assert {size for size, _ in seen.staged} == set(STAGED)
    assert [row[:2] for row in seen.bursts] == [(BURST, 4)]
    assert len(seen.returns) == len(LOGITS)
    assert {each.name for each in seen.one_by_one} == {f"argmax(V={size})" for size in LOGITS}
    assert len(seen.records) == len(seen.event_waits) == 1
    assert seen.idle_syncs and seen.launch_starts


def test_a_fit_to_a_gpu_is_calibrated_and_names_what_it_did_not_see(
    traces: tuple[Trace, ...], found: Fit
) -> None:
    assert found.used == ("probe", "tiny baseline", "tiny no-graph")
    assert found.profile.status == "calibrated"
    assert found.profile.device_name == first_gpu().name
    assert set(found.kept) <= ONE_MODEL_HIDES | MAY_HIDE
    assert set(found.seen) | set(found.kept) == set(FIGURES)
    assert set(found.profile.kernels) >= {"qkv", "attention", "project", "gate_up", "logits"}
    assert "argmax" in found.profile.kernels
    assert parse_profile(render_profile(found.profile).encode()).name == "here"
    checks = calibrate.check_steps(traces, found.profile)
    assert [each.trace for each in checks] == ["tiny baseline", "tiny no-graph"]
    assert calibrate.render(found, checks)


def test_the_command_writes_a_profile_and_traces_that_give_it_again(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    first_gpu()
    one, two, traces = (str(tmp_path / name) for name in ("one.json", "two.json", "traces.json"))
    run = ["calibrate", "--models", "tiny", "--tokens", "24", "--name", "x"]
    assert main([*run, "--out", one, "--timeline", traces]) == 0
    assert len(read_traces(traces)) == 3
    assert main(["calibrate", "--from", traces, "--name", "x", "--out", two]) == 0
    assert load_profile(one) == load_profile(two)
    assert "tiny no-graph" in capsys.readouterr().out
