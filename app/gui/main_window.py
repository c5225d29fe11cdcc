"""The main window: puts views, run bar and actions together; what they do is done elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QCloseEvent, QDragEnterEvent, QDropEvent, QKeySequence
from PySide6.QtWidgets import (
    QApplication,
    QDockWidget,
    QMainWindow,
    QToolBar,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from syncscope.app.gui.actions import ACTIONS, MENUS, Action
from syncscope.app.gui.banner import Banner, device_line
from syncscope.app.gui.compare_view import CompareView
from syncscope.app.gui.file_commands import FileCommands
from syncscope.app.gui.latency_view import LatencyView
from syncscope.app.gui.optimisations_panel import OptimisationsPanel
from syncscope.app.gui.output_view import OutputView
from syncscope.app.gui.pass_watch import PassWatch
from syncscope.app.gui.recording import Recording
from syncscope.app.gui.run_bar import RunBar
from syncscope.app.gui.run_controller import RunController
from syncscope.app.gui.settings import Settings
from syncscope.app.gui.sites_view import SitesView
from syncscope.app.gui.status_line import StatusLine
from syncscope.app.gui.tasks import Tasks
from syncscope.app.gui.theme import DARK, LIGHT, THEMES, apply_theme
from syncscope.app.gui.timeline_view import TimelineView
from syncscope.app.gui.variant_state import VariantState
from syncscope.app.gui.view_commands import ViewCommands
from syncscope.app.gui.view_state import ViewState
from syncscope.app.gui.why_panel import WhyPanel
from syncscope.app.live import OVER

TITLE = "Syncscope"
RIGHT, BOTTOM = Qt.DockWidgetArea.RightDockWidgetArea, Qt.DockWidgetArea.BottomDockWidgetArea

DOCKS = (
    ("optimisations", "Optimisations", RIGHT),
    ("why", "Why", RIGHT),
    ("sites", "Sites", BOTTOM),
    ("latency", "Latency", BOTTOM),
    ("output", "Output", BOTTOM),
    ("compare", "Compare", BOTTOM),
)
"""Panels: name, title and where they are at first; those of one bottom place are tabs."""


class MainWindow(QMainWindow):
    """The window; `settings` says how it looked last, `folder` where runs are spooled.

    Parameters
    ----------
    settings : Settings
    folder : Path
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__()
        self.setObjectName("main_window")
        self.setWindowTitle(TITLE)
        self.setAcceptDrops(True)
        self.setDockNestingEnabled(True)
        self.setCorner(Qt.Corner.BottomRightCorner, RIGHT)
        self.settings = settings
        self.view, self.variant = ViewState(self), VariantState(self)
        self.tasks = Tasks(self)
        self.controller = RunController(self.view, self.variant, folder, self)
        self.banner = Banner(self)
        self.run_bar = RunBar(self.variant, self)
        self.timeline = TimelineView(self.view, self)
        self.optimisations = OptimisationsPanel(self.view, self.variant, self)
        self.compare = CompareView(self.view, self.variant, self, self.tasks)
        self.panels: dict[str, QWidget] = {
            "optimisations": self.optimisations,
            "why": WhyPanel(self.view, self.variant, self),
            "sites": SitesView(self.view, self.variant, self),
            "latency": LatencyView(self.view, self.variant, self),
            "output": OutputView(self.view, self.variant, self),
            "compare": self.compare,
        }
        self.docks: dict[str, QDockWidget] = {}
        self.actions_by_id: dict[str, QAction] = {}
        self.files = FileCommands(self)
        self.views = ViewCommands(self)
        self.pass_watch = PassWatch(self)
        self._lay_out()
        self._make_actions()
        self._connect()
        self.reset_layout()
        self._first_layout = self.saveState()
        self.set_theme(settings.theme)
        self._restore()

    # ---- making ---------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        centre = QWidget()
        column = QVBoxLayout(centre)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.banner)
        column.addWidget(self.timeline, 1)
        self.setCentralWidget(centre)
        bar = QToolBar("Run")
        bar.setObjectName("toolbar.run")
        bar.setMovable(False)
        bar.addWidget(self.run_bar)
        self.addToolBar(bar)
        self.status = StatusLine(self.view, self.tasks, self)
        self.setStatusBar(self.status)
        for name, title, _ in DOCKS:
            dock = QDockWidget(title, self)
            dock.setObjectName(f"dock.{name}")
            dock.setWidget(self.panels[name])
            self.docks[name] = dock

    def reset_layout(self) -> None:
        """Put all panels where they were at first."""
        for name, _, area in DOCKS:
            self.removeDockWidget(self.docks[name])
            self.addDockWidget(area, self.docks[name])
            self.docks[name].show()
        bottom = [self.docks[name] for name, _, area in DOCKS if area == BOTTOM]
        for first, second in pairwise(bottom):
            self.tabifyDockWidget(first, second)
        bottom[0].raise_()
        width = max(self.width(), 1280)
        right = [self.docks["optimisations"], self.docks["why"]]
        self.resizeDocks(right[:1], [min(width // 3, 420)], Qt.Orientation.Horizontal)
        self.resizeDocks(right, [320, 280], Qt.Orientation.Vertical)
        self.resizeDocks(bottom[:1], [220], Qt.Orientation.Vertical)

    def _make_actions(self) -> None:
        menus = {each: self.menuBar().addMenu(each) for each in MENUS}
        for record in ACTIONS:
            action = self._make_action(record)
            menus[record.menu].addAction(action)
            self.actions_by_id[record.id] = action
        menus["&File"].insertMenu(self.actions_by_id["compare"], self.files.recent_menu)
        panels = menus["&View"].addMenu("&Panels")
        for number, (name, _, _) in enumerate(DOCKS, 1):
            toggle = self.docks[name].toggleViewAction()
            toggle.setShortcut(QKeySequence(f"Ctrl+{number}"))
            panels.addAction(toggle)
        buttons = []
        for name in ("run", "pause", "step", "stop"):
            button = QToolButton(self)
            button.setDefaultAction(self.actions_by_id[name])
            button.setAccessibleName(self.actions_by_id[name].text().replace("&", ""))
            buttons.append(button)
        self.run_bar.add_buttons(buttons)

    def _make_action(self, record: Action) -> QAction:
        action = QAction(record.text, self)
        action.setObjectName(f"action.{record.id}")
        action.setShortcuts([QKeySequence(key) for key in record.keys])
        action.setIconText(record.text.replace("&", "").partition(" ")[0])
        action.setToolTip(record.tip)
        action.setStatusTip(record.tip)
        action.setCheckable(record.checkable)
        if record.on_timeline:
            action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            self.timeline.addAction(action)
        do = self._commands()[record.id]
        if record.checkable:
            action.triggered.connect(do)
        else:
            action.triggered.connect(lambda _=False: do())
        return action

    def _commands(self) -> dict[str, Callable[..., Any]]:
        """Return what each action does."""
        return {
            "open": self.files.ask_open,
            "compare": self.files.ask_compare,
            "save": self.files.ask_save,
            "export_csv": self.files.ask_csv,
            "export_image": self.files.ask_image,
            "close_recording": self.files.close_recording,
            "quit": self.close,
            "run": self.start_run,
            "pause": self.controller.pause,
            "step": self.step,
            "stop": self.controller.stop,
            "hazards": self.variant.set_allow_hazards,
            "follow": self.view.set_follow,
            "whole": self.timeline.navigation.show_all,
            "find": self.views.ask_find,
            "find_next": partial(self.views.find, 1),
            "find_previous": partial(self.views.find, -1),
            "buffers": self.views.ask_buffers,
            "theme": self._choose_light,
            "reset_layout": self.reset_layout,
            "palette": self.views.show_palette,
            "keys": self.views.show_keys,
            "about": self.views.show_about,
        }

    def _connect(self) -> None:
        self.controller.state_changed.connect(self._show_state)
        self.controller.progressed.connect(self.run_bar.show_progress)
        self.controller.said.connect(self.banner.say)
        self.view.recording_changed.connect(self._show_recording)
        self.view.grown.connect(self._watch_hazards)
        self.view.theme_changed.connect(self._apply_theme)
        self.view.follow_changed.connect(self.actions_by_id["follow"].setChecked)
        self.variant.changed.connect(self._show_variant)
        self.run_bar.speed_changed.connect(self.controller.set_speed)
        self._show_state("idle")

    def compare_with(self, recording: Recording | None) -> None:
        """Show a second recording beside the first."""
        self.compare.set_other(recording)
        self.docks["compare"].show()
        self.docks["compare"].raise_()

    # ---- running --------------------------------------------------------------------------------

    def start_run(self) -> None:
        """Begin a run, once what the last one recorded is saved or given up."""
        self.files.when_saved(self._start)

    def _start(self) -> None:
        self.banner.clear()
        self.controller.run(self.run_bar.request())

    def step(self) -> None:
        """Issue one step; without a run, begin one that stands at its first."""
        if not self.controller.is_live:
            self.start_run()
        self.controller.step()

    def _show_state(self, state: str) -> None:
        live = self.controller.is_live
        self.actions_by_id["pause"].setEnabled(live)
        self.actions_by_id["pause"].setChecked(state == "paused")
        self.actions_by_id["stop"].setEnabled(live)
        self.status.show_state(state)
        if state in OVER:
            self.pass_watch.look()

    def _show_recording(self) -> None:
        recording = self.view.recording
        header = {} if recording is None else recording.header
        self.banner.line.setText(device_line(header))
        self._watch_hazards()

    def _watch_hazards(self) -> None:
        """Mark a run whose reads were stale or whose plan is not ordered."""
        recording = self.view.recording
        harmed = recording is not None and recording.is_hazardous
        text = "HAZARD RUN: results are not to be trusted" if harmed else "HAZARDS ALLOWED"
        self.banner.hazard.setText(text)
        self.banner.hazard.setVisible(harmed or self.variant.allow_hazards)
        self.view.set_watermark("HAZARD RUN" if harmed else "")

    def _show_variant(self) -> None:
        self.actions_by_id["hazards"].setChecked(self.variant.allow_hazards)
        self._watch_hazards()

    # ---- looks ----------------------------------------------------------------------------------

    def _choose_light(self, on: bool) -> None:
        self.set_theme(LIGHT.name if on else DARK.name)

    def set_theme(self, name: str) -> None:
        """Draw in a theme, and remember it."""
        theme = THEMES.get(name, DARK)
        self.settings.theme = theme.name
        self.view.set_theme(theme)
        self._apply_theme()

    def _apply_theme(self) -> None:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        apply_theme(app, self.view.theme)
        self.banner.set_theme(self.view.theme)
        self.actions_by_id["theme"].setChecked(self.view.theme is LIGHT)

    def _restore(self) -> None:
        """Put the window where it was; what does not fit is left as it was made."""
        self.resize(1280, 720)
        if not self.settings.geometry.isEmpty():
            self.restoreGeometry(self.settings.geometry)
        if not self.settings.layout.isEmpty() and not self.restoreState(self.settings.layout):
            self.restoreState(self._first_layout)

    # ---- files dropped, and the end -------------------------------------------------------------

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Take files."""
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Open the first file; a second one is compared with it."""
        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        event.acceptProposedAction()
        if paths:
            self.files.open(paths[0])
        if len(paths) > 1:
            self.files.open_to_compare(paths[1])

    def closeEvent(self, event: QCloseEvent) -> None:
        """End everything that runs; an unsaved run is asked about first."""
        if not self.files.may_forget():
            event.ignore()
            return
        self.controller.end()
        self.controller.release_spool()
        self.tasks.end_all()
        self.settings.keep_window(self.saveGeometry(), self.saveState())
        super().closeEvent(event)
