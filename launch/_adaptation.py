"""What launchers share that adapt runs to each document: by caches, or by dynamic evaluation."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from dclm_jax.data.corpus import SPLITS, open_corpus
from dclm_jax.data.readers import STDIN, input_files
from dclm_jax.errors import InputError
from dclm_jax.evaluation import caches, datasets, dynamic
from dclm_jax.evaluation.datasets import Encoded
from dclm_jax.evaluation.scoring import WordScorer
from dclm_jax.language_model import LanguageModel
from launch import _evaluation

ADAPT = flags.DEFINE_list(
    "adapt",
    [],
    "Adapt each run to every document as it is read: some of cache (neural), unigram (cache) and "
    "dynamic (evaluation).",
)
_WEIGHT = flags.DEFINE_float(
    "cache_weight",
    None,
    "Weight l of the cache, from 0 to 1; default: tuned.",
    lower_bound=0,
    upper_bound=1,
)
_THETA = flags.DEFINE_float(
    "cache_theta",
    None,
    "Sharpness theta of --adapt=cache; default: tuned.",
    lower_bound=0,
)
_WINDOW = flags.DEFINE_integer(
    "cache_window",
    caches.DEFAULT_WINDOW,
    "Targets that --adapt=cache remembers.",
    lower_bound=1,
)
_STRENGTH = flags.DEFINE_float(
    "cache_strength",
    None,
    "Targets s that the model counts for in a cache; default: tuned.",
    lower_bound=0,
)
_RATE = flags.DEFINE_float(
    "dynamic_rate",
    None,
    "Learning rate eta of --adapt=dynamic; default: tuned.",
    lower_bound=0,
)
_DECAY = flags.DEFINE_float(
    "dynamic_decay",
    None,
    "Decay lambda of --adapt=dynamic towards the trained parameters; default: tuned.",
    lower_bound=0,
)
_SENTENCES = flags.DEFINE_integer(
    "dynamic_sentences",
    1,
    "Sentences after which --adapt=dynamic changes the parameters.",
    lower_bound=1,
)
TUNE_ON = flags.DEFINE_enum(
    "tune_on",
    "valid",
    SPLITS,
    "Split of the prepared corpus that tunes what --adapt leaves open, or --interpolate's weight.",
)
TUNE_INPUT = flags.DEFINE_string(
    "tune_input", None, "Text that tunes it instead, read as --format says."
)
_FLAGS = {
    "cache": (_WEIGHT, _THETA, _WINDOW, _STRENGTH),
    "unigram": (_WEIGHT, _STRENGTH),
    "dynamic": (_RATE, _DECAY, _SENTENCES),
}
_OWN = {flag.name: flag for flags_of_kind in _FLAGS.values() for flag in flags_of_kind}
SETTINGS = (ADAPT, *_OWN.values())
_GRIDS: dict[str, Sequence[Any]] = {"cache": caches.NEURAL_GRID, "unigram": caches.UNIGRAM_GRID}
_TUNING_TARGETS = 10_000
"""Dynamic evaluation is tuned on the first documents that have as many, which it reads often."""


class Adapted(NamedTuple):
    """A run that adapts itself: how, its setting, named as the flags are, and what was tried on
    which text, the best first; nothing if the setting was given."""

    run: _evaluation.Run
    kind: str
    scorer: WordScorer
    setting: dict[str, float]
    tuned_on: dict[str, Any]
    tried: list[dict[str, Any]]

    @property
    def label(self) -> str:
        """What it is called beside its run."""
        return f"{self.run.label} + {self.kind}"

    def __str__(self) -> str:
        setting = ", ".join(f"{name} {_shown(value)}" for name, value in self.setting.items())
        if not self.tried:
            return f"{self.label}: {setting}"
        where = self.tuned_on.get("input") or self.tuned_on["split"]
        return f"{self.label}: {setting}, tuned on {where}{self._edges()}"

    def _edges(self) -> str:
        """Which settings are the largest or the smallest that was tried, so that others, given by
        flag, may be better; nothing is below 0, and a weight is not tried but found. With a weight
        of 0 all settings are alike."""
        if self.setting.get("weight") == 0:
            return " (with a weight of 0 the cache is not used)"
        found = []
        for name, value in self.setting.items():
            values = {one[name] for one in self.tried if name in one}
            if name != "weight" and value and len(values) > 1:
                ends = {max(values): "largest", min(values): "smallest"}
                found += [f"{name} is the {ends[value]} tried"] if value in ends else []
        return f" ({', '.join(found)})" if found else ""

    def to_json(self) -> dict[str, Any]:
        """How it is adapted, and what was tried."""
        tuning = {"tuning": {**self.tuned_on, "tried": self.tried}} if self.tried else {}
        return {"adapt": self.kind, "setting": self.setting, **tuning}


def check_settings() -> None:
    """Refuses what is unknown, settings that are wrong, and flags that have no effect."""
    expected = f"expected some of {', '.join(_FLAGS)}"
    if ADAPT.present and not ADAPT.value:
        raise InputError(f"--adapt is empty; {expected}")
    for kind in ADAPT.value:
        if kind not in _FLAGS:
            raise InputError(f"--adapt={kind} is unknown; {expected}")
        if ADAPT.value.count(kind) > 1:
            raise InputError(f"--adapt names {kind} twice; expected each once")
    for name, flag in _OWN.items():
        kinds = [kind for kind, tuned in _FLAGS.items() if name in {one.name for one in tuned}]
        if flag.present and not set(kinds) & set(ADAPT.value):
            raise InputError(f"--{name} belongs to --adapt={' or '.join(kinds)}, which is missing")
    for kind in ADAPT.value:
        if kind in _GRIDS:
            caches.check_weight(_WEIGHT.value, _to_try(kind))
    dynamic.check_setting(_RATE.value, _DECAY.value)


def _to_try(kind: str) -> list[Any]:
    """Settings of a cache, with what is given in place of what is tried of it."""
    given = {name: value for name, value in settings(kind).items() if value is not None}
    given.pop("weight", None)
    return list(dict.fromkeys(dataclasses.replace(one, **given) for one in _GRIDS[kind]))


def settings(kind: str) -> dict[str, float | None]:
    """What the flags say of it; None is tuned."""
    return {_name(flag): flag.value for flag in _FLAGS[kind]}


def check_flags(mixes: bool = False) -> None:
    """Refuses flags that are wrong or have no effect, and tuning on what is measured; `mixes` says
    that the weight of a mixture is tuned."""
    check_settings()
    tunes = mixes or needs_tuning()
    if not tunes and (TUNE_ON.present or TUNE_INPUT.present):
        mixing = "--interpolate, or to " if "interpolate" in flags.FLAGS else ""
        raise InputError(
            f"--tune_on and --tune_input belong to {mixing}--adapt where something of it is not "
            "given; there is nothing to tune"
        )
    if TUNE_ON.present and TUNE_INPUT.present:
        raise InputError("--tune_input replaces --tune_on; expected one of the two")
    if tunes:
        _require_other_text("the weight" if mixes else f"--adapt={','.join(ADAPT.value)}")


def _require_other_text(what: str) -> None:
    """Nothing is tuned on what it is measured on: it would be fitted to it."""
    given = [flags.FLAGS[name].value for name in ("input", "permuted") if name in flags.FLAGS]
    measured, split = next(filter(None, given), None), flags.FLAGS.split

    def files_of(path: str) -> set[str]:
        return {path} if path == STDIN else {str(file.resolve()) for file in input_files(path)}

    if measured is None and TUNE_INPUT.value is None and TUNE_ON.value == split:
        raise InputError(
            f"{what} would be tuned on the split it is measured on, {split}; "
            "expected another one as --tune_on or --split"
        )
    if measured is not None and TUNE_INPUT.value is not None:
        if both := files_of(measured) & files_of(TUNE_INPUT.value):
            raise InputError(
                f"{what} would be tuned on text it is measured on, {min(both)}; "
                "expected other text as --tune_input or --input"
            )


def reads_split(mixes: bool = False) -> bool:
    """Whether a split of a prepared corpus is read beside what is measured: to tune on, or the
    training text of dynamic evaluation."""
    tunes_on_split = (mixes or needs_tuning()) and TUNE_INPUT.value is None
    return tunes_on_split or "dynamic" in ADAPT.value


def open_tuning(runs: Sequence[_evaluation.Run]) -> datasets.Input:
    """The text to tune on."""
    if TUNE_INPUT.value is None:
        return _evaluation.open_split(list(runs), TUNE_ON.value)
    return _evaluation.open_text([run.lm for run in runs], TUNE_INPUT.value)


def identity(kind: str) -> dict[str, Any]:
    """What decides how a run adapts itself in this way, beside the run and the texts."""
    tried = {
        "cache": [vars(one) for one in caches.NEURAL_GRID],
        "unigram": [vars(one) for one in caches.UNIGRAM_GRID],
        "dynamic": [*dynamic.RATES, *dynamic.DECAYS, dynamic.EPSILON, _TUNING_TARGETS],
    }
    return {"kind": kind, **settings(kind), "tried": tried[kind]}


def needs_tuning() -> bool:
    """Whether something about --adapt is not given."""
    return any(None in settings(kind).values() for kind in ADAPT.value)


def require_adaptable(runs: Sequence[_evaluation.Run]) -> None:
    """Refuses runs that cannot be adapted in the ways that are asked for."""
    asked = f"--adapt={','.join(ADAPT.value)}"
    _evaluation.require_language_models((run.lm for run in runs), asked)
    for run in runs:
        for kind in ADAPT.value:
            if told := obstacle(run.lm, kind):
                raise InputError(f"{asked}: {run.label} {told}")
    times = len(runs) * sum(None in settings(kind).values() for kind in ADAPT.value)
    if TUNE_INPUT.value == STDIN and times > 1:
        raise InputError(
            f"--tune_input=- can be read once, and is tuned on {times} times; expected a file"
        )


def obstacle(lm: LanguageModel, kind: str) -> str:
    """What a language model is, and what this way of adapting needs instead; empty if nothing."""
    objective = lm.scorer.objective
    if objective != "words":
        return f"predicts {objective}; expected a model that predicts words one after the other"
    if kind != "unigram" and lm.model is None:
        return "is an n-gram model, without hidden states and gradients; expected --adapt=unigram"
    return ""


def adapt(runs: Sequence[_evaluation.Run]) -> list[Adapted]:
    """All runs adapted in every way that is asked for, tuned where that is needed."""
    return [adapt_one(run, kind, runs) for kind in ADAPT.value for run in runs]


def adapt_one(run: _evaluation.Run, kind: str, runs: Sequence[_evaluation.Run]) -> Adapted:
    """A run as it adapts itself, tuned on the corpus of `runs`."""
    tuning = open_tuning(runs) if None in settings(kind).values() else None
    return _dynamic(run, tuning) if kind == "dynamic" else _cached(run, kind, tuning)


def _cached(run: _evaluation.Run, kind: str, tuning: datasets.Input | None) -> Adapted:
    cache, to_try = _cache(run, kind), _to_try(kind)
    weight: Any = _WEIGHT.value
    if tuning is None:
        setting = to_try[0]
        scorer = caches.CachedScorer(cache, setting, weight)
        return Adapted(run, kind, scorer, {"weight": weight, **vars(setting)}, {}, [])
    with _evaluation.Progress(f"tuning {run.label} + {kind}") as shown:
        tried = caches.tune(
            cache,
            tuning.documents,
            to_try,
            weight=weight,
            on_document=lambda done: shown(done, tuning.num_documents),
        )
    of_each = [{"weight": one.weight, **vars(one.setting)} for one in tried]
    told = [
        {**setting, "perplexity": one.perplexity}
        for setting, one in zip(of_each, tried, strict=True)
    ]
    scorer = caches.CachedScorer(cache, tried[0].setting, tried[0].weight)
    return Adapted(run, kind, scorer, of_each[0], tuning.source, told)


def _cache(run: _evaluation.Run, kind: str) -> caches.Cache:
    """The cache over a run."""
    model, params = run.lm.model, run.lm.params
    if kind == "unigram" or model is None or params is None:
        return caches.UnigramCache(run.lm.scorer)
    return caches.NeuralCache(model, params, batch_size=flags.FLAGS.batch_size)


def _dynamic(run: _evaluation.Run, tuning: datasets.Input | None) -> Adapted:
    model: Any
    params: Any
    model, params = run.lm.model, run.lm.params
    directory = _evaluation.directory_of([run])
    training = open_corpus(directory, "train")
    datasets.require_vocabulary(training, directory, run.lm.vocabulary)
    order = np.random.default_rng(0).permutation(training.num_documents)
    sentences = _SENTENCES.value
    scale = dynamic.root_mean_square(
        model, params, map(training.document, order.tolist()), sentences=sentences
    )

    def scorer(rate: float, decay: float, what: str = "") -> dynamic.DynamicScorer:
        name = f"{run.label} + dynamic{what}"
        return dynamic.DynamicScorer(
            model, params, scale, rate, decay, sentences=sentences, name=name
        )

    told: list[dict[str, Any]] = []
    rate: Any = _RATE.value
    decay: Any = _DECAY.value
    if tuning is not None:
        documents = list(_first(tuning.documents))
        with _evaluation.Progress(f"tuning {run.label} + dynamic") as shown:
            tuned = functools.partial(scorer, what=" (tuning)")
            tried = dynamic.tune(tuned, documents, rate=rate, decay=decay, on_document=shown)
        rate, decay, _ = tried[0]
        told = [one._asdict() for one in tried]
    setting = {"rate": rate, "decay": decay, "sentences": sentences}
    tuned_on = {} if tuning is None else tuning.source
    return Adapted(run, "dynamic", scorer(rate, decay), setting, tuned_on, told)


def _first(documents: Iterable[Encoded]) -> Iterator[Encoded]:
    """The first documents with _TUNING_TARGETS in all, or all of them."""
    targets = 0
    for document in documents:
        yield document
        targets += sum(len(words) + 1 for words in document.sentences)
        if targets >= _TUNING_TARGETS:
            return


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _name(flag: flags.FlagHolder) -> str:
    """That of a setting, which that of its flag ends in."""
    return flag.name.split("_", maxsplit=1)[1]
