"""Compare the simulator with stored results (syncscope-bench/1 files), as a Markdown table.

python packaging/simulated_table.py docs/results/h200 [docs/simulator.md]

Runs the plans of the stored variants under the profile named like the folder, as the results were
made (packaging/gpu_check.sh: prompt "1", 200 tokens).  Prints the table, or puts it in place of the
one in the Markdown file.  Checkpoints are looked for in $SYNCSCOPE_SHARED/data/models (default
../shared).
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncscope.app.simulated import simulate, step_us
from syncscope.app.variants import REFERENCE, plan_variant, preset_variant
from syncscope.app.workload import Workload
from syncscope.kernels.registry import BUNDLED, SHAPES, Model, load_model
from syncscope.kernels.tokenizer import ByteTokenizer
from syncscope.kernels.weights import Weights
from syncscope.sched_core.profile import Profile, load_profile

PROMPT, TOKENS, UBATCH = "1", 200, 512


@dataclass(frozen=True)
class Cell:
    """Median step times of one variant of one model."""

    model: str
    variant: str
    simulated_us: float
    measured_us: float
    fitted: bool

    @property
    def error(self) -> float:
        """How far the simulator is off, as a share of what was measured."""
        return self.simulated_us / self.measured_us - 1


def model_of(model_id: str, shared: Path) -> Model:
    """Return a model to be timed: one with random weights needs none."""
    if model_id in SHAPES:
        config = SHAPES[model_id]
        return Model(model_id, config, Weights(config, {}), ByteTokenizer())
    return load_model(
        model_id if model_id in BUNDLED else str(shared / "data" / "models" / model_id)
    )


def compare(result: dict[str, Any], profile: Profile, shared: Path) -> list[Cell]:
    """Simulate each variant of a stored result."""
    model_id = result["model"]["id"]
    model = model_of(model_id, shared)
    workload = Workload(model, tuple(model.tokenizer.encode(PROMPT)), TOKENS, UBATCH)
    baseline, kernels = workload.plan(), workload.kernels()
    phases = [phase for phase, steps in workload.segments for _ in range(steps)]
    cells = []
    for each in result["variants"]:
        name = each["id"]
        variant = REFERENCE if name == REFERENCE.id else preset_variant(name)
        trace = simulate(plan_variant(baseline, variant).plan, kernels, phases, profile)
        fitted = f"{model_id} {name}" in profile.source
        cells.append(Cell(model_id, name, step_us(trace) or 0.0, each["step_us"]["median"], fitted))
    return cells


def cells_of(folder: Path, shared: Path) -> list[list[Cell]]:
    """Return the cells of each model, smallest model first."""
    results = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    results = [each for each in results if {"baseline", "saaasg", "all"} <= variants_of(each)]
    results.sort(key=lambda result: int(result["model"]["parameters"]))
    profile = load_profile(folder.name)
    return [compare(result, profile, shared) for result in results]


def variants_of(result: dict[str, Any]) -> set[str]:
    """Return the ids of the variants of a stored result; none if it is of another kind."""
    return {each["id"] for each in result.get("variants", ())}


def rows(models: list[list[Cell]]) -> list[str]:
    """Return the lines of the table."""
    names = [cell.variant for cell in models[0]]
    out = [
        f"| model | {' | '.join(names)} | saved by `all` |",
        f"|---|{'---:|' * (len(names) + 1)}",
    ]
    for cells in models:
        of = {cell.variant: cell for cell in cells}
        saved = [
            getattr(of["baseline"], each) - getattr(of["all"], each)
            for each in ("simulated_us", "measured_us")
        ]
        shown = [
            f"{cell.simulated_us:,.0f} / {cell.measured_us:,.0f} {100 * cell.error:+.1f} %"
            + ("\\*" if cell.fitted else "")
            for cell in (of[name] for name in names)
        ]
        name = Path(cells[0].model).stem if cells[0].model not in SHAPES else cells[0].model
        out.append(f"| {name} | {' | '.join(shown)} | {saved[0]:,.1f} / {saved[1]:,.1f} |")
    return out


def put(text: str, table: list[str]) -> str:
    """Return a Markdown text with its table that has the same head replaced."""
    lines = text.splitlines()
    head = table[0].partition(" | ")[0] + " | baseline |"
    first = next(i for i, line in enumerate(lines) if line.startswith(head))
    last = first
    while last < len(lines) and lines[last].startswith("|"):
        last += 1
    return "\n".join([*lines[:first], *table, *lines[last:]]) + "\n"


if __name__ == "__main__":
    found = rows(cells_of(Path(sys.argv[1]), Path(os.environ.get("SYNCSCOPE_SHARED", "../shared"))))
    if len(sys.argv) > 2:
        path = Path(sys.argv[2])
        path.write_text(put(path.read_text("utf-8"), found), "utf-8")
    else:
        print("\n".join(found))
