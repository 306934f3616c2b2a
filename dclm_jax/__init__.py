"""Document-context language models in JAX."""
