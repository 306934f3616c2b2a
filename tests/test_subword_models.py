"""Models with subwords have scores per word: every number equals plain loops over pieces."""

import dataclasses
import functools
import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax import models, strings
from dclm_jax.coherence.compare import Fixed
from dclm_jax.data import subwords
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.vocabulary import END, START, UNKNOWN
from dclm_jax.decoding.choices import Decoding
from dclm_jax.decoding.generation import MAX_PIECES
from dclm_jax.errors import InputError
from dclm_jax.evaluation.adaptation import adapt
from dclm_jax.evaluation.minimal_pairs import Choice, minimal_pairs
from dclm_jax.evaluation.target_sums import Targets
from dclm_jax.mixture import mix
from dclm_jax.models.base import DocumentModel
from dclm_jax.rescoring.nbest import NBestList, Segment
from dclm_jax.rescoring.search import Rescorer
from dclm_jax.scoring.caches import CacheSetting, neural_cache
from dclm_jax.scoring.neural import NeuralScorer
from tests import oracles
from tests.models.support import likelihood, pack, random_params
from tests.support import changed, neural_lm

COUNTS = {"ab": 30, "ba": 20, "aab": 50, "abab": 20, "b": 10, "<unk>": 7}
TEXT = [["aab", "zé", "ab"], ["abab"], ["b", "<unk>", "abba", "b"]]
PLAIN = [["aab", "ab"], ["abab", "c"], ["b", "abba", "b"]]


@functools.cache
def vocabulary(size=262):
    return subwords.learn(COUNTS, size, 40, "<unk>")


@functools.cache
def language_model(name="ccdclm", size=262, seed=0, **options) -> Any:
    known = vocabulary(size)
    sizes = {"embedding_dim": 4, "hidden_dim": 5, "num_layers": 1, "cell": "lstm", **options}
    if name in ("adclm", "pointer_drnnlm") or "_att_" in name:
        sizes["attention_dim"] = 2
    if name == "pointer_drnnlm":
        sizes["memory_targets"] = 9
    if "autoencoder" in name:
        sizes["hidden_dim"] = 4
    model = models.create(name, vocab_size=len(known), first_word_end=known.first_word_end, **sizes)
    params = random_params(model, seed)
    # Bytes are as rare as in text, so that words of letters matter.
    if "bias" in params["output"]:
        params["output"]["bias"] = params["output"]["bias"].at[3 : subwords.FIRST_PIECE].add(-6)
    return neural_lm(model, params, known, config={"model": {"name": name}})


def plain_reading(lm, ids):
    """The independent reading of pieces in float64, with START and UNKNOWN impossible."""
    plain = oracles.jax.tree.map(lambda leaf: np.array(leaf, np.float64), lm.params)
    if "bias" in plain["output"]:
        plain["output"]["bias"][[START, UNKNOWN]] = -np.inf
        return oracles.read(lm.model, plain, ids)
    # The softmax of adclm has no bias: its other probabilities are divided by their sum.
    read = oracles.read(lm.model, plain, ids)
    sums = [1 - p_NxV[:, START] - p_NxV[:, UNKNOWN] for p_NxV in read.probabilities]
    return read._replace(nll=[n + np.log(s) for n, s in zip(read.nll, sums, strict=True)])


def reading(lm, document):
    """The independent reading of a document's pieces."""
    ids = [lm.vocabulary.encode(words).tolist() for words in document]
    return ids, plain_reading(lm, ids)


def expected_nats(lm, document):
    """The nats of the words and END of every sentence, added up piece by piece; None where a word
    is only read."""
    ids, read = reading(lm, document)
    sentences = []
    for pieces, nll, words in zip(ids, read.nll, document, strict=True):
        nats, position = [], 0
        for word in words:
            size = len(lm.vocabulary.encode([word]))
            is_read = pieces[position] == UNKNOWN
            nats.append(None if is_read else math.fsum(nll[position : position + size]))
            position += size
        assert position == len(pieces)
        sentences.append([*nats, nll[-1]])
    return sentences


NAMES = ["rnnlm", "ccdclm", "codclm", "adclm", "pointer_drnnlm", "rlm_seqbow_att_ef"]
WITHOUT_CONTEXT_TEXT = [TEXT, PLAIN, [["b"]]]


