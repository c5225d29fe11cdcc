"""Where a step is in time."""

from __future__ import annotations

from syncscope.app.gui.recording import Recording
from syncscope.app.gui.view_state import Range

MARGIN = 0.05
"""Room on either side, as a share of the step."""


def step_range(recording: Recording, step: int) -> Range | None:
    """Return the window that shows a step and a little beside it; None if it is not in memory."""
    begin, end = recording.steps_range(step, step + 1)
    if end <= begin:
        return None
    margin = round((end - begin) * MARGIN)
    return begin - margin, end + margin
