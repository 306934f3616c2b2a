"""Initialization of a run with the parameters of another run."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax import models, storage
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.log import logger
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.batch_elements import axes_of
from dclm_jax.training.freezing import by_path, with_leaves
from dclm_jax.training.parameter_table import count_parameters, shape_text
from dclm_jax.training.saved_model import base_section
from dclm_jax.training.workdir import RestoredRun, opened, read_config, restore_run


class Start(NamedTuple):
    """Initial parameters, the step of the other run (0 without another run), notes by path (the
    entries taken from the other run, or the reason why none were taken), and the section of the
    model card about the other run."""

    params: Params
    step: int = 0
    notes: Mapping[str, str] = MappingProxyType({})
    base: str = ""


def start_from(
    run: storage.PathLike, model: DocumentModel, params: Params, vocabulary: Vocabulary
) -> Start:
    """Initializes parameters from the best checkpoint of another run, by path and shape.

    A parameter with one entry per word (rows of the embedding, columns of the output kernel) takes
    the entries of words in both vocabularies. Between words and subwords, these are the words that
    are single pieces. All other entries keep their initial values.

    Args:
      run: workdir of the other run, a directory or an address.
      model: the model of the parameters.
      params: initial values.
      vocabulary: vocabulary of the model.
    """
    try:
        with opened(run) as folder:
            name = read_config(folder)["model"]["name"]
            if name not in models.MODELS:
                raise InputError(
                    f"{run} has a model {brief(name)}, which has no parameters; choose another run"
                )
            source = restore_run(folder)
            base = base_section(folder, PurePath(os.path.abspath(run)).name)
        return _take(run, source, model, params, vocabulary)._replace(base=base)
    except InputError as error:
        raise InputError(f"training.start_from: {error}") from error


def _matched(vocabulary: Vocabulary, source: Vocabulary) -> tuple[list[int], list[int]]:
    """The ids of equal entries of two vocabularies."""
    both = vocabulary, source
    if vocabulary.has_pieces == source.has_pieces:
        names, source_names = (known.entries for known in both)
    else:
        names, source_names = (known.words for known in both)
    source_ids = {name: index for index, name in enumerate(source_names) if name}
    ids = [index for index, name in enumerate(names) if name in source_ids]
    return ids, [source_ids[names[index]] for index in ids]


def _take(
    run: storage.PathLike,
    source: RestoredRun,
    model: DocumentModel,
    params: Params,
    vocabulary: Vocabulary,
) -> Start:
    words, source_words = _matched(vocabulary, source.vocabulary)
    if len(words) == len(SPECIAL_TOKENS):
        raise InputError(
            f"the vocabularies of {run} and data.directory share no word; choose another run"
        )
    axes, source_axes = word_axes(model), word_axes(source.model)
    leaves, source_leaves = by_path(params), by_path(source.params)
    taken, notes, num_taken = {}, {}, 0
    for path, leaf in leaves.items():
        if path not in source_leaves:
            notes[path] = "random (absent there)"
            continue
        axis, source_leaf = axes[path], source_leaves[path]
        if path in model.hashed and vocabulary.fingerprint != source.vocabulary.fingerprint:
            notes[path] = "random (hashed for other words there)"
            continue
        shapes = [list(array.shape) for array in (leaf, source_leaf)]
        if axis is not None and axis == source_axes[path]:
            # The vocabularies may have different sizes.
            for shape in shapes:
                del shape[axis]
        if axis != source_axes[path] or shapes[0] != shapes[1]:
            here, there = shape_text(leaf.shape), shape_text(source_leaf.shape)
            notes[path] = f"random ({here} here, {there} there)"
        elif axis is None:
            taken[path], notes[path] = jnp.asarray(source_leaf, leaf.dtype), "taken"
            num_taken += leaf.size
        else:
            entries = np.moveaxis(np.array(leaf), axis, 0)
            entries[words] = np.moveaxis(np.asarray(source_leaf), axis, 0)[source_words]
            taken[path] = jnp.asarray(np.moveaxis(entries, 0, axis))
            num_taken += leaf.size * len(words) // len(vocabulary)
            kind = "pieces" if vocabulary.has_pieces else "words"
            shared = f"{len(words):,} of {len(vocabulary):,} {kind} taken"
            notes[path] = "taken" if len(words) == len(vocabulary) else shared
    if not taken:
        raise InputError(
            f"the {source.model.name} in {run} has no parameter of the same name and shape as this "
            f"{model.name}; choose another run or the same sizes"
        )
    total = count_parameters(params)
    if 2 * num_taken < total:
        logger.warning(
            f"training.start_from: {total - num_taken:,} of {total:,} parameters start from random "
            f"values, because they are absent in {run} or have another size there; choose the "
            "model, sizes and vocabulary of this run"
        )
    return Start(with_leaves(params, leaves | taken), source.step, notes)


def word_axes(model: DocumentModel) -> dict[str, int | None]:
    """The axis with one entry per word of each parameter, by path; None without such an axis."""

    def make(vocab_size: int) -> Params:
        return dataclasses.replace(model, vocab_size=vocab_size).init(jax.random.key(0))

    axes = by_path(axes_of(make))
    return {path: None if axis < 0 else axis for path, axis in axes.items()}