@pytest.fixture(autouse=True)
def with_float64_oracles(request):
    """Warnings of the oracles' log(0) at START are no fault."""
    with np.errstate(divide="ignore", invalid="ignore"):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_nats_of_words_are_sums_over_their_pieces(name):
    lm = language_model(name)
    for score, document in zip(lm.score(WITHOUT_CONTEXT_TEXT), WITHOUT_CONTEXT_TEXT, strict=True):
        for sentence, words, expected in zip(
            score.sentences, document, expected_nats(lm, document), strict=True
        ):
            assert sentence.tokens == [*words, "<END>"]
            assert sentence.known == [*(word != "<unk>" for word in words), True]
            known = [nats for nats in expected if nats is not None]
            assert len(known) == sum(sentence.known)
            assert sentence.log_prob == pytest.approx(-math.fsum(known), rel=1e-5)
            for log_prob, nats in zip(sentence.log_probs, expected, strict=True):
                assert math.isnan(log_prob) if nats is None else np.isclose(-log_prob, nats, 1e-5)


@pytest.mark.parametrize("name", ["rnnlm", "adclm", "pointer_drnnlm"])
def test_perplexity_is_per_word_and_end(name):
    """The text's own <unk> is no target and has no characters."""
    lm = language_model(name)
    nats = [x for document in (TEXT, PLAIN) for row in expected_nats(lm, document) for x in row]
    known = [x for x in nats if x is not None]
    measured = lm.perplexity([TEXT, PLAIN])
    assert (measured.words, measured.tokens) == (14, 20) and len(known) == 20
    assert (measured.unpredicted_words, measured.oov_words) == (1, 0)
    assert measured.nll == pytest.approx(math.fsum(known), rel=1e-6)
    assert measured.known_nll == measured.nll
    assert measured.perplexity == pytest.approx(math.exp(math.fsum(known) / 20), rel=1e-5)
    words = [word for document in (TEXT, PLAIN) for row in document for word in row]
    assert measured.characters == sum(len(word) + 1 for word in words if word != "<unk>")
    assert "14 words, none out of vocabulary; vocabulary 265 subwords" in str(measured)
    assert "not counted: 1 words that the text itself marks as OOV" in str(measured)
    assert measured == type(measured).from_json(dataclasses.asdict(measured))


def test_sums_by_position_and_tag_are_of_targets():
    """<unk> is in no range of positions and has no part of speech."""
    lm = language_model("ccdclm")
    tags = [["NN", "VB", "NN"], ["NN"], ["NN", "UH", "VB", "NN"]]
    documents = [Document("a", TEXT, tags), Document("b", PLAIN, [["NN"] * len(s) for s in PLAIN])]
    sums = Targets(tags=True).measure(lm, lm.dataset(documents), lambda done: None)
    total = sums.perplexity
    assert total.tokens == 20
    for measured in (sums.by_document, sums.by_token, sums.by_sentence):
        assert measured.count.sum() == 20
        assert measured.nll.sum() == pytest.approx(total.nll, rel=1e-5)
    by_tag = sums.by_tag
    assert by_tag is not None and sum(by_tag.tokens) == 20
    assert "UH" not in [tag for names in by_tag.tags for tag in names]
    first = [len([x for x in row if x is not None]) for row in expected_nats(lm, TEXT)]
    assert sums.by_sentence.count[0, :3].tolist() == [first[0], first[1], first[2]]


def test_coherence_counts_words():
    lm = language_model("ccdclm")
    result = Fixed(permutations=2).measure(lm, lm.dataset([PLAIN, TEXT]), lambda done: None)
    assert result.result.words == 7 + 8


def test_a_neural_cache_has_no_word_that_is_not_predicted():
    """After <unk> the probabilities of all pieces and END still sum to 1."""
    lm = language_model("ccdclm")
    model, params, known = lm.model, lm.params, lm.vocabulary
    before = [known.encode(words) for words in ([["<unk>", "ab"], ["b", "<unk>"]])]
    setting = CacheSetting(theta=0.3, window=50, strength=1.0)
    for context in (before, [known.encode(["<unk>"])]):
        requests = [[*context, np.array([index], np.int32)] for index in range(3, len(known))]
        scored = neural_cache(
            NeuralScorer(model, params), [*requests, [*context, known.encode([])]], [setting]
        )
        nats = [float(sentences[-1][0, 1]) for _, sentences in scored]
        assert sum(math.exp(-x) for x in nats) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ["ccdclm", "pointer_drnnlm"])
