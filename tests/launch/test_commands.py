"""Command lines end to end, on a small corpus made here; one of each in a process of its own."""

import importlib.util
import json
import math
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

import dclm_jax
from dclm_jax.data.readers import read_documents
from dclm_jax.decoding.choices import GREEDY, Decoding
from dclm_jax.evaluation import coherence
from dclm_jax.evaluation.inputs import open_split
from dclm_jax.training.checkpoints import restore_run
from tests.compiling import TWO_DEVICES
from tests.exhaustive import also
from tests.launch.support import (
    STEPS,
    TOLERANCE,
    fingerprint,
    launch,
    refuse,
    start,
)


def latest_state(run: Path, step: int):
    """Every array of a checkpoint for resuming, read without the code under test."""
    with ocp.StandardCheckpointer() as reader:
        return reader.restore((run / "checkpoints" / "latest" / str(step) / "state").resolve())


def assert_same_run(one: Path, other: Path, step: int) -> None:
    """The last state and the best parameters are the same, bit for bit."""
    for read in (lambda run: latest_state(run, step), lambda run: restore_run(run).params):
        left, right = read(one), read(other)
        assert jax.tree.structure(left) == jax.tree.structure(right)
        jax.tree.map(np.testing.assert_array_equal, left, right)
    assert restore_run(one).info == restore_run(other).info


def damage(checkpoint: Path) -> None:
    """Halves every file of a checkpoint, manifests of its arrays included."""
    for file in checkpoint.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_prepare_writes_the_three_splits_and_leaves_them_when_run_again(space):
    manifest = json.loads((space.corpus / "manifest.json").read_text())
    for split, path in space.text.items():
        documents = list(read_documents(str(path)))
        entry = manifest["splits"][split]
        sentences = [words for document in documents for words in document.sentences]
        assert entry["documents"] == len(documents)
        assert entry["sentences"] == len(sentences)
        assert entry["tokens"] == sum(map(len, sentences))
    assert manifest["vocabulary"]["size"] == 98
    assert "98 entries" in space.prepared.stdout
    before = fingerprint(space.corpus)
    launch("prepare", *space.sources(), f"--output={space.corpus}", "--vocab_size=95")
    assert fingerprint(space.corpus) == before
    error = refuse("prepare", *space.sources(), f"--output={space.corpus}", "--vocab_size=9")
    assert str(space.corpus) in error
    assert fingerprint(space.corpus) == before


def test_prepare_divides_one_input(space, tmp_path):
    arguments = [f"--input={space.text['train']}", "--split=0.5,0.25,0.25"]
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        launch("prepare", *arguments, f"--seed={seed}", f"--output={tmp_path / name}")
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert sum(entry["documents"] for entry in manifest["splits"].values()) == 60
    tokens = [(tmp_path / name / "test.tokens.bin").read_bytes() for name in "abc"]
    assert tokens[0] == tokens[1] != tokens[2]


