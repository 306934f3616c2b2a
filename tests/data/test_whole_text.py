"""Every character of a text that is not white space becomes part of a word, or is counted."""

import collections
import csv
import io
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dclm_jax.data import prose
from dclm_jax.data.documents import TEXT_FORMATS, Document, TextOptions
from dclm_jax.data.prepare import prepare
from dclm_jax.data.readers import TextReader, parse_documents, read_documents
from dclm_jax.errors import InputError
from tests.data.support import read, sentences_of, write
from tests.exhaustive import also, some

pytest.importorskip("sentencex")

LINE_ENDS = ("\n", "\r\n", "\r")


def texts_of(path, *options, **more):
    documents = read_documents(path, TextOptions(*options, **more))
    return [list(map(" ".join, document.sentences)) for document in documents]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            f"This was shown before.[{', '.join(map(str, range(10, 60)))}]",
            ["This was shown before .", f"[ {' , '.join(map(str, range(10, 60)))} ]"],
        ),
        ("We like it \u266c a lot.", ["We like it \u266c a lot ."]),
        ("It costs approx.?! Fine.", ["It costs approx . ? !", "Fine ."]),
        ("Really?!! Yes!", ["Really ? ! !", "Yes !"]),
        ("A &ᓰ& b\u2229 c\u22a2 d\u2a2f.", ["A & ᓰ & b \u2229 c \u22a2 d \u2a2f ."]),
        (
            "The word DOTMULTI stays. And\x01 this\x1b.",
            ["The word DOTMULTI stays .", "And\x01 this\x1b ."],
        ),
    ],
)
def test_sentences_of_prose(text, sentences):
    split = prose.Tokenizer().sentences
    assert [" ".join(words) for words in split([text])] == sentences


# The last has quotations that are never closed.
@pytest.mark.parametrize("word", [*also(["[10, ", "x.", '"', "Mr. "]), "a. ", "((", "\u201ca! "])
def test_long_paragraphs_reach_the_libraries_in_parts(monkeypatch, word):
    """The time of sentencex and sacremoses grows with the square of what they are given."""
    sentencex, sacremoses = map(pytest.importorskip, ("sentencex", "sacremoses"))
    segment, tokenize = sentencex.segment, sacremoses.MosesTokenizer.tokenize
    lengths = {"segment": [], "tokenize": []}

    def counted_segment(language, text):
        lengths["segment"].append(len(text.split()))
        return segment(language, text)

    def counted_tokenize(self, text, **options):
        lengths["tokenize"].append(len(text.split()))
        return tokenize(self, text, **options)

    monkeypatch.setattr(sentencex, "segment", counted_segment)
    monkeypatch.setattr(sacremoses.MosesTokenizer, "tokenize", counted_tokenize)
    text = word * 11_000
    assert "".join(map("".join, prose.Tokenizer().sentences([text]))) == "".join(text.split())
    num_words = len(text.split())
    for name, limit in (("segment", 10_000), ("tokenize", 1_000)):
        assert max(lengths[name]) <= limit
        assert sum(lengths[name]) <= 2 * num_words


def test_sentences_are_those_of_their_language():
    text = "Er kam z.B. am Do. um 9 Uhr. Dann ging er."
    german = prose.Tokenizer(TextOptions(language="de")).sentences([text])
    assert list(map(" ".join, german)) == ["Er kam z.B. am Do. um 9 Uhr .", "Dann ging er ."]
    french = prose.Tokenizer(TextOptions(language="fr")).words("L'eau n'est pas là.")
    assert french == ["L'", "eau", "n'", "est", "pas", "là", "."]


def test_a_language_is_a_code():
    with pytest.raises(InputError, match=r"^language is 'English'; expected a code of two or thre"):
        TextOptions(language="English")


CAPITALS = "ISI \u0130STANBUL I\u0307zmir IRAK isi \u0130\u015e\u0130"


@pytest.mark.parametrize("form", ["none", "nfc"])
@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("tr", "\u0131s\u0131 istanbul izmir \u0131rak isi i\u015fi"),
        ("az", "\u0131s\u0131 istanbul izmir \u0131rak isi i\u015fi"),
        ("en", "isi istanbul izmir irak isi i\u015fi"),
        ("de", "isi istanbul izmir irak isi i\u015fi"),
    ],
)
def test_lower_case_follows_the_language(tmp_path, language, expected, form):
    options: dict[str, Any] = dict(language=language, lowercase=True, unicode=form)
    path = write(tmp_path / "t.txt", CAPITALS)
    assert sentences_of(path, **options) == [[expected.split()]]
    raw = sentences_of(path, "prose", **options)
    assert [word for words in raw[0] for word in words] == expected.split()
    manifest = prepare({"train": path}, tmp_path / "corpus", TextOptions(**options))
    assert manifest.options["language"] == manifest.text.language == language


