"""Perplexity by part of speech (Wang and Cho 2015, section 6.2) of one or several models.

Every target belongs to one class: a word to the class of its tag, an END to the class END. The
perplexity of a class is exp(sum of NLL / number of targets), so that the sums of the classes add up
to the sums of the text; the paper takes the mean of the perplexities of a class's words.

As in the paper, NN and NNS are `Noun`, VB and VBZ are `Verb`, and every other tag is a class.
The paper's 36 tags are tags of words. In this module punctuation is a separate class, which is
never among the most frequent tags.
"""

import collections
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import Document
from dclm_jax.errors import importing, require_at_least
from dclm_jax.evaluation.significance import Sums
from dclm_jax.tables import aligned

END_CLASS, OTHER_CLASS, PUNCTUATION_CLASS = "END", "other", "punctuation"

_MERGED = {"NN": "Noun", "NNS": "Noun", "VB": "Verb", "VBZ": "Verb"}
# Suffixes of the Brown corpus for titles, headlines and cited words.
_BROWN_SUFFIXES = re.compile(r"(-(TL|HL|NC))+$")
# Tags of punctuation: signs, except Brown's * (not), and names (Penn Treebank, BNC).
_PUNCTUATION = re.compile(r"[^\w*]+|-[LR][RCS]B-|PU[LNQR]")

_UNCLASSIFIED = "UNC"
_HANTA_MODEL = "morphmodel_en.pgz"
# The Treebank's tags by the BNC's tags. PRP is a preposition in the BNC, a pronoun in the Treebank.
_TREEBANK_TAGS = {
    **{"AJ0": "JJ", "AJC": "JJR", "AJS": "JJS", "ORD": "JJ"},
    **{"AT0": "DT", "DT0": "DT", "DTQ": "WDT", "DPS": "PRP$", "EX0": "EX"},
    **{"AV0": "RB", "AVP": "RP", "AVQ": "WRB", "XX0": "RB"},
    **{"CJC": "CC", "CJS": "IN", "CJT": "IN", "PRF": "IN", "PRP": "IN", "TO0": "TO"},
    **{"CRD": "CD", "ITJ": "UH", "POS": "POS", "VM0": "MD"},
    **{"NN0": "NN", "NN1": "NN", "NN2": "NNS", "NP0": "NNP"},
    **{"PNI": "NN", "PNP": "PRP", "PNQ": "WP", "PNX": "PRP"},
    **{f"V{verb}B": "VBP" for verb in "BDHV"},
    **{f"V{verb}I": "VB" for verb in "BDHV"},
    **{f"V{verb}{form}": f"VB{form}" for verb in "BDHV" for form in "DGNZ"},
    "!!!": _UNCLASSIFIED,
}
# The time for a word grows with the square of its length; its ending determines its tag.
_MAX_LETTERS = 40
# Text in lower case may write N for any number, as does the Penn Treebank of language modelling.
_NUMBER_MARK, _NUMBER = "N", "1"
# A placeholder for a word, such as <unk>, has no part of speech.
_MARK = re.compile(r"<[^<>]+>")


class Tagger:
    """Parts of speech of documents, from the input if it has tags, and by HanTa if it has none.

    HanTa's tags are converted to tags of the Penn Treebank, except ZZ0 (a single letter), tags of
    punctuation, and UNC (unclassified), which have no counterpart. UNC is also the tag of
    placeholders for words, such as `<unk>`.

    Attributes:
      source: "input", "HanTa" or "input and HanTa", according to the documents so far.
    """

    def __init__(self):
        self._sources: set[str] = set()
        self._tag_sentence: Callable[..., Any] | None = None

    @property
    def source(self) -> str:
        return " and ".join(sorted(self._sources, reverse=True))

    def __call__(self, document: Document) -> list[list[str]]:
        """The tag of every word, one list per sentence."""
        if document.tags is not None:
            self._sources.add("input")
            return [[normalize(tag) for tag in tags] for tags in document.tags]
        self._sources.add("HanTa")
        if self._tag_sentence is None:
            self._tag_sentence = _load_hanta()
        # Lower case is evidence against a name, except in text that is all in lower case.
        has_case = any(
            word[:1].isupper() and len(word) > 1
            for sentence in document.sentences
            for word in sentence
        )
        tagged = []
        for words in document.sentences:
            endings = [word[-_MAX_LETTERS:] for word in words]
            if not has_case:
                endings = [_NUMBER if word == _NUMBER_MARK else word for word in endings]
            tags = self._tag_sentence(endings, taglevel=0, casesensitive=has_case)
            tagged.append(list(map(_treebank_tag, words, tags)))
        return tagged


def normalize(tag: str) -> str:
    """A tag in upper case, without the suffixes of the Brown corpus."""
    return _BROWN_SUFFIXES.sub("", tag.upper())


def tag_class(tag: str) -> str:
    """The class of a normalized tag."""
    return PUNCTUATION_CLASS if _PUNCTUATION.fullmatch(tag) else _MERGED.get(tag, tag)


class TagClass(NamedTuple):
    """A class of targets.

    Attributes:
      sums: nats per document and model [D, M], and numbers of targets per document [D, 1].
    """

    name: str
    tags: tuple[str, ...]
    sums: Sums

    @property
    def tokens(self) -> int:
        """The number of targets."""
        return int(self.sums.count.sum())


