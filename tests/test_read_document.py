"""`lm.read` and `lm.generate`: documents read on by people, with text, and by models."""

from typing import Any

import numpy as np
import pytest

from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.decoding.choices import Decoding
from dclm_jax.errors import InputError
from dclm_jax.reading.reader import Reader
from tests.exhaustive import also
from tests.models.support import AUTOENCODERS, VOCAB, random_params, small_model
from tests.support import neural_lm

WORDS = (*SPECIAL_TOKENS, "the", "cat", "sat", ".", "it", "slept", "dogs", "bark")
TEXT = ["the cat sat .", "it slept ."]


def language_model(name):
    model = small_model(name)
    return neural_lm(model, random_params(model), Vocabulary(WORDS, (0,) * VOCAB), step=1)


def last_sentence(lm, document):
    (score,) = lm.score([document])
    return score.sentences[-1]


def assert_scores_after_text(lm, scores, candidates):
    """That candidates have the scores of the last sentence of the whole document."""
    for score, candidate in zip(scores, candidates, strict=True):
        expected = last_sentence(lm, [*TEXT, candidate])
        assert (score.tokens, score.known) == (expected.tokens, expected.known)
        np.testing.assert_allclose(score.log_probs, expected.log_probs, rtol=1e-5, atol=1e-5)
        assert score.log_prob == pytest.approx(sum(score.log_probs))


@pytest.mark.parametrize("name", ["ccdclm", "rnnlm", "rlm_bow_lf"])
def test_candidates_are_scored_as_last_sentences_of_whole_documents(name):
    lm = language_model(name)
    candidates = ["dogs bark .", ["it", "never", "slept"], "the ."]
    assert_scores_after_text(lm, lm.read(TEXT).score(candidates), candidates)


@pytest.mark.parametrize("name", ["ccdclm", "rnnlm", "rlm_bow_lf"])
def test_a_candidate_without_words_is_the_end_alone(name):
    read = language_model(name).read(TEXT)
    first, empty, last = read.score(["dogs bark .", " ", []])
    assert (empty.tokens, empty.known, empty) == (["<END>"], [True], last)
    of_word = dict(read.next_words(k=VOCAB))
    assert empty.log_prob == pytest.approx(of_word["<END>"], rel=1e-5)
    assert first.log_prob == pytest.approx(read.score(["dogs bark ."])[0].log_prob, rel=1e-5)


def test_candidates_of_all_lengths_that_are_scored_in_parts_come_back_in_their_order(monkeypatch):
    monkeypatch.setattr("dclm_jax.reading.continuations.SENTENCES_AT_ONCE", 8)
    monkeypatch.setattr("dclm_jax.reading.blocks.MAX_POSITIONS", 2 * 64)
    lm = language_model("ccdclm")
    candidates = [" ".join(["the", "cat"] * (1 + 7 * k % 23)) for k in range(9)]
    candidates += ["dogs bark .", "it ."] * 2
    assert_scores_after_text(lm, lm.read(TEXT).score(candidates), candidates)
    assert lm.read(TEXT).score([]) == []


@pytest.mark.parametrize("name", ["rnnlm", "adclm"])
def test_beginnings_that_candidates_share_are_scored_once(name, monkeypatch):
    lm = language_model(name)
    reader, asked = lm.reader, []
    assert isinstance(reader, Reader)

    place = lm.read(TEXT)

    def read(place, sentences, unscored):
        asked.extend(
            len(words) + 1 - known for (words,), known in zip(sentences, unscored, strict=True)
        )
        return Reader.read(reader, place, sentences, unscored)

    monkeypatch.setattr(reader, "read", read)
    # A word less, another one, the same again, the beginning of others, nothing in common.
    candidates = ["the cat sat .", "the cat sat", "the dog sat .", "the cat sat .", "the", "dogs ."]
    scores = place.score(candidates)
    monkeypatch.undo()
    # Of 24 targets; in the order of the candidates those that none before has.
    assert sum(asked[: len(candidates)]) == 5 + 1 + 4 + 0 + 1 + 3
    assert_scores_after_text(lm, scores, candidates)


def test_reading_on_leaves_what_was_read_before():
    lm = language_model("adclm")
    nothing = lm.read()
    first = nothing.read(TEXT[:1])
    both = first.read(TEXT[1:])
    assert lm.read(TEXT).vector.tolist() == pytest.approx(both.vector.tolist(), rel=1e-5)
    for read, before in ((nothing, []), (first, TEXT[:1]), (both, TEXT)):
        (score,) = read.score(["dogs bark ."])
        assert score.log_prob == pytest.approx(
            last_sentence(lm, [*before, "dogs bark ."]).log_prob, rel=1e-5
        )


def test_next_words_are_the_likeliest():
    lm = language_model("ccdclm")
    read = lm.read(TEXT)
    for prefix, place in (("", 0), ("it", 1)):
        words = read.next_words(prefix, VOCAB)
        assert len(words) == VOCAB
        assert [p for _, p in words] == sorted((p for _, p in words), reverse=True)
        assert np.exp([p for _, p in words]).sum() == pytest.approx(1, rel=1e-4)
        of_word = dict(words)
        for word in ("it", "<END>", "dogs"):
            ending = "" if word == "<END>" else word
            (score,) = read.score([f"{prefix} {ending}"])
            assert of_word[word] == pytest.approx(score.log_probs[place], rel=1e-4)
    assert read.next_words(k=2) == read.next_words(k=3)[:2]


