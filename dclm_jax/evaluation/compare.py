"""Finished runs side by side: one table, and their learning curves in one picture."""

import contextlib
import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dclm_jax import storage
from dclm_jax.errors import InputError, printable, shown
from dclm_jax.evaluation import plots

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
PERPLEXITY_FILE = "perplexity.json"
COHERENCE_FILE = "coherence.json"
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class CurvePoint:
    """One development-set evaluation during training.

    Attributes:
        step: Updates made until then.
        tokens: Training targets processed until then.
        perplexity: Of the development set.
    """

    step: int
    tokens: int
    perplexity: float


@dataclass(frozen=True)
class RunSummary:
    """What a comparison says of one run.

    Attributes:
        label: The model's name, or the folder's where the names are not distinct.
        parameters: Number of trained scalars.
        perplexity: Of the evaluated split: exp(sum NLL / `scored_tokens`).
        scored_tokens: Targets that perplexity counts; END is one of them, START is not.
        vocabulary_size: Words and the three special tokens.
        oov_rate: Share of the split's words outside the vocabulary, 0 to 1.
        coherence: Mean accuracy in telling documents from their permutations, 0 to 1.
        coherence_documents: Documents that coherence was measured on.
        minutes: Time spent in training on the way to the final parameters.
        curve: Development perplexity over training, by step.
    """

    label: str
    parameters: int
    perplexity: float
    scored_tokens: int
    vocabulary_size: int
    oov_rate: float
    coherence: float
    coherence_documents: int
    minutes: float
    curve: tuple[CurvePoint, ...]


def read_runs(workdirs: Sequence[str | os.PathLike[str]]) -> tuple[RunSummary, ...]:
    """Reads the results that training, evaluation and coherence left in each work directory.

    Raises:
        InputError: A directory, file or field is missing or broken, a run has no development
            evaluation, or the runs were evaluated on different tokens or vocabularies.
    """
    if not workdirs:
        raise InputError("no work directory to compare; expected one or more")
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(storage.fetched(one, _read_files)) for one in workdirs]
        names = [_model_name(folder) for folder in folders]
        labels = distinct_labels(names, [str(storage.locate(workdir)) for workdir in workdirs])
        runs = tuple(map(_read_run, folders, labels))
    for run in runs[1:]:
        _require_comparable(runs[0], run)
    return runs


def _read_files(names: Collection[str]) -> list[str]:
    read = (CONFIG_FILE, METRICS_FILE, PERPLEXITY_FILE, COHERENCE_FILE)
    return [name for name in names if name in read]


def comparison_table(runs: Sequence[RunSummary]) -> str:
    """Returns the aligned table of `runs`, followed by the rule its numbers were counted by."""
    header = ("model", "parameters", "test perplexity", "coherence %", "training minutes")
    rows = [header] + [
        (
            run.label,
            f"{run.parameters:,}",
            f"{run.perplexity:.2f}",
            f"{100 * run.coherence:.2f}",
            f"{run.minutes:.1f}",
        )
        for run in runs
    ]
    lines = aligned(rows)
    first = runs[0]
    lines.append(
        f"Perplexity = exp(sum NLL / targets) over {first.scored_tokens:,} targets "
        f"(END counted, START not), vocabulary {first.vocabulary_size:,}, "
        f"OOV rate {100 * first.oov_rate:.2f}%."
    )
    lines.append(
        f"Coherence: log P(document) > log P(permutation), ties count half, "
        f"{first.coherence_documents:,} documents."
    )
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: a header, a rule and the other rows, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def distinct_labels(*candidates: Sequence[str]) -> list[str]:
    """The first of `candidates` that names every run differently, or else the last."""
    for labels in candidates:
        if len(set(labels)) == len(labels):
            return list(labels)
    return list(candidates[-1])