def test_train_says_what_it_does_and_keeps_what_a_run_needs(space):
    output = space.trained.stdout
    for text in ("embedding", "total", "documents", "devices: 1 x cpu", f"finished {STEPS} steps"):
        assert text in output
    lines = [json.loads(line) for line in (space.run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == list(range(1, STEPS + 1))
    valid = [line["perplexity"] for line in lines if line["kind"] == "valid"]
    assert len(valid) == 3 and valid[-1] < valid[0] < 98
    saved = json.loads((space.run / "config.json").read_text())
    assert saved["model"]["hidden_dim"] == 8


def test_finished_run_started_again_does_nothing(space):
    def contents():
        files = fingerprint(space.run)
        return {name: data for name, data in files.items() if "tensorboard" not in name}

    before = contents()
    done = launch("train", *space.training(space.run))
    assert f"finished {STEPS} steps" in done.stdout
    assert contents() == before


def test_evaluate_is_the_same_from_corpus_text_and_two_devices(space):
    split = space.evaluate("--split=test")
    manifest = json.loads((space.corpus / "manifest.json").read_text())["splits"]["test"]
    assert split["words"] == manifest["tokens"]
    assert split["tokens"] == manifest["tokens"] + manifest["sentences"]
    assert split["oov_words"] == manifest["oov_tokens"] > 0
    assert split["oov_rate"] == manifest["oov_tokens"] / manifest["tokens"]
    assert split["documents"] == 11
    assert split["vocabulary_size"] == 98
    assert split["perplexity"] == math.exp(split["nll"] / split["tokens"])
    assert split["model"] == "ccdclm"
    assert split["step"] == restore_run(space.run).step
    assert "END" in split["counting_rule"]
    text = space.evaluate(f"--input={space.text['test']}")
    two = space.evaluate("--split=test", **TWO_DEVICES)
    for other in (text, two):
        for key in ("tokens", "words", "oov_words", "sentences", "documents"):
            assert other[key] == split[key]
        assert other["nll"] == pytest.approx(split["nll"], rel=TOLERANCE)


def test_evaluate_needs_neither_configuration_file_nor_this_directory(space, tmp_path):
    run = tmp_path / "moved"
    shutil.copytree(space.run, run)
    # What training read is out of reach: the run alone and text are enough.
    config = space.config.rename(tmp_path / "gone")
    try:
        output = tmp_path / "result.json"
        done = launch(
            "evaluate", "--workdir=moved", f"--output={output}", cwd=tmp_path, process=True
        )
    finally:
        config.rename(space.config)
    result = json.loads(output.read_text())
    assert result["nll"] == pytest.approx(space.evaluate()["nll"], rel=TOLERANCE)
    assert f"{result['perplexity']:.4f}" in done.stdout


def test_coherence_fixed_and_bootstrap(space, tmp_path):
    run = f"--workdir={space.run}"
    results = {}
    for name, data in (("a", "--split=test"), ("b", f"--input={space.text['test']}")):
        path = tmp_path / f"{name}.json"
        done = launch(
            "coherence", run, data, "--permutations=4", "--bootstrap=6", f"--output={path}"
        )
        assert "coherence (fixed)" in done.stdout and "coherence (bootstrap)" in done.stdout
        results[name] = json.loads(path.read_text())
    bootstrap, fixed = results["a"], results["a"]["fixed"]
    assert (bootstrap["kind"], bootstrap["replicates"], bootstrap["pairs"]) == ("bootstrap", 6, 66)
    assert (fixed["kind"], fixed["permutations"], fixed["pairs"]) == ("fixed", 4, 44)
    assert 0 <= fixed["mean"] <= 1 and 0 <= bootstrap["mean"] <= 1
    # Accuracies are counts over pairs, half a pair for a tie.
    for result in (fixed, bootstrap):
        assert 2 * result["mean"] * result["pairs"] == pytest.approx(
            round(2 * result["mean"] * result["pairs"]), abs=1e-6
        )
    assert (results["b"]["mean"], results["b"]["sd"]) == (bootstrap["mean"], bootstrap["sd"])


def test_coherence_with_the_first_sentence_moved_alone_or_kept(space, tmp_path):
    lm = dclm_jax.restore(space.run)
    opened = open_split(lm.vocabulary, space.corpus, "test").documents
    documents = [document.sentences for document in opened]
    path = tmp_path / "free.json"
    run = f"--workdir={space.run}"
    printed = launch("coherence", run, "--permutations=9", f"--output={path}").stdout
    first = coherence.first_sentence(lm.scorer, documents)
    assert json.loads(path.read_text())["first_sentence"] == first
    assert f"with the first sentence alone moved: accuracy {100 * first:.2f}%\n" in printed
    assert ("warning" in printed) == (first >= coherence.FIRST_DECIDES)

    options = ["--permutations=9", "--bootstrap=7", "--pool=3", "--keep_first=2", "--seed=4"]
    value = json.loads(launch("coherence", run, *options, "--output=-").stdout)
    kept: Any = {"keep_first": 2, "seed": 4}
    fixed = coherence.fixed(lm.scorer, documents, permutations=9, **kept)
    assert value["fixed"] == fixed.to_json() and value["first_sentence"] is None
    bootstrap = coherence.bootstrap(lm.scorer, documents, replicates=7, pool=3, **kept)
    assert value["mean"] == bootstrap.mean
    short = sum(len(document) < 4 for document in documents)
    assert (value["left_out"], value["documents"]) == (short, len(documents) - short)
    printed = launch("coherence", run, *options).stdout
    assert "sentences kept at the begin of each: 2" in printed
    assert f"left out for fewer than two sentences to permute: {short}" in printed
    assert "--keep_first is -1" in refuse("coherence", run, "--keep_first=-1")
    assert "after the first 99" in refuse("coherence", run, "--keep_first=99")


def test_score_agrees_in_every_form_with_evaluate_and_python(space, tmp_path):
    text, run = space.text["test"], f"--workdir={space.run}"
    launch("score", run, f"--input={text}", f"--output={tmp_path / 'scores.jsonl'}")
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    source = list(read_documents(str(text)))
    assert [document["id"] for document in documents] == [one.id for one in source]
    for document, original in zip(documents, source, strict=True):
        tokens = [sentence["tokens"] for sentence in document["sentences"]]
        assert tokens == [[*words, "<END>"] for words in original.sentences]
        for sentence in document["sentences"]:
            assert -math.fsum(sentence["surprisals"]) == pytest.approx(sentence["log_prob"])
        total = math.fsum(sentence["log_prob"] for sentence in document["sentences"])
        assert total == pytest.approx(document["log_prob"])
    evaluated = space.evaluate("--split=test")
    nll = -math.fsum(document["log_prob"] for document in documents)
    assert nll == pytest.approx(evaluated["nll"], rel=TOLERANCE)
    known = [flag for one in documents for each in one["sentences"] for flag in each["known"]]
    assert known.count(False) == evaluated["oov_words"]

    arguments = [run, "--input=-", "--output=-"]
    piped = launch("score", *arguments, stdin=text.read_text(), process=True)
    for line, document in zip(piped.stdout.splitlines(), documents, strict=True):
        assert json.loads(line)["log_prob"] == pytest.approx(document["log_prob"], rel=TOLERANCE)

    tsv = launch("score", run, f"--input={text}", "--output=-", "--output_format=tsv")
    header, *rows = (line.split("\t") for line in tsv.stdout.splitlines())
    tokens = [token for one in documents for each in one["sentences"] for token in each["tokens"]]
    assert [row[header.index("token")] for row in rows] == tokens
    surprisal = math.fsum(float(row[header.index("surprisal_nats")]) for row in rows)
    assert surprisal == pytest.approx(nll, rel=TOLERANCE)
    named = text.with_suffix(".tsv")
    launch("score", run, f"--input={text}", f"--output={named}")
    assert named.read_text() == tsv.stdout

    scores = dclm_jax.restore(space.run).score(source)
    for score, document in zip(scores, documents, strict=True):
        assert score.log_prob == pytest.approx(document["log_prob"], rel=TOLERANCE)


@pytest.mark.parametrize("name", ["evaluate", "coherence", "score", "order"])
def test_a_flipped_bit_in_a_split_is_found(space, tmp_path, name):
    corpus = tmp_path / "corpus"
    shutil.copytree(space.corpus, corpus)
    tokens = bytearray((corpus / "test.tokens.bin").read_bytes())
    # Another word of the vocabulary, so that nothing but the checksum tells.
    tokens[0] ^= 1
    (corpus / "test.tokens.bin").write_bytes(tokens)
    error = refuse(name, f"--workdir={space.run}", f"--data={corpus}")
    assert error == f"error: {corpus}/test.tokens.bin: its checksum differs from the manifest's"


def test_a_split_is_scored_as_its_text(space):
    records, of_text = (
        [json.loads(line) for line in launch("score", *flags).stdout.splitlines()]
        for flags in (
            [f"--workdir={space.run}", "--split=valid"],
            [f"--workdir={space.run}", f"--input={space.text['valid']}"],
        )
    )
    for record, expected in zip(records, of_text, strict=True):
        assert record["id"] == expected["id"]
        assert record["log_prob"] == pytest.approx(expected["log_prob"], rel=TOLERANCE)
        for sentence, other in zip(record["sentences"], expected["sentences"], strict=True):
            assert sentence["known"] == other["known"]
            # What a word was is not kept where the model does not know it.
            assert sentence["tokens"] == [
                token if known else "<UNKNOWN>"
                for token, known in zip(other["tokens"], other["known"], strict=True)
            ]


def test_runs_are_scored_side_by_side(space):
    several, text = f"--workdirs={space.run},{space.rnnlm}", f"--input={space.text['test']}"
    alone = {
        name: [
            json.loads(line)
            for line in launch("score", f"--workdir={run}", text).stdout.splitlines()
        ]
        for name, run in (("ccdclm", space.run), ("rnnlm", space.rnnlm))
    }
    together = launch("score", several, text).stdout.splitlines()
    for number, record in enumerate(map(json.loads, together)):
        for name, records in alone.items():
            expected = records[number]
            assert record["id"] == expected["id"]
            assert record["log_prob"][name] == expected["log_prob"]
            for one, other in zip(record["sentences"], expected["sentences"], strict=True):
                assert (one["tokens"], one["known"]) == (other["tokens"], other["known"])
                assert one["surprisals"][name] == other["surprisals"]
                assert one["log_prob"][name] == other["log_prob"]
    printed = launch("score", several, text, "--output_format=tsv").stdout
    header, *rows = (line.split("\t") for line in printed.splitlines())
    for name, records in alone.items():
        surprisals = [
            f"{one:.6f}" for each in records for of in each["sentences"] for one in of["surprisals"]
        ]
        assert [row[header.index(f"surprisal_nats:{name}")] for row in rows] == surprisals


def test_unknown_words_may_be_left_blank(space, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("w1 unheard w2\nunheard\n")
    flags = [f"--workdir={space.run}", f"--input={path}"]
    (whole,) = map(json.loads, launch("score", *flags).stdout.splitlines())
    (blank,) = map(json.loads, launch("score", *flags, "--unknown=blank").stdout.splitlines())
    assert [one["known"] for one in blank["sentences"]] == [
        [True, False, True, True],
        [False, True],
    ]
    for one, other in zip(blank["sentences"], whole["sentences"], strict=True):
        expected = [
            surprisal if known else None
            for surprisal, known in zip(other["surprisals"], other["known"], strict=True)
        ]
        assert one["surprisals"] == expected
        assert -one["log_prob"] == pytest.approx(sum(filter(None, expected)))
    assert blank["log_prob"] == pytest.approx(sum(one["log_prob"] for one in blank["sentences"]))
    printed = launch("score", *flags, "--unknown=blank", "--output_format=tsv").stdout
    rows = [line.split("\t") for line in printed.splitlines()[1:]]
    assert [row[4] == "" for row in rows] == [row[5] == "0" for row in rows]


def test_sentences_are_scored_after_a_context(space, tmp_path):
    context, endings = tmp_path / "context.txt", tmp_path / "endings.txt"
    context.write_text("w1 w2 .\nw3 .\n")
    endings.write_text("w2 w1 .\n= w4 .\n")
    run = f"--workdir={space.run}"
    done = launch("score", run, f"--context={context}", f"--input={endings}")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["id"] for record in records] == ["1", "2"]
    lm = dclm_jax.restore(space.run)
    for record, ending in zip(records, ("w2 w1 .", "= w4 ."), strict=True):
        (whole,) = lm.score([["w1 w2 .", "w3 .", ending]])
        assert record["log_prob"] == pytest.approx(whole.sentences[-1].log_prob, rel=TOLERANCE)
        assert record["sentences"][0]["tokens"] == [*ending.split(), "<END>"]
    flags = (run, f"--context={context}", f"--input={endings}")
    endings.write_text("w2 w1 .\n\nw4\n")
    error = refuse("score", *flags)
    assert error == f"error: {endings}:2: holds no words; expected a sentence a line"
    for text, found in (
        ("a b\n\nc d\n", "several documents; expected one"),
        ("\n", "no documents"),
    ):
        context.write_text(text)
        assert refuse("score", *flags) == f"error: {context}: holds {found}"


def test_generated_texts_have_the_scores_of_those_texts(space, tmp_path):
    context, run = space.text["test"], f"--workdir={space.run}"
    flags = [run, f"--context={context}", "--sentences=2", "--method=sample", "--seed=3"]
    flags += ["--sentence_words=6", "--samples=2", "--allow_unknown"]
    launch("generate", *flags, f"--output={tmp_path / 'texts.jsonl'}")
    records = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    source = list(read_documents(str(context)))
    assert [(one["id"], one["sample"]) for one in records] == [
        (document.id, sample) for document in source for sample in range(2)
    ]
    lm = dclm_jax.restore(space.run)
    whole = [
        [*map(" ".join, source[number // 2].sentences), *record["continuation"]]
        for number, record in enumerate(records)
    ]
    for record, score in zip(records, lm.score(whole), strict=True):
        expected = [one.log_probs for one in score.sentences[-2:]]
        for ours, theirs in zip(record["log_probs"], expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        assert math.fsum(map(math.fsum, record["log_probs"])) == pytest.approx(record["log_prob"])
        assert record["unit"] == "nats" and not record["has_ended"]
    # As text they are the same, a blank line between them.
    printed = launch("generate", *flags).stdout.removesuffix("\n")
    assert [text.split("\n") for text in printed.split("\n\n")] == [
        record["continuation"] for record in records
    ]


def test_one_document_is_gone_on_with_word_by_word(space, tmp_path):
    run, text = f"--workdir={space.run}", "w1 w2 .\nw3 .\n"
    flags = ["--sentences=3", "--sentence_words=4"]
    piped = launch("generate", run, "--context=-", *flags, stdin=text, process=True).stdout
    beam = launch("generate", run, "--context=-", "--method=beam", *flags, stdin=text).stdout
    lm = dclm_jax.restore(space.run)
    for printed, decoding in ((piped, GREEDY), (beam, Decoding("beam"))):
        expected = lm.read(text.splitlines()).generate(3, decoding, sentence_words=4)
        assert printed.splitlines() == [one.text for one in expected.sentences]
        assert printed.count("\n") == 3
    # Without a context, or with an empty one, a document is begun.
    (tmp_path / "empty.txt").touch()
    begun = [one.text for one in lm.read().generate(3, sentence_words=4).sentences]
    for more in ([], ["--context="], [f"--context={tmp_path / 'empty.txt'}"]):
        assert launch("generate", run, *flags, *more).stdout.splitlines() == begun
    (record,) = launch("generate", run, *flags, "--output=-").stdout.splitlines()
    assert (json.loads(record)["id"], json.loads(record)["continuation"]) == ("new", begun)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--context=absent.txt"], "absent.txt"),
        (["--context=blank.txt"], "blank.txt: holds no documents"),
        (["--context=latin1.txt"], "latin1.txt:3"),
        (["--method=bean"], "--method=bean"),
        (["--method=beam", "--beam=0"], "beam width is 0; expected at least 1"),
        (["--beam=3"], "--beam belongs to --method=beam"),
        (["--seed=3"], "--seed belongs to --method=sample"),
        (["--method=sample", "--temperature=0"], "temperature is 0.0; expected a number above 0"),
        (["--method=sample", "--top_p=1.1"], "top p is 1.1; expected 0 < top p <= 1"),
        (["--method=sample", "--top_k=0"], "top k is 0; expected at least 1"),
        (["--method=sample", "--seed=-1"], "seed is -1; expected a whole number from 0"),
        (["--method=sample", "--samples=0"], "samples is 0; expected at least 1"),
        (["--sentences=0"], "the limit of sentences is 0; expected at least 1"),
        (["--sentence_words=0"], "the limit of sentence_words is 0; expected at least 1"),
        (["--batch_size=2"], "--batch_size has no effect"),
        (["story.txt"], "'story.txt'"),
    ],
)
def test_generate_refuses_bad_input_and_writes_nothing(space, tmp_path, arguments, expected):
    for name in ("blank.txt", "latin1.txt"):
        (tmp_path / name).write_bytes(BAD_TEXT[name])
    before = fingerprint(tmp_path)
    flags = [f"--workdir={space.run}", "--output=output", *arguments]
    assert expected in refuse("generate", *flags, cwd=tmp_path)
    assert fingerprint(tmp_path) == before


def test_a_quick_report_prints_a_table_and_draws_curves(space, tmp_path):
    runs = [tmp_path / "one", tmp_path / "two"]
    shutil.copytree(space.run, runs[0])
    launch("evaluate", f"--workdir={runs[0]}", f"--output={runs[0] / 'perplexity.json'}")
    launch(
        "coherence",
        f"--workdir={runs[0]}",
        "--permutations=2",
        f"--output={runs[0] / 'coherence.json'}",
    )
    shutil.copytree(runs[0], runs[1])
    workdirs = f"--workdirs={runs[0]},{runs[1]}"
    done = launch("report", "--quick", workdirs, f"--output={tmp_path / 'out'}")
    perplexity = json.loads((runs[0] / "perplexity.json").read_text())["perplexity"]
    assert done.stdout.count(f"{perplexity:.2f}") == 2
    plot = tmp_path / "out" / "learning_curves.png"
    assert done.stdout.splitlines()[-1] == f"Learning curves: {plot}"
    assert plot.read_bytes().startswith(b"\x89PNG")
    plot.unlink()
    assert launch("report", "--quick", workdirs).stdout == done.stdout.rpartition("Learning")[0]
    assert not plot.exists()


@pytest.fixture(scope="module")
def long_run(space) -> tuple[list[str], Path]:
    """An uninterrupted run that is long enough to be met in the middle."""
    values = [
        "--config.training.max_steps=400",
        "--config.training.epochs=100",
        "--config.training.evaluate_every=50",
        "--config.training.checkpoint_every=30",
        "--config.model.dropout=0.2",
    ]
    whole = space.root / "whole"
    launch("train", *space.training(whole, *values))
    return values, whole


@pytest.mark.parametrize("number", [signal.SIGTERM, *also([signal.SIGKILL])])
def test_interrupted_training_goes_on_bit_for_bit(space, long_run, tmp_path, number):
    values, whole = long_run
    run = tmp_path / "run"
    arguments = space.training(run, *values)
    process = start("train", *arguments)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 70/"):
            process.send_signal(number)
            break
    output, errors = process.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert (process.returncode, errors) == (75, "")
        assert "interrupted and saved at step" in output
    else:
        assert process.returncode == -signal.SIGKILL
    assert not (run / "checkpoints" / "latest" / "400").exists()
    resumed = launch("train", *arguments, quiet=False)
    left_locked = f"note: {run} was left locked by process {process.pid} on "
    assert resumed.stderr.startswith(left_locked if number == signal.SIGKILL else "")
    assert resumed.stderr.count("\n") == (number == signal.SIGKILL)
    assert "resuming after step" in resumed.stdout
    assert "finished 400 steps" in resumed.stdout
    assert_same_run(run, whole, 400)


@pytest.mark.parametrize("kind", ["latest", "best"])
def test_truncated_newest_checkpoint_falls_back_and_says_so(space, tmp_path, kind):
    run = tmp_path / "run"
    shutil.copytree(space.run, run)
    checkpoints = run / "checkpoints" / kind
    previous, newest = sorted(checkpoints.iterdir(), key=lambda step: int(step.name))
    damage(newest)
    if kind == "latest":
        errors = launch("train", *space.training(run), quiet=False).stderr
        assert_same_run(run, space.run, STEPS)
    else:
        output = run / "perplexity.json"
        errors = launch("evaluate", f"--workdir={run}", f"--output={output}", quiet=False).stderr
        assert json.loads(output.read_text())["step"] == int(previous.name)
    first, second = errors.splitlines()
    assert first.startswith(f"warning: {newest} cannot be used: ")
    assert second == f"warning: using step {previous.name} instead"


def test_divergence_is_one_line_with_the_step_and_keeps_the_best_model(space, tmp_path):
    run = tmp_path / "run"
    sgd = ["--config.optimizer.name=sgd", "--config.optimizer.clip_norm=0.0"]
    # The learning rate grows from step to step: the first ones still work.
    growing = [
        "--config.optimizer.schedule=exponential",
        "--config.optimizer.learning_rate=0.1",
        "--config.optimizer.final_fraction=1e36",
        "--config.training.evaluate_every=1",
    ]
    error = refuse("train", *space.training(run, *sgd, *growing), code=1)
    match = re.match(r"error: step (\d+): .*the best model is of step (\d+)", error)
    assert match, error
    failed, best = map(int, match.groups())
    assert restore_run(run).step == best < failed <= STEPS
    for params in (restore_run(run).params, latest_state(run, failed - 1)["params"]):
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    launch("evaluate", f"--workdir={run}")

    # A rate that spoils the parameters at once leaves nothing to resume from or to use.
    at_once = [*sgd, "--config.optimizer.learning_rate=1e30", "--config.training.evaluate_every=1"]
    error = refuse("train", *space.training(tmp_path / "once", *at_once), code=1)
    assert error.startswith("error: step 1: ")
    assert not list((tmp_path / "once" / "checkpoints" / "latest").iterdir())
    assert "no checkpoint to use yet" in refuse("evaluate", f"--workdir={tmp_path / 'once'}")


BAD_TEXT = {
    "empty.txt": b"",
    "blank.txt": b"\n= heading =\n\n",
    "latin1.txt": b"first line\nsecond\ncaf\xe9\n",
    "broken.jsonl": b'{"sentences": ["a b"]}\n{"sentences": 3}\n',
    "words.txt": b"<START>\n<END>\nthe\n",
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--train=IN/absent.txt"], ["IN/absent.txt"]),
        (["--train=IN/empty.txt"], ["IN/empty.txt", "empty"]),
        (["--train=IN/blank.txt"], ["IN/blank.txt", "no document"]),
        (["--train=GOOD", "--valid=IN/latin1.txt"], ["IN/latin1.txt:3", "UTF-8"]),
        (["--train=IN/broken.jsonl"], ["IN/broken.jsonl:2", "sentences"]),
        (["--train=GOOD", "--vocabulary=IN/words.txt"], ["IN/words.txt", "lacks <UNKNOWN>"]),
        (["--train=GOOD", "--vocab_size=0"], ["vocab_size is 0"]),
        (["--test=GOOD"], ["train", "vocabulary"]),
        (["--input=GOOD", "--split=0.5,x"], ["--split"]),
        ([], ["--train", "--input", "--corpus"]),
        (["--train=GOOD", "stray"], ["'stray'"]),
        (["--trian=GOOD"], ["trian", "train"]),
        (["--train=GOOD", "--vocab_size=many"], ["--vocab_size=many"]),
    ],
)
def test_prepare_refuses_bad_input_and_writes_nothing(space, tmp_path, arguments, expected):
    for name, content in BAD_TEXT.items():
        (tmp_path / name).write_bytes(content)
    before = fingerprint(tmp_path)

    def fill(text):
        return text.replace("IN/", f"{tmp_path}/").replace("GOOD", str(space.text["test"]))

    error = refuse("prepare", *map(fill, arguments), f"--output={tmp_path / 'corpus'}")
    for part in expected:
        assert fill(part) in error
    assert fingerprint(tmp_path) == before
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_prepare_needs_an_output(space):
    assert "--output" in refuse("prepare", *space.sources(), process=True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config.model.hiden_dim=3"], ["'hiden_dim'", '"hidden_dim"']),
        (["--config=tiny.py:ccdcml"], ["'ccdcml'", "'ccdclm'"]),
        (["--config.model.name=rnlm"], ["'rnlm'", "'rnnlm'"]),
        (["--config.model.cell=lsmt"], ["'lsmt'", "lstm"]),
        (["--config.optimizer.name=adagard"], ["'adagard'", "'adagrad'"]),
        (["--config=bad_key.py"], ["'training.max_step'", "'training.max_steps'"]),
        (["--config=raises.py"], ["raises.py:5", "max_step"]),
        (["--config=syntax.py"], ["syntax.py:1"]),
        (["--config=absent.py"], ["absent.py"]),
        (["--config.model.dropout=1.0"], ["model.dropout is 1.0; expected 0 <= dropout < 1"]),
        (["--config.data.segment_length=-1"], ["data.segment_length is -1"]),
        (["--config.data.directory=absent"], ["absent"]),
        (["--config.data.directory=EMPTY"], ["EMPTY"]),
        (["--config.data.directory=TESTONLY"], ["'train'", "TESTONLY", "test"]),
        (["--config.data.batch_size=x"], ["--config.data.batch_size=x"]),
        (["stray"], ["'stray'"]),
    ],
)
def test_train_refuses_bad_input_and_writes_nothing(space, tmp_path, arguments, expected):
    good = space.config.read_text()
    (tmp_path / "tiny.py").write_text(good)
    (tmp_path / "bad_key.py").write_text(good.replace("max_steps=", "max_step="))
    (tmp_path / "syntax.py").write_text("x = (1\n")
    (tmp_path / "raises.py").write_text(
        "from dclm_jax.training.config import default_config\n\n"
        "def get_config():\n    config = default_config()\n    return config.training.max_step\n"
    )
    (tmp_path / "EMPTY").mkdir()
    shutil.copytree(space.test_only, tmp_path / "TESTONLY")
    before = fingerprint(tmp_path)
    given = [text.removeprefix("--config=") for text in arguments if "--config=" in text]
    others = [text for text in arguments if "--config=" not in text]
    config = Path(given[0]) if given else None
    error = refuse("train", *space.training(Path("run"), *others, config=config), cwd=tmp_path)
    for part in expected:
        assert part in error
    assert fingerprint(tmp_path) == before
    assert not (tmp_path / "run").exists()


def test_train_needs_its_flags(space):
    assert "--config" in refuse("train", "--workdir=run", process=True)
    assert "--workdir" in refuse("train", f"--config={space.config}")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--config.model.hidden_dim=9"], "model.hidden_dim is 8 there and 9 here"),
        (["--config.data.directory=CORPUS"], "another vocabulary"),
    ],
)
def test_train_refuses_a_workdir_of_another_run(space, more, expected):
    before = fingerprint(space.run)
    more = [text.replace("CORPUS", str(space.other_corpus)) for text in more]
    error = refuse("train", *space.training(space.run, *more))
    assert str(space.run) in error and expected in error
    assert fingerprint(space.run) == before


