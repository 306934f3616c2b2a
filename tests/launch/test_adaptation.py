"""--adapt of launchers: before and after, tuned or given, and what is refused."""

import json

import pytest

import dclm_jax
from dclm_jax.coherence.compare import Fixed, Insert, compare
from dclm_jax.evaluation.datasets import open_split
from tests.launch.support import TOLERANCE, fingerprint, launch, refuse


def test_two_caches_over_two_runs(space):
    runs = [space.run, space.rnnlm]
    given = ["--adapt=cache,unigram", "--cache_weight=0.3", "--cache_theta=0.5"]
    given += ["--cache_window=9", "--cache_strength=5"]
    command = ["evaluate", f"--workdirs={runs[0]},{runs[1]}", *given]
    together = json.loads(launch(*command, "--output=-").stdout)
    assert list(together) == ["runs"]
    settings = {
        "cache": {"weight": 0.3, "theta": 0.5, "window": 9, "strength": 5.0},
        "unigram": {"weight": 0.3, "strength": 5.0},
    }
    for run, result in zip(runs, together["runs"], strict=True):
        adapted = result.pop("adapted")
        assert result == json.loads(launch("evaluate", f"--workdir={run}", "--output=-").stdout)
        for one, (kind, setting) in zip(adapted, settings.items(), strict=True):
            lm = dclm_jax.restore(run).adapt(kind, **setting)
            expected = lm.perplexity(open_split(lm.vocabulary, space.corpus, "test"))
            assert one["perplexity"] == pytest.approx(expected.perplexity, rel=TOLERANCE)
            assert one["perplexity"] != result["perplexity"]
            assert (one["adapt"], one["setting"]) == (kind, setting) and "tuning" not in one
            assert all(one[same] == result[same] for same in ("tokens", "documents", "split"))
    lines = launch(*command).stdout.splitlines()
    names = [line.split("  ")[0] for line in lines[2:8]]
    adapted = [f"{run} + {kind}" for kind in ("cache", "unigram") for run in ("ccdclm", "rnnlm")]
    assert names == ["ccdclm", "rnnlm", *adapted]
    assert lines[-3] == "rnnlm + cache: weight 0.3, theta 0.5, window 9, strength 5"
    assert lines[-1] == "rnnlm + unigram: weight 0.3, strength 5"


def test_what_is_not_given_is_tuned_on_the_validation_split(space, tmp_path):
    output = tmp_path / "result.json"
    command = ["evaluate", f"--workdir={space.run}", "--adapt=unigram", f"--output={output}"]
    done = launch(*command, f"--input={space.text['test']}")
    result = json.loads(output.read_text())
    (adapted,) = result["adapted"]
    assert (adapted["tuning"]["data"], adapted["tuning"]["split"]) == (str(space.corpus), "valid")
    lm = dclm_jax.restore(space.run)
    tuned = lm.adapt("unigram", tune_on=open_split(lm.vocabulary, space.corpus, "valid"))
    assert tuned.adaptation is not None
    for one, trial in zip(adapted["tuning"]["tried"], tuned.adaptation.trials, strict=True):
        assert one["strength"] == trial.setting["strength"]
        assert one["perplexity"] == pytest.approx(trial.perplexity, rel=TOLERANCE)
    assert adapted["setting"] == pytest.approx(tuned.adaptation.setting, rel=1e-4)
    expected = tuned.perplexity(open_split(lm.vocabulary, space.corpus, "test")).perplexity
    assert adapted["perplexity"] == pytest.approx(expected, rel=TOLERANCE)
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
    command = [f"--workdir={space.rnnlm}", "--adapt=dynamic", "--dynamic_decay=0"]
    given = ["--dynamic_rate=0.003", "--dynamic_sentences=2", "--output=-"]
    (adapted,) = json.loads(launch("evaluate", *command, *given).stdout)["adapted"]
    assert adapted["setting"] == {"rate": 0.003, "decay": 0, "sentences": 2}
    lm = dclm_jax.restore(space.rnnlm).adapt("dynamic", rate=0.003, decay=0, sentences=2)
    expected = lm.perplexity(open_split(lm.vocabulary, space.corpus, "test")).perplexity
    assert adapted["perplexity"] == pytest.approx(expected, rel=TOLERANCE)
    error = refuse("evaluate", *command, "--dynamic_rate=1e38", code=1)
    assert "error: rnnlm + dynamic diverged: step 2 of document 1 has " in error
    assert " nats a target at rate 1e+38 and decay 0; " in error
    assert fingerprint(space.run) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--adapt=cache", "--cache_window=0"], "the window of --adapt=cache is 0"),
        (["--adapt=unigram", "--cache_weight=1.5"], "the weight of --adapt=unigram is 1.5"),
        (["--adapt=cache", "--cache_weight=-0.1"], "the weight of --adapt=cache is -0.1"),
        (["--adapt=dynamic", "--dynamic_rate=-1"], "the rate of --adapt=dynamic is -1.0"),
        (["--adapt=dynamic", "--dynamic_sentences=0"], "the sentences of --adapt=dynamic is 0"),
        (["--adapt="], "--adapt is empty; expected some of cache, unigram, dynamic"),
        (["--adapt=other"], "--adapt=other is unknown; expected some of cache, unigram, dynamic"),
        (["--adapt=cache,unigram,cache"], "--adapt=cache,unigram,cache repeats a name"),
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


def test_orders_are_told_apart_by_adapted_runs_beside_the_runs(space):
    given = ["--cache_weight=0.3", "--cache_theta=0.5", "--cache_strength=5"]
    command = ["coherence", f"--workdir={space.rnnlm}", "--adapt=cache,unigram", *given]
    found = json.loads(
        launch(*command, "--permutations=2", "--extra_tests=insertion", "--output=-").stdout
    )["runs"]
    assert [one["label"] for one in found] == ["rnnlm", "rnnlm + cache", "rnnlm + unigram"]
    lm = dclm_jax.restore(space.rnnlm)
    scorers = [
        lm.adapt("cache", weight=0.3, strength=5.0, theta=0.5).scorer,
        lm.adapt("unigram", weight=0.3, strength=5.0).scorer,
    ]
    opened = open_split(lm.vocabulary, space.corpus, "test")
    documents = [document.sentences for document in opened.documents]
    assert found[0]["mean"] == 0.5
    for one, scorer in zip(found[1:], scorers, strict=True):
        expected = compare(scorer, documents, Fixed(permutations=2)).result
        assert one["mean"] == pytest.approx(expected.mean) and one["pairs"] == expected.pairs
        inserted = compare(scorer, documents, Insert()).result
        assert one["insertion"] == inserted.to_json()
        assert one["adapt"] in one["label"] and one["setting"]["weight"] == 0.3
    for flags, expected in (
        (
            ["--baseline=maximum_entropy", f"--data={space.corpus}"],
            "--baseline scores orders without",
        ),
        ([f"--workdir={space.rnnlm}", "--split=valid"], "would be tuned on the split it is"),
        ([*command[1:2], *given, "--tune_on=train"], "--tune_input belong to --adapt where"),
    ):
        assert expected in refuse("coherence", "--adapt=cache", *flags)
    assert "--tune_on: a report tunes on" in refuse(
        *("report", f"--workdirs={space.rnnlm}", "--output=x", "--adapt=cache", "--tune_on=train")
    )
