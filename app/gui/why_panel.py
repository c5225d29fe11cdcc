"""All about the selected span: what it is, when it ran, and why its sync is needed or not."""

from __future__ import annotations

from html import escape

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QTextBrowser, QVBoxLayout, QWidget

from syncscope.app.gui.sites_view import verdict_text
from syncscope.app.gui.span_row import SpanRow
from syncscope.app.gui.time_text import duration_text
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import NOTHING, ViewState
from syncscope.app.report.site_table import SYNC_KINDS
from syncscope.sched_core.path import EDGES

NOTHING_SELECTED = "Select a span on the timeline or a row of the sites table."

Fact = tuple[str, str]


def facts(span: SpanRow, how: str) -> tuple[Fact, ...]:
    """Return what is known of a span as titles and values.

    Parameters
    ----------
    span : SpanRow
    how : str
        Where its times come from: ``simulated`` or ``measured``.
    """
    lines: list[Fact] = [
        ("site", span.site.name),
        ("kind", f"{span.kind}, {'host call' if span.role == 'call' else 'on the device'}"),
        ("step", f"{span.step:,} ({span.phase}), variant {span.variant or 'unknown'}"),
        ("lane", span.lane),
        ("begin", f"{span.begin_ns / 1000:,.3f} µs from the run's start"),
        ("duration", f"{duration_text(span.duration_ns)} ({how})"),
    ]
    if span.is_bounded:
        lines.append(("exactness", "bounded: it ran somewhere between these two times"))
    if span.is_lower_bound:
        lines.append(("exactness", "lower bound: it may have ended a little later"))
    if span.nbytes:
        lines.append(("bytes", f"{span.nbytes:,}"))
    if span.n_nodes:
        lines.append(("nodes", f"{span.n_nodes:,}"))
    if span.bandwidth is not None:
        least = "at least " if span.is_bounded else ""
        lines.append(("bandwidth", f"{least}{span.bandwidth / 1e9:,.2f} GB/s"))
    finding = span.finding
    if finding is not None:
        lines.append(("verdict", f"{verdict_text(finding.verdict)} ({finding.rules} rules)"))
        lines.append(("alone safe", "yes" if finding.alone_safe else "no"))
        for title, items in (
            ("covered by", finding.covered_by),
            ("could be replaced by", finding.alternatives),
        ):
            if items:
                lines.append((title, ", ".join(items)))
        if finding.weaker:
            lines.append(("weaker primitive", finding.weaker))
        if finding.hazard:
            where = f"{finding.buffer} [{finding.begin:,}, {finding.end:,})"
            lines.append(("without it", f"{finding.hazard} on {where}"))
    return tuple(lines)


def path_lines(span: SpanRow) -> tuple[str, ...]:
    """Return the path of the reason, a line per edge, each with the rule that makes it."""
    finding = span.finding
    if finding is None or not finding.path:
        return ()
    nodes = [f"step {node.step} {node.site} ({node.role})" for node in finding.path]
    return tuple(
        f"{one} → {two}: {EDGES.get(edge, edge)}"
        for one, two, edge in zip(nodes, nodes[1:], finding.edges, strict=False)
    )


def plain_text(span: SpanRow, how: str) -> str:
    """Return all of it as text, for the clipboard."""
    lines = [f"{title}: {value}" for title, value in facts(span, how)]
    lines += [span.reason] if span.reason else []
    return "\n".join([*lines, *path_lines(span)])


def html_text(span: SpanRow, how: str, faint: str) -> str:
    """Return all of it as rich text."""
    rows = "".join(
        f"<tr><td style='color:{faint}; padding-right:10px'>{escape(title)}</td>"
        f"<td>{escape(value)}</td></tr>"
        for title, value in facts(span, how)
    )
    reason = f"<p><b>{escape(span.reason)}</b></p>" if span.reason else ""
    path = "".join(f"<li>{escape(line)}</li>" for line in path_lines(span))
    return f"{reason}<table>{rows}</table>" + (f"<ol>{path}</ol>" if path else "")


class WhyPanel(QWidget):
    """Shows the selected span; its reason's path is handed to the timeline."""

    def __init__(
        self, state: ViewState, variant: VariantState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("why_panel")
        self._view, self._variant = state, variant
        self.text = QTextBrowser()
        self.text.setObjectName("why_text")
        self.text.setAccessibleName("Why")
        self.text.setOpenLinks(False)
        self.copy = QPushButton("Copy")
        self.copy.setObjectName("why_copy")
        self.copy.setAccessibleName("Copy as text")
        self.remove = QPushButton("Remove this sync")
        self.remove.setObjectName("why_remove")
        self.title = QLabel("nothing selected")
        self.title.setObjectName("why_title")
        top = QHBoxLayout()
        top.addWidget(self.title, 1)
        top.addWidget(self.remove)
        top.addWidget(self.copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(4, 4, 4, 4)
        column.addLayout(top)
        column.addWidget(self.text, 1)
        state.selection_changed.connect(lambda _: self.refresh())
        state.recording_changed.connect(self.refresh)
        state.theme_changed.connect(self.refresh)
        variant.changed.connect(self._show_buttons)
        self.copy.clicked.connect(self._copy)
        self.remove.clicked.connect(self._remove)
        self._span: SpanRow | None = None
        self.refresh()

    def refresh(self) -> None:
        """Show the selected span."""
        recording, ref = self._view.recording, self._view.selection
        there = recording is not None and ref != NOTHING and recording.has(ref)
        self._span = recording.span(ref) if there else None
        self._show_buttons()
        if self._span is None:
            gone = ref != NOTHING and recording is not None
            self.title.setText("no longer in memory" if gone else "nothing selected")
            self.text.setPlainText(NOTHING_SELECTED)
            self._view.set_path(())
            return
        self.title.setText(self._span.site.name)
        self.text.setHtml(html_text(self._span, self._how(), self._view.theme.faint))
        finding = self._span.finding
        path = () if finding is None else recording.rows.path_refs(finding, self._span.step)
        self._view.set_path(tuple(path))

    def _how(self) -> str:
        return "simulated" if self._view.recording.header.get("simulated") else "measured"

    def _place(self) -> str:
        span = self._span
        if span is None or span.kind not in SYNC_KINDS or span.finding is None:
            return ""
        return f"{span.phase}:{span.site.name}"

    def _show_buttons(self) -> None:
        place = self._place()
        self.copy.setEnabled(self._span is not None)
        self.remove.setVisible(bool(place))
        dropped = place in self._variant.drop
        self.remove.setText("Put this sync back" if dropped else "Remove this sync")

    def _remove(self) -> None:
        if self._place():
            self._variant.toggle_drop(self._place())

    def _copy(self) -> None:
        if self._span is not None:
            QGuiApplication.clipboard().setText(plain_text(self._span, self._how()))
