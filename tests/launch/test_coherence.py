"""launch.coherence: further tests, several runs, single documents."""

import dataclasses
import json

import pytest

import dclm_jax
from dclm_jax.coherence import results
from dclm_jax.coherence.compare import Bootstrap, FirstSentence, Fixed, Insert, compare_orders
from dclm_jax.data.datasets import open_split
from dclm_jax.data.readers import read_documents
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.reading.reader import Reader
from tests.launch.support import launch


@pytest.fixture(scope="module")
def text(space):
    """Documents of 2 to 5 sentences, and one that has a single one."""
    path = space.root / "coherence.txt"
    path.write_text(space.text["test"].read_text() + "\nw1 w2 .\n")
    return path


@pytest.fixture(scope="module")
def both(space, text, tmp_path_factory):
    """Every test of two runs, once."""
    folder = tmp_path_factory.mktemp("both")
    done = launch(
        *(
            "coherence",
            f"--workdirs={space.run},{space.rnnlm}",
            f"--input={text}",
            "--extra_tests=blocks,swaps,insertion",
        ),
        *("--permutations=3", f"--metrics={folder / 'all.json'}"),
        quiet=False,
    )
    return done, json.loads((folder / "all.json").read_text())


def test_every_test_is_that_of_python(space, text, both, caplog):
    done, value = both
    lm = dclm_jax.restore(space.run)
    documents = [lm.encode(text) for text in read_documents(text)]
    run, blind = value["runs"]
    assert [run["label"], blind["label"]] == ["ccdclm", "rnnlm"]
    expected = compare_orders(lm.scorer, documents, Fixed(permutations=3))
    first = compare_orders(lm.scorer, documents, FirstSentence(positions=3)).result
    result = dataclasses.asdict(expected.result) | {"first_sentence": first}
    assert {key: run[key] for key in result} == result
    blocks = [
        compare_orders(lm.scorer, documents, Fixed(Shuffle(size), permutations=3)).result
        for size in (2, 4)
    ]
    assert run["blocks"] == list(map(dataclasses.asdict, blocks))
    assert [block["omitted"] for block in run["blocks"]] == [
        sum(len(document) <= size for document in documents) for size in (2, 4)
    ]
    oov, size, blocks = done.stderr.splitlines()
    num_sentences = sum(map(len, documents))
    assert size.endswith(f": documents: {len(documents)}, with {num_sentences} sentences")
    assert oov.startswith("note: most frequent of 6 OOV words: w77 4, ")
    assert blocks == "note: no document has two blocks of 8 sentences; blocks of 8 are not measured"
    swaps = compare_orders(lm.scorer, documents, Fixed(Shuffle(swap=True), permutations=3)).result
    assert run["swaps"] == dataclasses.asdict(swaps)
    assert blind["swaps"]["mean"] == 0.5
    assert isinstance(lm.reader, Reader)
    inserted = compare_orders(lm.scorer, documents, Insert())
    assert run["insertion"] == dataclasses.asdict(inserted.result)
    assert blind["insertion"]["accuracy"] == inserted.result.chance_accuracy


def test_any_two_runs_are_compared(both):
    done, value = both
    pairs = {pair["test"]: pair for pair in value["pairs"]}
    assert list(pairs) == [*("permutations", "blocks of 2", "blocks of 4", "swaps", "insertion")]
    run, blind = value["runs"]
    permutations = pairs["permutations"]
    assert (permutations["a"], permutations["b"]) == ("ccdclm", "rnnlm")
    assert permutations["difference"] == pytest.approx(run["mean"] - blind["mean"])
    assert (
        permutations["low"] <= permutations["difference"] <= permutations["high"]
        and 0 < permutations["p"] == permutations["p_holm"] <= 1
    )
    gained = run["insertion"]["accuracy"] - blind["insertion"]["accuracy"]
    assert pairs["insertion"]["difference"] == pytest.approx(gained)
    for text in (f"{100 * run['mean']:.2f}%", "ccdclm - rnnlm", "chance"):
        assert text in done.stdout


def test_coherence_with_the_first_sentence_moved_alone_or_kept(space, tmp_path):
    lm = dclm_jax.restore(space.run)
    opened = open_split(lm.vocabulary, space.corpus, "test").documents
    documents = [document.sentences for document in opened]
    path = tmp_path / "free.json"
    run = f"--workdir={space.run}"
    printed = launch("coherence", run, "--permutations=9", f"--metrics={path}").stdout
    first = compare_orders(lm.scorer, documents, FirstSentence()).result
    assert json.loads(path.read_text())["first_sentence"] == first
    assert f"with only the first sentence moved: accuracy {100 * first:.2f}%\n" in printed
    assert ("warning" in printed) == (first >= results.FIRST_DECIDES)

    options = ["--permutations=9", "--bootstrap=7", "--permutation_pool=3", "--seed=4"]
    options += ["--fix_first=2", "--extra_tests=blocks,insertion", f"--metrics={path}"]
    printed = launch("coherence", run, *options, quiet=False).stdout
    value = json.loads(path.read_text())
    kept = Shuffle(fix_first=2)
    fixed = compare_orders(lm.scorer, documents, Fixed(kept, 4, permutations=9)).result
    assert value["fixed"] == dataclasses.asdict(fixed) and value["first_sentence"] is None
    bootstrap = compare_orders(
        lm.scorer, documents, Bootstrap(kept, 4, 7, permutation_pool=3)
    ).result
    assert value["mean"] == bootstrap.mean
    short = sum(len(document) < 4 for document in documents)
    assert (value["omitted"], value["documents"]) == (short, len(documents) - short)
    assert "sentences fixed at the start of each document: 2" in printed
    assert f"documents omitted (under two sentences that move): {short}" in printed
    (block,) = value["blocks"]
    assert (block["kind"], block["fixed"]["kind"]) == ("bootstrap", "fixed")
    assert block["fixed"]["block"] == block["block"] == 2
    assert value["insertion"]["fix_first"] == 2 and "swaps" not in value
