"""`lm.vectors`: vectors of whole documents, read together, against reading each by itself."""

from typing import Any

import numpy as np
import pytest

from dclm_jax import neural_model as module
from dclm_jax.data.documents import Document
from dclm_jax.errors import InputError
from dclm_jax.reading.reader import Reader
from tests.exhaustive import some
from tests.models.support import AUTOENCODERS, MODELS, model_class, random_params, small_model
from tests.support import changed
from tests.test_read_document import language_model

WITH_CONTEXT = [name for name in MODELS if model_class(name).context_order != 0]
# A state that goes on, positions that are remembered, words, a vector, a source.
FEW = ["drnnlm", "adclm", "adclm_3", "rlm_seqbow_lf", "hrnnlm", AUTOENCODERS[-1]]
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
    reads_source = model_class(name).reads_source
    for vectors, document in zip(encoded, DOCUMENTS, strict=True):
        start = state = lm.read(document) if reads_source else lm.read()
        for vector, sentence in zip(vectors.sentences, document, strict=True):
            state = state.read([sentence])
            close(vector, state.vector)
        close(vectors.document, (start if reads_source else state).vector)
    assert not np.allclose(encoded[0].document, encoded[1].document)


def test_windows_and_batches_keep_the_order(monkeypatch):
    lm = language_model("ccdclm")
    expected = [vectors.sentences for vectors in lm.vectors(DOCUMENTS)]
    monkeypatch.setattr(module, "_WINDOW", 1)
    named = [
        Document(f"d{index}", [sentence.split() for sentence in document])
        for index, document in enumerate(DOCUMENTS)
    ]
    for batch_size in (1, 2, 3, 10**30):
        encoded = list(changed(lm, batch_size=batch_size).vectors(iter(named)))
        assert [vectors.id for vectors in encoded] == [document.id for document in named]
        for vectors, sentences in zip(encoded, expected, strict=True):
            close(vectors.sentences, sentences)
    assert list(lm.vectors([])) == []


def test_a_document_without_words_has_no_vector():
    with pytest.raises(InputError, match="document 1 has no words, and so no vector; remove it"):
        list(language_model("ccdclm").vectors([["a"], []]))


def test_a_reader_gives_the_start_as_well():
    reader: Any = language_model("ccdclm").reader
    words = np.array([3, 4])
    for vectors in reader.vectors_along([[words], [words, words], [words]]):
        close(vectors[0], reader.vectors(reader.open(1))[0])
    without: Any = language_model("rnnlm").reader
    assert without.vectors_along([[words]]) is None


@pytest.mark.parametrize("name", ["ccdclm", "standard_autoencoder"])
def test_after_a_sentence_without_words_the_vector_is_the_one_before(name, warns):
    lm = language_model(name)
    with warns("sentences without words omitted: 3$"):
        (encoded,) = lm.vectors([["", "the cat sat .", " ", "it slept .", []]])
    (expected,) = lm.vectors([["the cat sat .", "it slept ."]])
    first, second = expected.sentences
    close(encoded.document, expected.document)
    close(encoded.sentences[1:], [first, first, second, second])
    reader: Any = lm.reader
    ((start, *_),) = reader.vectors_along([lm.encode(["the cat sat .", "it slept ."])])
    close(encoded.sentences[0], start)


@pytest.mark.parametrize("name", ["rlm_seqbow_att_ef", "rlm_seqbow_att_lf"])
def test_with_attention_the_vector_is_the_mean_over_the_sentences_that_exist(name):
    """Of n = 2 sentences; fewer precede the second sentence of a document."""
    model: Any = small_model(name)
    reader = Reader(model, random_params(model))
    first, second, third = (np.array(ids) for ids in ([3, 4, 5], [6], [4, 7]))
    for sentences in ([first], [first, second], [first, second, third]):
        state = reader.after([sentences])
        states_CxZ = np.asarray(model.represent(reader.params, state.context))[:, 0]
        expected = states_CxZ[-min(2, len(sentences)) :].mean(axis=0)
        vectors = reader.vectors(state)
        assert vectors is not None
        close(vectors[0], expected)
        assert abs(expected).max() > 1e-3
