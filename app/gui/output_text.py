"""What the output panel says: whether the output is the baseline's, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncscope.app.gui.recording import Recording
from syncscope.app.gui.text_table import Cell
from syncscope.app.live_batch import OVER, Harm

HARM_TITLES = ("what", "step", "phase", "site", "buffer")
STALE, WRONG = "stale read", "wrong last write"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an output is the baseline's: None while that is not known; and the words for it."""

    same: bool | None
    text: str


def verdict(recording: Recording | None) -> Verdict:
    """Say whether the output of the sequence that runs is the baseline's."""
    if recording is None:
        return Verdict(None, "nothing recorded yet")
    token, logits = recording.first_difference, recording.logit_difference
    if token is not None:
        text = f"✕ differs from baseline at token {token:,}, marked below"
        if logits is not None:
            text += f"; logits at position {logits:,}, the prompt's counted"
        return Verdict(False, text)
    if logits is not None:
        where = f"logits differ at position {logits:,}, the prompt's counted"
        return Verdict(False, f"✕ differs from baseline: same tokens so far, {where}")
    if recording.bit_exact:
        return Verdict(True, "✓ bit-exact with baseline")
    if not recording.token_ids:
        why = "there is no output: it computes nothing, or was opened from a file"
        return Verdict(
            None, f"? not known: {why}" if recording.state in OVER else "? not known yet"
        )
    if recording.state in OVER:
        return Verdict(None, "? not known: the sequence did not end, or had no baseline")
    return Verdict(None, "? not known yet: it is compared when the sequence ends")


def count_text(recording: Recording | None) -> str:
    """Say how many tokens there are, and of which repetition."""
    if recording is None:
        return ""
    n = len(recording.token_ids)
    text = f"{n:,} token{'' if n == 1 else 's'}"
    return f"{text}, sequence {recording.sequence + 1:,}" if recording.sequence else text


def harm_text(recording: Recording | None) -> str:
    """Count what was seen to go wrong."""
    if recording is None:
        return ""
    stale, wrong, no_effect = recording.counts
    return (
        f"{stale:,} stale reads, {wrong:,} wrong last writes, {no_effect:,} waits without effect; "
        "the first at each place since the plan last changed:"
    )


def watermark_text(recording: Recording | None) -> str:
    """Return what marks a run with hazards; empty for one without."""
    if recording is None or not recording.is_hazardous:
        return ""
    seen = "its output was harmed" if any(recording.counts[:2]) else "no harm seen so far"
    return f"HAZARD RUN: accesses are not ordered, results are not to be trusted; {seen}"


def trouble_text(recording: Recording | None) -> str:
    """Return why a run ended before its time; empty if it did not."""
    if recording is None:
        return ""
    fault = f"kernel fault: {recording.fault}" if recording.fault else ""
    return fault or recording.failure


_UNSEEN = (*(code for code in range(32) if chr(code) not in "\n\t\r"), 0x7F, 0x2028, 0x2029, 0xFDD0)
_VISIBLE = {code: 0xFFFD for code in (*_UNSEEN, 0xFDD1)} | {ord("\r"): 0x200B}
"""Stand-ins for what cannot be seen, or is an end of line to Qt alone; nothing for returns."""


def visible(text: str) -> str:
    """Return a text with as many characters, all of which can be shown."""
    return text.translate(_VISIBLE)


def qt_length(text: str) -> int:
    """Return how long a text is as Qt counts, in units of UTF-16."""
    return len(text) + sum(each > "\uffff" for each in text)


def harm_rows(
    stale: Iterable[Harm], wrong: Iterable[Harm], colour: str
) -> list[tuple[Cell, Cell, Cell, Cell, Cell]]:
    """Return the table of harm, by step."""
    named = [(STALE, each) for each in stale] + [(WRONG, each) for each in wrong]
    named.sort(key=lambda each: each[1][0])
    return [
        (
            Cell(what, colour=colour),
            Cell(f"{step:,}", step),
            Cell(phase),
            Cell(site),
            Cell(buffer),
        )
        for what, (step, phase, site, buffer) in named
    ]
