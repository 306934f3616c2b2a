"""launch.generate: texts, and one document word by word."""

import json
import math

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.readers import read_documents
from dclm_jax.decoding.choices import GREEDY, Decoding
from tests.launch.support import BAD_TEXT, fingerprint, launch, refuse


def test_generated_texts_have_the_scores_of_those_texts(space, tmp_path):
    context, run = space.text["test"], f"--workdir={space.run}"
    flags = [run, f"--context={context}", "--num_sentences=2", "--method=sample", "--seed=3"]
    flags += ["--max_sentence_words=6", "--samples=2", "--allow_unknown"]
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
    run, text = f"--workdir={space.run}", "w1 w2 w5\nw3 w5\n"
    flags = ["--num_sentences=3", "--max_sentence_words=4"]
    piped = launch("generate", run, "--context=-", *flags, stdin=text).stdout
    beam = launch("generate", run, "--context=-", "--method=beam", *flags, stdin=text).stdout
    lm = dclm_jax.restore(space.run)
    for printed, decoding in ((piped, GREEDY), (beam, Decoding("beam"))):
        expected = lm.read(text.splitlines()).generate(3, decoding, max_sentence_words=4)
        assert printed.splitlines() == [one.text for one in expected.sentences]
        assert printed.count("\n") == 3
    # Without a context, or with an empty one, a document is begun.
    (tmp_path / "empty.txt").touch()
    begun = [one.text for one in lm.read().generate(3, max_sentence_words=4).sentences]
    for more in ([], ["--context="], [f"--context={tmp_path / 'empty.txt'}"]):
        assert launch("generate", run, *flags, *more).stdout.splitlines() == begun
    (record,) = launch("generate", run, *flags, "--output=-").stdout.splitlines()
    assert (json.loads(record)["id"], json.loads(record)["continuation"]) == ("new", begun)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--context=blank.txt"], "blank.txt: holds no documents"),
        (["--method=bean"], "--method=bean"),
        (["--beam=3"], "--beam belongs to --method=beam"),
        (["--seed=3"], "--seed belongs to --method=sample"),
        (["--batch_size=2"], "--batch_size has no effect"),
        (["story.txt"], "'story.txt'"),
    ],
)
def test_generate_refuses_bad_input_and_writes_nothing(space, tmp_path, arguments, expected):
    (tmp_path / "blank.txt").write_bytes(BAD_TEXT["blank.txt"])
    before = fingerprint(tmp_path)
    flags = [f"--workdir={space.run}", "--output=output", *arguments]
    assert expected in refuse("generate", *flags, cwd=tmp_path)
    assert fingerprint(tmp_path) == before
