"""Test-time adaptation of models to each document while they score it, and its tuning.

A model adapts by a neural cache or a unigram cache (`caches`), or by dynamic evaluation
(`dynamic`). Missing numbers of a setting are tuned on documents that are not evaluated. A cache is
tried at every combination of its grid, and the weight is tuned for each combination. Dynamic
evaluation is tried at every rate without decay, and then at every decay with the best rate. The
trials of dynamic evaluation score only the first documents, with at least TUNING_TARGETS targets in
total.
"""

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from dclm_jax.data.corpus import open_corpus, read_manifest, split_files
from dclm_jax.data.datasets import Dataset, require_vocabulary
from dclm_jax.data.documents import OnDocument
from dclm_jax.data.encoding import Encoded
from dclm_jax.data.vocabulary import Vocabulary, word_ends
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.evaluation.results import Evaluation
from dclm_jax.models.base import DocumentModel, Params
from dclm_jax.scoring import interpolation
from dclm_jax.scoring.caches import CachedScorer, CacheSetting, neural_cache, unigram_cache
from dclm_jax.scoring.dynamic import DynamicScorer, root_mean_square
from dclm_jax.scoring.perplexity import perplexity_of
from dclm_jax.scoring.scorer import SummedScorer, TargetScorer, count_targets

_perplexity = operator.itemgetter("perplexity")

Setting = Mapping[str, float | None]
"""Numbers by name; a number that is None is tuned."""

SETTINGS: dict[str, tuple[str, ...]] = {
    "cache": ("weight", "theta", "window", "strength"),
    "unigram": ("weight", "strength"),
    "dynamic": ("rate", "decay"),
}
"""The kinds of adaptation, and the names of their numbers."""
WINDOW = 2000
"""The default of the number "window", which is never tuned."""
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "cache": {"theta": (0.05, 0.1, 0.2, 0.4, 0.8, 1.6), "strength": (0.0, 30.0, 100.0, 300.0)},
    "unigram": {"strength": (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0)},
    "dynamic": {"rate": (1e-4, 3e-4, 1e-3, 2e-3, 4e-3), "decay": (0.0, 1e-3, 1e-2)},
}
TUNING_TARGETS = 10_000

# In these ranges products with scores and counts are finite in float32, and counts fit int32.
_RANGES = {
    "weight": (0, 1),
    "theta": (0, 1e30),
    "window": (1, 10**9),
    "strength": (0, 1e30),
    "rate": (0, 1e38),
    "decay": (0, 1e38),
}


class Adaptable(Protocol):
    """The parts of a `TextScorer` that adaptation uses."""

    @property
    def name(self) -> str: ...
    @property
    def vocabulary(self) -> Vocabulary: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @functools.cached_property
    def scorer(self) -> TargetScorer: ...
    @property
    def neural(self) -> tuple[DocumentModel, Params] | None: ...
    @property
    def batch_size(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """The kind and the setting of a model's adaptation.

    Attributes:
      kind: one of SETTINGS.
      setting: numbers by name.
      trials: the settings tried, each with its "perplexity" on the tuning documents (infinite if
        the model diverged), the best first; empty if the setting was not tuned.
      tuned_on: the source of the tuning documents.
      training_text: the checksum that `training_text` returns.
    """

    kind: str
    setting: dict[str, float]
    trials: list[dict[str, float]] = dataclasses.field(default_factory=list)
    tuned_on: dict[str, Any] = dataclasses.field(default_factory=dict)
    training_text: str = ""

    def __str__(self) -> str:
        numbers = (
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}"
            for name, value in self.setting.items()
        )
        source = self.tuned_on.get("input") or self.tuned_on.get("split")
        return ", ".join(numbers) + (f", tuned on {source}" if self.trials else "")

    def to_json(self) -> dict[str, Any]:
        """The kind, the setting and, if it was tuned, all trials."""
        value: dict[str, Any] = {"adapt": self.kind, "setting": self.setting}
        if self.trials:
            value["tuning"] = {**self.tuned_on, "tried": self.trials}
        return value


def complete(kind: str, setting: Setting) -> dict[str, float | None]:
    """All numbers of a kind of adaptation, checked: given numbers, defaults, and None to tune."""
    if kind not in SETTINGS:
        raise InputError(f"--adapt={kind} is unknown; choose from {', '.join(SETTINGS)}")
    for name in setting.keys() - set(SETTINGS[kind]):
        names = ", ".join(SETTINGS[kind])
        raise InputError(f"{name} is not a setting of --adapt={kind}; choose from {names}")
    numbers = {name: setting.get(name) for name in SETTINGS[kind]}
    if "window" in numbers and numbers["window"] is None:
        numbers["window"] = WINDOW
    for name, value in numbers.items():
        low, high = _RANGES[name]
        if value is not None and not low <= value <= high:
            raise InputError(
                f"the {name} of --adapt={kind} is {value}; expected a number from {low} to {high:g}"
            )
    if numbers.get("strength") == 0 and (kind == "unigram" or numbers["weight"] == 1):
        raise InputError(
            f"--adapt={kind}: with strength 0 new words have probability 0; choose a strength "
            "above 0" + (", or a weight below 1" if kind == "cache" else "")
        )
    return numbers


