"""Starts the desktop app: options, the window, pictures of it without a screen."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from syncscope import __version__
from syncscope.sched_core.errors import DeviceError, SyncscopeError, UsageError

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

    from syncscope.app.gui.main_window import MainWindow

APP_ID = "io.github.syncscope.Syncscope"
PANELS = ("window", "timeline", "optimisations", "why", "sites", "latency", "output", "compare")
PICTURE_SECONDS = 60.0
"""How long a picture waits for what it is to show."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _size(text: str) -> tuple[int, int]:
    try:
        width, height = (int(each) for each in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: write WIDTHxHEIGHT, as 1280x720") from None
    if not (320 <= width <= 7680 and 240 <= height <= 4320):
        raise argparse.ArgumentTypeError(f"{text}: from 320x240 to 7680x4320")
    return width, height


def parser() -> argparse.ArgumentParser:
    """Return the options of the desktop app."""
    made = _Parser(prog="syncscope", description="The desktop app.", allow_abbrev=False)
    made.add_argument("--version", action="version", version=f"syncscope {__version__}")
    made.add_argument("file", nargs="?", type=Path, help="timeline to open")
    made.add_argument("--trace", type=Path, metavar="FILE", help="timeline to open")
    made.add_argument("--compare", type=Path, metavar="FILE", help="second timeline, below it")
    made.add_argument("--run", action="store_true", help="begin a run at once")
    made.add_argument("--theme", choices=("dark", "light"), help="colours (as last time)")
    made.add_argument("--size", type=_size, metavar="WxH", help="size of the window")
    made.add_argument("--screenshot", type=Path, metavar="FILE", help="write a picture and end")
    made.add_argument("--panel", choices=PANELS, default="window", help="what the picture shows")
    return made


def make_app(arguments: Sequence[str]) -> QApplication:
    """Return the application object, ready for a window.

    Raises
    ------
    DeviceError
        If Qt cannot be loaded, or has no screen.
    """
    if sys.platform.startswith("linux") and "QT_QPA_PLATFORM" not in os.environ:
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise DeviceError(
                "there is no screen (DISPLAY is not set); use syncscope --no-gui, "
                "or --screenshot FILE for a picture"
            )
    try:
        from PySide6.QtWidgets import QApplication
    except ImportError as error:
        raise DeviceError(
            f"the desktop app needs PySide6, which cannot be loaded ({error}); "
            "pip install 'syncscope[gui]', or use syncscope --no-gui"
        ) from None
    from syncscope.app.gui.turns import take_short_turns

    take_short_turns()
    app = QApplication.instance() or QApplication(["syncscope", *arguments])
    assert isinstance(app, QApplication)
    app.setApplicationName("Syncscope")
    app.setDesktopFileName(APP_ID)
    return app


def main(arguments: Sequence[str]) -> int:
    """Run the desktop app; return its exit code.

    Raises
    ------
    SyncscopeError
        What keeps it from starting.
    """
    options = parser().parse_args(arguments)
    if options.screenshot is not None:
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
        return _take_picture(options)
    app = make_app(arguments)
    from syncscope.app.gui.main_window import MainWindow
    from syncscope.app.gui.settings import Settings
    from syncscope.app.spool import spool_folder

    folder = spool_folder(os.environ)
    window = MainWindow(Settings(), folder)
    _set_up(window, options)
    window.show()
    window.files.offer_recovery(folder)
    return app.exec()


def _set_up(window: MainWindow, options: argparse.Namespace) -> None:
    """Do what the options ask of a new window."""
    if options.theme:
        window.set_theme(options.theme)
    if options.size:
        window.resize(*options.size)
    path = options.trace or options.file
    if path is not None:
        window.files.open(path)
    if options.compare is not None:
        window.files.open_to_compare(options.compare)
    if options.run:
        window.start_run()


def _take_picture(options: argparse.Namespace) -> int:
    """Render the window, or a panel of it, into a file."""
    app = make_app(())
    from syncscope.app.gui.documents import save_image
    from syncscope.app.gui.main_window import MainWindow
    from syncscope.app.gui.picture import settle, show_panel
    from syncscope.app.gui.settings import Settings

    with tempfile.TemporaryDirectory() as scratch:
        window = MainWindow(Settings(Path(scratch, "settings.ini")), Path(scratch, "runs"))
        window.settings.theme = options.theme or "dark"
        _set_up(window, options)
        if options.trace is None and options.file is None and not options.run:
            window.start_run()
        window.show()
        problem = settle(app, window, PICTURE_SECONDS)
        if problem:
            raise SyncscopeError(problem)
        widget = show_panel(app, window, options.panel)
        save_image(widget.grab().toImage(), options.screenshot)
        window.controller.end()
        window.controller.release_spool()
        window.close()
        window.deleteLater()
        app.processEvents()
    return 0
