# cython: boundscheck=False, wraparound=False, cdivision=True
"""Spans of one row of the timeline, drawn at every zoom in time that depends on the width alone.

Spans lie in a ring; a span's index counts from 0 for ever, its place is the index modulo the
capacity.  Every 16 spans the busy time so far is noted, by category: sums over *indexes*, not over
time, so that nothing is ever built anew.  The difference of two notes is the occupancy of a pixel
column, however many spans lie in it.

Spans are evicted in blocks of 4096.  Nothing here holds the GIL while it walks spans; append and
paint belong to one thread.
"""
import numpy as np

from libc.math cimport ceil
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

N_CATEGORIES = 12

cdef enum:
    CATEGORIES = 12
    NOTE_SHIFT = 4          # log2 of the spans from one note of the busy time to the next
    NOTE = 1 << NOTE_SHIFT
    BLOCK_SHIFT = 12        # log2 of the spans evicted together
    BLOCK = 1 << BLOCK_SHIFT
    COLUMN = 16             # floats per pixel column: coverage by category, then LONE
    LONE = 12               # whether something narrower than the column begins and ends in it
    MANY = 512              # spans in a column from which on those beside the notes are guessed

# Of a column in which narrow spans lie: the least share of their colour, and of a category that
# must not be overlooked.
cdef float LEAST_ALPHA = 0.25
cdef float LEAST_PRIORITY = 0.5


