"""Every command on runs of subwords: numbers are of words, text is in words, nothing is OOV."""

import csv
import io
import json
import shutil

import pytest

import dclm_jax
from dclm_jax.data.corpus import read_manifest
from tests.launch.support import launch, refuse, scored

STEPS = ["--config.training.max_steps=8", "--config.training.evaluate_every=8"]


class Pieces:
    """A corpus of subwords of the text of `space`, and runs of it."""

    def __init__(self, space, root):
        self.space, self.root, self.corpus = space, root, root / "pieces"
        self.prepared = launch(
            "prepare", *space.sources(), f"--output={self.corpus}", "--subwords=269"
        )
        self.run, self.rnnlm = self.train("ccdclm"), self.train("rnnlm")

    def train(self, model, *flags, name=""):
        run = self.root / (name or model)
        launch("train", *self.training(model, run), *flags)
        return run

    def training(self, model, run):
        directory = f"--config.data.directory={self.corpus}"
        return [f"--config={self.space.config}:{model}", directory, f"--workdir={run}", *STEPS]


@pytest.fixture(scope="module")
def pieces(space, tmp_path_factory):
    return Pieces(space, tmp_path_factory.mktemp("subwords"))


@pytest.fixture
def text(tmp_path):
    """Words that training never saw."""
    path = tmp_path / "new.txt"
    path.write_text("w1 w2 zebra\nw3 Ωmega w1 .\n\nw5 w1w2\nw7 ünknown\n", "utf-8")
    return path


def test_prepare_prints_pieces_per_word(pieces):
    manifest = read_manifest(pieces.corpus)
    entry = manifest.splits["test"]
    lines = pieces.prepared.stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("test ")]
    assert row.split()[-1] == f"{entry.pieces / entry.tokens:.3f}"
    assert "vocabulary: 272 subwords with START, END and UNKNOWN" in lines
    assert not [line for line in lines if "OOV words:" in line or "P(UNKNOWN)" in line]
    printed = launch("prepare", f"--show={pieces.corpus}").stdout.splitlines()
    sentences = [line for line in pieces.space.text["test"].read_text().splitlines() if line]
    assert [line for line in printed if line and not line.startswith("=")] == sentences


def test_evaluate_counts_words(pieces, text):
    of_words = launch("evaluate", f"--workdir={pieces.space.run}", "--metrics=-").stdout
    value = json.loads(launch("evaluate", f"--workdir={pieces.run}", "--metrics=-").stdout)
    for name in ("tokens", "words", "sentences", "documents", "characters"):
        assert value[name] == json.loads(of_words)[name]
    assert value["oov_words"] == 0
    printed = launch("evaluate", f"--workdir={pieces.run}", f"--input={text}").stdout
    assert "(in-vocabulary)" not in printed and "11 words, none out of vocabulary" in printed
    both = launch("evaluate", f"--workdirs={pieces.run},{pieces.rnnlm}", "--interpolate").stdout
    assert "bits/character" in both and "mixture" in both
    for kind in ("unigram", "cache", "dynamic"):
        launch("evaluate", f"--workdir={pieces.run}", f"--adapt={kind}", quiet=False)


def test_score_has_a_row_per_word(pieces, text):
    flags = [f"--workdir={pieces.run}", f"--input={text}", "--no_context_too"]
    flags += ["--measures=surprisal,entropy,entropy_reduction,rank,divergence"]
    rows = launch("score", *flags, "--output_format=tsv").stdout
    table = list(csv.DictReader(io.StringIO(rows), delimiter="\t"))
    words = [word for line in text.read_text().split("\n") if line for word in (*line.split(), "")]
    assert [row["word"].replace("<END>", "") for row in table] == words
    assert {row["known"] for row in table} == {"1"}
    first = [row["position"] for row in table if row["sentence"] == "1"]
    assert first == ["1", "2", "3", "4", "1", "2", "3"]
    assert all(float(row["surprisal"]) > 0 for row in table)
    documents = scored(f"--workdir={pieces.run}", f"--input={text}")
    assert [d["sentences"][0]["tokens"][-2] for d in documents] == ["zebra", "w1w2"]
    html = launch("score", f"--workdir={pieces.run}", f"--input={text}", "--output_format=html")
    assert "Ωmega" in html.stdout


def test_pairs_orders_and_generation_are_of_words(pieces, text, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"sentence_good": f"w{n} zebra .", "sentence_bad": f"w{n} zebras ."} for n in range(4)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [f"--workdir={pieces.run}", f"--input={pairs}"]
    table = launch("minimal_pairs", *flags, "--output=-", quiet=False)
    cells = list(csv.DictReader(io.StringIO(table.stdout), delimiter="\t"))
    assert {(row["oov_sentence_good"], row["targets_sentence_good"]) for row in cells} == {
        ("0", "4")
    }
    (tmp_path / "one.txt").write_text("w1 zebra\nw3 w4 .\nw9 Ω\n", "utf-8")
    flags = [f"--workdir={pieces.run}", f"--input={tmp_path / 'one.txt'}"]
    ordered = launch("order", *flags, "--noshuffle").stdout
    assert {*ordered.split("\n")} - {""} == {"w1 zebra", "w3 w4 .", "w9 Ω"}
    launch("coherence", f"--workdir={pieces.run}", "--bootstrap=0", "--permutations=3")
    flags = [f"--workdir={pieces.run}", f"--context={text}", "--num_sentences=2"]
    for method in ("greedy", "beam", "sample"):
        generated = launch("generate", *flags, f"--method={method}", "--prefix=zebra w1").stdout
        assert generated.startswith("zebra w1")
        assert not {"<UNKNOWN>", "\ufffd"} & {*generated.split()}


