"""Models with test-time adaptation to each document, and the tuning of its settings.

Missing numbers of a setting are tuned on documents that are not evaluated. A cache is tried at
every combination of its grid, and the weight is tuned for each combination. Dynamic evaluation is
tried at every rate without decay, and then at every decay with the best rate. The trials of dynamic
evaluation score only the first documents, with at least TUNING_TARGETS targets in total.
"""

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dclm_jax.data.corpus import open_corpus, read_manifest, split_files
from dclm_jax.data.datasets import Dataset, require_vocabulary
from dclm_jax.data.documents import OnDocument
from dclm_jax.data.encoding import Documents, Encoded
from dclm_jax.data.vocabulary import Vocabulary, word_ends
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.evaluation.results import Evaluation
from dclm_jax.language_model import LanguageModel, require_no_source
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.neural_language_model import NeuralLanguageModel
from dclm_jax.scoring import interpolation
from dclm_jax.scoring.adaptation import Adaptation, Setting, complete
from dclm_jax.scoring.caches import (
    Cache,
    CachedScorer,
    CacheSetting,
    neural_cache,
    unigram_cache,
)
from dclm_jax.scoring.dynamic import DynamicScorer, root_mean_square
from dclm_jax.scoring.perplexity import perplexity_of
from dclm_jax.scoring.scorer import Scorer, SummedScorer, count_targets

_perplexity = operator.itemgetter("perplexity")

GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "cache": {"theta": (0.05, 0.1, 0.2, 0.4, 0.8, 1.6), "strength": (0.0, 30.0, 100.0, 300.0)},
    "unigram": {"strength": (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0)},
    "dynamic": {"rate": (1e-4, 3e-4, 1e-3, 2e-3, 4e-3), "decay": (0.0, 1e-3, 1e-2)},
}
TUNING_TARGETS = 10_000


def obstacle(lm: LanguageModel, kind: str) -> str:
    """The reason why a model does not support a kind of adaptation; empty if it is supported."""
    if lm.adaptation is not None:
        return "is already adapted; choose the model without adaptation"
    if lm.scorer.objective != "words":
        return "predicts bags of words; choose a model that predicts words"
    if kind != "unigram" and not isinstance(lm, NeuralLanguageModel):
        return "has no hidden states and gradients; use --adapt=unigram"
    return ""


def _require_adaptable(lm: LanguageModel, kind: str) -> None:
    require_no_source(lm)
    if reason := obstacle(lm, kind):
        raise InputError(f"--adapt={kind}: {lm.facts.name} {reason}")


def training_text(lm: LanguageModel, kind: str, data: str | None) -> str:
    """The checksum of the training text that scales the steps of dynamic evaluation; empty for
    other kinds; for `data` see `Tuning`."""
    if kind != "dynamic":
        return ""
    manifest = read_manifest(data or lm.facts.config["data"]["directory"])
    return manifest.files.get(split_files("train")[0], "")


@dataclasses.dataclass(frozen=True)
class Tuning(Evaluation[Adaptation]):
    """The choice of the missing numbers of a setting on documents that are not evaluated.

    Attributes:
      kind: one of SETTINGS.
      setting: result of `complete`; numbers that are None are tuned.
      data: the prepared corpus whose training text scales the steps of dynamic evaluation; by
        default the model's corpus.
      training_text: result of `training_text`.
    """

    kind: str
    setting: Setting
    data: str | None = None
    training_text: str = ""

    name: ClassVar[str] = "adaptation"
    version: ClassVar[int] = 2

    @classmethod
    def of(cls, lm: LanguageModel, kind: str, setting: Setting, data: str | None) -> "Tuning":
        """The tuning of the missing numbers of a setting. Wrong numbers, and a model that does not
        support the kind of adaptation, are refused."""
        numbers = complete(kind, setting)
        _require_adaptable(lm, kind)
        return cls(kind, numbers, data, training_text(lm, kind, data))

    @property
    def missing(self) -> list[str]:
        """The names of the numbers that are tuned."""
        return [name for name, value in self.setting.items() if value is None]

    @property
    def given(self) -> Adaptation | None:
        """The adaptation if no number is missing, else None."""
        numbers = {name: value for name, value in self.setting.items() if value is not None}
        if self.missing:
            return None
        return Adaptation(self.kind, numbers, training_text=self.training_text)

    @property
    def title(self) -> str:
        return f"tuning of {self.kind}"

    @property
    def options(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "setting": dict(self.setting),
            "grid": GRIDS[self.kind],
            "training_text": self.training_text,
        }

    def num_documents(self, dataset: Dataset) -> int | None:
        # Dynamic evaluation reads some of the documents several times.
        return None if self.kind == "dynamic" else dataset.num_documents

    def measure(self, lm: LanguageModel, dataset: Dataset, on_document: OnDocument) -> Adaptation:
        trials = _adaptable(lm, self.kind, self.data).tune(
            dataset.documents, self.setting, on_document
        )
        numbers = {
            name: trials[0][name] if value is None else value
            for name, value in self.setting.items()
        }
        return Adaptation(self.kind, numbers, trials, dataset.source, self.training_text)

    def to_json(self, result: Adaptation) -> dict[str, Any]:
        return dataclasses.asdict(result)

    def from_json(self, value: dict[str, Any]) -> Adaptation:
        # None stands for an infinite perplexity, which JSON cannot represent.
        trials = [
            {name: math.inf if number is None else number for name, number in trial.items()}
            for trial in value["trials"]
        ]
        return Adaptation(**{**value, "trials": trials})


