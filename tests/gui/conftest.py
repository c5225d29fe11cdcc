"""Tests of the window run without a screen unless QT_QPA_PLATFORM says otherwise.

What Qt warns of fails the test that caused it (qt_log_level_fail in pyproject.toml).
"""

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
