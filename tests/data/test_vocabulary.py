import numpy as np
import pytest

from dclm_jax.data import subwords
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError

COUNTER = {"b": 3, "a": 3, "c": 5, "d": 1, "<unk>": 9, "<END>": 7, "e": 1}


def test_keeps_the_most_frequent_words_and_breaks_ties_alphabetically():
    vocabulary = Vocabulary(unknown_token="<unk>").extended(COUNTER, 3, 11)
    assert vocabulary.entries == (*SPECIAL_TOKENS, "c", "a", "b")
    # Unknown: <unk> 9, the text's <END> 7, d 1, e 1.
    assert vocabulary.counts == (11, 11, 18, 5, 3, 3)


def test_added_words_follow_the_words_of_the_vocabulary():
    old = Vocabulary((*SPECIAL_TOKENS, "d", "x", "a"), (5, 5, 4, 3, 2, 1), "<unk>")
    extended = old.extended(COUNTER, 5, 11)
    assert extended.entries == (*old.entries, "c", "b")
    # The counts of both texts. Unknown in the second: <unk> 9, its <END> 7, e 1.
    assert extended.counts == (5 + 11, 5 + 11, 4 + 17, 3 + 1, 2, 1 + 3, 5, 3)
    assert extended.unknown_token == "<unk>"
    assert old.extended(COUNTER, None, min_count=5).entries == (*old.entries, "c")
    assert old.extended(COUNTER, 3).entries == old.entries
    assert old.extended(COUNTER, 3, min_count=6).entries == old.entries


@pytest.mark.parametrize(
    ("size", "min_count", "message"),
    [
        (2, 1, "vocab_size is 2; the vocabulary file has 3 words; choose at least this number"),
        (None, 6, "min_count is 6; the most frequent other word has the count 5; choose at most"),
    ],
)
def test_words_cannot_be_added(size, min_count, message):
    old = Vocabulary((*SPECIAL_TOKENS, "d", "x", "a"), (0,) * 6, "<unk>")
    with pytest.raises(InputError, match=message):
        old.extended(COUNTER, size, min_count=min_count)


def test_encodes_unknown_words_and_forged_boundaries_as_unknown():
    vocabulary = Vocabulary(unknown_token="<unk>").extended(COUNTER, 3)
    ids = vocabulary.encode(["c", "a", "b", "d", "<unk>", "<START>", "<END>", "<UNKNOWN>"])
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, [3, 4, 5, 2, 2, 2, 2, 2])
    assert vocabulary.decode(ids[:4]) == ["c", "a", "b", "<UNKNOWN>"]
    assert vocabulary.encode([]).shape == (0,)


def test_unknown_token_that_is_also_a_listed_word_is_unknown():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "unk", "a"), (0,) * 5, "unk")
    np.testing.assert_array_equal(vocabulary.encode(["unk", "a"]), [2, 4])


@pytest.mark.parametrize("unknown_token", [None, "<unk>"])
def test_file_round_trip(tmp_path, unknown_token):
    vocabulary = Vocabulary(unknown_token=unknown_token).extended({"naïve": 2, "日本": 1}, 5, 4)
    vocabulary.save(tmp_path / "v.tsv")
    assert Vocabulary.load(tmp_path / "v.tsv") == vocabulary
    lines = (tmp_path / "v.tsv").read_text("utf-8").splitlines()
    third = "<UNKNOWN>\t0" + ("\t<unk>" if unknown_token else "")
    assert lines == ["<START>\t4", "<END>\t4", third, "naïve\t2", "日本\t1"]


def test_fingerprint_depends_on_words_and_order_alone():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "b"), (0, 0, 0, 1, 1))
    same = Vocabulary((*SPECIAL_TOKENS, "a", "b"), (0, 0, 0, 7, 1), "<unk>")
    other = Vocabulary((*SPECIAL_TOKENS, "b", "a"), (0, 0, 0, 1, 1))
    assert vocabulary.fingerprint == same.fingerprint != other.fingerprint
    assert len(vocabulary.fingerprint) == 16


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<START>\t1\n<UNKNOWN>\t0\n<END>\t1\n", "v: does not begin with <START>, <END>, <UNKN"),
        (b"", r"v: is empty"),
        (b"\n", r"v:1: expected word<TAB>count, got ''"),
        (b"<START>\t0\na\t1\na\t2\n", r"v:3: 'a' is also on line 2; remove"),
        (b"<START>\n", r"v:1: expected word<TAB>count"),
        (b"<START>\t0\na b\t1\n", r"v:2: expected word<TAB>count"),
        (b"<START>\t0\na\tmany\n", r"v:2: expected word<TAB>count, got 'a\\tmany'"),
        (b"<START>\t0\na\t1\tx\n", r"v:2: expected word<TAB>count"),
        (b"<START>\t0\n\xff\n", r"v:2: not valid UTF-8"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(InputError, match=message):
        Vocabulary.load(tmp_path / "v")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="none.tsv: no such file"):
        Vocabulary.load(tmp_path / "none.tsv")


def test_a_word_is_in_a_vocabulary_if_its_probability_is_its_own():
    words = Vocabulary((*SPECIAL_TOKENS, "a", "b"), (0,) * 5, "<unk>")
    pieces = subwords.learn({"ab": 9, "ba": 5}, 260, 1, "<unk>")
    for known in ("a", "b"):
        assert known in words and known in pieces
    for unknown in ("zebra", "<UNKNOWN>"):
        assert unknown not in words and unknown in pieces
    for neither in ("<unk>", "", 3, None):
        assert neither not in words and neither not in pieces
