"""Records of a live run: what is asked for, a change of plan, and what came since the last look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.app.variants import Planned
from syncscope.app.workload import DEFAULT_PROMPT
from syncscope.sched_core.program import Site
from syncscope.sched_core.recorder import SPAN
from syncscope.sched_core.records import Diff, Finding
from syncscope.sched_core.trace import Lane

STATES = ("starting", "running", "paused", "draining", "finished", "stopped", "failed")
"""What a live run may be doing; it stays in the last three."""

OVER = STATES[4:]
"""States in which nothing more comes."""

Harm = tuple[int, str, str, str]
"""Step, phase, site and buffer of a stale read or of a wrong last write."""


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """What is to be run, on what.

    Parameters
    ----------
    model, prompt : str
    n_tokens, ubatch : int
    device : str
        As ``--device``; empty for what is there.
    profile : str
        Costs of the simulated device.
    rules : str
    seed : int
        Of random weights and of sampled data orders.
    compute : bool
        False: the simulator times the plan and computes nothing.
    record, wait : str
        What is recorded of a GPU, and how the host waits for it.
    preset : str
    passes, drop : tuple of str
        Beside those of the preset, and syncs removed raw.
    allow_hazards : bool
    late : frozenset of str
        Streams of the simulator that are late.  Empty: none is while the plan is free of
        hazards, else the data order that does most harm is chosen.
    repeat : bool
        Begin again when the tokens are done; time and steps go on.
    speed : float
        Simulated seconds per second; 0 as fast as it goes.  A GPU takes no notice.
    """

    model: str = "tiny"
    prompt: str = DEFAULT_PROMPT
    n_tokens: int = 256
    ubatch: int = 512
    device: str = ""
    profile: str = "h200"
    rules: str = "practical"
    seed: int = 0
    compute: bool = True
    record: str = "stamps"
    wait: str = "spin"
    preset: str = "baseline"
    passes: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    allow_hazards: bool = False
    late: frozenset[str] = frozenset()
    repeat: bool = False
    speed: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanChange:
    """From `step` on another plan runs; the plan that a run begins with is a change at step 0.

    Parameters
    ----------
    step : int
    planned : Planned
    findings : tuple of Finding
        One per sync site of the plan.
    patterns : mapping of str to str
        Pattern string of each phase.
    reasons : mapping of (str, str) to str
        Phase and site -> the finding in a sentence.
    ghosts : mapping of str to Diff
        Per phase, what differs from the preset `baseline`.
    hazards : tuple of str
        What is not ordered in this plan, a sentence each.
    order : str
        Data order that the simulator runs it in; empty on a GPU.
    """

    step: int
    planned: Planned
    findings: tuple[Finding, ...]
    patterns: Mapping[str, str]
    reasons: Mapping[tuple[str, str], str]
    ghosts: Mapping[str, Diff]
    hazards: tuple[str, ...] = ()
    order: str = ""


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """Everything since the last look at a live run.

    Parameters
    ----------
    state : str
        One of `STATES`.
    spans : ndarray of recorder.SPAN
        New ones; `op` indexes all sites so far, `step` counts from the run's start, as times do.
    sites, phases, changes : tuple
        New ones.
    token_ids : tuple of int
        New ones, all of one sequence.
    lanes : tuple of Lane
        All.
    dropped : int
        Spans lost so far.
    stale : tuple of Harm
        New stale reads, the first at each place since the plan last changed.
    counts : tuple of int
        Stale reads, wrong last writes and waits without effect so far.
    fault : str
        Why a kernel refused a value, which ended the run.
    failure : str
        Why the run could not begin or the device failed, one line.
    steps_done, steps_total : int
        The total is 0 where the run begins again for ever.
    text : str
        New text, of the same sequence as `token_ids`.
    sequence : int
        Which repetition tokens and text belong to: where it rises, the output begins anew.
    first_difference : int or None
        First token of the sequence, counted from 0, that is not the baseline's; None if there is
        none so far, or the baseline's are not known yet.
    logit_difference : int or None
        First position of the sequence, the prompt's included, with other logits than the baseline;
        known when the sequence is over.
    bit_exact : bool or None
        Whether tokens and logits of the sequence are the baseline's; None until that is known.
    token_at, logits_at : int or None
        Where in the text of the sequence the token begins that differs first, and the one that was
        drawn from the logits that differ first; None where there is none.
    wrong : tuple of Harm
        New wrong last writes, as `stale`.
    messages : tuple of str
        What the user should be told now, such as why a variant was refused.
    """

    state: str
    spans: npt.NDArray[Any]
    sites: tuple[Site, ...] = ()
    phases: tuple[str, ...] = ()
    changes: tuple[PlanChange, ...] = ()
    token_ids: tuple[int, ...] = ()
    lanes: tuple[Lane, ...] = ()
    dropped: int = 0
    stale: tuple[Harm, ...] = ()
    counts: tuple[int, int, int] = (0, 0, 0)
    fault: str = ""
    failure: str = ""
    steps_done: int = 0
    steps_total: int = 0
    text: str = ""
    sequence: int = 0
    first_difference: int | None = None
    logit_difference: int | None = None
    bit_exact: bool | None = None
    token_at: int | None = None
    logits_at: int | None = None
    wrong: tuple[Harm, ...] = ()
    messages: tuple[str, ...] = ()


def no_spans() -> npt.NDArray[Any]:
    """Return an empty array of spans."""
    return np.zeros(0, SPAN)


_NEW = ("sites", "phases", "changes", "token_ids", "stale", "wrong", "messages")
"""Fields of a batch that hold what is new; the others hold how things stand."""


_OUTCOME = ("state", "fault", "failure", "first_difference", "logit_difference", "bit_exact")
"""Fields that are news when they change."""


def has_news(batch: LiveBatch, last: LiveBatch) -> bool:
    """Whether a batch says more than the one before it did."""
    return bool(
        len(batch.spans)
        or batch.text
        or any(getattr(batch, name) for name in _NEW)
        or any(getattr(batch, name) != getattr(last, name) for name in _OUTCOME)
    )


def standing(batch: LiveBatch, state: str) -> LiveBatch:
    """Return how things stood at a batch, in another state, with nothing new."""
    nothing: dict[str, Any] = dict.fromkeys(_NEW, ())
    return replace(batch, state=state, spans=no_spans(), text="", **nothing)


def join_batches(batches: Iterable[LiveBatch]) -> LiveBatch:
    """Join batches of one sequence that follow each other, at least one."""
    batches = tuple(batches)
    joined: dict[str, Any] = {
        name: tuple(each for batch in batches for each in getattr(batch, name)) for name in _NEW
    }
    return replace(
        batches[-1],
        spans=np.concatenate([batch.spans for batch in batches]),
        text="".join(batch.text for batch in batches),
        **joined,
    )
