"""Continuing from any state: sentence by sentence, by the next word, in several ways."""

from functools import partial

import jax
import numpy as np
import pytest

from dclm_jax.data.vocabulary import END
from dclm_jax.errors import InputError
from dclm_jax.reading.reader import Reader
from tests import oracles
from tests.exhaustive import also, some
from tests.models.support import (
    EACH_OF_FEW_WORD_MODELS,
    MODELS,
    NEW_MODELS,
    VARIANTS,
    VOCAB,
    WITHOUT_SOURCE,
    model_class,
    pack,
    random_params,
    scores,
    simple_model,
)

close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)

# Two documents of three sentences each; one sentence is longer than the room words have at first.
LONG = tuple(np.random.default_rng(0).integers(3, VOCAB, 20).tolist())
DOCUMENTS = (((5, 3, 7, 4), (6,), (8, 2, 3)), ((10, 4), LONG, (3, 2)))


def make_reader(name):
    model = simple_model(name)
    return Reader(model, random_params(model))


def expected_nll(reader, document):
    """The nats of each sentence of a document, read alone in one block: of one shape, if it can."""
    model, batch = reader.model, pack([document], S=4, N=len(LONG) + 1)
    nll_SxN = np.asarray(scores(model, random_params(model), batch)[0])
    return [nll[: len(words) + 1] for words, nll in zip(document, nll_SxN, strict=False)]


def opened(reader, documents):
    """The start of documents, made of themselves if the model reads sources."""
    sources = [ids(*document) for document in documents] if reader.model.reads_source else None
    return reader.open(len(documents), sources)


def ids(*sentences):
    return [np.array(words, np.int32) for words in sentences]


def sentence_at(s):
    return [ids(document[s]) for document in DOCUMENTS]


@EACH_OF_FEW_WORD_MODELS
def test_sentences_and_next_words_have_the_scores_of_whole_documents(name):
    reader = make_reader(name)
    expected = [expected_nll(reader, document) for document in DOCUMENTS]
    state = opened(reader, DOCUMENTS)
    for s in range(3):
        for b, document in enumerate(DOCUMENTS):
            words = np.array(document[s], np.int32)
            for n in {0, 1, len(words)}:
                log_probs_BxV = reader.next(state, [words[:n]] * 2)
                close(-log_probs_BxV[b, [*words, END][n]], expected[b][s][n])
                close(np.exp(log_probs_BxV.astype(np.float64)).sum(axis=1), [1, 1])
        state, nll = reader.read(state, sentence_at(s))
        for b in range(2):
            close(nll[b][0], expected[b][s])
    vectors = reader.vectors(state)
    assert (vectors is None) == (reader.model.context_order == 0)
    if vectors is not None:
        whole, _ = reader.read(
            opened(reader, DOCUMENTS), [ids(*document) for document in DOCUMENTS]
        )
        assert vectors.shape[0] == 2
        jax.tree.map(close, vectors, reader.vectors(whole))


@pytest.mark.parametrize(
    "name", some(("drnnlm", "adclm", "adclm_3", "rlm_seqbow_att_ef"), all=WITHOUT_SOURCE)
)
def test_documents_of_all_lengths_are_read_together(name):
    reader = make_reader(name)
    longest = tuple((3 + s % 5, 4)[: 1 + s % 2] for s in range(11))
    documents = [DOCUMENTS[0], (), longest, DOCUMENTS[1][:2], ((4,),), DOCUMENTS[1]]
    state = reader.after([ids(*document) for document in documents])
    _, nll = reader.read(state, [ids((9, 9, 4))] * len(documents))
    for document, row_nll in zip(documents, nll, strict=True):
        alone = reader.open(1)
        if document:
            alone, _ = reader.read(alone, [ids(*document)])
        _, ((expected,),) = reader.read(alone, [ids((9, 9, 4))])
        close(row_nll[0], expected)


@pytest.mark.parametrize(
    "name", some(("ccdclm", "adclm", "adclm_3", "pointer_drnnlm", "hrnnlm"), all=WITHOUT_SOURCE)
)
def test_rows_of_two_states_are_joined(name):
    """Their sentences have room for 16 and 8 words."""
    reader = make_reader(name)
    long, short, last = tuple(range(3, 11)) + (4, 5), (9, 3), (7, 4)
    before, _ = reader.read(reader.open(3), [ids(long)] * 3)
    after, _ = reader.read(before, [ids(short)] * 3)
    expected = {
        True: expected_nll(reader, (long, short, last))[2],
        False: expected_nll(reader, (long, last))[1],
    }
    for first, second, is_after in ((after, before, True), (before, after, False)):
        state = reader.select(np.array([True, False, True]), first, second)
        _, nll = reader.read(state, [ids(last)] * 3)
        for row, is_of_first in enumerate([True, False, True]):
            close(nll[row][0], expected[is_of_first == is_after])


