"""Generated texts, against their definition in plain Python, brute force and probabilities."""

import functools
import math
import re
import typing
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dclm_jax.data.vocabulary import END, START, UNKNOWN
from dclm_jax.decoding import generation
from dclm_jax.decoding.choices import Decoding, Limits, Method, choose, random_keys, restricted
from dclm_jax.decoding.generation import generate, generate_many
from dclm_jax.errors import InputError
from dclm_jax.models.dclm import CCDCLM
from dclm_jax.reading.reader import Reader
from dclm_jax.scoring.ngrams import NGramScorer
from tests.exhaustive import also, some
from tests.models.support import (
    DOCUMENTS,
    WITHOUT_SOURCE,
    random_params,
    simple_model,
)

# A carried state with words to copy; words encoded by rows and by positions; hashed features.
FEW = ("pointer_drnnlm", "adclm", "adclm_3", "rlm_seqbow_lf", "hrnnlm_two_step")
TINY = 6
"""A vocabulary of three words, START, END and UNKNOWN."""


class Ending(CCDCLM):
    """A model that tells the end of its document."""

    name = "ending"

    def ending(self, params, context) -> jax.Array:
        return 0.4 * jnp.sum(context, axis=-1) - 0.2


@functools.cache
def reader(name, vocab_size=11):
    model = simple_model("ccdclm" if name == "ending" else name, vocab_size=vocab_size)
    if name == "ending":
        model = Ending(**vars(model))
    params = random_params(model)
    # Otherwise likely words are likely everywhere, and sentences never end.
    params = jax.tree.map(lambda array: 2 * array, params)
    if name in ("ccdclm", "ending"):
        params["output"]["bias"] = params["output"]["bias"].at[END].add(1.5)
    return Reader(model, params)


def ids(document):
    return [np.array(words, np.int32) for words in document]


def after(name, documents=DOCUMENTS):
    return reader(name).after([ids(document) for document in documents])


def keys(rows, seed=0):
    return random_keys([seed] * rows, range(rows))


def plain(text):
    """The words of a text, to compare."""
    return [words.tolist() for words in text.sentences]


def log_prob(text):
    return float(sum(map(np.sum, text.log_probs)) + sum(text.decisions))


class Plain(NamedTuple):
    """A text so far in the plain implementation; `words` are of the sentence that is not closed."""

    score: float = 0.0
    terms: int = 0
    sentences: tuple = ()
    words: tuple | None = None
    goes_on: bool = True


@functools.cache
def next_log_probs(name, sentences, words):
    """log P [V] of the next word."""
    read = reader(name, TINY)
    log_probs_1xV = read.next(read.after([ids(sentences)]), [np.array(words, np.int32)])
    return log_probs_1xV.astype(np.float64)[0].tolist()


@functools.cache
def log_odds(name, sentences):
    read = reader(name, TINY)
    odds_1 = read.model.ending(read.params, read.after([ids(sentences)]).context)
    return None if odds_1 is None else float(odds_1[0])


def extensions(name, text, limits, unknown):
    """What a text so far becomes in one step: a decision, a word or END."""
    num_words = sum(map(len, text.sentences)) + len(text.words or ())
    if text.words is None:
        odds = log_odds(name, text.sentences)
        if odds is None:
            return [text._replace(words=())]
        end, on = (-math.log1p(math.exp(sign * odds)) for sign in (-1, 1))
        terms = text.terms + 1
        return [
            text._replace(score=text.score + end, terms=terms, goes_on=False),
            text._replace(score=text.score + on, terms=terms, words=()),
        ]
    log_probs = next_log_probs(name, text.sentences, text.words)
    extended = []
    if text.words:
        sentences = (*text.sentences, text.words)
        is_whole = num_words == limits.max_words or len(sentences) == limits.num_sentences
        score = text.score + log_probs[END]
        extended.append(Plain(score, text.terms + 1, sentences, None, not is_whole))
    if len(text.words) < limits.max_sentence_words and num_words < limits.max_words:
        for word in range(UNKNOWN if unknown else UNKNOWN + 1, TINY):
            score = text.score + log_probs[word]
            extended.append(text._replace(score=score, terms=text.terms + 1))
            extended[-1] = extended[-1]._replace(words=(*text.words, word))
    return extended


