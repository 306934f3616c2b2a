import bz2
import gzip
import io
import json
import lzma
import os
import re
import types
from typing import Any

import pytest

from dclm_jax.data.documents import Document, TextOptions, columns
from dclm_jax.data.readers import TextReader, parse_documents, read_documents
from dclm_jax.errors import InputError
from tests.data.support import empty, read, sentences_of, write


def test_lines_end_documents_at_blank_lines_and_equals_signs(tmp_path):
    text = "\n\na b\nc\n \n\n== 2 ==\n\nd\n=\ne f g\n\n"
    assert read(write(tmp_path / "t.txt", text)) == [
        Document("t.txt:3", [["a", "b"], ["c"]]),
        Document("t.txt:9", [["d"]]),
        Document("t.txt:11", [["e", "f", "g"]]),
    ]


def test_jsonl_has_ids_and_empty_sentences(tmp_path):
    lines = [
        {"id": "x", "sentences": ["a  b", ["c", "d"], "", []]},
        {"sentences": ["", "The Cat", [], ["Sat"], ["="]]},
        {"id": 7, "sentences": [""]},
        {"id": 8, "sentences": ["It"]},
    ]
    text = "\n".join(map(json.dumps, lines[:2])) + "\n\n" + "\n".join(map(json.dumps, lines[2:]))
    reader = TextReader(TextOptions(lowercase=True))
    assert list(reader.documents(write(tmp_path / "t.jsonl", text))) == [
        Document("x", [["a", "b"], ["c", "d"]]),
        Document("t.jsonl:2", [["the", "cat"], ["sat"], ["="]]),
        Document("8", [["it"]]),
    ]
    assert empty(reader) == (5, 1)


def test_tagged_words_may_hold_slashes_and_begin_with_equals_signs(tmp_path):
    text = "\nThe/AT 1/2/CD //nn --/--\n=/sym a/b/NN\n \n\n= 3/4 of it =\nHe/PPS\n====\nIt/PPS\r\n"
    words = [["The", "1/2", "/", "--"], ["=", "a/b"]]
    assert read(write(tmp_path / "t.txt", text), "tagged") == [
        Document("t.txt:2", words, [["AT", "CD", "nn", "--"], ["sym", "NN"]]),
        Document("t.txt:7", [["He"]], [["PPS"]]),
        Document("t.txt:9", [["It"]], [["PPS"]]),
    ]


def test_folder_is_read_in_order_of_names_and_by_suffix(tmp_path):
    write(tmp_path / "b" / "z.txt", "last\n")
    write(tmp_path / "a.json", '{"sentences": ["first"]}\n')
    write(tmp_path / ".hidden", b"\xff")
    assert [document.id for document in read(tmp_path)] == ["a.json:1", "b/z.txt:1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"a b\n", mtime=0), "is compressed by gzip; add .gz to its name"),
        (bz2.compress(b"a b\n"), "is compressed by bzip2; add .bz2 to its name"),
        (lzma.compress(b"a b\n"), "is compressed by xz; unpack it (unxz)"),
        (b"PK\x03\x04\x14\x00", "is a zip archive, as .docx and .xlsx files are; unpack it"),
        (b"\x28\xb5\x2f\xfd\x04", "is compressed by Zstandard; unpack it"),
        (b"\x04\x22\x4d\x18d@\xa7\x04", "is compressed by LZ4; unpack it (unlz4)"),
        (lzma.compress(b"a b\n", lzma.FORMAT_ALONE), "is compressed by LZMA; unpack it (unlzma)"),
        (b"\x1f\x9d\x90a@", "is compressed by compress; unpack it (uncompress)"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an older Office document, such as .doc and"),
        (rb"{\rtf1\ansi It rained.}", "is a document in Rich Text Format; save its content"),
        (b"%PDF-1.5\n", "is a PDF document; "),
        (b"a.txt" + bytes(252) + b"ustar", "is a tar archive; "),
    ],
)
@pytest.mark.parametrize("name", ["text", "text.csv", "text.jsonl"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_files_that_are_no_text_are_named(tmp_path, name, content, message, encoding):
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=re.escape(f"{path}: {message}")):
        read(path, encoding=encoding)


@pytest.mark.parametrize(
    ("name", "header", "has", "expected"),
    [
        ("t.csv", "id;text", "semicolons", "commas"),
        ("t.csv", '"id";"text"', "semicolons", "commas"),
        ("t.csv", "id\ttext", "tabs", "commas"),
        ("t.csv", "id|text", "vertical bars", "commas"),
        ("t.tsv", "id,text", "commas", "tabs"),
        ("t.tsv", "id;text", "semicolons", "tabs"),
    ],
)
def test_tables_with_other_delimiters_are_named(tmp_path, name, header, has, expected):
    path = write(tmp_path / name, f"\ufeff{header}\na;He said, yes.\n")
    message = f"{path}:1: the header {header!r} has {has} between its cells; expected {expected} in"
    with pytest.raises(InputError, match=re.escape(message)):
        read(path)


@pytest.mark.parametrize("module", [bz2, gzip])
@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("t.jsonl", b'{"sentences": ["a b"]}\n', 1),
        ("t.txt", b"a b\n", 1),
        ("t.csv", b"text\na b", 2),
    ],
)
def test_compressed_text_is_read_as_what_is_in_it(tmp_path, module, name, content, line):
    packed = module.compress(content)
    path = write(tmp_path / f"{name}.{'gz' if module is gzip else 'bz2'}", packed)
    assert read(path) == [Document(f"{path.name}:{line}", [["a", "b"]])]
    # Cut short, or not compressed.
    for damaged in (packed[:-9], content):
        with pytest.raises(InputError, match=rf"{path.name}: cannot be read: \S"):
            read(write(path, damaged))


