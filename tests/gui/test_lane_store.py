"""The spans of a row: what a window shows of them, which one is at a time, how busy a range is."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncscope.app.gui.lane_store import N_CATEGORIES, LaneStore

BLACK = 0xFF000000
BLOCK = 4096


@dataclass
class Spans:
    begin: np.ndarray
    end: np.ndarray
    category: np.ndarray
    name: np.ndarray = field(init=False)
    flags: np.ndarray = field(init=False)
    ref: np.ndarray = field(init=False)

    def __post_init__(self):
        n = len(self.begin)
        self.name = np.arange(n, dtype=np.uint32) % 1000
        self.flags = (np.arange(n) % 3).astype(np.uint8)
        self.ref = np.arange(n, dtype=np.int64) * 3 + 5

    def part(self, begin: int, end: int) -> tuple[np.ndarray, ...]:
        return tuple(
            each[begin:end]
            for each in (self.begin, self.end, self.category, self.name, self.flags, self.ref)
        )


def spans(pairs, categories=None) -> Spans:
    begin = np.array([each[0] for each in pairs], np.int64)
    end = np.array([each[1] for each in pairs], np.int64)
    kinds = np.zeros(len(pairs)) if categories is None else np.array(categories)
    return Spans(begin, end, kinds.astype(np.uint8))


def random_spans(n: int, seed: int, categories: int = 3, scale: float = 7.0) -> Spans:
    random = np.random.default_rng(seed)
    gap = random.lognormal(scale, 1.3, n).astype(np.int64)
    width = random.lognormal(scale, 1.5, n).astype(np.int64)
    width[random.random(n) < 0.02] = 0
    end = np.cumsum(gap + width)
    return Spans(end - width, end, random.integers(0, categories, n).astype(np.uint8))


def filled(all_spans: Spans, capacity_log2: int = 17, batch: int = 1000) -> LaneStore:
    store = LaneStore(capacity_log2)
    for begin in range(0, len(all_spans.begin), batch):
        store.append(*all_spans.part(begin, begin + batch))
    return store


RGB = np.zeros((N_CATEGORIES, 3), np.uint8)
RGB[:3] = np.diag([255, 255, 255])
"""Categories 0, 1 and 2 in a colour channel each, so that a pixel says how they cover it."""


def painted(store, t0, t1, width, *, palette=RGB, priority=0, background=BLACK, label_px=10**6):
    row, wide = np.zeros(width, np.uint32), np.zeros((64, 3), np.int64)
    n = store.paint(t0, t1, width, palette, priority, row, wide, label_px, background)
    return row, wide[:n].tolist()


def channels(row: np.ndarray) -> np.ndarray:
    assert np.all(row >> 24 == 0xFF), "every pixel is opaque"
    return np.stack([(row >> shift) & 255 for shift in (16, 8, 0)], axis=1).astype(int)


def coverage(all_spans: Spans, t0: int, t1: int, width: int) -> np.ndarray:
    """Share of each column that each category covers, span by span; an instant counts as 1 ns."""
    edges = t0 + (t1 - t0) * np.arange(width + 1) / width
    out = np.zeros((width, N_CATEGORIES))
    end = np.maximum(all_spans.end, all_spans.begin + 1)
    for category in range(N_CATEGORIES):
        mine = all_spans.category == category
        for x in range(width):
            over = np.minimum(end[mine], edges[x + 1]) - np.maximum(all_spans.begin[mine], edges[x])
            out[x, category] = over[over > 0].sum()
    return out * width / (t1 - t0)


def shares(store, t0, t1, width) -> np.ndarray:
    return channels(painted(store, t0, t1, width)[0]) / 255


@pytest.mark.parametrize("seed", range(6))
def test_columns_show_what_covers_them(seed):
    data = random_spans(3000, seed)
    store = filled(data)
    random = np.random.default_rng(seed)
    for _ in range(8):
        t0 = int(random.integers(0, data.end[-1]))
        t1 = t0 + int(10 ** random.uniform(2.5, 7))
        exact = coverage(data, t0, t1, 120)[:, :3]
        total = exact.sum(axis=1)
        clear = (total > 0.3) & (total <= 1)  # no least share, no overfull column of instants
        error = np.abs(shares(store, t0, t1, 120) - exact)[clear]
        assert error.max(initial=0) < 0.01
        assert np.all((shares(store, t0, t1, 120).sum(axis=1) > 0) >= (total > 0.01))


@pytest.mark.parametrize(("n", "width"), [(60_000, 40), (60_000, 11), (120_000, 7)])
def test_columns_of_very_many_spans_are_near_what_covers_them(n, width):
    data = random_spans(n, seed=n + width, scale=4.0)
    store = filled(data)
    t0, t1 = int(data.begin[3]), int(data.end[-7])
    error = shares(store, t0, t1, width) - coverage(data, t0, t1, width)[:, :3]
    assert np.abs(error).max() < 0.02


def test_a_gap_shows_the_background():
    store = filled(spans([(100, 200), (300, 400)]))
    row, _ = painted(store, 0, 500, 50, background=0xFF14181D)
    assert np.all(row[:10] == 0xFF14181D) and np.all(row[20:30] == 0xFF14181D)
    assert np.all(row[10:20] == 0xFFFF0000) and np.all(row[30:40] == 0xFFFF0000)
    assert np.all(row[40:] == 0xFF14181D)


def test_a_span_that_began_before_the_window_counts_with_what_is_inside():
    store = filled(spans([(0, 1003), (2000, 2001)]))
    assert shares(store, 1000, 2000, 100)[:, 0].tolist() == pytest.approx(
        [0.3] + [0] * 99, abs=0.003
    )


def test_a_span_that_ends_after_the_window_counts_with_what_is_inside():
    store = filled(spans([(0, 1), (996, 5000)]))
    assert shares(store, 500, 1000, 50)[:, 0].tolist() == pytest.approx([0] * 49 + [0.4], abs=0.003)


def test_a_window_within_one_span_is_full():
    store = filled(spans([(0, 10**9)]))
    row, wide = painted(store, 10**6, 10**6 + 20, 300, label_px=50)
    assert np.all(row == 0xFFFF0000)
    assert wide == [[0, 0, 300]]


def test_a_span_that_ends_where_the_window_begins_is_not_shown():
    store = filled(spans([(0, 100), (300, 310)]))
    row, _ = painted(store, 100, 300, 20)
    assert np.all(row == BLACK)


def test_a_lone_instant_is_seen_at_every_zoom():
    store = filled(spans([(5_000, 5_000)]))
    for t1 in (10_000, 10**6, 10**9, 10**12):
        level = channels(painted(store, 0, t1, 100)[0])[:, 0]
        assert np.flatnonzero(level).tolist() == [5_000 * 100 // t1]
        assert level.max() >= 60


def test_very_many_instants_are_seen():
    store = filled(spans([(5_000 + k, 5_000 + k) for k in range(640)]))
    level = channels(painted(store, 0, 10**9, 100)[0])[:, 0]
    assert np.flatnonzero(level).tolist() == [0]


@pytest.mark.parametrize("n", [16, 32, 640, 1024, 1600])
def test_a_column_with_the_newest_span_shows_all_before_it(n):
    store = filled(spans([(100 * k, 100 * k + 50) for k in range(n)]))
    assert shares(store, 0, 100 * n, 1)[0, 0] == pytest.approx(0.5, abs=0.003)


@pytest.mark.parametrize("per_column", [3, 17, 100, 513, 777, 1000])
def test_even_spans_are_shown_evenly_however_many_there_are(per_column):
    store = filled(spans([(100 * k, 100 * k + 50) for k in range(20_000)]))
    level = shares(store, 1650, 1650 + 100 * per_column * 12, 12)[:, 0]
    assert level.tolist() == pytest.approx([0.5] * 12, abs=0.004)


def test_an_instant_at_the_first_nanosecond_of_the_window_is_seen():
    store = filled(spans([(0, 100), (100, 100), (300, 310)]))
    level = channels(painted(store, 100, 300, 20)[0])[:, 0]
    assert np.flatnonzero(level).tolist() == [0]


def test_the_edge_of_a_wide_span_is_as_faint_as_its_share():
    store = filled(spans([(1000, 2003)]))
    level = channels(painted(store, 0, 10_000, 100)[0])[:, 0]
    assert level[20] == round(255 * 0.03)
    assert np.all(level[10:20] == 255) and np.all(level[21:] == 0)


def test_priority_spans_take_half_a_column_among_others():
    pairs = [(10 * k, 10 * k + 9) for k in range(100)]
    store = filled(spans(pairs, [1] * 50 + [0] + [1] * 49))
    plain, _ = painted(store, 0, 10_000, 10)
    raised, _ = painted(store, 0, 10_000, 10, priority=1)
    assert channels(plain)[0][0] < 10
    red, green, _blue = channels(raised)[0]
    assert red / (red + green) == pytest.approx(0.5 / (0.5 + 0.891), abs=0.01)
    assert np.all(raised[1:] == plain[1:])


def test_wide_spans_are_listed_with_the_columns_that_they_fill():
    store = filled(spans([(0, 400), (500, 520), (600, 900), (950, 1200)]))
    _, wide = painted(store, 100, 1000, 90, label_px=5)
    assert wide == [[0, 0, 30], [2, 50, 80], [3, 85, 90]]


def test_the_list_of_wide_spans_stops_when_it_is_full():
    store = filled(spans([(10 * k, 10 * k + 9) for k in range(100)]))
    _, wide = painted(store, 0, 1000, 1000, label_px=5)
    assert [each[0] for each in wide] == list(range(64))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30)), min_size=1, max_size=40),
    st.integers(-10, 400),
    st.integers(0, 25),
)
def test_hit_is_the_nearest_span(gaps_and_widths, t, tolerance):
    times = np.cumsum(np.array(gaps_and_widths).ravel())
    store = filled(spans(list(zip(times[0::2].tolist(), times[1::2].tolist(), strict=True))))
    distance = np.maximum(np.maximum(times[0::2] - t, t - times[1::2]), 0)
    found = store.hit(t, tolerance)
    if distance.min() > tolerance:
        assert found == -1
    else:
        assert distance[found] == distance.min()


def test_hit_prefers_the_span_at_the_time_to_its_neighbours():
    store = filled(spans([(0, 100), (101, 200), (201, 300)]))
    assert [store.hit(t, 50) for t in (0, 99, 102, 150, 199, 202)] == [0, 0, 1, 1, 1, 2]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 3), st.integers(0, 2**20), st.integers(1, 2**20))
def test_statistics_are_exact(seed, t0, length):
    data = random_spans(300, seed)
    t1 = t0 + length
    counts, busy = filled(data).statistics(t0, t1)
    inside = (data.begin < t1) & ((data.end > t0) | ((data.begin == data.end) & (data.begin == t0)))
    overlap = np.minimum(data.end, t1) - np.maximum(data.begin, t0)
    for category in range(N_CATEGORIES):
        mine = inside & (data.category == category)
        assert counts[category] == mine.sum()
        assert busy[category] == overlap[mine].sum()


def test_hit_reaches_as_far_as_its_tolerance_and_no_further():
    store = filled(spans([(100, 200)]))
    assert [store.hit(t, 10) for t in (89, 90, 210, 211)] == [-1, 0, 0, -1]


def test_statistics_of_many_blocks_are_exact():
    data = random_spans(50_000, seed=9, categories=N_CATEGORIES)
    t0, t1 = int(data.begin[77]) + 1, int(data.end[-5]) - 1
    counts, busy = filled(data).statistics(t0, t1)
    mine = slice(77, -4)
    assert counts.tolist() == np.bincount(data.category[mine], minlength=N_CATEGORIES).tolist()
    overlap = np.minimum(data.end, t1) - np.maximum(data.begin, t0)
    by_category = np.bincount(data.category[mine], overlap[mine], minlength=N_CATEGORIES)
    assert busy.tolist() == by_category.astype(np.int64).tolist()


def test_the_ring_keeps_the_newest_spans():
    data = random_spans(40_000, seed=2)
    store = filled(data, capacity_log2=13, batch=777)
    assert store.capacity == 2**13
    assert store.tail == 40_000
    assert store.head % BLOCK == 0
    assert store.capacity - BLOCK < len(store) <= store.capacity
    for index in (store.head, store.head + 1, store.tail - 1):
        expected = tuple(each[index] for each in data.part(0, 40_000))
        assert store.get(index) == expected
    assert store.extent() == (data.begin[store.head], data.end[-1])


def test_what_is_evicted_is_neither_shown_found_nor_counted():
    data = random_spans(40_000, seed=4)
    store = filled(data, capacity_log2=13, batch=777)
    kept = Spans(*(each[store.head :] for each in (data.begin, data.end, data.category)))
    t0, t1 = 0, int(data.end[-1])
    width = 30
    exact = coverage(kept, t0, t1, width)[:, :3]
    error = np.abs(shares(store, t0, t1, width) - exact)[exact.sum(axis=1) > 0.3]
    assert error.max() < 0.02
    gone = int(kept.begin[0] / t1 * width)
    assert np.all(painted(store, t0, t1, width)[0][:gone] == BLACK)
    counts, busy = store.statistics(t0, t1)
    assert counts.sum() == len(store)
    assert busy.sum() == (kept.end - kept.begin).sum()
    assert store.find(int(data.ref[store.head - 1])) == -1
    assert store.hit(int(data.begin[100]), 0) == -1
    for index in (store.head - 1, store.tail, -1):
        with pytest.raises(IndexError, match=f"span {index} is not in memory"):
            store.get(index)


def test_coverage_is_right_wherever_the_ring_wraps():
    data = random_spans(30_000, seed=6)
    store = LaneStore(13)
    for begin in range(0, 30_000, 1500):
        store.append(*data.part(begin, begin + 1500))
        part = Spans(*(e[store.head : store.tail] for e in (data.begin, data.end, data.category)))
        t0, t1 = store.extent()
        exact = coverage(part, t0, t1, 40)[:, :3]
        clear = exact.sum(axis=1) > 0.3
        assert clear.any()
        assert np.abs(shares(store, t0, t1, 40) - exact)[clear].max() < 0.01


def test_an_index_is_found_by_the_number_of_its_span():
    data = random_spans(5000, seed=3)
    store = filled(data)
    assert [store.find(int(data.ref[k])) for k in (0, 1234, 4999)] == [0, 1234, 4999]
    assert store.find(int(data.ref[1234]) + 1) == -1
    assert store.find(10**9) == -1


def test_neighbours_are_the_nearest_of_their_categories():
    store = filled(spans([(10 * k, 10 * k + 5) for k in range(6)], [0, 1, 2, 0, 1, 2]))
    assert store.neighbour(0, 1, 0b111) == 1
    assert store.neighbour(0, 1, 0b100) == 2
    assert store.neighbour(5, -1, 0b001) == 3
    assert store.neighbour(0, -1, 0b111) == -1
    assert store.neighbour(5, 1, 0b111) == -1
    assert store.neighbour(0, 1, 0) == -1
    with pytest.raises(ValueError, match="neither 1 nor -1"):
        store.neighbour(0, 2, 1)


def test_columns_are_taken_by_index():
    data = random_spans(20_000, seed=8)
    store = filled(data, capacity_log2=13)
    indexes = np.array([store.head, store.tail - 1], np.int64)
    for taken, column in zip(store.take(indexes), data.part(0, 20_000), strict=True):
        assert taken.tolist() == column[indexes].tolist()


@pytest.mark.parametrize(
    "broken",
    [
        spans([(10, 20), (30, 25)]),
        spans([(10, 20), (19, 25)]),
        spans([(0, 4)]),
        spans([(10, 20)], [N_CATEGORIES]),
    ],
    ids=["ends before it begins", "overlaps", "older than what is there", "no such category"],
)
def test_spans_out_of_order_are_refused_as_a_whole(broken):
    store = filled(spans([(0, 5)]))
    broken.ref += 100
    with pytest.raises(ValueError, match="does not come after"):
        store.append(*broken.part(0, 9))
    assert len(store) == 1


def test_numbers_that_do_not_rise_are_refused():
    data = spans([(10, 20)])
    store = filled(data)
    later = spans([(30, 40)])
    with pytest.raises(ValueError, match="ref 5"):
        store.append(*later.part(0, 1))


def test_columns_of_different_lengths_are_refused():
    data = spans([(10, 20), (30, 40)])
    columns = [*data.part(0, 2)[:5], data.ref[:1]]
    with pytest.raises(ValueError, match="different lengths"):
        LaneStore().append(*columns)


def test_an_empty_row_shows_the_background():
    store = LaneStore()
    row, wide = painted(store, 0, 100, 10, background=0xFFFAFAFA)
    assert np.all(row == 0xFFFAFAFA) and wide == []
    assert (store.extent(), store.hit(5, 100), store.find(0)) == ((0, 0), -1, -1)


def test_a_window_or_capacity_that_makes_no_sense_is_refused():
    store = LaneStore()
    for t0, t1, width in ((5, 5, 10), (5, 4, 10), (0, 10, 0)):
        with pytest.raises(ValueError, match="no window"):
            painted(store, t0, t1, width)
    with pytest.raises(ValueError, match=r"outside 13\.\.26"):
        LaneStore(5)


def test_memory_is_about_36_bytes_a_span():
    store = LaneStore(17)
    painted(store, 0, 10, 4)
    assert 36 * store.capacity <= store.nbytes < 37 * store.capacity
