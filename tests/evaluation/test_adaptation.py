"""Test-time adaptation: settings given and tuned, their text, and what is refused."""

import itertools
import math
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.readers import read_documents
from dclm_jax.errors import DivergenceError, InputError
from dclm_jax.evaluation import adaptation
from dclm_jax.evaluation.adaptation import Adaptation
from dclm_jax.language_model import LanguageModel
from dclm_jax.scoring import dynamic
from dclm_jax.scoring.caches import CachedScorer, CacheSetting, neural_cache
from dclm_jax.scoring.perplexity import perplexity_of
from dclm_jax.scoring.scorer import SummedScorer
from tests.test_read_document import language_model


def setting_of(trial: dict[str, float]) -> dict[str, float]:
    return {name: number for name, number in trial.items() if name != "perplexity"}


# Settings are also passed as dicts.
adapt: Any = adaptation.adapt


@pytest.fixture(scope="module")
def lm(uninterrupted) -> LanguageModel:
    return dclm_jax.restore(uninterrupted)


@pytest.fixture(scope="module")
def documents(texts) -> list:
    return list(read_documents(texts["valid"]))


def test_given_settings_are_not_tuned(lm, documents):
    setting = {"weight": 0.3, "theta": 0.5, "window": 9, "strength": 5.0}
    adapted = adapt(lm, "cache", **setting)
    assert adapted.adaptation == Adaptation("cache", setting)
    assert str(adapted.adaptation) == "weight 0.3, theta 0.5, window 9, strength 5"
    assert adapted.adaptation.to_json() == {"adapt": "cache", "setting": setting}
    scorer = CachedScorer(neural_cache, lm.scorer.ids, CacheSetting(0.5, 9, 5.0), 0.3)
    expected = perplexity_of(SummedScorer(scorer), [lm.encode(document) for document in documents])
    measured = adapted.perplexity(documents)
    assert measured.perplexity == pytest.approx(expected.perplexity, rel=1e-6)
    assert measured.characters and measured.usual_oov_rate is not None
    assert adapted.summary.startswith("ccdclm + cache, ")
    # It is one more model that scores documents, and scores them alike.
    total = -math.fsum(score.log_prob for score in adapted.score(documents))
    assert total == pytest.approx(measured.nll, rel=1e-5)
    with pytest.raises(
        InputError, match="--adapt=cache: ccdclm is already adapted; choose the model without"
    ):
        adapt(adapted, "cache")


def test_caches_are_tuned_to_the_best_weight_of_each_setting(lm, documents, monkeypatch):
    seen = []
    adapted = adapt(lm, "unigram", tune_on=documents, on_document=seen.append)
    assert seen == list(range(1, len(documents) + 1))
    trials = adapted.adaptation.trials
    strengths = adaptation.GRIDS["unigram"]["strength"]
    assert {trial["strength"] for trial in trials} == set(strengths)
    perplexities = [trial["perplexity"] for trial in trials]
    assert perplexities[0] < perplexities[1] and perplexities == sorted(perplexities)
    assert adapted.adaptation.setting == setting_of(trials[0])
    assert str(adapted.adaptation).endswith(", tuned on documents")
    # Sentences of one topic say the same words again.
    assert perplexities[0] < lm.perplexity(documents).perplexity
    for trial in trials[:2]:
        weight, strength = trial["weight"], trial["strength"]
        of_weights = []
        for candidate in (weight, *np.linspace(0, 1, 11)):
            mixed = adapt(lm, "unigram", weight=candidate, strength=strength)
            of_weights.append(mixed.perplexity(documents).perplexity)
        assert trial["perplexity"] == pytest.approx(of_weights[0], rel=1e-6)
        assert trial["perplexity"] <= min(of_weights) * (1 + 1e-6)
    value = adapted.adaptation.to_json()["tuning"]
    assert value["input"] == "documents"
    assert value["tried"] == trials

    monkeypatch.setitem(adaptation.GRIDS, "cache", {"theta": (0.1, 0.2), "strength": (1.0, 2.0)})
    adapted = adapt(lm, "cache", tune_on=documents, weight=0.2, strength=3.0)
    settings = list(map(setting_of, adapted.adaptation.trials))
    fixed = {"weight": 0.2, "window": 2000, "strength": 3.0}
    assert sorted(settings, key=lambda setting: setting["theta"]) == [
        {**fixed, "theta": theta} for theta in (0.1, 0.2)
    ]


