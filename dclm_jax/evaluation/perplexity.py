"""Corpus perplexity, with everything that is needed to compare it with another one."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dclm_jax.data.vocabulary import UNKNOWN
from dclm_jax.errors import InputError
from dclm_jax.evaluation.scoring import Document, WordScorer, sentences_to_score

COUNTING_RULE = "END is predicted and counted, START never is"
COUNTING_RULES = {
    "words": COUNTING_RULE,
    "bags": "bags of words: the words are predicted without their order, END is not",
}
"""By the objective of a model. Perplexities of different objectives do not compare."""
# A text has many more unknown words than the run's own if their share is above both of these.
_MANY_MORE, _TIMES_AS_MANY = 0.02, 1.5


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """Sums over documents, from which perplexity follows.

    Attributes:
      vocabulary_size: V, the three special tokens included.
      nll: sum of -log P(target), in nats.
      tokens: targets, the words of every sentence and its END; of bags without END.
      words: targets without the ENDs.
      oov_words: words outside the vocabulary, predicted as UNKNOWN.
      sentences: how many.
      documents: how many.
      objective: of the model, what a target is: one of COUNTING_RULES.
      known_nll: the part of `nll` that is not of words outside the vocabulary.
      characters: of the words as the text has them, each with the space or the end of a line after
        it; 0 if they are not known.
      original_tokens: of the text as published perplexities count them, which may have other ends
        of sentences; 0 if that is not known.
      own_oov_rate: `oov_rate` of the test split that belongs to the model's training text; None if
        it is not known.
    """

    vocabulary_size: int
    nll: float = 0.0
    tokens: int = 0
    words: int = 0
    oov_words: int = 0
    sentences: int = 0
    documents: int = 0
    objective: str = "words"
    known_nll: float = 0.0
    characters: int = 0
    original_tokens: int = 0
    own_oov_rate: float | None = None

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens), never clipped: infinite where that overflows, nan without tokens."""
        return _perplexity(self.nll, self.tokens)

    def __float__(self) -> float:
        return self.perplexity

    @property
    def known_tokens(self) -> int:
        """Targets that are not words outside the vocabulary."""
        return self.tokens - self.oov_words

    @property
    def known_perplexity(self) -> float | None:
        """That over the known targets: all unknown words count as one, which is easy where they are
        many, and hard where training had none. None where no target is known."""
        return _perplexity(self.known_nll, self.known_tokens) if self.known_tokens else None

    @property
    def bits_per_word(self) -> float:
        """Bits of all targets for each word."""
        return self.nll / math.log(2) / self.words if self.words else math.nan

    @property
    def bits_per_character(self) -> float | None:
        """Bits of all targets for each of `characters`; None if these are not known."""
        return self.nll / math.log(2) / self.characters if self.characters else None

    @property
    def original_perplexity(self) -> float | None:
        """exp(nll / original_tokens), all nats over another number of tokens: what to hold against
        published perplexities of the text; None if that number is not known."""
        return _perplexity(self.nll, self.original_tokens) if self.original_tokens else None

    @property
    def oov_rate(self) -> float:
        """Share of the words that are outside the vocabulary, 0 to 1."""
        return self.oov_words / self.words if self.words else 0.0

    @property
    def warning(self) -> str:
        """The function `warning` for its rates of unknown words."""
        return warning(self.oov_rate, self.own_oov_rate)

    def add(self, document: Document, nll: list[np.ndarray], characters: int = 0) -> "Perplexity":
        """These sums and those of one more document, scored by `Scorer.score`."""
        words = sum(len(sentence) for sentence in document)
        known = [np.append(np.not_equal(ids, UNKNOWN), True) for ids in document]
        ends = len(document) if self.objective == "words" else 0
        return dataclasses.replace(
            self,
            nll=self.nll + _sum(nll),
            tokens=self.tokens + words + ends,
            words=self.words + words,
            oov_words=self.oov_words + sum(one.size - int(one.sum()) for one in known),
            sentences=self.sentences + len(document),
            documents=self.documents + 1,
            known_nll=self.known_nll
            + _sum([one[mask] for one, mask in zip(nll, known, strict=True)]),
            characters=self.characters + characters,
        )

    def to_json(self) -> dict[str, Any]:
        """Everything above as a JSON object, with the counting rule."""
        return {
            "perplexity": self.perplexity,
            **dataclasses.asdict(self),
            "nll_unit": "nats",
            "oov_rate": self.oov_rate,
            "known_perplexity": self.known_perplexity,
            "original_perplexity": self.original_perplexity,
            "bits_per_word": self.bits_per_word,
            "bits_per_character": self.bits_per_character,
            "counting_rule": COUNTING_RULES[self.objective],
        }

    def require_words(self, purpose: str) -> None:
        """Refuses sums over no words, whose measures would not be numbers.

        Args:
          purpose: what the words are needed for, such as "score".
        """
        if not self.words:
            raise InputError(f"there are no words to {purpose}; expected a sentence with words")

    @property
    def description(self) -> str:
        """What was measured on, and how it was counted."""
        own = self.own_oov_rate
        than = "" if own is None else f" ({100 * own:.2f}% in the run's own test split)"
        lines = [
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.words:,} words, "
            f"{100 * self.oov_rate:.2f}% out of vocabulary{than}; "
            f"vocabulary {self.vocabulary_size:,}",
            f"counting: {COUNTING_RULES[self.objective]}",
        ]
        return "\n".join([*lines, self.warning] if self.warning else lines)

    def __str__(self) -> str:
        bits = f"{self.bits_per_word:.4f} bits a word"
        if self.bits_per_character is not None:
            bits += f", {self.bits_per_character:.4f} bits a character"
        lines = [
            f"perplexity {self.perplexity:.4f} "
            f"= exp({self.nll:.2f} nats / {self.tokens:,} targets); {bits}",
        ]
        if self.known_perplexity is not None:
            lines.append(
                f"of known targets {self.known_perplexity:.4f} "
                f"= exp({self.known_nll:.2f} nats / {self.known_tokens:,} targets)"
            )
        if self.original_perplexity is not None:
            lines.append(
                f"as published ones are counted {self.original_perplexity:.4f} "
                f"= exp({self.nll:.2f} nats / {self.original_tokens:,} tokens of the original text)"
            )
        return "\n".join([*lines, self.description])


