"""Tables and JSON lines of raw text, and the names of documents."""

import csv
import io
import json
from typing import Any

import pytest

from dclm_jax.data import formats
from dclm_jax.data.documents import Document, TextOptions, columns
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.errors import InputError
from tests.data.support import read, write

pytest.importorskip("sentencex")
pytest.importorskip("sacremoses")


TEXTS = ['He said "No, never." She left!\n \nAnother, "odd" paragraph', "It\nrained.", ""]
SENTENCES = [
    [
        ["He", "said", '"', "No", ",", "never", ".", '"'],
        ["She", "left", "!"],
        ["Another", ",", '"', "odd", '"', "paragraph"],
    ],
    [["It", "rained", "."]],
    [],
]


def table(delimiter: str, end: str) -> str:
    """Rows with quotes where a cell needs them."""
    rows = [("stars", "review", "id"), ("5", TEXTS[0], "a"), ("1", TEXTS[1], ""), ("2", "", "c")]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize(("kind", "delimiter"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_column_of_a_table_is_raw_text(tmp_path, kind, delimiter, end):
    path = write(tmp_path / f"t.{kind}", table(delimiter, end))
    # The second row begins on line 5, since a cell of the first one goes over three lines.
    expected = [
        Document("a", SENTENCES[0], rows=[{"stars": "5"}]),
        Document(f"t.{kind}:5", SENTENCES[1], rows=[{"stars": "1"}]),
        Document("c", [], rows=[{"stars": "2"}]),
    ]
    reports = []
    reader = TextReader(TextOptions(text_key="review", quoted=True), report=reports.append)
    assert list(reader.documents(path, keep_empty=True)) == expected
    assert reports == [
        f"note: {path}: cells over several lines: 2, the longest in lines 2 to 4; check "
        "for a missing closing quotation mark",
    ]
    assert reader.formats == {kind} and reader.has_raw_text
    assert read(path, "prose", text_key="review", quoted=True) == expected[:2]
    # Of another name it is one if that is said.
    other = write(tmp_path / "t.data", table(delimiter, end))
    documents = read(other, kind, text_key="review", lowercase=True, quoted=True)
    assert documents[1][:2] == ("t.data:5", [["it", "rained", "."]])


def test_json_lines_of_raw_text(tmp_path):
    """Each record has raw text or sentences of words."""
    records = [
        {"id": 3, "text": TEXTS[0]},
        {"text": TEXTS[1]},
        {"sentences": ["It rained."]},
        {"text": ""},
    ]
    path = write(tmp_path / "t.jsonl", "\n\n".join(map(json.dumps, records)))
    expected = [
        Document("3", SENTENCES[0]),
        Document("t.jsonl:3", SENTENCES[1]),
        Document("t.jsonl:5", [["It", "rained."]]),
        Document("t.jsonl:7", []),
    ]
    reader = TextReader()
    assert list(reader.documents(path, keep_empty=True)) == expected
    assert reader.has_raw_text


def test_json_lines_of_another_key(tmp_path):
    named = {"body": TEXTS[1], "text": "x"}
    # A run that remembers the key of its text reads files of words, too.
    words = {"sentences": ["It rained ."]}
    both = {"sentences": ["x"], "body": TEXTS[1]}
    path = tmp_path / "t.jsonl"
    for record in (named, words, both):
        write(path, json.dumps(record))
        (document,) = read(path, text_key="body")
        assert document[:2] == ("t.jsonl:1", SENTENCES[1])
    (document,) = read(path)
    assert document[:2] == ("t.jsonl:1", [["x"]])


def test_other_keys_of_json_lines_are_cells(tmp_path):
    records = [
        {"id": "a", "text": TEXTS[1], "item": 3, "condition": "x", "is_filler": True},
        {"id": "b", "text": TEXTS[1], "condition": None},
    ]
    path = write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, records)))
    cells = [
        {"item": "3", "condition": "x", "is_filler": "true"},
        {"condition": ""},
    ]
    of_words = [
        {name: words[0][0] for name, words in columns(document).items()} for document in read(path)
    ]
    assert of_words == cells
    sentences = {"id": "c", "sentences": ["It rained ."], "tags": ["a b c"], "item": 3}
    (document,) = read(write(path, json.dumps(sentences)))
    assert columns(document) == {"item": [["3"] * 4]}


def test_a_deep_value_is_refused_only_where_it_is_a_cell(tmp_path):
    # What Python can parse, and what it can write, depend on its version.
    path = write(tmp_path / "t.jsonl", f'{{"text": "a", "x": {"[" * 600}{"]" * 600}}}')
    (document,) = read(path)
    assert document.sentences == [["a"]]
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError, match="nested too deeply to be written; remove it"):
        columns(document._replace(rows=[{"x": deep}]))


def test_rows_of_a_document_may_have_different_keys():
    rows = [{"x": "1"}, {"y": 2}]
    document = Document("a", [["we"], ["must"]], rows=rows, row_of_word=[[0], [1]])
    cells = {"x": [["1", None], ["", None]], "y": [["", None], ["2", None]]}
    assert columns(document) == cells


REGIONS = """item,condition,region,text
1,a,subject,"The reporter, who"
1,a,verb,"left. Later"
1,a,end,he slept .
1,b,subject,Nobody
1,b,verb,slept.
"""


