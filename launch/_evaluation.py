"""Flags, runs, input and progress for the launchers that use a trained model."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import flags
from rich import progress
from rich.console import Console

from dclm_jax import runs
from dclm_jax.data.corpus import SPLITS, TrainingText
from dclm_jax.data.documents import PLAIN, Document, TextOptions
from dclm_jax.data.readers import TextReader, read_alike
from dclm_jax.data.text_files import UTF8
from dclm_jax.data.vocabulary import UNKNOWN
from dclm_jax.errors import InputError
from dclm_jax.evaluation import datasets, perplexity
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.evaluation.results import Results
from dclm_jax.log import logger
from dclm_jax.nn.precision import MATMUL_PRECISIONS, SCORING_PRECISION
from dclm_jax.runs import ModelT
from dclm_jax.text_scorer import DEFAULT_BATCH_SIZE, ScoringModel
from launch import _app
from launch._fields import define_fields, values_of

_WORKDIR = flags.DEFINE_string("workdir", None, "Workdir of a run of launch.train or launch.ngram.")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    DEFAULT_BATCH_SIZE,
    "Number of documents that a process scores together, over all its devices. It changes speed "
    "and memory, not scores.",
)
MATMUL_PRECISION = flags.DEFINE_enum(
    "matmul_precision",
    SCORING_PRECISION,
    MATMUL_PRECISIONS,
    "Precision of matrix products. Only highest gives the same scores on any device, up to the "
    "rounding of sums; default is the fastest on the device. On CPUs all are equal.",
)
# The vocabulary of a model determines which words are OOV.
_TEXT = define_fields(TextOptions, unset="as in training", omitted=["unknown_token"])
ENCODING = flags.DEFINE_string("encoding", UTF8, "Encoding of text, such as cp1252 or utf-16.")
_OF_TEXT = (*_TEXT.values(), ENCODING)
Read = TypeVar("Read")
# Flags that functions below define belong to the launcher that calls them; its --help lists them.
flags.disclaim_key_flags()


def declare_flags(*, without: Collection[str] = ()) -> None:
    """Lists the flags of this module in a launcher's --help, except flags that have no effect."""
    for flag in (_WORKDIR, _BATCH_SIZE, MATMUL_PRECISION, *_OF_TEXT):
        if flag.name not in without:
            flags.declare_key_flag(flag.name)


def define_data_flags() -> None:
    """Defines the flags of launchers that take a prepared corpus or text."""
    flags.DEFINE_string(
        "data", None, "Prepared corpus. Default: the corpus that the run was trained on."
    )
    flags.DEFINE_string(
        "input", None, "Text in place of --data and --split: a file, a folder or '-' (stdin)."
    )
    flags.DEFINE_enum("split", "test", SPLITS, "Split of the prepared corpus.")


def define_workdirs() -> None:
    """Defines the flag of launchers that take several runs."""
    flags.DEFINE_string(
        "workdirs",
        None,
        "Workdirs of several runs, separated by commas, or a pattern such as 'runs/*'.",
    )


def restore(kind: type[ModelT]) -> ModelT:
    """The model of the run of --workdir, which has this kind of model."""
    (lm,) = restore_all(kind).values()
    return lm


def restore_all(kind: type[ModelT]) -> dict[str, ModelT]:
    """The models of the run of --workdir, or of the runs of --workdirs, by label. The runs must
    have one vocabulary and this kind of model."""
    if "workdirs" in flags.FLAGS and flags.FLAGS.workdirs is not None:
        _app.refuse_together("workdirs", "workdir")
        workdirs = runs.expand_workdirs(flags.FLAGS.workdirs.split(","))
    else:
        workdirs = [_app.required("workdir", "RUN, the directory of a trained run")]
    precision = MATMUL_PRECISION.value
    return runs.restore_all(
        workdirs, kind, batch_size=_BATCH_SIZE.value, matmul_precision=precision
    )


def check_data_flags(*, other_split: bool = False) -> None:
    """Refuses flags that have no effect. With `other_split` a split is read even with --input."""
    values = flags.FLAGS
    if values.input is not None and (
        values["split"].present or (values.data is not None and not other_split)
    ):
        raise InputError(
            "--input replaces --data and --split; remove --input, or --data and --split"
        )
    _app.refuse_without("input", *(flag.name for flag in _OF_TEXT))


