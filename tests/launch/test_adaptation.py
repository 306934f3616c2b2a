"""--adapt of commands: before and after, tuned or given."""

import json

import pytest

import dclm_jax
from dclm_jax.data.datasets import open_split
from dclm_jax.evaluation.adaptation import adapt
from dclm_jax.language_model import LanguageModel
from tests.launch.support import TOLERANCE, fingerprint, launch, refuse


def evaluate(*flags: str):
    return json.loads(launch("evaluate", *flags, "--metrics=-").stdout)


def perplexity(space, lm: LanguageModel) -> float:
    return lm.perplexity(open_split(lm.vocabulary, space.corpus, "test")).perplexity


def test_three_ways_to_adapt_two_runs(space):
    before = fingerprint(space.run / "checkpoints")
    settings = {
        "cache": {"weight": 0.3, "theta": 0.5, "window": 9, "strength": 5.0},
        "unigram": {"weight": 0.3, "strength": 5.0},
        "dynamic": {"rate": 0.003, "decay": 0},
    }
    runs = {"ccdclm": space.run, "rnnlm": space.rnnlm}
    flags = [f"--workdirs={','.join(map(str, runs.values()))}", "--adapt=cache,unigram,dynamic"]
    for kind in ("cache", "dynamic"):
        flags += [f"--{kind}_{name}={number}" for name, number in settings[kind].items()]
    for run, result in zip(runs.values(), evaluate(*flags)["runs"], strict=True):
        for adapted, (kind, setting) in zip(result["adapted"], settings.items(), strict=True):
            expected = perplexity(space, adapt(dclm_jax.restore(run), kind, **setting))
            assert adapted["perplexity"] == pytest.approx(expected, rel=TOLERANCE)
            assert adapted["perplexity"] != result["perplexity"]
            assert (adapted["adapt"], adapted["setting"]) == (kind, setting)
            assert "tuning" not in adapted
            assert all(adapted[key] == result[key] for key in ("tokens", "documents", "split"))
    lines = launch("evaluate", *flags).stdout.splitlines()
    labels = [f"{run} + {kind}" for kind in settings for run in runs]
    assert [line.split("  ")[0] for line in lines[2:10]] == [*runs, *labels]
    assert "rnnlm + cache: weight 0.3, theta 0.5, window 9, strength 5" in lines
    assert fingerprint(space.run / "checkpoints") == before
    error = refuse("evaluate", *flags, "--dynamic_rate=1e38", code=1)
    assert "error: ccdclm + dynamic diverged: sentence 2 of document 1 has " in error
    assert " nats per target at rate 1e+38 and decay 0; " in error


def test_numbers_without_a_flag_are_tuned_on_the_validation_split(space, tmp_path):
    output = tmp_path / "result.json"
    command = ["evaluate", f"--workdir={space.run}", "--adapt=unigram", f"--metrics={output}"]
    lines = launch(*command, f"--input={space.text['test']}").stdout.splitlines()
    result = json.loads(output.read_text())
    (adapted,) = result["adapted"]
    assert (adapted["tuning"]["data"], adapted["tuning"]["split"]) == (str(space.corpus), "valid")
    lm = dclm_jax.restore(space.run)
    tuned = adapt(lm, "unigram", tune_on=open_split(lm.vocabulary, space.corpus, "valid"))
    assert tuned.adaptation is not None
    for tried, trial in zip(adapted["tuning"]["tried"], tuned.adaptation.trials, strict=True):
        assert tried["strength"] == trial["strength"]
        assert tried["perplexity"] == pytest.approx(trial["perplexity"], rel=TOLERANCE)
    assert adapted["setting"] == pytest.approx(tuned.adaptation.setting, rel=1e-4)
    expected = pytest.approx(perplexity(space, tuned), rel=TOLERANCE)
    assert adapted["perplexity"] == expected
    rows = [line.split() for line in lines[2:4]]
    assert rows[0][3] == f"{result['perplexity']:.4f}"
    assert (rows[1][:3], rows[1][5]) == (
        ["ccdclm", "+", "unigram"],
        f"{adapted['perplexity']:.4f}",
    )
    assert ", tuned on valid" in lines[-1]