@pytest.mark.parametrize("name", ["evaluate", "coherence", "score", "generate"])
def test_a_directory_without_a_run_is_refused(space, tmp_path, name):
    output = tmp_path / "output"
    text = "context" if name == "generate" else "input"
    arguments = [f"--{text}={space.text['test']}", f"--output={output}"]
    error = refuse(name, *arguments, f"--workdir={tmp_path}")
    assert f"{tmp_path} holds no run" in error
    assert "--workdir" in refuse(name, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("evaluate", ["--data=OTHER"], ["OTHER", "another vocabulary"]),
        ("evaluate", ["--data=TESTONLY", "--split=valid"], ["'valid'", "TESTONLY", "test"]),
        ("evaluate", ["--input=absent.txt"], ["absent.txt"]),
        ("evaluate", ["--input=latin1.txt"], ["latin1.txt:3"]),
        ("evaluate", ["--split=tset"], ["--split=tset"]),
        ("coherence", ["--data=OTHER"], ["OTHER", "another vocabulary"]),
        ("score", ["--input=latin1.txt"], ["latin1.txt:3"]),
        ("score", ["--context=blank.txt"], ["--input is missing"]),
        ("score", ["--format=lines"], ["--format belongs to --input"]),
        ("score", ["--input=latin1.txt", "--split=valid"], ["--input replaces --data and"]),
        ("score", ["--input=absent.txt", "stray"], ["'stray'"]),
    ],
)
def test_evaluation_refuses_bad_input_and_writes_nothing(
    space, tmp_path, name, arguments, expected
):
    (tmp_path / "latin1.txt").write_bytes(BAD_TEXT["latin1.txt"])

    def fill(text):
        return text.replace("OTHER", str(space.other_corpus)).replace(
            "TESTONLY", str(space.test_only)
        )

    error = refuse(
        name, f"--workdir={space.run}", "--output=output", *map(fill, arguments), cwd=tmp_path
    )
    for part in expected:
        assert fill(part) in error
    assert [path.name for path in tmp_path.iterdir()] == ["latin1.txt"]


