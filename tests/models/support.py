"""Small models, ragged documents and padded batches that the tests of models share."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.data.batches import Batch
from dclm_jax.models.base import DocumentModel
from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import batch_likelihood, block_nll, open_documents
from tests.exhaustive import also

VOCAB = 11
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "adclm_3": ("adclm", {"memory_sentences": 3}),
}
"""Models with options that change the equations."""


def resolved(name: str) -> tuple[str, dict[str, Any]]:
    """The model of a variant and its options; the name of a model of the registry has none."""
    return VARIANTS.get(name, (name, {}))


def model_class(name: str) -> type[DocumentModel]:
    """The class of a model of the registry or of a variant."""
    return models.model_class(resolved(name)[0])


MODELS = (*models.MODELS, *VARIANTS)
AUTOENCODERS = tuple(name for name in MODELS if model_class(name).reads_source)
LANGUAGE_MODELS = tuple(name for name in MODELS if name not in AUTOENCODERS)
LIN = ("rnn_lin", "rnnslm", "hrnnlm_two_step")
"""Of simple recurrent cells, with hashed features."""
WORD_MODELS = tuple(name for name in MODELS if model_class(name).objective == "words")
WITHOUT_SOURCE = tuple(name for name in WORD_MODELS if name in LANGUAGE_MODELS)
# Each kind of context, and of larger contexts each fusion and each kind of bags but the simplest.
USUAL_MODELS = (
    *("rnnlm", "drnnlm", "hrnnlm", "ccdclm", "codclm", "adclm", "adclm_3", "pointer_drnnlm"),
    *("rlm_seqbow_lf", "rlm_seqbow_att_ef", "rnnslm", "hrnnlm_two_step"),
    *("standard_autoencoder", "hierarchical_attention_autoencoder"),
)
# The tests of other models cover these models.
SHOWN_BY_OTHERS = (
    *("rlm", "rlm_bow_ef", "rlm_bow_lf", "rlm_seqbow_ef", "rlm_seqbow_att_lf", "rnn_lin"),
    "hierarchical_autoencoder",
)
NEW_MODELS = tuple(name for name in MODELS if name not in (*USUAL_MODELS, *SHOWN_BY_OTHERS))
"""Models that run in all tests until one of the tuples above names them."""
# Sentences at once and in turn, a sum of its own over words, a step of its own, a source.
FEW_MODELS = (
    *("rnnlm", "hrnnlm", "ccdclm", "adclm", "pointer_drnnlm", *VARIANTS),
    "hierarchical_attention_autoencoder",
)


def each_of(names: Sequence[str], all_names: Sequence[str] = MODELS) -> Any:
    """Parametrizes a test by name, and by all new models; the other models are left to
    --exhaustive."""
    names = list(dict.fromkeys([*names, *NEW_MODELS]))
    usual = [name for name in names if name in all_names]
    others = also(name for name in all_names if name not in names)
    return pytest.mark.parametrize("name", [*usual, *others])


EACH_MODEL = each_of(USUAL_MODELS)
EACH_WORD_MODEL = each_of(USUAL_MODELS, WORD_MODELS)
EACH_OF_FEW = each_of(FEW_MODELS)
EACH_OF_FEW_WORD_MODELS = each_of(FEW_MODELS, WORD_MODELS)
model_jit = partial(jax.jit, static_argnums=0)
"""Jit of a function whose first argument is the model."""

# Unequal lengths, one-word sentences, a one-sentence document, a one-word document, UNKNOWN (2).
DOCUMENTS = (
    ((5, 3, 7, 4), (6,), (8, 2, 3)),
    ((4,),),
    ((10, 4), (5, 5, 9, 6, 3), (7,), (3, 2)),
    ((9, 8, 10),),
)


def pack(documents: Sequence, S: int = 0, N: int = 0, sources: Sequence | None = None) -> Batch:
    """A batch with START (0) before and END (1) after every sentence, and at least S x N places.
    Without sources each document is its own."""
    batch = _packed(documents, S, N)
    source = batch if sources is None else _packed(sources, S, N)
    return dataclasses.replace(batch, source=source)


def _packed(documents: Sequence, S: int, N: int) -> Batch:
    S = max(S, *map(len, documents), 1)
    N = max([N, *(len(words) + 1 for document in documents for words in document)])
    tokens, targets = np.zeros((2, len(documents), S, N), np.int32)
    mask = np.zeros((len(documents), S, N), bool)
    for b, document in enumerate(documents):
        for s, words in enumerate(document):
            tokens[b, s, 1 : len(words) + 1] = words
            targets[b, s, : len(words) + 1] = [*words, 1]
            mask[b, s, : len(words) + 1] = True
    return Batch(tokens, targets, mask)


def small_model(name: str, **options: Any) -> DocumentModel:
    """A model of a few dimensions, K = 4, H = 5 and VOCAB words unless told."""
    name, changed = resolved(name)
    options = {**changed, **options}
    dims = {"vocab_size": VOCAB, "embedding_dim": 4, "hidden_dim": 5}
    if name in LIN:
        # Of 11 slices in 30 places many overlap.
        options = {"cell": "htanh", "hash_size": 30, "hidden_dim": 5, **options}
        options["embedding_dim"] = options["hidden_dim"]
    options = {**dims, "cell": "coupled_peephole_lstm", **options}
    if name in ("adclm", "pointer_drnnlm") or "_att_" in name:
        options["attention_dim"] = 2
    if name == "pointer_drnnlm":
        # The memory is smaller than the number of targets of a document.
        options = {"memory_targets": 6, **options}
    if name.startswith("rlm_"):
        options = {"context_sentences": 2, "context_dim": 3, **options}
    if name == "hrnnlm":
        options["sentence_loss_weight"] = 0.7
    return models.create(name, **options)


def simple_model(name: str, **options: Any) -> DocumentModel:
    """The small model that compiles fastest, where cells and layers are not what is tested.

    Late fusion needs a memory.
    """
    cell = "lstm" if name.endswith("_lf") else "rnn"
    return small_model(name, **{"num_layers": 1, "cell": cell, **options})


def random_params(model: DocumentModel, seed: int = 0) -> Any:
    """Parameters drawn from a normal, in the float type that is on.

    Unlike the initial ones none is zero, where a forgotten or doubled bias would not be seen.
    """
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.map(lambda s: jnp.asarray(rng.normal(0, 0.5, s.shape), s.dtype), shapes)


@model_jit
def likelihood(model: DocumentModel, params: Any, batch: Batch, *keys: jax.Array):
    """`batch_likelihood` as CPUs compute it."""
    return batch_likelihood(model, params, batch, *keys)


@model_jit
def scores(model: DocumentModel, params: Any, batch: Batch) -> jax.Array:
    """The nats of every target [B, S, N], documents read from their start."""
    params = cast_params(model, params)
    return block_nll(model, params, opened(model, params, batch), batch)[1]


def opened(model: DocumentModel, params: Any, batch: Batch) -> Any:
    """The contexts before the first sentences of a batch."""
    return open_documents(model, params, len(batch.tokens_BxSxN), batch.source)


def time_major(array_BxSxN: Any) -> jax.Array:
    return jnp.moveaxis(jnp.asarray(array_BxSxN), 0, 2)
