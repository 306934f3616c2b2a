"""The files of a run's directory, which launch/files.md describes, and functions that read them;
`run_writer` writes them. A saved model (`saved_model`) is read like a run."""

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from dclm_jax import files, models, storage
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.subwords import load_vocabulary
from dclm_jax.data.vocabulary import VOCABULARY_FILE, Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.training import saved_model
from dclm_jax.training.checkpoints import Checkpoints, newest_step
from dclm_jax.training.saved_model import CONFIG_FILE, CORPUS_FILE, TEXT_FILE

LOCK_FILE = "lock"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
CHECKPOINTS_FOLDER = "checkpoints"
EVENTS_FOLDER = "tensorboard"
_PRETRAINED = Path(__file__).parents[1] / "pretrained"
_NAMED = 3
"""Maximum number of runs that a message names."""


def pretrained_models() -> list[str]:
    """The names of the models that the package contains."""
    return sorted(path.parent.name for path in _PRETRAINED.glob(f"*/{CONFIG_FILE}"))


def _pretrained() -> str:
    """The pretrained models, for a message."""
    if names := pretrained_models():
        return f"a pretrained model: {', '.join(names)}"
    return f"a pretrained model ({_PRETRAINED} has none: install the package by pip)"


def run_path(run: storage.PathLike) -> storage.PathLike:
    """The workdir of a run, or the folder of a pretrained model in place of its name, unless the
    current directory has a run of this name. A path that is not UTF-8 is refused."""
    name = os.fspath(run) if isinstance(run, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InputError(
            f"the run is {brief(run)}; expected the path of a workdir or of a saved model, or "
            f"{_pretrained()}"
        )
    try:
        os.path.abspath(name).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name}: the path is not valid UTF-8, which checkpoints need; rename the directory"
        ) from error
    is_pretrained = name in pretrained_models() and not Path(name, CONFIG_FILE).is_file()
    return _PRETRAINED / name if is_pretrained else run


def require_trainable(workdir: storage.PathLike) -> None:
    """Raises an `InputError` if a workdir is a pretrained or a saved model."""
    path = storage.locate(run_path(workdir)) / saved_model.PARAMS_FILE
    with files.writing(workdir), storage.reaching(path):
        if path.exists():
            raise InputError(
                f"{workdir} is a saved model, which cannot be resumed; choose a new --workdir, and "
                f"add --config.training.start_from={workdir} to initialize from it"
            )


@contextlib.contextmanager
def opened(run: storage.PathLike) -> Iterator[Path]:
    """A context: the files that are needed to use a run or a saved model, on this machine."""
    with storage.fetched(run_path(run), _needed_for_use) as folder:
        yield folder


def read_config(workdir: storage.Location) -> dict[str, Any]:
    """The saved configuration of a run, with at least model.name and data.directory."""
    path = workdir / CONFIG_FILE
    if not path.is_file():
        choice = f"the workdir of a run, or {_pretrained()}"
        if inside := sorted(str(config.parent) for config in workdir.glob(f"*/{CONFIG_FILE}")):
            choice = f"one of the runs inside: {', '.join(inside[:_NAMED])}"
        raise InputError(f"{workdir} has no run: {CONFIG_FILE} is missing; choose {choice}")
    config = files.read_json(path, dict[str, dict[str, Any]])
    for section, values in config.items():
        if any(isinstance(value, dict | list) for value in values.values()):
            raise InputError(f"{path}: expected plain values by name under {brief(section)}")
    for section, key, meaning in (
        ("model", "name", "the model's name"),
        ("data", "directory", "the directory of the data"),
    ):
        if not isinstance(config.get(section, {}).get(key), str):
            raise InputError(f"{path}: expected {meaning} under {section}.{key}")
    if not _is_file_name(config["data"]["directory"]):
        raise InputError(
            f"{path}: data.directory has characters that file names cannot have; expected a path"
        )
    for name in ("vocab_size", "first_word_end"):
        if name in config["model"]:
            raise InputError(f"{path}: model.{name} is not an option; remove it")
    return config


