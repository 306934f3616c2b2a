"""What finished runs left in their workdirs: results, and the curve of their training."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dclm_jax import files, storage
from dclm_jax.coherence.results import Coherence, FurtherTests
from dclm_jax.errors import InputError, printable
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.models import MODELS
from dclm_jax.training.config import flat
from dclm_jax.training.metrics import Line, TrainLine, ValidLine, read_lines
from dclm_jax.training.workdir import CONFIG_FILE, METRICS_FILE, read_config

PERPLEXITY_FILE = "perplexity.json"
COHERENCE_FILE = "coherence.json"
_READ = {CONFIG_FILE, METRICS_FILE, PERPLEXITY_FILE, COHERENCE_FILE}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What is shown of a result of launch.evaluate.

    Attributes:
      parameters: number of trained scalars.
      perplexity: of the split: exp(sum NLL / `tokens`).
      tokens: targets that perplexity counts; END is one of them, START is not.
      vocabulary_size: words and the three special tokens.
      oov_rate: share of the split's words outside the vocabulary.
      known_perplexity: that over the other targets; None in an older result.
      own_oov_rate: `oov_rate` of the test split of the run's own corpus, where it is known.
    """

    parameters: files.Count
    perplexity: files.Nonnegative
    tokens: files.Count
    vocabulary_size: files.Count
    oov_rate: files.Share
    known_perplexity: files.Nonnegative | None = None
    own_oov_rate: files.Share | None = None


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The step of training that a measured model is from."""

    step: files.Count | None = None


class FinishedRun(NamedTuple):
    """What a run left.

    Attributes:
      label: the model's name, or the folder's where the names are not distinct.
      config: of the run, keys as "a.b".
      evaluation: of its test split; None if it was not evaluated.
      coherence: of the same; None if it was not measured.
      curve: the evaluations during training, by step; empty if there was none.
      training: of those that training was measured before, the targets trained on and the training
        perplexity since the evaluation before.
      seconds: spent in training on the way to the final parameters; None if that is not known.
      missing: what is not there, and what would fill it.
      tests: of coherence; empty where `coherence` is None.
    """

    label: str
    config: dict[str, Any]
    evaluation: Evaluation | None
    coherence: Coherence | None
    curve: list[ValidLine]
    training: list[tuple[int, float]]
    seconds: float | None
    missing: list[str]
    tests: FurtherTests = FurtherTests()

    @property
    def development(self) -> float | None:
        """The best development perplexity, that of the parameters that were kept."""
        return min((line.perplexity for line in self.curve), default=None)


def read_runs(workdirs: Sequence[storage.PathLike]) -> list[FinishedRun]:
    """Reads the results that training, evaluation and coherence left in each work directory."""
    with contextlib.ExitStack() as stack:
        folders = [
            stack.enter_context(storage.fetched(one, _READ.intersection)) for one in workdirs
        ]
        configs = [flat(read_config(folder)) for folder in folders]
        names = [printable(config["model.name"]) for config in configs]
        places = [str(storage.locate(one)) for one in workdirs]
        labels = distinct_labels(names, places)
        runs = list(map(_read_run, folders, places, labels, configs))
    for field, what in (("tokens", "targets"), ("vocabulary_size", "vocabulary entries")):
        found = [(run, getattr(run.evaluation, field)) for run in runs if run.evaluation]
        for run, value in found[1:]:
            first, expected = found[0]
            if value != expected:
                raise InputError(
                    f"perplexities are not comparable: {first.label} was scored with "
                    f"{expected:,} {what}, {run.label} with {value:,}"
                )
    return runs


def read_curve(folder: Path) -> tuple[list[ValidLine], float]:
    """The evaluations during training by step, and the seconds spent in training.

    A run that was killed and resumed repeats the steps after its last checkpoint: of two lines of
    one step the later led to the final parameters, and so did the time that the last line counts.
    """
    lines = read_lines(folder)
    evaluations = _by_step(lines, ValidLine)
    if not evaluations:
        raise InputError(
            f"{folder / METRICS_FILE}: no line of kind 'valid'; the run was never evaluated"
        )
    return evaluations, lines[-1].seconds


def training_curve(lines: Sequence[Line]) -> list[tuple[int, float]]:
    """Targets trained on until an evaluation, and the training perplexity since the one before.

    Of what training measured between them it is the mean in nats, weighted by targets; what is no
    number or infinite is left out, and so are evaluations with nothing before them.
    """
    measured = [*_by_step(lines, TrainLine), *_by_step(lines, ValidLine)]
    points, before, nats, targets = [], 0, 0.0, 0
    for line in sorted(measured, key=lambda line: line.step):
        if isinstance(line, ValidLine):
            if targets > 0:
                points.append((line.tokens, Perplexity(0, nats, targets).perplexity))
            nats, targets = 0.0, 0
        else:
            if line.perplexity < math.inf:
                nats += (line.tokens - before) * math.log(line.perplexity)
                targets += line.tokens - before
            before = line.tokens
    return points


_Kind = TypeVar("_Kind", bound=Line)


def _by_step(lines: Sequence[Line], kind: type[_Kind]) -> list[_Kind]:
    latest = {line.step: line for line in lines if isinstance(line, kind)}
    return [latest[step] for step in sorted(latest)]


def distinct_labels(*candidates: Sequence[str]) -> list[str]:
    """The first of `candidates` that names every run differently, or else the last."""
    distinct = (labels for labels in candidates if len(set(labels)) == len(labels))
    return list(next(distinct, candidates[-1]))


def _read_run(folder: Path, place: str, label: str, config: dict[str, Any]) -> FinishedRun:
    seconds, best, missing = None, None, []
    lines = read_lines(folder) if (folder / METRICS_FILE).exists() else []
    curve, training = _by_step(lines, ValidLine), training_curve(lines)
    if curve:
        seconds = lines[-1].seconds
        best = min(curve, key=lambda line: line.perplexity).step
    elif lines:
        missing.append(
            "no evaluation in training yet, the first of which "
            f"`python -m launch.train --workdir={place}` makes"
        )
    elif config["model.name"] in MODELS:
        told = f"no {METRICS_FILE}, which `python -m launch.train --workdir={place}` writes"
        missing.append(told)
    results: list[Any] = []
    for name, kind, command in (
        (PERPLEXITY_FILE, Evaluation, "evaluate"),
        (COHERENCE_FILE, Coherence, "coherence"),
    ):
        writer = f"python -m launch.{command} --workdir={place} --output={place}/{name}"
        if not (folder / name).exists():
            results.append(None)
            missing.append(f"no {name}; `{writer}` fills that in")
            continue
        result = files.read_json(folder / name, kind)
        step = files.read_json(folder / name, _Measured).step
        # A run that went on in its workdir leaves the results of its earlier model.
        if None not in (step, best) and step != best:
            result = None
            missing.append(
                f"{name} is of step {step:,}, and the best model of step {best:,}; `{writer}` "
                "makes it anew"
            )
        results.append(result)
    evaluation, coherence = results
    tests = FurtherTests()
    if coherence is not None:
        tests = files.read_json(folder / COHERENCE_FILE, FurtherTests)
    return FinishedRun(
        label, config, evaluation, coherence, curve, training, seconds, missing, tests
    )