def test_an_unknown_token_has_the_lower_case_of_the_language(tmp_path):
    path = write(tmp_path / "t.txt", "Bir <MISSING> var.")
    text = TextOptions("prose", lowercase=True, language="tr", unknown_token="<MISSING>")
    manifest = prepare({"train": path}, tmp_path / "corpus", text)
    assert manifest.splits["train"].oov_tokens == 1


@pytest.mark.parametrize("language", "zh ja th lo km my zho jpn tha yue wuu bo dz shn".split())
def test_languages_without_spaces_between_words_are_refused(language):
    with pytest.raises(InputError, match=f"^language is {language}, which has no spaces between"):
        TextOptions("prose", language=language)
    for other in ("ko", "vi", "am", "he", "ckb"):
        assert TextOptions(language=other).language == other


def test_a_table_of_tabs_is_unquoted(tmp_path, caplog):
    text = (
        'id\ttext\n1\t"Hello, he said.\n2\tIt was fine.\n3\tAnd left."\n'
        '4\tLast "one" here.\n5\t"All."\n'
    )
    path = write(tmp_path / "t.tsv", text)
    documents = texts_of(path)
    cells = ['" Hello , he said .', "It was fine .", 'And left . "', 'Last " one " here .']
    assert sum(documents, []) == [*cells, '" All . "']
    (note,) = caplog.messages
    assert note.startswith(f"{path}: cells in quotation marks, ") and ": 1 (o" in note


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("lines", ["It was é .", "We left .", "", "Two .", "=", "Three ."]),
        ("tagged", ["It/PP was/V", "", "We/PP left/V"]),
        ("prose", ["It was. We", "left.", "", "More.", "= Two", "Three é."]),
        ("csv", ["id,text", '1,"It was.', "", 'More."', "2,We left é."]),
        ("tsv", ["id\ttext", "1\tIt was.", "2\tWe left é."]),
        ("jsonl", ['{"text": "It was. We left."}', "", '{"text": "More é."}']),
    ],
)
def test_every_end_of_lines_is_read_as_a_line_feed(tmp_path, format, lines, encoding):
    def documents(end):
        text = "".join(f"{line}{end}" for line in lines)
        return read(write(tmp_path / "t", text.encode(encoding)), format, encoding)

    expected = documents("\n")
    assert len(expected) == (3 if format == "lines" else 2)
    for end in LINE_ENDS[1:]:
        assert documents(end) == expected


def test_json_lines_begin_after_any_number_of_blank_ones(tmp_path):
    path = write(tmp_path / "t.jsonl", "\n" * 150 + '{"text": "It was. We left."}\n')
    assert texts_of(path) == [["It was .", "We left ."]]
    for end in ("\\r\\r", "\\r\\n\\r\\n", "\\n \\n"):
        path = write(tmp_path / "t.jsonl", '{"text": "One' + end + "Two." + end[:2] + 'Three"}\n')
        assert texts_of(path) == [["One", "Two .", "Three"]]


def test_decomposed_accents_of_raw_text_are_counted(tmp_path, caplog):
    path = write(tmp_path / "t", "The cafe\u0301 was nai\u0308ve.\n")
    documents = texts_of(path, "prose")
    (note,) = caplog.messages
    assert documents == [["The cafe\u0301 was nai\u0308ve ."]]
    assert "decomposed accents: 2, such as 'cafe\\u0301' (--unicode=nfc composes" in note


@pytest.mark.parametrize("format", ["lines", "prose"])
def test_equals_signs_alone_or_before_a_title_that_is_counted_divide(tmp_path, format, caplog):
    text = "=) It was old .\n=\nTwo .\n= 5 + 3 is 8 .\nThree .\n=== One more ===\n==4 ."
    documents = texts_of(write(tmp_path / "t", text), format)
    (note,) = caplog.messages
    characters = ["".join("".join(sentences).split()) for sentences in documents]
    assert characters == ["=)Itwasold.", "Two.", "Three.", "==4."]
    assert "begin with =: 2; title words omitted: 9, such as '= 5 + 3 is 8 .'" in note


UNSEEN = "It was\ufeff .\n\u200bWe left caf\u00ade\u0301 .\nfi\ufb01 .\n\u200b\n"


def test_characters_that_are_not_seen_are_counted(tmp_path, caplog):
    path = write(tmp_path / "t", UNSEEN)
    documents = texts_of(path)
    (note,) = caplog.messages
    assert documents == [UNSEEN.strip("\n").split("\n")]
    assert "characters or decomposed accents: 4, such as 'was\\ufeff' (--unicode=nfc" in note


def test_words_are_composed_and_lose_format_characters_at_their_edges(tmp_path, caplog):
    path = write(tmp_path / "t", UNSEEN)
    documents = texts_of(path, unicode="nfc")
    (note,) = caplog.messages
    assert documents == [["It was .", "We left caf\u00ad\u00e9 .", "fi\ufb01 ."]]
    assert "decomposed accents: 1, such as 'caf\\xad\\xe9'" in note
    # Accents apart would be words of their own; a word of nothing else is none, nor has it a tag.
    write(path, "Cafe\u0301 \u200bopen\u200b. \ufeff Yes.")
    assert texts_of(path, "prose", unicode="nfc") == [["Caf\u00e9 open .", "Yes ."]]
    write(path, "Cafe\u0301/NN \u200b/X open/JJ\n\u200b/X\n")
    tagged = Document("t:1", [["Caf\u00e9", "open"]], [["NN", "JJ"]])
    assert read(path, "tagged", unicode="nfc") == [tagged]
    unknown: Any = "nfd"
    with pytest.raises(InputError, match=r"^unicode is 'nfd'; expected none or nfc$"):
        TextOptions(unicode=unknown)


