"""The report that the command prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate

from syncscope.app.report.figures import (
    COMPARISON,
    DRIVER_CALLS,
    SITES,
    comparison_rows,
    describe_device,
    describe_model,
    describe_recording,
    describe_sampling,
    driver_call_rows,
    figures_are,
    remarks,
    same_text_as,
    site_cells,
    visible,
)
from syncscope.app.report.site_table import SYNC_KINDS, group_rows
from syncscope.app.results import BenchResult, SiteRow, VariantResult

WIDTH = 128
_LABEL = 11

WHY = "why (verdicts hold for prompts of any number of micro-batches, whatever this run had)"


def render_text(result: BenchResult, quiet: bool = False, verbose: bool = False) -> str:
    """Return the report of a run.

    Parameters
    ----------
    result : BenchResult
    quiet : bool
        Only the comparison of the variants.
    verbose : bool
        Every site by itself, also copies, launches and host work; calls of the driver where they
        are recorded.
    """
    source = figures_are(result.device)
    parts: list[str] = []
    if not quiet:
        parts.append("\n".join(_head(result, source)))
        parts += ["\n".join(_variant(result, i)) for i in range(len(result.variants))]
    parts.append(f"Decode steps in steady state ({source})\n{_comparison(result)}")
    if not quiet:
        parts += [
            _sites(result, variant, source, verbose)
            for variant in result.variants
            if any(row.variant == variant.id for row in result.sites)
        ]
        calls = driver_call_rows(result) if verbose else []
        if calls:
            table = _table(DRIVER_CALLS, calls, right=(2, 3, 4, 5), wrapped=0)
            parts.append(f"Driver calls of decode steps ({source})\n{table}")
        parts.append(f"recording: {describe_recording(result)}")
    if result.interrupted:
        parts.append("interrupted: the figures are of what ran until then")
    return "\n\n".join(parts)


def _head(result: BenchResult, source: str) -> Iterator[str]:
    version = result.environment.get("version") or ""
    yield f"Syncscope {version}".rstrip() + f", {source}, {result.rules} rules"
    yield from _labelled("device", describe_device(result.device))
    yield from _labelled("model", describe_model(result.model))
    if not result.sampling.greedy:
        yield from _labelled("sampling", describe_sampling(result.sampling))
    yield from _labelled("prompt", result.prompt)


def _variant(result: BenchResult, index: int) -> Iterator[str]:
    variant = result.variants[index]
    yield visible(variant.id)
    same = same_text_as(result.variants, index)
    if variant.text is None:
        yield from _labelled("  text", "nothing was computed")
    elif same is not None:
        yield from _labelled("  text", f"same text as {same}")
    else:
        yield from _labelled("  text", variant.text)
    for number, (phase, letters) in enumerate(variant.metrics.patterns.items()):
        yield from _labelled("" if number else "  pattern", f"{phase:<12} {letters}")
    for label, text in remarks(variant):
        yield from _labelled(f"  {label}" if label else "", text)


def _labelled(label: str, text: str) -> Iterator[str]:
    """Yield lines of a text beside its label, wrapped, with its own line breaks kept."""
    lines: list[str] = []
    for line in visible(text).split("\n"):
        lines += textwrap.wrap(line, WIDTH - _LABEL, break_on_hyphens=False) or [""]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines):
        yield f"{label if not number else '':<{_LABEL}}{line}".rstrip()


def _table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int], wrapped: int
) -> str:
    """Return a table in as little width as it takes; one column is wrapped to stay in `WIDTH`."""
    lines = [list(headers), *([visible(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    others = sum(widths) - widths[wrapped] + 2 * (len(widths) - 1)
    widths[wrapped] = min(widths[wrapped], max(16, WIDTH - others))
    for line in lines:
        line[wrapped] = "\n".join(
            textwrap.wrap(line[wrapped], widths[wrapped], break_long_words=False)
        )
    lines.insert(1, ["-" * width for width in widths])
    align = ["right" if i in right else "left" for i in range(len(headers))]
    table = tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=align)
    return "\n".join(line.rstrip() for line in table.splitlines())


def _comparison(result: BenchResult) -> str:
    return _table(COMPARISON, comparison_rows(result), right=(2, 3, 4, 5, 6, 7, 9, 10), wrapped=0)


def _sites(result: BenchResult, variant: VariantResult, source: str, verbose: bool) -> str:
    rows = [row for row in result.sites if row.variant == variant.id]
    if not verbose:
        rows = list(group_rows(row for row in rows if row.kind in SYNC_KINDS))
    what = "every site" if verbose else "where the host waits (-v: every site)"
    cells = [(*site_cells(row)[:-1], _short_reason(row)) for row in rows]
    table = _table((*SITES[:-1], "covered by"), cells, right=(3, 4), wrapped=7)
    title = f"{visible(variant.id)}: {what}; mean us per step ({source})"
    reasons = "".join(
        f"\n{textwrap.fill(f'{row.phase}: {row.why}', WIDTH, subsequent_indent='    ')}"
        for row in rows
        if row.verdict not in ("", "redundant") and row.why
    )
    return f"{textwrap.fill(title, WIDTH)}\n{table}" + (f"\n{WHY}{reasons}" if reasons else "")


def _short_reason(row: SiteRow) -> str:
    """Say what covers a site, or what stands in its row; the reasons of kept ones follow below."""
    if row.verdict in ("", "redundant"):
        return ", ".join(row.covered_by) or row.why
    return ""
