"""What the launchers that use a trained model share: flags, the run, its input, progress."""

import glob
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

import dclm_jax
from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.readers import TEXT_FORMATS
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.evaluation import inputs
from dclm_jax.experiments.runs import distinct_labels
from dclm_jax.language_model import DEFAULT_BATCH_SIZE, LanguageModel
from dclm_jax.training.workdir import CONFIG_FILE

_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Work directory of a run of launch.train or launch.ngram; where several can be used, separated "
    "by commas.",
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    DEFAULT_BATCH_SIZE,
    "Documents scored together, over all devices. It changes speed and memory, not scores.",
)
FORMAT = flags.DEFINE_enum("format", "auto", TEXT_FORMATS, "Format of text (see launch.prepare).")
LOWERCASE = flags.DEFINE_bool(
    "lowercase", False, "Turn the words of text to lower case, if the training text was."
)
_PROGRESS_SECONDS = 0.5


def define_data_flags() -> None:
    """Flags of launchers that take a prepared corpus or text."""
    flags.DEFINE_string("data", None, "Prepared corpus; default: the one the run was trained on.")
    flags.DEFINE_string("input", None, "Text to use instead; '-' is standard input.")
    flags.DEFINE_enum("split", "test", SPLITS, "Split of the prepared corpus.")


class Run(NamedTuple):
    """One of several runs: what to call it, where it lies, its model."""

    label: str
    workdir: str
    lm: LanguageModel


def restore() -> LanguageModel:
    """The run of --workdir."""
    return _restore(_WORKDIR.value)


def restore_all() -> list[Run]:
    """The runs of --workdir, separated by commas, which must have one vocabulary."""
    value = _WORKDIR.value or ""
    # A folder's name may hold a comma.
    given = [value] if value and Path(value).is_dir() else value.split(",")
    workdirs = [workdir.strip() for workdir in given]
    folders = [Path(workdir).resolve() for workdir in workdirs]
    for index, folder in enumerate(folders):
        if folder in folders[:index]:
            raise InputError(f"--workdir names {workdirs[index]} twice; expected different runs")
    models = restore_comparable(workdirs)
    labels = distinct_labels(
        [lm.name for lm in models], [folder.name for folder in folders], workdirs
    )
    return list(map(Run, labels, workdirs, models))


def restore_comparable(workdirs: Sequence[str]) -> list[LanguageModel]:
    """Runs of one vocabulary, whose perplexities can be compared."""
    models = [_restore(workdir) for workdir in workdirs]
    own, *others = (inputs.describe_vocabulary(lm.vocabulary) for lm in models)
    for workdir, other in zip(workdirs[1:], others, strict=True):
        if other != own:
            raise InputError(
                f"{workdir} has another vocabulary ({other}) than {workdirs[0]} ({own}); only runs "
                "of one vocabulary can be compared"
            )
    return models


def _restore(workdir: str | None) -> LanguageModel:
    if not workdir:
        raise InputError("--workdir is missing; expected the work directory of a trained run")
    return dclm_jax.restore(workdir, batch_size=_BATCH_SIZE.value)


def require_language_models(models: Iterable[LanguageModel], command: str) -> None:
    """Refuses autoencoders, whose documents are made of a source that the command has not."""
    for lm in models:
        if lm.model is not None and lm.model.reads_source:
            raise InputError(
                f"{command} needs a language model, and {lm.name} is an autoencoder, for which "
                "launch.reconstruct, launch.encode and launch.evaluate are made"
            )


def open_documents(
    lm: LanguageModel,
) -> tuple[Iterable[list[np.ndarray]], int | None, dict[str, Any]]:
    """The documents that --data, --input and --split name, how many, and where they are from."""
    check_data_flags()
    documents, num_documents, source = open_input([Run(lm.name, "", lm)])
    return (document.sentences for document in documents), num_documents, source


def check_data_flags(*, other_split: bool = False, other_text: bool = False) -> None:
    """Refuses flags that have no effect.

    Args:
      other_split: a split is read even with --input.
      other_text: text is read even without --input.
    """
    values = flags.FLAGS
    if values.input is not None and (
        values["split"].present or (values.data is not None and not other_split)
    ):
        raise InputError("--input replaces --data and --split; expected one of the two")
    if (FORMAT.present or LOWERCASE.present) and values.input is None and not other_text:
        raise InputError("--format and --lowercase belong to --input, which is missing")


def open_input(runs: Sequence[Run], tagger: inputs.Tagger | None = None) -> inputs.Input:
    """What --input names, or else --data and --split; with parts of speech if there is a tagger."""
    values = flags.FLAGS
    if values.input is not None:
        return open_text(runs[0].lm.vocabulary, values.input, tagger)
    return open_split(runs, values.split, tagger)


def open_text(
    vocabulary: Vocabulary, path: str, tagger: inputs.Tagger | None = None
) -> inputs.Input:
    """Text as --format and --lowercase say."""
    return inputs.open_text(
        vocabulary, path, format=FORMAT.value, lowercase=LOWERCASE.value, tagger=tagger
    )


def open_split(
    runs: Sequence[Run], split: str, tagger: inputs.Tagger | None = None
) -> inputs.Input:
    """A split of --data, or of the corpus that all runs were trained on."""
    directories = [flags.FLAGS.data or run.lm.config["data"]["directory"] for run in runs]
    first = directories[0]
    for run, directory in zip(runs, directories, strict=True):
        if Path(directory).resolve() != Path(first).resolve():
            raise InputError(
                f"{runs[0].workdir} was trained on {first} and {run.workdir} on {directory}; "
                "expected one corpus for all by --data"
            )
    return inputs.open_split(runs[0].lm.vocabulary, first, split, tagger=tagger)


def describe_run(lm: LanguageModel, workdir: str | None = None) -> dict[str, Any]:
    """What a result file says of a run, by default that of --workdir."""
    return {
        "model": lm.name,
        "parameters": lm.num_parameters,
        "step": lm.step,
        "workdir": workdir or _WORKDIR.value,
    }


class Progress:
    """In a `with` block, counts documents in a line on standard error, if that is a terminal."""

    def __init__(self, label: str):
        self._label = label
        self._start = self._shown = time.monotonic()
        self._on = sys.stderr.isatty()

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._on or now - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = now
        rate = done / (now - self._start)
        text = f"{self._label}: {done:,} documents, {rate:,.1f}/s"
        if total:
            left = round((total - done) / rate)
            text = f"{self._label}: {done:,} of {total:,} documents, {rate:,.1f}/s, {left:,} s left"
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        """Clears the line, so that what is printed next stands alone."""
        if self._on:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def expand_workdirs(value: str) -> list[str]:
    """The work directories that a flag names, separated by commas; `runs/*` stands for those of the
    folders that hold a run.

    Raises:
      InputError: a pattern matches no run.
    """
    found = []
    for part in map(str.strip, value.split(",")):
        if not glob.has_magic(part):
            found.append(part)
            continue
        matches = sorted(path for path in glob.glob(part) if Path(path, CONFIG_FILE).is_file())
        if not matches:
            raise InputError(f"{part} matches no folder that holds a run ({CONFIG_FILE})")
        found += matches
    return found
