"""The search for the best hypotheses, against documents scored whole and against brute force."""

import functools
import itertools

import numpy as np
import pytest

from dclm_jax.data.documents import TextOptions
from dclm_jax.data.encoding import Encoder
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.reading.reader import Reader
from dclm_jax.rescoring import search as module
from dclm_jax.rescoring.nbest import NBestList, Segment
from dclm_jax.rescoring.search import Rescorer, search
from dclm_jax.scoring.ngrams import NGramScorer
from tests.exhaustive import some
from tests.models.support import LANGUAGE_MODELS, VOCAB, pack, random_params, scores, small_model

WEIGHTS = np.array([1.0, 0.5])


@functools.cache
def reader(name: str) -> Reader:
    model = small_model(name)
    return Reader(model, random_params(model))


def random_documents(seed, lengths, *bonuses):
    """Three hypotheses of at most six words for every segment; with bonuses the second one is
    silence, whose feature is larger by each bonus in turn."""
    rng = np.random.default_rng(seed)

    def segment(bonus):
        first, second, third = (rng.integers(2, VOCAB, rng.integers(1, 7)) for _ in range(3))
        features_3x1 = rng.normal(0, 1, (3, 1))
        if bonus is None:
            return Segment([first, second, third], features_3x1)
        return Segment([first, second[:0], third], features_3x1 + [[0.0], [bonus], [0.0]])

    cycle = bonuses or (None,)
    return [[segment(cycle[t % len(cycle)]) for t in range(length)] for length in lengths]


def log_probs(name, documents):
    """log P of every sentence of 81 documents at most, each read from its start in one block."""
    model = reader(name).model
    filled = [*documents, *[documents[0]] * (81 - len(documents))]
    nll_BxSxN = np.asarray(scores(model, random_params(model), pack(filled, 4, 7)), np.float64)
    return -nll_BxSxN.sum(axis=-1)[: len(documents)]


def features_after(name, document, choices, position):
    """log P of each hypothesis, every prefix scored anew without what is empty before, and the
    segment's own feature."""
    before = [document[t].hypotheses[choices[t]] for t in range(position)]
    history = [words for words in before if len(words)]
    prefixes = [[*history, words] for words in document[position].hypotheses]
    sentences = log_probs(name, prefixes)[:, len(history)]
    return np.column_stack([sentences, document[position].features_KxF])


def totals(name, document, ways):
    """The score of each way through a document."""

    @functools.cache
    def scores_after(*choices):
        return features_after(name, document, choices, len(choices)) @ WEIGHTS

    return np.array([sum(scores_after(*way[:t])[way[t]] for t in range(len(way))) for way in ways])


def assert_best_of_all(name, document, decoded):
    ways = list(itertools.product(range(3), repeat=len(document)))
    score_of_ways = totals(name, document, ways)
    assert decoded.choices == ways[np.argmax(score_of_ways)]
    assert decoded.score == pytest.approx(score_of_ways.max(), rel=1e-5)


@pytest.mark.parametrize("name", some(["ccdclm", "adclm", "rlm_bow_lf"], all=LANGUAGE_MODELS))
def test_greedy_search_is_what_scoring_every_prefix_anew_chooses(name):
    silent = random_documents(7, [4, 2], -99.0, 99.0, -12.0)
    documents = [*silent, *random_documents(1, [1, 3])]
    seen = []
    result = search([reader(name)], documents, WEIGHTS, on_document=seen.append)
    for document, decoded in zip(documents, result, strict=True):
        choices, score = [], 0.0
        for position in range(len(document)):
            features = features_after(name, document, choices, position)
            np.testing.assert_allclose(decoded.features[position], features, rtol=1e-5, atol=1e-4)
            choices.append(int(np.argmax(features @ WEIGHTS)))
            score += np.max(features @ WEIGHTS)
        assert decoded.choices == tuple(choices)
        assert decoded.score == pytest.approx(score, rel=1e-5)
    assert seen == [1, 2, 3, 4]
    # Words come before what is empty, and after it.
    first, second, _, last = result[0].choices
    assert second == 1 and first != 1 and last != 1


@pytest.mark.parametrize(("name", "bonuses"), [("codclm", ()), ("rnnlm", ()), ("codclm", (-12.0,))])
def test_viterbi_finds_the_best_of_all_ways(name, bonuses):
    documents = random_documents(2, [3] * 6, *bonuses)
    exact, greedy = (search([reader(name)], documents, WEIGHTS, beam=beam) for beam in (None, 1))
    for document, decoded in zip(documents, exact, strict=True):
        assert_best_of_all(name, document, decoded)
    missed = sum(a.score < b.score - 1e-3 for a, b in zip(greedy, exact, strict=True))
    # Without context greedy search is exact.
    assert missed > 0 if name == "codclm" else missed == 0
    choices = [choice for decoded in exact for choice in decoded.choices[:-1]]
    assert 0 < choices.count(1) < len(choices)


def test_viterbi_keeps_contexts_that_empty_hypotheses_do_not_change_apart():
    """An empty hypothesis is no sentence: what follows it depends on the words before it."""
    documents = random_documents(5, [4] * 8, -8.0)
    silent = 0
    for document, decoded in zip(
        documents, search([reader("codclm")], documents, WEIGHTS, beam=None), strict=True
    ):
        assert_best_of_all("codclm", document, decoded)
        silent += 1 in decoded.choices[1:-1]
    assert silent > 2


