"""Raw prose, divided into sentences and words, and the embedded addresses."""

import dataclasses
import itertools
import json
import unicodedata

import pytest

from dclm_jax.data.corpora import sotu
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import Document
from dclm_jax.data.readers import read_documents
from dclm_jax.data.vocabulary import UNKNOWN
from tests.data.support import contents, make_corpus, read, sentences_of, write

CURLY = "“Don’t (ever) go…” he said — twice – and «left»\u00a0; ‘it’ was the dog’s"


def test_punctuation_is_written_as_moses_does(tmp_path):
    path = write(tmp_path / "t.txt", CURLY)
    sacremoses = pytest.importorskip("sacremoses")
    plain = sacremoses.MosesPunctNormalizer("en").normalize(CURLY)
    assert plain == "\"Don't (ever) go...\" he said - twice - and \"left\"; 'it' was the dog's"
    expected = sentences_of(write(tmp_path / "u.txt", plain), "prose")
    assert sentences_of(path, "prose", normalize=True) == expected
    assert sentences_of(path, "prose") != expected
    # Words that are given as such stay as they are.
    assert sentences_of(path, "lines", normalize=True) == [[CURLY.split()]]


def test_prose_is_split_into_sentences_and_words(tmp_path):
    text = (
        'Dr. Smith didn\'t\nlaugh. He left!\n\nA new "paragraph" & more\n'
        "= next =\n\nSecond document.\n"
    )
    first = [
        ["dr.", "smith", "didn", "'t", "laugh", "."],
        ["he", "left", "!"],
        ["a", "new", '"', "paragraph", '"', "&", "more"],
    ]
    assert read(write(tmp_path / "t.txt", text), "prose", lowercase=True) == [
        Document("t.txt:1", first),
        Document("t.txt:7", [["second", "document", "."]]),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8' x 10'", ["8", "'", "x", "10", "'"]),
        ("the dogs'", ["the", "dogs", "'"]),
        ("He said 'no.'", ["He", "said", "'", "no", ".", "'"]),
        ("6''", ["6", "'", "'"]),
        ("'", ["'"]),
    ],
)
def test_an_apostrophe_at_the_end_is_a_word_as_within_the_text(tmp_path, text, words):
    assert sentences_of(write(tmp_path / "t.txt", f"{text}\n"), "prose") == [[words]]
    within = sentences_of(write(tmp_path / "t.txt", f"{text} (yes\n"), "prose")
    assert within == [[[*words, "(", "yes"]]]
    record = json.dumps({"text": text})
    assert sentences_of(write(tmp_path / "t.jsonl", record)) == [[words]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("'It is cold,' she said.", ["'", "It", "is", "cold", ",", "'", "she", "said", "."]),
        ("\u2018Sarah\u2019 left.", ["'", "Sarah", "'", "left", "."]),
        ("'No'", ["'", "No", "'"]),
        ("'I don't know,' he said.", ["'", "I", "don", "'t", "know", ",", "'", "he", "said", "."]),
        ("\u2018I\u2019m here.\u2019", ["'", "I", "'m", "here", ".", "'"]),
        ("'A dog!'", ["'", "A", "dog", "!", "'"]),
        # Words that begin with an apostrophe.
        ("'Twas cold.", ["'Twas", "cold", "."]),
        ("'em too.", ["'em", "too", "."]),
        ("'nineties music.", ["'nineties", "music", "."]),
        ("'90s music.", ["'90s", "music", "."]),
        ("'s morgens.", ["'s", "morgens", "."]),
    ],
)
def test_an_opening_quote_at_the_beginning_is_a_word_as_within_the_text(tmp_path, text, words):
    assert sentences_of(write(tmp_path / "t.txt", f"{text}\n"), "prose", normalize=True) == [
        [words]
    ]
    if not words[0][1:]:
        within = sentences_of(write(tmp_path / "t.txt", f"So {text}\n"), "prose", normalize=True)
        assert within == [[["So", *words]]]


