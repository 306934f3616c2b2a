"""Corpus perplexity, with the counts that comparisons with other perplexities need."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dclm_jax.data.documents import OnDocument
from dclm_jax.data.vocabulary import FIRST_WORD
from dclm_jax.errors import InputError
from dclm_jax.scoring.scorer import Scorer, known_targets

COUNTING_RULES = {
    "words": "END is predicted and counted, START never is",
    "bags": "bags of words: the words are predicted without their order, END is not",
}
"""Rules by the objective of a model. Perplexities of different objectives are not comparable."""


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """Sums over documents, from which perplexity follows.

    Attributes:
      vocabulary_size: V, words or pieces of words, including the three special tokens.
      nll: sum of -log P(target), in nats.
      tokens: number of targets: the words and the END of every sentence; no END in bags of words.
      words: number of targets without ENDs.
      oov_words: number of words outside the vocabulary, predicted as UNKNOWN.
      unpredicted_words: number of words that a vocabulary of subwords reads and does not predict:
        the text's own spelling of OOV words. They are neither `words` nor `tokens`.
      has_pieces: whether the vocabulary has pieces of words.
      objective: one of COUNTING_RULES.
      known_nll: the sum over in-vocabulary targets.
      characters: number of characters of the words in the text, each word with one separator; 0 if
        unknown.
      original_tokens: number of tokens of the text that published perplexities count; 0 if unknown.
      usual_oov_rate: `oov_rate` of the test split of the training corpus; None if unknown.
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
    usual_oov_rate: float | None = None
    unpredicted_words: int = 0
    has_pieces: bool = False

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens), never clipped: infinite on overflow, nan without targets."""
        return _perplexity(self.nll, self.tokens)

    @property
    def known_tokens(self) -> int:
        """Number of in-vocabulary targets, including END."""
        return self.tokens - self.oov_words

    @property
    def known_perplexity(self) -> float | None:
        """Perplexity of in-vocabulary targets; None if there are none. OOV words are omitted,
        because every OOV word counts as UNKNOWN. UNKNOWN is easy to predict in a text with many OOV
        words, and hard to predict if the training text has no OOV words."""
        return _perplexity(self.known_nll, self.known_tokens) if self.known_tokens else None

    @property
    def bits_per_word(self) -> float:
        """Bits of all targets per word: END is among the targets, so it is not log2(perplexity)."""
        return self.nll / math.log(2) / self.words if self.words else math.nan

    @property
    def bits_per_character(self) -> float | None:
        """Bits of all targets per character; None if `characters` is not known, or if words are
        OOV, whose letters UNKNOWN does not spell."""
        if not self.characters or self.oov_words:
            return None
        return self.nll / math.log(2) / self.characters

    @property
    def original_perplexity(self) -> float | None:
        """exp(nll / original_tokens), which is comparable with published perplexities of the text;
        None if `original_tokens` is not known."""
        return _perplexity(self.nll, self.original_tokens) if self.original_tokens else None

    @property
    def oov_rate(self) -> float:
        """Share of OOV words, 0 to 1."""
        return self.oov_words / self.words if self.words else 0.0

    def add(self, document: Any, nll: list[np.ndarray], known: list[np.ndarray]) -> "Perplexity":
        """The sums with one more document, scored whole, with its `known_targets`; `Encoded`
        documents have `characters`."""
        num_unknown = sum(int((~mask).sum()) for mask in known)
        unpredicted = num_unknown if self.has_pieces else 0
        words = sum(len(mask) - 1 for mask in known) - unpredicted
        ends = len(known) if self.objective == "words" else 0
        known_nll = [nats[mask] for nats, mask in zip(nll, known, strict=True)]
        return dataclasses.replace(
            self,
            nll=self.nll + _sum(nll),
            tokens=self.tokens + words + ends,
            words=self.words + words,
            oov_words=self.oov_words + num_unknown - unpredicted,
            unpredicted_words=self.unpredicted_words + unpredicted,
            sentences=self.sentences + len(known),
            documents=self.documents + 1,
            known_nll=self.known_nll + _sum(known_nll),
            characters=self.characters + getattr(document, "characters", 0),
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Perplexity":
        """The sums in an object from `to_json`; a sum of None is infinite."""
        # Files of vocabularies of words may lack the facts of subwords.
        value = {"unpredicted_words": 0, "has_pieces": False, **value}
        sums = {field.name: value[field.name] for field in dataclasses.fields(cls)}
        infinite = {name: math.inf for name in ("nll", "known_nll") if sums[name] is None}
        return cls(**{**sums, **infinite})

    def to_json(self) -> dict[str, Any]:
        """The sums, the results computed from them, and the counting rule as a JSON object."""
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
        """Raises an `InputError` if there are no words; the purpose is a verb, such as "score"."""
        if not self.words:
            raise InputError(f"there are no words to {purpose}; expected a sentence with words")

    @property
    def description(self) -> str:
        """The size of the text, and the counting rule."""
        size = f"{self.documents:,} documents, {self.sentences:,} sentences, {self.words:,} words, "
        if self.has_pieces:
            size += f"none out of vocabulary; vocabulary {self.vocabulary_size:,} subwords"
        else:
            rate = self.usual_oov_rate
            than = "" if rate is None else f" ({100 * rate:.2f}% in the run's own test split)"
            size += (
                f"{100 * self.oov_rate:.2f}% out of vocabulary{than}; "
                f"vocabulary {self.vocabulary_size:,}"
            )
        lines = [size, f"counting: {COUNTING_RULES[self.objective]}"]
        if self.unpredicted_words:
            lines.append(
                f"not counted: {self.unpredicted_words:,} words that the text itself marks as OOV, "
                "which are read and not predicted"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        bits = f"{self.bits_per_word:.4f} bits per word"
        if self.oov_words:
            bits += " (an OOV word has only the bits of UNKNOWN)"
        if self.bits_per_character is not None:
            bits += f", {self.bits_per_character:.4f} bits per character"
        lines = [
            f"perplexity {self.perplexity:.4f} "
            f"= exp({self.nll:.2f} nats / {self.tokens:,} targets); {bits}",
        ]
        if self.known_perplexity is not None and not self.has_pieces:
            lines.append(
                f"perplexity (in-vocabulary) {self.known_perplexity:.4f} "
                f"= exp({self.known_nll:.2f} nats / {self.known_tokens:,} targets)"
            )
        if self.original_perplexity is not None:
            lines.append(
                f"perplexity (published counting) {self.original_perplexity:.4f} "
                f"= exp({self.nll:.2f} nats / {self.original_tokens:,} tokens of the original text)"
            )
        return "\n".join([*lines, self.description])


def perplexity_of(
    scorer: Scorer,
    documents: Iterable[Any],
    *,
    on_document: OnDocument = lambda done: None,
) -> Perplexity:
    """The perplexity of documents, as `Scorer.score` takes them, scored whole."""
    total = empty_sums([scorer])
    for document, nll in scorer.score(documents):
        total = total.add(document, nll, known_targets(scorer, document))
        on_document(total.documents)
    total.require_words("score")
    return total


def empty_sums(scorers: Sequence[Scorer]) -> Perplexity:
    """Empty sums for models with comparable perplexities."""
    first = scorers[0]
    if any(scorer.objective != first.objective for scorer in scorers):
        raise InputError(
            "some models predict bags of words and others words, so their perplexities are not "
            "comparable; choose models with one objective"
        )
    return Perplexity(
        vocabulary_size=first.vocab_size,
        objective=first.objective,
        has_pieces=first.first_word_end > FIRST_WORD,
    )


def _sum(nll: list[np.ndarray]) -> float:
    return math.fsum(float(np.sum(nats, dtype=np.float64)) for nats in nll)


def _perplexity(nll: float, targets: int) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(nll / targets)) if targets else math.nan
