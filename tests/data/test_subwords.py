"""Vocabularies of subwords: any word becomes pieces, and the pieces become the word."""

import collections
import dataclasses
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dclm_jax.data import subwords
from dclm_jax.data.corpus import open_corpus, statistics_table
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.subwords import FIRST_PIECE, load_vocabulary
from dclm_jax.data.vocabulary import FIRST_WORD, UNKNOWN, Vocabulary, word_ends
from dclm_jax.errors import InputError

COUNTS = {"ab": 30, "ba": 20, "aab": 50, "abab": 20, "b": 10, "<unk>": 7}
TEXT = "the cat sat on the mat : the <unk> café\n\na cat 日 ran !\n"


@pytest.fixture(scope="module")
def vocabulary():
    return subwords.learn(COUNTS, 262, 40, "<unk>")


@pytest.fixture(scope="module")
def of_text():
    words = "low lower lowest newer newest wider : ,".split()
    return subwords.learn({**dict.fromkeys(words, 9), "the": 900, "of": 800}, 280, 1)


def test_ids_distinguish_bytes_pieces_inside_words_and_last_pieces(vocabulary):
    entries = vocabulary.entries
    assert entries[:3] == ("<START>", "<END>", "<UNKNOWN>")
    assert entries[3:FIRST_PIECE] == tuple(f"<0x{byte:02X}>" for byte in range(256))
    inner = entries[FIRST_PIECE : vocabulary.first_word_end]
    last = entries[vocabulary.first_word_end :]
    assert {"a", "b"} <= {*inner} and not [piece for piece in inner if "▁" in piece]
    assert "▁" in last and all(piece.endswith("▁") for piece in last)
    assert len(vocabulary) == 262 + 3 and vocabulary.has_pieces
    ends = word_ends(np.arange(len(vocabulary)), vocabulary.first_word_end)
    assert ends.tolist() == [i == UNKNOWN or entry in last for i, entry in enumerate(entries)]


def test_counts_are_those_of_the_pieces_of_the_text(vocabulary):
    """Counted piece by piece; the text's own spelling of OOV words is UNKNOWN."""
    expected = collections.Counter()
    for word, count in COUNTS.items():
        for index in vocabulary.encode([word]).tolist():
            expected[index] += count
    assert expected[UNKNOWN] == 7
    assert list(vocabulary.counts[2:]) == [expected[i] for i in range(2, len(vocabulary))]
    assert vocabulary.counts[:2] == (40, 40)
    assert vocabulary.word_counts == {word: n for word, n in COUNTS.items() if word != "<unk>"}
    assert [vocabulary.count_of(word) for word in ("aab", "new", "<unk>")] == [50, 0, 0]
    assert (vocabulary.num_words, vocabulary.oov_rate) == (130, None)


@pytest.mark.parametrize(
    "word",
    ["ab", "zebra", ":", "<0x3A>", "<START>", "<END>", "<UNKNOWN>", "naïve", "e\u0301", "日本"]
    + ["👩\u200d👩\u200d👧", "שלום", "▁", "a▁b", "▁▁", "a\u00a0b", "\u200d", "\ufeffa", "a\x00b"]
    + ["\u2047", "▅", "x" * 10_000, "日" * 10_000, "\U0010ffff", " a"],
)
def test_every_word_is_reconstructed(vocabulary, of_text, word):
    for known in (vocabulary, of_text):
        ids = known.encode(["ab", word, "the"])
        assert known.decode(ids.tolist()) == ["ab", word, "the"]
        assert ids.dtype == np.int32 and UNKNOWN not in ids
        assert word_ends(ids, known.first_word_end).sum() == 3


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_words_are_reconstructed(of_text, words):
    assert of_text.decode(of_text.encode(words).tolist()) == words
    ids, counts = of_text.encode_each(words)
    assert ids.tolist() == of_text.encode(words).tolist()
    assert [len(part) for part in np.split(ids, np.cumsum(counts))[:-1]] == counts.tolist()


def test_the_text_s_own_spelling_of_oov_words_is_one_id(vocabulary):
    assert vocabulary.encode(["<unk>"]).tolist() == [UNKNOWN]
    assert vocabulary.decode([UNKNOWN]) == ["<unk>"]
    assert vocabulary.is_unknown(["ab", "<unk>", "<UNKNOWN>"]).tolist() == [False, True, False]
    others = dataclasses.replace(vocabulary, unknown_token=None)
    assert UNKNOWN not in others.encode(["<unk>"])


def test_a_frequent_word_has_few_pieces_and_shown_words_have_bars(of_text, vocabulary):
    assert [len(of_text.encode([word])) for word in ("the", "of")] == [1, 1]
    assert of_text.shown(["the", "thelow"])[0] == "the"
    assert of_text.shown(["thelow"])[0].replace("|", "") == "thelow"
    assert vocabulary.shown(["<unk>"]) == ["[<unk>]"]


