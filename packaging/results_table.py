"""Make the tables of measured results from the stored files, so that documents cannot drift.

python packaging/results_table.py docs/results/h200                 print the table of steps
python packaging/results_table.py docs/results/h200 DOCUMENT..      write tables into documents

A document has a place for a table between ``<!-- NAME -->`` and ``<!-- end -->``; NAME is one of
`TABLES`.  Files of a folder: MODEL.json (syncscope-bench/1, presets), drops-MODEL.json or
drops/*.json (the same, syncs dropped one by one), record-KIND.json (the same, ways of recording),
greedy-text.json (syncscope-greedy-text/1).
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

BENCH = "syncscope-bench/1"
TEXT = "syncscope-greedy-text/1"
NOTHING = "Not measured yet."
RECORDS = ("off", "stamps", "events", "cupti")
"""Ways of recording, in the order of the table."""


def read(paths: Iterable[Path], schema: str) -> list[dict[str, Any]]:
    """Return the contents of the files that have a schema."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted(paths)]
    return [each for each in found if each.get("schema") == schema]


def bench_files(folder: Path) -> list[Path]:
    """Return the files that hold presets of one model each."""
    return [
        path
        for path in folder.glob("*.json")
        if not path.name.startswith(("drops-", "record-", "greedy-text"))
    ]


def drop_files(folder: Path) -> list[Path]:
    """Return the files that hold variants with one sync dropped."""
    return [*folder.glob("drops-*.json"), *folder.glob("drops/*.json")]


def model_size(result: Mapping[str, Any]) -> int:
    """Sort by size."""
    return int(result["model"]["parameters"])


def model_name(result: Mapping[str, Any]) -> str:
    """Return a model's id without the ending of a file."""
    return Path(result["model"]["id"]).stem


