import bz2
import gzip
import io
import json
import os
import types

import pytest

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.errors import InputError
from tests.data.support import empty, read, sentences_of, write


def test_lines_end_documents_at_blank_lines_and_equals_signs(tmp_path):
    text = "\n\na b\nc\n \n\n== 2 ==\n\nd\n=\ne f g\n\n"
    assert read(write(tmp_path / "t.txt", text)) == [
        Document("t.txt:3", [["a", "b"], ["c"]]),
        Document("t.txt:9", [["d"]]),
        Document("t.txt:11", [["e", "f", "g"]]),
    ]


def test_jsonl_has_ids_tags_and_empty_sentences(tmp_path):
    """Tags stay with their words where empty sentences are dropped, and in their case."""
    lines = [
        {"id": "x", "sentences": ["a  b", ["c", "d"], "", []]},
        {
            "sentences": ["", "The Cat", [], ["Sat"], ["="]],
            "tags": [[], ["DT", "NN"], "", " VBD ", "SYM"],
        },
        {"id": 7, "sentences": [""], "tags": [""]},
        {"id": 8, "sentences": ["It"], "tags": None},
    ]
    text = "\n".join(map(json.dumps, lines[:2])) + "\n\n" + "\n".join(map(json.dumps, lines[2:]))
    reader = TextReader(TextOptions(lowercase=True))
    assert list(reader.documents(write(tmp_path / "t.jsonl", text))) == [
        Document("x", [["a", "b"], ["c", "d"]]),
        Document("t.jsonl:2", [["the", "cat"], ["sat"], ["="]], [["DT", "NN"], ["VBD"], ["SYM"]]),
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


@pytest.mark.parametrize("token", ["of", "/IN", "of/", "/", "=/", "a//"])
def test_a_token_that_is_no_word_and_tag_is_refused(tmp_path, token):
    path = write(tmp_path / "t", f"The/AT\n\n{token} a/AT\n")
    with pytest.raises(
        InputError, match=rf"t:3: the token '{token}' has no word or no tag; write WORD"
    ):
        read(path, "tagged")


def test_folder_is_read_in_order_of_names_and_by_suffix(tmp_path):
    write(tmp_path / "b" / "z.txt", "last\n")
    write(tmp_path / "a.json", '{"sentences": ["first"]}\n')
    write(tmp_path / ".hidden", b"\xff")
    assert [document.id for document in read(tmp_path)] == ["a.json:1", "b/z.txt:1"]


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
    # Cut short, not compressed, and with other bytes inside.
    for damaged in (packed[:-9], content, packed[:10] + b"\xff" * 30):
        with pytest.raises(InputError, match=rf"{path.name}: cannot be read: \S"):
            read(write(path, damaged))


@pytest.mark.parametrize(
    ("encoding", "space"),
    [
        *(("cp1252", "\u00a0"), ("latin-1", "\u00a0"), ("utf-8", "\u2028")),
        *(("utf-16", "\u2028"), ("utf-16-le", "\u2028"), ("utf-32", "\u2028")),
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


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (
            "it \u201cis\u201d\n".encode(),
            "cp1252",
            r":1: not valid cp1252: the byte 0x9d at position 11",
        ),
        (
            b"a\nit\x92s\n",
            "utf-8",
            r":2: not valid UTF-8: the byte 0x92 at position 3; set --encoding, such as",
        ),
        (b"\xe9\x81\n", "utf-8", r":1: not valid UTF-8: the byte 0xe9 at position 1; "),
        (
            "a\n".encode("utf-16"),
            "utf-8",
            r":1: not valid UTF-8: the byte 0xff .* utf-16$",
        ),
        ("a\né\n".encode(), "ascii", r":2: not valid ascii: the byte 0xc3 at position 1; "),
        (b"\xff\xfea\x00\n\x00b", "utf-16", r"t: not valid utf-16 after line 1 \("),
        (b"a\x00\n\x00\x00\xd8", "utf-16-le", r"t: not valid utf-16-le after line "),
        (b"+2AA-\n", "utf-7", r":1: not valid utf-7"),
        (b"a", "utf-9", r"encoding 'utf-9' is unknown; expected an encoding such as utf-8, cp1252"),
        (b"a", "base64", r"encoding 'base64' is unknown"),
        (b"a", "rot13", r"encoding 'rot13' is unknown"),
        (b"a", "a\0b", r"is unknown; expected an encoding"),
    ],
)
def test_what_is_not_in_the_encoding_is_named(tmp_path, content, encoding, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "t", content), encoding=encoding)


RAW = "The cat, which slept, was well. The dog, however, ran; it rained!\n" * 3


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        (RAW, True),
        ("the cat , which slept , was well .\nmr. n said n million n\n" * 9, False),
        ("the <unk> rose <s> N </s> to $ N million\n" * 20, False),
    ],
)
def test_a_note_says_that_lines_look_like_raw_text(tmp_path, text, is_noted):
    path, reports = write(tmp_path / "t", text), []
    list(read_documents(path, report=reports.append))
    note = f"note: {path}: punctuation is attached to words, such as 'cat,'; if this is raw text"
    assert [report.startswith(note) for report in reports] == [True] * is_noted


