"""Perplexities of several models on the same documents: in total, by part of speech, with test-time
adaptation and of a mixture.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax.data.datasets import Dataset
from dclm_jax.errors import InputError
from dclm_jax.evaluation import parts_of_speech, significance
from dclm_jax.evaluation.parts_of_speech import TagClasses
from dclm_jax.evaluation.results import Results
from dclm_jax.evaluation.target_sums import Targets, TargetSums
from dclm_jax.language_model import LanguageModel
from dclm_jax.mixture import mix
from dclm_jax.report import figures
from dclm_jax.report.figures import Figure, Line
from dclm_jax.runs import matmul_precision, run_json
from dclm_jax.scoring.interpolation import Mixture
from dclm_jax.scoring.perplexity import empty_sums
from dclm_jax.tables import aligned

_MIXTURE = "mixture"


@dataclasses.dataclass(frozen=True)
class Perplexities:
    """Perplexities on the same documents.

    Attributes:
      runs: the models of the runs, by label.
      others: the models with test-time adaptation, in the order of the runs for each kind, or the
        mixture, by label.
      sums: sums over all targets by label.
      source: source of the documents.
      mixture: the mixture's weight and tuning documents.
    """

    runs: Mapping[str, LanguageModel]
    others: Mapping[str, LanguageModel]
    sums: Mapping[str, TargetSums]
    source: dict[str, Any]
    mixture: Mixture | None

    @property
    def classes(self) -> dict[str, TagClasses]:
        """Sums by part of speech, by label; empty if they were not measured."""
        return {label: sums.by_tag for label, sums in self.sums.items() if sums.by_tag is not None}

    def __str__(self) -> str:
        first, labels = next(iter(self.sums.values())).perplexity, list(self.sums)
        if len(labels) == 1:
            lines = [self.runs[labels[0]].summary, str(first)]
        else:
            # The numbers of words and targets are equal for all models.
            lines = [*aligned(self._table()), first.description]
            lines += filter(None, [matmul_precision(self.runs.values())])
        if self.mixture is not None:
            weight, tuned_on = self.mixture.weight, self.mixture.tuned_on
            lines.append(
                f"{_MIXTURE}: {weight:.4f} {labels[0]} + {1 - weight:.4f} {labels[1]}, tuned on "
                f"{tuned_on.get('input') or tuned_on['split']} "
                f"({self.mixture.perplexities[0].tokens:,} targets)"
            )
        lines += [f"{label}: {lm.adaptation}" for label, lm in self.others.items() if lm.adaptation]
        if self.classes:
            lines += ["", parts_of_speech.class_table(self.classes)]
        return "\n".join(lines)

    def _table(self) -> list[tuple[str, ...]]:
        has_pieces = any(sums.perplexity.has_pieces for sums in self.sums.values())
        column = "bits/character" if has_pieces else "in-vocabulary"
        rows: list[tuple[str, ...]] = [
            ("run", "parameters", "targets", "perplexity", column, "bits/word")
        ]
        for label, lm in {**self.runs, **self.others}.items():
            measured = self.sums[label].perplexity
            value = measured.bits_per_character if has_pieces else measured.known_perplexity
            numbers = measured.perplexity, value, measured.bits_per_word
            rows.append(
                (
                    label,
                    f"{lm.facts.num_parameters:,}",
                    f"{measured.tokens:,}",
                    *map(_text, numbers),
                )
            )
        if self.mixture is not None:
            tuned = [f"{measured.perplexity:.4f}" for measured in self.mixture.perplexities]
            tuning = ["perplexity (tuning)", *tuned]
            rows = [(*row, cell) for row, cell in zip(rows, tuning, strict=True)]
        return rows

    def to_json(self) -> dict[str, Any]:
        """One object per run, in "runs" if there are several."""
        runs = [self._json_of(label, run_json(lm)) for label, lm in self.runs.items()]
        for run, (label, lm) in zip(itertools.cycle(runs), self.others.items(), strict=False):
            if lm.adaptation:
                result = self._json_of(label, {})
                run.setdefault("adapted", []).append({**lm.adaptation.to_json(), **result})
        if len(runs) == 1:
            return runs[0]
        value: dict[str, Any] = {"runs": runs}
        if self.mixture is not None:
            *tuned, tuned_mixture = (measured.to_json() for measured in self.mixture.perplexities)
            value[_MIXTURE] = {"weight": self.mixture.weight, **self._json_of(_MIXTURE, {})}
            value["tuning"] = {**self.mixture.tuned_on, "runs": tuned, _MIXTURE: tuned_mixture}
        return value

    def _json_of(self, label: str, run: dict[str, Any]) -> dict[str, Any]:
        sums = self.sums[label]
        by_tag = {} if sums.by_tag is None else {"by_pos": sums.by_tag.to_json()}
        return {**sums.perplexity.to_json(), **run, **self.source, **by_tag}

    def plot(self, path: str) -> None:
        """Draws perplexities by class, relative to the first model if there are several; without
        classes, perplexity against the number of context sentences."""
        if not self.classes:
            models = {**self.runs, **self.others}
            perplexities = [self.sums[label].perplexity.perplexity for label in models]
            figures.plot(context_figure(models, perplexities), path)
            return
        (label, first), *others = self.classes.items()
        title, x, base = "Perplexity by part of speech", first.explained, first.sums
        places = range(len(first.names))
        if others:
            lines = [
                Line(
                    name,
                    places,
                    other.sums.perplexities / base.perplexities,
                    *significance.of_ratio(other.sums, base),
                )
                for name, other in others
            ]
            figure = figures.ratio_figure(title, x, first.names, lines, label)
        else:
            ends = significance.interval(base.resampled())
            line = Line(label, places, base.perplexities, *ends)
            figure = Figure(title, x, "perplexity", [line], first.names, log_scale=True)
        figures.plot(figure, path)


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"


def measure_perplexities(
    runs: Mapping[str, LanguageModel],
    dataset: Dataset,
    results: Results,
    *,
    adapted: Mapping[str, LanguageModel],
    mixture: Mixture | None,
    tags: bool,
) -> Perplexities:
    """Measures models of one vocabulary on the same documents.

    Args:
      runs: the models by label.
      dataset: the documents. Text is read once: with several models it is kept in memory.
      adapted: for each kind of test-time adaptation, the adapted models in the order of `runs`, by
        label.
      mixture: mixture of the two models, measured as well.
      tags: whether to measure each part of speech, too; all documents must have tags.
    """
    empty_sums([lm.scorer for lm in runs.values()])
    others: dict[str, LanguageModel] = dict(adapted)
    if mixture is not None:
        first, second = runs.values()
        others[_MIXTURE] = mix(first, second, mixture.weight)
    if dataset.is_text and len(runs) + len(others) > 1:
        documents = list(dataset.documents)
        dataset = dataclasses.replace(dataset, read=lambda: documents)
    models = {**runs, **others}
    sums = {label: results.measured(lm, dataset, Targets(tags)) for label, lm in models.items()}
    return Perplexities(runs, others, sums, dataset.source, mixture)


def context_figure(models: Mapping[str, LanguageModel], perplexities: Sequence[float]) -> Figure:
    """Perplexity against n, the number of context sentences, one line per model (Wang and Cho 2015,
    Figure 2); models without n are horizontal lines. A perplexity that is not measured yet is
    nan."""
    points: dict[str, dict[int, tuple[str, float]]] = {}
    levels = []
    for (label, lm), perplexity in zip(models.items(), perplexities, strict=True):
        if (n := lm.facts.config.get("model", {}).get("context_sentences")) is None:
            levels.append((f"{label} ({perplexity:.1f})", perplexity))
            continue
        model = label if lm.adaptation else lm.facts.name
        other, _ = points.setdefault(model, {}).setdefault(n, (label, perplexity))
        if other != label:
            raise InputError(
                f"{other} and {label} are both {model} with n = {n}; a line of the figure has one "
                "run for each n: omit one of these runs"
            )
    if not points:
        raise InputError(
            "no run has model.context_sentences, against which perplexity is drawn; add --by_pos "
            "to draw perplexity by part of speech"
        )
    numbers = sorted({n for by_number in points.values() for n in by_number})
    lines = []
    for model, by_number in points.items():
        places = [place for place, n in enumerate(numbers) if n in by_number]
        lines.append(Line(model, places, [by_number[numbers[place]][1] for place in places]))
    ends = -0.5, len(numbers) - 0.5
    lines += [Line(name, ends, [perplexity] * 2) for name, perplexity in levels]
    title, x = "Perplexity by number of context sentences", "number of context sentences, n"
    return Figure(title, x, "perplexity", lines, list(map(str, numbers)))
