"""Dynamic evaluation: a model learns from a document while it scores it (Krause et al. 2018).

A document is read sentence by sentence. The targets of a sentence are scored first. The context
before the sentence is held fixed. Then the gradient g of the targets' total nats updates each
parameter separately, for later sentences of this document:

    th <- th + min(lam D, 1) (th_0 - th) - eta g / (sqrt(MS) + epsilon)

MS is the mean square of g over sentences of training text, D = sqrt(MS) / mean(sqrt(MS)), and
epsilon = EPSILON mean(sqrt(MS)). mean(sqrt(MS)) is taken over all parameters except hashed
features, because most hashed features occur in no text.

Contexts are not recomputed after an update. Parameters that affect only the context get no
gradient, such as the parameters of bags of words in `rlm_*`, `hrnnlm` and `hrnnlm_two_step`. Every
document begins with the trained parameters th_0, which never change.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.batches import Batch
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.nn.precision import compiled
from dclm_jax.reading.blocks import Sentences, next_block
from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import batch_likelihood, block_nll, open_documents
from dclm_jax.scoring.scorer import Scored, Scorer, sentences_to_score, with_own_context

EPSILON = 1.0
"""Damping relative to mean(sqrt(MS)); it bounds the update of parameters with a small MS."""
STATISTICS_SENTENCES = 300
"""Maximum number of sentences of training text for MS."""
_MOST_NATS = 50.0
"""Maximum of the mean nats per target of a sentence. No useful model exceeds it; a diverging model
exceeds it long before its negative log-likelihood is infinite."""


class DynamicScorer(Scorer):
    """A model under dynamic evaluation, as a scorer of ids.

    Each process of a job scores all documents, one by one, on its first device. Memory holds about
    five copies of the parameters.
    """

    def __init__(
        self,
        model: DocumentModel,
        params: Params,
        root_mean_square: Callable[[], Params],
        rate: float,
        decay: float,
        *,
        name: str = "dynamic evaluation",
    ):
        """
        Args:
          root_mean_square: returns sqrt(MS) of each parameter, see the function `root_mean_square`;
            it is called before the first document is scored.
          rate, decay: eta and lam.
          name: the model's name in messages.
        """
        self.vocab_size, self.first_word_end = model.vocab_size, model.first_word_end
        self.model, self.params, self._name = model, params, name
        self._root_mean_square, self._rate, self._decay = root_mean_square, rate, decay

    def __getstate__(self) -> dict[str, Any]:
        # Arrays on the device are made again.
        return {name: value for name, value in vars(self).items() if name != "_learning"}

    @functools.cached_property
    def _learning(self) -> "_Learning":
        arrays = self.params, self._root_mean_square()
        initial, scale = jax.device_put(arrays, jax.local_devices()[0])
        counted = jax.tree.leaves(
            {name: leaf for name, leaf in scale.items() if name not in self.model.hashed}
        )
        mean = sum(map(jnp.sum, counted)) / sum(leaf.size for leaf in counted)
        return _Learning(initial, scale, mean, self._rate, self._decay)

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents in their order; see `Scorer.score`.

        Raises:
          DivergenceError: the mean over a sentence's targets exceeds 50 nats or is not a number.
        """
        for number, document in enumerate(with_own_context(documents), start=1):
            sentences, first_scored = sentences_to_score(document)
            yield document, self._nll(sentences, number)[first_scored:]

    def _nll(self, sentences: Sentences, number: int) -> list[np.ndarray]:
        nll: list[np.ndarray] = []
        params = jax.tree.map(jnp.copy, self._learning.initial)
        learn = compiled(_learn, self.model, donated=0)
        context = compiled(open_documents, self.model, static=1)(params, 1)
        for index, words in enumerate(sentences):
            batch = next_block([sentences], index, 1, 1)
            params, context, nll_1x1xN = learn(params, self._learning, context, batch)
            nats = np.asarray(nll_1x1xN)[0, 0, : len(words) + 1].astype(np.float32)
            mean = float(nats.mean(dtype=np.float64))
            if not mean <= _MOST_NATS:
                raise DivergenceError(
                    f"{self._name} diverged: sentence {index + 1} of document {number} has "
                    f"{mean:.3g} nats per target at rate {self._rate:g} and decay {self._decay:g}; "
                    "choose a lower rate"
                )
            nll.append(nats)
        return nll


def root_mean_square(
    model: DocumentModel,
    params: Params,
    documents: Iterable[Sentences],
) -> Params:
    """sqrt(MS) of each parameter over the first STATISTICS_SENTENCES sentences of training text,
    with fixed parameters."""
    open_document = compiled(open_documents, model, static=1)
    add_square = compiled(_add_square, model, donated=0)
    count = 0
    params = jax.device_put(params, jax.local_devices()[0])
    sums = jax.tree.map(jnp.zeros_like, params)
    for document in documents:
        context = open_document(params, 1)
        for index in range(min(len(document), STATISTICS_SENTENCES - count)):
            batch = next_block([document], index, 1, 1)
            sums, context = add_square(sums, params, context, batch)
            count += 1
        if count == STATISTICS_SENTENCES:
            break
    if not count:
        raise InputError("no training text for dynamic evaluation; choose another corpus")
    return jax.tree.map(lambda sum_: jnp.sqrt(sum_ / count), sums)


class _Learning(NamedTuple):
    """th_0, sqrt(MS), mean(sqrt(MS)), eta and lam."""

    initial: Params
    scale: Params
    mean: Any
    rate: float
    decay: float


def _learn(
    model: DocumentModel, params: Params, learning: _Learning, context: Context, batch: Batch
) -> tuple[Params, Context, jax.Array]:
    """The parameters and the context after a sentence, and nats of its targets [1, 1, N], which are
    scored before the parameters move."""
    initial, scale, mean, rate, decay = learning
    after, nll_1x1xN = block_nll(model, cast_params(model, params), context, batch)

    def moved(th: jax.Array, th_0: jax.Array, rms: jax.Array, g: jax.Array) -> jax.Array:
        pull = jnp.minimum(decay * rms / mean, 1)
        return th + pull * (th_0 - th) - rate * g / (rms + EPSILON * mean)

    gradients = _gradient(model, params, context, batch)
    return jax.tree.map(moved, params, initial, scale, gradients), after, nll_1x1xN


def _add_square(
    model: DocumentModel, sums: Params, params: Params, context: Context, batch: Batch
) -> tuple[Params, Context]:
    """Adds the squared gradients of a sentence to the sums; also returns the context after the
    sentence."""
    after, _ = block_nll(model, cast_params(model, params), context, batch)
    gradients = _gradient(model, params, context, batch)
    return jax.tree.map(lambda total, g: total + g**2, sums, gradients), after


def _gradient(model: DocumentModel, params: Params, context: Context, batch: Batch) -> Params:
    return jax.grad(lambda params: batch_likelihood(model, params, batch, context=context).nll)(
        params
    )
