"""Labelled models to measure side by side: runs, adapted runs and mixtures."""

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple

from dclm_jax.errors import InputError
from dclm_jax.evaluation.adaptation import Setting
from dclm_jax.evaluation.datasets import describe_vocabulary
from dclm_jax.language_model import ModelT, restore
from dclm_jax.text_scorer import AdaptedModel, TextScorer
from dclm_jax.training.workdir import CONFIG_FILE, located


class Subject(NamedTuple, Generic[ModelT]):
    """A model, its label, and the work directory of its run; empty for a model without a run."""

    label: str
    workdir: str
    lm: ModelT

    @property
    def name(self) -> str:
        """The workdir, and the kind of test-time adaptation, if any; without a run the label."""
        adapted, name = self.lm.adaptation, self.workdir or self.label
        return f"{name} + {adapted.kind}" if adapted else name

    def to_json(self) -> dict[str, Any]:
        """The run and its test-time adaptation for a file of results."""
        adapted = self.lm.adaptation.to_json() if self.lm.adaptation else {}
        return {
            "model": self.lm.name,
            "parameters": self.lm.num_parameters,
            "step": self.lm.step,
            "matmul_precision": self.lm.matmul_precision,
            "workdir": self.workdir,
            **adapted,
        }


def adapted(
    subject: Subject[TextScorer], kind: str, setting: Setting, **options: Any
) -> Subject[AdaptedModel]:
    """A subject with test-time adaptation; for the options see `TextScorer.adapt`."""
    lm = subject.lm.adapt(kind, label=subject.label, **{**options, **setting})
    return Subject(f"{subject.label} + {kind}", subject.workdir, lm)


def expand_workdirs(names: Iterable[str]) -> list[str]:
    """Work directories of runs; a pattern such as "runs/*" is replaced by the matching runs."""
    workdirs = []
    for name in map(str.strip, names):
        if not name:
            raise InputError("--workdirs has an empty name; write names separated by single commas")
        matches = [name]
        if glob.has_magic(name) and not Path(name).is_dir():
            matches = sorted(run for run in glob.glob(name) if Path(run, CONFIG_FILE).is_file())
        if not matches:
            raise InputError(f"--workdirs: {name} matches no run; choose another pattern")
        workdirs += matches
    return workdirs


def restore_all(
    workdirs: Sequence[str], kind: type[ModelT], **options: Any
) -> list[Subject[ModelT]]:
    """Different runs of one vocabulary, labelled by their models, or by their folders if models
    repeat. `kind` and `options` are arguments of `language_model.restore`."""
    if not workdirs:
        raise InputError("--workdirs names no run; choose the workdirs of runs")
    workdirs = [os.fspath(located(workdir)) for workdir in workdirs]
    folders = [Path(workdir).resolve() for workdir in workdirs]
    for index, folder in enumerate(folders):
        if folder in folders[:index]:
            raise InputError(f"--workdirs names {workdirs[index]} twice; name each run once")
    models = [restore(workdir, kind, **options) for workdir in workdirs]
    first, *others = (describe_vocabulary(lm.vocabulary) for lm in models)
    for workdir, other in zip(workdirs[1:], others, strict=True):
        if other != first:
            raise InputError(
                f"the vocabularies of {workdirs[0]} ({first}) and {workdir} ({other}) differ; "
                "choose runs with one vocabulary"
            )
    candidates = [lm.name for lm in models], [folder.name for folder in folders], workdirs
    labels = next(names for names in candidates if len(set(names)) == len(workdirs))
    return list(map(Subject, labels, workdirs, models))


def matmul_precision(subjects: Iterable[Subject]) -> str:
    """A line with the precisions of products in the models; empty if all are n-gram models."""
    names = dict.fromkeys(subject.lm.matmul_precision for subject in subjects)
    names.pop(None, None)
    return f"matmul precision: {', '.join(map(str, names))}" if names else ""


def directory_of(subject: Subject) -> str:
    """The directory of the corpus that a run was trained on."""
    directory = subject.lm.config["data"]["directory"]
    if not directory:
        raise InputError(
            f"{subject.workdir} is a saved model, which has no corpus; add --data=DIR, a corpus "
            f"prepared with --vocabulary={subject.workdir}/vocabulary.tsv (commands that read text "
            "take --input=FILE instead)"
        )
    return directory


def corpus_of(subjects: Sequence[Subject], data: str | None = None) -> str:
    """The directory `data`, or the directory of the corpus that all runs were trained on."""
    first, *others = subjects
    directory = data or directory_of(first)
    for subject in others:
        other = data or directory_of(subject)
        if Path(other).resolve() != Path(directory).resolve():
            raise InputError(
                f"{first.workdir} was trained on {directory} and {subject.workdir} on {other}; "
                "choose one corpus by --data"
            )
    return directory
