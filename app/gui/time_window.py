"""A window of time on a drawing: which pixel is which time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Times `t0` to `t1` on `width` by `height` logical pixels of `dpr` device pixels each."""

    t0: int
    t1: int
    width: float
    height: float
    dpr: float = 1.0

    @property
    def width_px(self) -> int:
        """Width in device pixels."""
        return round(self.width * self.dpr)

    @property
    def height_px(self) -> int:
        """Height in device pixels."""
        return round(self.height * self.dpr)

    @property
    def ns_per_px(self) -> float:
        """Nanoseconds that a logical pixel stands for."""
        return (self.t1 - self.t0) / self.width

    def x(self, t: float) -> float:
        """Return where a time is drawn, in logical pixels."""
        return (t - self.t0) / (self.t1 - self.t0) * self.width

    def t(self, x: float) -> int:
        """Return the time at a logical pixel."""
        return self.t0 + round(x / self.width * (self.t1 - self.t0))