def test_dynamic_evaluation_tries_rates_then_decays(lm, data, documents, monkeypatch):
    grid = {"rate": (0.0003, 0.003, 1e38), "decay": (0.0, 0.2)}
    monkeypatch.setitem(adaptation.GRIDS, "dynamic", grid)
    adapted = adapt(lm, "dynamic", tune_on=documents)
    *sound, diverged = adapted.adaptation.trials
    assert diverged == {"rate": 1e38, "decay": 0.0, "perplexity": math.inf}
    best = next(trial["rate"] for trial in sound if trial["decay"] == 0)
    tried = {(trial["rate"], trial["decay"]) for trial in sound}
    assert tried == {(0.0003, 0.0), (0.003, 0.0), (best, 0.2)}
    perplexities = [trial["perplexity"] for trial in sound]
    assert perplexities == sorted(perplexities)
    assert adapted.adaptation.setting == setting_of(sound[0])
    expected = adapt(lm, "dynamic", **adapted.adaptation.setting).perplexity(documents)
    assert perplexities[0] == expected.perplexity == adapted.perplexity(documents).perplexity

    # The scale is that of the training text, in an order drawn once.
    training = open_corpus(data, "train")
    order = np.random.default_rng(0).permutation(training.num_documents)
    model: Any = lm.model
    params: Any = lm.params
    scale = dynamic.root_mean_square(model, params, map(training.document, order))
    rate, decay = sound[0]["rate"], sound[0]["decay"]
    scorer = dynamic.DynamicScorer(model, params, lambda: scale, rate, decay)
    measured = perplexity_of(SummedScorer(scorer), map(lm.encode, documents))
    assert measured.perplexity == expected.perplexity

    decays = adapt(lm, "dynamic", tune_on=documents, rate=0.003).adaptation.trials
    assert {(trial["rate"], trial["decay"]) for trial in decays} == {(0.003, 0.0), (0.003, 0.2)}
    rates = adapt(lm, "dynamic", tune_on=documents, decay=0.2).adaptation.trials
    assert {(trial["rate"], trial["decay"]) for trial in rates} == {
        (rate, 0.2) for rate in grid["rate"]
    }
    message = rf"^{lm.facts.name} \+ dynamic \(tuning\) diverged: sentence"
    with pytest.raises(DivergenceError, match=message):
        adapt(lm, "dynamic", tune_on=documents, rate=1e38)


def test_the_text_that_scales_dynamic_evaluation_is_known_by_its_checksum(lm, texts, tmp_path):
    (tmp_path / "train").write_text(Path(texts["train"]).read_text().partition("\n\n")[0])
    lm.vocabulary.save(tmp_path / "vocabulary")
    options = PrepareOptions(vocabulary=tmp_path / "vocabulary")
    prepare({"train": tmp_path / "train"}, tmp_path / "other", options=options)
    default, again, other = (
        adapt(lm, "dynamic", rate=0.001, decay=0.0, data=directory).adaptation.training_text
        for directory in (None, lm.facts.config["data"]["directory"], str(tmp_path / "other"))
    )
    assert default == again != other and len(other) == len(default) == 64
    assert adapt(lm, "unigram", weight=0.1, strength=1.0).adaptation.training_text == ""


def test_the_training_text_is_read_when_documents_are_scored(lm, documents, monkeypatch):
    opened = []
    real = adaptation.open_corpus
    monkeypatch.setattr(adaptation, "open_corpus", lambda *a: opened.append(a) or real(*a))
    adapted = adapt(lm, "dynamic", rate=0.001, decay=0.0)
    assert adapted.fingerprint == lm.fingerprint and not opened
    list(adapted.score(documents[:2]))
    list(adapted.score(documents[:2]))
    assert len(opened) == 1


