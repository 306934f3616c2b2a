"""Accuracies on minimal pairs of several runs: tables, their JSON, and the outcomes as TSV."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dclm_jax import score_types
from dclm_jax.data.alternatives import Choice
from dclm_jax.evaluation import minimal_pairs
from dclm_jax.evaluation.minimal_pairs import CRITERIA, TOTAL, Outcome
from dclm_jax.evaluation.significance import (
    difference_table,
    interval_text,
    means_to_json,
)
from dclm_jax.tables import aligned, present, separated

_PAIR, _EXCLUDED = "pair", "excluded"


def require_free_names(choices: Iterable[Choice], names: Sequence[str]) -> None:
    """Raises an `InputError` if a column of the input has the name of a column of the TSV.

    Args:
      choices: choices with their columns.
      names: names of the alternatives.
    """
    correct = [f"correct_{_key(name)}" for name in CRITERIA]
    scores = [f"{kind}_{name}" for kind in ("log_prob", "targets") for name in names]
    taken = {_PAIR, _EXCLUDED, *correct, *scores}
    for choice in choices:
        score_types.require_free_names(choice.columns, taken, f"{choice.where}: ")


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
        self.accuracies = minimal_pairs.accuracies(runs, by)
        self.differences = {
            criterion: minimal_pairs.differences(runs, criterion) for criterion in CRITERIA
        }

    def text(self) -> str:
        """The tables for a terminal."""
        header = [*(self.by or ["group"]), "criterion", "pairs", "excluded"]
        rows = [[*header, *(f"{label}, %" for label in self.labels)]]
        for accuracy in self.accuracies:
            cells = accuracy.cells or ("all", *[""] * (len(self.by) - 1))
            values = [interval_text(100 * values, 2) for values in accuracy.values_3xX.T]
            counts = f"{accuracy.pairs:,}", f"{accuracy.apart:,}"
            rows.append([*cells, accuracy.criterion, *counts, *values])
        lines = [
            "accuracy in % and its 95% interval (bootstrap over pairs); ties of k count 1/k; "
            f"{100 / len(self.names):.4g}% is chance",
            *aligned(rows),
        ]
        if any(accuracy.apart for accuracy in self.accuracies):
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
                "criterion": accuracy.criterion,
                "pairs": accuracy.pairs,
                "set_apart": accuracy.apart,
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
        names = dict.fromkeys(name for outcome in self.runs[0] for name in outcome.choice.columns)
        for index, pair_outcomes in enumerate(zip(*self.runs, strict=True)):
            columns, cells = zip(*self._cells(pair_outcomes, names), strict=True)
            if not index:
                yield separated(columns)
            yield separated(cells)

    def _cells(
        self, pair_outcomes: Sequence[Outcome], names: Iterable[str]
    ) -> Iterator[tuple[str, object]]:
        """The columns of the TSV with the cells of a pair."""
        choice, is_excluded = pair_outcomes[0].choice, np.isnan(pair_outcomes[0].correct[TOTAL])
        yield _PAIR, choice.where
        for name in names:
            yield name, present(choice.columns.get(name))
        yield _EXCLUDED, int(is_excluded)
        for label, outcome in zip(self.labels, pair_outcomes, strict=True):
            end = "" if len(self.labels) == 1 else f":{label}"
            scores = zip(self.names, outcome.log_probs, outcome.targets, strict=True)
            for name, log_prob, targets in scores:
                yield f"log_prob_{name}{end}", f"{log_prob:.6f}"
                yield f"targets_{name}{end}", targets
            for name, value in outcome.correct.items():
                yield f"correct_{_key(name)}{end}", None if is_excluded else f"{value:g}"


def _key(criterion: str) -> str:
    return criterion.lower().replace(" ", "_")
