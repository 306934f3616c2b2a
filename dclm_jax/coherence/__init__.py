"""Local coherence: how well a model tells documents from other orders of their sentences."""
