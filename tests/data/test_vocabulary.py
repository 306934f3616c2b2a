import numpy as np
import pytest

from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError

COUNTER = {"b": 3, "a": 3, "c": 5, "d": 1, "<unk>": 9, "<END>": 7, "e": 1}


def test_keeps_the_most_frequent_words_and_breaks_ties_alphabetically():
    vocabulary = Vocabulary.build(COUNTER, 3, "<unk>", num_sentences=11)
    assert vocabulary.words == (*SPECIAL_TOKENS, "c", "a", "b")
    # Unknown: <unk> 9, the text's <END> 7, d 1, e 1.
    assert vocabulary.counts == (11, 11, 18, 5, 3, 3)


def test_encodes_unknown_words_and_forged_boundaries_as_unknown():
    vocabulary = Vocabulary.build(COUNTER, 3, "<unk>")
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
    vocabulary = Vocabulary.build({"naïve": 2, "日本": 1}, 5, unknown_token, 4)
    vocabulary.save(tmp_path / "v.tsv")
    assert Vocabulary.load(tmp_path / "v.tsv") == vocabulary
    lines = (tmp_path / "v.tsv").read_text("utf-8").splitlines()
    third = "<UNKNOWN>\t0" + ("\t<unk>" if unknown_token else "")
    assert lines == ["<START>\t4", "<END>\t4", third, "naïve\t2", "日本\t1"]


def test_plain_list_has_special_tokens_anywhere_and_keeps_its_order(tmp_path):
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbfz\r\n<END>\r\na\r\n<UNKNOWN>\r\n<START>\r\n")
    assert Vocabulary.load(tmp_path / "list").words == (*SPECIAL_TOKENS, "z", "a")
    (tmp_path / "list").write_text("z\n<END>\na\t3\n")
    vocabulary = Vocabulary.load(tmp_path / "list", is_list=True)
    assert vocabulary == Vocabulary((*SPECIAL_TOKENS, "z", "a"), (0, 0, 0, 0, 3))


def test_fingerprint_depends_on_words_and_order_alone():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "b"), (0, 0, 0, 1, 1))
    same = Vocabulary((*SPECIAL_TOKENS, "a", "b"), (0, 0, 0, 7, 1), "<unk>")
    other = Vocabulary((*SPECIAL_TOKENS, "b", "a"), (0, 0, 0, 1, 1))
    assert vocabulary.fingerprint == same.fingerprint != other.fingerprint
    assert len(vocabulary.fingerprint) == 16


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\n<START>\n<END>\n", r"lacks <UNKNOWN>; restore"),
        (b"", r"v: is empty"),
        (b"\n", r"v: has no words"),
        (b"<START>\n<END>\n<UNKNOWN>\na\na\n", r"v:5: 'a' is also on line 4; remove"),
        (b"<START>\n<END>\n<UNKNOWN>\na b\n", r"v:4: expected one word"),
        (b"<START>\n<END>\n<UNKNOWN>\na\tmany\n", r"v:4: expected one word, or .* 'a\\tmany'"),
        (b"<START>\n<END>\n<UNKNOWN>\na\t1\tx\n", r"v:4: expected one word, or word<TAB>count"),
        (b"<START>\n<END>\n\xff\n", r"v:3: not valid UTF-8"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(InputError, match=message):
        Vocabulary.load(tmp_path / "v")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="none.tsv: no such file"):
        Vocabulary.load(tmp_path / "none.tsv")
