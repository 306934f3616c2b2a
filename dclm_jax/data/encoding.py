"""Documents as callers of the Python interface pass them, their word ids, and their OOV words.

A document is a list of sentences, each a string of words separated by spaces or a list of words, or
a `dclm_jax.data.documents.Document`. Sentences without words are omitted, as in files: models
neither score nor read such sentences. After the last document of a call, a warning counts the
omitted sentences. Indices in results are positions in the documents as they were passed.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dclm_jax.data import formats
from dclm_jax.data.documents import PLAIN, Document, TextOptions
from dclm_jax.data.notes import lowered
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN, Vocabulary
from dclm_jax.errors import InputError, brief, printable
from dclm_jax.log import logger

SentenceText = str | Sequence[str]
"""Words separated by spaces, or a list of words."""
Documents = Iterable[Document | Sequence[SentenceText]]
AnyDocument = TypeVar("AnyDocument", bound=Document | Sequence[SentenceText])
OfSentence = TypeVar("OfSentence")

_SHOWN_OOV = 10
"""Maximum number of OOV words in a message."""
# There is a warning if the OOV rate of a text exceeds the usual OOV rate by more than this
# difference and by more than this ratio.
_MARGIN, _FACTOR = 0.02, 1.5
# Other text has more OOV words than the text whose words were counted.
_MARGIN_OF_VOCABULARY = 0.1
# In fewer words a high number of pieces per word may be chance.
_FEW_WORDS = 100
_ADVICE = "check that the text is read like the training text (raw or tokenized, case)"
_MISREAD_SHARE = 0.1
"""Minimum share of OOV words that are in the vocabulary in lower case or without attached
punctuation, for `_ADVICE`."""
_PUNCTUATION = ".,;:!?\"'()"


@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """A document of word ids.

    Attributes:
      sentences: ids of the words, or of their pieces, of each sentence with words.
      tags: parts of speech of the words of each sentence; None if the text has none.
      characters: number of characters of the words, each word with one space; 0 if unknown. Words
        that a vocabulary of subwords does not predict have none.
      id: name of the document.
      words: words of all sentences, also of sentences without words; empty if only ids are known.
      passed: the document of words as it was passed; None if only ids are known.
    """

    sentences: list[np.ndarray]
    tags: list[list[str]] | None = None
    characters: int = 0
    id: str = ""
    words: Sequence[list[str]] = ()
    passed: Any = None

    def aligned(self, results: Iterable[OfSentence], empty: OfSentence) -> list[OfSentence]:
        """The results of sentences with words, and `empty` for sentences without words."""
        remaining = iter(results)
        return [next(remaining) if sentence else empty for sentence in self.words]


class Encoder:
    """Turns the words of a text into ids, and counts the words outside the vocabulary (OOV), whose
    probability is the probability of UNKNOWN, or the pieces of words.

    Attributes:
      vocabulary: the vocabulary.
      usual_rate: OOV rate of the test split of the training text, or its number of pieces per word
        with a vocabulary of subwords; None if it is unknown.
      options: the text options of the training text.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        usual_rate: float | None = None,
        options: TextOptions = PLAIN,
    ):
        self.vocabulary, self.usual_rate, self.options = vocabulary, usual_rate, options
        self._num_words = self._num_ids = 0
        self._oov = collections.Counter[str]()
        self._forms: dict[str, str] = {}

    def words_of(
        self, document: Document | Sequence[SentenceText], what: str = "a document is"
    ) -> list[list[str]]:
        """The words of the sentences of a document; messages begin with `what`. `log_oov` warns of
        words of strings that are written unlike the training text."""
        passed = document.sentences if isinstance(document, Document) else document
        if isinstance(passed, Iterable) and not isinstance(passed, str):
            passed = list(passed)
        sentences = words_of(passed, what)
        for words, sentence in zip(sentences, passed, strict=True):
            for word in words if isinstance(sentence, str) else ():
                if word not in self._forms:
                    self._forms[word] = self._other_form(word)
        return sentences

    def _other_form(self, word: str) -> str:
        """How the training text would write a word that differs from it in case or by attached
        punctuation; empty if it does not differ, or is in a vocabulary of words."""
        low, bare = lowered(word, self.options.language), word.strip(_PUNCTUATION)
        if not self.vocabulary.has_pieces:
            if word in self.vocabulary:
                return ""
            forms = low, bare, low.strip(_PUNCTUATION)
            return next((form for form in forms if form in self.vocabulary), "")
        form = low if self.options.lowercase else word
        if self.options.format in formats.RAW and formats.ATTACHED.fullmatch(word):
            form = form.strip(_PUNCTUATION)
        return form if form != word else ""

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """int32 ids of the words of a sentence."""
        ids = self.vocabulary.encode(words)
        self._num_words += len(words)
        self._num_ids += len(ids)
        if not self.vocabulary.has_pieces:
            self._oov.update(itertools.compress(words, ids == UNKNOWN))
        return ids

    def documents(self, documents: Documents, *, keep_empty: bool = False) -> Iterator[Encoded]:
        """Documents with word ids, streamed, with their ids or their positions from 0 as names.

        At the end a warning counts omitted sentences without words and, unless `keep_empty`,
        omitted documents; another warning counts documents with the name of an earlier document,
        and another message describes the OOV words. If no document remains there is no warning
        about omissions, because the caller raises an error.
        """
        if isinstance(documents, str) or not isinstance(documents, Iterable):
            raise InputError(
                f"documents are {brief(documents)}; expected a list of documents (for raw text: "
                "score(documents(text)))"
            )
        num_documents = empty_sentences = empty_documents = num_repeated = 0
        names, repeated = set[str](), ""
        for index, document in enumerate(documents):
            name = document.id if isinstance(document, Document) else str(index)
            if name in names:
                num_repeated, repeated = num_repeated + 1, repeated or name
            names.add(name)
            words = self.words_of(document)
            with_words = [sentence for sentence in words if sentence]
            empty_sentences += len(words) - len(with_words)
            if not (with_words or keep_empty):
                empty_documents += 1
                continue
            num_documents += 1
            yield Encoded(
                [self.encode(sentence) for sentence in with_words],
                tags=document.tags if isinstance(document, Document) else None,
                characters=self._characters(with_words),
                id=name,
                words=words,
                passed=document,
            )
        self.log_oov()
        if num_repeated:
            logger.warning(
                f"documents with the name of an earlier document: {num_repeated:,}, such as "
                f"{brief(repeated)}; sums by document mix them: give each document its own name"
            )
        if num_documents and (empty_sentences or empty_documents):
            note = f"; documents without words: {empty_documents:,}" if empty_documents else ""
            logger.warning(f"sentences without words omitted: {empty_sentences:,}{note}")

    def _characters(self, sentences: Iterable[Sequence[str]]) -> int:
        words = itertools.chain.from_iterable(sentences)
        if self.vocabulary.has_pieces:
            words = (word for word in words if word != self.vocabulary.unknown_token)
        return sum(len(word) + 1 for word in words)

    def log_oov(self) -> None:
        """Logs the most frequent OOV words, as a warning if the OOV rate is much above the usual
        rate, by more than chance in few words. With a vocabulary of subwords a warning says that
        words have many more pieces than usual. Another warning counts words of strings that differ
        from the training text in case or by attached punctuation."""
        unlike = ""
        if misread := [(word, form) for word, form in self._forms.items() if form]:
            word, form = misread[0]
            unlike = (
                f"words written unlike the training text: {len(misread):,}, such as {brief(word)} "
                f"for {brief(form)}; read raw text by lm.documents(text)"
            )
        if self.vocabulary.has_pieces:
            warnings = self._many_pieces(), unlike
            if any(warnings):
                logger.warning("; ".join(filter(None, warnings)))
            return
        num_oov, expected = self._oov.total(), (self.usual_rate or 0) * self._num_words
        listed = frequent_oov(self._oov, self.vocabulary)
        warning = oov_warning(num_oov / max(self._num_words, 1), self.usual_rate)
        if warning and num_oov > expected + 2 * math.sqrt(expected):
            others = sum(count for word, count in self._oov.items() if self._other_form(word))
            advice = _ADVICE if others >= _MISREAD_SHARE * num_oov else ""
            logger.warning("; ".join(filter(None, (warning, listed, unlike or advice))))
        elif unlike:
            logger.warning("; ".join(filter(None, (unlike, listed))))
        elif listed:
            logger.info(listed)

    def _many_pieces(self) -> str:
        rate, usual_rate = self._num_ids / max(self._num_words, 1), self.usual_rate
        if usual_rate is None or self._num_words < _FEW_WORDS or rate <= _FACTOR * usual_rate:
            return ""
        return (
            f"the text has {rate:.2f} pieces per word ({usual_rate:.2f} in the run's own test "
            "split), because many of its words are rare in the training text"
        )


