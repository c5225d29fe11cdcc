"""llama.cpp's own shorthand for what the host does in one step."""

from __future__ import annotations

from collections.abc import Iterable

from syncscope.sched_core.records import Kind, Op

LETTERS = {
    "s": "host sync of a stream or device",
    "E": "host wait for an event",
    "A": "blocking copy",
    "a": "async copy",
    "e": "event record",
    "w": "stream waits for event",
    "g": "graph launch or a run of kernels",
    "h": "host work (hidden by default)",
}
SYNC_LETTERS = "sEA"
"""Letters at which the host waits: what `syncs_per_step` counts."""

_BY_KIND = {
    Kind.HOST: "h",
    Kind.LAUNCH: "g",
    Kind.GRAPH: "g",
    Kind.RECORD: "e",
    Kind.WAIT: "w",
}


def letter(kind: int, blocking: bool, scope: str) -> str:
    """Return the letter of one issued op; empty for kinds the shorthand does not have."""
    if kind == Kind.COPY:
        return "A" if blocking else "a"
    if kind == Kind.SYNC:
        return "E" if scope == "event" else "s"
    return _BY_KIND.get(Kind(kind), "")


def pattern(letters: Iterable[str], host: bool = False) -> str:
    """Join letters of a step in issue order; a run of kernels is one ``g``, host work is hidden."""
    out: list[str] = []
    for each in letters:
        hidden = each == "h" and not host
        if each and not hidden and not (each == "g" and out[-1:] == ["g"]):
            out.append(each)
    return "".join(out)


def plan_pattern(ops: Iterable[Op]) -> str:
    """Return the pattern of a phase as planned; the members of a graph show as its launch."""
    return pattern(letter(op.kind, op.blocking, op.scope) for op in ops)


def count_syncs(text: str) -> tuple[int, int, int]:
    """Return syncs per step, before the first ``g`` and after it."""
    before, launch, _ = text.partition("g")
    total = sum(text.count(each) for each in SYNC_LETTERS)
    early = sum(before.count(each) for each in SYNC_LETTERS) if launch else 0
    return total, early, total - early
