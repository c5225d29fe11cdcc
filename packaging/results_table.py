"""Print the Markdown table of README.md from stored results (syncscope-bench/1 files).

python packaging/results_table.py docs/results/h200
"""

import json
import sys
from pathlib import Path
from typing import Any


def model_order(result: dict[str, Any]) -> int:
    """Sort by size."""
    return int(result["model"]["parameters"])


def rows(folder: Path) -> list[str]:
    """Return the lines of the table, one per model: step time per variant and what is saved."""
    results = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    results.sort(key=model_order)
    names = [variant["id"] for variant in results[0]["variants"]]
    out = [
        f"| model | {' | '.join(names)} | saved | recording |",
        f"|---|{'---:|' * (len(names) + 2)}",
    ]
    for result in results:
        steps = {each["id"]: each["step_us"]["median"] for each in result["variants"]}
        saved = steps["baseline"] - steps["all"]
        share = 100 * result["recording"]["overhead_share"]
        exact = all(each["bit_exact"] for each in result["variants"])
        name = Path(result["model"]["id"]).stem + ("" if exact else " (NOT bit-exact)")
        cells = " | ".join(f"{steps[each]:,.1f}" for each in names)
        out.append(f"| {name} | {cells} | {saved:,.1f} | {share:+.1f} % |")
    return out


if __name__ == "__main__":
    print("\n".join(rows(Path(sys.argv[1]))))