def obstacle(lm: Adaptable, kind: str) -> str:
    """The reason why a model does not support a kind of adaptation; empty if it is supported."""
    if lm.scorer.objective != "words":
        return "predicts bags of words; choose a model that predicts words"
    if kind != "unigram" and lm.neural is None:
        return "has no hidden states and gradients; use --adapt=unigram"
    return ""


def training_text(lm: Adaptable, kind: str, data: str | None) -> str:
    """The checksum of the training text that scales the steps of dynamic evaluation; empty for
    other kinds; for `data` see `Tuning`."""
    if kind != "dynamic":
        return ""
    manifest = read_manifest(data or lm.config["data"]["directory"])
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
    def of(cls, lm: Adaptable, kind: str, setting: Setting, data: str | None) -> "Tuning":
        """The tuning of the missing numbers of a setting. Wrong numbers, and a model that does not
        support the kind of adaptation, are refused."""
        numbers = complete(kind, setting)
        if reason := obstacle(lm, kind):
            raise InputError(f"--adapt={kind}: {lm.name} {reason}")
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

    def measure(self, lm: Any, dataset: Dataset, on_document: OnDocument) -> Adaptation:
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


def adapted_scorer(lm: Adaptable, adaptation: Adaptation, data: str | None) -> TargetScorer:
    """The scorer of a model that adapts; for `data` see `Tuning`."""
    return _adaptable(lm, adaptation.kind, data).scorer(adaptation.setting)


def _adaptable(lm: Adaptable, kind: str, data: str | None) -> "_Dynamic | _Cached":
    return _Dynamic(lm, data) if kind == "dynamic" else _Cached(lm, kind)


class _Cached:
    """A model with one kind of cache."""

    def __init__(self, lm: Adaptable, kind: str):
        self._kind, self._model_scorer = kind, lm.scorer
        if kind == "unigram" or lm.neural is None:
            self._cache = functools.partial(unigram_cache, lm.scorer)
        else:
            self._cache = functools.partial(neural_cache, *lm.neural, lm.batch_size)

    def scorer(self, setting: dict[str, Any]) -> TargetScorer:
        numbers = {name: value for name, value in setting.items() if name != "weight"}
        base = self._model_scorer
        cached = CachedScorer(
            self._cache,
            CacheSetting(**numbers),
            setting["weight"],
            base.vocab_size,
            base.first_word_end,
        )
        # The targets of a neural cache are ids.
        return cached if self._kind == "unigram" else SummedScorer(cached, base.first_word_end)

    def tune(
        self, documents: Iterable[Encoded], setting: Setting, on_document: OnDocument
    ) -> list[dict[str, float]]:
        """The trials of the grid, the best first. Documents are read once; memory has the nats of
        every target under the model and under each setting of the cache."""
        weight = setting["weight"]
        choices = {
            name: GRIDS[self._kind][name] if value is None else (value,)
            for name, value in setting.items()
            if name != "weight"
        }
        grid: list[dict[str, Any]] = [
            dict(zip(choices, numbers, strict=True))
            for numbers in itertools.product(*choices.values())
        ]
        nats: list[np.ndarray] = []
        num_targets = 0
        scored = self._cache(documents, [CacheSetting(**numbers) for numbers in grid])
        for number, (document, nll) in enumerate(scored, start=1):
            nats += [sentence.astype(np.float32) for sentence in nll]
            num_targets += count_targets(self._model_scorer, document)
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


class _Dynamic:
    """A model and the root mean square of its gradients on training text."""

    def __init__(self, lm: Adaptable, data: str | None):
        directory = data or lm.config["data"]["directory"]
        training = open_corpus(directory, "train")
        require_vocabulary(training, directory, lm.vocabulary)
        order = np.random.default_rng(0).permutation(training.num_documents).tolist()
        neural: Any = lm.neural
        model, params = neural
        scale = root_mean_square(model, params, map(training.document, order))
        self._scorer = functools.partial(DynamicScorer, model, params, scale)
        self._name, self._first_word_end = f"{lm.name} + dynamic", lm.vocabulary.first_word_end

    def scorer(self, setting: dict[str, float]) -> TargetScorer:
        scorer = self._scorer(setting["rate"], setting["decay"], name=self._name)
        return SummedScorer(scorer, self._first_word_end)

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
        error = None

        def measure(rates: Iterable[float], decays: Iterable[float]) -> None:
            nonlocal error
            for rate, decay in itertools.product(rates, decays):
                if (rate, decay) in perplexities:
                    continue
                scorer = self._scorer(rate, decay, name=f"{self._name} (tuning)")
                try:
                    summed = SummedScorer(scorer, self._first_word_end)
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
