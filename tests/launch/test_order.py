"""launch.order: sentences shuffled and put in order."""

import json

import pytest

import dclm_jax
from dclm_jax.data.documents import Document
from dclm_jax.data.readers import read_documents
from dclm_jax.evaluation import reordering
from tests.launch.support import launch


def test_orders_are_those_of_python_and_are_measured(space, tmp_path, caplog):
    output, metrics = tmp_path / "orders.jsonl", tmp_path / "metrics.json"
    flags = [f"--workdir={space.run}", f"--input={space.text['test']}", "--beam=4"]
    done = launch("order", *flags, f"--output={output}", f"--metrics={metrics}")
    records = [json.loads(line) for line in output.read_text().splitlines()]
    documents = list(read_documents(space.text["test"]))
    lm = dclm_jax.restore(space.run)
    for record, document in zip(records, documents, strict=True):
        assert record["id"] == document.id
        ordered = [document.sentences[i] for i in record["order"]]
        assert record["sentences"] == list(map(" ".join, ordered))
        (score,) = lm.score([document._replace(sentences=ordered)])
        assert record["log_prob"] == pytest.approx(score.log_prob, rel=1e-5)
        assert record["tau"] == pytest.approx(reordering.kendall_tau(record["order"]))
    measured = json.loads(metrics.read_text())
    texts = [[tuple(words) for words in document.sentences] for document in documents]
    expected = reordering.order_measures([record["order"] for record in records], texts)
    assert {key: measured[key] for key in expected._asdict()} == expected._asdict()
    assert measured["chance"] == reordering.chance_measures(texts, 0)._asdict()
    assert f"{expected.tau:.4f}" in done.stdout
    # A split is its text, and the same seed gives the same orders.
    of_split = launch("order", f"--workdir={space.run}", "--beam=4", "--output=-", quiet=False)
    orders = [json.loads(line)["order"] for line in of_split.stdout.splitlines()]
    assert orders == [record["order"] for record in records]
    assert f"{expected.tau:.4f}" in of_split.stderr


def test_sentences_as_they_stand_are_put_in_order_and_printed(space, caplog):
    flags = [f"--workdir={space.run}", "--input=-", "--noshuffle"]
    text = "w1 w2 .\nw41 w42 .\nw3 w4 w5 .\n"
    done = launch("order", *flags, stdin=text, quiet=False)
    sentences = text.splitlines()
    document = Document("text", [*map(str.split, sentences)])
    order = dclm_jax.restore(space.run).order(document).order
    assert done.stdout.splitlines() == [*(sentences[i] for i in order), ""]
