"""Lists made of sentences and corruptions of them."""

import collections

import numpy as np

from configs.hierarchical_rnn.corrupt import MAX_EDITS, Corruption
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN, Vocabulary

WORDS = 200
# The likeliest words have the largest ids, so that ids are not taken for ranks.
VOCABULARY = Vocabulary(
    (*SPECIAL_TOKENS, *(f"w{index}" for index in range(WORDS))),
    (0, 0, 0, *range(1, WORDS + 1)),
)


def lists(count=60, length=9, seed=0):
    corruption, rng = Corruption(VOCABULARY), np.random.default_rng(seed)
    for _ in range(count):
        sentence = rng.integers(3, WORDS + 3, length).astype(np.int32)
        yield sentence, corruption.candidates(sentence, rng)


def test_a_list_has_the_sentence_once_and_different_corruptions_in_the_order_of_scores():
    first = 0
    for sentence, candidates in lists():
        texts = [tuple(words.tolist()) for words, _ in candidates]
        scores = [score for _, score in candidates]
        assert len(set(texts)) == len(texts) == 10
        assert texts.count(tuple(sentence.tolist())) == 1
        assert all(words.dtype == np.int32 and len(words) for words, _ in candidates)
        assert scores == sorted(scores, reverse=True)
        assert min(len(text) for text in texts) >= len(sentence) - MAX_EDITS
        first += texts[0] == tuple(sentence.tolist())
    # Better than chance, which is 6 of 60, and no oracle.
    assert 10 < first < 50


def test_corruptions_are_swaps_deletions_and_words_of_like_frequency():
    kinds = collections.Counter()
    for sentence, candidates in lists(count=200):
        for words, _ in candidates:
            if len(words) < len(sentence):
                kinds["deletion"] += 1
            elif sorted(words) == sorted(sentence):
                kinds["swap"] += 1
            elif np.sum(words != sentence) == 1:
                (place,) = np.flatnonzero(words != sentence)
                old, new = (WORDS + 2 - ids[place] for ids in (sentence, words))  # ranks
                # A word may be exchanged three times.
                least, most = old / 1.25**MAX_EDITS, old * 1.25**MAX_EDITS
                assert min(least, old - 5 * MAX_EDITS) - 3 <= new
                assert new <= max(most, old + 5 * MAX_EDITS) + 3
                kinds["substitution"] += 1
    assert min(kinds.values()) > 50 and len(kinds) == 3


def test_short_sentences_have_as_many_as_there_are():
    corruption, rng = Corruption(VOCABULARY), np.random.default_rng(0)
    # Nothing is known to be like an unknown word, and a single word is not deleted.
    ((words, _),) = corruption.candidates(np.array([UNKNOWN]), rng)
    assert words.tolist() == [UNKNOWN]
    candidates = corruption.candidates(np.array([UNKNOWN, UNKNOWN]), rng)
    assert sorted(words.tolist() for words, _ in candidates) == [[UNKNOWN], [UNKNOWN, UNKNOWN]]
    assert len(corruption.candidates(np.array([100]), rng)) == 10
