"""Measures of models on documents, and their saved results."""
