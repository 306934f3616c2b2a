"""Caches of the earlier targets of a document, mixed with a language model at every target:

    p(w) = (1 - l) p_LM(w) + l p_cache(w).

A cache is empty at the start of every document. The cache contains all earlier targets of the
document, including earlier targets of the current sentence: words, UNKNOWN and END, so that p sums
to 1 over the vocabulary. An empty cache has p_cache = p_LM. With a vocabulary of subwords the
targets of a unigram cache are words, as everywhere; the targets of a neural cache are pieces, and
the nats of a word are the sum over its pieces. A word that is not predicted has 0 nats.

The unigram cache (Kuhn and De Mori 1990) is smoothed by the model. If c_w of n earlier targets are
w,

    p_cache(w) = (s p_LM(w) + c_w) / (s + n),        s > 0 its strength, in targets.

If l = 1 and p_LM(w) does not depend on context, the unigram cache is Polya's urn: a document has
the probability prod_w prod_{k < c_w} (s p_LM(w) + k) / prod_{k < n} (s + k) in any order of its
sentences. Coherence accuracy is then exactly 50%, because logarithms are rounded to multiples of
2^-30 nats, whose sums are exact. With l < 1, or a model that reads earlier words (also `rnnlm`),
the order makes a difference, because the cache grows along a document.

The neural cache (Grave, Joulin and Usunier 2017, section 3, where s = 0): h_t are the features that
enter the output layer to predict target t (`DocumentModel.emit`),

    p_cache(w) = (s p_LM(w) + n sum_i softmax_i(theta h_t . h_i) [w_i = w]) / (s + n),

where i runs over the n earlier targets of the document, at most the last `window`. With s > 0 a
cache with more targets has more influence. At theta = 0 the neural cache is the unigram cache of
its window.

Shapes: G settings, W targets of the window; B, S, N, D as everywhere.
"""

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.batches import Batch
from dclm_jax.data.vocabulary import END, FIRST_WORD, UNKNOWN
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.likelihoods import open_documents, read_and_score, time_major
from dclm_jax.scoring import interpolation
from dclm_jax.scoring.neural import BlockFunctions, NeuralScorer
from dclm_jax.scoring.scorer import (
    Scored,
    Scorer,
    first_pieces,
    sentences_to_score,
    with_own_context,
)

_GRAIN = 2.0**-30
"""The unit of rounding in nats. A sum of multiples is exact in float64 below 2^22 nats."""

# Maximum number of positions of a sentence that are compared with the window at once, to bound
# memory; a power of two, as are the lengths of long sentences.
_PIECE = 64


class CacheSetting(NamedTuple):
    """Numbers of a cache: s, in targets; theta and the number of targets in the window have an
    effect only in the neural cache."""

    theta: float = 0.0
    window: int = 0
    strength: float = 0.0


Cache = Callable[
    [Any, Iterable[Any], Sequence[CacheSetting]], Iterator[tuple[Any, list[np.ndarray]]]
]
"""`unigram_cache` of any scorer, or `neural_cache` of a `NeuralScorer`."""


def unigram_cache(
    scorer: Scorer, documents: Iterable[Scored], settings: Sequence[CacheSetting]
) -> Iterator[tuple[Scored, list[np.ndarray]]]:
    """Scores documents like `Scorer.score`; each target has the nats [1 + G] under the model and
    under the unigram cache with each setting, whose s is above 0."""
    for document, nll in scorer.score(documents):
        sentences, _ = sentences_to_score(document)
        targets = [word for ids in sentences for word in _targets(ids, scorer.first_word_end)]
        model_nll = np.concatenate([np.zeros(0), *nll], dtype=np.float64)
        # A continuation has scores of its last targets only.
        first = len(targets) - len(model_nll)
        counts, sizes = (values[first:] for values in _repetitions(targets))
        cached = [_urn(model_nll, counts, sizes, setting.strength) for setting in settings]
        is_read = np.array([target is None for target in targets[first:]], bool)
        cached = [np.where(is_read, 0, values) for values in cached]
        ends = np.cumsum([len(sentence) for sentence in nll])[:-1]
        columns = np.stack([model_nll, *cached], axis=-1)
        yield document, np.split(columns, ends) if nll else []