SIGNS = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
WORD = st.text(
    st.one_of(st.sampled_from("ab.?!'\"=/-[](){}<>|,1\u200b\ufeff\u00ad\u0301\u266c&;"), SIGNS),
    min_size=1,
    max_size=6,
).filter(lambda word: len(word.split()) == 1)
PIECES = st.sampled_from(["Mr.", "e.g.", "a.b.", "...", "=", "==", "= A", "NA", "DOTMULTI", "[10,"])
TEXT_LINE = st.lists(st.one_of(WORD, PIECES), max_size=8).map(" ".join)


def written(format, lines, is_raw):
    """A text with these lines, in a format, and the lines whose words it gives to its reader."""
    if format == "tagged":
        return [" ".join(f"{word}/T" for word in line.split()) for line in lines], lines
    if format == "jsonl" and is_raw:
        return [json.dumps({"text": line}, ensure_ascii=False) for line in lines], lines
    if format == "jsonl":
        return [json.dumps({"sentences": [line]}) for line in lines], lines
    if format in ("csv", "tsv"):
        # The csv module also quotes a line break, and white space is any to us.
        lines = [" ".join(line.split()) for line in lines]
        if format == "tsv":
            return ["n\ttext", *(f"{n}\t{line}" for n, line in enumerate(lines))], lines
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([["n", "text"], *enumerate(lines)])
        return table.getvalue().split("\n")[:-1], lines
    return lines, lines


def title_words(format, line, is_raw):
    """The words of a line that are left out since its first one ends the document or paragraph: an
    independent reading of the rule. Tokens of tagged text have tags and are none."""
    words = line.split()
    is_read = format in ("lines", "prose", "csv", "tsv") or (format == "jsonl" and is_raw)
    return words if is_read and line[:1] == "=" and set(words[0]) == {"="} else []


@settings(
    max_examples=some(300, all=3000),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.sampled_from(TEXT_FORMATS),
    st.lists(TEXT_LINE, min_size=1, max_size=5),
    st.sampled_from(LINE_ENDS),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252", "shift_jis"]),
    st.booleans(),
)
def test_no_character_is_lost_uncounted(place, format, lines, end, encoding, is_raw):
    # Other line ends within a line are white space here, as in every reader of words.
    lines = [" ".join(re.split(r"[\r\n]+", line)) for line in lines]
    if encoding in ("cp1252", "shift_jis"):
        lines = [line.encode(encoding, "ignore").decode(encoding) for line in lines]
    if not any(line.split() for line in lines):
        return
    texts, given_lines = written(format, lines, is_raw)
    # Whether a mark begins the file or the order of its bytes cannot be told.
    if texts[0].startswith("\ufeff"):
        return
    path = write(place / "text", "".join(f"{text}{end}" for text in texts).encode(encoding))
    reader = TextReader(TextOptions(format), encoding)
    try:
        documents = list(reader.documents(path))
    except InputError as error:
        # The text begins like a file that is not text.
        if re.search("unpack it|save its content|convert it", str(error)):
            return
        # All of it was titles.
        assert "has no documents" in str(error)
        documents = []
    kept = collections.Counter(
        "".join(word for document in documents for words in document.sentences for word in words)
    )
    if format in ("csv", "tsv"):
        # A note counts the cells without text.
        given_lines = [line for line in given_lines if line.strip() != "NA"]
    left = [words for line in given_lines if (words := title_words(format, line, is_raw))]
    expected = collections.Counter("".join("".join(given_lines).split()))
    expected -= collections.Counter("".join(word for words in left for word in words))
    assert kept == expected
    if documents:
        count = sum(len(words) - 1 for words in left)
        counted = [
            note for note in reader.word_maker.notes.lines() if "title words omitted" in note
        ]
        assert len(counted) == (count > 0)
        assert all(f"title words omitted: {count:,}," in note for note in counted)


def test_a_text_in_python_is_read_as_a_file_is(caplog):
    [document] = parse_documents("= Title\nIt was .\r", TextOptions())
    assert document == Document("text", [["It", "was", "."]])
    assert "title words omitted: 1, such as '= Title'" in caplog.text


def test_a_block_whose_words_vanish_is_an_empty_document(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("A b.\n=\n\u00ad\n=\n<br>\n=\nC d.\n")
    options = TextOptions("prose", unicode="nfc", strip_html=True)
    documents = list(read_documents(path, options, keep_empty=True))
    assert [len(document.sentences) for document in documents] == [1, 0, 1]