WHOLE_WORDS = [
    ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u062f", "Persian, with a joiner that separates"),
    ("\u0dc1\u0dca\u200d\u0dbb\u0dd3", "Sinhala, with a joiner"),
    ("k\u1ecd\u0301e\u0323\u0300k\u1ecd\u0301", "Yoruba, some accents without a composed letter"),
    ("\u0437\u0430\u0301\u043c\u043e\u043a", "Russian, with its stress"),
    ("\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "Hebrew, with vowel points"),
    ("ex\u00adam\u200bple", "invisible characters"),
    ("\U0001f469\U0001f3fd\u200d\U0001f680", "an emoji with a skin tone and a joiner"),
    ("\u2764\ufe0f", "an emoji with a variation selector"),
    ("1\ufe0f\u20e3", "a keycap"),
    ("\U0001f1f3\U0001f1ec", "a flag"),
]


@pytest.mark.parametrize("form", ["none", "nfc"])
@pytest.mark.parametrize(("word", "kind"), WHOLE_WORDS, ids=[kind for _, kind in WHOLE_WORDS])
def test_accents_and_joiners_stay_in_their_words(tmp_path, word, kind, form):
    path = write(tmp_path / "t.txt", f'He said "{word}", ({word}) and {word}.\n{word}')
    written = unicodedata.normalize("NFC", word) if form == "nfc" else word
    words = ["He", "said", '"', written, '"', ",", "(", written, ")", "and", written, ".", written]
    (sentences,) = sentences_of(path, "prose", unicode=form)
    assert list(itertools.chain.from_iterable(sentences)) == words
    assert sentences_of(write(path, '"\u0301ab\n'), "prose", unicode=form) == [[['"\u0301', "ab"]]]
    raw = write(tmp_path / "t.csv", f"text\n{word}\n")
    assert sentences_of(raw, "csv", unicode=form) == [[[written]]]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Wow\u203c\ufe0f Great.", [["Wow", "\u203c\ufe0f"], ["Great", "."]]),
        ("Yes.\u200c No.", [["Yes", ".\u200c"], ["No", "."]]),
        ("Yes...\u0301 no.", [["Yes", "...\u0301"], ["no", "."]]),
        ("Yes.\u200f", [["Yes", ".\u200f"]]),
        ("\U0001f642\u200dx is", [["\U0001f642\u200dx", "is"]]),
    ],
)
def test_no_sentence_begins_with_an_accent_or_a_joiner(tmp_path, text, sentences):
    documents = sentences_of(write(tmp_path / "t.txt", text), "prose")
    assert list(itertools.chain.from_iterable(documents[0])) == list(
        itertools.chain.from_iterable(sentences)
    )
    assert documents == [sentences]


@pytest.mark.parametrize("language", ["en", "fr"])
def test_decomposed_text_has_the_words_of_composed_text(tmp_path, language):
    text = (
        "Caf\u00e9 \u00ab d\u00e9j\u00e0-vu \u00bb l'\u00e9t\u00e9, \u00c5. Dr. \u00c9. \u00dcz!\n"
    )
    composed = write(tmp_path / "c.txt", text)
    decomposed = write(tmp_path / "d.txt", unicodedata.normalize("NFD", text))
    read_as = lambda path: sentences_of(path, "prose", language=language)  # noqa: E731
    words = json.loads(
        unicodedata.normalize("NFC", json.dumps(read_as(decomposed), ensure_ascii=False))
    )
    assert words == read_as(composed)


def test_a_note_says_what_divides_prose(tmp_path, caplog):
    path = write(tmp_path / "t.txt", "It was. We left.\n\nIt slept.\n=\nYes.\n")
    assert len(read(path, "prose")) == 2
    assert caplog.messages == [
        f"{path}: documents: 2, with 4 sentences; a blank line ends a paragraph, and only a line "
        "that begins with = ends a document"
    ]
    caplog.clear()
    read(write(path, "It was. We left.\n\n"), "prose")
    assert not caplog.messages