def open_split(models: Iterable[ScoringModel], name: str, text: str | None = None) -> Dataset:
    """A split of --data, or of the corpus that all models were trained on, or a text in its place.

    Args:
      models: models with one vocabulary.
      name: name of the split.
      text: path of the text, read with `text_options`.
    """
    models = list(models)
    vocabulary = models[0].vocabulary
    if text is None:
        return datasets.open_split(vocabulary, runs.corpus_of(models, flags.FLAGS.data), name)
    return datasets.open_text(vocabulary, text, text_reader(models))


def text_reader(models: Sequence[ScoringModel], joined_by: Sequence[str] = ()) -> TextReader:
    """A reader of one text with `text_options`; see `readers.read_documents` for `joined_by`."""
    options = text_options(*(lm.text.options for lm in models))
    return TextReader(options, ENCODING.value, joined_by)


def read_text(
    models: Sequence[ScoringModel],
    path: str,
    *,
    keep_empty: bool = False,
    joined_by: Sequence[str] = (),
) -> Iterator[Document]:
    """The documents of a text, read with `text_options`; see `readers.read_documents` for the other
    arguments."""
    documents = text_reader(models, joined_by).documents(path, keep_empty=keep_empty)
    return counting_unknown(documents, _ids_of(models[0]), models[0].text, path)


def _ids_of(lm: ScoringModel) -> Callable[[Document], list[np.ndarray]]:
    return lambda document: list(map(lm.vocabulary.encode, document.sentences))


def counting_unknown(
    texts: Iterable[Read],
    ids_of: Callable[[Read], Iterable[np.ndarray]],
    trained_on: TrainingText,
    name: str,
) -> Iterator[Read]:
    """Streams the texts, and warns after the last text if their OOV rate is much higher than the
    OOV rate of the test split of the training text.

    Args:
      texts: documents, or other parts of a text.
      ids_of: function that returns the word ids of the sentences of such a part.
      trained_on: the training text.
      name: name of the text in the warning.
    """
    words = unknown = 0
    for text in texts:
        for ids in ids_of(text):
            words += len(ids)
            unknown += int(np.count_nonzero(np.equal(ids, UNKNOWN)))
        yield text
    rate = unknown / max(words, 1)
    if warning := perplexity.warning(rate, trained_on.unknown_rates.get("test"), name):
        logger.warning(warning)


@functools.cache
def text_options(*trained: TextOptions | None) -> TextOptions:
    """The options with which text is read: the options of the training texts, changed by flags.

    Logs a note, once, if the options change the text, and a warning if they differ from the
    options of the training text.
    """
    first, *others = [options or PLAIN for options in trained] or [PLAIN]
    for other in others:
        if not read_alike(other, first):
            raise InputError(
                f"the training texts of the runs were read differently ({first} and {other}); "
                "choose runs whose training texts were read alike"
            )
    options = dataclasses.replace(first, **values_of(_TEXT))
    if trained:
        if not read_alike(options, first):
            logger.warning(f"text is read as {options}; the training text was {first}")
        elif first != PLAIN:
            logger.info(f"text is read as {options}, like the training text")
    return options


def read_words(lm: ScoringModel, **more: Any) -> Iterator[Document]:
    """The documents of --input, or of --data and --split with <UNKNOWN> for OOV words; `more` are
    arguments of `read_text`."""
    if flags.FLAGS.input is not None:
        yield from read_text([lm], flags.FLAGS.input, **more)
        return
    dataset = open_split([lm], flags.FLAGS.split)
    documents = (
        Document(document.id, list(map(lm.vocabulary.decode, document.sentences)))
        for document in dataset.documents
    )
    yield from counting_unknown(documents, _ids_of(lm), lm.text, dataset.title)


def notify_of_saved(results: Results) -> None:
    """Logs the names of the results that were read and not measured."""
    if results.note:
        logger.info(results.note)


class Progress(progress.Progress):
    """Counts documents in a line on standard error, if it is a terminal, during a `with` block."""

    def __init__(self, label: str, total: int | None = None):
        super().__init__(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("documents"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=2,
            disable=not sys.stderr.isatty(),
            # Lines printed by the command keep their streams.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._documents = self.add_task(label, total=total)

    def __call__(self, done: int) -> None:
        """Shows the number of documents done."""
        self.update(self._documents, completed=done)
