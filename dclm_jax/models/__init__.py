"""The registry of models: `create("ccdclm", vocab_size=10_003, embedding_dim=128, ...)`."""

import dataclasses
import difflib
from typing import Any

from dclm_jax.errors import InputError
from dclm_jax.models import dclm, larger_context
from dclm_jax.models.base import DocumentModel

MODELS: dict[str, type[DocumentModel]] = {
    model.name: model for model in (*dclm.MODELS, *larger_context.MODELS)
}


def model_class(name: str) -> type[DocumentModel]:
    """The class registered under `name`.

    Raises:
      InputError: there is none; the message gives the nearest name.
    """
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}{did_you_mean(name, MODELS)}")
    return MODELS[name]


def create(name: str, **options: Any) -> DocumentModel:
    """A model by name; options are the attributes of its class.

    Raises:
      InputError: an unknown name or option, or a value the model cannot be built from.
    """
    cls = model_class(name)
    known = [field.name for field in dataclasses.fields(cls)]
    for option in options:
        if option not in known:
            raise InputError(f"model {name} has no option {option!r}{did_you_mean(option, known)}")
    if "vocab_size" not in options:
        raise InputError(f"model {name} needs vocab_size")
    return cls(**options)


def did_you_mean(word: str, known) -> str:
    """The end of an error message: the nearest known word, or all of them."""
    nearest = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(sorted(known))}"