def table(headers: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Return a Markdown table whose columns behind the first `left` hold numbers."""
    rule = "---|" * left + "---:|" * (len(headers) - left)
    return [
        f"| {' | '.join(headers)} |",
        f"|{rule}",
        *(f"| {' | '.join(line)} |" for line in lines),
    ]


# ---- tables -------------------------------------------------------------------------------------


def rows(folder: Path) -> list[str]:
    """Return the table of step medians, one line per model: per variant, and what is saved."""
    results = sorted(read(bench_files(folder), BENCH), key=model_size)
    if not results:
        return [NOTHING]
    names = [variant["id"] for variant in results[0]["variants"]]
    lines = []
    for result in results:
        steps = {each["id"]: each["step_us"]["median"] for each in result["variants"]}
        share = 100 * result["recording"]["overhead_share"]
        exact = all(each["bit_exact"] for each in result["variants"])
        lines.append(
            [
                model_name(result) + ("" if exact else " (NOT bit-exact)"),
                *(f"{steps[each]:,.1f}" for each in names),
                f"{steps['baseline'] - steps['all']:,.1f}",
                f"{share:+.1f} %",
            ]
        )
    return table(["model", *names, "saved", "recording"], lines)


def step_interval_us(variant: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return a variant's step: median, and the 95 % interval of the median."""
    tokens = variant["tokens_per_s"]
    return variant["step_us"]["median"], 1e6 / tokens["high"], 1e6 / tokens["low"]


def saved(reference: Mapping[str, Any], variant: Mapping[str, Any]) -> str:
    """Return what a variant saves per step, with the range that both intervals leave."""
    (base, base_low, base_high), (step, low, high) = map(step_interval_us, (reference, variant))
    return f"{base - step:+,.1f} [{base_low - high:+,.1f}, {base_high - low:+,.1f}]"


def drops(folder: Path) -> list[str]:
    """Return the table of syncs dropped one by one: a line per sync, a column per model."""
    results = sorted(read(drop_files(folder), BENCH), key=model_size)
    if not results:
        return [NOTHING]
    bases: dict[str, list[float]] = {}
    cells: dict[str, dict[str, str]] = {}
    exact: dict[str, bool] = {}
    for result in results:
        model, (reference, *others) = model_name(result), result["variants"]
        bases.setdefault(model, []).append(reference["step_us"]["median"])
        for variant in others:
            (site,) = {unit.partition(":")[2] for unit in variant["dropped_sites"]}
            cells.setdefault(site, {})[model] = saved(reference, variant)
            exact[site] = exact.get(site, True) and variant["bit_exact"]
    steps = [
        " to ".join(f"{each:,.1f}" for each in sorted({min(values), max(values)}))
        for values in bases.values()
    ]
    lines = [["step of the baseline", *steps, ""]]
    for site, found in cells.items():
        values = [found.get(model, "-") for model in bases]
        lines.append([f"`{site}`", *values, "yes" if exact[site] else "NO"])
    return table(["dropped in every phase", *bases, "bit-exact"], lines)


def record(folder: Path) -> list[str]:
    """Return the table of ways of recording."""
    results = read(folder.glob("record-*.json"), BENCH)
    results.sort(key=lambda each: RECORDS.index(each["recording"]["mode"]))
    lines = []
    for result in results:
        recording, (reference, *_) = result["recording"], result["variants"]
        step, share = reference["step_us"], recording["overhead_share"]
        lines.append(
            [
                recording["mode"],
                model_name(result),
                "-" if step is None else f"{step['median']:,.1f}",
                "-" if share is None else f"{100 * share:+.1f} %",
                f"{recording['dropped']:,}",
            ]
        )
    headers = ["recording", "model", "step of the baseline", "added to it", "spans dropped"]
    return table(headers, lines, left=2) if lines else [NOTHING]


def text(folder: Path) -> list[str]:
    """Return the table of greedy texts."""
    lines = []
    for result in read(folder.glob("greedy-text.json"), TEXT):
        for each in result["models"]:
            where, gap = each["first_difference"], each["gap"]
            lines.append(
                [
                    each["model"],
                    f"{each['tokens']}",
                    "none" if where is None else f"{where}",
                    "-" if gap is None else f"{gap:.1e}",
                    f"{each['largest_logit_difference']:.1e}",
                ]
            )
    headers = ["model", "tokens", "first difference", "gap there", "largest difference of a logit"]
    return table(headers, lines) if lines else [NOTHING]


def origin(folder: Path) -> list[str]:
    """Return the table of where the files come from."""
    files: dict[tuple[str, ...], list[str]] = {}
    for path in sorted(folder.rglob("*.json")):
        result = json.loads(path.read_text("utf-8"))
        if result.get("schema") not in (BENCH, TEXT):
            continue
        env = result["environment"]
        key = (
            result["device"]["name"],
            env["driver"],
            env["cuda"],
            env["commit"],
            env["time"][:10],
        )
        place = path.relative_to(folder)
        files.setdefault(key, []).append(
            f"`{place.parent}/*`" if len(place.parts) > 1 else f"`{place}`"
        )
    lines = [[", ".join(dict.fromkeys(names)), *key] for key, names in files.items()]
    headers = ["files", "device", "driver", "CUDA", "commit", "date"]
    return table(headers, lines, left=len(headers))


TABLES: Mapping[str, Callable[[Path], list[str]]] = {
    "steps": rows,
    "drops": drops,
    "record": record,
    "text": text,
    "origin": origin,
}
"""What can stand in a document."""


def fill(document: str, folder: Path) -> str:
    """Return a document with the table at each of its places made anew."""

    def make(place: re.Match[str]) -> str:
        return "\n".join([place[1], *TABLES[place[2]](folder), "<!-- end -->"])

    names = "|".join(TABLES)
    return re.sub(rf"(<!-- ({names}) -->)\n.*?<!-- end -->", make, document, flags=re.S)


def main(folder: str, *documents: str) -> None:
    """Write the tables of a folder into documents; without one, print that of steps."""
    if not documents:
        print("\n".join(rows(Path(folder))))
    for name in documents:
        path = Path(name)
        path.write_text(fill(path.read_text("utf-8"), Path(folder)), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
