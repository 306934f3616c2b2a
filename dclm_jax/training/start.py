"""Runs that start from the parameters of another run."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax import models, storage
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError, shown
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.training import mirror
from dclm_jax.training.checkpoints import RestoredRun, restore_run
from dclm_jax.training.frozen import by_path, with_leaves
from dclm_jax.training.progress import shape_text
from dclm_jax.training.workdir import read_config


class Start(NamedTuple):
    """Initial parameters; the other run's step that they are of, 0 without one; and by path what
    was taken, or why nothing was."""

    params: Params
    step: int = 0
    notes: Mapping[str, str] = MappingProxyType({})


def start_from(
    run: storage.PathLike, model: DocumentModel, params: Params, vocabulary: Vocabulary
) -> Start:
    """Takes from another run's best checkpoint the parameters of the same path and shape.

    A parameter with an entry for each word (rows of the embedding, columns of the output kernel)
    takes those of the words that both vocabularies have, by their spelling. All else stays.

    Args:
      run: its workdir, a directory or an address.
      model: of the parameters.
      params: initial values.
      vocabulary: of the model.
    """
    try:
        with storage.fetched(run, mirror.for_use) as folder:
            name = read_config(folder)["model"]["name"]
            if name not in models.MODELS:
                holds = f"{run} holds a model {shown(name)}"
                raise InputError(f"{holds}, which has no parameters to take")
            source = restore_run(folder)
        return _take(source, model, params, vocabulary)
    except InputError as error:
        raise InputError(f"training.start_from: {error}") from error


def _take(
    source: RestoredRun, model: DocumentModel, params: Params, vocabulary: Vocabulary
) -> Start:
    here, there = _shared_words(vocabulary, source.vocabulary)
    axes, source_axes = word_axes(model), word_axes(source.model)
    ours, theirs = by_path(params), by_path(source.params)
    taken, notes = {}, {}
    for path, value in ours.items():
        if path not in theirs:
            notes[path] = "absent there"
            continue
        axis, other = axes[path], theirs[path]
        if path in model.hashed and vocabulary.fingerprint != source.vocabulary.fingerprint:
            notes[path] = "hashed for other words there"
            continue
        sizes, other_sizes = (_without(array.shape, axis) for array in (value, other))
        if axis != source_axes[path] or sizes != other_sizes:
            notes[path] = f"{shape_text(other.shape)} there"
        elif axis is None:
            taken[path], notes[path] = jnp.asarray(other, value.dtype), "taken"
        else:
            entries = np.moveaxis(np.array(value), axis, 0)
            entries[here] = np.moveaxis(np.asarray(other), axis, 0)[there]
            taken[path] = jnp.asarray(np.moveaxis(entries, 0, axis))
            whole = len(here) == len(vocabulary)
            notes[path] = "taken" if whole else f"{len(here):,} of {len(vocabulary):,} words taken"
    if not taken:
        raise InputError(
            f"the {source.model.name} there has no parameter of the same name and shape as this "
            f"{model.name}"
        )
    return Start(with_leaves(params, ours | taken), source.step, notes)


def _shared_words(here: Vocabulary, there: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The ids here [W] and there [W] of the words that both have."""
    ids_there = {word: index for index, word in enumerate(there.words)}
    pairs = [(index, ids_there[word]) for index, word in enumerate(here.words) if word in ids_there]
    if len(pairs) == len(SPECIAL_TOKENS):
        raise InputError("the vocabulary there and that of data.directory share no word")
    here_W, there_W = np.array(pairs).T
    return here_W, there_W


def word_axes(model: DocumentModel) -> dict[str, int | None]:
    """By path, the axis of a parameter that has an entry for each word; None without one."""
    one, other = (
        by_path(jax.eval_shape(sized.init, jax.random.key(0)))
        for sized in (model, dataclasses.replace(model, vocab_size=model.vocab_size - 1))
    )
    return {path: _different_axis(one[path].shape, other[path].shape) for path in one}


def _different_axis(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    pairs = enumerate(zip(one, other, strict=True))
    return next((axis for axis, (size, another) in pairs if size != another), None)


def _without(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return tuple(size for index, size in enumerate(shape) if index != axis)