def adapt(
    lm: LanguageModel,
    kind: str,
    *,
    tune_on: Documents | Dataset | None = None,
    data: str | None = None,
    on_document: OnDocument = lambda done: None,
    **setting: float | None,
) -> LanguageModel:
    """A model with test-time adaptation to each document, which scores documents.

    Args:
      lm: a language model without adaptation.
      kind: "cache" (neural), "unigram" (cache) or "dynamic" (evaluation).
      tune_on: documents, as `LanguageModel.score` takes them, on which missing numbers of the
        setting are tuned; they should differ from the measured documents.
      data: the prepared corpus whose training text scales the steps of dynamic evaluation; by
        default the model's corpus.
      on_document: called with the number of documents read to tune a setting.
      **setting: weight, theta, window and strength of a neural cache, weight and strength of a
        unigram cache, rate and decay of dynamic evaluation. Missing numbers are tuned, except
        window, whose default is 2,000.
    """
    tuning = Tuning.of(lm, kind, setting, data)
    adaptation = tuning.given
    if adaptation is None:
        if tune_on is None:
            raise InputError(
                f"--adapt={kind} has no value for {', '.join(tuning.missing)}; pass numbers, or "
                "documents to tune on"
            )
        adaptation = tuning.measure(lm, lm.dataset(tune_on), on_document)
    return adapted(lm, adaptation, data)


def adapted(lm: LanguageModel, adaptation: Adaptation, data: str | None = None) -> LanguageModel:
    """A model with this test-time adaptation, whose setting is complete; `data` as for `adapt`."""
    _require_adaptable(lm, adaptation.kind)
    scorer = _adaptable(lm, adaptation.kind, data).scorer(adaptation.setting)
    return LanguageModel(
        facts=lm.facts, vocabulary=lm.vocabulary, scorer=scorer, adaptation=adaptation
    )


def _adaptable(lm: LanguageModel, kind: str, data: str | None) -> "_Dynamic | _Cached":
    if kind == "unigram" or not isinstance(lm, NeuralLanguageModel):
        return _Cached(unigram_cache, lm.scorer, GRIDS["unigram"])
    if kind == "cache":
        return _Cached(neural_cache, lm.scorer.ids, GRIDS["cache"])
    return _Dynamic(lm, data)


