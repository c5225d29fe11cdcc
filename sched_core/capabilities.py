"""What a backend can do: passes ask for these, never for a backend's name."""

from __future__ import annotations

CAPABILITIES = ("async_host_source", "events", "peer_copy", "copy_launch_order", "graphs")
"""Async copies from host memory; events; peer copies; a copy and a later launch on one stream
ordered without a barrier; captured graphs."""

CUDA = frozenset(CAPABILITIES)
