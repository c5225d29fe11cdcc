"""Axes of pyqtgraph's plots in the look of the window."""

from __future__ import annotations

from typing import Any

from syncscope.app.gui.theme import Theme, label_font


def dress(axis: Any, theme: Theme) -> None:
    """Give an axis the colours and the font of a theme; its numbers stay in their unit."""
    axis.enableAutoSIPrefix(False)
    axis.setPen(theme.line)
    axis.setTextPen(theme.faint)
    axis.setTickFont(label_font())


def set_label(axis: Any, text: str, theme: Theme) -> None:
    """Label an axis, if it is not labelled so: to lay out a label takes longer than to draw it."""
    style = {"color": theme.faint, "font-size": "11px"}
    if (axis.labelText, axis.labelStyle) != (text, style):
        axis.setLabel(text, **style)
        axis.resizeEvent()  # else a text of another length stands where the one before stood
