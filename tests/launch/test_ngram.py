"""launch.ngram: a count-based model wherever a neural one goes."""

import json
import math
import sys

import pytest

from tests.launch.support import TOLERANCE, launch, refuse, scored
from tests.test_ngram import HAS_KENLM, StandIn, fake_programs

# All words, and the end, have log10 P = -2.
EVEN = """\\data\\
ngram 1=4
ngram 2=1

\\1-grams:
-2\t<unk>\t0
0\t<s>\t0
-2\t</s>\t0
-2\tw0\t0

\\2-grams:
-2\tw0 w0

\\end\\
"""


def test_an_ngram_model_goes_wherever_a_neural_one_does(space, tmp_path, monkeypatch):
    if not HAS_KENLM:
        monkeypatch.setitem(sys.modules, "kenlm", StandIn)
    run, programs = tmp_path / "run", fake_programs(tmp_path / "bin", EVEN)
    arguments = [f"--data={space.corpus}", "--order=2", f"--workdir={run}"]
    done = launch("ngram", *arguments, **programs)
    assert "5 n-grams of orders 1 to 2" in done.stdout
    assert f"launch.evaluate --workdir={run}" in done.stdout
    assert "reusing" in launch("ngram", *arguments, KENLM_BIN="absent").stdout

    evaluated = json.loads(launch("evaluate", f"--workdir={run}", "--metrics=-").stdout)
    assert evaluated["perplexity"] == pytest.approx(100, rel=TOLERANCE)
    assert (evaluated["model"], evaluated["parameters"], evaluated["step"]) == ("ngram", 5, None)
    assert evaluated["tokens"] == space.evaluate()["tokens"]
    assert "ngram, 5 parameters\n" in launch("evaluate", f"--workdir={run}").stdout

    unigram = ["--adapt=unigram", "--cache_weight=1", "--cache_strength=5", "--metrics=-"]
    cached = json.loads(launch("evaluate", f"--workdir={run}", *unigram).stdout)
    assert cached["perplexity"] == pytest.approx(100, rel=TOLERANCE)
    assert 1 < cached["adapted"][0]["perplexity"] < 100
    for kind in ("cache", "dynamic"):
        error = refuse("evaluate", f"--workdir={run}", f"--adapt={kind}")
        expected = "has no hidden states and gradients; use --adapt=unigram"
        assert f"--adapt={kind}: ngram {expected}" in error
        flags = (f"--workdirs={run}", f"--output={tmp_path / 'none'}", f"--adapt={kind}")
        assert f"--adapt={kind}: each run {expected}" in refuse("report", *flags)
    assert not (tmp_path / "none").exists()

    arguments = ["--permutations=2", "--bootstrap=3", "--metrics=-"]
    coherence = json.loads(launch("coherence", f"--workdir={run}", *arguments).stdout)
    assert (coherence["mean"], coherence["fixed"]["mean"]) == (0.5, 0.5)
    assert coherence["model"] == "ngram"

    scores = scored(f"--workdir={run}", f"--input={space.text['test']}")
    sentences = [sentence for record in scores for sentence in record["sentences"]]
    surprisals = [surprisal for sentence in sentences for surprisal in sentence["surprisals"]]
    assert len(surprisals) == evaluated["tokens"]
    assert surprisals == pytest.approx([math.log(100)] * len(surprisals), rel=TOLERANCE)
    message = "contains the model ngram; choose a workdir that contains a neural language model"
    assert message in refuse("generate", f"--workdir={run}")

    assert "already contains a different run" in refuse("train", *space.training(run))
