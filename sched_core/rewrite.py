"""Programs with a sync weakened, replaced or added: what verdicts and fixes are tried on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.program import BLOCKING, NO_KERNEL, SCOPES, Program, Site
from syncscope.sched_core.records import Event, Kind

Rows = npt.NDArray[Any]

_EVENT = SCOPES.index("event")


def _turned(rows: Rows, kind: Kind, **fields: int) -> Rows:
    """Return rows of the same steps and threads that do something else and touch nothing."""
    out = rows.copy()
    out["kind"] = int(kind)
    out["kernel"] = NO_KERNEL
    for name in ("flags", "scope", "n_access", "nbytes", "dst", "src"):
        out[name] = 0
    for name in ("stream", "event", "graph"):
        out[name] = -1
    for name, value in fields.items():
        out[name] = value
    return out


def _with_rows(program: Program, rows: Rows, *sites: Site) -> Program:
    """Return the program with other rows, one more event and more sites."""
    return replace(
        program,
        ops=rows,
        sites=(*program.sites, *sites),
        events=(*program.events, Event("rewrite", -1)),
        step0=np.searchsorted(rows["step"], np.arange(len(program.phases) + 1)),
    )


def _insert(rows: Rows, at: npt.NDArray[np.int64], new: Rows) -> Rows:
    """Insert each new row in front of the row at its position."""
    keep = np.arange(len(rows)) + np.searchsorted(at, np.arange(len(rows)), side="right")
    out = np.zeros(len(rows) + len(new), rows.dtype)
    out[keep] = rows
    out[np.delete(np.arange(len(out)), keep)] = new
    return out


def narrow_to_stream(program: Program, site: int, stream: int) -> Program:
    """Replace a device-wide sync by one of a single stream."""
    rows = program.ops.copy()
    mine = rows["site"] == site
    rows["scope"][mine] = SCOPES.index("stream")
    rows["stream"][mine] = stream
    return replace(program, ops=rows)


def wait_on_stream(program: Program, site: int, stream: int) -> Program:
    """Replace a host sync of a stream or event by a wait of `stream` for the same work."""
    rows = program.ops.copy()
    at = np.flatnonzero(rows["site"] == site)
    syncs = rows[at]
    rows[at] = _turned(syncs, Kind.WAIT, stream=stream)
    if syncs["scope"][0] == _EVENT:
        rows["event"][at] = syncs["event"]
        return replace(program, ops=rows)
    event = int(program.event_base[-1])
    rows["event"][at] = event
    records = _turned(syncs, Kind.RECORD, event=event)
    records["stream"] = syncs["stream"]
    return _with_rows(program, _insert(rows, at, records))


def wait_after_work(program: Program, site: int, stream: int) -> Program:
    """Replace the blocking of a copy or memset by a wait of `stream` for it."""
    rows = program.ops.copy()
    at = np.flatnonzero(rows["site"] == site)
    rows["flags"][at] &= ~np.uint8(BLOCKING)
    event = int(program.event_base[-1])
    waits = _turned(rows[at], Kind.WAIT, event=event, stream=stream, site=len(program.sites) + 1)
    rows = _insert(rows, at + 1, waits)
    added = (Site("", "", Kind.RECORD), Site("", "", Kind.WAIT))
    return _with_rows(program, _record_behind(program, rows, site), *added)


def wait_for_earlier(program: Program, site: int, behind: int) -> Program:
    """Replace a host sync of a stream by one of an event recorded behind site `behind`."""
    rows = program.ops.copy()
    event = int(program.event_base[-1])
    at = np.flatnonzero(rows["site"] == site)
    rows[at] = _turned(rows[at], Kind.SYNC, event=event, scope=_EVENT)
    return _with_rows(program, _record_behind(program, rows, behind), Site("", "", Kind.RECORD))


def order_sites(program: Program, first: int, second: int) -> Program:
    """Add an event behind site `first`, and a wait for it in front of site `second`.

    The stream of `second` waits, or the host where `second` is host work.
    """
    event = int(program.event_base[-1])
    at = np.flatnonzero(program.ops["site"] == second)
    waits = _turned(program.ops[at], Kind.WAIT, event=event, site=len(program.sites) + 1)
    waits["stream"] = program.ops["stream"][at]
    if program.ops["kind"][at[0]] == Kind.HOST:
        waits["kind"] = int(Kind.SYNC)
        waits["scope"] = _EVENT
    rows = _insert(program.ops, at, waits)
    added = (Site("", "", Kind.RECORD), Site("", "", Kind.WAIT))
    return _with_rows(program, _record_behind(program, rows, first), *added)


def _record_behind(program: Program, rows: Rows, site: int) -> Rows:
    """Insert a record of the added event behind each row of a site; it gets the next site."""
    at = np.flatnonzero(rows["site"] == site)
    event = int(program.event_base[-1])
    records = _turned(rows[at], Kind.RECORD, event=event, site=len(program.sites))
    records["stream"] = rows["stream"][at]
    return _insert(rows, at + 1, records)
