"""Autoencoders on the command line: training, perplexity given the source, launch.reconstruct."""

import json
import math
from pathlib import Path

import pytest

import dclm_jax
from dclm_jax import Decoding
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import TextOptions
from dclm_jax.metrics.reconstruction import evaluate_files, summarize
from tests.launch.support import launch, scored
from tests.training.support import read_metrics

NAME = "hierarchical_attention_autoencoder"


@pytest.fixture(scope="module")
def run(space) -> Path:
    return space.autoencoder


def _training(space, workdir: Path, *options: str) -> list[str]:
    return space.training(workdir, *options, config=Path(f"{space.config}:{NAME}"))


def test_losses_of_words_and_of_endings_are_reported_apart(space, run):
    lines = read_metrics(run)
    training = [line for line in lines if line["kind"] == "train"]
    # 8 documents of 2 to 5 sentences a step begin with odds of about one to one.
    assert all(0 < line["ending_loss"] < math.log(2) for line in training)
    ending_loss = f"ending loss {training[0]['ending_loss']:.4f}  "
    assert ending_loss in space.printed["autoencoder"]
    done = launch("evaluate", f"--workdir={run}", "--split=valid", "--metrics=-")
    valid = [line for line in lines if line["kind"] == "valid"]
    assert json.loads(done.stdout)["perplexity"] == pytest.approx(valid[-1]["perplexity"], 1e-5)
    records = scored(f"--workdir={run}", "--input=-", stdin="w1 w2\nw3\n\nw4 w5\n")
    assert [len(record["sentences"]) for record in records] == [2, 1]


def test_documents_are_reconstructed_and_measured(space, run, tmp_path):
    output, metrics = tmp_path / "output.jsonl", tmp_path / "metrics.json"
    flags = (f"--workdir={run}", f"--output={output}", f"--metrics={metrics}")
    done = launch("reconstruct", *flags, "--max_length_ratio=0.5")
    records = [json.loads(line) for line in output.read_text().splitlines()]
    corpus = open_corpus(space.corpus, "test")
    decode = corpus.vocabulary.decode
    documents = [
        [" ".join(decode(ids)) for ids in corpus.document(index)]
        for index in range(corpus.num_documents)
    ]
    assert [record["id"] for record in records] == corpus.document_ids
    assert [record["input"] for record in records] == documents
    reconstructed = dclm_jax.restore(run, dclm_jax.Autoencoder).reconstruct(
        documents, Decoding(allow_unknown=True), max_length_ratio=0.5
    )
    for record, (_, (text,)) in zip(records, reconstructed, strict=True):
        assert record["sentences"] == [sentence.text for sentence in text.sentences]
        assert record["log_prob"] == pytest.approx(text.log_prob, rel=1e-4)
        limit = len(" ".join(record["input"]).split()) // 2
        assert len(" ".join(record["sentences"]).split()) <= limit
    # What was measured at once is what is measured of the files.
    measured = json.loads(metrics.read_text())
    assert (measured["coherence"], measured["unaligned"]) == (None, None)
    assert str(output) in done.stdout
    inputs = tmp_path / "inputs.jsonl"
    lines = [json.dumps({"id": record["id"], "sentences": record["input"]}) for record in records]
    inputs.write_text("\n".join(lines))
    again = launch("reconstruct", f"--outputs={output}", f"--input={inputs}", "--metrics=-")
    assert json.loads(again.stdout) == {**measured, "input": str(inputs)}


@pytest.fixture
def texts(tmp_path) -> list[str]:
    """The input and outputs, with tags."""
    paths = [tmp_path / name for name in ("in.tagged", "out.tagged")]
    paths[0].write_text(
        "The/DT dog/NN ran/VBD ./.\nThe/DT cat/NN sat/VBD ./.\n\nA/DT bird/NN sang/VBD ./.\n"
    )
    paths[1].write_text("the/DT cat/NN sat/VBD ./.\nthe/DT dog/NN ran/VBD ./.\n\nx/X\n")
    return list(map(str, paths))


def test_outputs_are_measured(texts, tmp_path):
    inputs, outputs = texts
    metrics = tmp_path / "metrics.json"
    flags = (f"--input={inputs}", "--format=tagged", "--lowercase")
    done = launch("reconstruct", f"--outputs={outputs}", *flags, f"--metrics={metrics}")
    assert done.stdout.splitlines()[2].split()[0] == outputs
    written = json.loads(metrics.read_text())
    expected = summarize(evaluate_files(outputs, inputs, TextOptions("tagged", lowercase=True)))
    assert written == {"input": inputs, "output": outputs, **expected}
    assert (written["coherence"], written["coherence_documents"]) == (2, 1)
    assert written["rouge_1"]["recall"] == pytest.approx(50)
    text = Path(inputs).read_text()
    done = launch("reconstruct", f"--outputs={outputs}", "--input=-", "--metrics=-", stdin=text)
    assert json.loads(done.stdout)["output"] == outputs
