"""A range of time split into waiting, working and idling."""

from __future__ import annotations

from dataclasses import dataclass

from syncscope.app.gui.recording import Recording


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """What a range ``[t0, t1)`` was spent on.

    Parameters
    ----------
    blocked_ns : int
        In calls that wait, of all host threads together.
    busy_ns : int
        While at least one stream had work.
    idle_ns : int
        While none had; with `busy_ns` it is the whole range.
    """

    blocked_ns: int
    busy_ns: int
    idle_ns: int


def time_split(recording: Recording, t0_ns: int, t1_ns: int) -> TimeSplit:
    """Split a range of a recording, of which all spans are in memory."""
    busy_ns = recording.latency.busy.between(t0_ns, t1_ns)
    blocked_ns = sum(
        int(lane.statistics(t0_ns, t1_ns)[1].sum())
        for row in recording.rows.rows
        if row.kind == "sync"
        for lane in row.lanes
    )
    return TimeSplit(blocked_ns, busy_ns, t1_ns - t0_ns - busy_ns)
