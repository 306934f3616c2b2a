"""Tables and JSON lines of raw text, and the names of documents."""

import csv
import io
import json

import pytest

from dclm_jax.data.documents import Document, TextOptions, columns
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.data.words import WordMaker
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


def table(end: str) -> str:
    """Rows with quotes where a cell needs them."""
    rows = [("stars", "review", "id"), ("5", TEXTS[0], "a"), ("1", TEXTS[1], ""), ("2", "", "c")]
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_column_of_a_table_is_raw_text(tmp_path, end, caplog):
    path = write(tmp_path / "t.csv", table(end))
    # The second row begins on line 5, since a cell of the first one goes over three lines.
    expected = [
        Document("a", SENTENCES[0], rows=[{"stars": "5"}]),
        Document("t.csv:5", SENTENCES[1], rows=[{"stars": "1"}]),
        Document("c", [], rows=[{"stars": "2"}]),
    ]
    reader = TextReader(TextOptions(text_key="review"))
    assert list(reader.documents(path, keep_empty=True)) == expected
    assert caplog.messages == [
        f"{path}: cells over several lines: 2, the longest in lines 2 to 4; check "
        "for a missing closing quotation mark",
    ]
    assert reader.formats == {"csv"} and reader.word_maker.has_raw_text
    assert read(path, "prose", text_key="review") == expected[:2]
    # Of another name it is one if that is said.
    other = write(tmp_path / "t.data", table(end))
    documents = read(other, "csv", text_key="review", lowercase=True)
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
    assert reader.word_maker.has_raw_text


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
    sentences = {"id": "c", "sentences": ["It rained ."], "item": 3}
    (document,) = read(write(path, json.dumps(sentences)))
    assert columns(document) == {"item": [["3"] * 4]}


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


def test_only_joined_rows_need_words(tmp_path):
    parts = write(tmp_path / "parts.csv", "context,target\nA b.,c d\n,\nd,e f\n")
    options = TextOptions(text_key="context,target")
    documents = list(read_documents(parts, options, keep_empty=True))
    assert [len(document.sentences) > 0 for document in documents] == [True, False, True]
    single = write(tmp_path / "single.csv", "story,text\ns1,\ns2,The cat sat.\n")
    with pytest.raises(InputError, match="single.csv:2: the row has no word; add its text"):
        list(read_documents(single, joined_by=["story"]))
    markup = write(tmp_path / "markup.csv", "story,text\ns,A b.\ns,<br>\n")
    with pytest.raises(InputError, match="markup.csv:3: the row has no word"):
        list(read_documents(markup, TextOptions(strip_html=True), joined_by=["story"]))


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
    (written,) = WordMaker(TextOptions(unicode="nfc")).written([document])
    assert (written.sentences, written.row_of_word) == ([["a", "c"]], [[0, 1]])
    assert written.rows == rows


def test_a_long_cell(tmp_path):
    path = write(tmp_path / "t.csv", "text\n" + '"' + "word " * 27_000 + '"\n')
    [document] = read(path)
    assert [word for words in document.sentences for word in words] == ["word"] * 27_000
