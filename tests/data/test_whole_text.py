"""Every character of a text that is not white space becomes part of a word, or is counted."""

import collections
import csv
import io
import json
import re
import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dclm_jax.data import prose
from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import parse_documents, read_candidates, read_documents
from dclm_jax.errors import InputError
from dclm_jax.rescoring import nbest
from tests.data.support import write
from tests.exhaustive import some
from tests.fuzzing import fuzz

pytest.importorskip("sentencex")

LINE_ENDS = ("\n", "\r\n", "\r", "\r\r\n")


def sentences_of(documents):
    return [[" ".join(words) for words in document.sentences] for document in documents]


def read(path, *options, **more):
    notes = []
    documents = list(read_documents(path, TextOptions(*options, **more), report=notes.append))
    return sentences_of(documents), notes


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
            ["The word DOTMULTI stays .", "And\x01 this\x1b."],
        ),
    ],
)
def test_sentences_of_prose(text, sentences):
    split = prose.Tokenizer().sentences
    assert [" ".join(words) for words in split([text])] == sentences


@pytest.mark.parametrize(
    "text",
    [
        "[10, " * 20_000,
        "a. " * 100_000,
        "((" * 50_000,
        "x." * 50_000,
        '"' * 50_000,
        "Mr. " * 50_000,
        # Quotations that are never closed.
        "\u201ca! " * 200_000,
    ],
)
def test_the_time_of_long_paragraphs_does_not_grow_with_their_square(text):
    begin = time.process_time()
    assert "".join(map("".join, prose.Tokenizer().sentences([text]))) == "".join(text.split())
    # With its square it would be minutes.
    assert time.process_time() - begin < 30


def test_all_of_unicode_survives_the_splitter():
    step = some(16, all=1)
    signs = [
        chr(code)
        for code in (*range(0x3000), *range(0x3000, sys.maxunicode + 1, step))
        if unicodedata.category(chr(code)) != "Cs" and not chr(code).isspace()
    ]
    split = prose.Tokenizer().sentences
    for at in range(0, len(signs), 50):
        given = [f"We like {sign} a lot. It{sign}is?!" for sign in signs[at : at + 50]]
        kept = "".join(map("".join, split(given)))
        assert kept == "".join("".join(text.split()) for text in given)


def test_sentences_are_those_of_their_language():
    text = "Er kam z.B. am Do. um 9 Uhr. Dann ging er."
    german = prose.Tokenizer(TextOptions(language="de")).sentences([text])
    assert [" ".join(words) for words in german] == [
        "Er kam z.B. am Do. um 9 Uhr .",
        "Dann ging er .",
    ]
    french = prose.Tokenizer(TextOptions(language="fr")).words("L'eau n'est pas là.")
    assert french == ["L'", "eau", "n'", "est", "pas", "là", "."]


def test_a_language_is_a_code():
    with pytest.raises(InputError, match=r"^language is 'English'; expected a code of two or thre"):
        TextOptions(language="English")


