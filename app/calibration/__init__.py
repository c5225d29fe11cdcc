"""Profiles from recordings: what a trace shows, and the costs that explain it."""
