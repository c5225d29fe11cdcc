"""Print what pyproject.toml needs to build, one requirement a line.

pip reads this list itself when it builds in isolation. The Makefile installs it into
.venv instead, so that a rebuild downloads nothing.
"""

import tomllib
from pathlib import Path

pyproject = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
print(*pyproject["build-system"]["requires"], sep="\n")
