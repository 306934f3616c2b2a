"""Minimal pairs: how often a model gives the right one of several alternatives the highest log P.

Alternatives are sentences, scored as the next sentences after the same context. One alternative
is right, the first. A pair counts 1 if the right alternative has the highest value, 0 if
another alternative has a higher value, and 1/k if k alternatives share the highest value (0.5 in a
pair). The value is log P of the alternative, or log P per target (a word or END), which does not
favour short alternatives.

OOV words become UNKNOWN, which stands for all rare words and may be more probable than the word of
another alternative; the pairs without OOV words have an accuracy of their own. If the right
alternative then has the word ids of another alternative, a model can only guess. Such pairs are
excluded: `Accuracy.excluded` is their number, and they have no outcome.

Shapes: A alternatives, D pairs with an outcome, X runs.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dclm_jax.data.documents import require_free_names, value_text
from dclm_jax.data.encoding import Encoder, SentenceText
from dclm_jax.data.formats import RawDocument
from dclm_jax.data.readers import TextReader
from dclm_jax.data.records import listed, require_columns
from dclm_jax.data.vocabulary import FIRST_WORD
from dclm_jax.errors import InputError, brief
from dclm_jax.evaluation import significance
from dclm_jax.evaluation.significance import (
    Difference,
    Sums,
    difference_table,
    interval_text,
    means_to_json,
)
from dclm_jax.language_model import LanguageModel, require_no_source
from dclm_jax.log import logger
from dclm_jax.scoring.scorer import Continuation, Scorer, known_targets
from dclm_jax.tables import aligned, has_text, present, separated

TOTAL, PER_TARGET = CRITERIA = ("log P", "log P per target")
_PAIR, _EXCLUDED = "pair", "excluded"
CONTEXT = "context"
"""The column of text before the alternatives."""


class Choice(NamedTuple):
    """Alternatives to choose from.

    Attributes:
      alternatives: the right one first; each a sentence, as `LanguageModel.score` takes them, or a
        list of sentences that are lists of words, as of a file.
      context: sentences before the alternatives.
      columns: other cells of the pair's row, by column.
      where: position of the pair for messages.
      texts: cells of the alternatives and of the context, by column, of a file.
    """

    alternatives: Sequence[Any]
    context: Sequence[Any] = ()
    columns: Mapping[str, str] = MappingProxyType({})
    where: str = "a pair"
    texts: Mapping[str, str] = MappingProxyType({})


def read_alternatives(path: str, names: Sequence[str], reader: TextReader) -> Iterator[Choice]:
    """The records of a table or of JSON lines, streamed.

    Cells are raw text, as for `readers.read_documents`: the tokenizer divides the alternatives, and
    the context, if the record has one, into sentences and words. An empty context is no context.
    Records whose first alternative is equal to another alternative, word by word, are left out,
    and a note counts them.

    Args:
      path: a file, a folder, or "-" for standard input; the extension of a file sets its format,
        otherwise the reader's options.
      names: columns of the alternatives, the right alternative first.
      reader: an unused reader.
    """
    count, equal = 0, list[str]()

    def read(name: str, text: str) -> list[list[str]]:
        document = reader.word_maker.document(RawDocument([where], 1, texts=[text]), "")
        (document,) = reader.word_maker.written(filter(None, [document]), keep_empty=True)
        if not document.sentences:
            raise InputError(f"{where}: {brief(name)} has no words; add its text")
        return document.sentences

    for where, _, cells in reader.records(path):
        count += 1
        require_columns(names, cells, where)
        texts = {name: cells[name] for name in (*names, CONTEXT) if name in cells}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise InputError(f"{where}: {brief(name)} is {brief(text)}; write text")
        alternatives = [read(name, texts[name]) for name in names]
        if alternatives[0] in alternatives[1:]:
            equal.append(where)
            continue
        context = read(CONTEXT, texts[CONTEXT]) if has_text(texts.get(CONTEXT, "")) else []
        columns = {name: value_text(cells[name]) for name in cells if name not in texts}
        yield Choice(alternatives, context, columns, where, texts)
    if not count:
        raise InputError(f"{path} has no records; add one record per pair")
    if equal:
        logger.info(
            f"records whose alternatives are equal: {len(equal):,} of {count:,}, such as "
            f"{equal[0]}; they are left out"
        )
    reader.word_maker.finish(path)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a choice under a model.

    Attributes:
      choice: the choice.
      log_probs: log P of each alternative, in nats.
      targets: number of targets of each alternative.
      oov: number of OOV words of each alternative.
      correct: the outcome by criterion: 1, 0, or 1/k for k equal values; nan if the right
        alternative has the word ids of another alternative.
    """

    choice: Choice
    log_probs: list[float]
    targets: list[int]
    oov: list[int]
    correct: dict[str, float]


