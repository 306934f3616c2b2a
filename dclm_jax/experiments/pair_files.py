"""Accuracies on minimal pairs of several runs: tables, their JSON, and the outcome of every pair as
JSON lines or TSV."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax import score_types
from dclm_jax.evaluation import minimal_pairs
from dclm_jax.evaluation.minimal_pairs import CRITERIA, LAST_WORD, Accuracy, Choice, Outcome
from dclm_jax.evaluation.significance import Difference, difference_table
from dclm_jax.files import json_text
from dclm_jax.tables import aligned, present, separated

FORMATS = ("jsonl", "tsv")
_PAIR, _RANK = "pair", "rank"


def require_free_names(choices: Iterable[Choice], names: Sequence[str]) -> None:
    """Raises an `InputError` if a column of the input has the name of a column of the TSV.

    Args:
      choices: choices with their columns.
      names: names of the alternatives.
    """
    taken = {_PAIR, _RANK, *map(_apart, CRITERIA), *map(_correct, CRITERIA)}
    taken.update(itertools.chain.from_iterable(map(_scores, names)))
    for choice in choices:
        score_types.require_free_names(
            choice.columns,
            taken,
            where=f"{choice.where}: ",
            advice="write --output=NAME.jsonl",
        )


class PairResults(NamedTuple):
    """The outcomes of the same choices under several runs, and their accuracies.

    Attributes:
      labels: labels of the runs.
      names: names of the alternatives.
      by: columns of the groups.
      runs: outcomes by run.
      accuracies: accuracies of every group and of all pairs.
      differences: differences between runs over all pairs, by criterion.
    """

    labels: Sequence[str]
    names: Sequence[str]
    by: Sequence[str]
    runs: Sequence[Sequence[Outcome]]
    accuracies: list[Accuracy]
    differences: dict[str, list[Difference]]

    @classmethod
    def of(
        cls,
        labels: Sequence[str],
        names: Sequence[str],
        by: Sequence[str],
        runs: Sequence[Sequence[Outcome]],
    ) -> "PairResults":
        """The results of outcomes; at least one pair must have an outcome."""
        accuracies = minimal_pairs.accuracies(runs, by)
        differences = {
            criterion: minimal_pairs.differences(runs, criterion)
            for criterion in runs[0][0].correct
        }
        return cls(labels, names, by, runs, accuracies, differences)

    def text(self) -> str:
        """The tables for a terminal."""
        header = [*(self.by or ["group"]), "criterion", "pairs", "excluded"]
        rows = [[*header, *(f"{label}, %" for label in self.labels)]]
        for accuracy in self.accuracies:
            cells = accuracy.cells or ("all", *[""] * (len(self.by) - 1))
            values = map(_with_interval, accuracy.values_3xX.T)
            counts = f"{accuracy.pairs:,}", f"{accuracy.apart:,}"
            rows.append([*cells, accuracy.criterion, *counts, *values])
        lines = [
            "accuracy in % and its 95% interval (bootstrap over pairs); ties of k count 1/k; "
            f"{self._chance()}",
            *aligned(rows),
        ]
        if any(accuracy.apart for accuracy in self.accuracies):
            lines.append(
                "excluded: pairs in which OOV words leave no choice, or whose last word is OOV"
            )
        if ranks := self._ranks():
            lines += ["", *aligned(ranks)]
        differences = difference_table(
            self.differences, self.labels, group="criterion", unit="points", scale=100, digits=2
        )
        if differences:
            lines += ["", *differences]
        return "\n".join(lines)

    def _chance(self) -> str:
        num_alternatives = len(self.names)
        if num_alternatives == 1:
            return "last word: the right word has rank 1"
        return f"{100 / num_alternatives:.4g}% is chance"

    def _ranks(self) -> list[list[str]]:
        """The median rank of the last word, by run."""
        rows = [["rank of the last word", *self.labels]]
        ranks = [[outcome.rank for outcome in run if outcome.rank is not None] for run in self.runs]
        if not ranks[0]:
            return []
        return [*rows, ["median", *(f"{np.median(of_run):g}" for of_run in ranks)]]

    def to_json(self) -> dict[str, Any]:
        """The accuracies and differences for a file of results."""
        groups = [
            {
                "by": dict(zip(self.by, accuracy.cells, strict=False)),
                "criterion": accuracy.criterion,
                "pairs": accuracy.pairs,
                "set_apart": accuracy.apart,
                "accuracy": {
                    label: dict(zip(("mean", "low", "high"), values.tolist(), strict=True))
                    for label, values in zip(self.labels, accuracy.values_3xX.T, strict=True)
                },
            }
            for accuracy in self.accuracies
        ]
        differences = [
            {**pair.to_json(self.labels), "criterion": criterion}
            for criterion, pairs in self.differences.items()
            for pair in pairs
        ]
        return {"alternatives": list(self.names), "groups": groups, "differences": differences}

    def lines(self, file_format: str) -> Iterator[str]:
        """The outcome of every pair, one per line."""
        columns = dict.fromkeys(name for outcome in self.runs[0] for name in outcome.choice.columns)
        if file_format == "tsv":
            criteria = map(_apart, self.runs[0][0].correct)
            yield separated([_PAIR, *columns, *criteria, *self._value_names()])
        for of_runs in zip(*self.runs, strict=True):
            yield self._line(of_runs, list(columns), file_format)

    def _value_names(self) -> list[str]:
        names = [*itertools.chain.from_iterable(map(_scores, self.names))]
        names += map(_correct, self.runs[0][0].correct)
        names += [_RANK] if LAST_WORD in self.runs[0][0].correct else []
        if len(self.labels) == 1:
            return names
        return [f"{name}:{label}" for label in self.labels for name in names]

    def _line(self, of_runs: Sequence[Outcome], columns: Sequence[str], file_format: str) -> str:
        first = of_runs[0]
        choice = first.choice
        apart = {_key(name): bool(np.isnan(value)) for name, value in first.correct.items()}
        if file_format == "tsv":
            cells = [present(choice.columns.get(name)) for name in columns]
            values = [value for outcome in of_runs for value in _values(outcome)]
            return separated([choice.where, *cells, *map(int, apart.values()), *values])
        records = [
            {
                "log_probs": outcome.log_probs,
                "correct": {_key(name): value for name, value in outcome.correct.items()},
                **({_RANK: outcome.rank} if LAST_WORD in outcome.correct else {}),
            }
            for outcome in of_runs
        ]
        record = {
            _PAIR: choice.where,
            "columns": dict(choice.columns),
            "unit": "nats",
            "alternatives": list(map(_text, choice.alternatives)),
            "targets": first.targets,
            "set_apart": apart,
        }
        if len(self.labels) == 1:
            return json_text({**record, **records[0]}) + "\n"
        return json_text({**record, **dict(zip(self.labels, records, strict=True))}) + "\n"


def _key(criterion: str) -> str:
    return criterion.lower().replace(" ", "_")


def _scores(name: str) -> tuple[str, str]:
    """The columns with the scores of an alternative."""
    return f"log_prob_{name}", f"targets_{name}"


def _apart(criterion: str) -> str:
    """The column that says whether a pair is excluded from the accuracy by a criterion."""
    return f"set_apart_{_key(criterion)}"


def _correct(criterion: str) -> str:
    """The column with the outcome by a criterion."""
    return f"correct_{_key(criterion)}"


def _text(sentence: str | Sequence[str]) -> str:
    """The text of a sentence, which may be a list of words."""
    return sentence if isinstance(sentence, str) else " ".join(sentence)


def _with_interval(values: np.ndarray) -> str:
    """An accuracy in percent, with its interval if there is one; empty without pairs."""
    if np.isnan(values[0]):
        return ""
    mean, low, high = 100 * values
    return f"{mean:.2f}" if np.isnan(low) else f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def _values(outcome: Outcome) -> list[object]:
    scores = zip(outcome.log_probs, outcome.targets, strict=True)
    values: list[object] = [value for score in scores for value in (f"{score[0]:.6f}", score[1])]
    values += [None if np.isnan(value) else f"{value:g}" for value in outcome.correct.values()]
    return [*values, outcome.rank] if LAST_WORD in outcome.correct else values
