"""The registry of models: `create("ccdclm", vocab_size=10_003, embedding_dim=128, ...)`."""

from typing import Any

from dclm_jax.data.vocabulary import FIRST_WORD
from dclm_jax.errors import InputError, brief, did_you_mean
from dclm_jax.models import autoencoder, dclm, hierarchical_rnn, larger_context, pointer
from dclm_jax.models.base import DocumentModel
from dclm_jax.nn.plan import default_plan

_CLASSES: tuple[type[DocumentModel], ...] = (
    dclm.RNNLM,
    dclm.DRNNLM,
    dclm.HRNNLM,
    dclm.CCDCLM,
    dclm.CODCLM,
    dclm.ADCLM,
    larger_context.RLM,
    larger_context.BoWEF,
    larger_context.BoWLF,
    larger_context.SeqBoWEF,
    larger_context.SeqBoWLF,
    larger_context.SeqBoWATTEF,
    larger_context.SeqBoWATTLF,
    hierarchical_rnn.RNNLin,
    hierarchical_rnn.RNNSLM,
    hierarchical_rnn.HRNNLMTwoStep,
    autoencoder.StandardAutoencoder,
    autoencoder.HierarchicalAutoencoder,
    autoencoder.HierarchicalAttentionAutoencoder,
    pointer.PointerDRNNLM,
)
MODELS = {model.name: model for model in _CLASSES}


def model_class(name: str) -> type[DocumentModel]:
    """The class registered under `name`."""
    if name not in MODELS:
        what = f"unknown model {brief(name)}" if name else "no model is named"
        raise InputError(f"{what}{did_you_mean(name, MODELS)}")
    return MODELS[name]


def create(name: str, *, first_word_end: int = FIRST_WORD, **options: Any) -> DocumentModel:
    """A model by name; options are the attributes of its class."""
    cls = model_class(name)
    known = [field.name for field in cls.options()]
    for option in options:
        if option not in known:
            raise InputError(
                f"model {name} has no option {brief(option)}{did_you_mean(option, known)}"
            )
    if "vocab_size" not in options:
        raise InputError(f"model {name} has no vocab_size; pass vocab_size=V")
    plan = default_plan(fused_scan=options.get("fused_scan", False))
    if first_word_end > FIRST_WORD and cls.objective == "bags":
        raise InputError(
            f"{name} predicts bags of words and needs a vocabulary of words, but the corpus has "
            "subwords; prepare the corpus without --subwords"
        )
    return cls(**options, first_word_end=first_word_end, plan=plan)
