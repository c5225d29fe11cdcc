"""What a benchmark run found: the records that every report is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncscope.kernels.sampling import GREEDY, Sampling
from syncscope.sched_core.records import Missing
from syncscope.sched_core.trace import Trace


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one variant, taken from its spans.

    Step figures are over decode steps in steady state.  `patterns` has the executed pattern of the
    last step of each phase that ran.  `tokens_per_s` and `step_us` are (median, low, high) and
    (median, p99).  None: not enough steps to tell.
    """

    patterns: Mapping[str, str]
    syncs_per_step: int | None
    syncs_before_launch: int | None
    syncs_after_launch: int | None
    tokens_per_s: tuple[float, float, float] | None
    time_to_first_token_us: float | None
    step_us: tuple[float, float] | None
    host_blocked_us: float | None
    device_idle_share: float | None


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One line of the site table: a site of a phase in one variant.

    `per_step` and `wait_us` are means over the phase's steps.  `verdict`, `alone_safe` and
    `covered_by` are those of the ordering analysis, ``unknown`` where there was none; of a row that
    is no sync the verdict is empty and `why` says what the row is.
    """

    variant: str
    phase: str
    site: str
    kind: str
    per_step: float
    wait_us: float
    verdict: str = ""
    alone_safe: bool | None = None
    covered_by: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Hazard:
    """A hazard of a variant: one that is there, or one that a dropped sync would make.

    Parameters
    ----------
    missing : Missing
        Both accesses and the fix.
    first_phase, second_phase : str
        Phases of their steps.
    why : str
        The hazard in a sentence.
    seen : bool or None
        Whether the simulator saw a stale read or a wrong last write for it; None: not tried.
    output_differs : bool or None
        Whether the output then differed; None: not tried or nothing computed.
    """

    missing: Missing
    first_phase: str
    second_phase: str
    why: str
    seen: bool | None = None
    output_differs: bool | None = None


@dataclass(frozen=True, slots=True)
class Provoked:
    """What happened when one kept sync was dropped in every data order.

    `phase`, `site` name the sync, `seen` says whether a race was seen, `order` in which data order
    first.  None: not tried, since this run has no step of a phase that the race needs.
    """

    phase: str
    site: str
    verdict: str
    seen: bool | None
    output_differs: bool | None
    order: str | None


@dataclass(frozen=True, slots=True)
class VariantResult:
    """One variant of a run.

    Parameters
    ----------
    id : str
    passes : tuple of str
        Applied, as ``id`` or ``id=value``, in order.
    dropped_sites : tuple of str
        Removed raw, as ``phase:site``.
    refused : mapping of str to str
        Pass id -> why it was not applied.
    notes : tuple of str
        What the user should be told about how the variant was made.
    trace : Trace
    metrics : Metrics
    token_ids : tuple of int
        Sampled tokens; empty when nothing was computed.
    text : str or None
        The sampled tokens as text; None when nothing was computed.
    output_sha256, logits_sha256 : str or None
    bit_exact : bool or None
        Whether tokens and logits equal those of the reference variant; None: nothing computed.
    stale_reads, wrong_last_writes, waits_without_effect : int
        Seen by the simulator in the data order that did most harm.
    first_stale_reads : tuple of str
        Where, as sentences.
    orders : tuple of str
        Data orders tried, such as ``dev0.per_thread early, dev0.compute late``.
    harmful_order : str or None
        The first of them that did harm.
    fault : str or None
        Why the run ended early (a kernel refused a value).
    hazards : tuple of Hazard
        What the ordering analysis misses in this variant.
    provoked : tuple of Provoked
        One per kept sync of the phases that ran, if asked for.
    minimal : str
        The smallest sets of syncs in words, if asked for.
    """

    id: str
    passes: tuple[str, ...]
    dropped_sites: tuple[str, ...]
    refused: Mapping[str, str]
    notes: tuple[str, ...]
    trace: Trace
    metrics: Metrics
    token_ids: tuple[int, ...]
    text: str | None
    output_sha256: str | None
    logits_sha256: str | None
    bit_exact: bool | None
    stale_reads: int
    wrong_last_writes: int
    waits_without_effect: int
    first_stale_reads: tuple[str, ...]
    orders: tuple[str, ...]
    harmful_order: str | None
    fault: str | None
    hazards: tuple[Hazard, ...] = ()
    provoked: tuple[Provoked, ...] = ()
    minimal: str = ""

    @property
    def harmed(self) -> bool:
        """Whether this run saw a hazard or other output than the reference."""
        return bool(
            self.stale_reads
            or self.wrong_last_writes
            or self.fault is not None
            or self.bit_exact is False
        )


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A whole run; mappings have the keys of ``syncscope-bench/1``.

    `interrupted` is true when the user ended the run, `failure` says why the device did: variants
    hold what was recorded until then.
    """

    device: Mapping[str, Any]
    model: Mapping[str, Any]
    rules: str
    recording: Mapping[str, Any]
    variants: tuple[VariantResult, ...]
    sites: tuple[SiteRow, ...]
    environment: Mapping[str, Any]
    prompt: str
    interrupted: bool = False
    failure: str = ""
    sampling: Sampling = GREEDY
