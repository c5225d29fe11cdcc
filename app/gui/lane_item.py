"""The graphics item that shows all rows: one image and what lies above it."""

from __future__ import annotations

from collections.abc import Callable

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from syncscope.app.gui.overlay import Scene, draw_overlay
from syncscope.app.gui.row_canvas import RowCanvas
from syncscope.app.gui.time_ruler import window_ticks


class LaneItem(pg.GraphicsObject):
    """Draws what a function says is to be seen in a window.

    The rows are drawn again only if they, the window or the theme have changed; a frame in which
    something is hovered costs the image's copy.

    Parameters
    ----------
    scene : function
        From device pixels per logical pixel to what is to be drawn all over the widget.
    """

    def __init__(self, scene: Callable[[float], Scene]) -> None:
        super().__init__()
        self._scene = scene
        self._canvas = RowCanvas()
        self._drawn: tuple[object, ...] = ()
        self.version = 0

    def changed(self) -> None:
        """Draw the rows again: there are new spans."""
        self.version += 1
        self.update()

    # names of pyqtgraph and Qt

    def boundingRect(self) -> QRectF:
        """What is in view: Qt stops drawing items of more than 2**31 pixels, silently."""
        shown: QRectF = self.getViewBox().viewRect()
        return shown

    def dataBounds(self, *args: object, **kwargs: object) -> None:
        """Nothing to scale to: the window is set, not found."""

    def viewRangeChanged(self, *args: object) -> None:
        """Draw the new window."""
        self.prepareGeometryChange()
        self.update()

    def viewTransformChanged(self) -> None:
        """Draw at the new size."""
        self.prepareGeometryChange()
        self.update()

    def paint(
        self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None
    ) -> None:
        """Draw a frame."""
        scene = self._scene(painter.device().devicePixelRatioF())
        painter.save()
        try:
            painter.resetTransform()
            image = self._image(scene)
            painter.drawImage(QPointF(0, 0), image)
            draw_overlay(painter, scene, image)
        finally:
            painter.restore()

    def _image(self, scene: Scene) -> QImage:
        """Return the picture of the rows, drawn now if it is not the last one."""
        wanted = (self.version, scene.window, scene.layout, scene.theme)
        if wanted != self._drawn:
            grid = [t for t, _ in window_ticks(scene.window).labels]
            self._canvas.draw(
                scene.source.rows,
                scene.source.names,
                scene.layout,
                scene.window,
                scene.theme,
                grid,
                [step.begin_ns for step in scene.steps],
            )
            self._drawn = wanted
        return self._canvas.image
