"""Readers of other formats: each makes Programs, which is all that the analysis takes."""
