"""Every command of the window as data: what menus, toolbar, palette and key sheet are made from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One command of the window.

    Parameters
    ----------
    id : str
        What `main_window` finds the command by.
    text : str
        Title, with an ampersand before the letter that chooses it in its menu.
    menu : str
        Which menu it is in.
    keys : tuple of str
        The first is shown.
    tip : str
        What it does, one line.
    checkable : bool
        Whether it is on or off.
    on_timeline : bool
        Whether its keys count only while the timeline has the focus; elsewhere they mean others.
    """

    id: str
    text: str
    menu: str
    keys: tuple[str, ...] = ()
    tip: str = ""
    checkable: bool = False
    on_timeline: bool = False


MENUS = ("&File", "&Run", "&View", "&Help")

ACTIONS = (
    Action("open", "&Open…", "&File", ("Ctrl+O",), "Open a recorded timeline"),
    Action(
        "compare", "&Compare with…", "&File", ("Ctrl+Shift+O",), "Show a second recording below"
    ),
    Action("save", "&Save timeline…", "&File", ("Ctrl+S",), "Save as JSON that Perfetto opens too"),
    Action(
        "export_csv", "Export range as CS&V…", "&File", ("Ctrl+E",), "Spans of the measured range"
    ),
    Action(
        "export_image", "Export &picture…", "&File", ("Ctrl+Shift+E",), "PNG or SVG of the timeline"
    ),
    Action("close_recording", "C&lose recording", "&File", ("Ctrl+W",), "Forget what is shown"),
    Action("quit", "&Quit", "&File", ("Ctrl+Q",), "End the app"),
    Action("run", "&Run", "&Run", ("F5",), "Begin a run with what the run bar says"),
    Action("pause", "&Pause", "&Run", ("F6",), "Issue no more steps; again: go on", True),
    Action("step", "&Step one token", "&Run", ("F10",), "Issue one step and pause"),
    Action("stop", "S&top", "&Run", ("Shift+F5",), "End the run; what was recorded stays"),
    Action("hazards", "Allow &hazards", "&Run", (), "Run also what is not proved to be safe", True),
    Action(
        "follow", "&Follow live", "&View", ("Space",), "Keep the newest span in sight", True, True
    ),
    Action(
        "whole",
        "Whole &recording",
        "&View",
        ("0", "Home"),
        "Show all of the time",
        on_timeline=True,
    ),
    Action("find", "F&ind…", "&View", ("Ctrl+F", "/"), "Search sites, kinds and verdicts"),
    Action("find_next", "Find &next", "&View", ("F3",), "Go to the next hit"),
    Action("find_previous", "Find p&revious", "&View", ("Shift+F3",), "Go to the hit before"),
    Action("buffers", "&Buffer rows…", "&View", ("Ctrl+B",), "Show who reads and writes a buffer"),
    Action("theme", "&Light theme", "&View", ("Ctrl+T",), "Light instead of dark", True),
    Action("reset_layout", "Reset &layout", "&View", (), "Put all panels back"),
    Action("palette", "&Commands…", "&Help", ("Ctrl+Shift+P", "Ctrl+P"), "Find a command by name"),
    Action("keys", "&Keys", "&Help", ("?", "F1"), "All keys on one sheet"),
    Action("about", "&About Syncscope", "&Help", (), "Version and licence"),
)
"""Commands in the order of their menus."""
