"""Incremental reading of documents: states between sentences, and the next word of a sentence.

    state = reader.open(rows, sources)                  before the first sentence, B = rows
    state, nll = reader.read(state, sentences)          after whole sentences
    log_probs = reader.next(state, prefixes)            of the next id of a sentence per row
    state = state.take(rows)                            rows repeated, dropped, reordered
    state = reader.select(is_first, state, other)       each row from one of two states
    state = reader.after(documents)                     after documents of any lengths

States never change: reading returns a new state, and any number of continuations may be read from
the same state. Each row (batch element) is a document. All work runs on the first device, and is
compiled once per number of rows and padded length. `scoring.neural.NeuralScorer` scores
whole documents on all devices.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.batches import Batch
from dclm_jax.errors import InputError
from dclm_jax.models import MODELS
from dclm_jax.models.base import Context, DocumentModel, Params
from dclm_jax.nn.precision import compiled
from dclm_jax.reading import batch_elements, blocks, incremental
from dclm_jax.reading.blocks import Sentences
from dclm_jax.reading.driver import cast_params, read_sentences
from dclm_jax.reading.likelihoods import block_nll, next_log_probs, open_documents, time_major


@dataclasses.dataclass(frozen=True)
class ReaderState:
    """The state between two sentences in each of B = `rows` documents."""

    reader: "Reader"
    rows: int
    context: Context

    def take(self, rows: Sequence[int] | np.ndarray) -> "ReaderState":
        """The states of these rows in this order; rows may repeat."""
        context = self.reader._run(incremental.take, self.context, np.asarray(rows))
        return ReaderState(self.reader, len(rows), context)


class Reader:
    """Reads documents with one model, from any state. Arguments are not checked, because word ids
    come from `Vocabulary.encode`.

    Attributes:
      model: any model of the registry.
      params: the result of `cast_params`, on the device.
      context_order: the model's number of context sentences.
    """

    def __init__(self, model: DocumentModel, params: Params):
        self.model, self.context_order = model, model.context_order
        self.params = jax.device_put(cast_params(model, params), jax.local_devices()[0])

    def open(self, rows: int, sources: Sequence[Sentences] | None = None) -> ReaderState:
        """The state before the first sentence of `rows` documents.

        Args:
          rows: B.
          sources: for a model that reads sources, the sentences of each document's source, as
            `read` takes sentences.
        """
        source = None if sources is None else blocks.pack_sources(sources)
        return ReaderState(self, rows, self._run(open_documents, rows, source, static=1))

    def read(
        self,
        state: ReaderState,
        sentences: Sequence[Sentences],
        unscored: Sequence[int] | None = None,
    ) -> tuple[ReaderState, list[list[np.ndarray]]]:
        """Reads whole sentences.

        Args:
          state: a state of this reader.
          sentences: one list per row, all of one length, of sentences: int [M] word ids without
            START and END.
          unscored: for each row the number of targets at the start of each sentence that need no
            score, which saves work in the output layer; None for 0.

        Returns:
          The state after the sentences, and for each row and sentence float32 [M + 1]:
          -log P(target) in nats of the targets w1..wM END, given all earlier words of the
          document. The value is 0 for an unscored target.
        """
        left, context = len(sentences[0]), state.context
        scores: list[list[np.ndarray]] = [[] for _ in sentences]
        while left:
            first = len(scores[0])
            # An empty sentence that fills a block would count as a sentence of the document.
            size = min(blocks.BLOCK_SENTENCES, 1 << (left.bit_length() - 1))
            batch = blocks.next_block(sentences, first, size, state.rows)
            scored = None
            if unscored is not None:
                position_N = np.arange(batch.mask_BxSxN.shape[2])
                scored = (position_N >= np.asarray(unscored)[:, None])[:, None]
            context, nll_BxSxN = self._run(block_nll, context, batch, scored)
            for row, nll_SxN in enumerate(np.asarray(nll_BxSxN)):
                block = zip(sentences[row][first:], nll_SxN, strict=False)
                scores[row] += [nll[: len(words) + 1] for words, nll in block]
            left -= batch.mask_BxSxN.shape[1]
        return ReaderState(self, state.rows, context), scores

    def after(self, documents: Sequence[Sentences]) -> ReaderState:
        """The state after each of the documents, which may differ in length.

        Args:
          documents: sequences of sentences as `read` takes them; a document may be empty.
        """
        state = self.open(len(documents))
        # Rows whose document has ended are read with the other rows and discarded.
        longest = max((len(words) for document in documents for words in document), default=0)
        length, first = blocks.padded_length(longest), 0
        context = ended = self.model.resize_context(state.context, length)
        counts_B = np.array([len(document) for document in documents])
        for last in sorted(set(counts_B.tolist())):
            while first < last:
                size = min(blocks.BLOCK_SENTENCES, 1 << ((last - first).bit_length() - 1))
                batch = blocks.next_block(documents, first, size, state.rows)
                context = self._run(_context_after, context, batch)
                first += batch.mask_BxSxN.shape[1]
            context = self.model.resize_context(context, length)
            ended = self._run(batch_elements.select, counts_B == last, context, ended)
        return ReaderState(self, state.rows, ended)

    def select(
        self, is_first_B: np.ndarray, first: ReaderState, second: ReaderState
    ) -> ReaderState:
        """The rows of the first state where `is_first_B`, else the rows of the second state."""
        context = self._run(batch_elements.select, is_first_B, first.context, second.context)
        return ReaderState(self, first.rows, context)

    def next(self, state: ReaderState, prefixes: Sequence[np.ndarray]) -> np.ndarray:
        """log P float32 [B, V] in nats of the next id after the first ids of a sentence.

        Args:
          state: a state of this reader.
          prefixes: one per row, each int [M], the first ids of a sentence without START.
        """
        if self.model.objective == "bags":
            raise InputError(
                f"{self.model.name} predicts bags of words and no next word; choose a model that "
                "predicts words"
            )
        batch = blocks.next_block([[prefix] for prefix in prefixes], 0, 1, state.rows)
        position_B = np.array([len(prefix) for prefix in prefixes])
        return np.asarray(self._run(next_log_probs, state.context, batch, position_B))

    def vectors(self, state: ReaderState) -> np.ndarray | None:
        """The contexts as vectors [B, X] (`DocumentModel.vector`); None if the model has none."""
        vectors = self._run(_vector, state.context)
        return None if vectors is None else np.asarray(vectors)

    def vectors_along(self, documents: Sequence[Sentences]) -> list[np.ndarray] | None:
        """The contexts of whole documents before their first and after every sentence.

        Args:
          documents: B documents of at least one sentence each (see `read`), read together and not
            scored. For a model that reads sources, each document is its own source.

        Returns:
          For each document the vectors [1 + S, X]; None for a model without vectors.
        """
        rows = blocks.power_of_two(len(documents))
        # Copies of the first document fill the batch.
        filled = [*documents, *([*documents[:1]] * (rows - len(documents)))]
        context = self.open(rows, filled if self.model.reads_source else None).context
        vectors_SxBxX = [self._run(_vector, context)]
        if vectors_SxBxX[0] is None:
            return None
        for first in range(max(map(len, documents))):
            batch = blocks.next_block(filled, first, 1, rows)
            context = self._run(_context_after, context, batch)
            vectors_SxBxX.append(self._run(_vector, context))
        vectors_BxSxX = np.stack(jax.device_get(vectors_SxBxX), axis=1)
        return [
            vectors_SxX[: 1 + len(document)]
            for vectors_SxX, document in zip(vectors_BxSxX, documents, strict=False)
        ]

    def attention(self, document: Sentences) -> list[np.ndarray]:
        """Attention weights of a document.

        Args:
          document: sentences as `read` takes them.

        Returns:
          For each sentence the attention weights float32 [targets, positions] for w1..wM END; each
          row sums to 1. If the model attends to "sentences", positions are the previous n
          sentences, oldest first, or all previous sentences if there are fewer. If it attends to
          "words", positions are the inputs START w1..wM of these sentences, or only c_0 for the
          first sentence. If it attends to "targets", positions are the softmax, with its share, and
          the last M targets w1..wM END of earlier sentences.
        """
        if self.model.attends_to is None:
            expected = ", ".join(name for name, model in MODELS.items() if model.attends_to)
            raise InputError(
                f"{self.model.name} has no attention to earlier sentences; expected one of "
                f"{expected}"
            )
        context, weights = self.open(1).context, []
        while len(weights) < len(document):
            first = len(weights)
            batch = blocks.next_block([document], first, blocks.BLOCK_SENTENCES, 1)
            context, weights_1xSxNxM = self._run(_attention, context, batch)
            for t, weights_NxM in enumerate(np.asarray(weights_1xSxNxM)[0], start=first):
                if t == len(document):
                    break
                is_real_M = _real_positions(self.model, document[:t], weights_NxM.shape[1])
                weights.append(weights_NxM[: len(document[t]) + 1, is_real_M])
        return weights

    def _run(self, function: Callable[..., Any], *arguments: Any, static: int | None = None) -> Any:
        return compiled(function, self.model, static=static)(self.params, *arguments)


def _real_positions(model: DocumentModel, earlier: Sentences, size: int) -> np.ndarray:
    """Whether each of the `size` positions of a memory is real, after the `earlier` sentences."""
    if model.attends_to == "targets":
        num_targets = sum(len(words) + 1 for words in earlier)
        position = np.arange(size)
        return (position == 0) | (position >= size - num_targets)
    attends_to_words, n = model.attends_to == "words", model.attended_sentences
    is_real_CxM = np.zeros((n, size // n), bool)
    # c_0 has the first position.
    is_real_CxM[0, 0] = attends_to_words and not len(earlier)
    for distance, words in enumerate(reversed(earlier[-n:]), start=1):
        is_real_CxM[-distance, : len(words) + 1 if attends_to_words else 1] = True
    return is_real_CxM.reshape(-1)


def _context_after(model: DocumentModel, params: Params, context: Context, batch: Batch) -> Context:
    # XLA removes computations that only scores need.
    return block_nll(model, params, context, batch)[0]


def _attention(
    model: DocumentModel, params: Params, context: Context, batch: Batch
) -> tuple[Context, jax.Array]:
    """The context after the sentences of a batch, and their attention weights [B, S, N, M]."""
    tokens, _, mask = time_major(batch)
    read = read_sentences(model, params, context, tokens, mask, emit=model.attention)
    return read.context, jnp.moveaxis(read.features, 2, 0)


def _vector(model: DocumentModel, params: Params, context: Context) -> jax.Array | None:
    return model.vector(params, context)
