"""Sums of the nats of all targets of documents, from one pass: in total, and for every document by
position in the sentence, by position of the sentence, and by part of speech.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import OnDocument
from dclm_jax.data.encoding import Documents, Encoded
from dclm_jax.errors import InputError
from dclm_jax.evaluation import parts_of_speech
from dclm_jax.evaluation.parts_of_speech import TagClasses
from dclm_jax.evaluation.results import Evaluation
from dclm_jax.evaluation.significance import Sums
from dclm_jax.language_model import LanguageModel
from dclm_jax.scoring.perplexity import Perplexity, empty_sums
from dclm_jax.scoring.scorer import known_targets

RANGE_STARTS = (0, 1, 2, 5, 10, 20)
"""First positions of the ranges, from 0. Range i ends before the start of range i + 1; the last
range has no end."""
_DECIMALS = 6


@dataclasses.dataclass(frozen=True)
class TargetSums:
    """Sums over the targets of documents.

    Attributes:
      perplexity: sums over all targets.
      by_token: nats and numbers of targets of every document by range of positions in the sentence,
        [D, ranges]. w1 has position 0, and END has position M.
      by_sentence: nats and numbers of targets of every document by range of positions of the
        sentence in its document, [D, ranges].
      by_tag: sums by part of speech; None if not measured.
    """

    perplexity: Perplexity
    by_token: Sums
    by_sentence: Sums
    by_tag: TagClasses | None = None

    @property
    def by_document(self) -> Sums:
        """Nats and numbers of targets of every document, [D, 1]."""
        return self.by_token.total


class Grouping(NamedTuple):
    """A division of the targets of every document into groups, whose perplexities have a table and
    a figure.

    Attributes:
      name: name of the sums in `TargetSums`, and of the table and the figure.
      title: title of the table and of the figure.
      about: description of the table.
      x: label of the groups in the figure.
      groups: names of the groups.
    """

    name: str
    title: str
    about: str
    x: str
    groups: Sequence[str]

    def sums(self, measured: TargetSums) -> Sums:
        """Nats and numbers of targets of every document by group, [D, groups]."""
        return getattr(measured, self.name)


def _range_names() -> list[str]:
    """The ranges of positions as text, counted from 1."""
    closed = [
        str(end) if end == first + 1 else f"{first + 1}-{end}"
        for first, end in itertools.pairwise(RANGE_STARTS)
    ]
    return [*closed, f"{RANGE_STARTS[-1] + 1}+"]


_BY_POSITION = {
    "about": "The table has the test perplexity of the targets at these positions, counted from 1.",
    "x": "position, from 1",
    "groups": _range_names(),
}
GROUPINGS = (
    Grouping("by_token", "Perplexity by position in the sentence", **_BY_POSITION),
    Grouping(
        "by_sentence", "Perplexity by position of the sentence in the document", **_BY_POSITION
    ),
)


@dataclasses.dataclass(frozen=True)
class Targets(Evaluation[TargetSums]):
    """A pass over all targets.

    Attributes:
      tags: whether to measure parts of speech, too; all documents must have tags.
    """

    tags: bool = False

    name: ClassVar[str] = "perplexity"
    version: ClassVar[int] = 2

    def measure(self, lm: LanguageModel, dataset: Dataset, on_document: OnDocument) -> TargetSums:
        total = empty_sums([lm.scorer])
        if self.tags and total.objective != "words":
            raise InputError("the models predict bags of words; choose models that predict words")
        by_token, by_sentence, by_tag = [], [], []
        for document, nll in lm.scorer.score(dataset.documents):
            known = known_targets(lm.scorer, document)
            total = total.add(document, nll, known)
            # Words that are not predicted are no targets.
            is_target = known if total.has_pieces else [np.ones(len(nats), bool) for nats in nll]
            if self.tags:
                tags = _tags_of(document, dataset)
                by_tag.append(parts_of_speech.by_tag(tags, nll, is_target))
            if total.objective == "bags":
                nll = [words_and_end[:-1] for words_and_end in nll]
                is_target = [words_and_end[:-1] for words_and_end in is_target]
            lengths = list(map(len, nll))
            is_target = np.concatenate([np.zeros(0, bool), *is_target])
            nats = np.concatenate([np.zeros(0), *nll])[is_target]
            tokens = np.concatenate([np.zeros(0, int), *map(np.arange, lengths)])[is_target]
            sentences = np.repeat(np.arange(len(lengths)), lengths)[is_target]
            by_token.append(_by_range(nats, tokens))
            by_sentence.append(_by_range(nats, sentences))
            on_document(total.documents)
        total.require_words("score")
        total = lm.described(total, dataset)
        classes = parts_of_speech.classes(by_tag) if self.tags else None
        return TargetSums(total, _stacked(by_token), _stacked(by_sentence), classes)

    def to_json(self, result: TargetSums) -> dict[str, Any]:
        value = {
            "perplexity": dataclasses.asdict(result.perplexity),
            **{grouping.name: _json_of(grouping.sums(result)) for grouping in GROUPINGS},
        }
        if result.by_tag is not None:
            names, tags, sums = result.by_tag
            value["by_tag"] = {"names": names, "tags": tags, **_json_of(sums)}
        return value

    def from_json(self, value: dict[str, Any]) -> TargetSums:
        by_tag = value.get("by_tag")
        return TargetSums(
            perplexity=Perplexity.from_json(value["perplexity"]),
            **{grouping.name: _sums_of(value[grouping.name]) for grouping in GROUPINGS},
            by_tag=by_tag and TagClasses(by_tag["names"], by_tag["tags"], _sums_of(by_tag)),
        )


def target_sums(lm: LanguageModel, documents: Documents | Dataset) -> TargetSums:
    """The sums over the targets of documents, as `LanguageModel.score` takes them; documents
    without words are omitted."""
    return Targets().measure(lm, lm.dataset(documents), lambda done: None)


def _tags_of(document: Encoded, dataset: Dataset) -> list[list[str]]:
    if document.tags is None:
        raise InputError(
            f"{dataset.title}: document {document.id} has no parts of speech; tag text with "
            "configs/larger_context/tag.py, and read it with --input=FILE --format=tagged"
        )
    return document.tags


def _by_range(nats: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nats and the numbers of targets by range, from their positions."""
    ranges = np.searchsorted(RANGE_STARTS, positions, side="right") - 1
    size = len(RANGE_STARTS)
    return np.bincount(ranges, nats, size), np.bincount(ranges, minlength=size)


def _stacked(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> Sums:
    nats, counts = map(np.stack, zip(*rows, strict=True))
    return Sums(nats.round(_DECIMALS), counts)


def _json_of(sums: Sums) -> dict[str, Any]:
    return {name: values.tolist() for name, values in sums._asdict().items()}


def _sums_of(value: Mapping[str, Any]) -> Sums:
    """The sums in an object from `_json_of`; nats of None are infinite."""
    nats = np.array(value["nll"], np.float64)
    return Sums(np.where(np.isnan(nats), math.inf, nats), np.array(value["count"]))
