"""Measures of a trained model: scores of text, perplexity, adaptation."""
