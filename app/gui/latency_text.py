"""What the latency panel says: figures per plan, what a change did, one token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncscope.app.gui.latency_model import Figures
from syncscope.app.gui.origin import origin_text, origin_word
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.text_table import Cell

LOOK_BACK = 8
"""So many of the newest changes of plan are looked at for steady tokens."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Steady tokens of one plan.

    Parameters
    ----------
    change : int or None
        As `LatencyModel.figures` wants it.
    step, end : int
        Its first step, and that after its last.
    variant : str
    figures : Figures
    """

    change: int | None
    step: int
    end: int
    variant: str
    figures: Figures


def segments(recording: Recording, most: int = 2) -> tuple[Segment, ...]:
    """Return the newest plans with steady tokens, the newest last."""
    changes, first = recording.changes, recording.forgotten_changes
    if not changes:
        every = recording.latency.figures()
        variant = str(recording.header.get("variant", {}).get("id", "all tokens"))
        if every is None:
            return ()
        return (Segment(None, recording.base_step, recording.n_steps, variant, every),)
    found: list[Segment] = []
    end = recording.n_steps
    for at in range(len(changes) - 1, max(-1, len(changes) - 1 - LOOK_BACK), -1):
        each = changes[at]
        figures = recording.latency.figures(first + at)
        if figures is not None:
            variant = each.planned.variant.id
            found.append(Segment(first + at, each.step, end, variant, figures))
        end = each.step
        if len(found) == most:
            break
    return tuple(reversed(found))


def us(ns: float) -> str:
    """Return a time in µs, without its unit."""
    return f"{ns / 1000:,.2f}"


ROWS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("median", lambda f: us(f.period_ns)),
    ("p99", lambda f: us(f.p99_ns)),
    ("host-blocked", lambda f: us(f.blocked_ns)),
    ("device busy", lambda f: us(f.busy_ns)),
    ("device idle", lambda f: us(f.idle_ns)),
    ("tokens", lambda f: f"{f.n_tokens:,}"),
)
"""Figures and how they are written."""


def figure_titles(found: Sequence[Segment], header: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return titles of the table of figures: plans, and from which step on they ran."""
    names = [f"{each.variant} @{each.step:,}" for each in found]
    before, now = ["", "", *names][-2:]
    return f"µs, {origin_word(header)}", before, now


def figure_rows(found: Sequence[Segment]) -> list[tuple[Cell, Cell, Cell]]:
    """Return the table of figures: the last plan on the right, the one before it beside it."""
    before, now = [None, None, *found][-2:]
    return [
        (
            Cell(title),
            Cell("" if before is None else write(before.figures)),
            Cell("–" if now is None else write(now.figures)),
        )
        for title, write in ROWS
    ]


def summary_text(found: Sequence[Segment], header: Mapping[str, Any]) -> str:
    """Say the time per token, and what the last change of plan did to it."""
    if not header:
        return "nothing recorded yet"
    how = origin_text(header)
    if not found:
        return f"no steady token yet ({how})"
    now = found[-1]
    text = f"{now.variant}: median {us(now.figures.period_ns)} µs per token, {how}"
    if len(found) < 2:
        return text
    before = found[-2]
    difference = now.figures.period_ns - before.figures.period_ns
    ratio = before.figures.period_ns / now.figures.period_ns if now.figures.period_ns else 0.0
    return (
        f"{text}  ·  before, {before.variant}: {us(before.figures.period_ns)} µs  ·  "
        f"{signed_us(difference)} µs, {ratio:.2f}× as fast"
    )


def signed_us(ns: float) -> str:
    """Return a difference in µs with its sign, without its unit."""
    text = f"{abs(ns) / 1000:,.2f}"
    return text if text.strip("0.,") == "" else f"{'+' if ns > 0 else '−'}{text}"


def token_text(token: Any, header: Mapping[str, Any]) -> str:
    """Say all of one token, a row of latency_model.TOKEN."""
    period = int(token["end_ns"]) - int(token["begin_ns"])
    text = (
        f"step {int(token['step']):,}: {us(period)} µs, host-blocked {us(token['blocked_ns'])}, "
        f"device busy {us(token['busy_ns'])}, idle {us(token['idle_ns'])} ({origin_word(header)})"
    )
    return text if token["steady"] else f"{text}, not in steady state"


def columns_text(steps_per_column: int, beyond: int) -> str:
    """Say what a column of the plot is, and what does not fit; empty if each is one token."""
    parts = []
    if steps_per_column > 1:
        parts.append(f"downsampled {steps_per_column:,}:1 (areas: mean, line: longest)")
    if beyond:
        parts.append(f"{beyond:,} beyond the top")
    return "  ·  ".join(parts)


def change_labels(
    places: Sequence[float], widths: Sequence[float], gap: float = 6.0
) -> tuple[int, ...]:
    """Return which labels can stand at rising places without overlap; the newest go first."""
    kept: list[int] = []
    limit = float("inf")
    for i in range(len(places) - 1, -1, -1):
        if places[i] + widths[i] + gap <= limit:
            kept.append(i)
            limit = places[i]
    return tuple(reversed(kept))