cdef class LaneStore:
    """The newest spans of a row: sorted, not overlapping.

    Parameters
    ----------
    capacity_log2 : int
        ``2 ** capacity_log2`` spans are kept, 13 to 26; about 36 bytes each.

    Attributes
    ----------
    head, tail : int
        Spans with indexes ``head`` to ``tail - 1`` are in memory.
    capacity : int
    nbytes : int
        Memory reserved.
    """

    cdef readonly int64_t head, tail, capacity
    cdef int64_t mask
    cdef object columns, sums
    cdef int64_t[::1] begin, end, ref
    cdef uint32_t[::1] name
    cdef uint8_t[::1] category, flags
    cdef int64_t[CATEGORIES] total       # busy ns of all spans so far; an instant counts as 1
    cdef int64_t[:, ::1] note            # what it was before every 16th span
    cdef int64_t[:, ::1] block_busy      # of a block; an instant counts as 0
    cdef int64_t[:, ::1] block_count
    cdef object scratch
    cdef float[:, ::1] coverage

    def __init__(self, int capacity_log2=17):
        if not 13 <= capacity_log2 <= 26:
            raise ValueError(f"capacity_log2 {capacity_log2} outside 13..26")
        self.capacity = (<int64_t>1) << capacity_log2
        self.mask = self.capacity - 1
        types = (np.int64, np.int64, np.uint8, np.uint32, np.uint8, np.int64)
        self.columns = tuple(np.zeros(self.capacity, each) for each in types)
        self.begin, self.end, self.category, self.name, self.flags, self.ref = self.columns
        shifts = (NOTE_SHIFT, BLOCK_SHIFT, BLOCK_SHIFT)
        self.sums = tuple(np.zeros((self.capacity >> k, CATEGORIES), np.int64) for k in shifts)
        self.note, self.block_busy, self.block_count = self.sums
        memset(self.total, 0, sizeof(self.total))
        self.scratch = np.zeros((0, COLUMN), np.float32)

    def __len__(self):
        return self.tail - self.head

    @property
    def nbytes(self):
        return sum(each.nbytes for each in (*self.columns, *self.sums, self.scratch))

    def extent(self):
        """Return begin of the oldest and end of the newest span; (0, 0) if there is none."""
        if self.head == self.tail:
            return 0, 0
        return self.begin[self.head & self.mask], self.end[(self.tail - 1) & self.mask]

    def append(
        self,
        const int64_t[::1] begin_ns,
        const int64_t[::1] end_ns,
        const uint8_t[::1] category,
        const uint32_t[::1] name,
        const uint8_t[::1] flags,
        const int64_t[::1] ref,
    ):
        """Add spans behind those that are stored; the oldest make room.

        Parameters
        ----------
        begin_ns, end_ns : ndarray of int64
            Sorted; none begins before the one before it has ended.
        category : ndarray of uint8
            Below `N_CATEGORIES`.
        name : ndarray of uint32
        flags : ndarray of uint8
            As of the recorder's spans.
        ref : ndarray of int64
            Number of the span in the recording; rises.

        Raises
        ------
        ValueError
            Lengths differ, a category is unknown or the order is broken.  Nothing was added.
        """
        cdef int64_t n = begin_ns.shape[0], k, broken = -1
        cdef int64_t last_end = 0, last_ref = 0
        cdef bint first = self.head == self.tail
        lengths = {n, end_ns.shape[0], category.shape[0], name.shape[0], flags.shape[0],
                   ref.shape[0]}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
        if not first:
            last_end = self.end[(self.tail - 1) & self.mask]
            last_ref = self.ref[(self.tail - 1) & self.mask]
        with nogil:
            for k in range(n):
                if (
                    end_ns[k] < begin_ns[k]
                    or category[k] >= CATEGORIES
                    or not first and (begin_ns[k] < last_end or ref[k] <= last_ref)
                ):
                    broken = k
                    break
                first = False
                last_end = end_ns[k]
                last_ref = ref[k]
            if broken < 0:
                for k in range(n):
                    self._push(begin_ns[k], end_ns[k], category[k], name[k], flags[k], ref[k])
        if broken >= 0:
            raise ValueError(
                f"span {broken} of {n} ({begin_ns[broken]}..{end_ns[broken]} ns, category "
                f"{category[broken]}, ref {ref[broken]}) does not come after the one before it "
                f"(end {last_end} ns, ref {last_ref}), or its category is none"
            )

    cdef void _push(
        self, int64_t begin, int64_t end, uint8_t category, uint32_t name, uint8_t flags,
        int64_t ref,
    ) noexcept nogil:
        cdef int64_t i = self.tail, p = i & self.mask, block = p >> BLOCK_SHIFT
        cdef int c
        if i - self.head == self.capacity:
            self.head += BLOCK
        if i & (NOTE - 1) == 0:
            for c in range(CATEGORIES):
                self.note[p >> NOTE_SHIFT, c] = self.total[c]
        self.total[category] += max(end - begin, 1)
        if i & (BLOCK - 1) == 0:
            memset(&self.block_busy[block, 0], 0, CATEGORIES * sizeof(int64_t))
            memset(&self.block_count[block, 0], 0, CATEGORIES * sizeof(int64_t))
        self.block_busy[block, category] += end - begin
        self.block_count[block, category] += 1
        self.begin[p] = begin
        self.end[p] = end
        self.category[p] = category
        self.name[p] = name
        self.flags[p] = flags
        self.ref[p] = ref
        self.tail = i + 1

    cdef int64_t _first_end_from(self, int64_t low, int64_t t, int64_t stride) noexcept nogil:
        """Index of the first span from `low` on that ends at `t` or later; `tail` if none does."""
        cdef int64_t high = self.tail, middle
        while low + stride < high and self.end[(low + stride) & self.mask] < t:
            low += stride
            stride <<= 1
        if low + stride < high:
            high = low + stride
        while low < high:
            middle = (low + high) >> 1
            if self.end[middle & self.mask] < t:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int64_t _first_begin_from(self, int64_t low, int64_t t) noexcept nogil:
        """Index of the first span from `low` on that begins at `t` or later."""
        cdef int64_t high = self.tail, middle
        while low < high:
            middle = (low + high) >> 1
            if self.begin[middle & self.mask] < t:
                low = middle + 1
            else:
                high = middle
        return low

    cdef void _add_busy(self, int64_t i, int64_t j, float scale, float *column) noexcept nogil:
        """Add the busy time of spans [i, j), times `scale`, to the coverage of a column."""
        cdef int64_t first = (i + NOTE - 1) & ~<int64_t>(NOTE - 1)
        cdef int64_t last = j & ~<int64_t>(NOTE - 1)
        cdef int c
        cdef int64_t *before
        cdef int64_t *after
        if first >= last:
            self._add_each(i, j, scale, column)
            return
        self._add_each(i, first, scale, column)
        self._add_each(last, j, scale, column)
        before = &self.note[(first & self.mask) >> NOTE_SHIFT, 0]
        after = self.total
        if last < self.tail:
            after = &self.note[(last & self.mask) >> NOTE_SHIFT, 0]
        for c in range(CATEGORIES):
            column[c] += <float>(after[c] - before[c]) * scale

    cdef inline void _add_each(
        self, int64_t i, int64_t j, float scale, float *column
    ) noexcept nogil:
        cdef int64_t p
        while i < j:
            p = i & self.mask
            column[self.category[p]] += <float>max(self.end[p] - self.begin[p], 1) * scale
            i += 1

    def paint(
        self,
        int64_t t0,
        int64_t t1,
        int width_px,
        const uint8_t[:, ::1] palette,
        int priority_mask,
        uint32_t[::1] row,
        int64_t[:, ::1] wide,
        int min_label_px,
        uint32_t background,
    ):
        """Draw the spans of a window as one row of pixels.

        A column shows the colours of its categories by the share of its time that they cover, over
        the background; what is narrower than a column still shows with a least share.

        Parameters
        ----------
        t0, t1 : int
            The window, ``t0 < t1``.
        width_px : int
        palette : ndarray of uint8, shape (N_CATEGORIES, 3)
        priority_mask : int
            Bit c: narrow spans of category c take at least half of their column.
        row : ndarray of uint32
            Gets `width_px` opaque pixels, 0xffRRGGBB.
        wide : ndarray of int64, shape (n, 3)
            Gets (index, first column, column after the last one) of spans of at least
            `min_label_px` columns, cut to the window, as many as fit.
        min_label_px : int
        background : int
            0xffRRGGBB.

        Returns
        -------
        int
            How many rows of `wide` were filled.
        """
        cdef int n_wide
        if not (t0 < t1 and 0 < width_px <= row.shape[0]):
            raise ValueError(f"no window: {t0}..{t1} ns on {width_px} of {row.shape[0]} pixels")
        if palette.shape[0] != CATEGORIES or palette.shape[1] != 3 or wide.shape[1] != 3:
            raise ValueError(f"palette is ({CATEGORIES}, 3) and wide (n, 3)")
        if self.scratch.shape[0] < width_px:
            self.scratch = np.zeros((width_px, COLUMN), np.float32)
        self.coverage = self.scratch
        with nogil:
            n_wide = self._cover(t0, t1, width_px, wide, min_label_px)
            _blend(&self.coverage[0, 0], width_px, palette, priority_mask, row, background)
        return n_wide

    cdef int _cover(
        self, int64_t t0, int64_t t1, int width, int64_t[:, ::1] wide, int min_label_px
    ) noexcept nogil:
        """Fill the coverage of each column; return how many spans were noted as wide."""
        cdef double ns_per_px = <double>(t1 - t0) / width, px_per_ns = width / <double>(t1 - t0)
        cdef double left, right
        cdef float share, other
        cdef int64_t i, j, first, after, begin, end, run = 1
        cdef int n_wide = 0, a, b, x, category
        cdef bint clipped
        cdef float *column = &self.coverage[0, 0]
        cdef float *at
        memset(column, 0, width * COLUMN * sizeof(float))
        i = self._first_end_from(self.head, t0, 1)
        while i < self.tail:
            begin = self.begin[i & self.mask]
            end = self.end[i & self.mask]
            if begin >= t1:
                break
            clipped = begin < t0 or end > t1
            left = 0 if begin < t0 else (begin - t0) * px_per_ns
            right = width if end > t1 else (end - t0) * px_per_ns
            a, b = <int>left, <int>right
            if a >= width:
                break
            category = self.category[i & self.mask]
            at = column + a * COLUMN
            if b > a:
                share = <float>(a + 1 - left)
                at[category] += share
                for x in range(a + 1, min(b, width)):
                    column[x * COLUMN + category] = 1
                other = <float>(right - b) if b < width else 0
                if b < width:
                    column[b * COLUMN + category] += other
                if b == a + 1:  # no column is full: the one that shows more of it stands for it
                    at[LONE if share >= other or b >= width else COLUMN + LONE] = 1
                if b - a >= min_label_px and n_wide < wide.shape[0]:
                    wide[n_wide, 0] = i
                    wide[n_wide, 1] = a
                    wide[n_wide, 2] = min(b, width)
                    n_wide += 1
                i += 1
            elif clipped:
                at[category] += <float>(right - left)
                i += 1
            else:  # all that ends in this column
                j = self._first_end_from(
                    i, t0 + <int64_t>ceil((a + 1) * ns_per_px), 1 + (run >> 1)
                )
                j = max(j, i + 1)
                run = j - i
                share = <float>px_per_ns
                first, after = i, j
                if run > MANY:  # what is between two notes stands for the few spans beside them
                    first = (i + NOTE - 1) & ~<int64_t>(NOTE - 1)
                    after = j & ~<int64_t>(NOTE - 1)
                    share *= <float>run / <float>(after - first)
                self._add_busy(first, after, share, at)
                at[LONE] = 1
                i = j
        return n_wide

    def hit(self, int64_t t_ns, int64_t tolerance_ns):
        """Return the index of the span nearest to a time, -1 if none is within `tolerance_ns`."""
        cdef int64_t i = self._first_end_from(self.head, t_ns, 1), best = -1
        cdef int64_t distance, nearest = tolerance_ns
        if i > self.head:
            distance = t_ns - self.end[(i - 1) & self.mask]
            if distance <= nearest:
                best, nearest = i - 1, distance
        if i < self.tail:
            distance = max(self.begin[i & self.mask] - t_ns, 0)
            if distance <= nearest:
                best = i
        return best

    def get(self, int64_t index):
        """Return (begin_ns, end_ns, category, name, flags, ref); IndexError if not in memory."""
        cdef int64_t p = index & self.mask
        if not self.head <= index < self.tail:
            raise IndexError(f"span {index} is not in memory: {self.head}..{self.tail - 1} are")
        return (self.begin[p], self.end[p], self.category[p], self.name[p], self.flags[p],
                self.ref[p])

    def take(self, indexes):
        """Return the columns of `get` for an array of indexes, which must be in memory."""
        place = indexes & self.mask
        return tuple(each[place] for each in self.columns)

    def find(self, int64_t ref):
        """Return the index of the span with that number in the recording, -1 if it is not here."""
        cdef int64_t low = self.head, high = self.tail, middle
        while low < high:
            middle = (low + high) >> 1
            if self.ref[middle & self.mask] < ref:
                low = middle + 1
            else:
                high = middle
        return low if low < self.tail and self.ref[low & self.mask] == ref else -1

    def neighbour(self, int64_t index, int direction, int category_mask):
        """Return the nearest index after (1) or before (-1) `index` of a category in the mask.

        -1 if there is none.
        """
        cdef int64_t i = index + direction
        if direction not in (-1, 1):
            raise ValueError(f"direction {direction} is neither 1 nor -1")
        i = max(i, self.head) if direction > 0 else min(i, self.tail - 1)
        with nogil:
            while self.head <= i < self.tail:
                if (category_mask >> self.category[i & self.mask]) & 1:
                    break
                i += direction
        return i if self.head <= i < self.tail else -1

    def statistics(self, int64_t t0, int64_t t1):
        """Count the spans in ``[t0, t1)`` and their time inside it.

        Returns
        -------
        counts, busy_ns : ndarray of int64, shape (N_CATEGORIES,)
        """
        counts, busy_ns = np.zeros(CATEGORIES, np.int64), np.zeros(CATEGORIES, np.int64)
        cdef int64_t[::1] count = counts
        cdef int64_t[::1] busy = busy_ns
        cdef int64_t i, j, p, block
        cdef int c
        with nogil:
            i = self._first_end_from(self.head, t0, 1)
            if i < self.tail and self.end[i & self.mask] == t0 and self.begin[i & self.mask] < t0:
                i += 1
            j = self._first_begin_from(i, t1)
            if i < j:
                p = i & self.mask
                busy[self.category[p]] -= max(t0 - self.begin[p], 0)
                p = (j - 1) & self.mask
                busy[self.category[p]] -= max(self.end[p] - t1, 0)
            while i < j:
                p = i & self.mask
                if i & (BLOCK - 1) == 0 and i + BLOCK <= j:
                    block = p >> BLOCK_SHIFT
                    for c in range(CATEGORIES):
                        busy[c] += self.block_busy[block, c]
                        count[c] += self.block_count[block, c]
                    i += BLOCK
                else:
                    busy[self.category[p]] += self.end[p] - self.begin[p]
                    count[self.category[p]] += 1
                    i += 1
        return counts, busy_ns


