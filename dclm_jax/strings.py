"""Log-probabilities of continuations of strings.

A string is one document, divided into sentences and words as the run's training text. Dividers and
blank lines end no document. Raw text is tokenized; a blank line ends its paragraph. In other text
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
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from dclm_jax.data.prose import WordLists
from dclm_jax.data.vocabulary import END, UNKNOWN, Vocabulary
from dclm_jax.data.words import WordMaker
from dclm_jax.language_model import LanguageModel
from dclm_jax.scoring.distributions import GREATEST_RANK

Divide = Callable[[str], WordLists]
"""A function that divides a string into sentences of words."""
_NEXT_WORD = " We"
_STRINGS = 1024
"""Number of divided strings in memory: the answers to a question share their context."""


class ContinuationScore(NamedTuple):
    """The score of a continuation.

    Attributes:
      log_prob: log P in nats of its targets, given the context.
      is_greedy: whether each target is the likeliest target after all earlier words. An OOV word is
        never the likeliest, because UNKNOWN does not say which word it is. With a vocabulary of
        subwords, whether each piece of the targets is the likeliest.
      ids: ids of the targets, of words or of their pieces.
    """

    log_prob: float
    is_greedy: bool
    ids: tuple[int, ...]

    @property
    def num_unknown(self) -> int:
        """The number of OOV words among the targets."""
        return self.ids.count(UNKNOWN)

    @property
    def is_unknown(self) -> bool:
        """Whether all words of the continuation are OOV."""
        return {*self.ids} - {END} == {UNKNOWN}


class _Part(NamedTuple):
    """The targets of a continuation in the last of some sentences: `first` to `last` - 1 of w1..wM
    END, and their ids."""

    sentences: list[np.ndarray]
    first: int
    last: int
    targets: list[int]
    num_scored: int = 1


def sentences_of(lm: LanguageModel, text: str) -> WordLists:
    """The words of the sentences of a string."""
    return WordMaker(lm.string_options()).sentences(text)


def _is_complete(divide: Divide, text: str) -> bool:
    """Whether a string has no words, or shows that its last sentence has ended."""
    return len(divide(text + _NEXT_WORD)) > len(divide(text))


def score(lm: LanguageModel, requests: Iterable[tuple[str, str]]) -> list[ContinuationScore]:
    """The scores of continuations.

    Args:
      lm: a neural model that predicts words.
      requests: contexts and their continuations.
    """
    divide = functools.lru_cache(_STRINGS)(functools.partial(sentences_of, lm))
    parts = [_parts(lm.vocabulary, divide, *request) for request in requests]
    measured = lm.distributions(itertools.chain(*parts), no_context_too=False)
    continuations = []
    for request_parts in parts:
        log_probs, greedy, ids = [], True, []
        for part, (_, (sentence,)) in zip(request_parts, measured, strict=False):
            targets = slice(part.first, part.last)
            log_probs += (-sentence["surprisal"][targets]).tolist()
            is_likeliest = (sentence[GREATEST_RANK][targets] == 1).all()
            greedy = greedy and bool(is_likeliest) and UNKNOWN not in part.targets
            ids += part.targets
        continuations.append(ContinuationScore(math.fsum(log_probs), greedy, tuple(ids)))
    return continuations


def _parts(vocabulary: Vocabulary, divide: Divide, context: str, continuation: str) -> list[_Part]:
    """The targets of a continuation by sentence."""
    text = context + continuation
    words_of_both = (itertools.chain(*divide(string)) for string in (text, context))
    pairs = zip(*words_of_both, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    sentences, parts = divide(text), []
    ids = list(map(vocabulary.encode, sentences))
    for number, words in enumerate(sentences):
        first = min(shared, len(words))
        shared -= first
        if first == len(words) and (shared or _is_complete(divide, context)):
            # END belongs to the context.
            continue
        ends = number + 1 < len(ids) or _is_complete(divide, text)
        targets = [*vocabulary.encode(words[first:]).tolist(), *([END] if ends else [])]
        parts.append(_Part(ids[: number + 1], first, len(words) + ends, targets))
    return parts