def test_hypotheses_are_rescored_by_words(pieces, tmp_path):
    lists = tmp_path / "nbest.txt"
    lists.write_text("0 ||| w1 zebra ||| ||| -1\n0 ||| w1 w2 w3 ||| ||| -2\n", "utf-8")
    flags = [f"--workdir={pieces.run}", f"--nbest={lists}", "--metrics=-"]
    value = json.loads(launch("rescore", *flags, f"--output={tmp_path / 'best'}").stdout)
    assert value["weights"] == {"ccdclm": 1, "score": 1, "words": 0}
    lm = dclm_jax.restore(pieces.run)
    nats = [lm.read().score([words])[0].log_prob for words in ("w1 zebra", "w1 w2 w3")]
    best = "w1 zebra" if nats[0] - 1 > nats[1] - 2 else "w1 w2 w3"
    assert (tmp_path / "best").read_text().strip() == best


def test_a_report_has_no_oov_words(pieces, tmp_path):
    flags = [f"--workdirs={pieces.run},{pieces.rnnlm}", "--measure", "--bootstrap=10"]
    flags += [f"--output={tmp_path}", f"--html={tmp_path / 'report.html'}"]
    launch("report", *flags, quiet=False)
    report = (tmp_path / "report.md").read_text("utf-8")
    assert "bits/character" in report and "in-vocabulary" not in report.lower()
    assert "The vocabulary has 272 subwords" in report and "UNKNOWN" in report
    page = (tmp_path / "report.html").read_text("utf-8")
    assert 'class="' in page and "&lt;UNKNOWN&gt;" not in page


def test_sources_are_reconstructed_in_words(pieces, text):
    whole = ["--config.data.segment_length=0"]
    run = pieces.train("hierarchical_autoencoder", *whole)
    printed = launch("reconstruct", f"--workdir={run}", f"--input={text}", "--output=-").stdout
    (first, *_) = map(json.loads, printed.splitlines())
    assert first["input"][0] == "w1 w2 zebra" and first["log_prob"] < 0


def test_reading_times_keep_all_words(pieces, tmp_path):
    pytest.importorskip("sentencex")
    pytest.importorskip("sacremoses")
    rows = ["story,text,time"]
    for story in "abc":
        rows += [f"{story},{'zebra' if n == 5 else f'w{n}'},{300 + n % 7}" for n in range(40)]
    (tmp_path / "times.csv").write_text("\n".join(rows) + "\n")
    flags = [f"--workdir={pieces.run}", f"--input={tmp_path / 'times.csv'}"]
    printed = launch("reading_times", *flags, quiet=False).stdout
    # The first word of a story has no word before it.
    assert "117 of 120 words; OOV words: 0" in printed


def test_fine_tuning_resuming_and_new_text_need_no_words(pieces, space, tmp_path):
    """The vocabulary of a run serves new text, and all parameters are taken."""
    corpus = tmp_path / "new"
    launch("prepare", *space.sources(), f"--output={corpus}", f"--vocabulary={pieces.run}")
    flags = [f"--config={space.config}:ccdclm", f"--config.data.directory={corpus}", *STEPS]
    flags += [f"--workdir={tmp_path / 'tuned'}", f"--config.training.start_from={pieces.run}"]
    printed = launch("train", *flags).stdout
    assert "random" not in printed
    assert launch("train", *flags).stdout
    refused = refuse("evaluate", f"--workdir={pieces.run}", f"--data={space.corpus}")
    assert "have different vocabularies" in refused and "272 subwords" in refused
    other = refuse("train", *pieces.training("ccdclm", tmp_path / "tuned"), "--nosuch=1")
    assert "nosuch" in other


def test_a_killed_run_resumes_exactly(pieces, tmp_path):
    """Four steps and four more are eight."""
    run = tmp_path / "resumed"
    launch("train", *pieces.training("ccdclm", run), "--config.training.max_steps=4")
    launch("train", *pieces.training("ccdclm", run))
    whole, resumed = (dclm_jax.restore(path) for path in (pieces.run, run))
    assert whole.perplexity([["w1 w2 zebra"]]) == resumed.perplexity([["w1 w2 zebra"]])


def test_refusals(pieces, space, tmp_path):
    out = f"--output={tmp_path / 'out'}"
    message = refuse("prepare", *space.sources(), out, "--subwords=269", "--min_count=2")
    assert "--subwords and --min_count cannot be combined" in message
    message = refuse("prepare", *space.sources(), out, "--subwords=100000")
    assert "subwords is 100,000; the text has at most" in message
    message = refuse("prepare", *space.sources(), out, "--subwords=200")
    assert "the text needs at least" in message
    message = refuse("train", *pieces.training("rnnslm", tmp_path / "bags"))
    assert "rnnslm predicts bags of words and needs a vocabulary of words, but the" in message
    damaged = tmp_path / "damaged"
    shutil.copytree(pieces.run, damaged)
    (damaged / "pieces.model").write_bytes(b"damaged")
    assert "is no model of SentencePiece" in refuse("evaluate", f"--workdir={damaged}")
    assert not (tmp_path / "out").exists()