def plot_learning_curves(runs: Sequence[RunSummary], path: str | os.PathLike[str]) -> None:
    """Draws development perplexity (log scale) against training tokens as a picture at `path`.

    The suffix of `path` chooses the format; missing parent folders are made.

    Raises:
        InputError: matplotlib is not installed, or `path` has no suffix that it can write.
    """
    curves = []
    for run in runs:
        best = min(point.perplexity for point in run.curve)
        curves.append(
            plots.Curve(
                f"{run.label} (best {best:.1f})",
                [point.tokens / 1e6 for point in run.curve],
                [point.perplexity for point in run.curve],
            )
        )
    plots.plot_curves(
        curves,
        path,
        title="Learning curves",
        x="training tokens (millions)",
        y="validation perplexity (log scale)",
        log_scale=True,
    )


def _read_run(folder: Path, label: str) -> RunSummary:
    perplexity = _read_fields(folder / PERPLEXITY_FILE, "python -m launch.evaluate --output")
    coherence = _read_fields(folder / COHERENCE_FILE, "python -m launch.coherence --output")
    curve, seconds = read_curve(folder)
    return RunSummary(
        label=label,
        parameters=perplexity.count("parameters"),
        perplexity=perplexity.number("perplexity"),
        scored_tokens=perplexity.count("tokens"),
        vocabulary_size=perplexity.count("vocabulary_size"),
        oov_rate=perplexity.number("oov_rate"),
        coherence=coherence.number("mean"),
        coherence_documents=coherence.count("documents"),
        minutes=seconds / 60,
        curve=curve,
    )


def _model_name(folder: Path) -> str:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such work directory")
    path = folder / CONFIG_FILE
    model = _read_fields(path, "python -m launch.train --workdir").values.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("name"), str):
        raise InputError(f"{path}: expected the model's name under model.name")
    return printable(model["name"])


def _require_comparable(first: RunSummary, other: RunSummary) -> None:
    for field, what in (("scored_tokens", "targets"), ("vocabulary_size", "vocabulary entries")):
        expected, found = getattr(first, field), getattr(other, field)
        if expected != found:
            raise InputError(
                f"perplexities are not comparable: {first.label} was scored with {expected:,} "
                f"{what}, {other.label} with {found:,}"
            )


def read_curve(folder: Path) -> tuple[tuple[CurvePoint, ...], float]:
    """Returns the development curve of a run and the seconds spent in training.

    A run that was killed and resumed repeats the steps after its last checkpoint: of two lines of
    one step the later led to the final parameters, and so did the time that the last line counts.

    Raises:
        InputError: The run has no metrics, or they are broken or hold no evaluation.
    """
    path = folder / METRICS_FILE
    points: dict[int, CurvePoint] = {}
    seconds = 0.0
    for number, line in enumerate(_read_text(path, "python -m launch.train").split("\n")[:-1], 1):
        fields = _parse_fields(f"{path}:{number}", line)
        seconds = fields.number("seconds")
        if fields.values.get("kind") == "valid":
            step = fields.count("step")
            points[step] = CurvePoint(step, fields.count("tokens"), fields.number("perplexity"))
    if not points:
        raise InputError(f"{path}: no line of kind 'valid'; the run was never evaluated")
    return tuple(points[step] for step in sorted(points)), seconds


def _read_text(path: Path, made_by: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; `{made_by}` writes it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


@dataclass(frozen=True)
class _Fields:
    """A JSON object whose errors name the place it came from."""

    place: str
    values: dict[str, Any]

    def number(self, name: str) -> float:
        """A number that is not negative; a perplexity may be infinite."""
        value = self.values.get(name)
        if type(value) is float and value >= 0:
            return value
        if type(value) is int and 0 <= value <= _LARGEST:
            return float(value)
        raise self._unexpected("non-negative number", name)

    def count(self, name: str) -> int:
        """A number of things."""
        value = self.values.get(name)
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise self._unexpected("whole number", name)
        return value

    def _unexpected(self, kind: str, name: str) -> InputError:
        found = shown(self.values.get(name))
        return InputError(f"{self.place}: expected a {kind} under {name!r}, found {found}")


def _read_fields(path: Path, made_by: str) -> _Fields:
    return _parse_fields(str(path), _read_text(path, made_by))


def _parse_fields(place: str, text: str) -> _Fields:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{place}: expected a JSON object")
    return _Fields(place, values)
