"""Document-context language models in JAX.

`restore(run)` returns a trained language model that scores and continues text; `restore("english")`
returns the pretrained model. `restore(run, Autoencoder)` returns an autoencoder, and
`restore(run, TextScorer)` a language model that may be an n-gram model. `Decoding` has the options
of continuations, and `mix` combines two models: see `dclm_jax.language_model` and
`dclm_jax.text_scorer`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dclm_jax.language_model import (
        Autoencoder,
        Decoding,
        LanguageModel,
        ScoringModel,
        TextScorer,
        mix,
        restore,
    )

__all__ = [
    "Autoencoder",
    "Decoding",
    "LanguageModel",
    "ScoringModel",
    "TextScorer",
    "mix",
    "restore",
]


def __getattr__(name: str) -> Any:
    # Models and checkpoints take seconds to import, and preparing text needs neither.
    if name == "__version__":
        from importlib import metadata

        return metadata.version("dclm_jax")
    if name in __all__:
        from dclm_jax import language_model

        return getattr(language_model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
