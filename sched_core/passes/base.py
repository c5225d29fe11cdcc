"""What a pass is, and the edits that several passes make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from syncscope.sched_core.records import Kind, Op, Plan


class Refused(Exception):
    """A pass that cannot be applied to this plan; the message says why."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """The one number that a pass may take."""

    name: str
    low: int
    high: int
    default: int


@dataclass(frozen=True, slots=True)
class Pass:
    """A pure function ``Plan -> Plan`` and what is known about it.

    Parameters
    ----------
    id, title, source : str
        `source` says where the idea comes from.
    apply : callable
        ``apply(plan, value) -> Plan``; `value` is 0 for a pass without a parameter.  Returns the
        plan unchanged where it has no site, raises `Refused` where it cannot be applied.
    needs : tuple of str
        Passes that must have been applied.
    capabilities : tuple of str
        What the backend must be able to do.
    scheduling_only : bool
        Whether it keeps the multiset of kernel launches and their arguments.
    parameter : Parameter or None
    """

    id: str
    title: str
    source: str
    apply: Callable[[Plan, int], Plan]
    needs: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    scheduling_only: bool = True
    parameter: Parameter | None = None


def edit_phases(plan: Plan, edit: Callable[[tuple[Op, ...]], Iterable[Op]]) -> Plan:
    """Return `plan` with the ops of each phase replaced by ``edit(ops)``."""
    return replace(plan, phases={name: tuple(edit(ops)) for name, ops in plan.phases.items()})


def is_input_copy(op: Op) -> bool:
    """Whether `op` copies inputs to a device: one input, or all of them packed."""
    return op.kind == Kind.COPY and (op.site.startswith("input.") or op.site == "inputs.copy")


def is_input_sync(op: Op) -> bool:
    """Whether `op` is one of the baseline's syncs around the copy of one input."""
    return op.kind == Kind.SYNC and op.site.startswith("input.")


def taken_over(ops: Iterable[Op]) -> tuple[str, ...]:
    """Return the sites of `ops` and those that they themselves replaced, once each."""
    return tuple(dict.fromkeys(site for op in ops for site in (op.site, *op.replaces)))
