"""--adapt of launchers: before and after, tuned or given, and what is refused."""

import json
import types
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.corpus import open_corpus
from dclm_jax.evaluation import caches, coherence, dynamic, perplexity
from dclm_jax.evaluation.caches import CachedScorer, NeuralCache, NeuralSetting, UnigramSetting
from dclm_jax.evaluation.insertion import insert
from launch import _adaptation
from tests.launch.support import TOLERANCE, fingerprint, launch, refuse


def documents(space, split):
    data = open_corpus(space.corpus, split)
    return [data.document(index) for index in range(data.num_documents)]


def test_two_caches_over_two_runs(space):
    runs = [space.run, space.rnnlm]
    given = ["--adapt=cache,unigram", "--cache_weight=0.3", "--cache_theta=0.5"]
    given += ["--cache_window=9", "--cache_strength=5"]
    command = ["evaluate", f"--workdirs={runs[0]},{runs[1]}", *given]
    together = json.loads(launch(*command, "--output=-").stdout)
    assert list(together) == ["runs"]
    for run, result in zip(runs, together["runs"], strict=True):
        lm: Any = dclm_jax.restore(run)
        adapted, of_words = result.pop("adapted")
        alone = launch("evaluate", f"--workdir={run}", "--output=-")
        assert result == json.loads(alone.stdout)
        cache = NeuralCache(lm.model, lm.params)
        scorer = CachedScorer(cache, NeuralSetting(0.5, 9, 5.0), 0.3)
        expected = perplexity.measure(scorer, documents(space, "test"))
        assert adapted["perplexity"] == pytest.approx(expected.perplexity, rel=TOLERANCE)
        assert adapted["adapt"] == "cache" and "tuning" not in adapted
        assert adapted["setting"] == {"weight": 0.3, "theta": 0.5, "window": 9, "strength": 5.0}
        for same in ("tokens", "words", "documents", "split"):
            assert adapted[same] == result[same]
        assert adapted["perplexity"] != result["perplexity"]
        scorer = CachedScorer(caches.UnigramCache(lm.scorer), UnigramSetting(5.0), 0.3)
        expected = perplexity.measure(scorer, documents(space, "test"))
        assert of_words["perplexity"] == pytest.approx(expected.perplexity, rel=TOLERANCE)
        assert of_words["adapt"] == "unigram"
    lines = launch(*command).stdout.splitlines()
    names = [line.split("  ")[0] for line in lines[2:8]]
    adapted = [f"{run} + {kind}" for kind in ("cache", "unigram") for run in ("ccdclm", "rnnlm")]
    assert names == ["ccdclm", "rnnlm", *adapted]
    assert lines[-3] == "rnnlm + cache: weight 0.3, theta 0.5, window 9, strength 5"
    assert lines[-1] == "rnnlm + unigram: weight 0.3, strength 5"


def test_what_is_not_given_is_tuned_on_the_development_split(space, tmp_path):
    output = tmp_path / "result.json"
    command = ["evaluate", f"--workdir={space.run}", "--adapt=unigram", f"--output={output}"]
    done = launch(*command, f"--input={space.text['test']}")
    result = json.loads(output.read_text())
    (adapted,) = result["adapted"]
    tuning = adapted["tuning"]
    assert (tuning["data"], tuning["split"]) == (str(space.corpus), "valid")
    lm = dclm_jax.restore(space.run)
    tried = caches.tune(
        caches.UnigramCache(lm.scorer), documents(space, "valid"), caches.UNIGRAM_GRID
    )
    assert [one["strength"] for one in tuning["tried"]] == [one.setting.strength for one in tried]
    for found, one in zip(tuning["tried"], tried, strict=True):
        assert found["perplexity"] == pytest.approx(one.perplexity, rel=TOLERANCE)
    best = tuning["tried"][0]
    assert adapted["setting"] == {"weight": best["weight"], "strength": best["strength"]}
    scorer = CachedScorer(
        caches.UnigramCache(lm.scorer), UnigramSetting(best["strength"]), best["weight"]
    )
    expected = perplexity.measure(scorer, documents(space, "test")).perplexity
    assert adapted["perplexity"] == pytest.approx(expected, rel=TOLERANCE)
    # Sentences of one topic say the same words again.
    assert adapted["perplexity"] < result["perplexity"]
    shown = [line.split() for line in done.stdout.splitlines()]
    assert shown[2][3] == f"{result['perplexity']:.4f}"
    assert shown[3][:3] == ["ccdclm", "+", "unigram"]
    assert shown[3][5] == f"{adapted['perplexity']:.4f}"
    assert ", tuned on valid" in done.stdout.splitlines()[-1]


