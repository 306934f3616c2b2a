"""The registry of models: `create("ccdclm", vocab_size=10_003, embedding_dim=128, ...)`."""

import dataclasses
import numbers
from typing import Any

from dclm_jax.errors import InputError, brief, did_you_mean
from dclm_jax.models import autoencoder, dclm, hierarchical_rnn, larger_context, pointer
from dclm_jax.models.base import DocumentModel

_CLASSES: tuple[type[DocumentModel], ...] = (
    *dclm.MODELS,
    *larger_context.MODELS,
    *hierarchical_rnn.MODELS,
    *autoencoder.MODELS,
    *pointer.MODELS,
)
MODELS = {model.name: model for model in _CLASSES}

# The maximum size of an array axis with int32 indices.
_LARGEST = 2**31 - 1


def model_class(name: str) -> type[DocumentModel]:
    """The class registered under `name`."""
    if name not in MODELS:
        what = f"unknown model {brief(name)}" if name else "no model is named"
        raise InputError(f"{what}{did_you_mean(name, MODELS)}")
    return MODELS[name]


def create(name: str, **options: Any) -> DocumentModel:
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
    for field in cls.options():
        if field.name in options:
            _check_type(f"model.{field.name}", options[field.name], field)
    return cls(**options)


def _check_type(key: str, value: Any, field: dataclasses.Field) -> None:
    # The only field without a default, vocab_size, is an integer.
    kind = int if field.default is dataclasses.MISSING else type(field.default)
    accepted = {float: numbers.Real, int: numbers.Integral}.get(kind, kind)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{key} is {brief(value)}; expected a value of type {kind.__name__}")
    if kind is int and value > _LARGEST:
        raise InputError(f"{key} is {value}; expected at most {_LARGEST}")
