"""Log-probabilities of continuations of strings, and strings that a model generates.

A string is one document, divided into sentences and words as the run's training text. Dividers and
blank lines end no document. Raw text is tokenised; a blank line ends its paragraph. In other text
every line is a sentence. The targets of a string are its words, and END wherever the string shows
that a sentence ends: between two of its sentences, and after its last word if another word, in
upper case, would begin a new sentence there. Punctuation shows the end of a sentence in raw text,
and a line break shows it in other text.

A continuation has the targets of context + continuation without the targets of the context. A
context that ends inside a sentence leaves the sentence open, and the continuation begins there. If
the sentence ends with the context only because of the continuation, this END is a target of the
continuation. Words of the context that the continuation changes ("don" before "'t") are targets of
the continuation.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import NO_DIVIDER
from dclm_jax.data.readers import finds_words, remembered
from dclm_jax.data.vocabulary import END, END_TOKEN, UNKNOWN, Vocabulary
from dclm_jax.decoding.choices import GREEDY, Decoding
from dclm_jax.language_model import LanguageModel
from dclm_jax.reading.blocks import MAX_ROWS, batches_of_like_size, power_of_two, size_of
from dclm_jax.reading.continuations import SentenceReader, filled_up
from dclm_jax.reading.reader import Reader

Sentences = list[list[str]]
Divide = Callable[[str], Sentences]
"""A function that divides a string into sentences of words."""
_NEXT_WORD = " We"
_STRINGS = 1024
"""Number of divided strings in memory: the answers to a question share their context."""


class Continuation(NamedTuple):
    """The score of a continuation.

    Attributes:
      log_prob: log P in nats of its targets, given the context.
      is_greedy: whether each target is the likeliest target after all earlier words. An OOV word is
        never the likeliest, because UNKNOWN does not say which word it is.
      ids: ids of the targets.
    """

    log_prob: float
    is_greedy: bool
    ids: tuple[int, ...]

    @property
    def is_unknown(self) -> bool:
        """Whether all words of the continuation are OOV."""
        return {*self.ids} - {END} == {UNKNOWN}


class _Part(NamedTuple):
    """The targets of a continuation in one sentence: `first` to `last` - 1 of w1..wM END."""

    earlier: list[np.ndarray]
    words: np.ndarray
    first: int
    last: int

    @property
    def targets(self) -> list[int]:
        return [*self.words.tolist(), END][self.first : self.last]


def sentences_of(lm: LanguageModel, text: str) -> Sentences:
    """The words of the sentences of a string."""
    options = lm.string_options(divider=NO_DIVIDER)
    documents = lm.documents(text, options) if text.strip() else []
    return [words for document in documents for words in document.sentences]


def _is_complete(divide: Divide, text: str) -> bool:
    """Whether a string has no words, or shows that its last sentence has ended."""
    return len(divide(text + _NEXT_WORD)) > len(divide(text))


def score(
    lm: LanguageModel, requests: Iterable[tuple[str, str]], batch_size: int
) -> list[Continuation]:
    """The scores of continuations.

    Args:
      lm: a model that predicts words.
      requests: contexts and their continuations.
      batch_size: maximum number of sentences read together.
    """
    divide = functools.lru_cache(_STRINGS)(functools.partial(sentences_of, lm))
    parts = [_parts(lm.vocabulary, divide, *request) for request in requests]
    scores = iter(_score_parts(lm.reader, list(itertools.chain(*parts)), batch_size))
    continuations = []
    for request_parts in parts:
        log_probs, greedy = [], True
        for part, (log_prob, is_greedy) in zip(request_parts, scores, strict=False):
            log_probs.append(log_prob)
            greedy &= is_greedy and UNKNOWN not in part.targets
        ids = itertools.chain.from_iterable(part.targets for part in request_parts)
        continuations.append(Continuation(math.fsum(log_probs), greedy, tuple(ids)))
    return continuations


def _parts(vocabulary: Vocabulary, divide: Divide, context: str, continuation: str) -> list[_Part]:
    """The targets of a continuation by sentence."""
    text = context + continuation
    words_of_both = (itertools.chain(*divide(string)) for string in (text, context))
    pairs = zip(*words_of_both, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    ids, parts = list(map(vocabulary.encode, divide(text))), []
    for number, words in enumerate(ids):
        first = min(shared, len(words))
        shared -= first
        if first == len(words) and (shared or _is_complete(divide, context)):
            # END belongs to the context.
            continue
        ends = number + 1 < len(ids) or _is_complete(divide, text)
        parts.append(_Part(ids[:number], words, first, len(words) + ends))
    return parts


def _score_parts(
    reader: SentenceReader[Any], parts: Sequence[_Part], batch_size: int
) -> list[tuple[float, bool]]:
    """For each part log P in nats of its targets, and whether each is the likeliest."""
    scores = [(0.0, True)] * len(parts)
    sizes = [size_of([*part.earlier, part.words]) for part in parts]
    for batch, _ in batches_of_like_size(sizes, power_of_two(min(batch_size, MAX_ROWS))):
        together = [parts[index] for index in filled_up(batch)]
        length = max(part.last for part in together)
        targets_BxN = np.full((len(together), length + 1), END)
        for row, part in enumerate(together):
            targets_BxN[row, : len(part.words)] = part.words[: length + 1]
        log_probs_BxN, is_best_BxN = _along(
            reader, [part.earlier for part in together], targets_BxN[:, :length]
        )
        for row, index in enumerate(batch):
            targets = slice(parts[index].first, parts[index].last)
            log_prob = math.fsum(log_probs_BxN[row, targets].tolist())
            scores[index] = log_prob, bool(is_best_BxN[row, targets].all())
    return scores


def _along(
    reader: SentenceReader[Any], earlier: Sequence[list[np.ndarray]], targets_BxN: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """log P in nats [B, N] of the targets of one sentence after each of B documents, and whether
    each is the likeliest; undefined after END."""
    # An n-gram model has no context to read.
    state = reader.after(earlier) if isinstance(reader, Reader) else reader.open(len(earlier))
    sentence, log_probs = reader.start(state)
    row_B, log_probs_NxB, is_best_NxB = np.arange(len(earlier)), [], []
    for position, target_B in enumerate(targets_BxN.T):
        if position:
            sentence, log_probs = reader.next(sentence, targets_BxN[:, position - 1].tolist())
        log_probs_BxV = np.asarray(log_probs)
        log_probs_NxB.append(log_probs_BxV[row_B, target_B])
        is_best_NxB.append(log_probs_BxV.argmax(axis=1) == target_B)
    return np.array(log_probs_NxB, np.float64).T, np.array(is_best_NxB).T


def generate(
    lm: LanguageModel,
    context: str,
    max_targets: int,
    *,
    stops: Sequence[str] = (),
    decoding: Decoding = GREEDY,
    seed: int = 0,
) -> str:
    """The text that a model generates after a context, which may end inside a sentence.

    Args:
      lm: a model that generates words.
      max_targets: maximum number of words and ENDs.
      stops: strings that end the text, and are not part of it.
      decoding: "greedy" or "sample", with their options.
      seed: random seed for sampling.

    Returns:
      Words with spaces between them. If the training text had a sentence per line, a line break
      stands for END.
    """
    divide = functools.partial(sentences_of, lm)
    sentences = divide(context)
    begun = [] if _is_complete(divide, context) else sentences.pop()
    words = lm.read(sentences).stream(
        max_targets,
        decoding,
        prefix=begun,
        max_sentence_words=len(begun) + max_targets,
        seed=seed,
    )
    text = ""
    for text in _written(lm, (word for word, _ in itertools.islice(words, max_targets))):
        if at := [text.index(stop) for stop in stops if stop in text]:
            return text[: min(at)]
    return text


def _written(lm: LanguageModel, words: Iterable[str]) -> Iterator[str]:
    """The text after each word."""
    end = "" if finds_words(remembered(lm.string_options())) else "\n"
    text = ""
    for word in words:
        if word == END_TOKEN:
            text += end
        else:
            text += word if not text or text.endswith("\n") else f" {word}"
        yield text
