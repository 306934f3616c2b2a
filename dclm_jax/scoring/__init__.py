"""Scores of words under a model: nats of every target, perplexity, distributions, caches."""