def test_reading_streams(tmp_path):
    stream = read_documents(write(tmp_path / "t", b"a\n\n" * 100 + b"\xff\n"))
    # More lines than a note depends on.
    assert [next(stream).sentences for _ in range(100)] == [[["a"]]] * 100
    with pytest.raises(InputError, match="t:201: not valid UTF-8"):
        next(stream)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"sentences": ["a"]}\n{"sentences": [}\n', r"t\.jsonl:2: not JSON"),
        (
            b'{"body": "a"}\n',
            r"t\.jsonl:1: the record has no key 'text' and no 'sentences'; .*from: 'body'$",
        ),
        (b'{"sentences": [3]}\n', r"t\.jsonl:1: a sentence is 3; write a string or a"),
        (b'{"sentences": [["a b"]]}\n', r"t\.jsonl:1: a word is 'a b'; write char"),
        (b'{"id": [], "sentences": ["a"]}\n', r"t\.jsonl:1: 'id' is \[\]; write a string"),
        (b'{"id": "a\\nb", "sentences": ["a"]}\n', r"'id' is 'a\\nb', which has a line"),
        (b'{"sentences": ["\\ud800"]}\n', r"t\.jsonl:1: .*surrogate"),
        (b'{"sentences": ["a"], "tags": ["\\ud800"]}\n', r"t\.jsonl:1: .*surrogate"),
        (b'{"sentences": ["a", "b c d"], "tags": ["X", ["X", "Y"]]}', r"3 words, but 2"),
        (b'{"sentences": ["", "b"], "tags": ["X", ""]}', r"sentence 1 has 0 words, b"),
        (b'{"sentences": ["a", "b"], "tags": ["X"]}', r"has 2 sentences, but tags for"),
        (b'{"sentences": ["a"], "tags": "X"}', r":1: tags is 'X'; expected a list"),
        (b'{"sentences": ["a"], "tags": [1]}\n', r":1: the tags of a sentence are 1; w"),
        (b'{"sentences": ["a"], "tags": [["X Y"]]}\n', r":1: a tag is 'X Y'; write cha"),
        (b'{"a":' * 200_000 + b"}", r"t\.jsonl:1: nested too deeply"),
        (b'{"sentences": [""]}\n', r"t\.jsonl: has no documents"),
        (
            b'[{"id": 1}]\n',
            r":1: the line is '\[{\"id\": 1}\]'; write one JSON object per line, with",
        ),
        (b'\n[\n{"text": "a"}\n]\n', r"t\.jsonl:2: the line is '\['; write one JSON object"),
        (b'{\n"text": "a"\n}\n', r"t\.jsonl:1: the line is '{'; write one JSON object per"),
        (b'{"id": 1,\n"text": "a"}\n', r":1: the line is '{\"id\": 1,'; write one JSON object"),
        (b'{"text": "a"}\n[1]\n', r"t\.jsonl:2: the line is '\[1\]'; write one JSON object"),
    ],
)
def test_bad_json_lines_are_refused_with_their_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "t.jsonl", content))


def test_text_without_documents_is_refused(tmp_path):
    for content, message in ((b"", "is empty"), (b" \n\n= x\n", "has no documents")):
        with pytest.raises(InputError, match=rf"t\.txt: {message}"):
            read(write(tmp_path / "t.txt", content))


def test_missing_input(tmp_path):
    with pytest.raises(InputError, match="none: no such file"):
        read(tmp_path / "none")
    with pytest.raises(InputError, match="name of an input is empty"):
        next(read_documents(""))
    with pytest.raises(InputError, match="has no files"):
        read(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root takes nobody's rights")
def test_what_may_not_be_read_is_refused(tmp_path):
    """A folder that cannot be listed, or not be entered, and a file; none is left out."""
    root = tmp_path / "texts"
    closed = root / "closed"
    closed.mkdir(parents=True)
    for path in (root / "a.txt", closed / "b.txt", root / "c.txt"):
        write(path, "a\n")
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    for mode in (0o000, 0o744):
        closed.chmod(mode)
        assert_refused(root, f"{closed}.*: cannot be read: Permission denied")
    closed.chmod(0o755)
    (root / "c.txt").chmod(0o000)
    assert_refused(root, f"{root / 'c.txt'}: cannot be read: Permission denied")
    root.chmod(0o000)
    assert_refused(root / "a.txt", f"{root / 'a.txt'}: cannot be read: Permission denied")


def assert_refused(path, message):
    os.seteuid(65534)
    try:
        with pytest.raises(InputError, match=message):
            read(path)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("UTF-8", "utf-8"), ("utf8", "utf-8"), ("U8", "utf-8"), ("utf-16-le", "utf-16-le")],
)
def test_utf8_has_other_names_and_marks_of_the_order_of_bytes_are_no_text(tmp_path, name, codec):
    path = write(tmp_path / "t.txt", "\ufeffthe cat\r\n\r\nno end".encode(codec))
    assert sentences_of(path, encoding=name) == [[["the", "cat"]], [["no", "end"]]]
