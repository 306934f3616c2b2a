"""The search for the best hypotheses, against documents scored whole and against brute force."""

import functools
import itertools

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.ngram import NGramScorer
from dclm_jax.reading.reader import Reader
from dclm_jax.rescoring import search as module
from dclm_jax.rescoring.nbest import Segment
from dclm_jax.rescoring.search import search
from tests.exhaustive import some
from tests.models.support import LANGUAGE_MODELS, VOCAB, pack, random_params, scores, small_model

WEIGHTS = np.array([1.0, 0.5])


@functools.cache
def reader(name: str) -> Reader:
    model = small_model(name)
    return Reader(model, random_params(model))


def random_documents(seed, lengths):
    """Three hypotheses of at most six words for every segment."""
    rng = np.random.default_rng(seed)

    def segment():
        words = [rng.integers(2, VOCAB, rng.integers(1, 7)) for _ in range(3)]
        return Segment(words, rng.normal(0, 1, (3, 1)))

    return [[segment() for _ in range(length)] for length in lengths]


def with_silence(documents, *bonuses):
    """The documents with an empty second hypothesis of every segment, whose feature is larger by
    each bonus in turn."""
    return [
        [
            Segment([first, first[:0], third], features_KxF + [[0.0], [bonus], [0.0]])
            for ((first, _, third), features_KxF, _), bonus in zip(
                document, itertools.cycle(bonuses)
            )
        ]
        for document in documents
    ]


def log_probs(name, documents):
    """log P of every sentence of 81 documents at most, each read from its start in one block."""
    model = reader(name).model
    filled = [*documents, *[documents[0]] * (81 - len(documents))]
    nll_BxSxN = np.asarray(scores(model, random_params(model), pack(filled, 4, 7)), np.float64)
    return -nll_BxSxN.sum(axis=-1)[: len(documents)]


def features_after(name, document, chosen, position):
    """log P of each hypothesis, every prefix scored anew without what is empty before, and the
    segment's own feature."""
    before = [document[t].hypotheses[chosen[t]] for t in range(position)]
    history = [words for words in before if len(words)]
    prefixes = [[*history, words] for words in document[position].hypotheses]
    of_sentences = log_probs(name, prefixes)[:, len(history)]
    return np.column_stack([of_sentences, document[position].features_KxF])


def totals(name, document, ways):
    """The score of each way through a document."""

    def through(way):
        return [one.hypotheses[choice] for one, choice in zip(document, way, strict=True)]

    own = [
        sum(one.features_KxF[choice, 0] for one, choice in zip(document, way, strict=True))
        for way in ways
    ]
    of_sentences = log_probs(name, list(map(through, ways)))[:, : len(document)]
    return WEIGHTS[0] * of_sentences.sum(axis=1) + WEIGHTS[1] * np.array(own)


def totals_in_turn(name, document, ways):
    """`totals` segment by segment, where hypotheses may be empty."""

    @functools.cache
    def scores_after(*chosen):
        return features_after(name, document, chosen, len(chosen)) @ WEIGHTS

    return np.array([sum(scores_after(*way[:t])[way[t]] for t in range(len(way))) for way in ways])


def best_of_all(name, document):
    ways = list(itertools.product(range(3), repeat=len(document)))
    of_ways = totals(name, document, ways)
    return of_ways.max(), ways[np.argmax(of_ways)]


@pytest.mark.parametrize("name", some(["ccdclm", "rlm_bow_lf"], all=LANGUAGE_MODELS))
def test_greedy_search_is_what_scoring_every_prefix_anew_chooses(name):
    documents = random_documents(1, [3, 1, 2])
    seen = []
    found = search(
        [reader(name)],
        documents,
        WEIGHTS,
        on_document=lambda *counts: seen.append(counts),
    )
    for document, decoded in zip(documents, found, strict=True):
        chosen = []
        for position in range(len(document)):
            features = features_after(name, document, chosen, position)
            np.testing.assert_allclose(decoded.features[position], features, rtol=1e-5, atol=1e-4)
            chosen.append(int(np.argmax(features @ WEIGHTS)))
        assert decoded.choices == tuple(chosen)
        assert decoded.score == pytest.approx(totals(name, document, [chosen])[0], rel=1e-5)
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["codclm", "rnnlm"])
def test_viterbi_finds_the_best_of_all_ways_and_greedy_search_does_not(name):
    documents = random_documents(2, [4] * 6)
    exact, greedy = (search([reader(name)], documents, WEIGHTS, beam=beam) for beam in (None, 1))
    for document, decoded in zip(documents, exact, strict=True):
        score, way = best_of_all(name, document)
        assert decoded.choices == way
        assert decoded.score == pytest.approx(score, rel=1e-5)
    missed = sum(a.score < b.score - 1e-3 for a, b in zip(greedy, exact, strict=True))
    # Without context greedy search is exact.
    assert missed > 0 if name == "codclm" else missed == 0


