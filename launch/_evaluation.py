"""Flags, runs, input and progress for the launchers that use a trained model."""

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from absl import flags
from rich import progress
from rich.console import Console

from dclm_jax import runs
from dclm_jax.data import datasets
from dclm_jax.data.corpus import SPLITS, read_manifest
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.encoding import oov_warning
from dclm_jax.data.readers import TextReader, options_like
from dclm_jax.data.text_files import UTF8
from dclm_jax.errors import InputError
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import DEFAULT_BATCH_SIZE, LanguageModel
from dclm_jax.log import logger
from dclm_jax.nn.precision import MATMUL_PRECISIONS, SCORING_PRECISION
from dclm_jax.runs import ModelT

from . import _app
from ._flags import define_fields, values_of

_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Trained run or saved model: its directory or gs:// address, or english, the pretrained model.",
)
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
Item = TypeVar("Item")
# Flags that functions below define belong to the launcher that calls them; its --help lists them.
flags.disclaim_key_flags()


def declare_flags(*, without: Collection[str] = ()) -> None:
    """Lists the flags of this module in a launcher's --help, except flags that have no effect."""
    for flag in (_WORKDIR, _BATCH_SIZE, MATMUL_PRECISION, *_OF_TEXT):
        if flag.name not in without:
            flags.declare_key_flag(flag.name)


def define_data_flags() -> None:
    """Defines the flags of launchers that take a prepared corpus or text."""
    flags.DEFINE_string("data", None, "Prepared corpus. Default: the training corpus of the run.")
    flags.DEFINE_string(
        "input",
        None,
        "Text in place of --data and --split: a file, a folder, or '-' for standard input.",
    )
    flags.DEFINE_enum("split", "test", SPLITS, "Split of the prepared corpus.")


def define_workdirs() -> None:
    """Defines the flag of launchers that take several runs."""
    flags.DEFINE_string(
        "workdirs",
        None,
        "Several runs of one vocabulary, separated by commas, or a pattern such as 'runs/*'.",
    )


def restore(kind: type[ModelT]) -> ModelT:
    """The model of the run of --workdir, which has this kind of model."""
    (lm,) = restore_all(kind).values()
    return lm


def restore_all(kind: type[ModelT], *, without_source: bool = False) -> dict[str, ModelT]:
    """The models of the run of --workdir, or of the runs of --workdirs, by label. The runs must
    have one vocabulary and this kind of model, see `runs.restore`."""
    if "workdirs" in flags.FLAGS and flags.FLAGS.workdirs is not None:
        _app.refuse_together("workdirs", "workdir")
        workdirs = flags.FLAGS.workdirs.split(",")
    else:
        workdirs = [_app.required("workdir", "RUN, the directory of a trained run")]
    precision = MATMUL_PRECISION.value
    return runs.restore_all(
        workdirs,
        kind,
        without_source=without_source,
        batch_size=_BATCH_SIZE.value,
        matmul_precision=precision,
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


def open_split(models: Iterable[LanguageModel], name: str, text: str | None = None) -> Dataset:
    """A split of --data, or of the corpus that all models were trained on, or a text in its place.

    Args:
      models: models with one vocabulary.
      name: name of the split.
      text: path of the text.
    """
    models = list(models)
    encoder = models[0].encoder()
    if text is not None:
        return datasets.open_text(encoder, text, text_reader(models))
    directory = runs.corpus_of(models, flags.FLAGS.data)
    dataset = datasets.open_split(encoder.vocabulary, directory, name)
    if not encoder.vocabulary.has_pieces:
        rate = read_manifest(directory).splits[name].oov_rate
        if warning := oov_warning(rate, encoder.usual_rate):
            logger.warning(f"{dataset.title}: {warning}")
    return dataset


def text_reader(models: Sequence[LanguageModel], joined_by: Sequence[str] = ()) -> TextReader:
    """A reader of one text like the training text of models, with the options that flags change;
    see `readers.read_documents` for `joined_by`."""
    options = options_like([lm.facts.text.options for lm in models], values_of(_TEXT))
    return TextReader(options, ENCODING.value, joined_by)


def read_words(
    lm: LanguageModel, *, keep_empty: bool = False, joined_by: Sequence[str] = ()
) -> Iterator[Document]:
    """The documents of --input, or of --data and --split with <UNKNOWN> for OOV words; see
    `readers.read_documents` for the other arguments."""
    if (path := flags.FLAGS.input) is not None:
        return counted(text_reader([lm], joined_by), path, keep_empty)
    directory = runs.corpus_of([lm], flags.FLAGS.data)
    dataset = datasets.open_split(lm.vocabulary, directory, flags.FLAGS.split)
    return (
        Document(document.id, list(map(lm.vocabulary.decode, document.sentences)))
        for document in dataset.documents
    )


def counted(reader: TextReader, path: str, keep_empty: bool = False) -> Iterator[Document]:
    """The documents of a text; at the end a note counts documents and sentences, unless the reader
    has counted them."""
    yield from reader.documents(path, keep_empty=keep_empty)
    if not reader.word_maker.has_paragraphs:
        logger.info(reader.word_maker.size_text(path))


def notify_of_saved(results: Results) -> None:
    """Logs the names of the results that were read and not measured."""
    if results.note:
        logger.info(results.note)


class ProgressBar(progress.Progress):
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

    def counting(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, one per document; each counts as done when the next item is requested."""
        for number, item in enumerate(items, start=1):
            yield item
            self(number)

    def __call__(self, done: int) -> None:
        """Shows the number of documents done."""
        self.update(self._documents, completed=done)
