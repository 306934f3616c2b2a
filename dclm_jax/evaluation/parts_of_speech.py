"""Perplexity by part of speech (Wang and Cho 2015, section 6.2).

Every target belongs to one class: a word to the class of its tag, an END to the class END. The
perplexity of a class is exp(sum of NLL / number of targets), so that the sums of the classes add up
to the sums of the text; the paper takes the mean of the perplexities of a class's words.

As in the paper, NN and NNS are `Noun`, VB and VBZ are `Verb`, and every other tag is a class.
The paper's 36 tags are tags of words. In this module punctuation is a separate class, which is
never among the most frequent tags.
"""

import collections
import itertools
import re
from collections.abc import Mapping, Sequence
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


class TagClasses(NamedTuple):
    """The classes of targets of a text.

    Attributes:
      names: names of the C classes.
      tags: the tags of each class, the most frequent first.
      sums: nats and numbers of targets by document and class, [D, C].
    """

    names: list[str]
    tags: list[list[str]]
    sums: Sums

    @property
    def tokens(self) -> list[int]:
        """The number of targets of each class."""
        return self.sums.count.sum(axis=0).astype(int).tolist()

    @property
    def explained(self) -> str:
        """A legend of the classes of several tags that have a name; "" if there are none."""
        return ", ".join(
            f"{name} = {' + '.join(tags)}"
            for name, tags in zip(self.names, self.tags, strict=True)
            if name in _MERGED.values() and len(tags) > 1
        )

    def to_json(self) -> dict[str, Any]:
        """The classes by name, with their sums."""
        nll, perplexities = self.sums.nll.sum(axis=0), self.sums.perplexities
        return {
            name: {
                "perplexity": float(perplexities[index]),
                "nll": float(nll[index]),
                "tokens": self.tokens[index],
                "tags": self.tags[index],
            }
            for index, name in enumerate(self.names)
        }


DocumentTags = dict[str, np.ndarray]
"""The number of targets and their nats by tag, [2] each."""


def by_tag(
    tags: Sequence[Sequence[str]],
    nll: Sequence[np.ndarray],
    is_target: Sequence[np.ndarray],
) -> DocumentTags:
    """The sums of a document.

    Args:
      tags: the tags of the words of each sentence.
      nll: the nats of w1..wM END of each sentence.
      is_target: whether each of them is a target, bool [M + 1] for each sentence.
    """
    if not tags:
        return {}
    targets = [tag for words in tags for tag in (*words, END_CLASS)]
    targets = itertools.compress(targets, np.concatenate(is_target))
    number: dict[str, int] = {}
    indices = [number.setdefault(tag, len(number)) for tag in targets]
    nats = np.concatenate(nll)[np.concatenate(is_target)]
    sums = np.stack([np.bincount(indices), np.bincount(indices, nats)], axis=1)
    return dict(zip(number, sums, strict=True))


def classes(documents: Sequence[DocumentTags]) -> TagClasses:
    """The classes of the NUM_TAGS most frequent tags, and of all other targets: by decreasing
    frequency, then "other", "punctuation" and END if they have targets. A class is listed if any of
    its tags is among the most frequent."""
    last = (OTHER_CLASS, PUNCTUATION_CLASS, END_CLASS)
    counts = collections.Counter()
    for document in documents:
        counts.update({tag: int(sums[0]) for tag, sums in document.items()})
    by_frequency = sorted(counts, key=lambda tag: (-counts[tag], tag))
    ranked = [tag for tag in by_frequency if tag_class(tag) not in last]
    listed = {*map(tag_class, ranked[:NUM_TAGS]), *last}
    members = collections.defaultdict(list)
    for tag in by_frequency:
        name = tag_class(tag)
        members[name if name in listed else OTHER_CLASS].append(tag)
    rank = {name: number for number, name in enumerate(last, start=1)}
    totals = {name: sum(counts[tag] for tag in tags) for name, tags in members.items()}
    names = sorted(members, key=lambda name: (rank.get(name, 0), -totals[name]))
    class_of = {tag: index for index, name in enumerate(names) for tag in members[name]}
    sums_2xDxC = np.zeros((2, len(documents), len(names)))
    for index, document in enumerate(documents):
        for tag, sums in document.items():
            sums_2xDxC[:, index, class_of[tag]] += sums
    count, nll = sums_2xDxC
    return TagClasses(names, [members[name] for name in names], Sums(nll, count))


def class_table(models: Mapping[str, TagClasses]) -> str:
    """Aligned text: one row per class and a row for all, one column of perplexities per model.
    The models, by their labels, have scored the same documents."""
    first, *_ = models.values()
    total = sum(first.tokens)
    perplexities = [
        [*by_class.sums.perplexities, *by_class.sums.total.perplexities]
        for by_class in models.values()
    ]
    rows = [("class", "targets", "share", *models)]
    for name, tokens, *values in zip(
        [*first.names, "all"], [*first.tokens, total], *perplexities, strict=True
    ):
        share = f"{100 * tokens / total:.1f}%"
        rows.append((name, f"{tokens:,}", share, *map("{:,.2f}".format, values)))
    lines = aligned(rows)
    lines.insert(-1, lines[1])
    return "\n".join([*lines, *filter(None, [first.explained])])
