"""A/B runs of plan variants and their statistics."""
