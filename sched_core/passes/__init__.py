"""Passes: pure functions from Plan to Plan, one module each."""