class _Cached:
    """A scorer with one kind of cache and its grid."""

    def __init__(self, cache: Cache, base: Scorer, grid: Mapping[str, Sequence[float]]):
        self._cache, self._base, self._grid = cache, base, grid

    def scorer(self, setting: dict[str, Any]) -> Scorer:
        numbers = {name: value for name, value in setting.items() if name != "weight"}
        cached = CachedScorer(self._cache, self._base, CacheSetting(**numbers), setting["weight"])
        # The targets of a neural cache are ids.
        return SummedScorer(cached) if self._cache is neural_cache else cached

    def tune(
        self, documents: Iterable[Encoded], setting: Setting, on_document: OnDocument
    ) -> list[dict[str, float]]:
        """The trials of the grid, the best first. Documents are read once; memory has the nats of
        every target under the model and under each setting of the cache."""
        weight = setting["weight"]
        choices = {
            name: self._grid[name] if value is None else (value,)
            for name, value in setting.items()
            if name != "weight"
        }
        grid: list[dict[str, Any]] = [
            dict(zip(choices, numbers, strict=True))
            for numbers in itertools.product(*choices.values())
        ]
        nats: list[np.ndarray] = []
        num_targets = 0
        scored = self._cache(self._base, documents, [CacheSetting(**numbers) for numbers in grid])
        for number, (document, nll) in enumerate(scored, start=1):
            nats += [sentence.astype(np.float32) for sentence in nll]
            num_targets += count_targets(self._base, document)
            on_document(number)
        if not nats:
            raise InputError("no sentence to tune the cache on; choose documents with words")
        model_nll, *cache_nll = np.concatenate(nats).T
        trials = []
        for numbers, nll in zip(grid, cache_nll, strict=True):
            best = interpolation.best_weight(nll, model_nll) if weight is None else weight
            mixed = interpolation.mixed_nll(best, nll, model_nll)
            perplexity = math.exp(mixed.sum() / num_targets)
            trials.append({"weight": best, **numbers, "perplexity": perplexity})
        return sorted(trials, key=_perplexity)


def _scale(model: DocumentModel, params: Params, directory: str, vocabulary: Vocabulary) -> Params:
    """The root mean square of the gradients of a model on the training text of a corpus."""
    training = open_corpus(directory, "train")
    require_vocabulary(training, directory, vocabulary)
    order = np.random.default_rng(0).permutation(training.num_documents).tolist()
    return root_mean_square(model, params, map(training.document, order))


class _Dynamic:
    """A model, and the corpus whose training text scales the steps of dynamic evaluation."""

    def __init__(self, lm: NeuralLanguageModel, data: str | None):
        directory = data or lm.facts.config["data"]["directory"]
        self._model, self._params, self._name = lm.model, lm.params, f"{lm.facts.name} + dynamic"
        self._first_word_end = lm.vocabulary.first_word_end
        self._scale = functools.partial(_scale, lm.model, lm.params, directory, lm.vocabulary)

    def scorer(self, setting: dict[str, float]) -> Scorer:
        rate, decay = setting["rate"], setting["decay"]
        return SummedScorer(
            DynamicScorer(self._model, self._params, self._scale, rate, decay, name=self._name)
        )

    def tune(
        self, documents: Iterable[Encoded], setting: Setting, on_document: OnDocument
    ) -> list[dict[str, float]]:
        """The trials, the best first. Documents are read once per trial."""
        first_documents, targets = [], 0
        for document in documents:
            first_documents.append(document)
            ends = (word_ends(ids, self._first_word_end) for ids in document.sentences)
            targets += sum(int(end.sum()) + 1 for end in ends)
            if targets >= TUNING_TARGETS:
                break
        perplexities: dict[tuple[float, float], float] = {}
        error, scale = None, self._scale()

        def measure(rates: Iterable[float], decays: Iterable[float]) -> None:
            nonlocal error
            for rate, decay in itertools.product(rates, decays):
                if (rate, decay) in perplexities:
                    continue
                name = f"{self._name} (tuning)"
                scorer = DynamicScorer(
                    self._model, self._params, lambda: scale, rate, decay, name=name
                )
                try:
                    summed = SummedScorer(scorer)
                    measured = perplexity_of(summed, first_documents, on_document=on_document)
                    perplexities[rate, decay] = measured.perplexity
                except DivergenceError as diverged:
                    perplexities[rate, decay], error = math.inf, diverged

        rate, decay = setting["rate"], setting["decay"]
        measure(GRIDS["dynamic"]["rate"] if rate is None else (rate,), (decay or 0.0,))
        if decay is None:
            best_rate, _ = min(perplexities, key=perplexities.__getitem__)
            measure((best_rate,), GRIDS["dynamic"]["decay"])
        if error is not None and min(perplexities.values()) == math.inf:
            raise error
        trials = [
            {"rate": rate, "decay": decay, "perplexity": perplexity}
            for (rate, decay), perplexity in perplexities.items()
        ]
        return sorted(trials, key=_perplexity)