def test_equal_text_gives_equal_pieces(vocabulary):
    again = subwords.learn(dict(reversed(COUNTS.items())), 262, 40, "<unk>")
    assert again == vocabulary and again.fingerprint == vocabulary.fingerprint


def test_rare_characters_are_spelled_in_bytes():
    """A colon of a millionth of the text is a piece; a rarer character is not."""
    counts = {"abc": 333_000, ":": 2, "ж": 1, "x": 900_000}
    vocabulary = subwords.learn(counts, 262, 1)
    assert ":" in "".join(vocabulary.entries[FIRST_PIECE:])
    assert "ж" not in "".join(vocabulary.entries)
    assert len(vocabulary.encode(["ж"])) == 3


def test_sizes_that_the_text_does_not_have():
    with pytest.raises(InputError, match=r"^subwords is 100; .*at least 259 pieces, for 256 bytes"):
        subwords.learn({"ab": 3, "ba": 2}, 100, 1)
    with pytest.raises(
        InputError, match=r"^subwords is 9,000; the text has at most \d+ pieces"
    ) as e:
        subwords.learn({"ab": 3, "ba": 2}, 9000, 1)
    maximum = int(str(e.value).split("at most ")[1].split()[0])
    assert len(subwords.learn({"ab": 3, "ba": 2}, maximum, 1)) == maximum + 3
    assert len(subwords.learn({"ab": 3, "ba": 2}, 259, 1)) == 262


@pytest.mark.parametrize("words", [{}, {"<unk>": 9}, {"▁": 3}, {"x" * 2000: 3}])
def test_text_without_words_to_learn_from(words):
    with pytest.raises(InputError, match="there are no words to learn subwords from"):
        subwords.learn(words, 300, 1, "<unk>")


def test_saved_and_loaded(vocabulary, tmp_path):
    vocabulary.save(tmp_path / "vocabulary.tsv")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(vocabulary.file_names)
    for path in (tmp_path, tmp_path / "vocabulary.tsv"):
        assert load_vocabulary(path) == vocabulary
    assert load_vocabulary(str(tmp_path)).encode(["abba"]).tolist() == [
        *vocabulary.encode(["abba"]).tolist()
    ]
    words = Vocabulary().extended({"a": 2}, None)
    words.save(tmp_path / "words.tsv")
    assert load_vocabulary(tmp_path / "words.tsv") == words


def test_two_models_with_equal_pieces_have_two_fingerprints(vocabulary):
    other = dataclasses.replace(vocabulary, model=vocabulary.model + b"\n")
    assert other.entries == vocabulary.entries and other.fingerprint != vocabulary.fingerprint


def without(name):
    return lambda folder: (folder / name).unlink()


def with_content(name, content):
    return lambda folder: (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("pieces.model"), r"pieces.model: no such file"),
        (without("word_counts.tsv"), r"word_counts.tsv: no such file"),
        (with_content("pieces.model", b"damaged"), r"pieces.model: is no model of SentencePiece"),
        (with_content("pieces.model", b""), r"pieces.model: (is no model|has other pieces)"),
        (with_content("word_counts.tsv", b"a\t2\nb\n"), r"word_counts.tsv:2: expected word<TAB>c"),
    ],
)
def test_damaged_files_are_named(vocabulary, tmp_path, damage, message):
    vocabulary.save(tmp_path / "vocabulary.tsv")
    damage(tmp_path)
    with pytest.raises(InputError, match=message):
        load_vocabulary(tmp_path)


def test_pieces_of_another_vocabulary_are_refused(vocabulary, of_text, tmp_path):
    vocabulary.save(tmp_path / "a" / "vocabulary.tsv")
    of_text.save(tmp_path / "b" / "vocabulary.tsv")
    shutil.copy(tmp_path / "a" / "pieces.model", tmp_path / "b")
    with pytest.raises(InputError, match="pieces.model: has other pieces than .*vocabulary.tsv"):
        load_vocabulary(tmp_path / "b")


def test_surrogates_are_refused(vocabulary):
    with pytest.raises(InputError, match="is no valid Unicode; remove its surrogates"):
        vocabulary.encode(["a\ud800"])


def prepared(tmp_path, name, **options):
    (tmp_path / "text.txt").write_text(TEXT * 20, "utf-8")
    sources = {split: tmp_path / "text.txt" for split in ("train", "valid")}
    out = tmp_path / name
    options = {"subwords": 280, **options}
    manifest = prepare(sources, out, options=PrepareOptions(**options))
    return manifest, open_corpus(out, "train")


