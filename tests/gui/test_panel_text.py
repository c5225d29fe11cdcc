"""Words and tables of the panels, without a window."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtGui import QTextDocument

from helpers.panels import CLEAN, live_run, recorded, toggled_run
from helpers.recordings import mid_run, whole
from helpers.traces import decode_run
from syncscope.app.gui.compare_model import StepDifference, align
from syncscope.app.gui.compare_text import alignment_text, run_name, step_text
from syncscope.app.gui.latency_model import Figures
from syncscope.app.gui.latency_text import (
    change_labels,
    figure_rows,
    figure_titles,
    segments,
    signed_us,
    summary_text,
)
from syncscope.app.gui.origin import origin_text, origin_word
from syncscope.app.gui.output_text import harm_rows, qt_length, visible
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.split_bar import bars
from syncscope.app.gui.step_range import step_range
from syncscope.app.gui.text_table import Cell, TextTable, TextTableView
from syncscope.app.gui.theme import DARK
from syncscope.app.live_batch import LiveBatch

SIMULATED = {"simulated": True, "device": {"profile": "h200 (from data sheets)"}}
MEASURED = {"simulated": False, "device": {"name": "NVIDIA H200", "profile": None}}
FIGURES = Figures(100, 50_000.0, 60_000.0, 20_000.0, 30_000.0, 20_000.0, 0.4)


def test_origins_name_the_profile_or_the_device():
    assert origin_text(SIMULATED) == "simulated (h200)"
    assert origin_text(MEASURED) == "measured (NVIDIA H200)"
    assert origin_text({"simulated": True}) == origin_word({"simulated": True}) == "simulated"


def test_segments_are_the_newest_plans_with_steady_tokens():
    recording = recorded(toggled_run())
    step = recording.changes[1].step
    one, two = segments(recording)
    assert (one.variant, one.step, one.end) == ("baseline", 0, step)
    assert (two.variant, two.step, two.end) == ("all", step, recording.n_steps)
    assert (one.figures, two.figures) == tuple(recording.latency.figures(i) for i in (0, 1))
    assert segments(recording, 1) == (two,)


def test_a_plan_without_steady_tokens_is_no_segment():
    recording = whole(*mid_run())
    found = segments(recording)
    assert [each.change for each in found] == [
        i for i in range(3) if recording.latency.figures(i) is not None
    ][-2:]


def test_a_recording_without_plans_is_one_segment():
    trace = decode_run(range(1000, 41_000, 1000))
    recording = Recording(SIMULATED)
    recording.extend(
        LiveBatch("finished", trace.spans, trace.sites, trace.phases, lanes=trace.lanes)
    )
    (only,) = segments(recording)
    assert (only.change, only.figures) == (None, recording.latency.figures())
    assert figure_titles((only,), SIMULATED) == ("µs, simulated", "", "all tokens @0")
    assert [row[1].text for row in figure_rows((only,))] == [""] * 6


def test_a_run_without_steady_tokens_says_so():
    assert summary_text((), {}) == "nothing recorded yet"
    assert summary_text((), MEASURED) == "no steady token yet (measured (NVIDIA H200))"
    assert {row[2].text for row in figure_rows(())} == {"–"}


@given(st.floats(-1e9, 1e9))
@settings(deadline=None)
def test_a_difference_has_a_sign_unless_nothing_is_to_be_seen(ns):
    text = signed_us(ns)
    value = float(text.replace("−", "-").replace(",", ""))
    assert value == pytest.approx(ns / 1000, abs=0.0051)
    assert text[0] in "+−" or value == 0


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(5, 200)), max_size=20))
@settings(deadline=None)
def test_labels_do_not_overlap_and_the_newest_is_there(labels):
    places = sorted(place for place, _ in labels)
    widths = [width for _, width in labels]
    kept = change_labels(places, widths)
    assert list(kept) == sorted(kept)
    for one, other in pairwise(kept):
        assert places[one] + widths[one] < places[other]
    if labels:
        assert kept[-1] == len(labels) - 1
    for i in set(range(len(places))) - set(kept):
        after = min(places[each] for each in kept if each > i)
        assert places[i] + widths[i] + 6 > after


def test_bars_are_whole_and_their_parts_say_their_times():
    (_, device), (_, host) = bars(FIGURES, DARK)
    assert [each.text for each in device] == ["busy 30.00 µs, 60%", "idle 20.00 µs, 40%"]
    assert [each.text for each in host] == ["blocked 20.00 µs, 40%", "not blocked 30.00 µs, 60%"]
    assert math.isclose(sum(each.share for each in device), 1.0)
    assert math.isclose(sum(each.share for each in host), 1.0)
    late = Figures(1, 10.0, 10.0, 90.0, 10.0, 0.0, 0.0)
    assert [each.share for each in bars(late, DARK)[1][1]] == [1.0, 0.0]


def test_the_window_of_a_step_holds_all_of_it_and_little_else():
    recording = recorded(live_run(CLEAN))
    spans = recording.spans
    for step in (0, 7):
        t0, t1 = step_range(recording, step)
        mine = spans[spans["step"] == step]
        begin, end = int(mine["begin_ns"].min()), int(mine["end_ns"].max())
        assert t0 < begin < end < t1
        assert t1 - t0 <= 1.11 * (end - begin)
    assert step_range(recording, 10_000) is None


def test_times_of_two_runs_are_compared_in_words():
    slow = Figures(9, 90_000.0, 0, 0, 0, 0, 0)
    text = step_text(StepDifference(slow, FIGURES), (SIMULATED, SIMULATED))
    assert text == (
        "median per token  first: 90.00 µs (simulated),  second: 50.00 µs (simulated)"
        "  ·  difference −40.00 µs, 1.80× as fast"
    )
    text = step_text(StepDifference(None, FIGURES), (SIMULATED, MEASURED))
    assert text.endswith("first: no steady token (simulated),  second: 50.00 µs (measured)")


def test_what_stands_above_what_is_said_in_words():
    phases = ["decode"] * 3, ["decode"] * 2
    found = align(phases, (100 * np.arange(3), 100 * np.arange(2)), (10, 0))
    assert alignment_text(found, 11) == "step 11 of the first above step 1 of the second"
    assert "no partner" in alignment_text(found, 12)
    empty = align(([], []), (np.zeros(0, np.int64), np.zeros(0, np.int64)))
    assert alignment_text(empty, 0) == "not aligned: no step in common"


def test_a_run_is_called_by_its_variants():
    assert run_name(recorded(toggled_run())) == "baseline, all; simulated (h200)"
    assert run_name(Recording({**MEASURED, "variant": {"id": "aaag"}})) == (
        "aaag; measured (NVIDIA H200)"
    )


@given(st.text(max_size=40))
@settings(deadline=None)
def test_text_keeps_its_places_and_qt_shows_it_as_it_is(text):
    shown = visible(text)
    assert len(shown) == len(text)
    document = QTextDocument()
    document.setPlainText(shown)
    assert document.characterCount() - 1 == qt_length(text)


def test_harm_is_listed_by_step():
    rows = harm_rows([(9, "decode", "a", "x")], [(3, "prompt", "b", "y")], "#ff0000")
    assert [[cell.text for cell in row] for row in rows] == [
        ["wrong last write", "3", "prompt", "b", "y"],
        ["stale read", "9", "decode", "a", "x"],
    ]


def test_a_table_keeps_its_selection_while_only_texts_change(qtbot):
    model = TextTable(("a", "b"), (1,))
    table = TextTableView("table", "A table")
    qtbot.addWidget(table)
    table.setModel(model)
    model.set_rows([(Cell("x"), Cell("1")), (Cell("y"), Cell("2"))])
    table.selectRow(1)
    model.set_rows([(Cell("x"), Cell("3")), (Cell("y"), Cell("4"))])
    assert table.copy_text() == "a\tb\ny\t4"
    model.set_rows([(Cell("z"), Cell("5"))])
    assert table.copy_text() == "a\tb\nz\t5"
