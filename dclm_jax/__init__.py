"""Document-context language models in JAX.

`restore(run)` returns a trained language model that scores and continues text; `restore("english")`
returns a pretrained model. `restore(run, Autoencoder)` returns an autoencoder, and
`restore(run, LanguageModel)` a model of any kind, also an n-gram model. `Decoding` has the options
of continuations, `OtherContexts` the options of scores with the contexts of other documents, and
`mix` combines two models. Measures of models are functions: `evaluation.adaptation.adapt`,
`evaluation.minimal_pairs.minimal_pairs` and `coherence.measure.coherence`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dclm_jax.decoding.choices import Decoding
    from dclm_jax.language_model import LanguageModel
    from dclm_jax.mixture import mix
    from dclm_jax.neural_language_model import Autoencoder, NeuralLanguageModel
    from dclm_jax.runs import restore
    from dclm_jax.scoring.other_contexts import OtherContexts

__all__ = [
    "Autoencoder",
    "Decoding",
    "LanguageModel",
    "NeuralLanguageModel",
    "OtherContexts",
    "mix",
    "restore",
]


def __getattr__(name: str) -> Any:
    # Models and checkpoints take seconds to import, and preparing text needs neither.
    match name:
        case "LanguageModel":
            from dclm_jax import language_model as module
        case "Autoencoder" | "NeuralLanguageModel":
            from dclm_jax import neural_language_model as module
        case "Decoding":
            from dclm_jax.decoding import choices as module
        case "OtherContexts":
            from dclm_jax.scoring import other_contexts as module
        case "mix":
            from dclm_jax import mixture as module
        case "restore":
            from dclm_jax import runs as module
        case "__version__":
            from importlib import metadata

            return metadata.version("dclm_jax")
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
