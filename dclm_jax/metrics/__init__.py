"""Metrics of texts against reference texts, without a model."""
