"""Perplexity against sums done by hand."""

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dclm_jax.data.encoding import Encoder
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.scoring.perplexity import Perplexity, perplexity_of

DOCUMENTS = [
    [np.array([3, 2, 4]), np.array([], np.int32)],
    [np.array([2])],
]
NLL = [
    [np.array([1, 2, 3, 0.5], np.float32), np.array([0.25], np.float32)],
    [np.array([4, 1.25], np.float32)],
]


def fake_scorer(nll, objective="words") -> Any:
    def score(documents):
        yield from zip(list(documents), nll, strict=True)

    return SimpleNamespace(vocab_size=10, score=score, objective=objective, first_word_end=3)


def test_characters_are_those_of_the_text_and_one_after_each_word():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "cat", "the"), (0,) * 5)
    documents = list(Encoder(vocabulary).documents([["the cat", "cat cat the"]]))
    assert documents[0].characters == len("the cat\ncat cat the\n")
    nll = [[np.array([1, 2, 3], np.float32), np.array([4, 5, 6, 7], np.float32)]]
    result = perplexity_of(fake_scorer(nll), documents)
    assert result.bits_per_character == pytest.approx(28 / math.log(2) / 20)
    assert f"{28 / math.log(2) / 20:.4f} bits per character" in str(result)


def test_there_are_no_bits_per_character_with_oov_words():
    """UNKNOWN does not spell their letters."""
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "cat", "the"), (0,) * 5)
    documents = list(Encoder(vocabulary).documents([["the cat", "unknown cat ."]]))
    assert [ids.tolist() for ids in documents[0].sentences] == [[4, 3], [2, 3, 2]]
    nll = [[np.array([1, 2, 3], np.float32), np.array([4, 5, 6, 7], np.float32)]]
    result = perplexity_of(fake_scorer(nll), documents)
    assert (result.known_nll, result.known_tokens) == (28 - 4 - 6, 5)
    assert result.bits_per_character is None and "character" not in str(result)


def test_the_oov_rate_of_the_run_is_beside_the_one_of_the_text():
    measured = Perplexity(10, nll=1.0, tokens=100, words=100, oov_words=5)
    assert "100 words, 5.00% out of vocabulary; vocabulary" in str(measured)
    measured = dataclasses.replace(measured, usual_oov_rate=0.001)
    assert "5.00% out of vocabulary (0.10% in the run's own test split); v" in str(measured)


def test_sums_by_hand_as_text_and_json():
    """Known targets are all but the 2 of the first sentence and the word of the last one."""
    result = perplexity_of(fake_scorer(NLL), DOCUMENTS)
    assert str(result) == (
        "perplexity 5.5527 = exp(12.00 nats / 7 targets); 4.3281 bits per word "
        "(an OOV word has only the bits of UNKNOWN)\n"
        "perplexity (in-vocabulary) 3.3201 = exp(6.00 nats / 5 targets)\n"
        "2 documents, 3 sentences, 4 words, 50.00% out of vocabulary; vocabulary 10\n"
        "counting: END is predicted and counted, START never is"
    )
    expected = {
        "perplexity": math.exp(12 / 7),
        **{"nll": 12.0, "tokens": 7, "words": 4, "oov_words": 2, "oov_rate": 0.5},
        **{"known_nll": 6.0, "known_perplexity": math.exp(6 / 5)},
        "bits_per_word": 12 / math.log(2) / 4,
        **{"usual_oov_rate": None, "bits_per_character": None, "original_perplexity": None},
    }
    value = json.loads(json.dumps(result.to_json()))
    assert expected.items() <= value.items() and value["nll_unit"] == "nats"
    others = {"nll_unit", "characters", "original_tokens", "sentences", "documents"}
    others |= {"vocabulary_size", "objective", "counting_rule"}
    others |= {"has_pieces", "unpredicted_words"}
    assert value.keys() == expected.keys() | others


def test_of_bags_the_words_alone_are_counted_and_it_is_said():
    """END has no nats."""
    nll = [
        [np.append(of_sentence[:-1], np.float32(0)) for of_sentence in document] for document in NLL
    ]
    result = perplexity_of(fake_scorer(nll, "bags"), DOCUMENTS)
    assert (result.nll, result.tokens, result.words) == (10.0, 4, 4)
    assert result.perplexity == pytest.approx(math.exp(10 / 4))
    rule = "bags of words: the words are predicted without their order, END is not"
    assert str(result).endswith(f"counting: {rule}")
    assert result.to_json()["objective"] == "bags"
    assert result.to_json()["counting_rule"] == rule


def test_without_known_targets_there_is_no_perplexity_of_them():
    unknown = [[np.array([2, 2])]]
    nll = [[np.array([1, 2, 0], np.float32)]]
    result = perplexity_of(fake_scorer(nll, "bags"), unknown)
    assert (result.known_tokens, result.known_perplexity) == (0, None)
    assert "nan" not in str(result) and "in-vocabulary" not in str(result)
    assert result.to_json()["known_perplexity"] is None


def test_sums_are_exact_over_many_tokens():
    nll = [np.full(2**20 + 1, 0.1, np.float32)]
    document = [np.zeros(2**20, np.int32)]
    known = [np.ones(2**20 + 1, bool)]
    total = Perplexity(vocabulary_size=10)
    for _ in range(8):
        total = total.add(document, nll, known)
    assert total.nll == pytest.approx(8 * (2**20 + 1) * float(np.float32(0.1)), rel=1e-12)


def test_perplexity_is_never_clipped():
    assert Perplexity(vocabulary_size=10, nll=700.0, tokens=1).perplexity == math.exp(700)
    assert Perplexity(vocabulary_size=10, nll=1e6, tokens=1).perplexity == math.inf
    assert Perplexity(vocabulary_size=10, nll=math.inf, tokens=1).perplexity == math.inf


def test_nothing_to_score():
    end_alone = [np.array([1.0], np.float32)]
    for documents, nll in (([], []), ([[]], [[]]), ([[np.array([], np.int32)]], [end_alone])):
        with pytest.raises(InputError, match="there are no words to score; expected a sentence"):
            perplexity_of(fake_scorer(nll), documents)
    assert math.isnan(Perplexity(vocabulary_size=10).perplexity)