def test_training_has_the_nats_and_targets_of_words(name):
    lm = language_model(name)
    ids, _ = reading(lm, TEXT)
    sums = likelihood(lm.model, lm.params, pack([ids]))
    known = [x for row in expected_nats(lm, TEXT) for x in row if x is not None]
    assert float(sums.nll) == pytest.approx(math.fsum(known), rel=1e-5)
    assert float(sums.nats) == pytest.approx(math.fsum(known), rel=1e-5)
    assert (int(sums.tokens), int(sums.terms), int(sums.sentences)) == (10, 10, 3)


def test_numbers_of_targets_do_not_depend_on_the_vocabulary():
    sizes = {lm.perplexity([PLAIN]).tokens for lm in map(language_model, NAMES[:2], (259, 262))}
    assert sizes == {sum(len(words) + 1 for words in PLAIN)}


@pytest.mark.parametrize("name", ["ccdclm", "pointer_drnnlm"])
def test_the_probabilities_of_all_words_sum_to_one(name):
    """Two letters and the end of a word: every word up to four letters, END, what is longer, the
    end of a word without letters, and bytes."""
    lm = language_model(name, 259)
    known = lm.vocabulary
    a, b, end = (known.entries.index(piece) for piece in ("a", "b", "▁"))
    state = lm.read(PLAIN)
    words = ["".join(letters) for n in range(1, 5) for letters in itertools.product("ab", repeat=n)]
    total = sum(math.exp(s.log_probs[0]) for s in state.score([[word] for word in words]))
    prefixes = [p for n in range(5) for p in itertools.product((a, b), repeat=n)]
    longest = max(map(len, prefixes))
    for pieces in prefixes:
        before = [*pieces]
        log_prob = 0.0
        for position in range(len(pieces)):
            log_probs_1xV = lm.reader.next(state.state, [np.array(before[:position], np.int32)])
            log_prob += float(log_probs_1xV[0, before[position]])
        probs_V = np.exp(lm.reader.next(state.state, [np.array(before, np.int32)])[0], dtype=float)
        assert probs_V[START] == probs_V[UNKNOWN] == 0
        if not pieces:
            total += probs_V[END] + probs_V[end]
        else:
            # END inside a word ends no word.
            total += math.exp(log_prob) * probs_V[END]
        total += math.exp(log_prob) * probs_V[3 : subwords.FIRST_PIECE].sum()
        if len(pieces) == longest:
            total += math.exp(log_prob) * (probs_V[a] + probs_V[b])
    assert total == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["rnnlm", "ccdclm", "pointer_drnnlm"])
@pytest.mark.parametrize("k", [1, 4, 30])
def test_next_words_equal_brute_force(name, k):
    """Every word of up to five pieces that the vocabulary divides so, END, after several
    prefixes."""
    lm = language_model(name)
    known = lm.vocabulary
    # A pointer copies the byte of c, which is no piece.
    inner = [*range(subwords.FIRST_PIECE, known.first_word_end), 3 + ord("c")]
    last = range(known.first_word_end, len(known))
    words = {
        known.decode([*pieces, index])[0]
        for n in range(4)
        for pieces in itertools.product(inner, repeat=n)
        for index in last
    } - {""}
    state = lm.read(PLAIN[:2])
    for prefix in ([], ["b", "zé"], ["aab"]):
        scores = state.score([[*prefix, word] for word in sorted(words)])
        expected = [
            (score.log_probs[len(prefix)], word)
            for word, score in zip(sorted(words), scores, strict=True)
        ]
        expected.append((state.score([prefix])[0].log_probs[-1], "<END>"))
        best = sorted(expected, reverse=True)[:k]
        words_found = state.next_words(prefix, k)
        assert [word for word, _ in words_found] == [word for _, word in best]
        np.testing.assert_allclose([p for _, p in words_found], [p for p, _ in best], rtol=1e-5)


