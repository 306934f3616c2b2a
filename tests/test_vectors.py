"""`lm.vectors`: vectors of whole documents, read together, against reading each by itself."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax import language_model as module
from dclm_jax.data import Document
from dclm_jax.errors import InputError
from dclm_jax.models import MODELS
from tests.exhaustive import some
from tests.test_read_document import language_model

WITH_CONTEXT = [name for name, model in MODELS.items() if model.context_order != 0]
# A state that goes on, positions that are remembered, words, a vector, a source.
FEW = ["drnnlm", "adclm", "rlm_seqbow_lf", "hrnnlm", "hierarchical_attention_autoencoder"]
DOCUMENTS = [
    ["the cat sat .", "it slept ."],
    ["dogs bark ."],
    ["it sat .", "the dogs bark and bark and bark .", "it slept .", "the cat ."],
    ["cat .", "it .", "the ."],
    ["dogs", "dogs dogs", "it", "the cat", "."],
]


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", some(FEW, all=WITH_CONTEXT))
def test_documents_read_together_have_the_vectors_of_each_alone(name):
    lm = language_model(name)
    encoded = list(lm.vectors(DOCUMENTS))
    assert [document.id for document in encoded] == ["0", "1", "2", "3", "4"]
    for one, document in zip(encoded, DOCUMENTS, strict=True):
        made_of_itself = MODELS[name].reads_source
        place = lm.read(source=document if made_of_itself else None)
        start = place
        for vector, sentence in zip(one.sentences, document, strict=True):
            place = place.read(sentence)
            close(vector, place.vector)
        close(one.document, (start if made_of_itself else place).vector)
    assert not np.allclose(encoded[0].document, encoded[1].document)


def test_windows_and_batches_keep_the_order(monkeypatch):
    lm = language_model("ccdclm")
    expected = [one.sentences for one in lm.vectors(DOCUMENTS)]
    monkeypatch.setattr(module, "_WINDOW", 1)
    named = [Document(f"d{i}", [one.split() for one in d]) for i, d in enumerate(DOCUMENTS)]
    for batch_size in (1, 2, 3, 10**30):
        encoded = list(dataclasses.replace(lm, batch_size=batch_size).vectors(iter(named)))
        assert [document.id for document in encoded] == [one.id for one in named]
        for one, vectors in zip(encoded, expected, strict=True):
            close(one.sentences, vectors)
    assert list(lm.vectors([])) == []


@pytest.mark.parametrize(
    ("name", "documents", "message"),
    [
        ("rnnlm", DOCUMENTS, "rnnlm reads every sentence alone: it has no context"),
        ("ccdclm", [["a"], []], "document 1 has no words, and so no vector; leave it out"),
        ("ccdclm", ["a b"], "a document is 'a b'; expected a list of sentences"),
    ],
)
def test_bad_input(name, documents, message):
    with pytest.raises(InputError, match=re.escape(message)):
        list(language_model(name).vectors(documents))


def test_a_batch_holds_documents():
    with pytest.raises(InputError, match="batch_size is 0; expected at least 1"):
        dclm_jax.restore("nowhere", batch_size=0)


def test_a_reader_gives_the_start_as_well_and_needs_word_ids():
    reader: Any = language_model("ccdclm").reader
    words = np.array([3, 4])
    for vectors in reader.vectors_along([[words], [words, words], [words]]):
        close(vectors[0], reader.vectors(reader.open(1))[0])
    without: Any = language_model("rnnlm").reader
    assert without.vectors_along([[words]]) is None
    with pytest.raises(InputError, match="rows is 0"):
        reader.vectors_along([])
    with pytest.raises(InputError, match="words are .* expected ids from 0"):
        reader.vectors_along([[np.array([-1])]])


@pytest.mark.parametrize("name", ["ccdclm", "standard_autoencoder"])
def test_after_a_sentence_without_words_the_vector_is_the_one_before(name):
    lm = language_model(name)
    with pytest.warns(UserWarning, match="sentences without words were left out: 3$") as warned:
        (encoded,) = lm.vectors([["", "the cat sat .", " ", "it slept .", []]])
    assert len(warned) == 1
    (expected,) = lm.vectors([["the cat sat .", "it slept ."]])
    first, second = expected.sentences
    close(encoded.document, expected.document)
    close(encoded.sentences[1:], [first, first, second, second])
    reader: Any = lm.reader
    ((start, *_),) = reader.vectors_along([lm.encode(["the cat sat .", "it slept ."])])
    close(encoded.sentences[0], start)