def test_standard_input_tunes_once_only(space):
    for flags in (
        [f"--workdirs={space.run},{space.rnnlm}", "--adapt=unigram"],
        [f"--workdir={space.run}", "--adapt=unigram,cache"],
    ):
        error = refuse("evaluate", *flags, "--tune_input=-", stdin="w1 w2\n")
        assert "--tune_input=- can be read once, and is tuned on 2 times; expected" in error


def test_dynamic_evaluation(space):
    before = fingerprint(space.run)
    command = [f"--workdir={space.rnnlm}", "--adapt=dynamic", "--dynamic_rate=0.003", "--output=-"]
    result = json.loads(launch("evaluate", *command).stdout)
    (adapted,) = result["adapted"]
    tried = {one["decay"] for one in adapted["tuning"]["tried"]}
    assert tried == set(dynamic.DECAYS)
    assert {one["rate"] for one in adapted["tuning"]["tried"]} == {0.003}
    setting = adapted["setting"]
    assert setting == {
        "rate": 0.003,
        "decay": adapted["tuning"]["tried"][0]["decay"],
        "sentences": 1,
    }
    assert adapted["tokens"] == result["tokens"]
    assert 0 < abs(adapted["perplexity"] - result["perplexity"]) < result["perplexity"] / 2
    given = [*command, "--dynamic_decay=0", "--dynamic_sentences=2"]
    (adapted,) = json.loads(launch("evaluate", *given).stdout)["adapted"]
    lm: Any = dclm_jax.restore(space.rnnlm)
    training = open_corpus(space.corpus, "train")
    order = np.random.default_rng(0).permutation(training.num_documents)
    ordered = [training.document(i) for i in order]
    scale = dynamic.root_mean_square(lm.model, lm.params, ordered, sentences=2)
    scorer = dynamic.DynamicScorer(lm.model, lm.params, scale, 0.003, 0.0, sentences=2)
    expected = perplexity.measure(scorer, documents(space, "test")).perplexity
    assert adapted["perplexity"] == pytest.approx(expected, rel=TOLERANCE)
    diverging = [*command[:2], "--dynamic_rate=1e38", "--dynamic_decay=0"]
    error = refuse("evaluate", *diverging, code=1)
    assert "error: rnnlm + dynamic diverged: step 2 of document 1 has " in error
    assert " nats a target at rate 1e+38 and decay 0; " in error
    error = refuse("evaluate", *command[:2], "--dynamic_rate=1e38", code=1)
    assert "error: rnnlm + dynamic (tuning) diverged: " in error
    assert fingerprint(space.run) == before


