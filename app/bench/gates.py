"""Conditions under which a run fails: what `--fail-on` takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncscope.app.results import BenchResult
from syncscope.sched_core.errors import UsageError, nearest

KINDS = ("hazard", "mismatch", "syncs", "slower")


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition; `limit` is a number of syncs per step, or percent of the first variant."""

    kind: str
    limit: float = 0.0

    def check(self, result: BenchResult) -> list[str]:
        """Return a sentence per variant that fails, or of which the gate cannot tell."""
        found = []
        reference = result.variants[0]
        first = reference.metrics.step_us
        no_step = f"cannot tell {self.kind} without a steady decode step; use more --tokens"
        for variant in result.variants:
            metrics = variant.metrics
            if self.kind == "hazard" and (
                variant.stale_reads or variant.wrong_last_writes or variant.hazards
            ):
                found.append(
                    f"{variant.id}: {variant.stale_reads} stale reads, "
                    f"{variant.wrong_last_writes} wrong last writes, "
                    f"{len(variant.hazards)} hazards in the ordering analysis"
                )
            if self.kind == "mismatch":
                if variant.bit_exact is False or variant.fault:
                    found.append(f"{variant.id}: output differs from {reference.id}")
                elif variant.bit_exact is None:
                    found.append(
                        f"{variant.id}: cannot tell mismatch where nothing is computed; "
                        "leave out --no-compute"
                    )
            if self.kind == "syncs" and metrics.syncs_per_step is None:
                found.append(f"{variant.id}: {no_step}")
            elif self.kind == "syncs" and (metrics.syncs_per_step or 0) > self.limit:
                found.append(
                    f"{variant.id}: {metrics.syncs_per_step} syncs per step, "
                    f"more than {self.limit:g}"
                )
            if self.kind == "slower" and (not first or not metrics.step_us):
                found.append(f"{variant.id}: {no_step}")
            elif self.kind == "slower" and first and metrics.step_us:
                percent = 100 * (metrics.step_us[0] / first[0] - 1)
                if percent > self.limit:
                    found.append(
                        f"{variant.id}: step {percent:.1f} % slower than {reference.id}, "
                        f"more than {self.limit:g} %"
                    )
        return found


def parse_gates(texts: Iterable[str]) -> tuple[Gate, ...]:
    """Read gates written as ``hazard``, ``mismatch``, ``syncs:N`` or ``slower:PERCENT``.

    Raises
    ------
    UsageError
        For an unknown gate or a missing, needless or unfit number.
    """
    gates = []
    for text in texts:
        kind, colon, number = text.partition(":")
        if kind not in KINDS:
            raise UsageError(f"--fail-on {text}: unknown gate {kind}; {nearest(kind, KINDS)}")
        if kind in ("hazard", "mismatch"):
            if colon:
                raise UsageError(f"--fail-on {text}: {kind} takes no number; write {kind}")
            gates.append(Gate(kind))
            continue
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if not 0 <= limit < float("inf") or (kind == "syncs" and limit != int(limit)):
            raise UsageError(f"--fail-on {text}: needs a number of at least 0; write {kind}:10")
        gates.append(Gate(kind, limit))
    return tuple(gates)
