"""Perplexity by part of speech (Wang and Cho 2015, section 6.2) of one or several models.

Every target belongs to one class: a word to the class of its tag, an END to the class END. The
perplexity of a class is exp(sum of NLL / number of targets), so that the sums of the classes add up
to the sums of the text; the paper takes the mean of the perplexities of a class's words.

As in the paper, NN and NNS are `Noun`, VB and VBZ are `Verb`, and every other tag is a class.
The paper's 36 tags are tags of words. In this module punctuation is a separate class, which is
never among the most frequent tags.
"""

import collections
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.evaluation.significance import Sums
from dclm_jax.tables import aligned

END_CLASS, OTHER_CLASS, PUNCTUATION_CLASS = "END", "other", "punctuation"
NUM_TAGS = 10
"""Number of the most frequent tags whose classes are listed."""

_MERGED = {"NN": "Noun", "NNS": "Noun", "VB": "Verb", "VBZ": "Verb"}
# Tags of punctuation: signs, and names (Penn Treebank, BNC).
_PUNCTUATION = re.compile(r"\W+|-[LR][RCS]B-|PU[LNQR]")


def tag_class(tag: str) -> str:
    """The class of a tag."""
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
        targets = [tag for words in tags for tag in (*words, END_CLASS)]
        number: dict[str, int] = {}
        indices = [number.setdefault(tag, len(number)) for tag in targets]
        nats = [np.bincount(indices, np.concatenate(nll)) for nll in scores]
        sums = np.stack([np.bincount(indices), *nats], axis=1)
        self._documents.append(dict(zip(number, sums, strict=True)))

    def classes(self) -> list[TagClass]:
        """The classes of the NUM_TAGS most frequent tags, and of all other targets.

        Returns:
          The classes by decreasing frequency, then "other", "punctuation" and END if they have
          targets. A class is listed if any of its tags is among the most frequent.
        """
        last = (OTHER_CLASS, PUNCTUATION_CLASS, END_CLASS)
        counts = collections.Counter()
        for document in self._documents:
            counts.update({tag: int(sums[0]) for tag, sums in document.items()})
        by_frequency = sorted(counts, key=lambda tag: (-counts[tag], tag))
        ranked = [tag for tag in by_frequency if tag_class(tag) not in last]
        listed = {*map(tag_class, ranked[:NUM_TAGS]), *last}
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
    """A legend of the classes of several tags that have a name; "" if there are none."""
    return ", ".join(
        f"{group.name} = {' + '.join(group.tags)}"
        for group in classes
        if group.name in _MERGED.values() and len(group.tags) > 1
    )


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