def _is_file_name(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def read_training_text(workdir: Path) -> TrainingText:
    """The text options and OOV rates of a run; the defaults if the run has no `text.json`, which a
    saved model must have."""
    path = workdir / TEXT_FILE
    if not path.is_file() and not (workdir / saved_model.PARAMS_FILE).exists():
        return TrainingText()
    saved = files.read_json(path, dict[str, Any]).get("options")
    known = {field.name for field in dataclasses.fields(TextOptions)}
    if isinstance(saved, dict) and (unknown := [name for name in saved if name not in known]):
        raise InputError(
            f"{path}: options has {brief(unknown[0])}, which this version does not know; update "
            "dclm_jax, or train again with this version"
        )
    try:
        return files.read_json(path, TrainingText)
    except InputError as error:
        raise InputError(f"{error}; train again by the current version") from error


def read_corpus_checksums(workdir: Path) -> dict[str, str]:
    """The checksums of the corpus of a run, by file; empty if the run has no `corpus.json`."""
    path = workdir / CORPUS_FILE
    return files.read_json(path, dict[str, str]) if path.is_file() else {}


class RestoredRun(NamedTuple):
    """A restored run, for evaluation; `info` is {"perplexity", "vocabulary", ...}."""

    model: DocumentModel
    params: Params
    vocabulary: Vocabulary
    config: dict[str, Any]
    step: int
    info: dict[str, Any]


def restore_run(workdir: Path) -> RestoredRun:
    """Model, best parameters and vocabulary of a run, on the available devices."""
    config = read_config(workdir)
    vocabulary = load_vocabulary(workdir / VOCABULARY_FILE)
    try:
        model = models.create(
            vocab_size=len(vocabulary),
            first_word_end=vocabulary.first_word_end,
            **config["model"],
        )
    except InputError as error:
        message = f"{workdir / CONFIG_FILE}: {error}; train again by the current version"
        raise InputError(message) from error
    template = jax.eval_shape(model.init, jax.random.key(0))
    path = workdir / saved_model.PARAMS_FILE
    if path.exists():
        params, facts = saved_model.read_params(path, template)
        step, info = facts.step, vars(facts)
    else:
        path, step, params, info = _best_checkpoint(workdir, template)
    if info.get("vocabulary") != vocabulary.fingerprint:
        raise InputError(
            f"{path} is for a vocabulary other than {workdir / VOCABULARY_FILE}; restore the "
            "workdir from a copy"
        )
    return RestoredRun(model, params, vocabulary, config, step, info)


def _best_checkpoint(workdir: Path, template: Params) -> tuple[Path, int, Params, dict[str, Any]]:
    """The folder, the step, the parameters and the values of the best checkpoint."""
    folder = workdir / CHECKPOINTS_FOLDER
    if not folder.exists():
        raise InputError(
            f"{workdir} has neither {CHECKPOINTS_FOLDER} nor {saved_model.PARAMS_FILE}; restore it "
            "from a copy"
        )
    best = None
    if (folder / "best").is_dir():
        with contextlib.closing(Checkpoints(folder, "best", read_only=True)) as checkpoints:
            best = checkpoints.restore(template)
    if best is None:
        raise InputError(
            f"{workdir} has no checkpoint to use yet; train until the first evaluation"
        )
    step, params, info = best
    return folder / "best" / str(step), step, params, info


@dataclasses.dataclass(frozen=True)
class MetricsLine:
    """The values of one line of the metrics file that results need.

    Attributes:
      kind: "train" for training results since the previous line, "valid" for an evaluation
        on the validation split.
      step: number of training steps so far.
      tokens: number of targets trained on so far.
      seconds: training time so far, without evaluation and compilation.
    """

    kind: Literal["train", "valid"]
    step: files.Count
    tokens: files.Count
    seconds: files.Finite
    perplexity: files.Positive


def metrics_lines(workdir: Path) -> list[MetricsLine]:
    """The lines of a run's metrics, at least one, in the order of their steps."""
    path = workdir / METRICS_FILE
    lines = files.read_json_lines(path, MetricsLine, made_by="python -m launch.train")
    if not lines:
        raise InputError(f"{path}: has no line; train the run first")
    return lines


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """The outcome of a call of `train`.

    step: the last training step.
    best_step, best_perplexity: step and value of the best validation perplexity.
    """

    ending: Literal["finished", "early_stop"]
    step: files.Count
    best_step: files.Count
    best_perplexity: files.Positive


def trained_steps(workdir: storage.Location) -> int:
    """The step of the newest complete checkpoint for resuming; 0 if it has none yet."""
    with files.reading(workdir), storage.reaching(workdir):
        return newest_step(workdir / CHECKPOINTS_FOLDER, "latest")


def _needed_for_use(names: Collection[str]) -> list[str]:
    """The names of the files in a workdir that are needed to restore its model."""
    unused = (f"{EVENTS_FOLDER}/", f"{CHECKPOINTS_FOLDER}/latest/")
    return [name for name in names if not name.startswith(unused)]
