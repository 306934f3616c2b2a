"""Document-context language models in JAX.

`restore(workdir)` gives a trained model to score text with; see `dclm_jax.language_model`.
"""

from dclm_jax.language_model import restore

__all__ = ["restore"]