@pytest.mark.parametrize(
    ("theta", "strength", "edges"),
    [
        (0.2, 30.0, ""),
        (0.1, 30.0, " (theta is the smallest tried)"),
        (0.4, 90.0, " (theta is the largest tried, strength is the largest tried)"),
        # No strength is below 0.
        (0.2, 0.0, ""),
    ],
)
def test_settings_at_the_edge_of_what_was_tried_are_told(theta, strength, edges):
    tried = [
        {"weight": weight, "theta": one, "window": 9, "strength": s, "perplexity": 5.0}
        for weight, one in ((0.1, 0.1), (0.2, 0.2), (0.3, 0.4))
        for s in (0.0, 30.0, 90.0)
    ]
    run: Any = types.SimpleNamespace(label="rnnlm")
    scorer: Any = None
    setting = {"weight": 0.3, "theta": theta, "window": 9, "strength": strength}
    adapted = _adaptation.Adapted(run, "cache", scorer, setting, {"split": "valid"}, tried)
    told = f"rnnlm + cache: weight 0.3, theta {theta:g}, window 9, strength {strength:g}"
    assert str(adapted) == f"{told}, tuned on valid{edges}"
    useless = adapted._replace(setting={**setting, "weight": 0.0})
    assert str(useless).endswith(", tuned on valid (with a weight of 0 the cache is not used)")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--adapt=cache", "--cache_window=0"], "--cache_window=0"),
        (["--adapt=unigram", "--cache_weight=1.5"], "--cache_weight=1.5"),
        (["--adapt=cache", "--cache_weight=-0.1"], "--cache_weight=-0.1"),
        (["--adapt=dynamic", "--dynamic_rate=-1"], "--dynamic_rate=-1"),
        (["--adapt=dynamic", "--dynamic_sentences=0"], "--dynamic_sentences=0"),
        (["--adapt="], "--adapt is empty; expected some of cache, unigram, dynamic"),
        (["--adapt=other"], "--adapt=other is unknown; expected some of cache, unigram, dynamic"),
        (["--adapt=cache,unigram,cache"], "--adapt names cache twice"),
        (["--cache_window=9"], "--cache_window belongs to --adapt=cache, which is missing"),
        (["--cache_weight=0"], "belongs to --adapt=cache or unigram, which is missing"),
        (["--adapt=cache", "--dynamic_rate=1"], "--dynamic_rate belongs to --adapt=dynamic"),
        (["--adapt=cache", "--split=valid"], "--adapt=cache would be tuned on the split it is"),
        (
            ["--adapt=unigram", "--cache_weight=0", "--cache_strength=1", "--tune_on=train"],
            "there is nothing to tune",
        ),
        (["--adapt=cache", "--interpolate"], "expected it without --adapt"),
    ],
)
def test_bad_flags_are_refused_in_one_line(space, tmp_path, arguments, expected):
    error = refuse("evaluate", f"--workdir={space.run}", "--output=x", *arguments, cwd=tmp_path)
    assert expected in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("objective", "model", "adaptable", "expected"),
    [
        ("words", "rnnlm", ("cache", "unigram", "dynamic"), ""),
        ("words", None, ("unigram",), "is an n-gram model, without hidden states and gradients"),
        ("bags", "rnnslm", (), "predicts bags; expected a model that predicts words"),
    ],
)
def test_what_cannot_be_adapted_is_known_before_anything_is_measured(
    objective, model, adaptable, expected
):
    lm: Any = types.SimpleNamespace(model=model, scorer=types.SimpleNamespace(objective=objective))
    for kind in ("cache", "unigram", "dynamic"):
        told = _adaptation.obstacle(lm, kind)
        assert not told if kind in adaptable else told.startswith(expected)


def test_orders_are_told_apart_by_adapted_runs_beside_the_runs(space):
    given = ["--cache_weight=0.3", "--cache_theta=0.5", "--cache_strength=5"]
    command = ["coherence", f"--workdir={space.rnnlm}", "--adapt=cache,unigram", *given]
    found = json.loads(
        launch(*command, "--permutations=2", "--also=insertion", "--output=-").stdout
    )["runs"]
    assert [one["label"] for one in found] == ["rnnlm", "rnnlm + cache", "rnnlm + unigram"]
    lm: Any = dclm_jax.restore(space.rnnlm)
    scorers = [
        CachedScorer(NeuralCache(lm.model, lm.params), NeuralSetting(0.5, 2000, 5.0), 0.3),
        CachedScorer(caches.UnigramCache(lm.scorer), UnigramSetting(5.0), 0.3),
    ]
    assert found[0]["mean"] == 0.5
    for one, scorer in zip(found[1:], scorers, strict=True):
        expected = coherence.compare(scorer, documents(space, "test"), permutations=2).result
        assert one["mean"] == pytest.approx(expected.mean) and one["pairs"] == expected.pairs
        assert one["insertion"] == insert(scorer, documents(space, "test")).result.to_json()
        assert one["adapt"] in one["label"] and one["setting"]["weight"] == 0.3
    for flags, expected in (
        (["--baseline=overlap", f"--data={space.corpus}"], "--baseline scores orders without"),
        ([f"--workdir={space.rnnlm}", "--split=valid"], "would be tuned on the split it is"),
        ([*command[1:2], *given, "--tune_on=train"], "--tune_input belong to --adapt where"),
    ):
        assert expected in refuse("coherence", "--adapt=cache", *flags)
    assert "--tune_on: a report tunes on" in refuse(
        *("report", f"--workdirs={space.rnnlm}", "--output=x", "--adapt=cache", "--tune_on=train")
    )
