"""The report as GitHub Markdown, for issues and pull requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate

from syncscope.app.report.figures import (
    COMPARISON,
    SITES,
    comparison_rows,
    describe_model,
    describe_recording,
    describe_sampling,
    figures_are,
    remarks,
    same_text_as,
    site_cells,
    visible,
)
from syncscope.app.report.site_table import group_rows
from syncscope.app.results import BenchResult

_SPECIAL = str.maketrans({each: f"\\{each}" for each in "\\`*<|"})


def render_markdown(result: BenchResult) -> str:
    """Return the report of a run."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: BenchResult) -> Iterator[str]:
    source = figures_are(result.device)
    version = result.environment.get("version") or ""
    yield f"# Syncscope {version}".rstrip()
    yield ""
    yield f"- figures: **{_escape(source)}**, {result.rules} rules"
    yield f"- model: {_escape(describe_model(result.model))}"
    if not result.sampling.greedy:
        yield f"- sampling: {_escape(describe_sampling(result.sampling))}"
    yield f"- recording: {_escape(describe_recording(result))}"
    if result.interrupted:
        yield "- **interrupted**: the figures are of what ran until then"
    yield from ("", "prompt:", "", *_fenced(result.prompt))
    yield from ("", f"## Decode steps in steady state ({_escape(source)})", "")
    yield _table(COMPARISON, comparison_rows(result))
    for index, variant in enumerate(result.variants):
        yield from ("", f"## {_escape(variant.id)}", "")
        for phase, letters in variant.metrics.patterns.items():
            yield f"- {_escape(phase)}: `{letters}`"
        for label, text in remarks(variant):
            yield f"- {label}: {_escape(text)}" if label else f"  - {_escape(text)}"
        same = same_text_as(result.variants, index)
        if same is not None and variant.text is not None:
            yield f"- text: same as {_escape(same)}"
        elif variant.text is not None:
            yield from ("", *_fenced(variant.text))
        rows = group_rows(row for row in result.sites if row.variant == variant.id)
        if rows:
            yield from ("", f"Mean us per step ({_escape(source)}):", "")
            yield _table(SITES, map(site_cells, rows))


def _escape(text: str) -> str:
    return visible(text).replace("\n", " ").translate(_SPECIAL)


def _fenced(text: str) -> list[str]:
    """Return a code block whose fence the text cannot close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}text", visible(text), fence]


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [[_escape(cell) for cell in row] for row in rows]
    return tabulate(cells, headers, tablefmt="github", disable_numparse=True)
