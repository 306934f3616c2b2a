"""`launch.coherence --baseline`: results, and refused combinations of flags."""

import json

import pytest

from dclm_jax.data import prepare
from tests.launch import support

# Neighbours share a word that is none of the 100 most frequent ones: c1 c2, c2 c3, c3 c4.
COMMON = " ".join(f"w{i} w{i} w{i}" for i in range(100))
TEXT = "\n\n".join(f"{COMMON} a{i} b{i}\nb{i} c{i}\nc{i} d{i}" for i in range(4))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("baselines")
    (root / "text").write_text(TEXT)
    prepare({split: root / "text" for split in ("train", "valid", "test")}, root / "corpus")
    (root / "new").write_text("c1 d1\na1 b1\nb1 c1\n")
    return root


def test_overlap_is_measured_like_a_model(corpus, tmp_path):
    result = tmp_path / "overlap.json"
    done = support.launch(
        *("coherence", "--baseline=overlap", f"--data={corpus / 'corpus'}"),
        *("--permutations=30", "--bootstrap=3", f"--output={result}"),
    )
    assert done.stdout.startswith(f"overlap, 0 parameters, trained on {corpus / 'corpus'}\n")
    value = json.loads(result.read_text("utf-8"))
    assert (value["kind"], value["documents"], value["fixed"]["permutations"]) == (
        "bootstrap",
        4,
        30,
    )
    assert (value["model"], value["parameters"], value["split"]) == ("overlap", 0, "test")
    # Of the five other orders one shares as many words, the reverse: it ties.
    assert 0.8 < value["fixed"]["mean"] < 0.97


def test_a_baseline_meets_permutations_that_keep_the_first_sentence(corpus):
    """Of three sentences one order is left: its neighbours share one word, those of the document
    two. The first one moved alone shares none in the middle and one at the end."""
    done = support.launch(
        *("coherence", "--baseline=overlap", f"--data={corpus / 'corpus'}", "--keep_first=1"),
        *("--permutations=2", "--bootstrap=3", "--pool=2", "--output=-"),
    )
    value = json.loads(done.stdout)
    assert (value["mean"], value["sd"], value["fixed"]["mean"]) == (1.0, 0.0, 1.0)
    assert (value["keep_first"], value["left_out"], value["first_sentence"]) == (1, 0, None)
    printed = support.launch(
        "coherence", "--baseline=overlap", f"--data={corpus / 'corpus'}", "--permutations=2"
    ).stdout
    assert "with the first sentence alone moved: accuracy 100.00%" in printed
    assert "\nwarning: the first sentence gives documents away" in printed


def test_a_trained_baseline_says_how_training_goes(corpus):
    done = support.launch(
        *("coherence", "--baseline=maximum_entropy", f"--data={corpus / 'corpus'}"),
        *(f"--input={corpus / 'new'}", "--training_seed=3", "--output=-"),
        quiet=False,
    )
    assert [line.split(", ")[0] for line in done.stderr.splitlines()] == [
        f"maximum_entropy: C {strength}" for strength in ("0.0001", "0.001", "0.01", "0.1", "1")
    ]
    value = json.loads(done.stdout)
    assert (value["documents"], value["input"]) == (1, str(corpus / "new"))
    assert value["training_seed"] == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--baseline=overlap"], "--baseline needs --data"),
        (["--baseline=overlap", "--data=C/corpus", "--workdir=x"], "--baseline takes no --workdir"),
        (["--baseline=neural", "--data=C/corpus", "--batch_size=2"], "takes no --batch_size"),
        (["--baseline=neural", "--data=C/corpus", "--training_seed=-1"], "--training_seed=-1"),
        (["--workdir=x", "--training_seed=1"], "--training_seed belongs to --baseline"),
        (["--baseline=grid", "--data=C/corpus"], "--baseline"),
        (
            ["--baseline=overlap", "--data=C/corpus", "--lowercase"],
            "--lowercase belongs to --input",
        ),
    ],
)
def test_refused_combinations_of_flags(corpus, arguments, expected):
    arguments = [argument.replace("C/", f"{corpus}/") for argument in arguments]
    assert expected in support.refuse("coherence", *arguments, code=2)