def warning(oov_rate: float, own_oov_rate: float | None, text: str = "") -> str:
    """What is to be told where unknown words are many more than in the run's own text; empty
    elsewhere, and where that is not known. It begins with the name of the text, if there is one."""
    own = own_oov_rate
    if own is None or oov_rate <= max(own + _MANY_MORE, _TIMES_AS_MANY * own):
        return ""
    name = f"{text}: " if text else ""
    return (
        f"warning: {name}{100 * oov_rate:.2f}% of the words are unknown, {100 * own:.2f}% of those "
        "of the run's own test split: results do not compare with those of text that it knows"
    )


def _sum(nll: list[np.ndarray]) -> float:
    return math.fsum(float(np.sum(one, dtype=np.float64)) for one in nll)


def _perplexity(nll: float, targets: int) -> float:
    if not targets:
        return math.nan
    try:
        return math.exp(nll / targets)
    except OverflowError:
        return math.inf


def measure(
    scorer: WordScorer,
    documents: Iterable[Any],
    *,
    on_document: Callable[[int], None] = lambda done: None,
) -> Perplexity:
    """The perplexity of documents (word ids, as `Scorer.score` takes them), each scored whole.

    Documents are streamed. Those that have `characters` are `datasets.Encoded`. `on_document` is
    called with the number of documents so far.
    """
    total = Perplexity(vocabulary_size=scorer.vocab_size, objective=scorer.objective)
    for document, nll in scorer.score(documents):
        characters = getattr(document, "characters", 0)
        total = total.add(sentences_to_score(document)[0], nll, characters)
        on_document(total.documents)
    total.require_words("score")
    return total