def test_a_table_of_tabs_is_unquoted_unless_it_is_said_to_be_quoted(tmp_path):
    text = (
        'id\ttext\n1\t"Hello, he said.\n2\tIt was fine.\n3\tAnd left."\n'
        '4\tLast "one" here.\n5\t"All."\n'
    )
    path = write(tmp_path / "t.tsv", text)
    documents, notes = read(path)
    assert documents == [
        ['" Hello , he said .'],
        ["It was fine ."],
        ['And left . "'],
        ['Last " one " here .'],
        ['" All . "'],
    ]
    assert notes[1:] == [
        f"note: {path}: cells between quotation marks, which are part of the text: 1 (--quoted "
        "reads them as quotation of the table)"
    ]
    documents, notes = read(path, quoted=True)
    assert len(documents) == 3 and documents[0][:2] == ["Hello , he said .", "2 It was fine ."]
    assert notes[1:] == [
        f"note: {path}: cells over several lines: 1, the longest in lines 2 to 4; check them for a "
        "quotation mark that is never closed"
    ]
    ragged = write(tmp_path / "r.tsv", 'id\ttext\n1\t"Hello,\nhe said."\n')
    with pytest.raises(InputError, match=r"r\.tsv:3: has 1 cells; expected 2, .* \(--quoted if"):
        read(ragged)


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("lines", ["It was é .", "We left .", "", "Two .", "=", "Three ."]),
        ("tagged", ["It/PP was/V", "", "We/PP left/V"]),
        ("prose", ["It was. We", "left.", "", "More.", "= Two", "Three é."]),
        ("paragraphs", ["It was. We left.", "More é."]),
        ("csv", ["id,text", '1,"It was.', "", 'More."', "2,We left é."]),
        ("tsv", ["id\ttext", "1\tIt was.", "2\tWe left é."]),
        ("jsonl", ['{"text": "It was. We left."}', "", '{"text": "More é."}']),
        ("articles", ["", "= One =", "", "It was . We left .", ""]),
        ("treebank", ["( (S (NP (PRP It))", "(VP (VBD was))))", "( (X (SYM \xe9)))"]),
    ],
)
def test_every_end_of_lines_is_read_as_a_line_feed(tmp_path, format, lines, end, encoding):
    def documents(end):
        path = tmp_path / "t"
        path.write_bytes("".join(f"{line}{end}" for line in lines).encode(encoding))
        return list(read_documents(path, TextOptions(format), encoding=encoding))

    assert documents(end) == documents("\n")
    assert len(documents("\n")) == {"lines": 3, "treebank": 1, "articles": 1}.get(format, 2)


def test_json_lines_begin_after_any_number_of_blank_ones(tmp_path):
    path = write(tmp_path / "t.jsonl", "\n" * 150 + '{"text": "It was. We left."}\n')
    assert read(path)[0] == [["It was .", "We left ."]]
    path = write(tmp_path / "t.jsonl", '{"text": "It was."}\n{"sentences": ["We left"]}\n')
    with pytest.raises(InputError, match=r"t\.jsonl:2: holds 'sentences', and the first line"):
        read(path)
    path = write(tmp_path / "t.jsonl", '{"text": "a"}{"text": "b"}\n')
    with pytest.raises(InputError, match=r"t\.jsonl:1: not JSON: Extra data"):
        read(path)
    for end in ("\\r\\r", "\\r\\n\\r\\n", "\\n \\n"):
        path = write(tmp_path / "t.jsonl", '{"text": "One' + end + "Two." + end[:2] + 'Three"}\n')
        assert read(path)[0] == [["One", "Two .", "Three"]]


def test_accents_that_a_tokenizer_splits_off_are_counted(tmp_path):
    path = write(tmp_path / "t", "The cafe\u0301 was nai\u0308ve.\n")
    documents, notes = read(path, "prose")
    assert documents == [["The cafe \u0301 was nai \u0308 ve ."]]
    assert [note for note in notes if "decomposed" in note] == [
        f"note: {path}: words with decomposed accents: 2, such as '\\u0301' (--unicode=nfc "
        "composes them)"
    ]


@pytest.mark.parametrize(
    ("format", "text", "words"),
    [
        ("prose", "The cafe\u0301.\u200b", ["the", "caf\u00e9", "."]),
        # There is no J with a caron.
        ("lines", "J\u030c \u200bx\u200by", ["\u01f0", "x\u200by"]),
    ],
)
def test_candidates_become_words_as_documents_do(tmp_path, format, text, words):
    path, notes = write(tmp_path / "t", f"{text}\n"), []
    options = TextOptions(format, lowercase=True, unicode="nfc")
    assert list(read_candidates(str(path), options, report=notes.append)) == [words]
    assert [document.sentences for document in read_documents(path, options)] == [[words]]
    assert (
        notes[0] == f"note: {path}: format characters removed: 1, such as U+200B ZERO WIDTH SPACE"
    )


def test_candidates_have_every_end_of_lines(tmp_path):
    for end in LINE_ENDS:
        path = write(tmp_path / "t", f"It was .{end}We left .{end}")
        assert list(read_candidates(str(path))) == [["It", "was", "."], ["We", "left", "."]]