def words_of(corpus):
    return [
        corpus.vocabulary.decode(ids.tolist())
        for index in range(corpus.num_documents)
        for ids in corpus.document(index)
    ]


def test_a_corpus_has_the_words_of_its_text(tmp_path, caplog):
    """Every sentence comes back; numbers of words are those of a vocabulary of words."""
    manifest, corpus = prepared(tmp_path, "pieces")
    of_words, _ = prepared(tmp_path, "words", subwords=None, vocab_size=6)
    assert words_of(corpus) == [line.split() for line in TEXT.split("\n") if line] * 20
    train, expected = manifest.splits["train"], of_words.splits["train"]
    assert (train.tokens, train.sentences) == (expected.tokens, expected.sentences)
    assert train.characters == expected.characters and train.oov_tokens == 0
    assert train.pieces == len(corpus.tokens) == corpus.sentence_offsets[-1]
    assert expected.pieces == 0 < expected.oov_tokens
    assert manifest.training_text.pieces_per_word["train"] == train.pieces / train.tokens
    assert of_words.training_text.pieces_per_word == {}
    assert f"{train.pieces / train.tokens:.3f}" in statistics_table(manifest)
    assert "pieces/word" in statistics_table(manifest) and "OOV" in statistics_table(of_words)


def test_words_that_the_text_marks_as_oov_are_neither_characters_nor_pieces(tmp_path, caplog):
    whole, _ = prepared(tmp_path, "all")
    manifest = prepare(
        {"train": tmp_path / "text.txt"},
        tmp_path / "marked",
        TextOptions(unknown_token="<unk>"),
        PrepareOptions(subwords=280),
    )
    train = manifest.splits["train"]
    assert train.oov_tokens == 20
    assert whole.splits["train"].characters - train.characters == 20 * len("<unk> ")
    assert UNKNOWN in open_corpus(tmp_path / "marked", "train").tokens
    assert "read and not predicted: 20" in statistics_table(manifest)
    assert words_of(open_corpus(tmp_path / "marked", "train"))[0][8] == "<unk>"


def test_tags_are_of_words(tmp_path, caplog):
    """By parts of speech, every word has its tag however many pieces it has."""
    lines = ["the/DT cats/NNS sat/VB", "a/DT rhinoceros/NN", "", "zebras/NNS ran/VB !/."]
    (tmp_path / "text.txt").write_text("\n".join([*lines, ""] * 9))
    options = PrepareOptions(subwords=276)
    sources = {"train": tmp_path / "text.txt"}
    prepare(sources, tmp_path / "out", TextOptions(format="tagged"), options)
    corpus = open_corpus(tmp_path / "out", "train")
    for index in range(corpus.num_documents):
        tags = corpus.document_tags(index)
        words = [corpus.vocabulary.decode(ids.tolist()) for ids in corpus.document(index)]
        assert tags is not None
        tagged = [
            [f"{word}/{tag}" for word, tag in zip(*pair, strict=True)]
            for pair in zip(words, tags, strict=True)
        ]
        first = 0 if index % 2 == 0 else 3
        assert tagged == [line.split() for line in lines[first : first + 2 - index % 2]]


def test_another_text_with_the_vocabulary_of_a_corpus(tmp_path, caplog):
    _, corpus = prepared(tmp_path, "first")
    (tmp_path / "new.txt").write_text("never seen Ωmega words\n", "utf-8")
    for vocabulary in (tmp_path / "first", tmp_path / "first" / "vocabulary.tsv"):
        out, options = tmp_path / "out" / vocabulary.name, PrepareOptions(vocabulary=vocabulary)
        prepare({"test": tmp_path / "new.txt"}, out, options=options)
        other = open_corpus(out, "test")
        assert other.vocabulary == corpus.vocabulary
        assert words_of(other) == [["never", "seen", "Ωmega", "words"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": 2}, "--subwords and --min_count cannot be combined; remove --min_count, or"),
        ({"vocab_size": 9}, "--subwords and --vocab_size cannot be combined"),
        ({"vocabulary": "v.tsv"}, "--subwords and --vocabulary cannot be combined"),
        ({"subwords": 0}, "subwords is 0; expected at least 1"),
    ],
)
def test_contradictions_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        prepared(tmp_path, "out", **options)


def test_words_are_not_added_to_pieces(tmp_path, caplog):
    prepared(tmp_path, "first")
    for option in ("min_count", "vocab_size"):
        options = {"subwords": None, "vocabulary": tmp_path / "first", option: 500}
        with pytest.raises(
            InputError, match=f"which needs no words added to it; remove --{option}"
        ):
            prepared(tmp_path, "second", **options)


def test_first_word_end_is_that_of_words():
    assert Vocabulary().first_word_end == FIRST_WORD and not Vocabulary().has_pieces