@pytest.mark.parametrize(
    ("encoding", "space"),
    [
        *(("cp1252", "\u00a0"), ("utf-8", "\u2028")),
        *(("utf-16", "\u2028"), ("utf-16-le", "\u2028")),
    ],
)
def test_encodings_of_files_and_of_standard_input(tmp_path, encoding, space, monkeypatch):
    content = f"été a{space}b\n\nc\n".encode(encoding)
    path = write(tmp_path / "t.txt", content)
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
    for source, label in ((path, "t.txt"), ("-", "-")):
        documents = list(read_documents(source, encoding=encoding))
        expected = [Document(f"{label}:1", [["été", "a", "b"]]), Document(f"{label}:3", [["c"]])]
        assert documents == expected


RAW = "The cat, which slept, was well. The dog, however, ran; it rained!\n" * 3


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        (RAW, True),
        ("the cat , which slept , was well .\nmr. n said n million n\n" * 9, False),
        ("the <unk> rose <s> N </s> to $ N million\n" * 20, False),
    ],
)
def test_a_note_says_that_lines_look_like_raw_text(tmp_path, text, is_noted, caplog):
    path = write(tmp_path / "t", text)
    list(read_documents(path))
    note = f"{path}: punctuation is attached to words, such as 'cat,'; if this is raw text"
    assert [line.startswith(note) for line in caplog.messages] == [True] * is_noted


def test_reading_streams(tmp_path):
    stream = read_documents(write(tmp_path / "t", b"a\n\n" * 100 + b"\xff\n"))
    # More lines than a note depends on.
    assert [next(stream).sentences for _ in range(100)] == [[["a"]]] * 100
    with pytest.raises(InputError, match="t:201: not valid UTF-8"):
        next(stream)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("UTF-8", "utf-8"), ("utf8", "utf-8"), ("utf-16-le", "utf-16-le")],
)
def test_utf8_has_other_names_and_marks_of_the_order_of_bytes_are_no_text(tmp_path, name, codec):
    path = write(tmp_path / "t.txt", "\ufeffthe cat\r\n\r\nno end".encode(codec))
    assert sentences_of(path, encoding=name) == [[["the", "cat"]], [["no", "end"]]]


# Text that is refused.

