"""What the launchers that use a trained model share: flags, the run, its input, progress."""

import sys
import time
from typing import Any

from absl import flags

import dclm_jax
from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.readers import TEXT_FORMATS
from dclm_jax.errors import InputError
from dclm_jax.evaluation.inputs import Input, open_split, open_text
from dclm_jax.language_model import DEFAULT_BATCH_SIZE, LanguageModel

_WORKDIR = flags.DEFINE_string("workdir", None, "Work directory of a run of launch.train.")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    DEFAULT_BATCH_SIZE,
    "Documents scored together, over all devices. It changes speed and memory, not scores.",
)
FORMAT = flags.DEFINE_enum(
    "format", "auto", TEXT_FORMATS, "Format of --input (see launch.prepare)."
)
LOWERCASE = flags.DEFINE_bool(
    "lowercase", False, "Turn the words of --input to lower case, if the training text was."
)
_PROGRESS_SECONDS = 0.5


def define_data_flags() -> None:
    """Flags of launchers that take a prepared corpus or text."""
    flags.DEFINE_string("data", None, "Prepared corpus; default: the one the run was trained on.")
    flags.DEFINE_string("input", None, "Text to use instead; '-' is standard input.")
    flags.DEFINE_enum("split", "test", SPLITS, "Split of the prepared corpus.")


def restore() -> LanguageModel:
    """The run of --workdir."""
    if not _WORKDIR.value:
        raise InputError("--workdir is missing; expected the work directory of a trained run")
    return dclm_jax.restore(_WORKDIR.value, batch_size=_BATCH_SIZE.value)


def open_documents(lm: LanguageModel) -> Input:
    """The documents that --data, --input and --split name."""
    values = flags.FLAGS
    if values.input is not None:
        if values.data is not None or values["split"].present:
            raise InputError("--input replaces --data and --split; expected one of the two")
        return open_text(
            lm.vocabulary, values.input, format=FORMAT.value, lowercase=LOWERCASE.value
        )
    if FORMAT.present or LOWERCASE.present:
        raise InputError("--format and --lowercase belong to --input, which is missing")
    directory = values.data or lm.config["data"]["directory"]
    return open_split(lm.vocabulary, directory, values.split)


def describe_run(lm: LanguageModel) -> dict[str, Any]:
    """What a result file says of the run."""
    return {
        "model": lm.model.name,
        "parameters": lm.num_parameters,
        "step": lm.step,
        "workdir": _WORKDIR.value,
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
