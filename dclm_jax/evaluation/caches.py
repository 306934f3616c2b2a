"""Caches of what a document has said so far, mixed with a language model for every target:

    p(w) = (1 - l) p_LM(w) + l p_cache(w).

A cache is empty at the start of every document. It holds all targets before the one predicted, in
its own sentence as well: words, UNKNOWN and END alike, so that p sums to 1 over the vocabulary. An
empty cache has p_cache = p_LM.

The unigram cache (Kuhn and De Mori 1990), smoothed by the model: of n targets before, c_w are w,

    p_cache(w) = (s p_LM(w) + c_w) / (s + n),        s > 0 its strength, in targets.

Alone (l = 1) over a model for which w is as likely wherever it stands it is Polya's urn: a document
has the probability prod_w prod_{k < c_w} (s p_LM(w) + k) / prod_{k < n} (s + k) in any order of its
sentences. Then coherence is 50%, exactly: the logarithms are rounded to multiples of 2^-30 nats,
whose sums are exact. With l < 1, or over a model that reads the words before (`rnnlm`, too), the
order makes a difference: what comes late finds a fuller cache. The accuracy is then to be measured.

The neural cache (Grave, Joulin and Usunier 2017, section 3, where s = 0): h_t are the features that
enter the output layer where target t is predicted (`DocumentModel.emit`),

    p_cache(w) = (s p_LM(w) + n sum_i softmax_i(theta h_t . h_i) [w_i = w]) / (s + n),

i the last `window` targets of the document, of which there are n so far. With s > 0 it is trusted
the more the more it holds, as the unigram cache is, which it is at theta = 0.

Shapes: G settings, W places of the window; B, S, N, D as everywhere.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.batches import Batch
from dclm_jax.data.vocabulary import END
from dclm_jax.errors import InputError
from dclm_jax.evaluation import interpolation
from dclm_jax.evaluation.scoring import (
    BlockReading,
    Scored,
    Scorer,
    WordScorer,
    sentences_to_score,
)
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.reading.likelihoods import open_documents, read_and_score, time_major

_GRAIN = 2.0**-30
"""Nats: the sum of fewer than 2^22 nats in multiples of it is exact in float64."""

_LARGEST = 1e30
"""Of theta and strengths: products with scores and counts are finite in float32, where nan says
that a cache is empty."""

_MOST_REMEMBERED = 10**9
"""Of a window: targets are counted in int32."""

# Positions of a sentence that are compared with the window at once, which bounds memory; a power of
# two, as the length of a long sentence is.
_PIECE = 64


@dataclasses.dataclass(frozen=True)
class UnigramSetting:
    """s, in targets."""

    strength: float

    def __post_init__(self):
        if not 0 < self.strength <= _LARGEST:
            raise InputError(
                f"the unigram cache's strength is {self.strength}; expected a number above 0, at "
                f"most {_LARGEST:g}"
            )


@dataclasses.dataclass(frozen=True)
class NeuralSetting:
    """theta, the targets that are remembered at most, and s, in targets."""

    theta: float
    window: int
    strength: float = 0.0

    def __post_init__(self):
        for name, least, most in (
            ("theta", 0, _LARGEST),
            ("window", 1, _MOST_REMEMBERED),
            ("strength", 0, _LARGEST),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(
                    f"the cache's {name} is {value}; expected a number from {least} to {most:g}"
                )


DEFAULT_WINDOW = 2000
UNIGRAM_GRID = tuple(map(UnigramSetting, (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0)))
NEURAL_GRID = tuple(
    NeuralSetting(theta, DEFAULT_WINDOW, strength)
    for theta in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
    for strength in (0.0, 30.0, 100.0, 300.0)
)
"""What is tried where no setting is given, each at its best weight."""


class Cache(Protocol):
    """A cache over a model, under any settings."""

    vocab_size: int

    def candidates(
        self, documents: Iterable[Scored], settings: Sequence[Any]
    ) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """As `Scorer.score`, of every target the nats [1 + G] under the model and under the cache
        with each of the settings."""
        ...


class UnigramCache:
    """The unigram cache over any model of words."""

    def __init__(self, scorer: WordScorer):
        _require_words(scorer.objective)
        self.vocab_size = scorer.vocab_size
        self._scorer = scorer

    def candidates(
        self, documents: Iterable[Scored], settings: Sequence[UnigramSetting]
    ) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """As `Cache.candidates`."""
        for document, nll in self._scorer.score(documents):
            sentences, _ = sentences_to_score(document)
            targets = np.concatenate(
                [np.zeros(0, int), *(np.append(ids, END) for ids in sentences)]
            )
            own = np.concatenate([np.zeros(0), *nll], dtype=np.float64)
            # Of a continuation only the last ones are scored.
            counts, before = _repetitions(targets), np.arange(len(targets))
            counts, before = (array[len(targets) - len(own) :] for array in (counts, before))
            columns = [own, *(_urn(own, counts, before, one.strength) for one in settings)]
            ends = np.cumsum([len(one) for one in nll])[:-1]
            yield document, np.split(np.stack(columns, axis=-1), ends) if nll else []


def _repetitions(targets: np.ndarray) -> np.ndarray:
    """How often each target has occurred before, int [T]."""
    order = np.argsort(targets, kind="stable")
    is_first = np.append(True, np.diff(targets[order]) != 0)[: len(order)]
    place = np.arange(len(order))
    counts = np.empty_like(place)
    counts[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return counts


def _urn(nll: np.ndarray, counts: np.ndarray, before: np.ndarray, strength: float) -> np.ndarray:
    """-log (s p_LM + c_w) / (s + n), the two logarithms in multiples of `_GRAIN`."""
    with np.errstate(divide="ignore"):
        logs = np.log(strength + before), np.log(strength * np.exp(-nll) + counts)
    total, share = (np.round(one / _GRAIN) * _GRAIN for one in logs)
    return total - share


class NeuralCache:
    """The neural cache over a model of the registry; memory holds the window of each row."""

    def __init__(self, model: DocumentModel, params: Params, *, batch_size: int = 32):
        """As `Scorer`."""
        _require_words(model.objective)
        self.vocab_size = model.vocab_size
        self._model, self._params, self._batch_size = model, params, batch_size

    def candidates(
        self, documents: Iterable[Scored], settings: Sequence[NeuralSetting]
    ) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """As `Cache.candidates`."""
        reading = _NeuralReading(tuple(settings))
        scorer = Scorer(self._model, self._params, batch_size=self._batch_size, reading=reading)
        return scorer.score(documents)


class _Window(NamedTuple):
    """The last W targets of B documents with their features, each at its number modulo W, and how
    many targets there have been."""

    features_BxWxD: jax.Array
    targets_BxW: jax.Array
    count_B: jax.Array


@dataclasses.dataclass(frozen=True)
class _NeuralReading(BlockReading):
    """Carries the model's context and the window of each row; gives `Cache.candidates`."""

    settings: tuple[NeuralSetting, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (1 + len(self.settings),)

    def open(self, model: DocumentModel, params: Params, rows: int, source: Batch | None) -> Any:
        output = model.output_layer(params)
        (kernel_DxV,) = jax.tree.leaves(output.kernel)
        room = rows, max(one.window for one in self.settings)
        window = _Window(
            jnp.zeros((*room, len(kernel_DxV)), output.bias.dtype),
            jnp.zeros(room, jnp.int32),
            jnp.zeros(rows, jnp.int32),
        )
        return open_documents(model, params, rows, source), window

    def read(
        self,
        model: DocumentModel,
        params: Params,
        carried: Any,
        batch: Batch,
        scored: jax.Array,
    ) -> tuple[Any, jax.Array]:
        context, window = carried
        reading, nll_BxSxN = read_and_score(model, params, context, batch, scored)
        size = min(batch.mask_BxSxN.shape[2], _PIECE)

        def pieces(array_SxNxB: jax.Array) -> jax.Array:
            pieces = array_SxNxB.reshape(-1, size, *array_SxNxB.shape[2:])
            return jnp.swapaxes(pieces, 1, 2)

        def read_one(window: _Window, piece: Any) -> tuple[_Window, jax.Array]:
            h_BxNxD, targets_BxN, mask_BxN, own_BxN = piece
            nll_BxNxG = _cache_nll(self.settings, window, h_BxNxD, targets_BxN, own_BxN)
            return _remember(window, h_BxNxD, targets_BxN, mask_BxN), nll_BxNxG

        (_, targets, mask), own = time_major(batch), jnp.moveaxis(nll_BxSxN, 0, 2)
        of_pieces = tuple(map(pieces, (reading.features, targets, mask, own)))
        window, nll = jax.lax.scan(read_one, window, of_pieces)
        nll_SxNxBxG = jnp.swapaxes(nll, 1, 2).reshape(*targets.shape, -1)
        nll_BxSxNxG = jnp.moveaxis(nll_SxNxBxG, 2, 0)
        nll_BxSxNxG = jnp.concatenate([nll_BxSxN[..., None], nll_BxSxNxG], axis=-1)
        return (reading.context, window), nll_BxSxNxG


def _cache_nll(
    settings: Sequence[NeuralSetting],
    window: _Window,
    h_BxNxD: jax.Array,
    targets_BxN: jax.Array,
    own_BxN: jax.Array,
) -> jax.Array:
    """-log p_cache [B, N, G] of the targets of a piece, in which those that are real come first;
    own_BxN is -log p_LM."""
    (rows, length), room = targets_BxN.shape, window.targets_BxW.shape[1]
    position_N = jnp.arange(length)
    # How many targets before the first of this piece those of the window are.
    age_BxW = 1 + (window.count_B[:, None] - 1 - jnp.arange(room)) % room
    exists_BxW = age_BxW <= window.count_B[:, None]
    age_BxNxW = jnp.where(exists_BxW[:, None], age_BxW[:, None] + position_N[:, None], 0)
    age_NxN = position_N[:, None] - position_N
    age = jnp.concatenate([age_BxNxW, jnp.broadcast_to(age_NxN, (rows, length, length))], axis=-1)
    keys = jnp.concatenate([window.features_BxWxD, h_BxNxD], axis=1)
    score = jnp.einsum("bnd,bwd->bnw", h_BxNxD, keys)
    same = jnp.concatenate([window.targets_BxW, targets_BxN], axis=1)[:, None]
    same = same == targets_BxN[..., None]

    def log_remembered(theta: float, size: int) -> jax.Array:
        logits = jnp.where((age >= 1) & (age <= size), theta * score, -jnp.inf)
        exps = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
        return jnp.log(jnp.sum(exps, axis=-1, where=same)) - jnp.log(jnp.sum(exps, axis=-1))

    # Settings that differ in strength alone share it: it is nearly all of the work.
    of_sizes = {key: log_remembered(*key) for key in {(one.theta, one.window) for one in settings}}

    def of_setting(setting: NeuralSetting) -> jax.Array:
        n_BxN = jnp.minimum(window.count_B[:, None] + position_N, setting.window)
        s = jnp.asarray(setting.strength, own_BxN.dtype)
        log_remembered_BxN = of_sizes[setting.theta, setting.window]
        shares = jnp.logaddexp(jnp.log(s) - own_BxN, jnp.log(n_BxN) + log_remembered_BxN)
        return jnp.where(n_BxN == 0, own_BxN, jnp.log(s + n_BxN) - shares)

    return jnp.stack([of_setting(one) for one in settings], axis=-1)


def _remember(
    window: _Window, h_BxNxD: jax.Array, targets_BxN: jax.Array, mask_BxN: jax.Array
) -> _Window:
    """The window after a piece, the oldest targets replaced."""
    (rows, length), room = targets_BxN.shape, window.targets_BxW.shape[1]
    position_N, total_Bx1 = jnp.arange(length), jnp.sum(mask_BxN, 1, jnp.int32, keepdims=True)
    kept_BxN = mask_BxN & (position_N >= total_Bx1 - room)
    # Beyond the room nothing is written.
    place_BxN = jnp.where(kept_BxN, (window.count_B[:, None] + position_N) % room, room)
    row_Bx1 = jnp.arange(rows)[:, None]
    return _Window(
        window.features_BxWxD.at[row_Bx1, place_BxN].set(h_BxNxD, mode="drop"),
        window.targets_BxW.at[row_Bx1, place_BxN].set(targets_BxN, mode="drop"),
        window.count_B + total_Bx1[:, 0],
    )


class CachedScorer:
    """A model and its cache as a `WordScorer`."""

    context_order = None
    objective = "words"

    def __init__(self, cache: Cache, setting: Any, weight: float):
        """Of the cache's kind of setting; l is the weight."""
        check_weight(weight, [setting])
        self.vocab_size = cache.vocab_size
        self._cache, self._setting, self._weight = cache, setting, weight

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """As `Scorer.score`."""
        for document, nll in self._cache.candidates(documents, [self._setting]):
            yield document, [interpolation.mix(self._weight, *one.T[::-1]) for one in nll]


class Tried(NamedTuple):
    """A setting with its weight, and the perplexity on the text to tune on."""

    setting: Any
    weight: float
    perplexity: float


def tune(
    cache: Cache,
    documents: Iterable[Any],
    settings: Sequence[Any],
    *,
    weight: float | None = None,
    on_document: Callable[[int], None] = lambda done: None,
) -> list[Tried]:
    """Each setting at the weight that makes documents most likely, the best setting first.

    The documents stream, read once; kept are the nats of every target under the model and under
    each setting.

    Args:
      weight: of all settings, instead.
      on_document: called with the number of documents so far.
    """
    check_weight(weight, settings)
    kept: list[np.ndarray] = []
    for number, (_, nll) in enumerate(cache.candidates(documents, settings), start=1):
        kept += [one.astype(np.float32) for one in nll]
        on_document(number)
    if not kept:
        raise InputError("there is no sentence to tune the cache on")
    own, *of_settings = np.concatenate(kept).T

    def tried(setting: Any, nll: np.ndarray) -> Tried:
        best = interpolation.best_weight(nll, own) if weight is None else weight
        return Tried(setting, best, math.exp(interpolation.mix(best, nll, own).mean()))

    found = [tried(*one) for one in zip(settings, of_settings, strict=True)]
    return sorted(found, key=lambda one: one.perplexity)


def _require_words(objective: str) -> None:
    if objective != "words":
        raise InputError(f"the model predicts {objective}; a cache needs words one after the other")


def check_weight(weight: float | None, settings: Iterable[Any]) -> None:
    """Refuses a weight with which no setting is a model; None is tuned."""
    if weight is not None and not 0 <= weight <= 1:
        raise InputError(f"the cache's weight is {weight}; expected a number from 0 to 1")
    if weight == 1 and not any(one.strength for one in settings):
        raise InputError(
            "the cache has weight 1 and strength 0, so that new words have probability 0; expected "
            "a weight below 1 or a strength above 0"
        )