TWO_REGIONS = "id,r,text\n1,a,He said\n1,b,no.\n"
BAD_TEXTS: dict[str, list[tuple[str | bytes, dict[str, Any], str]]] = {
    "lines": [
        ("", {}, ": is empty; expected text"),
        (" \n\n= x\n", {}, ": has no documents; expected text"),
        (b"a\nit\x92s\n", {}, ":2: not valid UTF-8: the byte 0x92 at position 3; set --encoding"),
        ("a\n".encode("utf-16"), {}, ":1: not valid UTF-8: the byte 0xff .* utf-16$"),
        ("\u201cis\u201d", dict(encoding="cp1252"), ":1: not valid cp1252: the byte 0x9d at"),
        (b"\xff\xfea\0\n\0b", dict(encoding="utf-16"), r": not valid utf-16 after line 1 \("),
        ("a\n", dict(joined_by=["id"]), ": is read as lines, which has no rows to join; choose"),
    ],
    "tagged": [
        ("The/AT\n\nof a/AT\n", {}, ":3: the token 'of' has no word or no tag; write WORD/TAG"),
        ("The/AT\n/IN\n", {}, ":2: the token '/IN' has no word or no tag; write WORD/TAG"),
    ],
    "jsonl": [
        ('{"text": "a"}\n{"text": }\n', {}, ":2: not JSON"),
        ('{"text": "a"}{"text": "b"}\n', {}, ":1: not JSON: Extra data"),
        ('[{"id": 1}]', {}, r""":1: the line is '\[{"id": 1}\]'; write one JSON object per line"""),
        ('{\n"text": "a"\n}', {}, ":1: the line is '{'; write one JSON object per line"),
        ('{"body": 1}', {}, ":1: the record has no key 'text' and no 'sentences'; .*: 'body'$"),
        ('{"text": "a"}\n{"text": null}', {}, ":2: 'text' is None; write a string"),
        ('{"text": "\\ud800"}', {}, ":1: the record has half of a surrogate pair"),
        ('{"id": [], "sentences": ["a"]}', {}, r":1: 'id' is \[\]; write one line of text or a"),
        ('{"id": "a\\nb", "sentences": ["a"]}', {}, r":1: 'id' is 'a\\nb'; write one line of"),
        ('{"sentences": [""]}', {}, ": has no documents"),
        ('{"sentences": [3]}', {}, ":1: a sentence is 3; write a string or a list of words"),
        ('{"sentences": [["a b"]]}', {}, ":1: a word is 'a b'; write characters without white"),
        ('{"sentences": "a"}', {}, ":1: 'sentences' is 'a'; write a list of sentences"),
        ('{"sentences": ["a"]}', dict(joined_by=["x"]), ":1: .* only raw text can be joined"),
    ],
    "csv": [
        ("id,text\n", {}, ": has no documents"),
        ("id,body\n1,a\n", {}, ":2: the record has no column 'text'; .* from: 'id', 'body'$"),
        ("text,text\n1,a\n", {}, ":1: the table has 2 columns 'text'; rename one of them"),
        ("id,text\n1,a\n\n2,b,c\n", {}, ":4: the row has 3 cells, but the header has 2; add or r"),
        ('id,text\n1,"a"b\n', {}, r":2: the row that begins on this line is not valid CSV \("),
        ('id,text\n1,a\n2,"b\nc\n', {}, r":3: the row that begins .* not valid CSV \(unexpected"),
        ("id,text\n1,a\n2,b\n1,c\n", {}, ":4: the id '1' is also at .*t.csv:2; give each record"),
        (TWO_REGIONS, dict(joined_by=["item"]), ":2: .*no column 'item'; choose from: 'id', 'r'"),
        (f"{TWO_REGIONS}1,c, ", dict(joined_by=["id"]), ":4: the row has no word; add its text"),
        (
            f"{TWO_REGIONS}2,a,x\n1,c,y",
            dict(joined_by=["id"]),
            ":5: '1' also has rows at .*:2, ",
        ),
    ],
    "tsv": [
        ('id\ttext\n1\t"a,\nb"\n', {}, ":3: the row has 1 cells, but the header has 2; add or r"),
    ],
}
"""By format the text, options of `read_documents`, and the message after the name of the file."""


@pytest.mark.parametrize(
    ("format", "text", "options", "message"),
    [(format, *row) for format, rows in BAD_TEXTS.items() for row in rows],
)
def test_bad_text_is_refused_with_its_line(tmp_path, format, text, options, message):
    path = write(tmp_path / f"t.{format}", text)
    with pytest.raises(InputError, match=f"^{path}{message}"):
        list(read_documents(path, TextOptions(format), **options))


