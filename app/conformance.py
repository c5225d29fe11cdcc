"""Cases with known hazards, judged by the ordering analysis: where the two disagree, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncscope.app.importers.conformance import Case, Hazard
from syncscope.app.importers.fields import show
from syncscope.sched_core.order import Order
from syncscope.sched_core.program import Program
from syncscope.sched_core.ranges import HAZARDS
from syncscope.sched_core.records import Kind

SCHEMA = "syncscope-conformance/1"
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the analysis found in a case.

    Parameters
    ----------
    case : Case
    hazards : frozenset of Hazard
    why : tuple of str
        What disagrees with the case; empty if nothing does.
    spared : tuple of int
        Required ops that only strict rules need: no disagreement, for a case goes by what is
        documented, and practical rules promise more.
    """

    case: Case
    hazards: frozenset[Hazard]
    why: tuple[str, ...]
    spared: tuple[int, ...]

    @property
    def expected_text(self) -> str:
        """The case's opinion."""
        expected = self.case.expected
        parts = [
            expected.verdict if expected.hazards is None else _opinion(expected.hazards),
            f"required: {_ops(self.case, expected.required)}" if expected.required else "",
            f"redundant: {_ops(self.case, expected.redundant)}" if expected.redundant else "",
        ]
        return "; ".join(filter(None, parts))

    @property
    def why_text(self) -> str:
        """What the two disagree about, with what is known of practice."""
        remark = self.case.expected.remark
        return "; ".join(self.why) + (f" ({remark})" if remark else "")


def _listed(items: Sequence[str]) -> str:
    more = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _ops(case: Case, indices: Iterable[int]) -> str:
    return _listed([f"{index} ({case.ops[index]})" for index in indices])


def _hazards(hazards: Iterable[Hazard]) -> str:
    ordered = sorted(hazards, key=lambda hazard: (hazard.second, hazard.first, hazard))
    return _listed(
        [f"{each.type} {each.first}->{each.second} on {show(each.buffer)}" for each in ordered]
    )


def _opinion(hazards: frozenset[Hazard]) -> str:
    return f"race: {_hazards(hazards)}" if hazards else "none"


def _found(order: Order, dropped: Iterable[int] = ()) -> frozenset[Hazard]:
    """Return the hazards of a case's program; places are buffers, sites are ops."""
    program = order.program
    site = program.ops["site"].tolist()
    return frozenset(
        Hazard(HAZARDS[kind], site[first], site[second], program.buffers[place].name)
        for kind, first, second, place in order.hazards(dropped)[
            ["type", "first_row", "second_row", "place"]
        ].tolist()
    )


def _without(program: Program, sites: Sequence[int]) -> Program:
    """Return the program with the rows of those sites as if they were never issued."""
    ops = program.ops.copy()
    for site in sites:
        rows = ops["site"] == site
        ops["kind"][rows] = int(Kind.QUERY)
        ops["stream"][rows] = -1
        ops["n_access"][rows] = 0
    return replace(program, ops=ops)


def _left_out(order: Order, before: frozenset[Hazard], sites: Sequence[int]) -> frozenset[Hazard]:
    """Return the hazards that come up when only the ordering effect of ops is left out.

    An op's own accesses stay, unordered with the host if its blocking was what ordered them; and
    what came after others by way of the op, such as a memset on the legacy default stream, does
    so no more.  The latter is found without the op, where its own accesses cannot hide it.
    """
    gone = Order(_without(order.program, sites), order.rules)
    return (_found(order, sites) | _found(gone)) - before


def judge(case: Case, rules: str) -> Judgement:
    """Compare what a case expects with what the analysis finds under a rule set."""
    expected = case.expected
    order = Order(case.program, rules)
    found = _found(order)
    why = []
    if expected.hazards is None:
        if bool(found) != (expected.verdict == "race"):
            why.append(f"verdict {expected.verdict}, but found {_opinion(found)}")
    else:
        if missed := expected.hazards - found:
            why.append(f"not found: {_hazards(missed)}")
        if extra := found - expected.hazards:
            why.append(f"not expected: {_hazards(extra)}")
    spared = []
    strict = order if rules == "strict" else Order(case.program, "strict")
    for index in expected.required:
        if _left_out(order, found, [index]):
            continue
        if strict is not order and _left_out(strict, _found(strict), [index]):
            spared.append(index)
        else:
            why.append(f"required: no race without op {_ops(case, [index])}")
    dropped: list[int] = []
    for index in sorted(expected.redundant, reverse=True):
        dropped.append(index)
        if made := _left_out(order, found, dropped):
            why.append(f"redundant: {_hazards(made)} without op {_ops(case, [index])}")
            dropped.pop()
    return Judgement(case, found, tuple(why), tuple(spared))


def conformance_object(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """Return the result as JSON values, with exactly the keys of the schema."""
    disagree = [each for each in judgements if each.why]
    return {
        "schema": SCHEMA,
        "count": len(judgements),
        "agree": len(judgements) - len(disagree),
        "disagree": [
            {
                "id": each.case.id,
                "expected": each.expected_text,
                "got": _opinion(each.hazards),
                "why": each.why_text,
            }
            for each in disagree
        ],
    }


def render_json(judgements: Sequence[Judgement]) -> str:
    """Return the JSON text."""
    return json.dumps(conformance_object(judgements), indent=1, allow_nan=False) + "\n"


def render_text(judgements: Sequence[Judgement], rules: str) -> str:
    """Return the counts, then both opinions on each case that the two disagree about."""
    disagree = [each for each in judgements if each.why]
    lines = [
        f"{len(judgements)} cases under {rules} rules: {len(judgements) - len(disagree)} agree, "
        f"{len(disagree)} disagree"
    ]
    for each in disagree:
        lines += [
            show(each.case.id)[1:-1],
            f"  expected  {each.expected_text}",
            f"  found     {_opinion(each.hazards)}",
            f"  why       {each.why_text}",
        ]
    lines += [
        f"{show(each.case.id)[1:-1]}: required under strict rules only: "
        f"{_ops(each.case, each.spared)}"
        for each in judgements
        if each.spared
    ]
    return "\n".join(lines)
