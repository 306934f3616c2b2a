"""Dynamic evaluation: a model learns from a document while it scores it (Krause et al. 2018).

A document is read in steps of a few sentences. The targets of a step are scored first. The context
before the step is held fixed. Then the gradient g of the targets' total nats updates each parameter
separately, for later steps of this document:

    th <- th + min(lam D, 1) (th_0 - th) - eta g / (sqrt(MS) + epsilon)

MS is the mean square of g over steps of training text, D = sqrt(MS) / mean(sqrt(MS)), and epsilon =
EPSILON mean(sqrt(MS)). mean(sqrt(MS)) is taken over all parameters except hashed features, because
most hashed features occur in no text.

Contexts are not recomputed after a step. In steps of one sentence, parameters that affect only the
context get no gradient, such as the parameters of bags of words in `rlm_*`, `hrnnlm` and
`hrnnlm_two_step`. Every document begins with the trained parameters th_0, which never change.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.batches import Batch
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.evaluation.scoring import Document, Scored, sentences_to_score
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.nn.precision import compiled
from dclm_jax.reading.blocks import next_block, power_of_two
from dclm_jax.reading.likelihoods import batch_likelihood, block_nll, open_documents

EPSILON = 1.0
"""Damping relative to mean(sqrt(MS)); it bounds the update of parameters with a small MS."""
STATISTICS_STEPS = 300
"""Number of steps of training text for MS."""
_MOST_NATS = 50.0
"""Maximum of the mean nats per target of a step. No useful model exceeds it; a diverging model
exceeds it long before its negative log-likelihood is infinite."""


class DynamicScorer:
    """A model under dynamic evaluation, as a `WordScorer`.

    Each process of a job scores all documents, one by one, on its first device. Memory holds about
    five copies of the parameters.
    """

    context_order = None
    objective = "words"

    def __init__(
        self,
        model: DocumentModel,
        params: Params,
        root_mean_square: Params,
        rate: float,
        decay: float,
        *,
        sentences: int = 1,
        name: str = "dynamic evaluation",
    ):
        """
        Args:
          root_mean_square: sqrt(MS) of each parameter, see the function `root_mean_square`.
          rate, decay: eta and lam.
          sentences: maximum number of sentences per step.
          name: the model's name in messages.
        """
        self.vocab_size = model.vocab_size
        self._open = compiled(open_documents, model, static=1)
        self._learn = compiled(_learn, model, donated=0)
        self._sentences, self._name = sentences, name
        initial, scale = jax.device_put((params, root_mean_square), jax.local_devices()[0])
        counted = jax.tree.leaves(
            {name: leaf for name, leaf in scale.items() if name not in model.hashed}
        )
        mean = sum(map(jnp.sum, counted)) / sum(leaf.size for leaf in counted)
        self._learning = _Learning(initial, scale, mean, rate, decay)

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents like `Scorer.score`.

        Raises:
          DivergenceError: the mean over a step's targets exceeds 50 nats or is not a number.
        """
        for number, document in enumerate(documents, start=1):
            sentences, first_scored = sentences_to_score(document)
            yield document, self._nll(sentences, number)[first_scored:]

    def _nll(self, sentences: Document, number: int) -> list[np.ndarray]:
        nll: list[np.ndarray] = []
        params = jax.tree.map(jnp.copy, self._learning.initial)
        context = self._open(params, 1)
        for step, batch in enumerate(_steps(sentences, self._sentences), start=1):
            params, context, nll_1xSxN = self._learn(params, self._learning, context, batch)
            read = zip(sentences[len(nll) :], np.asarray(nll_1xSxN)[0], strict=False)
            step_nll = [nats[: len(words) + 1].astype(np.float32) for words, nats in read]
            mean = float(np.concatenate(step_nll).mean(dtype=np.float64))
            if not mean <= _MOST_NATS:
                rate, decay = self._learning.rate, self._learning.decay
                raise DivergenceError(
                    f"{self._name} diverged: step {step} of document {number} has {mean:.3g} nats "
                    f"per target at rate {rate:g} and decay {decay:g}; choose a lower rate"
                )
            nll += step_nll
        return nll


def root_mean_square(
    model: DocumentModel,
    params: Params,
    documents: Iterable[Document],
    *,
    sentences: int = 1,
    steps: int = STATISTICS_STEPS,
) -> Params:
    """sqrt(MS) of each parameter over at most `steps` steps of training text, each of at most
    `sentences` sentences, with fixed parameters."""
    open_document = compiled(open_documents, model, static=1)
    add_square = compiled(_add_square, model, donated=0)
    count = 0
    params = jax.device_put(params, jax.local_devices()[0])
    sums = jax.tree.map(jnp.zeros_like, params)
    for document in documents:
        context = open_document(params, 1)
        for batch in itertools.islice(_steps(document, sentences), steps - count):
            sums, context = add_square(sums, params, context, batch)
            count += 1
        if count == steps:
            break
    if not count:
        raise InputError("no training text for dynamic evaluation; choose another corpus")
    return jax.tree.map(lambda sum_: jnp.sqrt(sum_ / count), sums)


def _steps(sentences: Document, size: int) -> Iterator[Batch]:
    """A document in batches [1, S, N] of at most `size` sentences; very long sentences come in
    smaller batches."""
    # A size beyond the number of sentences would add only padding.
    first, size = 0, min(size, power_of_two(max(1, len(sentences))))
    while first < len(sentences):
        batch = next_block([sentences], first, size, 1)
        yield batch
        first += batch.mask_BxSxN.shape[1]


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
    """The parameters and the context after a step, and nats of its targets [1, S, N], which are
    scored before the parameters move."""
    initial, scale, mean, rate, decay = learning
    after, nll_1xSxN = block_nll(model, params, context, batch)

    def moved(th: jax.Array, th_0: jax.Array, rms: jax.Array, g: jax.Array) -> jax.Array:
        pull = jnp.minimum(decay * rms / mean, 1)
        return th + pull * (th_0 - th) - rate * g / (rms + EPSILON * mean)

    gradients = _gradient(model, params, context, batch)
    return jax.tree.map(moved, params, initial, scale, gradients), after, nll_1xSxN


def _add_square(
    model: DocumentModel, sums: Params, params: Params, context: Context, batch: Batch
) -> tuple[Params, Context]:
    """Adds the squared gradients of a step to the sums; also returns the context after the step."""
    after, _ = block_nll(model, params, context, batch)
    gradients = _gradient(model, params, context, batch)
    return jax.tree.map(lambda total, g: total + g**2, sums, gradients), after


def _gradient(model: DocumentModel, params: Params, context: Context, batch: Batch) -> Params:
    return jax.grad(lambda params: batch_likelihood(model, params, batch, context=context).nll)(
        params
    )