@pytest.mark.parametrize("format", ["lines", "prose"])
def test_a_divider_is_its_word_alone_or_before_a_title_that_is_counted(tmp_path, format):
    lines = [
        "=) It was old .",
        "=",
        "Two .",
        "= 5 + 3 is 8 .",
        "Three .",
        "=== One more ===",
        "==4 .",
    ]
    path = write(tmp_path / "t", "\n".join(lines))
    documents, notes = read(path, format)
    joined = ["".join(sentences).replace(" ", "") for sentences in documents]
    assert joined == ["=)Itwasold.", "Two.", "Three.", "==4."]
    assert notes == [
        f"note: {path}: lines that begin with = and end a document: 2; title words omitted: 9, "
        "such as '= 5 + 3 is 8 .' (--divider names another first word, or none)"
    ]
    documents, notes = read(path, format, divider="none")
    assert "".join("".join(documents[0]).split()) == "".join("".join(lines).split())
    assert len(documents) == 1 and notes == []
    # Another one, of letters that mean something in patterns.
    write(path, "a .\n*** b c\n= d .\n** *\n*e\n")
    documents, notes = read(path, format, divider="*")
    assert ["".join(sentences).replace(" ", "") for sentences in documents] == ["a.", "=d.", "*e"]
    assert "and end a document: 2; title words omitted: 3, such as '*** b c'" in notes[0]
    with pytest.raises(InputError, match=r"^divider is 'two words'; expected one word, or none$"):
        TextOptions(divider="two words")


def test_headings_that_are_left_out_are_counted(tmp_path):
    path = write(tmp_path / "t", "\n= One =\n\nIt was .\n\n= = Two parts = =\n\nWe left .\n\n")
    assert read(path, "articles") == (
        [["= One =", "It was .", "= = Two parts = =", "We left ."]],
        [],
    )
    documents, notes = read(path, "articles_body")
    assert documents == [["It was .", "We left ."]]
    assert notes == [
        f"note: {path}: headings left out: 2, of 9 words (--format=articles keeps them)"
    ]


UNSEEN = "It was\ufeff .\n\u200bWe left caf\u00ade\u0301 .\nfi\ufb01 .\n\u200b\n"


def test_characters_that_are_not_seen_are_counted_and_named(tmp_path):
    path = write(tmp_path / "t", UNSEEN)
    documents, notes = read(path)
    assert documents == [UNSEEN.strip("\n").split("\n")]
    assert notes == [
        f"note: {path}: words with invisible format characters: 4, such as 'was\\ufeff' with "
        "U+FEFF ZERO WIDTH NO-BREAK SPACE (--unicode=nfc removes them at the edges of words)",
        f"note: {path}: words with decomposed accents: 1, such as 'caf\\xade\\u0301' "
        "(--unicode=nfc composes them)",
    ]


@pytest.mark.parametrize(("form", "word"), [("nfc", "fi\ufb01"), ("nfkc", "fifi")])
def test_words_are_composed_and_lose_format_characters_at_their_edges(tmp_path, form, word):
    path = write(tmp_path / "t", UNSEEN)
    documents, notes = read(path, unicode=form)
    assert documents == [["It was .", "We left caf\u00ad\u00e9 .", f"{word} ."]]
    assert notes == [
        f"note: {path}: format characters removed: 3, such as U+FEFF ZERO WIDTH NO-BREAK SPACE",
        f"note: {path}: words with invisible format characters: 1, such as 'caf\\xad\\xe9' with "
        "U+00AD SOFT HYPHEN (--unicode=nfc removes them at the edges of words)",
    ]
    # Accents apart would be words of their own; a word of nothing else is none, nor has it a tag.
    write(path, "Cafe\u0301 \u200bopen\u200b. \ufeff Yes.")
    assert read(path, "prose", unicode=form)[0] == [["Caf\u00e9 open .", "Yes ."]]
    write(path, "Cafe\u0301/NN \u200b/X open/JJ\n\u200b/X\n")
    options = TextOptions("tagged", unicode=form)
    assert list(read_documents(path, options)) == [
        Document("t:1", [["Caf\u00e9", "open"]], [["NN", "JJ"]])
    ]
    with pytest.raises(InputError, match=r"^unicode is 'nfd'; expected one of none, nfc, nfkc$"):
        TextOptions(unicode="nfd")


