"""The choice of the next word (greedy, beam search, or sampling), and limits of texts."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from dclm_jax import files
from dclm_jax.errors import InputError

Method = Literal["greedy", "beam", "sample"]


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Options for choosing the words of a text.

    Attributes:
      method: choice of words: the most probable next word (greedy), the text that beam search finds
        (beam), or random words (sample).
      beam_width: beam width, the number of partial hypotheses per document; 1 is greedy search.
      length_normalization: exponent a in the score of beam search, log P(text) / terms^a, where the
        terms are the words, the ENDs and, for models that decide where a document ends, the
        decisions. 0 compares log P, which prefers short texts; 1 compares the mean per term.
      temperature: temperature T of sampling from softmax(log P / T). Below 1, probable words become
        more probable; near 0, only the most probable word is drawn, or one of several equally
        probable words.
      top_k: number of most probable words to sample from. Words as probable as the last of them are
        included. Default: all words.
      top_p: minimum total probability, after temperature and `top_k`, of the most probable words to
        sample from (nucleus sampling, Holtzman et al. 2020); 1 for all words.
      allow_unknown: generate UNKNOWN, too.

    With a vocabulary of subwords, temperature, `top_k` and `top_p` act on the next piece. They also
    act on the decision of autoencoders whether a document ends. START and empty sentences are never
    generated. Sampling renormalizes over the words that may be generated; log-probabilities and
    scores of beams are the model's, over its whole vocabulary.
    """

    method: Method = "greedy"
    beam_width: files.Size = 5
    length_normalization: files.Finite = 0.0
    temperature: files.FinitePositive = 1.0
    top_k: files.Size | None = None
    top_p: Annotated[
        float, files.Range(math.nextafter(0, 1), 1, "a number above 0 and at most 1")
    ] = 1.0
    allow_unknown: bool = False

    def __post_init__(self):
        files.require_valid(self)

    @property
    def width(self) -> int:
        """Partial hypotheses per document."""
        return self.beam_width if self.method == "beam" else 1

    def normalized(self, log_prob: jax.Array, terms: jax.Array) -> jax.Array:
        """The scores of partial hypotheses, from their log P and numbers of terms."""
        if not self.length_normalization:
            return log_prob
        return log_prob / jnp.maximum(terms, 1).astype(log_prob.dtype) ** self.length_normalization


GREEDY = Decoding()


@dataclasses.dataclass(frozen=True)
class Limits:
    """Maximum numbers of sentences, of words per sentence, and of words; END is not counted.

    Counts are int32; memory for a sentence grows with its maximum number of words.
    """

    num_sentences: files.Size
    max_sentence_words: files.Size
    max_words: files.Size = 2**31 - 1

    def __post_init__(self):
        files.require_valid(self)


def choose(
    decoding: Decoding,
    log_prob_R: jax.Array,
    terms_R: jax.Array,
    options_RxC: jax.Array,
    keys_R: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Chooses the extensions of partial hypotheses.

    Args:
      decoding: method and options of decoding.
      log_prob_R: log P in nats of the partial hypotheses; the W of each document are adjacent.
      terms_R: numbers of terms of the extended hypotheses.
      options_RxC: log P in nats of each option, -inf for options that are not allowed.
      keys_R: random keys for sampling.

    Returns:
      For each extended hypothesis the row that it extends and its option, both int [R].
    """
    rows, num_options = options_RxC.shape
    if decoding.method == "sample":
        # Inverse transform sampling needs one random number per row, Gumbel noise one per option.
        probs_RxC = jax.nn.softmax(restricted(decoding, options_RxC))
        # A parallel cumulative sum may grow by rounding where 0 is added.
        sums_RxC = jnp.where(probs_RxC > 0, jnp.cumsum(probs_RxC, axis=-1), 0)
        drawn_R = jax.vmap(jax.random.uniform)(keys_R) * jnp.max(sums_RxC, axis=-1)
        return jnp.arange(rows), jnp.argmax(sums_RxC > drawn_R[:, None], axis=-1)
    width = decoding.width
    if width == 1:
        return jnp.arange(rows), jnp.argmax(options_RxC, axis=-1)
    # The best extensions of a document are among the best extensions of each hypothesis.
    best_RxK, option_RxK = jax.lax.top_k(options_RxC, min(width, num_options))
    scores_RxK = decoding.normalized(log_prob_R[:, None] + best_RxK, terms_R[:, None])
    _, best_BxW = jax.lax.top_k(scores_RxK.reshape(rows // width, -1), width)
    first_Bx1 = width * jnp.arange(rows // width)[:, None]
    row_R = (first_Bx1 + best_BxW // best_RxK.shape[1]).reshape(-1)
    return row_R, option_RxK[row_R, (best_BxW % best_RxK.shape[1]).reshape(-1)]


def restricted(decoding: Decoding, log_probs_RxC: jax.Array) -> jax.Array:
    """The logits for sampling, -inf for options that top k and top p exclude."""
    num_options = log_probs_RxC.shape[-1]
    if decoding.top_k is not None and decoding.top_k < num_options:
        best_RxK, _ = jax.lax.top_k(log_probs_RxC, decoding.top_k)
        log_probs_RxC = jnp.where(log_probs_RxC < best_RxK[:, -1:], -jnp.inf, log_probs_RxC)
    if decoding.top_p < 1:
        sorted_RxC = jnp.sort(log_probs_RxC, axis=-1, descending=True)
        probs_RxC = jax.nn.softmax(_tempered(decoding, sorted_RxC))
        top_p = max(decoding.top_p, _tiny(log_probs_RxC))
        is_kept_RxC = jnp.cumsum(probs_RxC, axis=-1) - probs_RxC < top_p
        least_Rx1 = jnp.min(sorted_RxC, axis=-1, keepdims=True, where=is_kept_RxC, initial=jnp.inf)
        log_probs_RxC = jnp.where(log_probs_RxC < least_Rx1, -jnp.inf, log_probs_RxC)
    return _tempered(decoding, log_probs_RxC)


def _tempered(decoding: Decoding, log_probs_RxC: jax.Array) -> jax.Array:
    """log P / T, shifted to 0 for the likeliest option, which is exact for every T."""
    # Shifting after the division would round twice, by more than the differences if T is small.
    # Beyond these bounds T has no further effect: only the likeliest options are drawn, or all
    # options are equally likely.
    tiny = _tiny(log_probs_RxC)
    temperature = min(max(decoding.temperature, tiny), 1 / tiny)
    return (log_probs_RxC - jnp.max(log_probs_RxC, axis=-1, keepdims=True)) / temperature


def _tiny(array: jax.Array) -> float:
    """The smallest normal number, which no device flushes to 0; its reciprocal is finite."""
    return float(jnp.finfo(array.dtype).tiny)


def random_keys(seeds: Sequence[int], numbers: Sequence[int]) -> jax.Array:
    """Random keys for sampling, derived from a seed and a document number, so that the text of a
    document does not depend on other documents."""
    for seed in seeds:
        if not (0 <= seed < 2**32 and seed % 1 == 0):
            raise InputError(f"seed is {seed}; expected a whole number from 0 to 2^32 - 1")

    def key(seed: jax.Array, number: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.key(seed), number)

    return jax.vmap(key)(jnp.array(seeds, jnp.uint32), jnp.array(numbers, jnp.uint32))
