"""Syncscope: which GPU synchronisations an inference engine needs, and what the others cost."""

__version__ = "0.1.0"