def test_a_beam_that_holds_all_ways_finds_the_best_and_its_features_are_those_of_the_best():
    name = "ccdclm"
    documents = random_documents(3, [3] * 6)
    wide, two, one = (search([reader(name)], documents, WEIGHTS, beam=beam) for beam in (27, 2, 1))
    for document, decoded in zip(documents, wide, strict=True):
        score, way = best_of_all(name, document)
        assert decoded.choices == way
        assert decoded.score == pytest.approx(score, rel=1e-5)
        for position, features in enumerate(decoded.features):
            expected = features_after(name, document, way, position)
            np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-4)
    scores = np.array([[way.score for way in found] for found in (one, two, wide)])
    assert np.all(scores <= scores[-1] + 1e-4) and scores[0].sum() < scores[1].sum()


@pytest.mark.parametrize("name", some(["ccdclm", "adclm", "rlm_bow_lf"], all=LANGUAGE_MODELS))
def test_an_empty_hypothesis_is_scored_and_does_not_enter_the_context(name):
    documents = with_silence(random_documents(7, [5, 3, 4]), -99.0, 99.0, -12.0)
    found = search([reader(name)], documents, WEIGHTS)
    for document, decoded in zip(documents, found, strict=True):
        for position in range(len(document)):
            features = features_after(name, document, decoded.choices, position)
            np.testing.assert_allclose(decoded.features[position], features, rtol=1e-5, atol=1e-4)
            assert decoded.choices[position] == np.argmax(features @ WEIGHTS)
    # Words come before what is empty, and after it.
    assert all(decoded.choices[1] == 1 for decoded in found)
    assert all(decoded.choices[0] != 1 for decoded in found)
    assert all(decoded.choices[3] != 1 for decoded in found if len(decoded.choices) > 3)


def test_documents_of_silence_alone():
    name = "ccdclm"
    documents = with_silence(random_documents(8, [3]), 99.0)
    (decoded,) = search([reader(name)], documents, WEIGHTS)
    assert decoded.choices == (1, 1, 1)
    # Each is read as the first sentence.
    (end,) = log_probs(name, [[documents[0][0].hypotheses[1]]])[:, 0]
    for features in decoded.features:
        assert features[1, 0] == pytest.approx(end, rel=1e-5)


def test_viterbi_finds_the_best_of_all_ways_whatever_silence_lies_between_words():
    name = "codclm"
    documents = with_silence(random_documents(9, [4] * 3), -12.0)
    found = search([reader(name)], documents, WEIGHTS, beam=None)
    for document, decoded in zip(documents, found, strict=True):
        ways = list(itertools.product(range(3), repeat=len(document)))
        scores = totals_in_turn(name, document, ways)
        assert decoded.choices == ways[np.argmax(scores)]
        assert decoded.score == pytest.approx(scores.max(), rel=1e-5)
    chosen = [choice for decoded in found for choice in decoded.choices[:-1]]
    assert 0 < chosen.count(1) < len(chosen)


def test_several_models_are_several_features_and_equal_scores_keep_the_order_of_the_list():
    (document,) = random_documents(4, [3])
    names = ("rnnlm", "ccdclm")
    readers = [reader(name) for name in names]
    (decoded,) = search(readers, [document], np.array([0.3, 0.7, 0.0]))
    for position, found in enumerate(decoded.features):
        expected = [features_after(name, document, decoded.choices, position) for name in names]
        expected = np.column_stack([expected[0][:, :1], expected[1]])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
        assert decoded.choices[position] == np.argmax(expected @ [0.3, 0.7, 0])
    (decoded,) = search(readers, [document], np.zeros(3), beam=3)
    assert decoded.choices == (0, 0, 0)


def test_an_ngram_model_is_read_by_the_same_functions():
    class Unigram(NGramScorer):
        """-log P of a word is its id / 10, that of END 1."""

        context_order = 0

        def __init__(self):
            pass

        def _nll(self, sentence):
            return np.array([*(np.asarray(sentence) / 10), 1.0], np.float32)

    documents = random_documents(6, [3, 2])
    documents += with_silence(documents, 0.0, 9.0)
    scorer = Unigram()
    for beam in (1, None):
        found = search([scorer], documents, WEIGHTS, beam=beam)
        for document, decoded in zip(documents, found, strict=True):
            for segment, choice in zip(document, decoded.choices, strict=True):
                nats = [sum(words) / 10 + 1 for words in segment.hypotheses]
                assert choice == np.argmax(segment.features_KxF[:, 0] / 2 - nats)


def test_documents_that_are_read_in_turns_are_found_as_when_read_at_once(monkeypatch):
    documents = random_documents(5, [1, 3, 2, 3])
    whole, parts = [], []
    for rows, found in ((256, whole), (3, parts)):
        monkeypatch.setattr(module, "_DOCUMENTS", rows)
        found += search([reader("ccdclm")], documents, WEIGHTS, beam=2)
    assert [one.choices for one in whole] == [one.choices for one in parts]


@pytest.mark.parametrize(
    ("name", "beam", "message"),
    [
        ("rnnlm", 0, "beam is 0; expected at least 1"),
        ("ccdclm", None, "reads all sentences before; expected a beam"),
        ("rlm_bow_lf", None, "reads 2 sentences before; expected a beam"),
    ],
)
def test_searches_that_cannot_be_made_are_refused(name, beam, message):
    with pytest.raises(InputError, match=message):
        search([reader(name)], [], WEIGHTS, beam=beam)