def test_a_beam_that_holds_all_ways_finds_the_best_and_its_features_are_those_of_the_best():
    name = "ccdclm"
    documents = random_documents(3, [3] * 6)
    narrow, two, wide = (search([reader(name)], documents, WEIGHTS, beam=b) for b in (1, 2, 27))
    for document, decoded in zip(documents, wide, strict=True):
        assert_best_of_all(name, document, decoded)
        for position, features in enumerate(decoded.features):
            expected = features_after(name, document, decoded.choices, position)
            np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-4)
    scores = np.array([[decoded.score for decoded in result] for result in (narrow, two, wide)])
    assert np.all(scores <= scores[-1] + 1e-4) and scores[0].sum() < scores[1].sum()


def test_documents_of_silence_alone():
    name = "ccdclm"
    documents = random_documents(8, [3], 99.0)
    (decoded,) = search([reader(name)], documents, WEIGHTS)
    assert decoded.choices == (1, 1, 1)
    # Each is read as the first sentence.
    (end,) = log_probs(name, [[documents[0][0].hypotheses[1]]])[:, 0]
    for features in decoded.features:
        assert features[1, 0] == pytest.approx(end, rel=1e-5)


def test_several_models_are_several_features_and_equal_scores_keep_the_order_of_the_list():
    (document,) = random_documents(4, [3])
    names = ("rnnlm", "ccdclm")
    readers = [reader(name) for name in names]
    (decoded,) = search(readers, [document], np.array([0.3, 0.7, 0.0]))
    for position, features in enumerate(decoded.features):
        expected = [features_after(name, document, decoded.choices, position) for name in names]
        expected = np.column_stack([expected[0][:, :1], expected[1]])
        np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-4)
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

    documents = [*random_documents(6, [3, 2]), *random_documents(6, [3, 2], 0.0, 9.0)]
    for beam in (1, None):
        result = search([Unigram()], documents, WEIGHTS, beam=beam)
        for document, decoded in zip(documents, result, strict=True):
            for segment, choice in zip(document, decoded.choices, strict=True):
                nats = [sum(words) / 10 + 1 for words in segment.hypotheses]
                assert choice == np.argmax(segment.features_KxF[:, 0] / 2 - nats)


def test_documents_that_are_read_in_turns_are_found_as_when_read_at_once(monkeypatch):
    documents = random_documents(5, [1, 3, 2, 3])
    whole = search([reader("ccdclm")], documents, WEIGHTS, beam=2)
    monkeypatch.setattr(module, "_DOCUMENTS", 3)
    parts = search([reader("ccdclm")], documents, WEIGHTS, beam=2)
    assert [decoded.choices for decoded in whole] == [decoded.choices for decoded in parts]


@pytest.mark.parametrize(
    ("name", "beam", "message"),
    [
        ("rnnlm", 0, "beam is 0; expected at least 1"),
        ("ccdclm", None, "reads all previous sentences; choose a beam"),
        ("rlm_bow_lf", None, "reads 2 previous sentences; choose a beam"),
    ],
)
def test_searches_that_cannot_be_made_are_refused(name, beam, message):
    with pytest.raises(InputError, match=message):
        search([reader(name)], [], WEIGHTS, beam=beam)


def test_oov_words_are_counted_and_weighted(caplog):
    caplog.set_level("INFO", "dclm_jax")
    words = [f"w{number}" for number in range(VOCAB - 3)]
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words), (0,) * VOCAB, unknown_token="<unk>")
    lists = [[["w1"], ["W2", "Xq"], ["w3", "xq"]], [["<unk>", "w4"], ["w5"]]]
    segments = [
        Segment(hypotheses, np.zeros((len(hypotheses), 0)), str(number))
        for number, hypotheses in enumerate(lists)
    ]
    nbest = NBestList("list", segments, ())
    options = TextOptions(lowercase=True)
    readers = {"lm": reader("rnnlm")}
    rescorer = Rescorer(readers, Encoder(vocabulary), nbest, options=options)
    assert rescorer.names == ["lm", "words", "oov"]
    assert rescorer.default_weights.tolist() == [1, 0, -10]
    counts = [segment.features_KxF.tolist() for segment in rescorer.segments]
    assert counts == [[[1, 0], [2, 1], [2, 1]], [[2, 0], [1, 0]]]
    # Only a weight far above 0 chooses an OOV word here.
    choices, _ = rescorer.decode(np.array([1.0, 0, 99]))
    rescorer.note_oov(choices)
    assert choices[0] in (1, 2) and caplog.messages[-1].startswith(
        "chosen hypotheses with more OOV words than the 1-best: 1 of 2;"
    )
    assert rescorer.decode(rescorer.default_weights)[0][0] == 0
    # A list with a feature of this name keeps its own.
    with_feature = NBestList("list", [segments[0]._replace(features_KxF=np.ones((3, 1)))], ("oov",))
    again = Rescorer(readers, Encoder(vocabulary), with_feature, options=options)
    assert again.names == ["lm", "oov", "words"] and again.default_weights.tolist() == [1, 0, 0]