def test_a_model_is_adapted_once_and_needs_no_source(lm):
    cache = Adaptation("unigram", {"weight": 0.1, "strength": 30.0})
    with pytest.raises(InputError, match="ccdclm is already adapted"):
        adaptation.adapted(adaptation.adapted(lm, cache), cache)
    for call in (adaptation.adapted, lambda lm, cache: adapt(lm, cache.kind, **cache.setting)):
        with pytest.raises(InputError, match="is an autoencoder, whose documents have no prob"):
            call(language_model("standard_autoencoder"), cache)


def test_dynamic_evaluation_is_tuned_on_the_first_documents(lm, documents, monkeypatch):
    monkeypatch.setattr(adaptation, "TUNING_TARGETS", 20)
    seen = []
    adapt(lm, "dynamic", tune_on=iter(documents), rate=0.001, on_document=seen.append)
    targets = itertools.accumulate(
        sum(len(words) + 1 for words in document.sentences) for document in documents
    )
    needed = next(number for number, sum_ in enumerate(targets, start=1) if sum_ >= 20)
    assert needed < len(documents) and seen == [*range(1, needed + 1)] * 3


@pytest.mark.parametrize(
    ("kind", "setting", "expected"),
    [
        ("other", {}, "--adapt=other is unknown; choose from cache, unigram, dynamic"),
        ("unigram", {"theta": 1.0}, "theta is not a setting of --adapt=unigram; choose from wei"),
        *(
            ("cache", {name: value}, f"the {name} of --adapt=cache is {value}; expected a number")
            for name, values in {
                "window": (0, 10**9 + 1),
                "theta": (-0.1, 1e300),
                "strength": (-1, 1e39),
                "weight": (-0.1, 1.1, math.nan),
            }.items()
            for value in values
        ),
        ("unigram", {"strength": 0.0}, "--adapt=unigram: with strength 0 new words have probabili"),
        ("unigram", {"strength": math.nan}, "the strength of --adapt=unigram is nan; expected"),
        (
            "cache",
            {"weight": 1.0, "strength": 0.0},
            "new words have probability 0; choose a strength above 0, or",
        ),
        ("dynamic", {"rate": -1.0}, "the rate of --adapt=dynamic is -1.0; expected a number fro"),
        ("dynamic", {"rate": math.nan}, "the rate of --adapt=dynamic is nan; expected a number f"),
        ("dynamic", {"decay": 1e39}, "the decay of --adapt=dynamic is 1e+39; expected a number"),
        ("cache", {"weight": 0.1}, "--adapt=cache has no value for theta, strength; pass numbers"),
    ],
)
def test_settings_that_are_none(kind, setting, expected):
    with pytest.raises(InputError) as refused:
        adapt(language_model("rnnlm"), kind, **setting)
    assert expected in str(refused.value)


def test_there_must_be_text_to_tune_on():
    with pytest.raises(InputError, match="no sentence to tune the cache on; choose documents"):
        adapt(language_model("rnnlm"), "unigram", tune_on=[])


@pytest.mark.parametrize(
    ("lm", "kinds", "expected"),
    [
        (language_model("rnnlm"), ("cache", "unigram", "dynamic"), ""),
        (
            types.SimpleNamespace(
                adaptation=None,
                scorer=types.SimpleNamespace(objective="words"),
            ),
            ("unigram",),
            "has no hidden states and gradients; use --adapt=unigram",
        ),
        (language_model("rnnslm"), (), "predicts bags of words; choose a model that"),
    ],
    ids=["neural", "ngram", "bags"],
)
def test_what_cannot_be_adapted_is_known_before_anything_is_measured(lm: Any, kinds, expected):
    for kind in ("cache", "unigram", "dynamic"):
        reason = adaptation.obstacle(lm, kind)
        assert not reason if kind in kinds else reason.startswith(expected)