def test_consecutive_rows_are_joined_and_words_know_their_rows(tmp_path):
    path = write(tmp_path / "t.csv", REGIONS)
    first, second = read_documents(path, joined_by=["item", "condition"])
    assert (first.id, second.id) == ("1/a", "1/b")
    words = [["The", "reporter", ",", "who", "left", "."], ["Later", "he", "slept", "."]]
    assert first.sentences == words
    assert first.row_of_word == [[0, 0, 0, 0, 1, 1], [1, 2, 2, 2]]
    assert first.rows[1] == {"item": "1", "condition": "a", "region": "verb"}
    cells = columns(first)
    assert cells["condition"] == [["a"] * 7, ["a"] * 5]
    of_regions = ["subject"] * 4 + ["verb"] * 2
    assert cells["region"] == [[*of_regions, None], ["verb", "end", "end", "end", None]]
    assert second.row_of_word == [[0, 1, 1]]


def test_rows_are_found_after_punctuation_is_normalized(tmp_path):
    """Of '' a character is lost, and of the ellipsis two are gained."""
    text = "id,r,text\n1,x,He said ''yes'' and went\n1,y,I am\n1,z,a man\u2026 so\n"
    path = write(tmp_path / "t.csv", text)
    (document,) = read_documents(path, TextOptions(normalize=True), joined_by=["id"])
    (words,), (rows,) = document.sentences, document.row_of_word or [[]]
    assert [word for word, row in zip(words, rows, strict=True) if row == 1] == ["I", "am"]
    assert [word for word, row in zip(words, rows, strict=True) if row == 2][:2] == ["a", "man"]


def test_words_of_only_format_characters_are_removed_with_their_rows():
    """As tokenizing may leave them."""
    rows = [{"r": "x"}, {"r": "y"}]
    document = Document("1", [["a", "\u200b", "c"]], rows=rows, row_of_word=[[0, 0, 1]])
    (written,) = TextReader(TextOptions(unicode="nfc")).written([document])
    assert (written.sentences, written.row_of_word) == ([["a", "c"]], [[0, 1]])
    assert written.rows == rows


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (REGIONS, {}, r"t\.csv:2: there is no column 'id'; choose from: 'item', 'condition', 'r"),
        ("id,text\n1,a\n1, \n", {}, r"t\.csv:3: the row has no word; add its text, or remove it"),
        ("id,text\n1,a\n1,\u200b\n", {"unicode": "nfc"}, r"t\.csv:3: the row has no word; add"),
        ("id,text\n1,U.\n1,S\n2,a\n1,b\n", {}, r"t\.csv:5: '1' also has rows at .*t\.csv:2.*by id"),
    ],
)
def test_rows_that_cannot_be_joined_are_refused(tmp_path, content, options, message):
    path = write(tmp_path / "t.csv", content)
    with pytest.raises(InputError, match=message):
        list(read_documents(path, TextOptions(**options), joined_by=["id"]))


def test_characters_that_no_row_has_are_refused():
    with pytest.raises(InputError, match="t: normalized punctuation cannot be assigned to rows"):
        formats._rows_of_words([["ab", "c"]], [1, 1], "t")


def test_a_text_without_rows_is_refused(tmp_path):
    path = write(tmp_path / "t.txt", "a b\n")
    with pytest.raises(InputError, match=r"t\.txt: is read as lines, which has no rows to join"):
        list(read_documents(path, joined_by=["id"]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,body\n1,a\n", r":2: the record has no column 'text'; .*key from: 'id', 'body'$"),
        ("text,text\n1,a\n", r"t\.csv:1: the table has 2 columns 'text'; rename"),
        (
            "id,text\n1,a\n\n2,b,c\n",
            r"t\.csv:4: the row has 3 cells, but the header has 2; add or remove cells$",
        ),
        ('id,text\n1,"a"b\n', r"t\.csv:2: the row that begins on this line is not valid CSV \("),
        ('id,text\n1,a\n2,"b\nc\n', r"t\.csv:3: the row .* not valid CSV \(unex"),
        ("id,text\n1,a\n2,b\n1,c\n", r"t\.csv:4: the id '1' is also at .*t\.csv:2; giv"),
        ("id,text\n", r"t\.csv: has no documents"),
        (
            '{"text": "a"}\n{"body": 1}\n',
            r"t\.jsonl:2: the record has no key 'text' and .*: 'body'$",
        ),
        ('{"text": "a"}\n{"text": null}\n', r":2: 'text' is None; write a string"),
        ('{"text": "a"}{"text": "b"}\n', r"t\.jsonl:1: not JSON: Extra data"),
        ('{"text": "\\ud800"}\n', r"t\.jsonl:1: the record has half of a surrogate pair"),
    ],
)
def test_what_is_no_such_record_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / ("t.jsonl" if content.startswith("{") else "t.csv")
    with pytest.raises(InputError, match=message):
        read(write(path, content))


def test_ids_are_different_in_all_files_of_a_folder(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", '{"id": 1, "sentences": ["a"]}\n')
    with pytest.raises(
        InputError, match=r"b\.jsonl:1: the id '1' is also at .*a\.jsonl:1; give each"
    ):
        read(tmp_path)


def test_a_long_cell(tmp_path):
    path = write(tmp_path / "t.csv", "text\n" + '"' + "word " * 27_000 + '"\n')
    [document] = read(path)
    assert [word for words in document.sentences for word in words] == ["word"] * 27_000