def _targets(ids: np.ndarray, first_word_end: int) -> list[Any]:
    """The words of a sentence, as ids or tuples of the ids of their pieces, and END; None for a
    word that is not predicted."""
    if first_word_end == FIRST_WORD:
        return np.append(ids, END).tolist()
    words = np.split(ids, first_pieces(ids, first_word_end)[1:-1]) if len(ids) else []
    return [*(None if UNKNOWN in word else tuple(word.tolist()) for word in words), END]


def _repetitions(targets: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The number of earlier occurrences of each target, and of all earlier targets, int [T]."""
    seen, counts = collections.Counter(), []
    for target in targets:
        counts.append(seen[target])
        seen[target] += target is not None
    is_target = np.array([target is not None for target in targets], int)
    return np.array(counts, int), np.cumsum(is_target) - is_target


def _urn(nll: np.ndarray, counts: np.ndarray, sizes: np.ndarray, strength: float) -> np.ndarray:
    """-log (s p_LM + c_w) / (s + n), with both logarithms rounded to multiples of `_GRAIN`."""
    with np.errstate(divide="ignore"):
        logs = np.log(strength + sizes), np.log(strength * np.exp(-nll) + counts)
    total, share = (np.round(log / _GRAIN) * _GRAIN for log in logs)
    return total - share


def neural_cache(
    scorer: NeuralScorer, documents: Iterable[Scored], settings: Sequence[CacheSetting]
) -> Iterator[tuple[Scored, list[np.ndarray]]]:
    """Scores documents like `unigram_cache`; memory has one window per batch element."""
    return scorer.computing(_functions(tuple(settings))).score(documents)


class _Window(NamedTuple):
    """The last W targets of B documents with their features, each at its number modulo W, and the
    number of targets so far."""

    features_BxWxD: jax.Array
    targets_BxW: jax.Array
    count_B: jax.Array


@functools.cache
def _functions(settings: tuple[CacheSetting, ...]) -> BlockFunctions:
    """Functions that carry the model's context and the windows, and compute `neural_cache`."""

    def open_rows(model: DocumentModel, params: Params, rows: int, source: Batch | None) -> Any:
        output = model.output_layer(params)
        shape = rows, max(setting.window for setting in settings)
        window = _Window(
            jnp.zeros((*shape, len(output.kernel.array)), output.bias.dtype),
            jnp.zeros(shape, jnp.int32),
            jnp.zeros(rows, jnp.int32),
        )
        return open_documents(model, params, rows, source), window

    def read_block(
        model: DocumentModel, params: Params, carried: Any, batch: Batch, scored: jax.Array
    ) -> tuple[Any, jax.Array]:
        context, window = carried
        read, nll_BxSxN = read_and_score(model, params, context, batch, scored)
        size = min(batch.mask_BxSxN.shape[2], _PIECE)

        def pieces(array_SxNxB: jax.Array) -> jax.Array:
            pieces = array_SxNxB.reshape(-1, size, *array_SxNxB.shape[2:])
            return jnp.swapaxes(pieces, 1, 2)

        def read_piece(window: _Window, piece: Any) -> tuple[_Window, jax.Array]:
            h_BxNxD, targets_BxN, mask_BxN, model_nll_BxN = piece
            nll_BxNxG = _cache_nll(model, settings, window, h_BxNxD, targets_BxN, model_nll_BxN)
            return _remember(window, h_BxNxD, targets_BxN, mask_BxN), nll_BxNxG

        (_, targets, mask), model_nll = time_major(batch), jnp.moveaxis(nll_BxSxN, 0, 2)
        arrays = tuple(map(pieces, (read.features, targets, mask, model_nll)))
        window, nll = jax.lax.scan(read_piece, window, arrays)
        nll_SxNxBxG = jnp.swapaxes(nll, 1, 2).reshape(*targets.shape, -1)
        if model.has_pieces:
            nll_SxNxBxG = jnp.where(model.predicted(targets, mask)[..., None], nll_SxNxBxG, 0)
        nll_BxSxNxG = jnp.moveaxis(nll_SxNxBxG, 2, 0)
        nll_BxSxNxG = jnp.concatenate([nll_BxSxN[..., None], nll_BxSxNxG], axis=-1)
        return (read.context, window), nll_BxSxNxG

    return BlockFunctions(open_rows, read_block, (1 + len(settings),))


def _cache_nll(
    model: DocumentModel,
    settings: Sequence[CacheSetting],
    window: _Window,
    h_BxNxD: jax.Array,
    targets_BxN: jax.Array,
    model_nll_BxN: jax.Array,
) -> jax.Array:
    """-log p_cache [B, N, G] of a piece's targets, padding last; model_nll_BxN is -log p_LM."""
    (rows, length), capacity = targets_BxN.shape, window.targets_BxW.shape[1]
    position_N = jnp.arange(length)
    # The distance of each target of the window from the first target of the piece.
    age_BxW = 1 + (window.count_B[:, None] - 1 - jnp.arange(capacity)) % capacity
    exists_BxW = age_BxW <= window.count_B[:, None]
    age_BxNxW = jnp.where(exists_BxW[:, None], age_BxW[:, None] + position_N[:, None], 0)
    age_NxN = position_N[:, None] - position_N
    age = jnp.concatenate([age_BxNxW, jnp.broadcast_to(age_NxN, (rows, length, length))], axis=-1)
    keys = jnp.concatenate([window.features_BxWxD, h_BxNxD], axis=1)
    score = jnp.einsum("bnd,bwd->bnw", h_BxNxD, keys)
    cached = jnp.concatenate([window.targets_BxW, targets_BxN], axis=1)[:, None]
    is_same = cached == targets_BxN[..., None]
    if model.has_pieces:
        # A word that is not predicted is in no window.
        age = jnp.where(model.predicted(cached, jnp.ones_like(cached, bool)), age, 0)

    def log_share_of_word(theta: float, size: int) -> jax.Array:
        logits = jnp.where((age >= 1) & (age <= size), theta * score, -jnp.inf)
        exps = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
        return jnp.log(jnp.sum(exps, axis=-1, where=is_same)) - jnp.log(jnp.sum(exps, axis=-1))

    # Settings that differ only in strength share this result, which is nearly all of the work.
    sizes = {(setting.theta, setting.window) for setting in settings}
    shares_of_words = {size: log_share_of_word(*size) for size in sizes}

    def setting_nll(setting: CacheSetting) -> jax.Array:
        n_BxN = jnp.minimum(window.count_B[:, None] + position_N, setting.window)
        if model.has_pieces:
            n_BxN = jnp.sum((age >= 1) & (age <= setting.window), axis=-1)
        s = jnp.asarray(setting.strength, model_nll_BxN.dtype)
        log_share_BxN = shares_of_words[setting.theta, setting.window]
        shares = jnp.logaddexp(jnp.log(s) - model_nll_BxN, jnp.log(n_BxN) + log_share_BxN)
        return jnp.where(n_BxN == 0, model_nll_BxN, jnp.log(s + n_BxN) - shares)

    return jnp.stack(list(map(setting_nll, settings)), axis=-1)


def _remember(
    window: _Window, h_BxNxD: jax.Array, targets_BxN: jax.Array, mask_BxN: jax.Array
) -> _Window:
    """The window after a piece, the oldest targets replaced."""
    (rows, length), capacity = targets_BxN.shape, window.targets_BxW.shape[1]
    position_N, total_Bx1 = jnp.arange(length), jnp.sum(mask_BxN, 1, jnp.int32, keepdims=True)
    retained_BxN = mask_BxN & (position_N >= total_Bx1 - capacity)
    # Targets with an index beyond the window are not written.
    index_BxN = jnp.where(retained_BxN, (window.count_B[:, None] + position_N) % capacity, capacity)
    row_Bx1 = jnp.arange(rows)[:, None]
    return _Window(
        window.features_BxWxD.at[row_Bx1, index_BxN].set(h_BxNxD, mode="drop"),
        window.targets_BxW.at[row_Bx1, index_BxN].set(targets_BxN, mode="drop"),
        window.count_B + total_Bx1[:, 0],
    )


class CachedScorer(Scorer):
    """The mixture of a model and its cache as a scorer of the targets of the cache."""

    def __init__(self, cache: Cache, scorer: Scorer, setting: CacheSetting, weight: float):
        """The weight is l."""
        self.vocab_size, self.first_word_end = scorer.vocab_size, scorer.first_word_end
        self.params = scorer.params
        self._cache, self._scorer, self._setting, self._weight = cache, scorer, setting, weight

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        scored = self._cache(self._scorer, with_own_context(documents), [self._setting])
        for document, nll in scored:
            yield document, [interpolation.mixed_nll(self._weight, *pair.T[::-1]) for pair in nll]
