"""A token's time as two bars: the device busy or idle, the host blocked or free."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from syncscope.app.gui.latency_model import Figures
from syncscope.app.gui.latency_text import us
from syncscope.app.gui.theme import CATEGORIES, Theme, ink, label_font
from syncscope.app.gui.view_state import ViewState

BAR_PX = 17
GAP_PX = 3
LABEL_PX = 48


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its name, its share of the bar, and its time; `hatched` where none works."""

    name: str
    share: float
    time_ns: float
    colour: str
    hatched: bool

    @property
    def text(self) -> str:
        """Name, time and share."""
        return f"{self.name} {us(self.time_ns)} µs, {self.share:.0%}"


Bar = tuple[str, tuple[Part, Part]]


def busy_colour(theme: Theme) -> str:
    """Colour of device work."""
    return theme.categories[CATEGORIES.index("kernel")]


def idle_colour(theme: Theme) -> str:
    """Colour of time in which no device works."""
    return theme.line


def blocked_colour(theme: Theme) -> str:
    """Colour of the host's waiting."""
    return theme.categories[CATEGORIES.index("sync_required")]


def bars(figures: Figures, theme: Theme) -> tuple[Bar, Bar]:
    """Return the device's and the host's bar; medians, so parts need not add up to the period."""
    period = figures.period_ns
    blocked = min(1.0, figures.blocked_ns / period) if period else 0.0
    idle = figures.idle_share
    return (
        (
            "device",
            (
                Part("busy", 1 - idle, figures.busy_ns, busy_colour(theme), False),
                Part("idle", idle, figures.idle_ns, idle_colour(theme), True),
            ),
        ),
        (
            "host",
            (
                Part("blocked", blocked, figures.blocked_ns, blocked_colour(theme), False),
                Part(
                    "not blocked",
                    1 - blocked,
                    max(0.0, period - figures.blocked_ns),
                    idle_colour(theme),
                    True,
                ),
            ),
        ),
    )


class SplitBar(QWidget):
    """Draws both bars; says the same to a screen reader."""

    def __init__(self, state: ViewState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._figures: Figures | None = None
        self.setObjectName("latency_split")
        self.setAccessibleName("Split of the time per token")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        state.theme_changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """Two bars, one above the other."""
        return QSize(240, 2 * BAR_PX + GAP_PX)

    def minimumSizeHint(self) -> QSize:
        """As high as it is, and wide enough for its titles."""
        return QSize(LABEL_PX + 40, self.sizeHint().height())

    def set_figures(self, figures: Figures | None) -> None:
        """Show the figures of a plan; None for none."""
        if figures == self._figures:
            return
        self._figures = figures
        text = "" if figures is None else self.text(figures)
        self.setAccessibleDescription(text)
        self.setToolTip(text)
        self.update()

    def text(self, figures: Figures) -> str:
        """Say what is drawn."""
        return "; ".join(
            f"{title}: {', '.join(part.text for part in parts)}"
            for title, parts in bars(figures, self._state.theme)
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the bars."""
        painter = QPainter(self)
        try:
            painter.setFont(label_font())
            if self._figures is None:
                painter.setPen(QColor(self._state.theme.faint))
                middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
                painter.drawText(self.rect(), middle, "no steady token yet")
                return
            for row, (title, parts) in enumerate(bars(self._figures, self._state.theme)):
                self._draw(painter, row * (BAR_PX + GAP_PX), title, parts)
        finally:
            painter.end()

    def _draw(self, painter: QPainter, y: int, title: str, parts: tuple[Part, Part]) -> None:
        theme = self._state.theme
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.setPen(QColor(theme.text))
        painter.drawText(QRectF(0, y, LABEL_PX, BAR_PX), left, title)
        x, room = float(LABEL_PX), self.width() - LABEL_PX
        for part in parts:
            rect = QRectF(x, y, room * part.share, BAR_PX)
            x += rect.width()
            painter.fillRect(rect, QColor(part.colour))
            if part.hatched:
                brush = QBrush(QColor(theme.background), Qt.BrushStyle.BDiagPattern)
                painter.save()
                painter.setOpacity(0.35)
                painter.fillRect(rect, brush)
                painter.restore()
            inner = rect.adjusted(4, 0, -4, 0)
            for text in (part.text, f"{part.name} {part.share:.0%}", part.name):
                if painter.fontMetrics().horizontalAdvance(text) <= inner.width():
                    painter.setPen(QPen(QColor(ink(part.colour))))
                    painter.drawText(inner, left, text)
                    break
