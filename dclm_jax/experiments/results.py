"""Results of runs, measured once and saved in the run: RUN/results/MEASURE-HASH.json.

A file has the identity of its result: the model, the precision of its products, its test-time
adaptation, the documents, the options and the version of the measure. If the identity differs,
the result is measured again. Every command that measures a split of a prepared corpus reads and
writes these files.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dclm_jax import files, processes, storage
from dclm_jax.coherence.compare import OrderTest
from dclm_jax.coherence.results import OrderResult
from dclm_jax.data.documents import OnDocument
from dclm_jax.errors import InputError
from dclm_jax.evaluation import adaptation, context_ablation, measures
from dclm_jax.evaluation.adaptation import Adaptation
from dclm_jax.evaluation.datasets import Dataset
from dclm_jax.evaluation.measures import Measure
from dclm_jax.evaluation.perplexity import Perplexity, corpus_perplexities
from dclm_jax.experiments.subjects import Subject, adapted
from dclm_jax.log import logger
from dclm_jax.training.config import flat
from dclm_jax.training.workdir import CORPUS_FILE, METRICS_FILE, RESULT_FILE, metrics_lines

VERSION = 6
"""Version of all saved results, in addition to the versions of some results."""
FOLDER = "results"
PERPLEXITY = "perplexity"
"""The name of the sums of `evaluation.perplexity`, and of the result of a pass over all targets."""
ResultT = TypeVar("ResultT")


class Result(NamedTuple):
    """A result of a measure of a subject: its file, its identity in JSON, and its label in
    messages. A result of text, or of a model without a run, has no file and no identity."""

    path: storage.Location | None
    identity: dict[str, Any]
    label: str

    @classmethod
    def of(
        cls,
        subject: Subject,
        dataset: Dataset,
        measure: str,
        options: Mapping[str, Any],
        version: int = 1,
        title: str = "",
    ) -> "Result":
        """The result of a measure with these options, which are JSON values. `title` is
        the name of the measure in messages, by default `measure`."""
        label = f"{subject.name}: {title or measure} ({dataset.name})"
        if dataset.is_text or not subject.workdir:
            return cls(None, {}, label)
        adaptation = subject.lm.adaptation
        identity = files.finite(
            {
                "measure": measure,
                "version": [VERSION, version],
                "model": subject.lm.fingerprint,
                "matmul_precision": subject.lm.matmul_precision,
                "adaptation": adaptation
                and {key: getattr(adaptation, key) for key in ("kind", "setting", "training_text")},
                "vocabulary": subject.lm.vocabulary.fingerprint,
                "split": dataset.source["split"],
                "documents": dataset.fingerprint,
                "options": dict(sorted(options.items())),
            }
        )
        # Results of other documents or options get other files. A result of an earlier model is
        # replaced.
        model_keys = ("version", "model")
        others = {key: value for key, value in identity.items() if key not in model_keys}
        digest = hashlib.sha256(files.json_text(others).encode()).hexdigest()[:8]
        path = storage.locate(subject.workdir) / FOLDER / f"{measure}-{digest}.json"
        return cls(path, identity, label)

    @classmethod
    def of_targets(cls, subject: Subject, dataset: Dataset) -> "Result":
        """The result of a pass over all targets."""
        names = [kind.name for kind in measures.MEASURES]
        return cls.of(subject, dataset, PERPLEXITY, {"measures": names})


@dataclasses.dataclass(frozen=True)
class _Saved:
    identity: dict[str, Any]
    value: Any


def silent(label: str, total: int | None) -> contextlib.AbstractContextManager[OnDocument]:
    """A context that shows no progress."""
    del label, total
    return contextlib.nullcontext(lambda done: None)


@dataclasses.dataclass(frozen=True)
class Store:
    """The results of runs: saved results are read, other results are measured and saved. Results of
    text are always measured.

    All processes of a job request the same results in the same order.

    Attributes:
      compute: whether to measure results that are not saved; otherwise their value is None.
      progress: function that returns a context which shows the progress of a measurement, given its
        label and the number of documents; None if unknown.
      read: labels of the results that were read.
    """

    compute: bool = True
    progress: Callable[[str, int | None], contextlib.AbstractContextManager[OnDocument]] = silent
    read: list[str] = dataclasses.field(default_factory=list)

    @property
    def note(self) -> str:
        """A line with the labels of the results that were read; empty if there are none."""
        names = "; ".join(dict.fromkeys(self.read))
        return names and f"saved results, not measured again: {names}"

    def targets(self, subject: Subject, dataset: Dataset) -> dict[str, Any] | None:
        """The sums of `perplexity` and the values of all measures by name, from one pass."""

        def compute(on_document: OnDocument) -> dict[str, Any]:
            new = [kind() for kind in measures.MEASURES]
            (sums,) = corpus_perplexities(
                [subject.lm.scorer], dataset.documents, measures=[new], on_document=on_document
            )
            return of_pass(sums, new)

        return self.measured(Result.of_targets(subject, dataset), compute, dataset.num_documents)

    def context(self, subject: Subject, dataset: Dataset, seed: int) -> dict[str, Any] | None:
        """Perplexities with the context replaced or removed, see `context_ablation`; for a model
        without context its perplexity."""

        def compute(on_document: OnDocument) -> dict[str, Any]:
            names = context_ablation.ARRANGEMENTS
            scorer = subject.lm.scorer
            if scorer.context_order == 0:
                tested = self.targets(subject, dataset)
                assert tested is not None
                return dict.fromkeys(names, tested[PERPLEXITY]["perplexity"])
            return {
                name: context_ablation.rearranged(scorer, dataset.sentences, name, seed)
                for name in names
            }

        options, title = {"seed": seed}, "context ablation"
        return self.measured(Result.of(subject, dataset, "context", options, title=title), compute)

    def order_test(
        self, subject: Subject, dataset: Dataset, test: OrderTest[ResultT]
    ) -> OrderResult[ResultT] | None:
        """The result of an order-discrimination test."""
        options = dataclasses.asdict(test)
        options = {"test": type(test).__name__, **options.pop("shuffle"), **options}
        result = Result.of(subject, dataset, "coherence", options, version=3, title=test.title)

        def compute(on_document: OnDocument) -> dict[str, Any]:
            compared = subject.lm.compare_orders(dataset.sentences, test, on_document=on_document)
            return dataclasses.asdict(compared)

        num_fitting = sum(map(test.shuffle.fits, dataset.sentences))
        value = self.measured(result, compute, num_fitting)
        return None if value is None else OrderResult.from_json(value, test.result_type)

    def adapted(
        self,
        subject: Subject,
        kind: str,
        setting: adaptation.Setting,
        dataset: Dataset,
        data: str | None,
    ) -> Subject | None:
        """A subject with test-time adaptation; a setting that is not complete is tuned.

        Args:
          subject: a subject without adaptation.
          kind, setting, data: see `adaptation.adaptive_scorer`.
          dataset: documents for tuning.
        """
        numbers = adaptation.complete(kind, setting)
        if None not in numbers.values():
            return adapted(subject, kind, numbers, data=data)
        new: list[Subject] = []

        def compute(on_document: OnDocument) -> dict[str, Any]:
            new.append(
                adapted(subject, kind, numbers, tune_on=dataset, data=data, on_document=on_document)
            )
            made: Any = new[0].lm.adaptation
            return dataclasses.asdict(made)

        options = {
            "kind": kind,
            "setting": numbers,
            "grid": adaptation.GRIDS[kind],
            "training_text": adaptation.training_text(subject.lm, kind, data),
        }
        title = f"tuning of {kind}"
        result = Result.of(subject, dataset, "adaptation", options, version=2, title=title)
        # Dynamic evaluation reads some of the documents several times.
        total = None if kind == "dynamic" else dataset.num_documents
        value = self.measured(result, compute, total)
        if value is None or new:
            return new[0] if new else None
        tuned = Adaptation.from_json(value, dataset.source)
        subject = adapted(subject, kind, tuned.setting, data=data)
        return subject._replace(lm=dataclasses.replace(subject.lm, adaptation=tuned))

    def measured(
        self, result: Result, compute: Callable[[OnDocument], Any], total: int | None = None
    ) -> Any:
        """The value of a result; None if it is not saved and `self.compute` is false.

        Args:
          result: the result.
          compute: function that measures the value, given a function to call with its progress.
          total: number of documents in the progress; None if unknown.
        """
        value = processes.by_first(self._read)(result)
        if value is not None:
            self.read.append(result.label)
        elif self.compute:
            with self.progress(result.label, total) as on_document:
                value = self.save(result, compute(on_document))
        return value

    def _read(self, result: Result) -> Any:
        """The saved value; None if it is not saved or cannot be used."""
        if result.path is None:
            return None
        try:
            with storage.reaching(result.path):
                if not result.path.exists():
                    return None
            saved = files.read_json(result.path, _Saved)
            if saved.identity != result.identity:
                raise InputError(
                    f"{result.path}: is from a different model or version and is not used"
                )
            return saved.value
        except InputError as error:
            logger.info(str(error))
            return None

    def save(self, result: Result, value: Any) -> Any:
        """Saves a value, and returns it as JSON represents it."""
        value = files.finite(value)
        if result.path is None:
            return value
        try:
            files.write_json(result.path, {"identity": result.identity, "value": value})
        except InputError as error:
            logger.info(f"not saved: {error}")
        return value


def of_pass(sums: Perplexity, new: Sequence[Measure]) -> dict[str, Any]:
    """The values of a pass over all targets, by name."""
    return {PERPLEXITY: sums.to_json(), **{each.name: each.value() for each in new}}


def facts(run: Subject) -> dict[str, Any]:
    """Facts of a run that need no measurement; an n-gram model has no training steps.

    `curve` has pairs of step and validation perplexity.
    """
    known: dict[str, Any] = {
        "workdir": run.workdir,
        "parameters": run.lm.num_parameters,
        "objective": run.lm.scorer.objective,
        "has_context": run.lm.scorer.context_order != 0,
        "own_oov_rate": run.lm.text.unknown_rates.get("test"),
        "step": run.lm.step,
        "matmul_precision": run.lm.matmul_precision,
        "config": flat(run.lm.config),
        "training_text": None,
        "seconds": None,
        "curve": [],
        "unfinished": False,
    }
    wanted = {METRICS_FILE, CORPUS_FILE, RESULT_FILE}
    with storage.fetched(run.workdir, wanted.intersection) as folder:
        if (folder / CORPUS_FILE).exists():
            with files.reading(folder / CORPUS_FILE):
                known["training_text"] = storage.file_sha256(folder / CORPUS_FILE)[:8]
        if (folder / METRICS_FILE).exists():
            lines = metrics_lines(folder)
            evaluations = [line for line in lines if line.kind == "valid"]
            if not evaluations:
                raise InputError(
                    f"{folder / METRICS_FILE}: no line of kind 'valid'; train until the first "
                    "evaluation"
                )
            known["seconds"] = round(lines[-1].seconds)
            known["curve"] = [[line.step, line.perplexity] for line in evaluations]
            known["unfinished"] = not (folder / RESULT_FILE).exists()
    return known