def frequent_oov(counts: Mapping[str, int], vocabulary: Vocabulary) -> str:
    """The most frequent OOV words of a text with their counts, as a line; empty without OOV words.

    Args:
      counts: number of occurrences by word; the text's own spelling of OOV words is not listed.
      vocabulary: the vocabulary.
    """
    words = [word for word in counts if word not in {*SPECIAL_TOKENS, vocabulary.unknown_token}]
    oov = list(itertools.compress(words, vocabulary.is_unknown(words)))
    if not oov:
        return ""
    oov.sort(key=lambda word: (-counts[word], word))
    listed = ", ".join(f"{word} {counts[word]:,}" for word in oov[:_SHOWN_OOV])
    return printable(f"most frequent of {len(oov):,} OOV words: {listed}")


def oov_warning(rate: float, usual_rate: float | None) -> str:
    """A warning if an OOV rate is much above the OOV rate of the test split of the training text;
    empty if not, or if the usual rate is unknown."""
    if usual_rate is None or rate <= max(usual_rate + _MARGIN, _FACTOR * usual_rate):
        return ""
    return (
        f"{100 * rate:.2f}% of the words are out of vocabulary ({100 * usual_rate:.2f}% in the "
        "run's own test split); results on both texts are not comparable"
    )


def vocabulary_warning(rate: float, vocabulary: Vocabulary) -> str:
    """A warning if the OOV rate of a corpus is far above the OOV rate of the text whose words were
    counted for its vocabulary; empty if not, or if the vocabulary has no counts."""
    usual_rate = vocabulary.oov_rate
    if usual_rate is None or rate <= usual_rate + _MARGIN_OF_VOCABULARY:
        return ""
    return (
        f"{100 * rate:.2f}% of the words are out of vocabulary ({100 * usual_rate:.2f}% in the "
        "text whose words were counted for the vocabulary)"
    )


def words_of(
    document: Document | Sequence[SentenceText], what: str = "a document is"
) -> list[list[str]]:
    """The words of the sentences of a document; messages begin with `what`."""
    sentences = document.sentences if isinstance(document, Document) else document
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise InputError(
            f"{what} {brief(sentences)}; expected a list of sentences, such as "
            '["a sentence .", "another one ."] (for raw text: read_text, documents)'
        )
    return [
        sentence.split() if isinstance(sentence, str) else _checked(sentence)
        for sentence in sentences
    ]


def _checked(sentence: Any) -> list[str]:
    words = list(sentence) if isinstance(sentence, Iterable) else [sentence]
    for word in words:
        if not isinstance(word, str) or len(word.split()) != 1:
            raise InputError(f"a word is {brief(word)}; expected a string without white space")
    return words