def test_an_unlikely_end_of_a_word_hides_no_likely_word():
    """The first pieces of a word are at least as probable as the word: two pieces may be likelier
    than every single piece."""
    lm = language_model("rnnlm", seed=3)
    (word, log_prob), *_ = lm.read().next_words(k=1)
    every = lm.read().score([[word] for word in ("ab", "ba", "aab", "abab", "b", "a", "aa", "abb")])
    assert log_prob >= max(score.log_probs[0] for score in every) - 1e-6


def test_measures_of_distributions_are_of_the_first_piece():
    lm = language_model("ccdclm")
    measures = ["entropy", "rank", "entropy_reduction", "divergence"]
    table = lm.surprisals([TEXT], measures=measures, no_context_too=True)
    ids, read = reading(lm, TEXT)
    alone = [plain_reading(lm, [pieces]) for pieces in ids]
    row = 0
    for pieces, nll, p_NxV, other, words in zip(
        ids, read.nll, read.probabilities, alone, TEXT, strict=True
    ):
        q_NxV = other.probabilities[0]
        sizes = [len(lm.vocabulary.encode([word])) for word in words]
        first = [sum(sizes[:n]) for n in range(len(words) + 1)]
        entropies = [-sum(x * math.log(x) for x in p_NxV[i] if x > 0) for i in first]
        for n, i in enumerate(first):
            if n < len(words) and words[n] == "<unk>":
                assert not table["known"][row] and np.isnan(table["entropy"][row])
                row += 1
                continue
            size = [*sizes, 1][n]
            assert np.isclose(table["surprisal"][row], math.fsum(nll[i : i + size]), 1e-4)
            expected = math.fsum(other.nll[0][i : i + size])
            assert np.isclose(table["surprisal_no_context"][row], expected, 1e-4)
            assert np.isclose(table["entropy"][row], entropies[n], 1e-4)
            target = [*pieces, END][i]
            assert table["rank"][row] == 1 + (p_NxV[i] > p_NxV[i][target]).sum()
            kl = sum(p * math.log(p / q) for p, q in zip(p_NxV[i], q_NxV[i], strict=True) if p > 0)
            assert np.isclose(table["divergence"][row], kl, rtol=1e-3, atol=1e-5)
            if n < len(words):
                reduction = entropies[n] - entropies[n + 1]
                assert np.isclose(table["entropy_reduction"][row], reduction, 1e-3, 1e-5)
            row += 1
    assert row == len(table["word"])


def document_nats(lm, document):
    return math.fsum(x for row in expected_nats(lm, document) for x in row if x is not None)


def test_minimal_pairs_compare_whole_words():
    lm = language_model("ccdclm")
    right, wrong, context = ["aab", "zé", "b"], ["aab", "ab"], PLAIN[:1]
    (outcome,) = minimal_pairs(lm, [Choice([" ".join(right), " ".join(wrong)], context)])
    before = document_nats(lm, context)
    expected = [before - document_nats(lm, [*context, words]) for words in (right, wrong)]
    np.testing.assert_allclose(outcome.log_probs, expected, rtol=1e-5)
    assert outcome.targets == [4, 3] and outcome.oov == [0, 0]
    (read,) = minimal_pairs(lm, [["ab <unk> b", "b b"]])
    assert read.targets == [3, 3] and read.oov == [1, 0]


def test_orders_and_coherence_are_those_of_sums():
    lm = language_model("ccdclm")
    orders = [list(order) for order in itertools.permutations(range(3))]
    nats = [document_nats(lm, [PLAIN[i] for i in order]) for order in orders]
    ordered = lm.order(PLAIN, beam=10)
    assert ordered.order == orders[int(np.argmin(nats))]
    assert ordered.log_prob == pytest.approx(-min(nats), rel=1e-5)
    test = Fixed(permutations=5)
    dataset = lm.dataset([PLAIN])
    result = test.measure(lm, dataset, lambda done: None).result
    original = nats[orders.index([0, 1, 2])]
    assert 0 <= result.mean <= 1 and original == pytest.approx(document_nats(lm, PLAIN))