class TagSums:
    """Sums of nats by tag and document; documents are added one by one."""

    def __init__(self, num_models: int):
        self._num_models = num_models
        # For every document, by tag: the number of targets, and the nats of each model [1 + M].
        self._documents: list[dict[str, np.ndarray]] = []

    def add(self, tags: list[list[str]], scores: Sequence[list[np.ndarray]]) -> None:
        """Adds a document: the tags of its words, one list per sentence, and for each model the
        nats of the targets w1..wM END of every sentence."""
        if not tags:
            return
        targets = [tag for sentence in tags for tag in (*sentence, END_CLASS)]
        number: dict[str, int] = {}
        indices = [number.setdefault(tag, len(number)) for tag in targets]
        nats = [np.bincount(indices, np.concatenate(nll)) for nll in scores]
        sums = np.stack([np.bincount(indices), *nats], axis=1)
        self._documents.append(dict(zip(number, sums, strict=True)))

    def classes(self, num_tags: int = 10) -> list[TagClass]:
        """The classes of the `num_tags` most frequent tags, and of all other targets.

        Returns:
          The classes by decreasing frequency, then "other", "punctuation" and END if they have
          targets. A class is listed if any of its tags is among the most frequent.
        """
        require_at_least("num_tags", num_tags, 1)
        last = (OTHER_CLASS, PUNCTUATION_CLASS, END_CLASS)
        counts = collections.Counter()
        for document in self._documents:
            counts.update({tag: int(sums[0]) for tag, sums in document.items()})
        by_frequency = sorted(counts, key=lambda tag: (-counts[tag], tag))
        ranked = [tag for tag in by_frequency if tag_class(tag) not in last]
        listed = {*map(tag_class, ranked[:num_tags]), *last}
        members = collections.defaultdict(list)
        for tag in by_frequency:
            name = tag_class(tag)
            members[name if name in listed else OTHER_CLASS].append(tag)
        class_of = {tag: index for index, tags in enumerate(members.values()) for tag in tags}
        sums_CxDxM = np.zeros((len(members), len(self._documents), 1 + self._num_models))
        for index, document in enumerate(self._documents):
            for tag, sums in document.items():
                sums_CxDxM[class_of[tag], index] += sums
        classes = [
            TagClass(name, tuple(tags), Sums(sums_DxM[:, 1:], sums_DxM[:, :1]))
            for (name, tags), sums_DxM in zip(members.items(), sums_CxDxM, strict=True)
        ]
        rank = {name: number for number, name in enumerate(last, start=1)}
        return sorted(classes, key=lambda group: (rank.get(group.name, 0), -group.tokens))


def sums_of(classes: Sequence[TagClass], model: int) -> Sums:
    """The sums of a model by document and class."""
    return Sums(
        np.stack([group.sums.nll[:, model] for group in classes], axis=1),
        np.concatenate([group.sums.count for group in classes], axis=1),
    )


def table(classes: Sequence[TagClass], labels: Sequence[str]) -> str:
    """Aligned text: one row per class and a row for all, one column of perplexities per model."""
    nll, counts = zip(*(group.sums for group in classes), strict=True)
    total = TagClass("all", (), Sums(np.concatenate(nll), np.concatenate(counts)))
    rows = [("class", "targets", "share", *labels)]
    for group in (*classes, total):
        perplexities = (f"{perplexity:,.2f}" for perplexity in group.sums.perplexities)
        share = f"{100 * group.tokens / total.tokens:.1f}%"
        rows.append((group.name, f"{group.tokens:,}", share, *perplexities))
    lines = aligned(rows)
    lines.insert(-1, lines[1])
    return "\n".join([*lines, *filter(None, [explained(classes)])])


def explained(classes: Sequence[TagClass]) -> str:
    """A legend of the class names that are not tags of the Penn Treebank; "" if all are tags."""
    merged = [
        f"{group.name} = {' + '.join(group.tags)}"
        for group in classes
        if group.name in _MERGED.values() and len(group.tags) > 1
    ]
    if any(group.name == _UNCLASSIFIED for group in classes):
        merged.append(f"{_UNCLASSIFIED} = unclassified: OOV words, and signs that are not words")
    return ", ".join(merged)


def to_json(classes: Sequence[TagClass], model: int) -> dict[str, Any]:
    """The classes by name, with the sums of one model."""
    return {
        group.name: {
            "perplexity": float(group.sums.perplexities[model]),
            "nll": float(group.sums.nll.sum(axis=0)[model]),
            "tokens": group.tokens,
            "tags": list(group.tags),
        }
        for group in classes
    }


def _treebank_tag(word: str, tag: str) -> str:
    """The tag of the Penn Treebank for a tag of HanTa."""
    tag = _TREEBANK_TAGS.get(tag, tag)
    # HanTa gives unknown signs the tag of a noun or name.
    is_sign = tag in ("NN", "NNP") and not any(map(str.isalnum, word))
    return _UNCLASSIFIED if is_sign or _MARK.fullmatch(word) else tag


def _load_hanta() -> Callable[..., Any]:
    with importing("tagging of text", "tags"):
        from HanTa import HanoverTagger
    # HanTa unpickles its file, and looks for a bare name in the working directory first.
    model = pathlib.Path(HanoverTagger.__file__).with_name(_HANTA_MODEL)
    return HanoverTagger.HanoverTagger(str(model)).tag_sent