def _sentences(choice: Choice, encoder: Encoder) -> list[list[list[str]]]:
    """The sentences of each alternative, lists of words; an `InputError` says that they leave no
    choice."""
    what = f"{choice.where}: the alternatives are"
    if isinstance(choice.alternatives, str):
        # This is refused.
        encoder.words_of(choice.alternatives, what)
    alternatives = [
        [words for words in encoder.words_of(_listed_sentences(alternative), what) if words]
        for alternative in choice.alternatives
    ]
    if len(alternatives) < 2:
        raise InputError(
            f"{choice.where}: the number of alternatives is {len(alternatives)}; expected two or "
            "more"
        )
    for number, alternative in enumerate(alternatives, start=1):
        if not alternative:
            raise InputError(f"{choice.where}: alternative {number} has no words; add its text")
        if number > 1 and alternative == alternatives[0]:
            raise InputError(
                f"{choice.where}: alternatives 1 and {number} are equal; expected different "
                "sentences"
            )
    return alternatives


def _listed_sentences(alternative: Any) -> Sequence[Any]:
    """The sentences of an alternative, which may be a sentence."""
    if isinstance(alternative, str) or all(isinstance(part, str) for part in alternative):
        return [alternative]
    return alternative


def minimal_pairs(
    lm: LanguageModel, choices: Iterable[Choice | Sequence[SentenceText | Sequence[Sequence[str]]]]
) -> Iterator[Outcome]:
    """Chooses among alternative sentences; input may be larger than memory.

    Args:
      lm: a language model.
      choices: `Choice`s, or lists of alternatives, the right one first. An alternative is a
        sentence, or a list of sentences that are lists of words.

    Yields:
      One `Outcome` per choice, in order; `accuracies` averages them.
    """
    require_no_source(lm)
    return _outcomes(lm.scorer, _requests(lm.encoder(), choices))


def _requests(
    encoder: Encoder, choices: Iterable[Choice | Sequence[SentenceText | Sequence[Sequence[str]]]]
) -> Iterator[Continuation]:
    """The documents to score, one per alternative of each choice."""
    for passed in choices:
        choice = passed if isinstance(passed, Choice) else Choice(passed)
        alternatives = _sentences(choice, encoder)
        before = encoder.words_of(choice.context, f"{choice.where}: the context is")
        context = [encoder.encode(sentence) for sentence in before if sentence]
        for words in alternatives:
            sentences = [encoder.encode(sentence) for sentence in words]
            yield Continuation([*context, *sentences], len(sentences), choice)
    encoder.log_oov()


def _outcomes(scorer: Scorer, requests: Iterable[Continuation]) -> Iterator[Outcome]:
    """The outcomes of choices; the requests are documents, one per alternative of each choice, in
    their order."""
    end_is_target = scorer.objective == "words"
    scored = iter(scorer.score(requests))
    for pair in scored:
        choice = pair[0].owner
        pairs = [pair, *itertools.islice(scored, len(choice.alternatives) - 1)]
        ids = [
            [words.tolist() for words in request.sentences[-len(nats) :]] for request, nats in pairs
        ]
        log_probs = [-float(np.sum(np.concatenate(nats), dtype=np.float64)) for _, nats in pairs]
        known = [known_targets(scorer, request) for request, _ in pairs]
        oov = [sum(int((~words).sum()) for words in masks) for masks in known]
        targets = [sum(len(words) - 1 + end_is_target for words in masks) for masks in known]
        if scorer.first_word_end > FIRST_WORD:
            # OOV words are not predicted.
            targets = np.subtract(targets, oov).tolist()
        per_target = [log_prob / n for log_prob, n in zip(log_probs, targets, strict=True)]
        is_equal = ids.count(ids[0]) > 1
        correct = {
            criterion: np.nan if is_equal else _share(values)
            for criterion, values in ((TOTAL, log_probs), (PER_TARGET, per_target))
        }
        yield Outcome(choice, log_probs, targets, oov, correct)


def _share(values: Sequence[float]) -> float:
    """1/k if the first value is one of k that are the highest, else 0."""
    highest = max(values)
    return values.count(highest) ** -1.0 if values[0] == highest else 0.0