@pytest.mark.parametrize(
    ("content", "line", "start"),
    [
        ('[{"id": 1, "text": "Hello."}]\n', 1, "'[{\"id"),
        ('\n[\n  {"text": "Hello."}\n]\n', 2, "'['"),
        ('{\n  "text": "Hello."\n}\n', 1, "'{'"),
        ('{"id": 1,\n "text": "a"}\n', 1, "'{\"id\": 1,'"),
        ('{"text": "a"}\n[1]\n', 2, "'[1]'"),
    ],
)
def test_json_that_is_no_json_lines_is_refused_with_its_line(tmp_path, content, line, start):
    path = write(tmp_path / "t.jsonl", content)
    with pytest.raises(InputError, match="; expected JSON lines: an object on each line") as error:
        read(path)
    assert str(error.value).startswith(f"{path}:{line}: is {start}")


SIGNS = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
WORD = st.text(
    st.one_of(st.sampled_from("ab.?!'\"=/-[](){}<>|,1\u200b\ufeff\u00ad\u0301\u266c&;"), SIGNS),
    min_size=1,
    max_size=6,
).filter(lambda word: len(word.split()) == 1)
PIECES = st.sampled_from(["Mr.", "e.g.", "a.b.", "...", "=", "==", "= A", "NA", "DOTMULTI", "[10,"])
TEXT_LINE = st.lists(st.one_of(WORD, PIECES), max_size=8).map(" ".join)
FORMATS = ("lines", "tagged", "jsonl", "csv", "tsv", "prose", "paragraphs", "articles")


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


def title_words(format, line):
    """The words of a line that are left out since its first one ends the document: an independent
    reading of the rule. Tokens of tagged text have tags and are none."""
    words = line.split()
    is_divider = format in ("lines", "prose") and line[:1] == "=" and set(words[0]) == {"="}
    return words if is_divider else []


@fuzz(some(1500, all=2500))
@given(
    st.sampled_from(FORMATS),
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
    path = place / "text"
    path.write_bytes("".join(f"{text}{end}" for text in texts).encode(encoding))
    notes = []
    options = TextOptions(format)
    try:
        documents = list(read_documents(path, options, encoding=encoding, report=notes.append))
    except InputError as error:
        # All of it was titles.
        assert "holds no documents" in str(error)
        documents = []
    kept = collections.Counter(
        "".join(word for document in documents for words in document.sentences for word in words)
    )
    left = [words for line in texts if (words := title_words(format, line))]
    expected = collections.Counter("".join("".join(given_lines).split()))
    expected -= collections.Counter("".join(word for words in left for word in words))
    assert kept == expected
    if documents:
        count = sum(len(words) - 1 for words in left)
        counted = [note for note in notes if "title words omitted" in note]
        assert len(counted) == (count > 0)
        assert all(f"title words omitted: {count:,}," in note for note in counted)


def test_a_text_in_python_is_read_as_a_file_is():
    notes = []
    [document] = parse_documents("= Title\nIt was .\r", TextOptions(), report=notes.append)
    assert document == Document("text:2", [["It", "was", "."]])
    assert notes == [
        "note: text: lines that begin with = and end a document: 1; title words omitted: 1, such "
        "as '= Title' (--divider names another first word, or none)"
    ]


@fuzz(some(500, all=1000))
@given(
    st.lists(TEXT_LINE, min_size=1, max_size=5),
    st.sampled_from(LINE_ENDS),
    st.sampled_from(["{} ||| {} ||| f= 1 ||| -1", "{}\t|||{}|||", "seg{}-1 {}"]),
)
def test_no_word_of_lists_references_and_candidates_is_lost(place, lines, end, form):
    lines = [" ".join(re.sub(r"[|\r\n]+", " ", line).split()) for line in lines]
    path = place / "list"
    text = "".join(form.format(index, line) + end for index, line in enumerate(lines))
    path.write_bytes(text.encode())
    lists = nbest.read_nbest(str(path))
    assert [segment.hypotheses for segment in lists.segments] == [[line.split()] for line in lines]
    if any(lines) and not lines[0].startswith("\ufeff"):
        path.write_bytes("".join(f"{line}{end}" for line in lines).encode())
        references = nbest.read_references(str(path), lists)
        assert references == [line.split() for line in lines]
        if all(lines):
            assert list(read_candidates(str(path))) == references
