"""How threads take turns: the window's thread is not to wait for long for those that compute."""

from __future__ import annotations

import sys

TURN_S = 0.0002
"""How long a thread that computes in Python may go on while others wait for their turn.

A frame calls Qt hundreds of times, each call gives the turn away, and with Python's own 5 ms a
frame beside an analysis takes a second.
"""


def take_short_turns() -> None:
    """Let all threads of the process take short turns."""
    sys.setswitchinterval(TURN_S)
