"""The commands of README.md work as written."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from syncscope.app.cli import main

ROOT = Path(__file__).parents[1]
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    for line in block.splitlines()
]
HARMFUL = "--allow-hazards"


def test_readme_has_commands_of_each_kind():
    programs = {shlex.split(each)[0] for each in COMMANDS}
    assert programs == {"make", "syncscope"}
    assert any("--timeline" in each for each in COMMANDS)
    assert any(HARMFUL in each for each in COMMANDS)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("syncscope")])
def test_readme_command_works(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == (1 if HARMFUL in command else 0)
    assert capsys.readouterr().out
    written = re.findall(r"(\S+\.(?:json|md|csv))", command)
    assert all((tmp_path / name).stat().st_size for name in written)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("make")])
def test_readme_make_target_exists(command):
    target = shlex.split(command)[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.M)


def test_readme_links_lead_somewhere():
    links = re.findall(r"\]\(((?!https?:)[^)#]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert links
    assert all((ROOT / link).exists() for link in links), links


def test_readme_table_is_that_of_the_stored_results():
    sys.path.insert(0, str(ROOT / "packaging"))
    try:
        from results_table import rows
    finally:
        sys.path.pop(0)
    assert "\n".join(rows(ROOT / "docs" / "results" / "h200")) in (ROOT / "README.md").read_text(
        "utf-8"
    )