def test_ids_are_different_in_all_files_of_a_folder(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", '{"id": 1, "sentences": ["a"]}\n')
    with pytest.raises(InputError, match=r"b\.jsonl:1: the id '1' is also at .*a\.jsonl:1; give"):
        read(tmp_path)


def test_missing_input(tmp_path):
    with pytest.raises(InputError, match="none: no such file or folder"):
        read(tmp_path / "none")
    with pytest.raises(InputError, match="name of an input is empty"):
        next(read_documents(""))
    with pytest.raises(InputError, match="has no files"):
        read(tmp_path)
    with pytest.raises(InputError, match="encoding 'utf-9' is unknown; expected an encoding such"):
        read(write(tmp_path / "t", "a\n"), encoding="utf-9")


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root takes nobody's rights")
def test_what_may_not_be_read_is_refused(tmp_path):
    """A file, and a folder that cannot be listed, are not omitted."""
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    file = write(tmp_path / "a.txt", "a\n")
    closed = write(tmp_path / "closed" / "b.txt", "a\n").parent
    file.chmod(0o000)
    closed.chmod(0o000)
    os.seteuid(65534)
    try:
        for path, named in ((file, file), (tmp_path, closed)):
            with pytest.raises(InputError, match=f"^{named}: cannot be read: Permission denied"):
                read(path)
    finally:
        os.seteuid(0)


def test_a_folder_of_two_encodings_is_refused_with_the_numbers_of_files(tmp_path):
    for name, text in (("a.txt", "caf\u00e9"), ("b.txt", "plain"), ("c.txt", "na\u00efve")):
        write(tmp_path / name, f"{text}\n".encode())
    write(tmp_path / "d.txt", "caf\u00e9\n".encode("cp1252"))
    message = (
        "d.txt:1: not valid UTF-8: .* at position 4; 1 of 4 files are not valid utf-8, and 2 have"
    )
    with pytest.raises(InputError, match=message):
        read(tmp_path)
    # Without other characters in the other files, --encoding is the remedy.
    for name in "ac":
        write(tmp_path / f"{name}.txt", "plain\n")
    with pytest.raises(InputError, match=r"d.txt:1: .*set --encoding, such as cp1252.*utf-16$"):
        read(tmp_path)


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_utf8_in_another_encoding_is_warned_of(tmp_path, encoding, warns):
    path = write(tmp_path / "t.txt", "caf\u00e9\nplain\nna\u00efve\n".encode())
    with warns(
        "lines of UTF-8 that --encoding turns into wrong characters: 2, such as 'cafÃ©'; remove"
    ):
        list(read_documents(path, encoding=encoding))
    path = write(tmp_path / "t.txt", "caf\u00e9\n".encode(encoding))
    assert [document.sentences for document in read_documents(path, encoding=encoding)]
    path = write(tmp_path / "t.txt", "caf\u00e9\n".encode("utf-16"))
    assert list(read_documents(path, encoding="utf-16"))


def test_punctuation_attached_in_strings_of_json_lines_is_noted(tmp_path, caplog):
    caplog.set_level("INFO", "dclm_jax")
    records = [{"sentences": ["Well, it rained.", "Yes, we left, too."]} for _ in range(3)]
    path = write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, records)))
    assert len(read(path)) == 3
    note = (
        "punctuation is attached to words in 'sentences', such as 'Well,'; if these are raw text, w"
    )
    assert sum(note in message for message in caplog.messages) == 1
    caplog.clear()
    # Lists of words are taken as they are.
    lists = [
        {"sentences": [sentence.split() for sentence in record["sentences"]]} for record in records
    ]
    read(write(path, "\n".join(map(json.dumps, lists))))
    assert not caplog.messages