cdef void _blend(
    float *column, int width, const uint8_t[:, ::1] palette, int priority_mask, uint32_t[::1] row,
    uint32_t background,
) noexcept nogil:
    """Mix the colours of each column by coverage, over the background."""
    cdef int x, c
    cdef float weight, total, alpha, rest, red, green, blue
    cdef bint lone
    for x in range(width):
        total = red = green = blue = 0
        lone = column[LONE] > 0
        for c in range(CATEGORIES):
            weight = column[c]
            if weight > 0:
                if lone and (priority_mask >> c) & 1 and weight < LEAST_PRIORITY:
                    weight = LEAST_PRIORITY
                total += weight
                red += weight * palette[c, 0]
                green += weight * palette[c, 1]
                blue += weight * palette[c, 2]
        column += COLUMN
        if total <= 0:
            row[x] = background
            continue
        alpha = min(total, 1)
        if lone and alpha < LEAST_ALPHA:
            alpha = LEAST_ALPHA
        rest = 1 - alpha
        weight = alpha / total
        red = red * weight + ((background >> 16) & 255) * rest
        green = green * weight + ((background >> 8) & 255) * rest
        blue = blue * weight + (background & 255) * rest
        row[x] = (
            <uint32_t>0xff000000
            | <uint32_t>(red + 0.5) << 16
            | <uint32_t>(green + 0.5) << 8
            | <uint32_t>(blue + 0.5)
        )