def words_of(text):
    return [sentence.tokens for sentence in text.sentences]


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_generated_text_has_the_scores_of_that_text(method):
    lm, decoding = language_model("adclm"), Decoding(method)
    options: dict[str, Any] = {"max_sentence_words": 4, "seed": 5}
    text = lm.read(TEXT).generate(3, decoding, **options)
    assert len(text.sentences) == 3 and not text.has_ended
    (score,) = lm.score([[*TEXT, *(sentence.text for sentence in text.sentences)]])
    for sentence, expected in zip(text.sentences, score.sentences[2:], strict=True):
        assert (sentence.tokens, sentence.known) == (expected.tokens, expected.known)
        assert 2 <= len(sentence.tokens) <= 5
        np.testing.assert_allclose(sentence.log_probs, expected.log_probs, rtol=1e-5, atol=1e-5)
    assert text.log_prob == pytest.approx(sum(sentence.log_prob for sentence in text.sentences))


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_text_begins_with_its_prefix(method):
    lm, decoding = language_model("adclm"), Decoding(method)
    options: dict[str, Any] = {"max_sentence_words": 4, "seed": 5}
    state = lm.read(TEXT)
    text = state.generate(3, decoding, prefix="dogs sat", **options)
    assert [sentence.tokens[:2] for sentence in text.sentences].count(["dogs", "sat"]) == 1
    assert text.sentences[0].tokens[:2] == ["dogs", "sat"] and len(text.sentences) == 3
    (score,) = lm.score([[*TEXT, *(sentence.text for sentence in text.sentences)]])
    for sentence, expected in zip(text.sentences, score.sentences[2:], strict=True):
        np.testing.assert_allclose(sentence.log_probs, expected.log_probs, rtol=1e-5, atol=1e-5)
    ((_, (many,)),) = lm.generate([TEXT], 3, decoding, prefix=["dogs", "sat"], **options)
    assert words_of(many) == words_of(text)
    if method == "greedy":
        # The first word after the prefix is the likeliest word that may follow.
        likeliest = [word for word, _ in state.next_words("dogs sat", 3) if word != "<UNKNOWN>"]
        assert text.sentences[0].tokens[2] == likeliest[0]
    with pytest.raises(InputError, match="the prefix has 4 words, and max_sentence_words is 4"):
        state.generate(prefix="it sat . it", **options)


def test_many_documents_are_continued_as_each_is_alone(monkeypatch):
    monkeypatch.setattr("dclm_jax.neural_model._WINDOW", 2)
    lm, decoding = language_model("ccdclm"), Decoding("sample", allow_unknown=True)
    documents = [TEXT, [], TEXT[:1]]
    limits = {"num_sentences": 2, "decoding": decoding, "max_sentence_words": 5}
    generated = list(lm.generate(iter(documents), **limits, seed=3, samples=2))
    assert [document for document, _ in generated] == documents
    (first, second), _, (third, _) = (map(words_of, texts) for _, texts in generated)
    assert first == words_of(lm.read(TEXT).generate(**limits, seed=3))
    assert second == words_of(lm.read(TEXT).generate(**limits, seed=4)) != first
    (*_, (_, (alone,))) = lm.generate([[], ["it ."], TEXT[:1]], **limits, seed=3)
    assert words_of(alone) == third


@pytest.mark.parametrize("name", [AUTOENCODERS[-1], *also(AUTOENCODERS[:-1])])
def test_documents_are_reconstructed(name):
    lm = language_model(name)
    documents = [TEXT, ["dogs bark ."], ["the cat", "sat", "it slept ."]]
    reconstructed = list(lm.reconstruct(documents, max_length_ratio=1.5))
    assert [document for document, _ in reconstructed] == documents
    for document, (text,) in reconstructed:
        sentences = [sentence.tokens[:-1] for sentence in text.sentences]
        assert sum(map(len, sentences)) <= int(1.5 * len(" ".join(document).split()))
        state = lm.read(document)
        for sentence, words in zip(text.sentences, sentences, strict=True):
            (score,) = state.score([words])
            np.testing.assert_allclose(sentence.log_probs, score.log_probs, rtol=1e-4, atol=1e-5)
            state = state.read([words])
        assert text.log_prob < sum(sentence.log_prob for sentence in text.sentences)
        (_, (alone,)), *_ = lm.reconstruct([document])
        assert words_of(alone) == words_of(text)


def test_what_cannot_be_reconstructed_is_refused():
    lm = language_model("hierarchical_autoencoder")
    with pytest.raises(InputError, match="max_length_ratio is 0; expected a number above 0"):
        lm.reconstruct([TEXT], max_length_ratio=0)
    with pytest.raises(InputError, match="a document has no words; remove it"):
        list(lm.reconstruct([[]]))
    with pytest.raises(InputError, match="is an autoencoder, whose sentences have no"):
        lm.read(TEXT).score(TEXT, no_context_too=True)
    with pytest.raises(InputError, match="the source has no words; pass a source with words"):
        lm.read([])
