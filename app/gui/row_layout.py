"""Where each row of the timeline is drawn: order, pins, what is collapsed, hidden, scrolled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from syncscope.app.gui.row_source import Row

LANE_PX: Mapping[str, int] = {
    "steps": 20,
    "host": 24,
    "sync": 22,
    "cpu_split": 24,
    "stream": 24,
    "copy_engine": 24,
    "buffer": 14,
}
"""Height of a row by its kind, in logical pixels; each sub-row has it."""

COLLAPSED_LANE_PX = 4
PADDING_PX = 3


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the user has put the rows, by their keys.

    `order` says which of the rows in it comes first, others keep their places; `pinned` rows stay
    at the top, `collapsed` ones are thin, `hidden` ones are left out.  Rows of buffers are
    made on demand, and can be left out together.
    """

    order: tuple[str, ...] = ()
    pinned: frozenset[str] = frozenset()
    collapsed: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    buffers: bool = True

    def toggle_pin(self, key: str) -> Arrangement:
        """Pin a row, or let it go."""
        return replace(self, pinned=self.pinned ^ {key})

    def toggle_collapse(self, key: str) -> Arrangement:
        """Collapse a row, or open it."""
        return replace(self, collapsed=self.collapsed ^ {key})

    def toggle_hidden(self, key: str) -> Arrangement:
        """Hide a row, or show it."""
        return replace(self, hidden=self.hidden ^ {key})

    def toggle_buffers(self) -> Arrangement:
        """Show the rows of buffers, or leave them out."""
        return replace(self, buffers=not self.buffers)

    def show_only(self, rows: Sequence[Row], buffers: Collection[str]) -> Arrangement:
        """Show these rows of buffers, by their keys, and no others of buffers."""
        others = {each.key for each in rows if each.kind == "buffer"} - set(buffers)
        return replace(self, hidden=(self.hidden - set(buffers)) | others, buffers=True)

    def show_all(self) -> Arrangement:
        """Hide no row."""
        return replace(self, hidden=frozenset())

    def sorted(self, rows: Sequence[Row]) -> list[str]:
        """Return the keys of rows as they are shown: pinned ones first, no hidden ones."""
        keys = [each.key for each in rows if self.buffers or each.kind != "buffer"]
        moved = [each for each in self.order if each in keys]
        places = [k for k, each in enumerate(keys) if each in moved]
        for place, key in zip(places, moved, strict=True):
            keys[place] = key
        shown = [each for each in keys if each not in self.hidden]
        return sorted(shown, key=lambda each: each not in self.pinned)

    def move(self, rows: Sequence[Row], key: str, before: str) -> Arrangement:
        """Put a row before another; before ``""`` is the end."""
        rest = [each for each in self.sorted(rows) if each != key]
        place = rest.index(before) if before in rest else len(rest)
        return replace(self, order=(*rest[:place], key, *rest[place:]))


@dataclass(frozen=True, slots=True)
class Place:
    """A row's place; `y` and `height` in logical pixels of the drawing, after scrolling."""

    row: int
    key: str
    kind: str
    y: int
    height: int
    lane_height: int
    n_lanes: int
    collapsed: bool
    pinned: bool

    @property
    def middle(self) -> float:
        """Height of its middle."""
        return self.y + self.height / 2

    def lane_y(self, lane: int) -> int:
        """Return the top of a sub-row."""
        return (
            self.y + (self.height - self.n_lanes * self.lane_height) // 2 + lane * self.lane_height
        )

    def lane_at(self, y: float) -> int:
        """Return the sub-row nearest to a height."""
        return min(max(int(y - self.lane_y(0)) // self.lane_height, 0), self.n_lanes - 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """All shown rows from top to bottom; `pinned_px` high are those that do not scroll."""

    places: tuple[Place, ...]
    pinned_px: int
    content_px: int

    @property
    def bottom(self) -> int:
        """Height below the last row."""
        return max((each.y + each.height for each in self.places), default=0)

    @property
    def uncovered(self) -> tuple[Place, ...]:
        """Rows no part of which is under a pinned one."""
        return tuple(each for each in self.places if each.pinned or each.y >= self.pinned_px)

    def at(self, y: float) -> Place | None:
        """Return the row at a height; pinned rows cover what is scrolled under them."""
        for place in self.places:
            if place.y <= y < place.y + place.height and (place.pinned or y >= self.pinned_px):
                return place
        return None

    def of(self, key: str) -> Place | None:
        """Return the place of a row, None if it is hidden."""
        return next((each for each in self.places if each.key == key), None)


def lay_out(rows: Sequence[Row], arrangement: Arrangement, scroll_px: int = 0) -> Layout:
    """Place rows below each other.

    Parameters
    ----------
    rows : sequence of Row
    arrangement : Arrangement
    scroll_px : int
        How far the rows that are not pinned have moved up.
    """
    index = {row.key: k for k, row in enumerate(rows)}
    places = []
    y = pinned_px = 0
    for key in arrangement.sorted(rows):
        row = rows[index[key]]
        collapsed, pinned = key in arrangement.collapsed, key in arrangement.pinned
        n_lanes = max(len(row.lanes), 1)
        lane_height = COLLAPSED_LANE_PX if collapsed else LANE_PX[row.kind]
        height = n_lanes * lane_height + 2 * PADDING_PX
        top = y if pinned else y - scroll_px
        places.append(
            Place(index[key], key, row.kind, top, height, lane_height, n_lanes, collapsed, pinned)
        )
        y += height
        if pinned:
            pinned_px = y
    return Layout(tuple(places), pinned_px, y)
