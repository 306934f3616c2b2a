"""A recurrent classifier of windows of three sentences, after Li and Hovy (2014).

A recurrent network reads each sentence of a window, the last states enter a hidden layer, and a
sigmoid gives the probability that the window is from a document and not from a permutation:

  h_i = g(s_i),  q = tanh(W [h_{t-1}, h_t, h_{t+1}] + b),  P(coherent | window) = sigmoid(u . q + c)

The score of a document is the sum of log P over its windows, one window per sentence. Learned
vectors replace the missing neighbours of the first and the last sentence. Departures from Li and
Hovy (2014): embeddings are trained from scratch, and the encoder is any cell of `nn.cells`.

Shapes: W windows, R sentences of a batch, N token positions, K embedding, H state, Q hidden layer.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dclm_jax.coherence.baselines import (
    END,
    START,
    LabelledWindows,
    OrderingBaseline,
    Report,
    Window,
    all_labelled_windows,
)
from dclm_jax.data.batches import length_bucket
from dclm_jax.data.corpus import Corpus
from dclm_jax.errors import DivergenceError
from dclm_jax.evaluation.scoring import Document
from dclm_jax.nn import stack
from dclm_jax.nn.layers import Weight, drop, glorot_uniform
from dclm_jax.nn.plan import default_plan
from dclm_jax.nn.precision import SCORING_PRECISION, at_precision
from dclm_jax.reading.blocks import power_of_two

Params = dict[str, Any]
WIDTH = 3

# First words of the seeds of independent random streams.
_TRAINING, _VALIDATION = 0, 1
_SCORED_SENTENCES = 64
_SCORED_WINDOWS = 4096


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the classifier and its training.

    Attributes:
      embedding_dim, hidden_dim, window_dim: K, H and Q.
      num_layers, cell: number of layers and cell of the encoder.
      dropout: dropout rate of embeddings and of the vectors of sentences.
      learning_rate: learning rate of Adam; gradients are clipped at global norm 5.
      permutations: number of permutations per document, drawn again in every epoch; the total
        weight of their windows equals the weight of the document's windows.
      batch_sentences: number of sentences per batch, each read once for all its windows.
      max_epochs: maximum number of epochs.
      patience: number of epochs without a lower validation loss before training ends.
    """

    embedding_dim: int = 64
    hidden_dim: int = 64
    window_dim: int = 64
    num_layers: int = 1
    cell: str = "lstm"
    dropout: float = 0.3
    learning_rate: float = 2e-3
    permutations: int = 20
    batch_sentences: int = 128
    max_epochs: int = 30
    patience: int = 3


class WindowBatch(NamedTuple):
    """Sentences w1..wM [N, R], padded; windows as indices of sentences, START or END [W, 3];
    whether windows are from documents [W]; and their weights in the loss, 0 for padding [W]."""

    tokens_NxR: np.ndarray
    mask_NxR: np.ndarray
    windows_Wx3: np.ndarray
    is_real_W: np.ndarray
    weight_W: np.ndarray


def init(key: jax.Array, vocab_size: int, options: Options) -> Params:
    """Initial parameters: Glorot-uniform matrices, the cell's biases, and other biases at zero."""
    keys = jax.random.split(key, 5)
    K, H, Q = options.embedding_dim, options.hidden_dim, options.window_dim
    return {
        "embedding": glorot_uniform(keys[0], vocab_size, K, fan_in=1),
        "encoder": stack.init_stack(keys[1], options.cell, options.num_layers, K, H),
        # The vectors of START and END, in this order.
        "boundary": glorot_uniform(keys[2], 2, H),
        "hidden": {"kernel": glorot_uniform(keys[3], WIDTH * H, Q), "bias": jnp.zeros(Q)},
        "output": {"kernel": glorot_uniform(keys[4], Q, 1)[:, 0], "bias": jnp.zeros(())},
    }


def encode(
    params: Params,
    cell: str,
    tokens_NxR: jax.Array,
    mask_NxR: jax.Array,
    key: jax.Array | None = None,
    rate: float = 0.0,
) -> jax.Array:
    """The vectors of sentences [R, H]: the top hidden state after the last word. With a random key,
    embeddings are dropped at `rate`."""
    layers = [
        {name: Weight(array) if array.ndim == 2 else array for name, array in layer.items()}
        for layer in params["encoder"]
    ]
    x_NxRxK = params["embedding"][tokens_NxR]
    if key is not None:
        x_NxRxK = x_NxRxK * drop(key, x_NxRxK.shape, rate)
    like_H = params["boundary"][0]
    zero = stack.initial_state(cell, len(layers), tokens_NxR.shape[1], like_H)
    x_NxR = stack.stack_input(layers, x_NxRxK)
    state, _ = stack.read_stack(cell, layers, zero, x_NxR, mask_NxR, default_plan())
    return stack.top_hidden(state)


