"""The text that a run generates, where it leaves the baseline's, and what harm was seen."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, Qt, QTimer
from PySide6.QtGui import QColor, QShowEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QSplitter,
    QTextEdit,
    QVBoxLayout,
    QWidget,
)

from syncscope.app.gui.output_text import (
    HARM_TITLES,
    count_text,
    harm_rows,
    harm_text,
    qt_length,
    trouble_text,
    verdict,
    visible,
    watermark_text,
)
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.step_range import step_range
from syncscope.app.gui.text_table import TextTable, TextTableView
from syncscope.app.gui.theme import ink
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState

REFRESH_MS = 50
NO_TEXT = "the text appears here while a run generates it"


class OutputView(QWidget):
    """Shows the output of the recording; a row of the table moves the timeline to its step."""

    def __init__(
        self, state: ViewState, variant: VariantState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("output_view")
        self._view = state
        self._shown: tuple[Recording | None, int, str] = (None, 0, "")
        self.verdict = self._label("output_verdict", "Compared with the baseline")
        self.count = self._label("output_count", "Tokens")
        self.watermark = self._label("output_watermark", "Hazards")
        self.trouble = self._label("output_trouble", "Why the run ended")
        self.harm = self._label("output_harm", "Harm seen")
        self.text = QPlainTextEdit(readOnly=True, placeholderText=NO_TEXT)
        self.text.setObjectName("output_text")
        self.text.setAccessibleName("Generated text")
        self.text.setUndoRedoEnabled(False)
        self.text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.model = TextTable(HARM_TITLES, (1,), parent=self)
        self.table = TextTableView("output_table", "Stale reads and wrong last writes")
        self.table.setModel(self.model)
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self.refresh)
        state.grown.connect(self._refresh_soon)
        state.recording_changed.connect(self.refresh)
        state.theme_changed.connect(self._show_theme)
        self.table.activated.connect(self._show_step)
        self._show_theme()

    def _label(self, name: str, title: str) -> QLabel:
        label = QLabel()
        label.setObjectName(name)
        label.setAccessibleName(title)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(True)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        return label

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.addWidget(self.verdict, 1)
        top.addWidget(self.count)
        self.count.setWordWrap(False)
        for i, width in enumerate((115, 46, 84, 140, 110)):
            self.table.setColumnWidth(i, width)
        self.harm_side = QWidget()
        column = QVBoxLayout(self.harm_side)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.harm)
        column.addWidget(self.table, 1)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.addWidget(self.text)
        self.splitter.addWidget(self.harm_side)
        self.splitter.setSizes([400, 500])
        outer = QVBoxLayout(self)
        outer.setContentsMargins(4, 4, 4, 4)
        outer.setSpacing(3)
        outer.addWidget(self.watermark)
        outer.addLayout(top)
        outer.addWidget(self.trouble)
        outer.addWidget(self.splitter, 1)

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came in while nothing was to be seen."""
        super().showEvent(event)
        self.refresh()

    def _refresh_soon(self) -> None:
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def refresh(self) -> None:
        """Show how things stand."""
        recording, theme = self._view.recording, self._view.theme
        found = verdict(recording)
        self.verdict.setText(found.text)
        colour = {True: theme.text, False: theme.hazard, None: theme.faint}[found.same]
        weight = "normal" if found.same is None else "bold"
        self.verdict.setStyleSheet(f"color: {colour}; font-weight: {weight};")
        self.count.setText(count_text(recording))
        for label, text in (
            (self.watermark, watermark_text(recording)),
            (self.trouble, trouble_text(recording)),
        ):
            label.setText(text)
            label.setVisible(bool(text))
        self.harm.setText(harm_text(recording))
        stale = () if recording is None else recording.stale
        wrong = () if recording is None else recording.wrong
        self.model.set_rows(harm_rows(stale, wrong, theme.hazard))
        self.harm_side.setVisible(bool(stale or wrong))
        self._show_text(recording)
        self._mark(recording)

    def _show_text(self, recording: Recording | None) -> None:
        """Append what is new; begin anew where another sequence or recording does."""
        text = "" if recording is None else recording.text
        sequence = 0 if recording is None else recording.sequence
        was, number, shown = self._shown
        goes_on = recording is was and sequence == number and text.startswith(shown)
        self._shown = (recording, sequence, text)
        if not goes_on:
            self.text.setPlainText(visible(text))
        elif len(text) > len(shown):
            bar = self.text.verticalScrollBar()
            at_end = bar.value() >= bar.maximum()
            cursor = QTextCursor(self.text.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(visible(text[len(shown) :]))
            if at_end:
                bar.setValue(bar.maximum())

    def _mark(self, recording: Recording | None) -> None:
        """Mark where tokens and logits first differ from the baseline's."""
        theme = self._view.theme
        marks = []
        if recording is not None:
            wave = QTextCharFormat.UnderlineStyle.WaveUnderline
            dash = QTextCharFormat.UnderlineStyle.DashUnderline
            for place, fill, line in (
                (recording.logits_at, "", dash),
                (recording.token_at, theme.hazard, wave),
            ):
                if place is not None and place < len(recording.text):
                    place = qt_length(recording.text[:place])
                    marks.append(self._selection(place, fill, line))
        self.text.setExtraSelections(marks)

    def _selection(
        self, place: int, fill: str, line: QTextCharFormat.UnderlineStyle
    ) -> QTextEdit.ExtraSelection:
        mark = QTextEdit.ExtraSelection()
        cursor = QTextCursor(self.text.document())
        cursor.setPosition(place)
        cursor.movePosition(
            QTextCursor.MoveOperation.NextCharacter, QTextCursor.MoveMode.KeepAnchor
        )
        look = QTextCharFormat()
        look.setUnderlineStyle(line)
        look.setUnderlineColor(QColor(self._view.theme.text))
        if fill:
            look.setBackground(QColor(fill))
            look.setForeground(QColor(ink(fill)))
        mark.cursor, mark.format = cursor, look
        return mark

    def _show_theme(self) -> None:
        theme = self._view.theme
        self.watermark.setStyleSheet(
            f"background: {theme.hazard}; color: {ink(theme.hazard)}; font-weight: bold; "
            "padding: 2px 6px;"
        )
        self.trouble.setStyleSheet(f"color: {theme.hazard}; font-weight: bold;")
        self.harm.setStyleSheet(f"color: {theme.faint};")
        self.refresh()

    def _show_step(self, index: QModelIndex) -> None:
        """Show the step of a row on the timeline."""
        step = self.model.rows[index.row()][1].key
        window = step_range(self._view.recording, step)
        if window is not None:
            self._view.set_follow(False)
            self._view.set_range(*window, "harm")
