"""The files of a run's directory, and how they are read; `run_writer` writes them.

WORKDIR/
  config.json       the configuration, enough to rebuild the model
  vocabulary.tsv    the vocabulary
  corpus.json       checksums of the prepared files that the run is trained on
  text.json         how their text became words, and how many are unknown
  lock              empty, or the process that is writing here
  checkpoints/      see `training.checkpoints`
  metrics.jsonl     see `training.metrics`
  tensorboard/      the same numbers as events, if tensorboardX is installed
  result.json       how the run ended, from its end on
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from dclm_jax import files
from dclm_jax.data.corpus import TrainingText
from dclm_jax.errors import InputError
from dclm_jax.training.config import check_saved

CONFIG_FILE = "config.json"
VOCABULARY_FILE = "vocabulary.tsv"
CORPUS_FILE = "corpus.json"
TEXT_FILE = "text.json"
LOCK_FILE = "lock"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
CHECKSUMS_FILE = "checksums.json"
"""Of every checkpoint, the last of its files to be written."""
EVENTS_FOLDER = "tensorboard"


def read_config(workdir: Path) -> dict[str, Any]:
    """The configuration a run was started with."""
    path = workdir / CONFIG_FILE
    if not path.is_file():
        raise InputError(f"{workdir} holds no run: {CONFIG_FILE} is missing")
    config = files.read_json(path, dict[str, Any])
    check_saved(config, str(path))
    return config


def read_text(workdir: Path) -> TrainingText:
    """How the training text of a run became words; the defaults where the run does not say."""
    path = workdir / TEXT_FILE
    return files.read_json(path, TrainingText) if path.is_file() else TrainingText()


@dataclasses.dataclass(frozen=True)
class Result:
    """How a call of `train` ended.

    step: of the last step made.
    best_step, best_perplexity: of the best evaluation on the validation split.
    """

    ending: Literal["finished", "early_stop", "interrupted"]
    step: files.Count
    best_step: files.Count
    best_perplexity: files.Positive


def read_result(workdir: Path) -> Result | None:
    """The result of a run that has ended for good; None before that."""
    path = workdir / RESULT_FILE
    if not path.exists():
        return None
    result = files.read_json(path, Result, exact=True)
    if result.ending == "interrupted":
        raise InputError(f"{path}: ending is 'interrupted'; expected finished or early_stop")
    return result


def complete(names: Collection[str]) -> list[str]:
    """The names of files in a workdir without those of checkpoints that are being copied or
    written."""
    return [name for name in names if (seal := _seal_of(name)) is None or seal in names]


def needed_for_use(names: Collection[str]) -> list[str]:
    """The names of those files in a workdir that restoring its model reads."""
    unused = (f"{EVENTS_FOLDER}/", "checkpoints/latest/")
    return [name for name in complete(names) if not name.startswith(unused)]


def _seal_of(name: str) -> str | None:
    """The checksums of the checkpoint that a file, checkpoints/KIND/STEP/..., belongs to; None of
    other files."""
    parts = name.split("/")
    if parts[0] != "checkpoints" or len(parts) < 4:
        return None
    # A checkpoint that is being written has another name, and no file makes it complete.
    return "/".join([*parts[:3], CHECKSUMS_FILE]) if parts[2].isdecimal() else ""
