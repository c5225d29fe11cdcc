"""Where the test data lies that is kept beside the project, not in it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def shared_path(*parts: str) -> Path:
    """Return a path under the shared data; without it skip at home, fail on CI."""
    shared = Path(os.environ.get("SYNCSCOPE_SHARED", "../shared"))
    path = (ROOT / shared).joinpath(*parts)
    if not path.exists():
        line = f"test data {path} is missing; set SYNCSCOPE_SHARED to the folder that has it"
        if os.environ.get("CI") == "true":
            pytest.fail(line)
        pytest.skip(line)
    return path
