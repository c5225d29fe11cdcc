"""The output panel as a user sees it: text as it comes, where it differs, what harm was seen."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCharFormat
from PySide6.QtTest import QTest

from helpers.panels import (
    CLEAN,
    RACY,
    cells,
    cut_labels,
    has_colour,
    live_run,
    picture,
    recorded,
    toggled_run,
    without_name,
)
from syncscope.app.gui.output_text import visible
from syncscope.app.gui.output_view import OutputView
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.theme import DARK, LIGHT, apply_theme
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_state import ViewState
from syncscope.app.live_batch import LiveBatch, no_spans

HEADER = {"simulated": True, "base_ns": 0, "device": {}}


@pytest.fixture
def view(qtbot, qapp):
    apply_theme(qapp, DARK)
    view = OutputView(ViewState(), VariantState())
    view.state = view._view
    qtbot.addWidget(view)
    view.resize(900, 220)
    with qtbot.waitExposed(view):
        view.show()
    return view


def news(**fields):
    return LiveBatch("running", no_spans(), **fields)


def show(view, *batches):
    """Show a recording of batches."""
    recording = Recording(HEADER)
    for each in batches:
        recording.extend(each)
    view.state.set_recording(recording)
    return recording


def grow(view, **fields):
    """Let the recording that is shown grow, and the panel look at it."""
    view.state.recording.extend(news(**fields))
    view.state.grow()
    QTest.qWait(80)


def marks(view):
    """Return place, text and underline of each mark."""
    return [
        (
            each.cursor.selectionStart(),
            each.cursor.selectedText(),
            each.format.underlineStyle(),
        )
        for each in view.text.extraSelections()
    ]


def test_text_is_appended_as_it_comes_and_never_set_anew(view, qtbot):
    header, batches = toggled_run()
    recording = Recording(header)
    view.state.set_recording(recording)
    edits = []
    view.text.document().contentsChange.connect(lambda *each: edits.append(each))
    for each in batches:
        recording.extend(each)
        view.state.grow()
        text = visible(recording.text)
        qtbot.waitUntil(lambda text=text: view.text.toPlainText() == text)
    assert len(edits) > 2
    assert all(removed == 0 for _, removed, _ in edits)
    assert sum(added for _, _, added in edits) == len(recording.text)
    assert view.count.text() == "120 tokens"


def test_text_that_comes_while_the_user_reads_does_not_scroll_away(view):
    show(view, news(token_ids=(1,), text="\n" * 200))
    bar = view.text.verticalScrollBar()
    bar.setValue(7)
    grow(view, token_ids=(2,), text="more\n")
    assert bar.value() == 7
    bar.setValue(bar.maximum())
    grow(view, token_ids=(3,), text="more\n" * 5)
    assert bar.value() == bar.maximum()


def test_another_sequence_begins_with_empty_text_and_is_numbered(view):
    show(view, news(token_ids=(1, 2), text="ab"))
    grow(view, token_ids=(9,), text="z", sequence=1)
    assert view.text.toPlainText() == "z"
    assert view.count.text() == "1 token, sequence 2"


def test_a_run_of_the_baseline_is_bit_exact(view):
    view.state.set_recording(recorded(live_run(CLEAN)))
    assert view.verdict.text() == "✓ bit-exact with baseline"
    assert marks(view) == []
    assert view.watermark.isHidden() and view.trouble.isHidden() and view.harm_side.isHidden()


def test_the_first_differing_token_is_marked_in_the_text_and_named(view):
    recording = recorded(live_run(RACY))
    view.state.set_recording(recording)
    token = recording.first_difference
    assert recording.bit_exact is False and token is not None
    before = bytes(recording.token_ids[:token]).decode()
    ((*found, _),) = [each for each in marks(view) if each[2] == wave()]
    assert tuple(found) == (len(before), visible(recording.text)[len(before)])
    assert f"differs from baseline at token {token}" in view.verdict.text()
    position = recording.logit_difference
    assert f"logits at position {position}, the prompt's counted" in view.verdict.text()


def wave():
    return QTextCharFormat.UnderlineStyle.WaveUnderline


def dash():
    return QTextCharFormat.UnderlineStyle.DashUnderline


def test_the_mark_has_the_colour_of_a_hazard_in_both_themes(view):
    view.state.set_recording(recorded(live_run(RACY)))
    for theme in (LIGHT, DARK):
        view.state.set_theme(theme)
        QTest.qWait(20)
        assert has_colour(picture(view.text), theme.hazard), theme.name
    show(view, news(token_ids=(97,), text="a", bit_exact=True))
    QTest.qWait(20)
    assert not has_colour(picture(view.text), DARK.hazard)


def test_the_token_drawn_from_the_first_differing_logits_is_marked_too(view):
    show(
        view,
        news(
            token_ids=(97, 98, 99),
            text="abc",
            logit_difference=7,
            logits_at=1,
            token_at=2,
            first_difference=2,
            bit_exact=False,
        ),
    )
    assert marks(view) == [(1, "b", dash()), (2, "c", wave())]


def test_marks_stand_right_behind_characters_that_count_twice_in_qt(view):
    show(
        view,
        news(token_ids=(1, 2, 3), text="🙂\r\nc", first_difference=2, token_at=3, bit_exact=False),
    )
    assert [text for _, text, _ in marks(view)] == ["c"]
    assert view.text.toPlainText().endswith("\nc")


def test_a_token_whose_text_is_not_there_yet_has_no_mark(view):
    show(view, news(token_ids=(1, 240), text="a", first_difference=1, token_at=1))
    assert marks(view) == []
    grow(view, token_ids=(159, 153, 130), text="🙂", first_difference=1, token_at=1)
    assert [place for place, _, _ in marks(view)] == [1]


@pytest.mark.parametrize(
    ("fields", "state", "words"),
    [
        ({"token_ids": (1,)}, "running", "? not known yet: it is compared when the sequence ends"),
        ({}, "running", "? not known yet"),
        ({}, "finished", "? not known: there is no output"),
        ({"token_ids": (1,)}, "stopped", "? not known: the sequence did not end"),
        ({"token_ids": (1,), "bit_exact": True}, "finished", "✓ bit-exact with baseline"),
        ({"logit_difference": 4, "bit_exact": False}, "finished", "✕ differs from baseline: same"),
        ({"first_difference": 1234}, "running", "✕ differs from baseline at token 1,234"),
    ],
)
def test_it_says_in_words_how_the_output_compares(view, fields, state, words):
    show(view, replace(news(**fields), state=state))
    assert view.verdict.text().startswith(words)


def test_stale_reads_and_wrong_writes_are_listed_and_counted(view):
    recording = recorded(live_run(RACY))
    view.state.set_recording(recording)
    expected = [["stale read", f"{step:,}", *rest] for step, *rest in recording.stale]
    expected += [["wrong last write", f"{step:,}", *rest] for step, *rest in recording.wrong]
    assert sorted(cells(view.table)) == sorted(expected) != []
    assert view.harm.text().startswith(f"{recording.counts[0]:,} stale reads, ")
    assert view.harm_side.isVisible()


def test_a_row_of_the_list_shows_its_step_on_the_timeline(view):
    recording = recorded(live_run(RACY))
    view.state.set_recording(recording)
    view.state.set_follow(True)
    view.table.setFocus()
    last = view.model.rowCount() - 1
    view.table.selectRow(last)
    QTest.keyClick(view.table, Qt.Key.Key_Return)
    row = recording.rows.log.steps[int(cells(view.table)[last][1])]
    t0, t1 = view.state.range
    assert t0 < row["begin_ns"] < row["end_ns"] < t1
    assert not view.state.follow


def test_a_hazard_run_is_marked_until_another_recording_is_shown(view):
    view.state.set_recording(recorded(live_run(RACY)))
    assert view.watermark.isVisible()
    assert view.watermark.text().startswith("HAZARD RUN")
    assert "output was harmed" in view.watermark.text()
    assert has_colour(picture(view.watermark), DARK.hazard, 200)
    view.state.set_recording(recorded(live_run(CLEAN)))
    assert view.watermark.isHidden()


def test_a_plan_with_hazards_is_marked_before_any_harm_is_seen(view):
    _, batches = live_run(RACY)
    change = next(each for batch in batches for each in batch.changes)
    show(view, news(changes=(change,)))
    assert "no harm seen so far" in view.watermark.text()


def test_why_a_run_ended_is_said_in_place(view):
    show(view, replace(news(fault="embd row 300 of 256"), state="failed"))
    assert view.trouble.isVisible()
    assert view.trouble.text() == "kernel fault: embd row 300 of 256"
    show(view, replace(news(failure="the device is gone"), state="failed"))
    assert view.trouble.text() == "the device is gone"


def test_everything_has_a_name_and_no_label_is_cut(view):
    assert without_name(view) == []
    for recording in (recorded(live_run(RACY)), recorded(live_run(CLEAN))):
        for size in ((900, 220), (640, 220), (1280, 300)):
            view.resize(*size)
            view.state.set_recording(recording)
            QTest.qWait(30)
            assert view.size().toTuple() == size
            assert cut_labels(view) == []


def test_a_hidden_panel_catches_up_when_it_is_shown(view):
    show(view, news(token_ids=(1,), text="a"))
    view.hide()
    grow(view, token_ids=(2,), text="b")
    assert view.text.toPlainText() == "a"
    view.show()
    assert view.text.toPlainText() == "ab"