def test_caches_add_up_pieces():
    """A unigram cache of words, and a neural cache of pieces with theta 0, in plain loops."""
    lm = language_model("ccdclm")
    for document in (PLAIN, TEXT):
        of_words = [[*words, "<END>"] for words in document]
        expected = cached(of_words, expected_nats(lm, document))
        adapted = adapt(lm, "unigram", weight=0.3, strength=2.0)
        (score,) = adapted.score([document])
        for sentence, nats in zip(score.sentences, expected, strict=True):
            known = [-x if x is not None else math.nan for x in nats]
            np.testing.assert_allclose(sentence.log_probs, known, rtol=1e-5)
        assert adapted.perplexity([document]).tokens == 10
    ids, read = reading(lm, PLAIN)
    of_pieces = cached([[*pieces, END] for pieces in ids], [nll.tolist() for nll in read.nll])
    neural = adapt(lm, "cache", weight=0.3, theta=0.0, strength=2.0, window=100)
    total = math.fsum(itertools.chain.from_iterable(of_pieces))
    assert neural.perplexity([PLAIN]).nll == pytest.approx(total, rel=1e-5)
    assert neural.perplexity([TEXT]).tokens == 10


def cached(targets, nats):
    """The nats of targets under 0.7 p + 0.3 (2 p + count) / (2 + size)."""
    seen, expected = [], []
    for row, nats_of_row in zip(targets, nats, strict=True):
        expected.append([])
        for target, x in zip(row, nats_of_row, strict=True):
            if x is None:
                expected[-1].append(None)
                continue
            p = math.exp(-x)
            of_cache = (2.0 * p + seen.count(target)) / (2.0 + len(seen))
            expected[-1].append(-math.log(0.7 * p + 0.3 * of_cache))
            seen.append(target)
    return expected


def test_a_tuned_cache_reports_perplexity_per_word():
    lm = language_model("ccdclm")
    adapted = adapt(lm, "unigram", tune_on=[TEXT, PLAIN], weight=0.3, strength=2.0)
    for kind in ("unigram", "cache"):
        tuned = adapt(lm, kind, tune_on=[PLAIN, TEXT])
        assert tuned.adaptation is not None
        best = tuned.adaptation.trials[0]["perplexity"]
        assert tuned.perplexity([PLAIN, TEXT]).perplexity == pytest.approx(best, rel=1e-4)
    assert adapted.perplexity([PLAIN]).nll > 0


def test_mixtures_mix_words():
    """p of a word is the mean of the products over its pieces."""
    first, second = language_model("ccdclm"), language_model("rnnlm")
    expected = [
        [
            -math.log(0.3 * math.exp(-a) + 0.7 * math.exp(-b)) if a is not None else None
            for a, b in zip(*rows, strict=True)
        ]
        for rows in zip(expected_nats(first, TEXT), expected_nats(second, TEXT), strict=True)
    ]
    known = [x for row in expected for x in row if x is not None]
    mixture = mix(first, second, 0.3)
    assert mixture.perplexity([TEXT]).nll == pytest.approx(math.fsum(known), rel=1e-5)
    assert mixture.perplexity([TEXT]).tokens == 10
    (score,) = mixture.score([TEXT])
    assert [math.isnan(p) for p in score.sentences[2].log_probs] == [False, True, *[False] * 3]
    tuned = mix(first, second, tune_on=[TEXT, PLAIN])
    assert 0 <= tuned.facts.config["weight"] <= 1


def test_rescoring_chooses_by_words():
    lm = language_model("ccdclm")
    lists = [[["aab", "zé"], ["ab"]], [["b", "b"], ["abab", "c"]]]
    segments = [Segment(hypotheses, np.zeros((2, 0))) for hypotheses in lists]
    rescorer = Rescorer({"lm": lm.reader}, lm.encoder(), NBestList("list", segments, ()))
    choices, features = rescorer.decode(rescorer.default_weights)
    first = [-document_nats(lm, [words]) for words in lists[0]]
    np.testing.assert_allclose(features[0][:, 0], first, rtol=1e-5)
    assert features[0][:, 1].tolist() == [2, 1] and choices[0] == int(np.argmax(first))
    best = lists[0][choices[0]]
    second = [-document_nats(lm, [best, words]) - max(first) for words in lists[1]]
    np.testing.assert_allclose(features[1][:, 0], second, rtol=1e-4)