def plain_beam(name, width, alpha, limits, unknown=False):
    """The definition: all go one step on, the best stay; who is ahead waits."""

    def key(text):
        return -text.score / max(text.terms, 1) ** alpha

    texts = [Plain()]
    for _ in range(limits.num_sentences):
        # The decision, or nothing, before the sentence.
        texts = [
            extended
            for text in texts
            for extended in (extensions(name, text, limits, unknown) if text.goes_on else [text])
        ]
        texts = sorted(texts, key=key)[:width]
        while any(text.words is not None for text in texts):
            texts = [
                extended
                for text in texts
                for extended in (
                    [text] if text.words is None else extensions(name, text, limits, unknown)
                )
            ]
            texts = sorted(texts, key=key)[:width]
    return min(texts, key=key)


def best_of_all(name, alpha, limits, unknown=False):
    """Every text within the limits, and the best one."""
    whole, growing = [], [Plain()]
    while growing:
        growing = [
            extended for text in growing for extended in extensions(name, text, limits, unknown)
        ]
        whole += [text for text in growing if not text.goes_on]
        growing = [text for text in growing if text.goes_on]
    return len(whole), min(whole, key=lambda text: -text.score / text.terms**alpha)


def assert_same(text, expected):
    assert plain(text) == [list(words) for words in expected.sentences]
    assert log_prob(text) == pytest.approx(expected.score, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "unknown", "alpha"),
    [
        ("ccdclm", False, 0.0),
        ("ending", False, 1.0),
        *also([("ccdclm", True, 1.0), ("ending", True, 0.0)]),
    ],
)
def test_a_beam_that_prunes_nothing_finds_the_best_text_of_all(name, unknown, alpha):
    limits = Limits(num_sentences=2, max_sentence_words=2, max_words=3)
    count, expected = best_of_all(name, alpha, limits, unknown)
    decoding = Decoding("beam", beam_width=count, length_normalization=alpha, allow_unknown=unknown)
    read = reader(name, TINY)
    (text,) = generate(read.open(1), decoding, [limits], keys(1))
    assert_same(text, expected)


@pytest.mark.parametrize(
    ("name", "width", "alpha"),
    [
        ("ccdclm", 2, 0.7),
        ("ending", 4, 0.7),
        *also([("ccdclm", 1, 0.0), ("ccdclm", 5, 0.0), ("ending", 1, 0.0), ("ending", 2, 1.5)]),
        *also([("ending", 3, 0.0), ("ending", 9, 0.0)]),
    ],
)
def test_a_beam_is_what_its_definition_says(name, width, alpha):
    read = reader(name, TINY)
    decoding = Decoding("beam", beam_width=width, length_normalization=alpha)
    limits = [Limits(3, 3, words) for words in (9, 5, 1)]
    texts = generate(read.open(3), decoding, limits, keys(3))
    for text, limit in zip(texts, limits, strict=True):
        assert_same(text, plain_beam(name, width, alpha, limit))


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(),
        Decoding("beam", beam_width=1),
        Decoding("sample", top_k=1),
        *(
            Decoding("sample", temperature=temperature, top_p=1 - temperature)
            for temperature in some([1e-3, 5e-324], all=[1e-3, 1e-9, 1e-30, 5e-324])
        ),
    ],
)
def test_greedy_search_is_a_beam_of_one_and_a_sample_of_the_likeliest(decoding):
    limits = [Limits(3, 3, 9), Limits(2, 3, 100), Limits(5, 100, 4), Limits(1, 2, 1)] * 2
    keys_8 = random_keys(range(8), range(8))
    texts = generate(reader("ending", TINY).open(8), decoding, limits, keys_8)
    for text, limit in zip(texts, limits, strict=True):
        assert_same(text, plain_beam("ending", 1, 0.0, limit))


@pytest.mark.parametrize(
    ("name", "decoding"),
    [
        ("ccdclm", Decoding("sample", allow_unknown=True)),
        *((name, Decoding("beam", beam_width=3)) for name in some(FEW, all=WITHOUT_SOURCE)),
    ],
)
def test_log_probs_are_those_of_reading_the_text(name, decoding):
    read, limits = reader(name), Limits(3, 5, 100)
    texts = generate(after(name), decoding, [limits] * 4, keys(4))
    assert 6 <= sum(len(text.sentences) for text in texts) <= 12
    for document, text in zip(DOCUMENTS, texts, strict=True):
        _, (nll,) = read.read(after(name, [document]), [list(text.sentences)])
        for log_probs, words, expected in zip(text.log_probs, text.sentences, nll, strict=True):
            assert 1 <= len(words) <= 5
            assert not set(words.tolist()) & {START, END}
            np.testing.assert_allclose(log_probs, -expected, rtol=1e-5, atol=1e-5)


