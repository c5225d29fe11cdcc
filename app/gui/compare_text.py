"""What the comparison of two runs says: time per token, differences by site, alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncscope.app.gui.compare_model import Alignment, SiteDifference, StepDifference
from syncscope.app.gui.latency_text import signed_us, us
from syncscope.app.gui.origin import origin_text, origin_word
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.sites_model import SiteEntry
from syncscope.app.gui.text_table import Cell
from syncscope.app.gui.theme import Theme

TITLES = (
    "phase",
    "site",
    "change",
    "Δ per step",
    "Δ wait µs",
    "first",
    "second",
    "first µs",
    "second µs",
    "kind",
)
TIPS = (
    "phase of the step",
    "site of the call",
    "what became of it in the second run",
    "calls per step, second less first",
    "time of the host in it per step, second less first",
    "calls per step of the first run",
    "calls per step of the second run",
    "time of the host in it per step, first run",
    "time of the host in it per step, second run",
    "kind of call",
)
NUMBERS = (3, 4, 5, 6, 7, 8)
WIDTHS = (76, 126, 66, 74, 74, 50, 56, 66, 76, 90)
MAX_NAMES = 3
"""A run of more variants is not named by them."""

NONE = "–"
"""Stands where a run has no such site."""


def run_name(recording: Recording) -> str:
    """Return what a run is called: the variants that ran, and where its times come from."""
    ran = tuple(dict.fromkeys(each.planned.variant.id for each in recording.changes))
    if len(ran) > MAX_NAMES:
        name = f"{len(ran)} variants"
    else:
        name = ", ".join(ran) or str(recording.header.get("variant", {}).get("id", "run"))
    return f"{name}; {origin_text(recording.header)}"


def step_text(step: StepDifference, headers: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str:
    """Say how long the median token of either run takes, and how they differ."""
    parts = [
        f"{name}: {'no steady token' if each is None else f'{us(each.period_ns)} µs'}"
        f" ({origin_word(header)})"
        for name, each, header in zip(
            ("first", "second"), (step.first, step.second), headers, strict=True
        )
    ]
    text = f"median per token  {',  '.join(parts)}"
    if step.period_ns is None or step.speed_up is None:
        return text
    text += f"  ·  difference {signed_us(step.period_ns)} µs, {step.speed_up:.2f}× as fast"
    if origin_word(headers[0]) != origin_word(headers[1]):
        text += "  ·  one is simulated, the other measured"
    return text


def alignment_text(alignment: Alignment, step: int) -> str:
    """Say which steps stand one above the other."""
    if not len(alignment):
        return "not aligned: no step in common"
    partner = alignment.partner(step)
    if partner < 0:
        return f"step {step:,} of the first has no partner; aligned as the nearest that has one"
    return f"step {step:,} of the first above step {partner:,} of the second"


def difference_rows(differences: Sequence[SiteDifference], theme: Theme) -> list[tuple[Cell, ...]]:
    """Return the table of differences by site."""
    return [_row(each, theme) for each in differences]


def _row(each: SiteDifference, theme: Theme) -> tuple[Cell, ...]:
    change, colour = _change(each, theme)
    return (
        Cell(each.phase),
        Cell(each.site),
        Cell(change, colour=colour),
        _difference(each.per_step, _count_text(abs(each.per_step))),
        _difference(each.wait_us, f"{abs(each.wait_us):,.2f}"),
        *_counts(each.first, each.second),
        *_waits(each.first, each.second),
        Cell(each.kind),
    )


def _change(each: SiteDifference, theme: Theme) -> tuple[str, str]:
    """Return in a word what became of a site, and its colour."""
    if each.second is None:
        return "− gone", theme.hazard
    if each.first is None:
        return "+ new", theme.accent
    if each.per_step:
        return "≠ count", theme.text
    return "= same", theme.faint


def _counts(*entries: SiteEntry | None) -> list[Cell]:
    return [
        Cell(NONE, -1.0)
        if each is None
        else Cell(_count_text(each.row.per_step), each.row.per_step)
        for each in entries
    ]


def _waits(*entries: SiteEntry | None) -> list[Cell]:
    return [
        Cell(NONE, -1.0) if each is None else Cell(f"{each.row.wait_us:,.2f}", each.row.wait_us)
        for each in entries
    ]


def _count_text(per_step: float) -> str:
    return f"{per_step:,.3g}"


def _difference(value: float, text: str) -> Cell:
    """Return a difference with its sign, unless nothing of it is to be seen."""
    sign = "" if text.strip("0.,") == "" else "+" if value > 0 else "−"
    return Cell(f"{sign}{text}", value)
