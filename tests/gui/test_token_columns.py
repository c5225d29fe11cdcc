"""However many tokens there are, few columns are drawn, and they are the tokens'."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from syncscope.app.gui.latency_model import TOKEN
from syncscope.app.gui.token_columns import n_beyond, token_columns, top_us


def tokens_of(steps, periods):
    tokens = np.zeros(len(steps), TOKEN)
    tokens["step"], tokens["end_ns"] = steps, periods
    tokens["busy_ns"] = tokens["end_ns"] // 2
    tokens["blocked_ns"] = tokens["end_ns"] // 4
    return tokens


STEPS = st.lists(st.integers(0, 3000), min_size=1, max_size=80, unique=True).map(sorted)


@given(STEPS, st.integers(2, 40), st.integers(0, 1000))
@settings(deadline=None)
def test_each_column_is_the_mean_and_the_longest_of_its_tokens(steps, most, seed):
    periods = np.random.default_rng(seed).integers(1000, 90_000, len(steps))
    found = token_columns(tokens_of(steps, periods), steps[0], steps[-1], most)
    n = len(found.edges) - 1
    assert 1 <= n <= most
    assert np.all(np.diff(found.edges) == found.steps_per_column)
    for i in range(n):
        inside = (found.edges[i] <= np.array(steps)) & (np.array(steps) < found.edges[i + 1])
        mine = periods[inside]
        if len(mine):
            assert np.isclose(found.period_us[i], mine.mean() / 1000)
            assert np.isclose(found.longest_us[i], mine.max() / 1000)
            assert np.isclose(found.busy_us[i], (mine // 2).mean() / 1000)
            assert np.isclose(found.blocked_us[i], (mine // 4).mean() / 1000)
        else:
            assert np.isnan(found.period_us[i]) and np.isnan(found.longest_us[i])


@given(STEPS, st.integers(0, 3000), st.integers(0, 3000))
@settings(deadline=None)
def test_only_what_is_shown_counts(steps, one, other):
    first, last = sorted((one, other))
    found = token_columns(tokens_of(steps, np.full(len(steps), 1000)), first, last, 4000)
    assert found.steps_per_column == 1
    shown = {step for step in steps if first <= step <= last}
    assert set(found.edges[:-1][~np.isnan(found.period_us)].astype(int)) == shown


def test_columns_stay_what_they_are_while_a_run_grows():
    tokens = tokens_of(np.arange(200), np.arange(200) + 1000)
    before = token_columns(tokens[:170], 3, 169, 64)
    after = token_columns(tokens[:176], 3, 175, 64)
    assert before.steps_per_column == after.steps_per_column == 4
    assert before.period_us[:-1].tolist() == after.period_us[: len(before.period_us) - 1].tolist()


def test_no_token_is_no_column_with_a_value():
    found = token_columns(np.zeros(0, TOKEN), 0, 1, 10)
    assert np.isnan(found.period_us).all()
    assert top_us(found, 0.0) == 1.0
    assert n_beyond(found, 1.0) == 0


@given(st.lists(st.integers(1000, 2000), min_size=60, max_size=200), st.integers(4, 900))
@settings(deadline=None)
def test_the_top_is_above_usual_tokens_and_not_above_one_that_is_far_beyond(periods, times):
    periods[7] = 2000 * times
    found = token_columns(tokens_of(np.arange(len(periods)), periods), 0, len(periods) - 1, 500)
    top = top_us(found, 0.0)
    assert max(*periods[:7], *periods[8:]) / 1000 <= top < periods[7] / 1000
    assert n_beyond(found, top) == 1


def test_the_top_is_the_longest_where_none_is_far_beyond():
    found = token_columns(tokens_of(np.arange(3), [1000, 1500, 1900]), 0, 2, 10)
    assert top_us(found, 0.0) == 1.9
    assert top_us(found, 5.0) == 5.0
