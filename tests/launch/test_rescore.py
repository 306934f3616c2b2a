"""`launch.corrupt` and `launch.rescore`, end to end and with wrong input."""

import json
from pathlib import Path

import pytest

import dclm_jax
from tests.launch.support import fingerprint, launch, refuse


@pytest.fixture(scope="module")
def lists(space, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    done = launch("corrupt", f"--data={space.corpus}", "--candidates=4", f"--output={folder}")
    assert "of 11 documents" in done.stdout
    return folder


def flags_of(lists: Path) -> list[str]:
    return [
        f"--nbest={lists / 'nbest.txt'}",
        f"--documents={lists / 'documents.txt'}",
        f"--references={lists / 'references.txt'}",
        "--bootstrap=50",
    ]


def test_the_lists_are_those_of_the_split_and_the_same_again(space, lists, tmp_path):
    references = (lists / "references.txt").read_text().splitlines()
    text = [line for line in space.text["test"].read_text().splitlines() if line]
    # Words outside the vocabulary are not spelled as they were.
    assert [len(line.split()) for line in references] == [len(line.split()) for line in text]
    options = (f"--data={space.corpus}", "--candidates=4")
    launch("corrupt", *options, f"--output={tmp_path / 'again'}")
    assert fingerprint(tmp_path / "again") == fingerprint(lists)
    launch("corrupt", *options, "--max_sentences=1", "--seed=1", f"--output={tmp_path / 'one'}")
    assert len((tmp_path / "one" / "documents.txt").read_text().splitlines()) == 11


def test_a_list_is_rescored_measured_and_tuned(space, lists, tmp_path):
    output, metrics = tmp_path / "best.txt", tmp_path / "metrics.json"
    options = [f"--output={output}", f"--metrics={metrics}"]
    done = launch("rescore", f"--workdir={space.run}", *flags_of(lists), *options)
    best = output.read_text().splitlines()
    value = json.loads(metrics.read_text())
    assert value["weights"] == {"ccdclm": 1, "score": 1, "words": 0}
    assert value["rows"]["oracle"]["right"] == 1 and value["rows"]["oracle"]["wer"]["value"] == 0
    assert len(best) == value["segments"]
    assert f"{value['rows']['rescored']['bleu']['value']:.2f}" in done.stdout

    # The first document, greedily, by the interface for Python.
    hypotheses: dict[str, list[tuple[str, float]]] = {}
    for line in (lists / "nbest.txt").read_text().splitlines():
        index, words, _, score = [field.strip() for field in line.split("|||")]
        hypotheses.setdefault(index, []).append((words, float(score)))
    names = dict(line.split() for line in (lists / "documents.txt").read_text().splitlines())
    read = dclm_jax.restore(space.run).read()
    for index in [index for index, name in names.items() if name == "0"]:
        scored = read.score([words for words, _ in hypotheses[index]])
        totals = [a.log_prob + b for a, (_, b) in zip(scored, hypotheses[index], strict=True)]
        chosen = hypotheses[index][totals.index(max(totals))][0]
        assert best[int(index)] == chosen
        read = read.read(chosen)

    # Tuned on the same list, it is no worse there; the weights are read back from the file.
    tuned = tmp_path / "tuned.json"
    options = ["--tune", "--objective=wer", "--restarts=0", f"--metrics={tuned}"]
    both = f"--workdirs={space.run},{space.rnnlm}"
    shown = launch("rescore", both, *flags_of(lists), *options).stdout
    assert shown.count("round ") >= 1
    first = json.loads(tuned.read_text())
    assert set(first["weights"]) == {"ccdclm", "rnnlm", "score", "words"}
    options = [f"--weights={tuned}", "--metrics=-", f"--baseline={output}"]
    again = json.loads(launch("rescore", both, *flags_of(lists), *options).stdout)
    assert again["rows"]["rescored"]["bleu"]["value"] == first["rows"]["rescored"]["bleu"]["value"]
    assert again["compared_with"] == "baseline"
    assert again["rows"]["baseline"]["bleu"]["value"] == value["rows"]["rescored"]["bleu"]["value"]


def test_a_list_of_kaldi_without_anything_else(space, tmp_path):
    (tmp_path / "words_text").write_text("u-1 w1 w2\nu-2 w3\nv-1 w4\n")
    options = [f"--workdir={space.rnnlm}", f"--nbest={tmp_path}"]
    greedy = launch("rescore", *options, "--output=-").stdout
    assert greedy == launch("rescore", *options, "--output=-", "--viterbi").stdout
    assert greedy.splitlines()[1] == "w4" and greedy.splitlines()[0] in ("w1 w2", "w3")
    done = launch("rescore", *options, f"--output={tmp_path / 'best'}")
    assert "one document; --documents=FILE says" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights=1,2"], "--weights is no file and has 2 parts; expected 3 numbers: ccdclm, sc"),
        (["--weights=1,x,2"], "expected numbers"),
        (["--weights=" + ",".join(["0.123456789"] * 30)], "has 30 parts; expected 3 numbers"),
        (["--output=LISTS/x", "--metrics=LISTS/x"], "x; expected two places"),
        (["--weights=0,0,0"], "expected finite numbers, not all of them 0"),
        (["--weights=LISTS/references.txt"], "references.txt: not JSON"),
        (["--viterbi"], "reads all sentences before; expected a beam"),
        (["--viterbi", "--beam=2"], "--viterbi replaces --beam"),
        (["--beam=0"], "--beam=0; expected at least 1"),
        (["--objective=wer"], "--objective belongs to --tune"),
        (["--tune", "--references="], "--tune needs --references"),
        (["--documents=LISTS/references.txt"], "references.txt:1: "),
        (["--references=LISTS/nbest.txt"], "expected one for each of the"),
        (["--format=lines"], "--format has no meaning for n-best lists"),
        (["--nbest="], "--nbest is missing"),
        (["--workdir="], "--workdir is missing"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(space, lists, tmp_path, options, message):
    given = [option.replace("LISTS", str(lists)) for option in options]
    common = [f"--workdir={space.run}", *flags_of(lists), f"--output={tmp_path / 'best.txt'}"]
    assert message in refuse("rescore", *common, *given)
    assert not list(tmp_path.iterdir())


def test_lists_are_not_made_of_nothing(space, tmp_path):
    assert "--data and --output" in refuse("corrupt", f"--data={space.corpus}")
    error = refuse("corrupt", f"--data={space.corpus}", f"--output={tmp_path}", "--candidates=1")
    assert "candidates is 1" in error and not list(tmp_path.iterdir())