@pytest.mark.parametrize("name", ["ccdclm", "pointer_drnnlm", "rlm_seqbow_att_ef"])
@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_generated_text_has_the_score_it_is_given(name, method):
    lm = language_model(name)
    decoding = Decoding(method)
    state = lm.read(PLAIN)
    for seed in range(4 if method == "sample" else 1):
        text = state.generate(3, decoding, prefix="aab zé", max_sentence_words=5, seed=seed)
        sentences = [sentence.tokens[:-1] for sentence in text.sentences]
        assert sentences[0][:2] == ["aab", "zé"]
        assert all(1 <= len(words) <= 5 for words in sentences) and len(sentences) == 3
        (score,) = lm.score([[*PLAIN, *sentences]])
        expected = [sentence.log_prob for sentence in score.sentences[3:]]
        assert text.log_prob == pytest.approx(math.fsum(expected), rel=1e-4)
        for sentence, scored in zip(text.sentences, score.sentences[3:], strict=True):
            assert sentence.tokens == scored.tokens
            np.testing.assert_allclose(sentence.log_probs, scored.log_probs, rtol=1e-4, atol=1e-4)
        ids = [index for words in sentences for index in lm.vocabulary.encode(words[2:]).tolist()]
        assert UNKNOWN not in ids


def test_generated_words_end():
    """END after whole words alone; a word that never ends is cut, and no byte is generated."""
    lm = language_model("rnnlm")
    known = lm.vocabulary
    params: Any = oracles.jax.tree.map(lambda leaf: leaf, lm.params)
    bias = params["output"]["bias"]
    endless = changed(
        lm,
        params={
            **params,
            "output": {
                **params["output"],
                "bias": bias.at[3:].add(-50).at[known.entries.index("a")].add(90).at[5].add(80),
            },
        },
    )
    (text,) = list(endless.generate([PLAIN], 2, max_sentence_words=3))[0][1]
    for sentence in text.sentences:
        for word in sentence.tokens[:-1]:
            assert set(word) <= set("ab") and 1 <= len(word)
            assert MAX_PIECES - 2 <= len(word) <= 2 * MAX_PIECES
        # The room for pieces ends before the third word.
        assert len(sentence.tokens) == 3


def test_beams_compare_log_probabilities_per_word():
    """The best of all texts of at most two words of the pieces of a small vocabulary."""
    lm = language_model("rnnlm", 259, seed=1)
    wide = Decoding("beam", beam_width=64)
    state = lm.read()
    text = state.generate(1, wide, max_sentence_words=2)
    letters = ["".join(w) for n in range(1, 4) for w in itertools.product("ab", repeat=n)]
    candidates = [[w] for w in letters] + [[v, w] for v in letters for w in letters]
    scores = state.score(candidates)
    normalized = [
        score.log_prob / (len(words) + 1) ** wide.length_normalization
        for words, score in zip(candidates, scores, strict=True)
    ]
    score = text.log_prob / len(text.sentences[0].tokens) ** wide.length_normalization
    assert score >= max(normalized) - 1e-5


@pytest.mark.parametrize("name", ["standard_autoencoder", "hierarchical_attention_autoencoder"])
def test_autoencoders_reconstruct_words(name):
    lm = language_model(name)
    ((_, (text,)),) = lm.reconstruct([PLAIN], max_length_ratio=1.0)
    assert sum(len(sentence.tokens) - 1 for sentence in text.sentences) <= 7
    (score,) = lm.score([PLAIN])
    for sentence, expected in zip(score.sentences, expected_nats(lm, PLAIN), strict=True):
        np.testing.assert_allclose(sentence.log_probs, [-x for x in expected], rtol=1e-4)