def test_a_title_in_a_cell_and_in_a_string_is_omitted_and_counted(tmp_path, caplog):
    pytest.importorskip("sacremoses")
    caplog.set_level("INFO", "dclm_jax")
    text = "It rained.\n== The history ==\nWe left =5.\n"
    (in_string,) = parse_documents(text, TextOptions(format="prose"), "t")
    expected = [["It", "rained", "."], ["We", "left", "=", "5", "."]]
    assert in_string == Document("t", expected)
    title = "titles in lines that begin with =: 1; title words omitted"
    assert sum(title in message for message in caplog.messages) == 1
    table = write(tmp_path / "t.csv", f'text\n"{text}"\n')
    assert sentences_of(table) == [expected]
    assert sum(title in message for message in caplog.messages) == 2
    regions = write(tmp_path / "r.csv", "id,text\n1,It is\n1,= 5.\n")
    (joined,) = read_documents(regions, joined_by=["id"])
    assert joined.sentences == [["It", "is", "=", "5", "."]]


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("1\n00:00:01,000 --> 00:00:02,500\nIt rained.\n", "subtitles"),
        ("0:00:01.000,0:00:02.500\nIt rained.\n", "subtitles"),
        ("\nWEBVTT\n\n00:01.000 --> 00:02.000\nIt rained.\n", "subtitles"),
        ("# newdoc\n# sent_id = 1\n1\tIt\tit\tPRON\t_\t_\t2\tnsubj\t_\t_\n", "CoNLL"),
        ("1\tIt\tit\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\tr\tr\tV\t_\t_\t0\troot\t_\t_\n", "CoNLL"),
        ("-DOCSTART- -X- -X- O\n\nIt PRP B-NP O\n", "CoNLL"),
        ('<doc id="1">\nIt rained.\n</doc>\n', "XML"),
        ("@UTF8\n@Begin\n*CHI:\tit rained .\n", "a transcript of CHAT"),
        ('<?xml version="1.0"?>\n<p>It rained.</p>\n', "XML"),
    ],
)
def test_files_in_other_layouts_are_warned_of(tmp_path, text, layout, caplog):
    path = write(tmp_path / "t.txt", text)
    list(read_documents(path))
    warning = f"{path}: files that begin like {layout}, whose marks are read as words: 1, such as"
    assert sum(message.startswith(warning) for message in caplog.messages) == 1
    caplog.clear()
    # Such marks later in a text, and numbers of lines, are text.
    list(read_documents(write(path, "It rained.\n" * 30 + text)))
    list(read_documents(write(path, "1 It rained .\n2 We left .\n# a comment\n")))
    for first in (
        "# text of the book",
        "WEBVTTs are good .",
        "<unk> is it .",
        "<s> it rained . </s>",
    ):
        list(read_documents(write(path, f"{first}\n")))
    assert "begin like" not in caplog.text
    if layout == "XML":
        list(read_documents(write(path, text), TextOptions(strip_html=True)))
        assert "begin like" not in caplog.text


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_several_columns_are_parts_of_one_text(tmp_path, suffix):
    pytest.importorskip("sacremoses")
    rows = [
        {"n": "1", "context": "It rained. We", "target": "left. Yes."},
        {"n": "2", "context": "", "target": "We left."},
    ]
    table = "".join(
        f"{','.join(row.values())}\n" for row in ({name: name for name in rows[0]}, *rows)
    )
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path = write(tmp_path / f"t.{suffix}", table if suffix == "csv" else lines)
    options = TextOptions(text_key="context,target")
    first, second = read_documents(path, options)
    assert first.sentences == [["It", "rained", "."], ["We", "left", "."], ["Yes", "."]]
    assert columns(first) == {
        "n": [["1"] * 4, ["1"] * 4, ["1"] * 3],
        "text_key": [
            ["context"] * 3 + [None],
            ["context", "target", "target", None],
            ["target", "target", None],
        ],
    }
    assert columns(second)["text_key"] == [["target"] * 3 + [None]]
    # As rows that were joined.
    joined = [{"n": row["n"], "text": row[key]} for row in rows for key in ("context", "target")]
    regions = write(
        tmp_path / "r.jsonl", "".join(json.dumps(r) + "\n" for r in joined if r["text"])
    )
    both = read_documents(regions, joined_by=["n"])
    assert [document.sentences for document in both] == [first.sentences, second.sentences]
    with pytest.raises(
        InputError, match="no (column|key) 'before'.*to the parts of a text such as context,target"
    ):
        list(read_documents(path, TextOptions(text_key="before,target")))
    with pytest.raises(
        InputError, match="the column text_key has the name of a column of the result; rename"
    ):
        named = write(
            tmp_path / f"n.{suffix}",
            path.read_text().replace("n,", "text_key,").replace('"n"', '"text_key"'),
        )
        list(read_documents(named, options))
