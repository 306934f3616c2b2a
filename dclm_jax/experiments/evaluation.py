"""Perplexities of several models on the same documents: in total, by part of speech, with test-time
adaptation and of a mixture.

    runs = subjects.restore_all(["runs/rnnlm", "runs/ccdclm"])
    print(evaluate(runs, open_split(runs[0].lm.vocabulary, "data/ptb", "test")))
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from dclm_jax.errors import InputError
from dclm_jax.evaluation import measures, parts_of_speech, significance
from dclm_jax.evaluation.datasets import Dataset, Encoded
from dclm_jax.evaluation.interpolation import Mixture, mixed_nll
from dclm_jax.evaluation.parts_of_speech import TagClass, TagSums
from dclm_jax.evaluation.perplexity import Perplexity, corpus_perplexities, empty_sums
from dclm_jax.experiments import figures
from dclm_jax.experiments.figures import Figure, Line
from dclm_jax.experiments.results import PERPLEXITY, Result, Store, of_pass
from dclm_jax.experiments.subjects import Subject, matmul_precision
from dclm_jax.tables import aligned
from dclm_jax.text_scorer import mix

_MIXTURE = "mixture"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Perplexities on the same documents.

    Attributes:
      subjects: the runs, the runs with test-time adaptation, and their mixture.
      num_runs: number of runs.
      perplexities: one per subject.
      source: source of the documents.
      mixture: the mixture's weight and tuning documents.
      classes: sums by part of speech; empty if not requested.
    """

    subjects: list[Subject]
    num_runs: int
    perplexities: list[Perplexity]
    source: dict[str, Any]
    mixture: Mixture | None
    classes: list[TagClass]

    def __str__(self) -> str:
        labels = [subject.label for subject in self.subjects]
        first = self.perplexities[0]
        if len(labels) == 1:
            lines = [self.subjects[0].lm.summary, str(first)]
        else:
            # The numbers of words and targets are equal for all models.
            lines = [*aligned(self._table()), first.description]
            lines += filter(None, [matmul_precision(self.subjects)])
        if self.mixture is not None:
            weight, tuned_on = self.mixture.weight, self.mixture.tuned_on
            lines.append(
                f"{_MIXTURE}: {weight:.4f} {labels[0]} + {1 - weight:.4f} {labels[1]}, tuned on "
                f"{tuned_on.get('input') or tuned_on['split']} "
                f"({self.mixture.perplexities[0].tokens:,} targets)"
            )
        lines += [
            f"{subject.label}: {subject.lm.adaptation}"
            for subject in self.subjects
            if subject.lm.adaptation
        ]
        if self.classes:
            lines += ["", parts_of_speech.table(self.classes, labels)]
        return "\n".join(lines)

    def _table(self) -> list[tuple[str, ...]]:
        header = "run", "parameters", "targets", "perplexity", "in-vocabulary", "bits/word"
        rows: list[tuple[str, ...]] = [header]
        for (label, _, lm), measured in zip(self.subjects, self.perplexities, strict=True):
            numbers = measured.perplexity, measured.known_perplexity, measured.bits_per_word
            rows.append(
                (label, f"{lm.num_parameters:,}", f"{measured.tokens:,}", *map(_text, numbers))
            )
        if self.mixture is not None:
            tuned = [f"{measured.perplexity:.4f}" for measured in self.mixture.perplexities]
            tuning = ["perplexity (tuning)", *tuned]
            rows = [(*row, cell) for row, cell in zip(rows, tuning, strict=True)]
        return rows

    def to_json(self) -> dict[str, Any]:
        """One object per run, in "runs" if there are several."""
        results = []
        for index, measured in enumerate(self.perplexities):
            run = self.subjects[index].to_json() if index < self.num_runs else {}
            result = {**measured.to_json(), **run, **self.source}
            if self.classes:
                result["by_pos"] = parts_of_speech.to_json(self.classes, index)
            results.append(result)
        runs, others = results[: self.num_runs], results[self.num_runs :]
        for index, (subject, result) in enumerate(
            zip(self.subjects[self.num_runs :], others, strict=True)
        ):
            if subject.lm.adaptation:
                adapted = runs[index % self.num_runs].setdefault("adapted", [])
                adapted.append({**subject.lm.adaptation.to_json(), **result})
        if self.num_runs == 1:
            return runs[0]
        value: dict[str, Any] = {"runs": runs}
        if self.mixture is not None:
            *tuned, tuned_mixture = (measured.to_json() for measured in self.mixture.perplexities)
            value[_MIXTURE] = {"weight": self.mixture.weight, **results[-1]}
            value["tuning"] = {**self.mixture.tuned_on, "runs": tuned, _MIXTURE: tuned_mixture}
        return value

    def plot(self, path: str) -> None:
        """Draws perplexities by class, relative to the first subject if there are several; without
        classes, perplexity against the number of context sentences."""
        if not self.classes:
            perplexities = [measured.perplexity for measured in self.perplexities]
            figures.plot(context_figure(self.subjects, perplexities), path)
            return
        first, *others = (
            parts_of_speech.sums_of(self.classes, model) for model in range(len(self.subjects))
        )
        label, *labels = (subject.label for subject in self.subjects)
        title, x = "Perplexity by part of speech", parts_of_speech.explained(self.classes)
        names = [tag_class.name for tag_class in self.classes]
        places = range(len(names))
        if others:
            lines = [
                Line(
                    name,
                    places,
                    sums.perplexities / first.perplexities,
                    *significance.of_ratio(sums, first),
                )
                for name, sums in zip(labels, others, strict=True)
            ]
            figure = figures.ratio_figure(title, x, names, lines, label)
        else:
            ends = significance.interval(first.resampled())
            line = Line(label, places, first.perplexities, *ends)
            figure = Figure(title, x, "perplexity", [line], names, log_scale=True)
        figures.plot(figure, path)


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"