def test_decisions_are_those_of_the_contexts():
    read, limits = reader("ending"), Limits(2, 4, 100)
    texts = generate(after("ending"), Decoding("sample"), [limits] * 4, keys(4, seed=1))
    assert {text.has_ended for text in texts} == {True, False}
    for document, text in zip(DOCUMENTS, texts, strict=True):
        assert len(text.decisions) == len(text.sentences) + text.has_ended
        assert text.has_ended or len(text.sentences) == 2
        for number, decision in enumerate(text.decisions):
            before = [*document, *text.sentences[:number]]
            context = after("ending", [before]).context
            odds_1 = read.model.ending(read.params, context)
            assert odds_1 is not None
            sign = 1 if number == len(text.sentences) else -1
            expected = -math.log1p(math.exp(-sign * float(odds_1[0])))
            assert decision == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("method", some(["beam", "sample"], all=typing.get_args(Method)))
def test_a_text_does_not_depend_on_its_batch(method, monkeypatch):
    name, decoding, limits = "ccdclm", Decoding(method), [Limits(2, 6, 100)] * 5
    read, documents = reader(name), [*DOCUMENTS, ()]
    # There is memory for three documents.
    monkeypatch.setattr(generation, "MAX_LOGITS", 3 * 11 * decoding.width)
    batches = []

    def recording(start, *arguments):
        batches.append(start.rows)
        return generate(start, *arguments)

    monkeypatch.setattr(generation, "generate", recording)
    texts = generate_many(read, list(map(ids, documents)), decoding, limits, keys(5))
    assert sorted(batches) == [1, 2, 2]
    for number, (document, text) in enumerate(zip(documents, texts, strict=True)):
        key = random_keys([0], [number])
        (alone,) = generate(after(name, [document]), decoding, limits[:1], key)
        assert plain(alone) == plain(text)


def test_seeds_and_numbers_decide_what_is_drawn():
    place, limits = after("ccdclm", [DOCUMENTS[0]] * 4), [Limits(3, 6, 100)] * 4
    drawn = generate(place, Decoding("sample"), limits, random_keys([0, 0, 1, 0], [0, 1, 0, 0]))
    first, other_number, other_seed, again = map(plain, drawn)
    assert first == again
    assert first != other_number and first != other_seed


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding("sample"),
        Decoding("sample", temperature=0.5, allow_unknown=True),
        Decoding("sample", top_k=4),
        Decoding("sample", top_p=0.6, temperature=2.0),
    ],
)
def test_words_are_drawn_as_often_as_they_are_likely(decoding):
    read, rows = reader("ccdclm"), 4000
    place = after("ccdclm", DOCUMENTS[:1])
    log_probs_V = read.next(place, [np.array([], np.int32)])[0].astype(np.float64)
    forbidden = [START, END, *[UNKNOWN] * (not decoding.allow_unknown)]
    weights_V = np.exp(log_probs_V / decoding.temperature)
    weights_V[forbidden] = 0
    likeliest = np.argsort(-weights_V)
    if decoding.top_k is not None:
        weights_V[likeliest[decoding.top_k :]] = 0
    if decoding.top_p < 1:
        sums = np.cumsum(weights_V[likeliest]) / weights_V.sum()
        weights_V[likeliest[1 + np.searchsorted(sums, decoding.top_p) :]] = 0
    assert 2 < np.count_nonzero(weights_V) < 10
    expected_V = rows * weights_V / weights_V.sum()
    limits = [Limits(1, 1, 1)] * rows
    texts = generate(place.take([0] * rows), decoding, limits, keys(rows))
    counts_V = np.bincount([plain(text)[0][0] for text in texts], minlength=11)
    can = expected_V > 0
    assert not counts_V[~can].any()
    statistic = np.sum((counts_V[can] - expected_V[can]) ** 2 / expected_V[can])
    # The chance of more is below one in a thousand for up to nine degrees of freedom.
    assert statistic < 27.9


def test_top_k_and_top_p_by_hand():
    probs = np.array([[0.1, 0.4, 0.2, 0.3, 0.0]])
    with np.errstate(divide="ignore"):
        options = jnp.array(np.log(probs), jnp.float32)

    def kept(**restrictions):
        logits_1xC = restricted(Decoding("sample", **restrictions), options)
        return np.flatnonzero(np.isfinite(logits_1xC[0])).tolist()

    assert kept() == [0, 1, 2, 3]
    assert kept(top_k=2) == [1, 3]
    assert kept(top_k=9) == [0, 1, 2, 3]
    assert kept(top_p=0.39) == [1]
    assert kept(top_p=0.41) == [1, 3]
    assert kept(top_p=0.95) == [0, 1, 2, 3]
    # Of the two that top k leaves the first one has 4/7.
    assert kept(top_k=2, top_p=0.55) == [1]
    # The square roots sum to 1.94, the first one has 0.33 of that, the first two 0.61.
    assert kept(temperature=2.0, top_p=0.4) == [1, 3]
    # The likeliest one is kept, and of four with a quarter each the two likeliest.
    assert kept(top_p=5e-324) == kept(top_p=5e-324, temperature=1e300) == [1]
    assert kept(temperature=1e300, top_k=2) == kept(temperature=1e300, top_p=0.5) == [1, 3]
    halved = restricted(Decoding("sample", temperature=0.5), options)
    np.testing.assert_allclose(jax.nn.softmax(halved)[0], [1 / 30, 16 / 30, 4 / 30, 9 / 30, 0])


