"""The page about the desktop app follows the app."""

from helpers.shared import ROOT
from syncscope.app.gui.actions import ACTIONS
from syncscope.app.gui.timeline_keys import BINDINGS, MOUSE

TEXT = (ROOT / "docs" / "gui.md").read_text("utf-8")


def keys_of(keys):
    return ", ".join(f"`{key}`" for key in keys)


def test_every_key_of_the_timeline_is_in_the_document():
    for each in BINDINGS:
        assert f"| {keys_of(each.keys)} | {each.text} |" in TEXT
    for action, text in MOUSE:
        assert f"| {action} | {text} |" in TEXT


def test_every_key_of_the_window_is_in_the_document():
    for each in ACTIONS:
        if each.keys:
            assert f"| {keys_of(each.keys)} | {each.tip} |" in TEXT
