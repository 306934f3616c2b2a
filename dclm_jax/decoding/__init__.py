"""Choosing words or sentences with models: search over a reader."""
