"""launch.generate: texts of several documents, of one and of none."""

import json
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data import prose
from dclm_jax.data.readers import read_documents
from dclm_jax.decoding.choices import Decoding
from tests.launch.support import launch, refuse


def test_texts_are_those_of_python(space, tmp_path):
    flags = [f"--workdir={space.run}", f"--context={space.text['test']}", "--num_sentences=2"]
    flags += ["--method=sample", "--seed=3", "--max_sentence_words=6", "--samples=2"]
    flags += ["--allow_unknown"]
    launch("generate", *flags, f"--output={tmp_path / 'texts.jsonl'}")
    records = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    decoding = Decoding("sample", allow_unknown=True)
    options: Any = {"max_sentence_words": 6, "seed": 3, "samples": 2}
    documents = read_documents(str(space.text["test"]))
    generated = dclm_jax.restore(space.run).generate(documents, 2, decoding, **options)
    texts = [(document.id, *pair) for document, texts in generated for pair in enumerate(texts)]
    for record, (name, sample, text) in zip(records, texts, strict=True):
        assert (record["id"], record["sample"]) == (name, sample)
        assert record["continuation"] == [sentence.text for sentence in text.sentences]
        assert record["log_prob"] == pytest.approx(text.log_prob, rel=1e-5)
        for log_probs, sentence in zip(record["log_probs"], text.sentences, strict=True):
            np.testing.assert_allclose(log_probs, sentence.log_probs, rtol=1e-5, atol=1e-5)
        assert (record["unit"], record["has_ended"]) == ("nats", False)
    # As text they are the same, a blank line between them.
    printed = launch("generate", *flags).stdout
    continuations = ["\n".join(record["continuation"]) for record in records]
    assert printed == "\n\n".join(continuations) + "\n"


def test_one_document_is_continued_or_begun(space, tmp_path):
    text = "w1 w2 w5\nw3 w5\n"
    flags = [f"--workdir={space.run}", "--num_sentences=3", "--max_sentence_words=4"]
    lm = dclm_jax.restore(space.run)
    printed = launch("generate", *flags, "--context=-", "--method=beam", stdin=text).stdout
    state = lm.read(text.splitlines())
    expected = state.generate(3, Decoding("beam"), max_sentence_words=4)
    assert printed == "".join(f"{sentence.text}\n" for sentence in expected.sentences)
    # Without a context, or with an empty one, a document is begun.
    (tmp_path / "empty.txt").touch()
    generated = lm.read().generate(3, max_sentence_words=4)
    begun = [sentence.text for sentence in generated.sentences]
    for more in ([], ["--context="], [f"--context={tmp_path / 'empty.txt'}"]):
        assert launch("generate", *flags, *more).stdout.splitlines() == begun
    (record,) = launch("generate", *flags, "--output=-").stdout.splitlines()
    assert (json.loads(record)["id"], json.loads(record)["continuation"]) == ("new", begun)


def test_a_prefix_is_the_beginning_of_every_text(space):
    flags = [f"--workdir={space.run}", "--num_sentences=2", "--max_sentence_words=4"]
    lm = dclm_jax.restore(space.run)
    expected = lm.read().generate(2, prefix="w3 w5", max_sentence_words=4)
    printed = launch("generate", *flags, "--prefix=w3 w5").stdout
    assert printed.splitlines() == [sentence.text for sentence in expected.sentences]
    assert printed.startswith("w3 w5")
    error = refuse("generate", *flags, "--prefix=w3\nw5")
    assert "2 sentences; write the beginning of one sentence" in error


def test_a_seed_without_sampling_has_no_effect_and_says_so(space):
    flags = [f"--workdir={space.run}", "--num_sentences=1", "--max_sentence_words=3"]
    done = launch("generate", *flags, "--seed=3", quiet=False)
    assert "note: --seed has no effect, because --method=greedy is deterministic" in done.stderr
    assert done.stdout == launch("generate", *flags).stdout


def test_sentences_are_written_as_running_text(space, tmp_path):
    pytest.importorskip("sacremoses")
    words = "\" it 's late , \" he didn 't say ( once ) .".split()
    assert prose.detokenized(words, "en") == "\"it's late,\" he didn't say (once)."
    output = tmp_path / "texts.jsonl"
    flags = [
        f"--workdir={space.run}",
        "--num_sentences=1",
        "--max_sentence_words=6",
        "--detokenize",
    ]
    printed = launch("generate", *flags).stdout
    launch("generate", *flags, f"--output={output}")
    (record,) = map(json.loads, output.read_text().splitlines())
    expected = [prose.detokenized(text.split(), "en") for text in record["continuation"]]
    assert record["text"] == expected and printed == f"{expected[0]}\n"
