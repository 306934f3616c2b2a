"""Results of evaluations, measured once and saved in the run: RUN/results/NAME-HASH.json.

A file has the identity of its result: the model, the precision of its products, its test-time
adaptation, the documents, and the options and the version of the evaluation. If the identity
differs, the result is measured again. Every command that measures a split of a prepared corpus
reads and writes these files.
"""

import abc
import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from dclm_jax import files, processes, storage
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import OnDocument
from dclm_jax.errors import InputError
from dclm_jax.language_model import LanguageModel
from dclm_jax.log import logger

VERSION = 7
"""Version of all saved results, in addition to the versions of the evaluations."""
FOLDER = "results"
ResultT = TypeVar("ResultT")
Progress = Callable[[str, int | None], contextlib.AbstractContextManager[OnDocument]]
"""A function that returns a context which shows the progress of a measurement, given its label and
the number of documents; None if unknown."""


@dataclasses.dataclass(frozen=True)
class Evaluation(abc.ABC, Generic[ResultT]):
    """A measurement of a model on documents. The fields of a subclass are its options.

    Attributes:
      name: beginning of the names of files with its results.
      version: version of the result; a result of another version is measured again. Raise it with
        every change of the result or of its form.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    @property
    def title(self) -> str:
        """The name of the evaluation in messages."""
        return self.name

    @property
    def options(self) -> dict[str, Any]:
        """The options that determine the result, as JSON values."""
        return dataclasses.asdict(self)

    def num_documents(self, dataset: Dataset) -> int | None:
        """The number of documents to measure; None if unknown."""
        return dataset.num_documents

    @abc.abstractmethod
    def measure(self, lm: LanguageModel, dataset: Dataset, on_document: OnDocument) -> ResultT:
        """The result; `on_document` is called with the progress."""

    @abc.abstractmethod
    def to_json(self, result: ResultT) -> dict[str, Any]:
        """The result as a JSON object."""

    @abc.abstractmethod
    def from_json(self, value: dict[str, Any]) -> ResultT:
        """The inverse of `to_json`."""


@contextlib.contextmanager
def silent(label: str, total: int | None) -> Iterator[OnDocument]:
    """A context that shows no progress."""
    del label, total
    yield lambda done: None


def label_of(lm: LanguageModel, dataset: Dataset, evaluation: Evaluation[Any]) -> str:
    """The model, the evaluation and the documents, for messages."""
    return f"{lm.label}: {evaluation.title} ({dataset.name})"


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of evaluations: saved results are read, other results are measured and saved.
    Results of text, and of a model without a run, are always measured.

    All processes of a job request the same results in the same order.

    Attributes:
      progress: shows the progress of every measurement.
      read: labels of the results that were read.
    """

    progress: Progress = silent
    read: list[str] = dataclasses.field(default_factory=list)

    @property
    def note(self) -> str:
        """The labels of the results that were read; empty if there are none."""
        names = "; ".join(dict.fromkeys(self.read))
        return names and f"saved results, not measured again: {names}"

    def measured(
        self, lm: LanguageModel, dataset: Dataset, evaluation: Evaluation[ResultT]
    ) -> ResultT:
        """The result of an evaluation, measured and saved unless it is saved."""
        result = self.saved(lm, dataset, evaluation)
        if result is not None:
            return result
        label = label_of(lm, dataset, evaluation)
        with self.progress(label, evaluation.num_documents(dataset)) as on_document:
            result = evaluation.measure(lm, dataset, on_document)
        if (path := _path(lm, dataset, evaluation)) is not None:
            saved = {
                "identity": _identity(lm, dataset, evaluation),
                "value": evaluation.to_json(result),
            }
            try:
                files.write_json(path, saved)
            except InputError as error:
                logger.info(f"not saved: {error}")
        return result

    def saved(
        self, lm: LanguageModel, dataset: Dataset, evaluation: Evaluation[ResultT]
    ) -> ResultT | None:
        """The saved result of an evaluation; None if it is not saved or cannot be used."""
        path = _path(lm, dataset, evaluation)
        value = path and processes.on_primary(_saved_value)(
            path, _identity(lm, dataset, evaluation)
        )
        if value is None:
            return None
        try:
            result = evaluation.from_json(value)
        except (InputError, KeyError, TypeError, ValueError):
            logger.info(f"{path}: has another form and is not used")
            return None
        self.read.append(label_of(lm, dataset, evaluation))
        return result


@dataclasses.dataclass(frozen=True)
class _Saved:
    identity: dict[str, Any]
    value: dict[str, Any]


def _saved_value(path: storage.Location, identity: dict[str, Any]) -> dict[str, Any] | None:
    try:
        with storage.reaching(path):
            if not path.exists():
                return None
        saved = files.read_json(path, _Saved)
    except InputError as error:
        logger.info(str(error))
        return None
    if saved.identity != identity:
        logger.info(f"{path}: is from a different model or version and is not used")
        return None
    return saved.value


def _identity(lm: LanguageModel, dataset: Dataset, evaluation: Evaluation[Any]) -> dict[str, Any]:
    adaptation = lm.adaptation
    return files.finite(
        {
            "evaluation": type(evaluation).__name__,
            "version": [VERSION, evaluation.version],
            "model": lm.fingerprint,
            "matmul_precision": lm.facts.matmul_precision,
            "adaptation": adaptation
            and {key: getattr(adaptation, key) for key in ("kind", "setting", "training_text")},
            "vocabulary": lm.vocabulary.fingerprint,
            "split": dataset.name,
            "documents": dataset.fingerprint,
            "options": evaluation.options,
        }
    )


def _path(
    lm: LanguageModel, dataset: Dataset, evaluation: Evaluation[Any]
) -> storage.Location | None:
    """The file of a result; None for a result that is never saved."""
    if dataset.is_text or not lm.facts.workdir:
        return None
    # Results of other documents or options get other files. A result of an earlier model is
    # replaced.
    identity = _identity(lm, dataset, evaluation)
    lasting = {key: value for key, value in identity.items() if key not in ("version", "model")}
    digest = hashlib.sha256(files.json_text(lasting).encode()).hexdigest()[:8]
    return storage.locate(lm.facts.workdir) / FOLDER / f"{evaluation.name}-{digest}.json"