class Accuracy(NamedTuple):
    """The accuracy of X runs on the same pairs.

    Attributes:
      cells: cells of the pairs in the columns of a group; empty for all pairs.
      without_oov: whether only pairs count whose alternatives have no OOV words.
      criterion: one of CRITERIA.
      pairs: D, number of pairs with an outcome.
      excluded: number of pairs that are excluded.
      values_3xX: accuracy from 0 to 1, and the ends of its 95% interval (nan for one pair), from a
        bootstrap over pairs.
    """

    cells: tuple[str, ...]
    without_oov: bool
    criterion: str
    pairs: int
    excluded: int
    values_3xX: np.ndarray


def accuracies(runs: Sequence[Sequence[Outcome]], by: Sequence[str] = ()) -> list[Accuracy]:
    """The accuracies of runs on the same choices by every criterion: of each group of pairs with
    equal cells in the columns `by`, in the order in which groups appear; of all pairs without OOV
    words; and of all pairs. A group with OOV words is followed by its pairs without OOV words. An
    `InputError` says that there are no pairs, or that no pair has an outcome."""
    if not runs or not runs[0]:
        raise InputError("there are no pairs; choose another --input")
    if np.isnan(_correct(runs, TOTAL)).all():
        raise InputError(
            f"the alternatives differ only in OOV words in all {len(runs[0]):,} pairs, so that "
            "accuracy would be chance; choose a run with a larger vocabulary, or other words"
        )
    require_group_columns((outcome.choice for outcome in runs[0]), by)
    by_cells: dict[tuple[str, ...], list[int]] = {}
    for index, outcome in enumerate(runs[0] if by else ()):
        cells = tuple(outcome.choice.columns[name] for name in by)
        by_cells.setdefault(cells, []).append(index)
    known = [index for index, outcome in enumerate(runs[0]) if not any(outcome.oov)]
    groups: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for cells, indices in by_cells.items():
        groups[cells, False] = indices
        if not set(indices) <= set(known):
            groups[cells, True] = sorted(set(indices) & set(known))
    groups[(), True] = known
    groups[(), False] = list(range(len(runs[0])))
    return [
        _accuracy(*group, criterion, _correct(runs, criterion)[indices])
        for group, indices in groups.items()
        for criterion in CRITERIA
    ]


def require_group_columns(choices: Iterable[Choice], by: Sequence[str]) -> None:
    """Raises an `InputError` if a choice has not all columns `by` besides its texts."""
    for choice, name in itertools.product(choices, by):
        if name not in choice.columns:
            raise InputError(
                f"{choice.where}: --by names {brief(name)}, which is no column of the pair besides "
                f"its alternatives and context; choose from: {listed(choice.columns)}"
            )


def accuracy_differences(runs: Sequence[Sequence[Outcome]], criterion: str) -> list[Difference]:
    """The differences in accuracy between all pairs of runs, with the paired permutation test."""
    correct_DxX = _correct(runs, criterion)
    correct_DxX = correct_DxX[~np.isnan(correct_DxX[:, 0])]
    return significance.differences(Sums(correct_DxX, np.ones((len(correct_DxX), 1))))


