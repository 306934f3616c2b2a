"""Tables and JSON lines of raw text, and the names of documents."""

import json

import pytest

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import TextReader, read_documents, remembered
from dclm_jax.errors import InputError
from tests.data.support import write

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
QUOTED = [one.replace('"', '""') for one in TEXTS]


def table(delimiter: str, end: str) -> str:
    rows = [("stars", "review", "id"), ("5", QUOTED[0], "a"), ("1", QUOTED[1], ""), ("2", "", "c")]
    return "".join(f"{line}{end}" for line in lines_of(rows, delimiter))


def lines_of(rows, delimiter):
    """Rows with quotes where a cell needs them."""
    for row in rows:
        needs = (any(sign in cell for sign in f'"{delimiter}\n') for cell in row)
        yield delimiter.join(
            f'"{cell}"' if is_quoted else cell for cell, is_quoted in zip(row, needs, strict=True)
        )


@pytest.mark.parametrize(("kind", "delimiter"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_column_of_a_table_is_raw_text(tmp_path, kind, delimiter, end):
    path = write(tmp_path / f"t.{kind}", table(delimiter, end))
    # The second row begins on line 5, since a cell of the first one goes over three lines.
    expected = [
        Document("a", SENTENCES[0]),
        Document(f"t.{kind}:5", SENTENCES[1]),
        Document("c", []),
    ]
    told = []
    reader = TextReader(TextOptions(text_key="review", quoted=True), report=told.append)
    assert list(reader.documents(path, keep_empty=True)) == expected
    assert told == [
        f"note: {path}: read as {kind.upper()}, the raw text of its 'review'",
        f"note: {path}: cells over several lines: 2, the longest in lines 2 to 4; check "
        "them for a quotation mark that is never closed",
    ]
    assert reader.formats == {kind}
    quoted = TextOptions("prose", text_key="review", quoted=True)
    assert list(read_documents(path, quoted)) == expected[:2]
    # Of another name it is one if that is said.
    other = write(tmp_path / "t.data", table(delimiter, end))
    found = list(
        read_documents(other, TextOptions(kind, text_key="review", lowercase=True, quoted=True))
    )
    assert found[1] == Document("t.data:5", [["it", "rained", "."]])


def test_json_lines_of_raw_text(tmp_path):
    records = [{"id": 3, "text": TEXTS[0]}, {"text": TEXTS[1], "sentences": []}, {"text": ""}]
    path = write(tmp_path / "t.jsonl", "\n\n".join(map(json.dumps, records)))
    expected = [
        Document("3", SENTENCES[0]),
        Document("t.jsonl:3", SENTENCES[1]),
        Document("t.jsonl:5", []),
    ]
    reader = TextReader()
    assert list(reader.documents(path, keep_empty=True)) == expected
    assert reader.formats == {"raw jsonl"}
    named = write(tmp_path / "n.jsonl", json.dumps({"body": TEXTS[1], "text": "x"}))
    assert list(read_documents(named, TextOptions(text_key="body"))) == [
        Document("n.jsonl:1", SENTENCES[1])
    ]
    # A run that remembers the key of its text reads files of words, too.
    words = write(tmp_path / "w.jsonl", json.dumps({"sentences": ["It rained ."]}))
    assert list(read_documents(words, TextOptions(text_key="body"))) == [
        Document("w.jsonl:1", SENTENCES[1])
    ]
    both = write(tmp_path / "b.jsonl", json.dumps({"sentences": ["x"], "body": TEXTS[1]}))
    assert list(read_documents(both, TextOptions(text_key="body"))) == [
        Document("b.jsonl:1", SENTENCES[1])
    ]
    assert list(read_documents(both)) == [Document("b.jsonl:1", [["x"]])]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "id,body\n1,a\n", r"t\.csv:1: has no column 'text'; .*, of: 'id', 'body'$"),
        ("t.csv", "text,text\n1,a\n", r"t\.csv:1: has several columns 'text'"),
        ("t.csv", "id,text\n1,a\n\n2,b,c\n", r"t\.csv:4: has 3 cells; expected 2, as many as"),
        ("t.csv", 'id,text\n1,"a"b\n', r"t\.csv:2: the row that begins here is no CSV: "),
        ("t.csv", 'id,text\n1,a\n2,"b\nc\n', r"t\.csv:3: the row .* no CSV: unexpected end"),
        ("t.csv", "id,text\n1,a\n2,b\n1,c\n", r"t\.csv:4: the id '1' is that of .*t\.csv:2 al"),
        ("t.csv", "id,text\n", r"t\.csv: holds no documents"),
        ("t.jsonl", '{"text": "a"}\n{"body": 1}\n', r"t\.jsonl:2: has no 'text', nor .*: 'body'$"),
        ("t.jsonl", '{"text": "a"}\n{"text": null}\n', r":2: 'text' is None; expected text"),
        (
            "t.jsonl",
            '{"text": "a"}\n[]\n',
            r"t\.jsonl:2: is '\[\]'; expected JSON lines: an object on each",
        ),
        ("t.jsonl", '{"text": "\\ud800"}\n', r"t\.jsonl:1: holds half of a surrogate pair"),
        (
            "t.jsonl",
            '{"id": "x", "sentences": ["a"]}\n\n{"sentences": ["b"]}\n{"id": "x", "sentences": []}',
            r"t\.jsonl:4: the id 'x' is that of .*t\.jsonl:1 already; expected different ids",
        ),
    ],
)
def test_what_is_no_such_record_is_refused_with_its_line(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        list(read_documents(path))


def test_ids_are_different_in_all_files_of_a_folder(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", '{"id": 1, "sentences": ["a"]}\n')
    with pytest.raises(InputError, match=r"b\.jsonl:1: the id '1' is that of .*a\.jsonl:1 already"):
        list(read_documents(tmp_path))


def test_a_long_cell(tmp_path):
    path = write(tmp_path / "t.csv", "text\n" + '"' + "word " * 27_000 + '"\n')
    [document] = read_documents(path)
    assert [word for words in document.sentences for word in words] == ["word"] * 27_000


@pytest.mark.parametrize(
    ("asked", "formats", "expected"),
    [
        (TextOptions(), {"lines"}, TextOptions()),
        (TextOptions("tagged", True), {"tagged"}, TextOptions("tagged", True)),
        (TextOptions("auto", normalize=True), {"jsonl"}, TextOptions()),
        (TextOptions("jsonl"), {"raw jsonl"}, TextOptions("prose")),
        (TextOptions("auto", text_key="a"), {"csv"}, TextOptions("prose", text_key="a")),
        (TextOptions("csv", normalize=True), set(), TextOptions("prose", normalize=True)),
        (TextOptions("paragraphs"), {"paragraphs"}, TextOptions("paragraphs")),
        (TextOptions("prose", True, True, "a"), set(), TextOptions("prose", True, True, "a")),
        (TextOptions("imdb", True), set(), TextOptions("prose", True)),
        (TextOptions("ptb"), set(), TextOptions()),
        (TextOptions(), {"lines", "treebank"}, TextOptions("treebank")),
    ],
)
def test_what_is_remembered(asked, formats, expected):
    assert remembered(asked, formats) == expected
    assert remembered(expected) == expected