@pytest.mark.parametrize(
    "name", ["ccdclm", "adclm", "adclm_3", "pointer_drnnlm", "hrnnlm", "rlm_seqbow_att_lf"]
)
def test_a_state_leads_on_in_several_ways(name):
    reader = make_reader(name)
    first, second, _ = DOCUMENTS[1]
    candidates = [(3, 2), (9, 9, 4), (3, 2)]
    state, _ = reader.read(reader.open(2), [ids(*document[:2]) for document in DOCUMENTS])
    after, nll = reader.read(state.take([1, 1, 0]), [ids(words) for words in candidates])
    close(nll[0][0], expected_nll(reader, (first, second, candidates[0]))[2])
    close(nll[1][0], expected_nll(reader, (first, second, candidates[1]))[2])
    close(nll[2][0], expected_nll(reader, (*DOCUMENTS[0][:2], candidates[2]))[2])
    # Rows of another order; and the state that all began from is as it was.
    _, last = reader.read(after.take([2, 0]), [ids((7,)), ids((7,))])
    close(last[1][0], expected_nll(reader, (first, second, candidates[0], (7,)))[3])
    close(reader.read(state, sentence_at(2))[1][1][0], expected_nll(reader, DOCUMENTS[1])[2])
    # The next word, after rows of another order.
    log_probs_2xV = reader.next(state.take([1, 0]), [np.array([3]), np.array([3, 4])])
    close(-log_probs_2xV[0, 2], expected_nll(reader, (first, second, (3, 2)))[2][1])
    longer = (*DOCUMENTS[0][:2], (3, 4, 2))
    close(-log_probs_2xV[1, 2], expected_nll(reader, longer)[2][2])


@pytest.mark.parametrize("name", ["hierarchical_attention_autoencoder", "standard_autoencoder"])
def test_states_of_documents_that_are_made_of_others(name):
    """They lead on in several ways, with sources of any length."""
    reader = make_reader(name)
    model, document = reader.model, DOCUMENTS[0]
    sources = [DOCUMENTS[1], document]

    def expected(source):
        batch = pack([document], S=4, N=len(LONG) + 1, sources=[source])
        return np.asarray(scores(model, random_params(model), batch)[0])

    state = reader.open(2, [ids(*source) for source in sources])
    state, _ = reader.read(state, [ids(*document[:1])] * 2)
    _, nll = reader.read(state.take([1, 0, 1]), [ids(document[1])] * 3)
    for row, source in zip(nll, (sources[1], sources[0], sources[1]), strict=True):
        close(row[0], expected(source)[1, : len(document[1]) + 1])


def test_an_autoencoder_needs_a_source():
    reader = make_reader("hierarchical_autoencoder")
    with pytest.raises(InputError, match="hierarchical_autoencoder reads a source; pass a source"):
        reader.open(2)


@pytest.mark.parametrize(
    ("rows", "max_positions", "sizes"), [(1, 64, [8, 4, 2, 1]), (2, 16, [1] * 15)]
)
def test_many_sentences_are_read_in_blocks_which_are_shorter_for_many_rows(
    monkeypatch, shapes, rows, max_positions, sizes
):
    monkeypatch.setattr("dclm_jax.reading.blocks.MAX_POSITIONS", max_positions)
    reader = make_reader("ccdclm")
    document = tuple((3 + s % 5, 4)[: 1 + s % 2] for s in range(15))
    _, nll = reader.read(reader.open(rows), [ids(*document)] * rows)
    assert shapes == [(rows, size, 8) for size in sizes]
    for actual, expected in zip(nll[0], expected_nll(reader, document), strict=True):
        assert actual.dtype == np.float32
        close(actual, expected)


def test_bags_are_read_sentence_by_sentence_and_have_no_next_word():
    reader = make_reader("rnnslm")
    state = reader.open(2)
    for s in range(3):
        state, nll = reader.read(state, sentence_at(s))
        for b, document in enumerate(DOCUMENTS):
            close(nll[b][0], expected_nll(reader, document)[s])
            assert nll[b][0][-1] == 0
    with pytest.raises(InputError, match="rnnslm predicts bags of words and no next word"):
        reader.next(state, [np.array([3])] * 2)


ATTENDING = [name for name in MODELS if model_class(name).attends_to]
ATTENDING_USUALLY = ("adclm", "pointer_drnnlm", *VARIANTS, *NEW_MODELS)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "cell", "num_layers"),
    [
        *((name, "rnn", 1) for name in ATTENDING if name in ATTENDING_USUALLY),
        ("rlm_seqbow_att_lf", "lstm", 1),
        *also((name, "lstm", 2) for name in ATTENDING),
    ],
)
def test_attention_is_that_of_the_equations(name, cell, num_layers):
    model = simple_model(name, cell=cell, num_layers=num_layers)
    params = random_params(model)
    # More sentences than a block has, and a longer one in each block.
    document = (*DOCUMENTS[0], LONG, *DOCUMENTS[0], *DOCUMENTS[0], (4, 9), LONG, (7,))
    attention = Reader(model, params).attention(ids(*document))
    expected = oracles.read(model, jax.tree.map(np.asarray, params), document).attention
    assert len(attention) == len(document)
    for t, (weights, expected_weights) in enumerate(zip(attention, expected, strict=True)):
        np.testing.assert_allclose(weights, expected_weights, rtol=1e-9, atol=1e-9)
        if name == "pointer_drnnlm":
            targets = sum(len(words) + 1 for words in document[:t])
            assert weights.shape[1] == 1 + min(targets, 6)
        elif "adclm" in name:
            earlier = document[max(0, t - model.attended_sentences) : t]
            assert weights.shape[1] == (sum(len(words) + 1 for words in earlier) if t else 1)
        else:
            assert weights.shape[1] == min(t, model.attended_sentences)
        if weights.size:
            np.testing.assert_allclose(weights.sum(axis=1), 1)


def test_attention_of_what_has_none():
    with pytest.raises(
        InputError,
        match="ccdclm has no attention to earlier sentences; expected one of adclm, rlm_",
    ):
        make_reader("ccdclm").attention(ids((3,)))
    assert make_reader("adclm").attention([]) == []
