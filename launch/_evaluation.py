"""Options, runs, input and progress for the commands that use a trained model."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from rich import progress
from rich.console import Console

from dclm_jax import runs
from dclm_jax.data import datasets
from dclm_jax.data.corpus import read_manifest
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import PLAIN, Document
from dclm_jax.data.encoding import oov_warning
from dclm_jax.data.readers import TextReader, options_like
from dclm_jax.data.text_files import UTF8
from dclm_jax.errors import InputError
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import DEFAULT_BATCH_SIZE, LanguageModel
from dclm_jax.log import logger
from dclm_jax.nn.precision import SCORING_PRECISION, MatmulPrecision
from dclm_jax.runs import ModelT

from ._options import CommandOptions, part

Item = TypeVar("Item")
UNSET = "as in training"
"""The meaning of a missing option of text."""


@dataclasses.dataclass(frozen=True)
class RunOptions(CommandOptions):
    """Options of a command that uses a trained model.

    Attributes:
      workdir: directory or gs:// address of a trained run or saved model, or the name of a
        pretrained model: english, or english_sentences (no context).
      matmul_precision: precision of matrix products. Only highest gives the same scores on any
        device, up to the rounding of sums; default is the fastest on the device. On CPUs all are
        equal.
    """

    workdir: str | None = None
    matmul_precision: MatmulPrecision = SCORING_PRECISION

    # `BatchOptions` makes this value a flag.
    batch_size = DEFAULT_BATCH_SIZE

    @property
    def run_names(self) -> Sequence[str]:
        """The workdirs of the runs."""
        return [self.required("workdir", "RUN, the directory of a trained run")]

    def restore(self, kind: type[ModelT]) -> ModelT:
        """The model of the run; a model of another kind is refused."""
        (lm,) = self.restore_all(kind).values()
        return lm

    def restore_all(self, kind: type[ModelT], *, without_source: bool = False) -> dict[str, ModelT]:
        """The models of the runs, by label. They must have one vocabulary and this kind of model,
        see `runs.restore`."""
        return runs.restore_all(
            self.run_names,
            kind,
            without_source=without_source,
            batch_size=self.batch_size,
            matmul_precision=self.matmul_precision,
        )


@dataclasses.dataclass(frozen=True)
class RunsOptions(RunOptions):
    """Options of a command that uses one or several trained models.

    Attributes:
      workdirs: several runs of one vocabulary, separated by commas, or a pattern such as 'runs/*'.
    """

    workdirs: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_together("workdirs", "workdir")

    @property
    def run_names(self) -> Sequence[str]:
        return super().run_names if self.workdirs is None else self.workdirs


@dataclasses.dataclass(frozen=True)
class BatchOptions(CommandOptions):
    """Options of a command that scores several documents at once.

    Attributes:
      batch_size: number of documents that a process scores together, over all its devices. It
        changes speed and memory, not scores.
    """

    batch_size: int = DEFAULT_BATCH_SIZE


@dataclasses.dataclass(frozen=True)
class ReadingOptions(CommandOptions):
    """Options of a command that reads text like the training text of a model.

    Attributes:
      encoding: encoding of text, such as cp1252 or utf-16.
    """

    # The vocabulary of a model determines which words are OOV.
    text: Mapping[str, Any] = part(PLAIN, unset=UNSET, omitted=["unknown_token"])
    encoding: str = UTF8

    def reader(self, models: Sequence[LanguageModel], joined_by: Sequence[str] = ()) -> TextReader:
        """A reader of one text like the training text of models, with the options that are given;
        see `readers.read_documents` for `joined_by`."""
        options = options_like([lm.facts.text.options for lm in models], self.text)
        return TextReader(options, self.encoding, joined_by)


@dataclasses.dataclass(frozen=True)
class DataOptions(ReadingOptions):
    """Options of a command that takes a prepared corpus or text.

    Attributes:
      data: prepared corpus. Default: the training corpus of the run.
      input: text in place of --data and --split: a file, a folder, or '-' for standard input.
      split: split of the prepared corpus.
    """

    data: str | None = None
    input: str | None = None
    split: Literal["train", "valid", "test"] = "test"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input is not None and (
            self.is_given("split") or (self.data is not None and not self.reads_split)
        ):
            raise InputError(
                "--input replaces --data and --split; remove --input, or --data and --split"
            )
        self.refuse_without("input", *self.flags_of_part("text"), "encoding")

    @property
    def reads_split(self) -> bool:
        """Whether a split of a prepared corpus is read in addition to the text."""
        return False

    def dataset(self, models: Iterable[LanguageModel]) -> Dataset:
        """The text, or the split of the corpus."""
        models = list(models)
        if self.input is None:
            return self.of_split(models, self.split)
        return datasets.open_text(models[0].encoder(), self.input, self.reader(models))

    def of_split(self, models: Iterable[LanguageModel], name: str) -> Dataset:
        """A split of --data, or of the corpus that all models were trained on."""
        models = list(models)
        encoder, directory = models[0].encoder(), runs.corpus_of(models, self.data)
        dataset = datasets.open_split(encoder.vocabulary, directory, name)
        if not encoder.vocabulary.has_pieces:
            rate = read_manifest(directory).splits[name].oov_rate
            if warning := oov_warning(rate, encoder.usual_rate):
                logger.warning(f"{dataset.title}: {warning}")
        return dataset

    def words(
        self, lm: LanguageModel, *, keep_empty: bool = False, joined_by: Sequence[str] = ()
    ) -> Iterator[Document]:
        """The documents of the text, or of the split with <UNKNOWN> for OOV words; see
        `readers.read_documents` for the other arguments."""
        if self.input is not None:
            return with_size_note(self.reader([lm], joined_by), self.input, keep_empty)
        directory = runs.corpus_of([lm], self.data)
        dataset = datasets.open_split(lm.vocabulary, directory, self.split)
        return (
            Document(document.id, list(map(lm.vocabulary.decode, document.sentences)))
            for document in dataset.documents
        )


def with_size_note(reader: TextReader, path: str, keep_empty: bool = False) -> Iterator[Document]:
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