def attended(name, positions):
    lm = language_model(name)
    _, read = reading(lm, PLAIN)
    for t, (sentence, weights_NxM) in enumerate(
        zip(lm.attention(PLAIN), read.attention, strict=True)
    ):
        words = PLAIN[t]
        assert sentence.targets == [*words, "<END>"]
        sizes = [len(lm.vocabulary.encode([word])) for word in words]
        rows = [sum(sizes[:n]) for n in range(len(words) + 1)]
        names, sizes = positions(lm, t)
        assert sentence.positions == names
        ends = np.cumsum(sizes)
        expected = [
            [math.fsum(weights_NxM[row][e - n : e]) for e, n in zip(ends, sizes, strict=True)]
            for row in rows
        ]
        np.testing.assert_allclose(sentence.weights, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(sentence.weights.sum(axis=1), 1, rtol=1e-5)


def test_attention_is_to_words():
    def inputs(lm, t):
        if not t:
            return ["c_0"], [1]
        words = PLAIN[t - 1]
        return ["<START>", *words], [1, *(len(lm.vocabulary.encode([word])) for word in words)]

    attended("adclm", inputs)


def test_copies_are_of_words():
    def memory(lm, t):
        pairs = [("softmax", 1)]
        targets = [
            (word, len(lm.vocabulary.encode([word])) if word != "<END>" else 1)
            for words in PLAIN[:t]
            for word in (*words, "<END>")
        ]
        # The memory has the last nine pieces; the first word may have lost its first pieces.
        total, kept = 0, []
        for word, size in reversed(targets):
            if total < 9:
                kept.append((word, min(size, 9 - total)))
                total += kept[-1][1]
        pairs += kept[::-1]
        names, sizes = zip(*pairs, strict=True)
        return list(names), list(sizes)

    attended("pointer_drnnlm", memory)


def test_vectors_and_states_do_not_depend_on_how_words_are_passed():
    lm = language_model("ccdclm")
    (vectors,) = lm.vectors([PLAIN])
    assert vectors.sentences.shape[0] == 3
    np.testing.assert_allclose(vectors.document, lm.read(PLAIN).vector, rtol=1e-5, atol=1e-6)


def test_continuations_of_strings_are_sums_over_pieces():
    """A continuation inside a sentence; greedy if each of its pieces is the likeliest."""
    lm = changed(language_model("ccdclm"), text=TrainingText(TextOptions()))
    likeliest = lm.read().next_words("ab", 1)[0][0]
    continuations = [" zé b", " aab", f" {likeliest}"]
    scores = strings.score(lm, [("ab", text) for text in continuations])
    for text, score in zip(continuations, scores, strict=True):
        words = ["ab", *text.split()]
        ids, read = reading(lm, [words])
        first = len(lm.vocabulary.encode(["ab"]))
        assert score.log_prob == pytest.approx(-math.fsum(read.nll[0][first:-1]), rel=1e-5)
        assert list(score.ids) == ids[0][first:]
        best = [int(p_V.argmax()) for p_V in read.probabilities[0][first:-1]]
        assert score.is_greedy == (best == ids[0][first:])
        assert not score.is_unknown


def test_bags_of_words_refuse_pieces():
    with pytest.raises(
        InputError, match="^rnnslm predicts bags of words and needs a vocabulary of words, but"
    ):
        models.create("rnnslm", vocab_size=300, first_word_end=270)


def test_a_prefix_that_is_not_predicted_is_refused():
    with pytest.raises(InputError, match="the prefix has the word <unk>, which the model does not"):
        language_model("ccdclm").read().generate(prefix="ab <unk>")


def test_a_warning_reports_words_of_many_pieces(caplog):
    lm = changed(language_model("rnnlm"), text=TrainingText(pieces_per_word={"test": 1.2}))
    list(lm.score([[["zebre"] * 120]]))
    (record,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert record.getMessage().startswith(
        "the text has 6.00 pieces per word (1.20 in the run's own test split)"
    )
    caplog.clear()
    list(lm.score([[["ab"] * 120]]))
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_saved_and_pickled_models_score_equally(tmp_path):
    lm = language_model("ccdclm")
    config = {
        "model": {"name": "ccdclm", "embedding_dim": 4, "hidden_dim": 5, "num_layers": 1}
        | {"cell": "lstm"},
        "data": {"directory": ""},
        "training": {"start_from": ""},
    }
    lm = changed(lm, step=0, config=config)
    lm.save(tmp_path / "saved", dtype="float32")
    assert (tmp_path / "saved" / "pieces.model").is_file()
    for other in (dclm_jax.restore(tmp_path / "saved"), pickle.loads(pickle.dumps(lm))):
        assert other.vocabulary == lm.vocabulary
        assert other.perplexity([TEXT]).nll == pytest.approx(lm.perplexity([TEXT]).nll, rel=1e-6)


def test_options_of_a_model_do_not_name_the_pieces():
    assert "first_word_end" not in [field.name for field in DocumentModel.options()]
