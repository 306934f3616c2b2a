"""Local coherence: discrimination of documents from other orders of their sentences."""
