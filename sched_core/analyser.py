"""Asks about the order of one program: which hazards appear when syncs are left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from syncscope.sched_core.order import Order
from syncscope.sched_core.path import EdgeGraph, Moment
from syncscope.sched_core.program import BLOCKING, Program
from syncscope.sched_core.ranges import HAZARD, HAZARDS
from syncscope.sched_core.records import PHASES, Finding, Kind, Node, Plan

Key = tuple[int, int, int, int]
"""Of a hazard: type, site of the first and of the second access, buffer."""


def analysis_phases(plan: Plan) -> tuple[str, ...]:
    """Return the phases that a plan is analysed over: prompt and decode twice.

    Each lasts long enough for every slot to come round twice, and one step more.
    """
    depths = [buffer.depth for buffer in plan.buffers] + [event.depth for event in plan.events]
    steps = 2 * max(depths, default=1) + 1
    once = ("prompt",) * steps + ("prompt_last",) + ("decode",) * steps
    return tuple(phase for phase in once * 2 if phase in plan.phases)


class Analyser:
    """Asks the order of one program with syncs left out; remembers what it needs to compare.

    Parameters
    ----------
    program : Program
    rules : str
        ``practical`` or ``strict``.
    """

    def __init__(self, program: Program, rules: str = "practical") -> None:
        self.program = program
        self.rules = rules
        self.order = Order(program, rules)
        self.base = frozenset(self.keys(self.order))
        self.units = tuple(_sync_sites(program))

    @cached_property
    def graph(self) -> EdgeGraph:
        """The explicit edges."""
        return EdgeGraph(self.program, self.rules)

    def keys(self, order: Order, hazards: npt.NDArray[Any] | None = None) -> list[Key]:
        """Return the kind of each hazard of an order, whatever the step."""
        found = order.hazards() if hazards is None else hazards
        sites = order.program.ops["site"]
        return list(
            zip(
                found["type"].tolist(),
                sites[found["first_row"]].tolist(),
                sites[found["second_row"]].tolist(),
                self.buffer_of_place[found["place"]].tolist(),
                strict=True,
            )
        )

    @cached_property
    def uses(self) -> npt.NDArray[Any]:
        """Every access to what is written: HAZARD rows with the access as first, type 1 a write."""
        program = self.program
        ops, accesses = program.ops, program.accesses
        place0 = np.cumsum([0, *(buffer.depth for buffer in program.buffers)])
        count = ops["n_access"].astype(np.int64)
        row = np.repeat(np.arange(len(ops)), count)
        index = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        mine = accesses[ops["access0"][row] + index]
        out = np.zeros(len(row), HAZARD)
        out["place"] = place0[mine["buffer"]] + mine["slot"]
        out["begin"], out["end"], out["type"] = mine["begin"], mine["end"], mine["write"]
        out["first_row"], out["first_access"] = row, index
        return out[np.isin(out["place"], out["place"][out["type"] == 1])]

    @cached_property
    def buffer_of_place(self) -> npt.NDArray[np.int64]:
        """The buffer that each slot belongs to."""
        depths = [buffer.depth for buffer in self.program.buffers]
        return np.repeat(np.arange(len(depths)), depths)

    def new_hazards(self, dropped: Iterable[int], order: Order | None = None) -> npt.NDArray[Any]:
        """Return the hazards that dropping sites makes, in the order of the second access."""
        order = order or self.order
        found = order.hazards(dropped)
        if not self.base:
            return found
        return found[[key not in self.base for key in self.keys(order, found)]]

    def is_safe(self, dropped: Iterable[int], order: Order | None = None) -> bool:
        """Whether dropping sites makes no new hazard."""
        if self.base:
            return not len(self.new_hazards(dropped, order))
        return not len((order or self.order).hazards(dropped, 1))

    def kept_set(self) -> tuple[int, ...]:
        """Return the sites of the kept set, in the order of the units."""
        dropped: set[int] = set()
        for unit in reversed(self.units):
            if self.is_safe(dropped | {unit}):
                dropped.add(unit)
        return tuple(unit for unit in self.units if unit not in dropped)

    def name(self, site: int) -> str:
        """Name a site as ``phase:site``."""
        found = self.program.sites[site]
        return f"{found.phase}:{found.name}"


def _sync_sites(program: Program) -> Iterator[int]:
    """Sites where something is ordered, by phase and then in the order of issue."""
    ops = program.ops
    blocks = (np.isin(ops["kind"], (Kind.COPY, Kind.MEMSET))) & (ops["flags"] & BLOCKING > 0)
    syncs = np.flatnonzero(np.isin(ops["kind"], (Kind.SYNC, Kind.WAIT)) | blocks)
    position = {
        int(site): row - int(program.step0[ops["step"][row]])
        for row, site in zip(syncs[::-1].tolist(), ops["site"][syncs][::-1].tolist(), strict=True)
    }
    rank = {phase: i for i, phase in enumerate(PHASES)}

    def key(site: int) -> tuple[int, int]:
        return rank.get(program.sites[site].phase, len(rank)), position[site]

    yield from sorted(position, key=key)


def moments_of(
    analyser: Analyser, hazard: np.void, dropped: Collection[int]
) -> tuple[Moment, Moment]:
    """Return when the two accesses of a hazard take place, with sites dropped."""
    graph = analyser.graph
    return (
        graph.moment_of_access(int(hazard["first_row"]), int(hazard["first_access"]), dropped),
        graph.moment_of_access(int(hazard["second_row"]), int(hazard["second_access"]), dropped),
    )


def nodes_of(analyser: Analyser, hazard: np.void, dropped: Collection[int]) -> tuple[Node, Node]:
    """Name the moments of the two accesses of a hazard."""
    first, second = moments_of(analyser, hazard, dropped)
    graph = analyser.graph
    return (
        graph.node(first, int(hazard["first_access"])),
        graph.node(second, int(hazard["second_access"])),
    )


def with_pair(
    analyser: Analyser, finding: Finding, hazard: np.void, dropped: Collection[int]
) -> Finding:
    """Return a finding with the two accesses of a hazard."""
    first, second = nodes_of(analyser, hazard, dropped)
    return replace(
        finding,
        first=first,
        second=second,
        hazard=HAZARDS[hazard["type"]],
        buffer=analyser.program.buffers[analyser.buffer_of_place[hazard["place"]]].name,
        begin=int(hazard["begin"]),
        end=int(hazard["end"]),
    )