def test_distributions_of_all_temperatures_are_finite():
    """Against log P / T shifted and summed in float64, also where T is no float32."""
    log_probs_RxC = np.random.default_rng(0).normal(0, 3, (50, 40)).astype(np.float32)
    log_probs_RxC[:, ::3] = -np.inf
    # In the first rows two are exactly as likely.
    log_probs_RxC[:9, 1] = log_probs_RxC[:9].max(axis=1)
    shifted_RxC = log_probs_RxC.astype(float) - log_probs_RxC.max(axis=1, keepdims=True)
    for temperature in (5e-324, 1e-300, 1e-40, 1e-30, 1e-9, 0.3, 1.0, 4.0, 1e30, 1e39, 1e300):
        with np.errstate(over="ignore"):
            weights_RxC = np.exp(shifted_RxC / temperature)
        expected_RxC = weights_RxC / weights_RxC.sum(axis=1, keepdims=True)
        decoding = Decoding("sample", temperature=temperature)
        for of in (restricted, jax.jit(restricted, static_argnums=0)):
            logits_RxC = of(decoding, jnp.asarray(log_probs_RxC))
            probs_RxC = jax.nn.softmax(logits_RxC)
            np.testing.assert_allclose(probs_RxC, expected_RxC, rtol=1e-4, atol=1e-7)


def test_sums_that_round_upwards_draw_nothing_that_is_left_out(monkeypatch):
    """The number that is drawn lies where the sum grows, though nothing has been added to it."""
    decoding = Decoding("sample", top_k=50)
    options_RxV = jnp.asarray(np.random.default_rng(0).normal(0, 2, (64, 5000)), jnp.float32)
    probs_RxV = jax.nn.softmax(restricted(decoding, options_RxV))
    sums_RxV = np.asarray(jnp.cumsum(probs_RxV, axis=-1))
    grows_RxV = (np.diff(sums_RxV, prepend=np.float32(0)) > 0) & ~(probs_RxV > 0)
    rows, before = np.nonzero(grows_RxV)
    assert len(rows), "the test must have such a place to be able to fail"
    drawn_R = jnp.asarray(sums_RxV[rows, before - 1] / sums_RxV[rows, -1])
    monkeypatch.setattr(jax.random, "uniform", lambda place: drawn_R[place])
    places = jnp.arange(len(rows))
    zero = jnp.zeros(len(rows))
    _, option_R = choose(decoding, zero, zero, options_RxV[rows], places)
    assert np.all(probs_RxV[rows, option_R] > 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "beams"}, "method is 'beams'; expected greedy or beam or sample"),
        ({"beam_width": 0}, "beam_width is 0; expected a whole number from 1 to 2^31 - 1"),
        ({"length_normalization": -1.0}, "length_normalization is -1.0; expected a finite number"),
        (
            {"length_normalization": math.nan},
            "length_normalization is nan; expected a finite number",
        ),
        ({"temperature": 0.0}, "temperature is 0.0; expected a finite number above 0"),
        ({"temperature": math.inf}, "temperature is inf; expected a finite number above 0"),
        ({"top_k": 0}, "top_k is 0; expected a whole number from 1 to 2^31 - 1"),
        ({"top_p": 0.0}, "top_p is 0.0; expected a number above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p is 1.5; expected a number above 0 and at most 1"),
    ],
)
def test_options_out_of_range_are_named(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Decoding(**options)


def test_what_cannot_be_generated_is_refused():
    def attempt(name, *limits):
        return generate(reader(name, 11).open(1), Decoding(), [Limits(*limits)], keys(1))

    with pytest.raises(InputError, match="rnnslm predicts bags of words"):
        attempt("rnnslm", 1, 1, 1)
    with pytest.raises(InputError, match="n-gram models generate no text"):
        generation.require_words(NGramScorer.__new__(NGramScorer))
    with pytest.raises(InputError, match="max_words is 0; expected a whole number"):
        attempt("rnnlm", 1, 1, 0)