class PairResults:
    """The outcomes of the same choices under several runs, and their accuracies.

    Attributes:
      labels: labels of the runs.
      names: names of the alternatives.
      by: columns of the groups.
      runs: outcomes by run; at least one pair must have an outcome.
      accuracies: accuracies of every group and of all pairs.
      differences: differences between runs over all pairs, by criterion.
    """

    def __init__(
        self,
        labels: Sequence[str],
        names: Sequence[str],
        by: Sequence[str],
        runs: Sequence[Sequence[Outcome]],
    ):
        self.labels, self.names, self.by, self.runs = labels, names, by, runs
        self.accuracies = accuracies(runs, by)
        self.differences = {
            criterion: accuracy_differences(runs, criterion) for criterion in CRITERIA
        }

    def text(self) -> str:
        """The tables for a terminal."""
        header = [*(self.by or ["group"]), "criterion", "pairs", "excluded"]
        rows = [[*header, *(f"{label}, %" for label in self.labels)]]
        for accuracy in self.accuracies:
            name = "pairs without OOV words" if accuracy.without_oov else "all"
            cells = accuracy.cells or (name, *[""] * (len(self.by) - 1))
            if accuracy.cells and accuracy.without_oov:
                cells = (*cells[:-1], f"{cells[-1]}, without OOV words")
            values = [interval_text(100 * values, 2) for values in accuracy.values_3xX.T]
            counts = f"{accuracy.pairs:,}", f"{accuracy.excluded:,}"
            rows.append([*cells, accuracy.criterion, *counts, *values])
        lines = [
            "accuracy in % and its 95% interval (bootstrap over pairs); ties of k count 1/k; "
            f"{100 / len(self.names):.4g}% is chance",
            *aligned(rows),
        ]
        if any(accuracy.excluded for accuracy in self.accuracies):
            lines.append("excluded: pairs in which OOV words leave no choice")
        differences = difference_table(
            self.differences, self.labels, group="criterion", unit="points", scale=100, digits=2
        )
        if differences:
            lines += ["", *differences]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The accuracies and differences for a file of results."""
        groups = [
            {
                "by": dict(zip(self.by, accuracy.cells, strict=False)),
                "without_oov": accuracy.without_oov,
                "criterion": accuracy.criterion,
                "pairs": accuracy.pairs,
                "excluded": accuracy.excluded,
                "accuracy": means_to_json(self.labels, accuracy.values_3xX),
            }
            for accuracy in self.accuracies
        ]
        differences = [
            {**pair.to_json(self.labels), "criterion": criterion}
            for criterion, pairs in self.differences.items()
            for pair in pairs
        ]
        return {"alternatives": list(self.names), "groups": groups, "differences": differences}

    def lines(self) -> Iterator[str]:
        """TSV with the outcome of every pair, one per line."""
        names = dict.fromkeys(
            name
            for outcome in self.runs[0]
            for name in (*outcome.choice.columns, *outcome.choice.texts)
        )
        for index, pair_outcomes in enumerate(zip(*self.runs, strict=True)):
            pair_cells = [(_PAIR, index + 1), *self._cells(pair_outcomes, names)]
            columns, cells = zip(*pair_cells, strict=True)
            if not index:
                yield separated(columns)
            yield separated(cells)

    def _cells(
        self, pair_outcomes: Sequence[Outcome], names: Iterable[str]
    ) -> Iterator[tuple[str, object]]:
        """The columns of the TSV after the number of the pair, with the cells of a pair."""
        first = pair_outcomes[0]
        is_excluded, written = np.isnan(first.correct[TOTAL]), first.choice.columns
        for name in names:
            yield name, first.choice.texts.get(name) or present(written.get(name))
        for name, oov in zip(self.names, first.oov, strict=True):
            yield f"oov_{name}", oov
        yield _EXCLUDED, int(is_excluded)
        for label, outcome in zip(self.labels, pair_outcomes, strict=True):
            end = "" if len(self.labels) == 1 else f":{label}"
            scores = zip(self.names, outcome.log_probs, outcome.targets, strict=True)
            for name, log_prob, targets in scores:
                yield f"log_prob_{name}{end}", f"{log_prob:.6f}"
                yield f"targets_{name}{end}", targets
            for name, value in outcome.correct.items():
                yield f"correct_{_key(name)}{end}", None if is_excluded else f"{value:g}"


def require_free_columns(choices: Iterable[Choice], names: Sequence[str]) -> None:
    """Raises an `InputError` if a column of the input has the name of a column of the TSV.

    Args:
      choices: choices with their columns.
      names: names of the alternatives.
    """
    correct = [f"correct_{_key(name)}" for name in CRITERIA]
    scores = [f"{kind}_{name}" for kind in ("oov", "log_prob", "targets") for name in names]
    taken = {_PAIR, _EXCLUDED, *correct, *scores}
    for choice in choices:
        require_free_names([*choice.columns, *choice.texts], taken, f"{choice.where}: ")


def _correct(runs: Sequence[Sequence[Outcome]], criterion: str) -> np.ndarray:
    """The outcomes of all pairs, nan for excluded pairs, which are the same in all runs."""
    return np.array([[outcome.correct[criterion] for outcome in run] for run in runs]).T


def _accuracy(
    cells: tuple[str, ...], without_oov: bool, criterion: str, correct_PxX: np.ndarray
) -> Accuracy:
    correct_DxX = correct_PxX[~np.isnan(correct_PxX[:, 0])]
    pairs = len(correct_DxX)
    values_3xX = np.full((3, correct_PxX.shape[1]), np.nan)
    if pairs:
        values_3xX = significance.means(correct_DxX, np.ones((pairs, 1)))
    return Accuracy(cells, without_oov, criterion, pairs, len(correct_PxX) - pairs, values_3xX)


def _key(criterion: str) -> str:
    return criterion.lower().replace(" ", "_")