def evaluate(
    runs: Sequence[Subject],
    dataset: Dataset,
    *,
    store: Store | None = None,
    adapted: Sequence[Subject] = (),
    mixture: Mixture | None = None,
    by_pos: bool = False,
) -> Evaluation:
    """Measures models of one vocabulary on the same documents.

    Args:
      runs: the models.
      dataset: the documents. Saved results are not used for a mixture, parts of speech and text:
        the first two need the scores of all models at once, and text is read once.
      store: saved results of the runs.
      adapted: for each kind of test-time adaptation, the adapted models in the order of `runs`.
      mixture: mixture of two models, measured as well.
      by_pos: whether to measure each part of speech, too; all documents must have tags.
    """
    subjects, store = [*runs, *adapted], store or Store()
    empty_sums([run.lm.scorer for run in runs])
    by_tag = TagSums(len(subjects) + (mixture is not None)) if by_pos else None
    if not by_pos and mixture is None and not dataset.is_text:
        results = [store.targets(subject, dataset) or {} for subject in subjects]
    else:
        mixed = None if mixture is None else functools.partial(mixed_nll, mixture.weight)
        # Only results of splits are saved.
        computed = () if dataset.is_text else measures.MEASURES
        num_models = len(subjects) + (mixture is not None)
        new = [[kind() for kind in computed] for _ in range(num_models)]
        with store.progress("perplexity", dataset.num_documents) as on_document:
            sums = corpus_perplexities(
                [subject.lm.scorer for subject in subjects],
                _tagged(dataset) if by_pos else dataset.documents,
                mixture=mixed,
                by_tag=by_tag,
                measures=new,
                on_document=on_document,
            )
        results = list(map(of_pass, sums, new))
        for subject, values in zip(subjects, results, strict=False):
            store.save(Result.of_targets(subject, dataset), values)
    if mixture is not None:
        mixed = mix(runs[0].lm, runs[1].lm, mixture.weight)
        subjects.append(Subject(_MIXTURE, "", mixed))
    sums = [Perplexity.from_json(values[PERPLEXITY]) for values in results]
    perplexities = [
        subject.lm.with_training_oov(dataclasses.replace(measured, **dataset.counts))
        for subject, measured in zip(subjects, sums, strict=True)
    ]
    classes = by_tag.classes() if by_tag else []
    return Evaluation(subjects, len(runs), perplexities, dataset.source, mixture, classes)


def _tagged(dataset: Dataset) -> Iterator[Encoded]:
    for document in dataset.documents:
        if document.tags is None:
            raise InputError(
                f"{dataset.title}: document {document.id} has no parts of speech; tag text with "
                "configs/larger_context/tag.py, and read it with --input=FILE --format=tagged"
            )
        yield document


def context_figure(subjects: Sequence[Subject], perplexities: Sequence[float]) -> Figure:
    """Perplexity against n, the number of context sentences, one line per model (Wang and Cho 2015,
    Figure 2); models without n are horizontal lines. A perplexity that is not measured yet is
    nan."""
    points: dict[str, dict[int, tuple[str, float]]] = {}
    levels = []
    for subject, perplexity in zip(subjects, perplexities, strict=True):
        label, _, lm = subject
        if (n := lm.config.get("model", {}).get("context_sentences")) is None:
            levels.append((f"{label} ({perplexity:.1f})", perplexity))
            continue
        model = label if lm.adaptation else lm.name
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
