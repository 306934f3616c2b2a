"""Autoencoders on the command line: training, perplexity given the source, and what they refuse."""

import json
import math
from pathlib import Path

import pytest

import dclm_jax
from dclm_jax import Decoding
from dclm_jax.data.corpus import open_corpus
from dclm_jax.errors import InputError
from tests.launch.support import launch, refuse
from tests.training.support import read_metrics

NAME = "hierarchical_attention_autoencoder"
WHOLE = ("--config.data.segment_length=0", "--config.training.max_steps=8")


@pytest.fixture(scope="module")
def run(space) -> Path:
    return space.autoencoder


def test_losses_of_words_and_of_endings_are_told_apart(space, run):
    lines = read_metrics(run)
    training = [line for line in lines if line["kind"] == "train"]
    # 8 documents of 2 to 5 sentences a step begin with odds of about one to one.
    assert all(0 < line["ending_loss"] < math.log(2) for line in training)
    ending_loss = f"ending loss {training[0]['ending_loss']:.4f}  "
    assert ending_loss in space.printed["autoencoder"]
    done = launch("evaluate", f"--workdir={run}", "--split=valid", "--output=-")
    valid = [line for line in lines if line["kind"] == "valid"]
    assert json.loads(done.stdout)["perplexity"] == pytest.approx(valid[-1]["perplexity"], 1e-5)


def _config(space) -> Path:
    return Path(f"{space.config}:{NAME}")


def test_text_is_scored_given_itself(space, run):
    text = "w1 w2\nw3\n\nw4 w5\n"
    done = launch("score", f"--workdir={run}", "--input=-", stdin=text)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(record["sentences"]) for record in records] == [2, 1]


def test_segments_are_refused(space, tmp_path):
    error = refuse("train", *space.training(tmp_path / "run", config=_config(space)))
    assert error == (f"error: data.segment_length is 5; {NAME} reads whole documents: expected 0")
    assert not list(tmp_path.iterdir())


def test_what_needs_a_language_model_says_so(space, run, tmp_path):
    (tmp_path / "list").write_text("0 ||| w1 ||| 1.0 ||| 1.0\n")
    (tmp_path / "text").write_text("w1 w2\n")
    commands = {
        "coherence": [],
        "rescore": [f"--nbest={tmp_path / 'list'}", "--output=-"],
        "report": [f"--output={tmp_path / 'report'}"],
        "score --context": [f"--context={tmp_path / 'text'}", f"--input={tmp_path / 'text'}"],
    }
    for command, flags in commands.items():
        name = command.split()[0]
        workdir = "--workdirs" if name == "report" else "--workdir"
        assert refuse(name, f"{workdir}={run}", *flags) == (
            f"error: launch.{command} needs a language model, and {NAME} is an autoencoder, for "
            "which launch.reconstruct, launch.encode and launch.evaluate are made"
        )
    with pytest.raises(InputError, match="makes a document of another one; expected it as source"):
        dclm_jax.restore(run).read_text("w1 w2 .")


def test_documents_are_made_anew_and_measured(space, run, tmp_path):
    pytest.importorskip("HanTa")
    output, metrics = tmp_path / "output.jsonl", tmp_path / "metrics.json"
    flags = (f"--workdir={run}", f"--output={output}", f"--metrics={metrics}")
    done = launch("reconstruct", *flags, "--max_length_ratio=0.5")
    records = [json.loads(line) for line in output.read_text().splitlines()]
    documents = [one.split("\n") for one in space.text["test"].read_text().strip().split("\n\n")]
    lm = dclm_jax.restore(run)
    assert [record["id"] for record in records] == open_corpus(space.corpus, "test").document_ids
    for record, document, (_, (text,)) in zip(
        records,
        documents,
        lm.reconstruct(documents, Decoding(suppress_unknown=False), max_length_ratio=0.5),
        strict=True,
    ):
        assert record["input"] == [" ".join(map(_spelled(lm), one.split())) for one in document]
        assert record["sentences"] == [one.text for one in text.sentences]
        assert record["log_prob"] == pytest.approx(text.log_prob, rel=1e-4)
        limit = len(" ".join(document).split()) // 2
        assert len(" ".join(record["sentences"]).split()) <= limit
    # What was measured at once is what is measured of the files.
    (measured,) = json.loads(metrics.read_text())["outputs"].values()
    assert str(output) in done.stdout
    inputs = tmp_path / "inputs.jsonl"
    lines = [json.dumps({"id": record["id"], "sentences": record["input"]}) for record in records]
    inputs.write_text("\n".join(lines) + "\n")
    again = launch("reconstruct", f"--outputs={output}", f"--input={inputs}", "--metrics=-")
    assert list(json.loads(again.stdout)["outputs"].values()) == [measured]


def _spelled(lm):
    known = set(lm.vocabulary.words)
    return lambda word: word if word in known else "<UNKNOWN>"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--outputs=x"], "--outputs are measured as they are; expected --output with --workdir"),
        ([], "--output is missing; expected a file for the reconstructed"),
        (
            ["--output=OUT", "--nomeasure", "--metrics=-"],
            "--metrics has no effect with --nomeasure",
        ),
        (["--output=-", "--metrics=-"], "--output and --metrics are both standard output"),
        (
            ["--output=OUT", "--input=EMPTY", "--nomeasure"],
            "document a has no words; expected some",
        ),
    ],
)
def test_bad_input_of_reconstruct(run, tmp_path, flags, message):
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"id": "a", "sentences": []}\n')
    output = tmp_path / "out.jsonl"
    flags = [flag.replace("OUT", str(output)).replace("EMPTY", str(empty)) for flag in flags]
    assert message in refuse("reconstruct", f"--workdir={run}", *flags)
    assert not output.exists()


def test_documents_may_be_made_of_others(space, tmp_path):
    """Of the ones before them: what they are made of is read in training and in evaluation."""
    arguments = []
    for split, path in space.text.items():
        documents = path.read_text().strip().split("\n\n")
        (tmp_path / split).write_text("\n\n".join(documents[-1:] + documents[:-1]) + "\n")
        arguments += [f"--{split}={path}", f"--{split}_source={tmp_path / split}"]
    launch("prepare", *arguments, f"--output={tmp_path / 'paired'}", "--vocab_size=95")
    workdir = tmp_path / "run"
    directory = f"--config.data.directory={tmp_path / 'paired'}"
    launch("train", *space.training(workdir, *WHOLE, directory, config=_config(space)))
    values = [
        json.loads(launch("evaluate", f"--workdir={workdir}", "--output=-", *flags).stdout)
        for flags in ([], [f"--input={space.text['test']}"])
    ]
    assert values[0]["tokens"] == values[1]["tokens"]
    # Text by itself is made of itself.
    assert values[0]["nll"] != pytest.approx(values[1]["nll"], rel=1e-7)
