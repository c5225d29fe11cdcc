"""The folders are installed as syncscope.<folder>, and hold to their layers."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import syncscope

ROOT = Path(__file__).parents[1]
FOLDERS = ("app", "sched_core", "kernels")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OPTIONAL = {"pycuda", "PySide6", "pyqtgraph", "shiboken6"}
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyx", ".pxd", ".pyi"}
)
PYX = [path for path in SOURCES if path.suffix == ".pyx"]


def installed_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("syncscope", *(parts[:-1] if parts[-1] == "__init__" else parts)))


@pytest.mark.parametrize(
    "name", sorted({installed_name(path) for path in SOURCES if path.suffix in {".py", ".pyx"}})
)
def test_every_module_is_installed_under_syncscope(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"needs {error.name}")
    assert module.__name__ == name


def test_no_folder_is_imported_by_its_bare_name() -> None:
    assert not set(FOLDERS) & set(sys.modules)
    bare = re.compile(rf"^\s*(?:from|import|cimport)\s+({'|'.join(FOLDERS)})\b", re.MULTILINE)
    tests = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py")]
    assert not [p for p in (*SOURCES, *tests) if bare.search((ROOT / p).read_text("utf-8"))]


def test_packaging_folder_does_not_hide_the_packaging_library() -> None:
    assert not (ROOT / "packaging" / "__init__.py").exists()


def test_every_package_is_listed_in_pyproject() -> None:
    found = {installed_name(path) for path in SOURCES if path.name == "__init__.py"}
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == found | {"syncscope"}


@pytest.mark.parametrize("pyx", PYX, ids=str)
def test_every_compiled_module_has_a_stub(pyx: Path) -> None:
    assert (ROOT / pyx).with_suffix(".pyi").is_file()


def test_every_cimport_package_has_an_init_pxd() -> None:
    folders = {path.parent for path in SOURCES if path.suffix == ".pxd"}
    assert not [folder for folder in folders if not (ROOT / folder / "__init__.pxd").is_file()]


@pytest.mark.parametrize(
    ("folder", "forbidden"), [("sched_core", ("kernels", "app")), ("kernels", ("app",))]
)
def test_cython_sources_hold_to_the_layers(folder: str, forbidden: tuple[str, ...]) -> None:
    # import-linter reads .py files only
    names = "|".join((*(rf"syncscope\.{name}" for name in forbidden), "PySide6", "pyqtgraph"))
    upward = re.compile(rf"^\s*(?:from|import|cimport)\s+({names})\b", re.MULTILINE)
    sources = [path for path in SOURCES if path.parts[0] == folder and path.suffix != ".py"]
    assert not [path for path in sources if upward.search((ROOT / path).read_text("utf-8"))]


def test_the_installed_command_is_that_of_python_m() -> None:
    (target,) = PYPROJECT["project"]["scripts"].values()
    module, _, function = target.partition(":")
    assert module == "syncscope.__main__"
    assert callable(getattr(importlib.import_module(module), function))


def test_version_is_the_same_everywhere() -> None:
    assert syncscope.__version__ == PYPROJECT["project"]["version"]