def window_logits(params: Params, vectors_RxH: jax.Array, windows_Wx3: jax.Array) -> jax.Array:
    """u . tanh(W [h_{t-1}, h_t, h_{t+1}] + b) + c for each window, [W]."""
    vectors = jnp.concatenate([vectors_RxH, params["boundary"]])
    joined_Wx3H = vectors[windows_Wx3].reshape(len(windows_Wx3), -1)
    q_WxQ = jnp.tanh(joined_Wx3H @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return q_WxQ @ params["output"]["kernel"] + params["output"]["bias"]


def batch_loss(
    params: Params,
    options: Options,
    batch: WindowBatch,
    key: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The weighted sum of -log P of the labels in nats, and the sum of the weights. Dropout needs a
    random key."""
    tokens_NxR, mask_NxR, windows_Wx3, is_real_W, weight_W = map(jnp.asarray, batch)
    keys = (None, None) if key is None else jax.random.split(key)
    vectors_RxH = encode(params, options.cell, tokens_NxR, mask_NxR, keys[0], options.dropout)
    if keys[1] is not None:
        vectors_RxH = vectors_RxH * drop(keys[1], vectors_RxH.shape, options.dropout)
    logits_W = window_logits(params, vectors_RxH, windows_Wx3)
    nll_W = jax.nn.softplus(jnp.where(is_real_W, -logits_W, logits_W))
    return jnp.sum(nll_W * weight_W), jnp.sum(weight_W)


class WindowClassifier(OrderingBaseline):
    """The trained classifier; see the module."""

    name = "neural"
    context_order = None

    def __init__(self, params: Params, cell: str):
        self.params, self.cell = params, cell
        self.num_parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
        self._encode = jax.jit(at_precision(SCORING_PRECISION, partial(encode, cell=cell)))
        self._logits = jax.jit(at_precision(SCORING_PRECISION, window_logits))

    @classmethod
    def train(
        cls,
        train: Corpus,
        valid: Corpus,
        *,
        seed: int,
        report: Report,
        options: Options | None = None,
    ) -> "WindowClassifier":
        """See `OrderingBaseline.train`; the parameters are from the epoch with the lowest loss on
        `valid`.

        Raises:
          DivergenceError: the loss on `valid` is not a number.
        """
        options = options or Options()
        init_key, dropout_key = jax.random.split(jax.random.key(seed))
        params = init(init_key, len(train.vocabulary), options)
        optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(options.learning_rate))
        state = optimizer.init(params)

        @jax.jit
        def train_step(
            params: Params, state: optax.OptState, batch: WindowBatch, key: jax.Array
        ) -> tuple[Any, optax.OptState]:
            def mean_loss(params: Params) -> jax.Array:
                total, weight = batch_loss(params, options, batch, key)
                return total / weight

            updates, state = optimizer.update(jax.grad(mean_loss)(params), state, params)
            return optax.apply_updates(params, updates), state

        validation_loss = partial(batch_loss, options=options)
        loss_of = jax.jit(at_precision(SCORING_PRECISION, validation_loss))
        valid_batches = list(batches(valid, options, [_VALIDATION, seed]))
        best, best_loss, best_epoch, step = params, np.inf, 0, 0
        for epoch in range(1, options.max_epochs + 1):
            for batch in batches(train, options, [_TRAINING, seed, epoch]):
                key = jax.random.fold_in(dropout_key, step)
                params, state = train_step(params, state, batch, key)
                step += 1
            sums = np.array([loss_of(params, batch=batch) for batch in valid_batches], np.float64)
            loss = sums[:, 0].sum() / sums[:, 1].sum()
            report(
                f"neural: epoch {epoch}, {step:,} steps, validation loss {loss:.4f} nats per window"
            )
            if not np.isfinite(loss):
                raise DivergenceError(f"the validation loss is {loss} after {step} steps")
            if loss < best_loss:
                best, best_loss, best_epoch = jax.device_get(params), loss, epoch
            elif epoch - best_epoch >= options.patience:
                break
        return cls(best, options.cell)

    def windows(self, document: Document) -> list[list[Window]]:
        padded = [None, *document, None]
        return [[tuple(padded[i : i + WIDTH])] for i in range(len(document))]

    def judge(self, windows: Sequence[Window]) -> np.ndarray:
        numbers: dict[bytes, int] = {}
        sentences: list[np.ndarray] = []

        def number(sentence: np.ndarray | None, position: int) -> int:
            if sentence is None:
                return START if position == 0 else END
            content = np.asarray(sentence, np.int32).tobytes()
            if content not in numbers:
                numbers[content] = len(sentences)
                sentences.append(sentence)
            return numbers[content]

        windows_Wx3 = np.array(
            [[number(content, at) for at, content in enumerate(window)] for window in windows]
        )
        vectors_RxH = self._vectors(sentences)
        # Padding keeps the number of compiled shapes low; START and END are indices from the end.
        padding = power_of_two(len(vectors_RxH)) - len(vectors_RxH)
        vectors_RxH = np.pad(vectors_RxH, ((0, padding), (0, 0)))
        logits = []
        for first in range(0, len(windows_Wx3), _SCORED_WINDOWS):
            part = windows_Wx3[first : first + _SCORED_WINDOWS]
            padded = np.pad(part, ((0, _SCORED_WINDOWS - len(part)), (0, 0)))
            logits.append(np.asarray(self._logits(self.params, vectors_RxH, padded))[: len(part)])
        return -np.logaddexp(0.0, -np.concatenate(logits).astype(np.float64))

    def _vectors(self, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """The vectors of different sentences [R, H]; sentences of similar length share a batch."""
        order = np.argsort([len(sentence) for sentence in sentences], kind="stable")
        vectors: list[np.ndarray] = []
        for first in range(0, len(order), _SCORED_SENTENCES):
            part = [sentences[i] for i in order[first : first + _SCORED_SENTENCES]]
            tokens_NxR, mask_NxR = _padded(part, _SCORED_SENTENCES)
            encoded = self._encode(self.params, tokens_NxR=tokens_NxR, mask_NxR=mask_NxR)
            vectors.extend(np.asarray(encoded)[: len(part)])
        return np.array(vectors)[np.argsort(order)]


def batches(corpus: Corpus, options: Options, seed: Sequence[int]) -> Iterator[WindowBatch]:
    """One epoch of the documents of a split and their permutations, in an order given by the seed.

    A batch has documents whose longest sentences have similar lengths, with at most
    `batch_sentences` sentences in total; a longer document is a separate batch. R is a power of
    two, W follows from R, and N is a bucket of lengths.
    """
    rng = np.random.default_rng(list(seed))
    labelled = all_labelled_windows(corpus, options.permutations, rng, WIDTH, padded=True)
    parts = [(corpus.document(number), windows) for number, windows in labelled.items()]
    lengths = [length_bucket(max(map(len, document))) for document, _ in parts]
    shuffled = rng.permutation(len(parts))
    groups: list[list[tuple[Document, LabelledWindows]]] = []
    capacity = 0
    for index in shuffled[np.argsort(np.array(lengths)[shuffled], kind="stable")]:
        size = len(parts[index][0])
        if size > capacity:
            groups.append([])
            capacity = options.batch_sentences
        groups[-1].append(parts[index])
        capacity -= size
    for index in rng.permutation(len(groups)):
        yield _window_batch(groups[index], options)


def _window_batch(parts: list[tuple[Document, LabelledWindows]], options: Options) -> WindowBatch:
    sentences = [sentence for document, _ in parts for sentence in document]
    rows = power_of_two(max(len(sentences), options.batch_sentences))
    tokens_NxR, mask_NxR = _padded(sentences, rows)
    size = rows * (1 + options.permutations)
    windows_Wx3 = np.zeros((size, WIDTH), np.int32)
    is_real_W, weight_W = np.zeros(size, bool), np.zeros(size, np.float32)
    first_sentence = first = 0
    for document, (windows_Mx3, is_real_M) in parts:
        rows_M = slice(first, first + len(windows_Mx3))
        windows_Wx3[rows_M] = np.where(windows_Mx3 < 0, windows_Mx3, windows_Mx3 + first_sentence)
        is_real_W[rows_M] = is_real_M
        num_real = is_real_M.sum()
        weight_W[rows_M] = np.where(is_real_M, 1.0, num_real / (len(is_real_M) - num_real))
        first, first_sentence = rows_M.stop, first_sentence + len(document)
    return WindowBatch(tokens_NxR, mask_NxR, windows_Wx3, is_real_W, weight_W)


def _padded(sentences: Sequence[np.ndarray], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and mask [N, R] of at most `rows` sentences."""
    lengths_R = np.zeros(rows, np.int64)
    lengths_R[: len(sentences)] = [len(sentence) for sentence in sentences]
    mask_NxR = np.arange(length_bucket(int(lengths_R.max())))[:, None] < lengths_R
    tokens_RxN = np.zeros(mask_NxR.T.shape, np.int32)
    tokens_RxN[mask_NxR.T] = np.concatenate(sentences)
    return np.ascontiguousarray(tokens_RxN.T), mask_NxR