def test_other_spellings_of_the_unknown_token(tmp_path):
    path = write(tmp_path / "t.txt", "An <UNK> and \u0250 <unk>, «unk» left.\n")
    words = lambda **options: sentences_of(path, "prose", **options)[0][0]  # noqa: E731
    assert words(unknown_token="<unk>")[:6] == ["An", "<", "UNK", ">", "and", "\u0250"]
    assert words(unknown_token="<unk>")[6:8] == ["<unk>", ","]
    assert words(unknown_token="<unk>", lowercase=True)[1] == "<unk>"
    # It is found in the normal form, in which punctuation is replaced.
    assert words(unknown_token="«unk»", normalize=True)[-3:] == ["«unk»", "left", "."]
    many = write(tmp_path / "many.txt", "<unk>" * 3_000 + " end\n")
    assert sentences_of(many, "prose", unknown_token="<unk>")[0][0][-1] == "end"


@pytest.mark.parametrize("token", ["<unk>", "[?]"])
def test_the_unknown_token_of_raw_text_is_one_word_that_is_unknown(tmp_path, token, warns):
    text = f"The {token} of {token.upper()}'s club, ({token}). {token} left!\n"
    words = ["the", token, "of", token, "'s", "club", ",", "(", token, ")", "."]
    documents = [[words, [token, "left", "!"]]]
    path = write(tmp_path / "t.txt", text)
    assert sentences_of(path, "prose", lowercase=True, unknown_token=token) == documents
    assert sentences_of(path, "prose", lowercase=True) != documents
    with warns("1 of 1 of test are also in train"):
        make_corpus(
            {"train": path, "test": path},
            tmp_path / "corpus",
            format="prose",
            lowercase=True,
            unknown_token=token.upper(),
        )
    corpus = open_corpus(tmp_path / "corpus", "test")
    ((first, second),) = contents(tmp_path / "corpus", "test").values()
    assert [first[1], first[3], first[8], second[0]] == ["<UNKNOWN>"] * 4
    assert corpus.vocabulary.unknown_token == token
    # A run reads other text in the same way.
    assert corpus.manifest.text.unknown_token == token


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".tsv"])
def test_a_corpus_of_words_keeps_the_unknown_token_of_raw_text(tmp_path, suffix):
    path = write(tmp_path / "t.txt", "the <unk> left .\n")
    make_corpus({"train": path}, tmp_path / "corpus", unknown_token="<unk>")
    corpus = open_corpus(tmp_path / "corpus", "train")
    raw = {
        ".txt": "the <unk> left.\n",
        ".jsonl": '{"text": "the <unk> left."}\n',
        ".csv": "text\nthe <unk> left.\n",
        ".tsv": "text\nthe <unk> left.\n",
    }
    options = dataclasses.replace(corpus.manifest.text, format="prose")
    (document,) = read_documents(write(tmp_path / f"raw{suffix}", raw[suffix]), options)
    ids = corpus.vocabulary.encode(document.sentences[0])
    assert ids.tolist() == corpus.document(0)[0].tolist() and ids[1] == UNKNOWN


def test_every_file_of_a_folder_is_a_document(tmp_path):
    write(tmp_path / "b.txt", "It rained. We left!\n\nYes.\n")
    write(tmp_path / "a.txt", "It slept.\n= Two =\nIt left.\n")
    documents = [
        Document("a.txt:1", [["It", "slept", "."]]),
        # A divider ends a document, too.
        Document("a.txt:3", [["It", "left", "."]]),
        Document("b.txt:1", [["It", "rained", "."], ["We", "left", "!"], ["Yes", "."]]),
    ]
    assert read(tmp_path, "prose") == documents


def split_by_year(years) -> list[int]:
    return sotu.split_by_year([f"{year}-Adams-1" for year in years])


def test_years_are_never_divided_and_never_go_back():
    # Year 6 begins within the validation share, so nothing is left for the last part.
    assert split_by_year([1, 1, 2, 3, 3, 3, 4, 5, 6, 6]) == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert split_by_year(range(10)) == [0] * 8 + [1, 2]
    assert split_by_year(range(9, -1, -1)) == [2, 1] + [0] * 8


def test_embedded_addresses_are_in_order():
    names = [file.stem for file in sotu.address_files(sotu.folder())[""]]
    years = [int(name.split("-")[0]) for name in names]
    assert years == sorted(years)
    assert years[0] == 1790
    assert len(years) > 230
