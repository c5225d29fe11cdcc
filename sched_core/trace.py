"""A Trace: the stored recording of one run, and all that a view needs to show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from syncscope.sched_core.program import Site
from syncscope.sched_core.records import Finding, Plan


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the timeline: a host thread or a stream.  `kind` is ``host`` or ``stream``."""

    name: str
    kind: str
    device: int = -1


@dataclass(frozen=True, slots=True)
class Trace:
    """One run.

    Parameters
    ----------
    sites : tuple of Site
        What `op` of a span indexes.
    lanes : tuple of Lane
        What `lane` of a span indexes.
    phases : tuple of str
        Phase of each step.
    spans : ndarray of recorder.SPAN
        In the order in which they were recorded; times relative to the run's start.
    dropped : int
        Spans lost because the recorder was full.
    simulated : bool
        Whether times are virtual.
    device, model, variant, recording, environment : mapping
        As the keys of those names in ``syncscope-bench/1``; JSON values only.
    plans : tuple of Plan
        What was run, in order; more than one when the plan was switched.
    findings : tuple of Finding
        What the ordering analysis says of the sync sites of the last plan.
    base_ns : int
        Wall-clock time of the run's start since the epoch; 0 on a simulated device.
    """

    sites: tuple[Site, ...]
    lanes: tuple[Lane, ...]
    phases: tuple[str, ...]
    spans: npt.NDArray[Any]
    dropped: int
    simulated: bool
    device: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    variant: Mapping[str, Any] = field(default_factory=dict)
    recording: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    plans: tuple[Plan, ...] = ()
    findings: tuple[Finding, ...] = ()
    base_ns: int = 0
