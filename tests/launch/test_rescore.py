"""`launch.rescore`, end to end, on lists of corrupted sentences."""

import json
from pathlib import Path

import pytest

import dclm_jax
from configs.hierarchical_rnn import corrupt
from dclm_jax.data.corpus import open_corpus
from dclm_jax.rescoring import nbest
from dclm_jax.rescoring.search import Rescorer
from tests.launch.support import fingerprint, launch


@pytest.fixture(scope="module")
def lists(space, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    corrupt.main(str(space.corpus), "test", str(folder))
    return folder


def flags_of(lists: Path) -> list[str]:
    return [
        f"--nbest={lists / 'nbest.txt'}",
        f"--documents={lists / 'documents.txt'}",
        f"--references={lists / 'references.txt'}",
    ]


def test_the_lists_are_those_of_the_split_and_the_same_again(space, lists, tmp_path):
    references = (lists / "references.txt").read_text().splitlines()
    test = open_corpus(space.corpus, "test")
    sentences = [words for index in range(11) for words in test.document(index)]
    assert [line.split() for line in references] == list(map(test.vocabulary.decode, sentences))
    corrupt.main(str(space.corpus), "test", str(tmp_path / "again"))
    assert fingerprint(tmp_path / "again") == fingerprint(lists)


def test_a_list_is_rescored_as_in_python_and_measured(space, lists, tmp_path):
    """With the spelling of features in the list, and two runs."""
    path, best = tmp_path / "list", tmp_path / "best"
    path.write_text((lists / "nbest.txt").read_text().replace("||| |||", "||| LM=-1 |||"))
    flags = [*flags_of(lists), f"--nbest={path}", f"--output={best}", "--metrics=-"]
    flags += [f"--workdirs={space.run},{space.rnnlm}"]
    value = json.loads(launch("rescore", *flags).stdout)
    assert value["weights"] == {
        "ccdclm": 1,
        "rnnlm": 1,
        "score": 1,
        "LM": 0,
        "words": 0,
        "oov": -10,
    }
    assert value["rows"]["oracle"]["right"] == 1 and value["rows"]["oracle"]["wer"]["value"] == 0

    models = [dclm_jax.restore(space.run), dclm_jax.restore(space.rnnlm)]
    readers = {lm.facts.name: lm.reader for lm in models}
    nbest_list = nbest.read_nbest(str(path))
    division = nbest.read_division(str(lists / "documents.txt"), nbest_list)
    rescorer = Rescorer(readers, models[0].encoder(), nbest_list, division)
    assert rescorer.names == list(value["weights"])
    choices, _ = rescorer.decode(rescorer.default_weights)
    pairs = zip(nbest_list.segments, choices, strict=True)
    expected = [" ".join(segment.hypotheses[choice]) for segment, choice in pairs]
    assert best.read_text().splitlines() == expected
    assert value["segments"] == len(expected)


def test_weights_are_tuned_and_read_back_from_the_file(space, lists, tmp_path):
    tuned, best = tmp_path / "tuned.json", tmp_path / "best.txt"
    command = ["rescore", f"--workdirs={space.run},{space.rnnlm}", *flags_of(lists)]
    options = ["--tune", "--objective=wer", f"--metrics={tuned}"]
    printed = launch(*command, *options, f"--output={best}", quiet=False).stdout
    first = json.loads(tuned.read_text())
    assert f"{first['rows']['rescored']['bleu']['value']:.2f}" in printed and "round 1: " in printed
    assert set(first["weights"]) == {"ccdclm", "rnnlm", "score", "words", "oov"}
    options = [f"--weights={tuned}", "--metrics=-", f"--baseline={best}"]
    again = json.loads(launch(*command, *options, quiet=False).stdout)
    assert again["compared_with"] == "baseline"
    for row in ("rescored", "baseline"):
        for metric in ("bleu", "wer"):
            expected = first["rows"]["rescored"][metric]["value"]
            assert again["rows"][row][metric]["value"] == expected


def test_a_list_of_kaldi_without_anything_else(space, tmp_path):
    (tmp_path / "words_text").write_text("u-1 w1 w2\nu-2 w3\nv-1 w4\n")
    options = ["rescore", f"--workdir={space.rnnlm}", f"--nbest={tmp_path}"]
    done = launch(*options, f"--output={tmp_path / 'best'}")
    assert "one document; --documents=FILE names" in done.stdout
    best = (tmp_path / "best").read_text()
    assert best == launch(*options, "--output=-", "--viterbi").stdout
    assert best in ("w1 w2\nw4\n", "w3\nw4\n")


SPARSE = """\
0 ||| w1 w2  w3 ||| LM= -3.0 TM= -1.5 -2.0 ||| -3.0
0 |||  ||| LM=-1.0 ||| -9.0
1\t|||\t|||\tTM=-1 -2\t|||\t5\t||| 0-0\r
1 ||| w4 a=b ||| ||| -40
2 ||| nowhere at_all ||| LM= -1 ||| -1
2 ||| w5 w6 w7 ||| LM= -2 ||| -2
"""
"""Words come first of all, then silence; then words that no training text has."""


def test_silence_and_sparse_features_are_scored(space, tmp_path):
    path, output = tmp_path / "list", tmp_path / "best.txt"
    path.write_bytes(SPARSE.encode())
    references, metrics = tmp_path / "references.txt", tmp_path / "metrics.json"
    references.write_text("w1 w2 w3 w4\n\nw9\n")
    options = [f"--output={output}", f"--references={references}", f"--metrics={metrics}"]
    names = ("ccdclm", "score", "LM", "TM.1", "TM.2", "words", "oov")
    weights = tmp_path / "weights.json"
    weights.write_text(json.dumps({"weights": {name: float(name == "score") for name in names}}))
    flags = [f"--workdir={space.run}", f"--nbest={path}", f"--weights={weights}"]
    done = launch("rescore", *flags, *options, quiet=False)
    *notes, warning = done.stderr.splitlines()
    assert warning.startswith("warning: 30.00% of the words are out of vocabulary")
    assert notes == [
        f"note: {path}: features that some of the 6 hypotheses lack count as 0 in these "
        "hypotheses: 'LM' in 2, 'TM' in 4"
    ]
    assert output.read_text() == "w1 w2 w3\n\nnowhere at_all\n"
    # A deletion, nothing, a substitution and an insertion, of 5 words of references.
    rows = json.loads(metrics.read_text())["rows"]
    assert rows["rescored"]["wer"]["value"] == pytest.approx(100 * 3 / 5)
    assert rows["rescored"]["right"] == pytest.approx(1 / 3)
