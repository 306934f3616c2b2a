"""Words as ids, and the words outside the vocabulary."""

import logging

import pytest

from dclm_jax.data.documents import Document
from dclm_jax.data.encoding import Encoder, oov_warning
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCABULARY = Vocabulary((*SPECIAL_TOKENS, "cat", "the"), (0,) * 5, unknown_token="<unk>")
TEXT = ["the zebra sat", "the cat <unk> sat", "a cat"]
LISTED = "most frequent of 3 OOV words: sat 2, a 1, zebra 1"


def test_a_document_of_words_becomes_ids(warns):
    tags = [["D", "N"], ["V"]]
    document = Document("d", [["the", "cat"], ["unheard"]], tags)
    documents = [document, ["", "cat a"]]
    with warns("^sentences without words omitted: 1$"):
        first, second = Encoder(VOCABULARY).documents(documents, keep_empty=True)
    assert [ids.tolist() for ids in first.sentences] == [[4, 3], [2]]
    assert (first.id, first.tags, first.passed) == ("d", tags, document)
    assert first.characters == len("the cat\nunheard\n")
    assert (second.id, second.tags, second.words) == ("1", None, [[], ["cat", "a"]])
    assert second.aligned(["x"], "nothing") == ["nothing", "x"]


@pytest.mark.parametrize(
    ("rate", "usual", "is_high"),
    [
        (0.5, 0.1, True),
        (0.1501, 0.1, True),
        (0.15, 0.1, False),
        (0.025, 0.004, True),
        (0.0239, 0.004, False),
        (0.5, None, False),
    ],
)
def test_half_as_many_again_and_two_in_a_hundred_more_are_warned_of(rate, usual, is_high):
    text = oov_warning(rate, usual)
    assert bool(text) == is_high
    if is_high:
        assert text == (
            f"{100 * rate:.2f}% of the words are out of vocabulary ({100 * usual:.2f}% in the "
            "run's own test split); results on both texts are not comparable"
        )


@pytest.mark.parametrize("usual", [0.01, 0.5, None])
def test_oov_words_are_listed_and_warned_of_where_there_are_many(caplog, usual):
    """5 of 9 words, with the text's own spelling, which is not listed."""
    list(Encoder(VOCABULARY, usual).documents([TEXT]))
    (record,) = caplog.records
    if usual == 0.01:
        assert record.levelno == logging.WARNING
        assert record.getMessage() == (
            "55.56% of the words are out of vocabulary (1.00% in the run's own test split); "
            f"results on both texts are not comparable; {LISTED}"
        )
    else:
        assert (record.levelno, record.getMessage()) == (logging.INFO, LISTED)


def test_one_oov_word_may_be_chance(caplog):
    encoder = Encoder(VOCABULARY, 0.1)
    encoder.encode("the cat sat".split())
    encoder.log_oov()
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_a_text_of_ids_has_no_oov_words_to_list(caplog):
    for usual in (0.9, 0.1):
        list(Encoder(VOCABULARY, usual).documents([["<UNKNOWN> <unk> <UNKNOWN> <UNKNOWN>"]]))
    (message,) = caplog.messages
    assert message.startswith("100.00% of") and "most frequent" not in message


def test_advice_on_reading_follows_the_oov_words(caplog):
    advice = "check that the text is read like the training text (raw or tokenized, case)"
    list(Encoder(VOCABULARY, 0.01).documents([[["The", "Cat", "zebra", "sat", "on", "it"]]]))
    assert caplog.messages[-1].endswith(f": Cat 1, The 1, it 1, on 1, sat 1, zebra 1; {advice}")
    list(Encoder(VOCABULARY, 0.01).documents([[["cat,", "zebra", "sat"]]]))
    assert caplog.messages[-1].endswith(advice)
    list(Encoder(VOCABULARY, 0.01).documents([[["the", "zebra", "sat"]]]))
    assert "check that" not in caplog.messages[-1]


def test_strings_of_words_written_unlike_the_training_text_are_warned_of(caplog):
    unlike = "words written unlike the training text"
    for sentence, example in (
        ("The cat sat", "1, such as 'The' for 'the'"),
        ("the cat.", "1, such as 'cat.' for 'cat'"),
        ("the Cat, the", "1, such as 'Cat,' for 'cat'"),
    ):
        caplog.clear()
        list(Encoder(VOCABULARY).documents([(part for part in [sentence])]))
        expected = f"{unlike}: {example}; read raw text by lm.documents(text)"
        assert caplog.messages[0].startswith(expected)
        caplog.clear()
        # Lists of words are taken as they are, and so are words without a known form.
        list(Encoder(VOCABULARY).documents([[sentence.split(), "the Zebra sat. <unk>"]]))
        assert not any(message.startswith(unlike) for message in caplog.messages)
