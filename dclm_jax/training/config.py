"""The configuration of a run: its keys, defaults and checks."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from dclm_jax.errors import InputError
from dclm_jax.models import did_you_mean, model_class

_FREE_TO_CHANGE = ("data.directory", "training.log_every", "training.evaluation_batch_size")
"""Keys that may differ when a run goes on: they decide no parameter."""


def default_config(model: str = "ccdclm") -> ConfigDict:
    """The paper's recipe (Ji et al. 2015, 3.1) for a model; `configs/` changes what it needs.

    `model` holds the model's options (`dclm_jax.models`), the rest:

    data.directory: output of `python -m launch.prepare`, with splits train and valid.
    data.segment_length: L, sentences a training segment.
    data.batch_size: segments a step, over all devices; 1 is the paper's online learning.
    optimizer.name: adagrad, adam or sgd; learning_rate: its peak.
    optimizer.initial_accumulator: AdaGrad's sum of squares before the first step.
    optimizer.clip_norm: global norm of the gradient (per token) it is clipped to; 0 for none.
    optimizer.schedule: constant, linear, cosine or exponential decay over decay_steps (0: the whole
      run) to final_fraction of the peak, after warmup_steps of linear growth.
    training.epochs, max_steps: whichever ends first; 0 steps for no limit.
    training.evaluate_every: steps between development perplexities; 0 for once an epoch.
    training.checkpoint_every: steps between checkpoints for resuming, beside those at evaluations.
    training.log_every: steps between lines of metrics.
    training.patience: evaluations without a better perplexity before stopping; 0 for never.

    Raises:
      InputError: an unknown model.
    """
    options = {
        field.name: field.default
        for field in dataclasses.fields(model_class(model))
        if field.name != "vocab_size"
    }
    return ConfigDict(
        {
            "model": {"name": model, **options},
            "data": {"directory": "", "segment_length": 5, "batch_size": 16},
            "optimizer": {
                "name": "adagrad",
                "learning_rate": 0.1,
                "initial_accumulator": 0.0,
                "clip_norm": 5.0,
                "schedule": "constant",
                "warmup_steps": 0,
                "decay_steps": 0,
                "final_fraction": 0.0,
            },
            "training": {
                "seed": 0,
                "epochs": 20,
                "max_steps": 0,
                "evaluate_every": 0,
                "checkpoint_every": 1000,
                "log_every": 50,
                "patience": 5,
                "evaluation_batch_size": 32,
            },
        }
    )


def validated(config: Mapping[str, Any] | ConfigDict) -> ConfigDict:
    """The configuration with every key known, present, of its type, and in range.

    Raises:
      InputError: naming the key, what it is and what was expected.
    """
    given = config.to_dict() if isinstance(config, ConfigDict) else config
    name = given.get("model", {}).get("name")
    if name is None:
        raise InputError("configuration has no model.name")
    expected = default_config(name)
    values = dict(flat(given))
    known = dict(flat(expected.to_dict()))
    for key in values:
        if key not in known:
            raise InputError(f"unknown configuration key {key!r}{did_you_mean(key, known)}")
    for key, default in known.items():
        if key not in values:
            raise InputError(f"configuration lacks {key!r} (default {default!r})")
        _check_type(key, values[key], default)
    for key, least in (
        ("data.segment_length", 1),
        ("data.batch_size", 1),
        ("optimizer.learning_rate", 0),
        ("optimizer.initial_accumulator", 0),
        ("optimizer.clip_norm", 0),
        ("optimizer.warmup_steps", 0),
        ("optimizer.decay_steps", 0),
        ("optimizer.final_fraction", 0),
        ("training.seed", 0),
        ("training.epochs", 1),
        ("training.max_steps", 0),
        ("training.evaluate_every", 0),
        ("training.checkpoint_every", 1),
        ("training.log_every", 1),
        ("training.patience", 0),
        ("training.evaluation_batch_size", 1),
    ):
        if values[key] < least:
            raise InputError(f"{key} is {values[key]}; expected at least {least}")
    if not values["data.directory"]:
        raise InputError(
            "data.directory is empty; expected the output of launch.prepare, "
            "for example --config.data.directory=data/ptb"
        )
    return ConfigDict(given)


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts as ("a.b.c", value)."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Readable differences of two configurations in keys that decide a run's result."""
    old_values, new_values = dict(flat(old)), dict(flat(new))
    return [
        f"{key} is {old_values.get(key)!r} there and {new_values.get(key)!r} here"
        for key in sorted(old_values | new_values)
        if key not in _FREE_TO_CHANGE and old_values.get(key) != new_values.get(key)
    ]


def _check_type(key: str, value: Any, default: Any) -> None:
    number_for_float = isinstance(default, float) and type(value) is int
    if type(value) is not type(default) and not number_for_float:
        expected = type(default).__name__
        raise InputError(f"{key} is {value!r}; expected a value of type {expected}")