def test_a_quick_report_says_what_fills_the_blanks_of_a_run_without_results(space):
    printed = launch("report", "--quick", f"--workdirs={space.run}").stdout
    best = json.loads((space.run / "result.json").read_text())["best_perplexity"]
    assert printed.splitlines()[2].split()[:2] == ["ccdclm", f"{best:.2f}"]
    for name, command in (("perplexity", "evaluate"), ("coherence", "coherence")):
        writer = f"`python -m launch.{command} --workdir={space.run} --output={space.run}/{name}"
        assert f"ccdclm: no {name}.json; {writer}.json` fills that in" in printed
    assert "--workdirs" in refuse("report", "--quick", process=True)


# In the place of KenLM's programs: a model in which all words, and the end, have log10 P = -2.
EVEN_LMPLZ = """#!/usr/bin/env bash
cat >model.arpa <<'END'
\\data\\
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
END
"""
COPY_ARPA = '#!/usr/bin/env bash\ncp "$3" "$4"\n'


def test_an_ngram_model_goes_wherever_a_neural_one_does(space, tmp_path):
    if importlib.util.find_spec("kenlm") is None:
        pytest.skip("the package kenlm is not installed: pip install -e '.[ngram]'")
    for name, text in (("lmplz", EVEN_LMPLZ), ("build_binary", COPY_ARPA)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    run = tmp_path / "run"
    arguments = [f"--data={space.corpus}", "--order=2", f"--workdir={run}"]
    done = launch("ngram", *arguments, KENLM_BIN=str(tmp_path))
    assert "5 n-grams of orders 1 to 2" in done.stdout
    assert f"launch.evaluate --workdir={run}" in done.stdout
    assert "reusing" in launch("ngram", *arguments, KENLM_BIN="absent").stdout

    evaluated = json.loads(launch("evaluate", f"--workdir={run}", "--output=-").stdout)
    assert evaluated["perplexity"] == pytest.approx(100, rel=TOLERANCE)
    assert (evaluated["model"], evaluated["parameters"], evaluated["step"]) == ("ngram", 5, None)
    assert evaluated["tokens"] == space.evaluate()["tokens"]
    assert "ngram, 5 parameters\n" in launch("evaluate", f"--workdir={run}").stdout

    unigram = ["--adapt=unigram", "--cache_weight=1", "--cache_strength=5", "--output=-"]
    cached = json.loads(launch("evaluate", f"--workdir={run}", *unigram).stdout)
    assert cached["perplexity"] == pytest.approx(100, rel=TOLERANCE)
    assert 1 < cached["adapted"][0]["perplexity"] < 100
    for kind in ("cache", "dynamic"):
        error = refuse("evaluate", f"--workdir={run}", f"--adapt={kind}")
        assert f"--adapt={kind} needs hidden states" in error and "n-gram model" in error

    arguments = ["--permutations=2", "--bootstrap=3", "--output=-"]
    coherence = json.loads(launch("coherence", f"--workdir={run}", *arguments).stdout)
    assert (coherence["mean"], coherence["fixed"]["mean"]) == (0.5, 0.5)
    assert coherence["model"] == "ngram"

    text = space.text["test"]
    scores = launch("score", f"--workdir={run}", f"--input={text}").stdout.splitlines()
    sentences = [one for line in scores for one in json.loads(line)["sentences"]]
    surprisals = [surprisal for one in sentences for surprisal in one["surprisals"]]
    assert len(surprisals) == evaluated["tokens"]
    assert surprisals == pytest.approx([math.log(100)] * len(surprisals), rel=TOLERANCE)
    assert "n-gram models score text" in refuse("generate", f"--workdir={run}")

    assert "holds a run with another configuration" in refuse("train", *space.training(run))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--order=1"], "order is 1; expected at least 2"),
        ([], "KenLM's program lmplz is not in absent (KENLM_BIN)"),
        (["--data=TESTONLY"], "'train'"),
        (["--data=absent"], "absent: no such directory"),
        (["--order=five"], "--order=five"),
        (["--workdir=RUN"], "another configuration: model.name is 'ccdclm' there and 'ngram' here"),
    ],
)
def test_ngram_refuses_bad_input_and_writes_nothing(space, tmp_path, arguments, expected):
    places = {"TESTONLY": space.test_only, "RUN": space.run}
    for name, place in places.items():
        arguments = [argument.replace(name, str(place)) for argument in arguments]
    given = [f"--data={space.corpus}", "--workdir=run", *arguments]
    assert expected in refuse("ngram", *given, cwd=tmp_path, KENLM_BIN="absent")
    assert not list(tmp_path.iterdir())
    assert "--workdir" in refuse("ngram", f"--data={space.corpus}")


def test_a_neural_model_in_python_has_its_functions_and_parameters(space):
    lm = dclm_jax.restore(space.run)
    run = restore_run(space.run)
    assert lm.model == run.model
    jax.tree.map(np.testing.assert_array_equal, lm.params, run.params)
    assert lm.num_parameters == sum(leaf.size for leaf in jax.tree.leaves(run.params))
    assert lm.summary == f"ccdclm, {lm.num_parameters:,} parameters, step {run.step}"
    # Made when it is first asked for, and once: it holds copies of the parameters.
    assert "scorer" not in vars(lm)
    assert lm.scorer is lm.scorer
    assert (lm.scorer.vocab_size, lm.scorer.context_order) == (98, None)
