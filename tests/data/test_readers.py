import bz2
import gzip
import io
import json
import os
import re
import types

import pytest

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.errors import InputError
from tests.data.support import empty, write


def test_lines_end_documents_at_blank_lines_and_equals_signs(tmp_path):
    text = "\n\na b\nc\n \n\n== 2 ==\n\nd\n=\ne f g\n\n"
    assert list(read_documents(write(tmp_path / "t.txt", text))) == [
        Document("t.txt:3", [["a", "b"], ["c"]]),
        Document("t.txt:9", [["d"]]),
        Document("t.txt:11", [["e", "f", "g"]]),
    ]


def test_crlf_byte_order_mark_and_missing_last_newline(tmp_path):
    path = write(tmp_path / "t", b"\xef\xbb\xbfA b\r\n\r\nC")
    assert [d.sentences for d in read_documents(path, TextOptions(lowercase=True))] == [
        [["a", "b"]],
        [["c"]],
    ]


def test_jsonl_strings_lists_ids_and_empty_sentences(tmp_path):
    lines = [
        {"id": "x", "sentences": ["a  b", ["c", "d"], "", []]},
        {"sentences": ["e"]},
        {"id": 7, "sentences": [""]},
        {"id": 8, "sentences": ["f"]},
    ]
    text = "\n".join(map(json.dumps, lines[:2])) + "\n\n" + "\n".join(map(json.dumps, lines[2:]))
    reader = TextReader()
    assert list(reader.documents(write(tmp_path / "t.jsonl", text))) == [
        Document("x", [["a", "b"], ["c", "d"]]),
        Document("t.jsonl:2", [["e"]]),
        Document("8", [["f"]]),
    ]
    assert empty(reader) == (3, 1)


def test_tagged_words_may_hold_slashes_and_begin_with_equals_signs(tmp_path):
    text = "\nThe/AT 1/2/CD //nn --/--\n=/sym a/b/NN\n \n\n= 3/4 of it =\nHe/PPS\n====\nIt/PPS\r\n"
    path = write(tmp_path / "t.txt", text)
    assert list(read_documents(path, TextOptions("tagged"))) == [
        Document(
            "t.txt:2",
            [["The", "1/2", "/", "--"], ["=", "a/b"]],
            [["AT", "CD", "nn", "--"], ["sym", "NN"]],
        ),
        Document("t.txt:7", [["He"]], [["PPS"]]),
        Document("t.txt:9", [["It"]], [["PPS"]]),
    ]


def test_lower_case_is_for_words_and_not_for_tags(tmp_path):
    path = write(tmp_path / "t", "He/PPS RAN/VBD\n")
    [document] = read_documents(path, TextOptions("tagged", lowercase=True))
    assert document == Document("t:1", [["he", "ran"]], [["PPS", "VBD"]])


def test_jsonl_tags_stay_with_their_words_where_empty_sentences_are_dropped(tmp_path):
    lines = [
        {
            "sentences": ["", "The Cat", [], ["Sat"], ["="]],
            "tags": [[], ["DT", "NN"], "", " VBD ", "SYM"],
        },
        {"sentences": ["It"], "tags": None},
        {"sentences": [""], "tags": [""]},
    ]
    reader = TextReader(TextOptions(lowercase=True))
    path = write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, lines)))
    assert list(reader.documents(path)) == [
        Document("t.jsonl:1", [["the", "cat"], ["sat"], ["="]], [["DT", "NN"], ["VBD"], ["SYM"]]),
        Document("t.jsonl:2", [["it"]], None),
    ]
    assert empty(reader) == (3, 1)


@pytest.mark.parametrize("token", ["of", "/IN", "of/", "/", "=/", "a//"])
def test_a_token_that_is_no_word_and_tag_is_refused(tmp_path, token):
    path = write(
        tmp_path / "t", f"The/AT\n\n{token} a/AT\n" if token == "=/" else f"\n\na/AT {token}"
    )
    with pytest.raises(InputError, match=rf"t:3: expected .* as WORD/TAG, got '{token}'"):
        list(read_documents(path, TextOptions("tagged")))


def test_a_brown_line_without_its_tags_is_refused_after_the_documents_before_it(tmp_path):
    stream = read_documents(
        write(tmp_path / "t", "a/b\n\nThe/AT jury said/VBD\n"), TextOptions("tagged")
    )
    assert next(stream).tags == [["b"]]
    with pytest.raises(InputError, match=r"t:3: .*'jury'"):
        next(stream)


def test_folder_is_read_in_order_of_names_and_by_suffix(tmp_path):
    (tmp_path / "b").mkdir()
    write(tmp_path / "b" / "z.txt", "last\n")
    write(tmp_path / "a.json", '{"sentences": ["first"]}\n')
    write(tmp_path / ".hidden", b"\xff")
    assert [d.id for d in read_documents(tmp_path)] == ["a.json:1", "b/z.txt:1"]


def test_standard_input(monkeypatch):
    stdin = types.SimpleNamespace(buffer=io.BytesIO(b"a\n\nb\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert [d.id for d in read_documents("-")] == ["-:1", "-:3"]


TAGGED = "The/at cat/nn sat/vbd ./.\nThe/at dog/nn saw/vbd the/at cat/nn ./.\n"


@pytest.mark.parametrize("module", [bz2, gzip])
@pytest.mark.parametrize("name", ["t.jsonl", "t.txt", "t.csv"])
def test_compressed_text_is_read_as_what_is_in_it(tmp_path, module, name):
    content = {"t.jsonl": '{"sentences": ["a b"]}\n', "t.txt": "a b\n", "t.csv": "text\na b\n"}[
        name
    ]
    path = tmp_path / f"{name}.{'gz' if module is gzip else 'bz2'}"
    path.write_bytes(module.compress(content.encode()))
    line = 2 if name == "t.csv" else 1
    assert list(read_documents(path)) == [Document(f"{path.name}:{line}", [["a", "b"]])]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=rf"{path.name}: cannot be read: "):
        list(read_documents(path))
    path.write_bytes(content.encode())
    with pytest.raises(InputError, match=rf"{path.name}: cannot be read: "):
        list(read_documents(path))


@pytest.mark.parametrize(
    "encoding", ["cp1252", "latin-1", "utf-8", "utf-16", "utf-16-le", "utf-32"]
)
def test_encodings(tmp_path, encoding, monkeypatch):
    text = "\u00e9t\u00e9 a\u2028b\n\nc\n".replace(
        "\u2028", "\u00a0" if encoding[0] in "cl" else "\u2028"
    )
    path = write(tmp_path / "t.txt", text.encode(encoding))
    expected = [Document("t.txt:1", [["été", "a", "b"]]), Document("t.txt:3", [["c"]])]
    assert list(read_documents(path, encoding=encoding)) == expected
    monkeypatch.setattr(
        "sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(text.encode(encoding)))
    )
    piped = [Document("-:1", expected[0].sentences), Document("-:3", expected[1].sentences)]
    assert list(read_documents("-", encoding=encoding)) == piped


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        ("it \u201cis\u201d\n".encode(), "cp1252", r":1: not valid cp1252: the byte 0x9d at 11; "),
        (
            b"a\nit\x92s\n",
            "utf-8",
            r":2: not valid UTF-8: the byte 0x92 at 3; --encoding names another, such as cp1252,",
        ),
        (b"\xe9\x81\n", "utf-8", r":1: not valid UTF-8: the byte 0xe9 at 1; "),
        ("a\n".encode("utf-16"), "utf-8", r":1: not valid UTF-8: the byte 0xff at 1; .* utf-16$"),
        ("a\né\n".encode(), "ascii", r":2: not valid ascii: the byte 0xc3 at 1; "),
        (b"\xff\xfea\x00\n\x00b", "utf-16", r"t: not valid utf-16 after line 1: "),
        (b"a\x00\n\x00\x00\xd8", "utf-16-le", r"t: not valid utf-16-le after line "),
        (b"+2AA-\n", "utf-7", r":1: not valid utf-7"),
        (b"a", "utf-9", r"there is no encoding 'utf-9'; expected one such as utf-8, cp1252"),
        (b"a", "base64", r"there is no encoding 'base64'"),
        (b"a", "rot13", r"there is no encoding 'rot13'"),
        (b"a", "a\0b", r"there is no encoding"),
    ],
)
def test_what_is_not_in_the_encoding_is_named(tmp_path, content, encoding, message):
    with pytest.raises(InputError, match=message):
        list(read_documents(write(tmp_path / "t", content), encoding=encoding))


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (TAGGED, "tagged"),
        ("= a heading =\n\n" + TAGGED, "tagged"),
        ("The/DT cat/NN\n", "tagged"),
        ("=/SYM a/DT\n\n= it =\nHe/PRP ran/VBD\n= it =\n", "tagged"),
        ("``/`` No/UH ''/'' -LRB-/-LRB- he/PRP 's/VBZ 1/2/CD $/$ 3/CD ./.\n", "tagged"),
        (
            "Austin/np-hl ,/,-hl said/vbd+to ber*/ber* its/pp$ a/at a/at a/at b/nn c/nn\n" * 2,
            "tagged",
        ),
        ("it was 1/2 of w/o and/or\n", "lines"),
        ("http://a.org/B http://a.org/C\nhttp://a.org/D http://b.org/B\n", "lines"),
        ("usr/bin usr/lib\netc/ssh var/log\n", "lines"),
        ("usr/bin\nopt/bin\nown/bin\n", "lines"),
        ("1/2/2020 3/4/2021\n", "lines"),
        ("and/or he/she\n", "lines"),
        ("/ /\n", "lines"),
        ("a b c\n", "lines"),
    ],
)
def test_tagged_text_is_recognised(tmp_path, text, format):
    path, told = write(tmp_path / "t", text), []
    reader = TextReader(report=told.append)
    found = list(reader.documents(path))
    assert found == list(read_documents(path, TextOptions(format)))
    assert reader.formats == {format}
    tagged = [f"note: {path}: read as tagged text: its words are WORD/TAG"]
    assert [line for line in told if "that begin with =" not in line] == (
        tagged if format == "tagged" else []
    )
    # What is said is done.
    assert list(read_documents(path, TextOptions("lines")))[0].tags is None


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("prose", '{"text": "It rained."}\n', r"looks like JSON lines; --format=jsonl reads them"),
        ("prose", "The/AT cat/NN\nsat/VBD\n", r"looks like words with tags, WORD/TAG; --format=t"),
        ("lines", "a , b , c\nd , e , f\n", None),
        ("lines", "the <unk> rose <s> N </s> to $ N million\n" * 20, None),
        ("prose", "Well, he said.\nYes, he did.\n", None),
        ("jsonl", '{"sentences": ["{ { {", "} } }", "{ {", "} } }"]}\n', None),
    ],
)
def test_what_seems_to_be_no_text_is_told(tmp_path, format, text, message):
    path, told = write(tmp_path / "t", text), []
    list(read_documents(path, TextOptions(format), report=told.append))
    told = [line for line in told if line.startswith("warning: ")]
    assert len(told) == (message is not None)
    if message:
        assert told[0].startswith(f"warning: {path}: ")
        assert re.search(message, told[0])


def test_of_many_files_the_first_one_is_told(tmp_path):
    for name in "abc":
        write(tmp_path / f"{name}.txt", "It was, yes, {name}\n" * 10 if name != "a" else "x\n")
    told = []
    assert len(list(read_documents(tmp_path, report=told.append))) == 3
    assert [line.split(":")[:2] for line in told] == [["warning", f" {tmp_path / 'b.txt'}"]]
    told.clear()
    (tmp_path / "tagged").mkdir()
    for name in "de":
        write(tmp_path / "tagged" / f"{name}.txt", TAGGED)
    assert len(list(read_documents(tmp_path / "tagged", report=told.append))) == 2
    first = tmp_path / "tagged" / "d.txt"
    assert [line.split(":")[:2] for line in told] == [["note", f" {first}"]]


def test_reading_streams(tmp_path):
    stream = read_documents(write(tmp_path / "t", b"a\n\n" * 100 + b"\xff\n"))
    # More lines than a format is guessed from.
    assert [next(stream).sentences for _ in range(100)] == [[["a"]]] * 100
    with pytest.raises(InputError, match="t:201: not valid UTF-8"):
        next(stream)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", b"", r"t\.txt: is empty"),
        ("t.txt", b" \n\n= x\n", r"t\.txt: holds no documents"),
        ("t.txt", b"good\nb\xc3\x28d\n", r"t\.txt:2: not valid UTF-8"),
        ("t.jsonl", b'{"sentences": ["a"]}\n{"sentences": [}\n', r"t\.jsonl:2: not JSON"),
        ("t.jsonl", b'"a"\n', r"t\.jsonl:1: is '\"a\"'; expected JSON lines: an object on each"),
        ("t.jsonl", b'{"body": "a"}\n', r"t\.jsonl:1: has no 'text', nor 'sentences' .*: 'body'$"),
        (
            "t.jsonl",
            b'{"sentences": ["a"]}\n{"text": "a"}\n',
            r"t\.jsonl:2: sentences is missing; expected a list",
        ),
        ("t.jsonl", b'{"sentences": [3]}\n', r"t\.jsonl:1: expected each sentence"),
        ("t.jsonl", b'{"sentences": [["a b"]]}\n', r"t\.jsonl:1: a word is empty or holds"),
        ("t.jsonl", b'{"id": [], "sentences": ["a"]}\n', r"t\.jsonl:1: expected 'id'"),
        ("t.jsonl", b'{"id": "a\\nb", "sentences": ["a"]}\n', r"expected 'id' to be one line"),
        ("t.jsonl", b'{"sentences": ["\\ud800"]}\n', r"t\.jsonl:1: .*surrogate"),
        ("t.jsonl", b'{"sentences": ["a"], "tags": ["\\ud800"]}\n', r"t\.jsonl:1: .*surrogate"),
        (
            "t.jsonl",
            b'{"sentences": ["a"]}\n{"sentences": ["a", "b c d"], "tags": ["X", ["X", "Y"]]}\n',
            r"t\.jsonl:2: sentence 2 has 3 words but 2 tags",
        ),
        (
            "t.jsonl",
            b'{"sentences": ["", "b"], "tags": ["X", ""]}\n',
            r"t\.jsonl:1: sentence 1 has 0 words but 1 tags",
        ),
        (
            "t.jsonl",
            b'{"sentences": ["a", "b"], "tags": ["X"]}\n',
            r"t\.jsonl:1: has 2 sentences but tags for 1",
        ),
        (
            "t.jsonl",
            b'{"sentences": ["a"], "tags": "X"}\n',
            r":1: tags is 'X'; expected a list",
        ),
        ("t.jsonl", b'{"sentences": ["a"], "tags": [1]}\n', r":1: expected the tags of each"),
        ("t.jsonl", b'{"sentences": ["a"], "tags": [["X Y"]]}\n', r":1: a tag is empty or holds"),
        ("t.jsonl", b'{"a":' * 200_000 + b"}", r"t\.jsonl:1: nested too deeply"),
        ("t.jsonl", b'{"sentences": [""]}\n', r"t\.jsonl: holds no documents"),
    ],
)
def test_bad_input_names_file_and_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        list(read_documents(write(tmp_path / name, content)))


def test_missing_input_and_unknown_format(tmp_path):
    with pytest.raises(InputError, match="none: no such file"):
        list(read_documents(tmp_path / "none"))
    with pytest.raises(InputError, match="name of an input is empty"):
        list(read_documents(""))
    with pytest.raises(InputError, match="holds no files"):
        list(read_documents(tmp_path))
    with pytest.raises(InputError, match="unknown format 'xml'"):
        list(read_documents(tmp_path, TextOptions("xml")))


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root takes nobody's rights")
def test_what_may_not_be_read_is_told(tmp_path):
    """A folder that cannot be listed, or not be entered, and a file; none is left out."""
    root = tmp_path / "texts"
    closed = root / "closed"
    closed.mkdir(parents=True)
    for path in (root / "a.txt", closed / "b.txt", root / "c.txt"):
        write(path, "a\n")
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    for mode, named in ((0o000, "closed"), (0o744, "closed")):
        closed.chmod(mode)
        assert_refused(root, f"{root / named}.*: cannot be read: Permission denied")
    closed.chmod(0o755)
    (root / "c.txt").chmod(0o000)
    assert_refused(root, f"{root / 'c.txt'}: cannot be read: Permission denied")
    root.chmod(0o000)
    assert_refused(root / "a.txt", f"{root / 'a.txt'}: cannot be read: Permission denied")


def assert_refused(path, message):
    os.seteuid(65534)
    try:
        with pytest.raises(InputError, match=message):
            list(read_documents(path))
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_no_text_but_a_word_may_hold_a_nul(tmp_path, encoding):
    path = tmp_path / "t.txt"
    path.write_bytes("the cat sat\n\nit slept\n".encode(encoding))
    with pytest.raises(InputError, match=r"t.txt:1: is no text in utf-8: .*--encoding=utf-16-le"):
        list(read_documents(path))
    sentences = [one.sentences for one in read_documents(path, encoding=encoding)]
    assert sentences == [[["the", "cat", "sat"]], [["it", "slept"]]]
    path.write_text("the c\0t sat\n")
    assert [one.sentences for one in read_documents(path)] == [[["the", "c\0t", "sat"]]]


@pytest.mark.parametrize("name", ["UTF-8", "utf8", "U8"])
def test_utf8_has_other_names_and_its_mark_is_no_text(tmp_path, name):
    path = tmp_path / "t.txt"
    path.write_bytes("\ufeffthe cat\n".encode())
    assert [one.sentences for one in read_documents(path, encoding=name)] == [[["the", "cat"]]]
    path.write_bytes("\ufeffthe cat\n".encode("utf-16-le"))
    (document,) = read_documents(path, encoding="utf-16-le")
    assert document.sentences == [["the", "cat"]]


def test_what_the_first_file_of_a_folder_is_the_others_are(tmp_path):
    """A later file may be too short to guess from."""
    write(tmp_path / "a", "the/at cat/nn sat/vbd\nit/pps slept/vbd\nthe/at dog/nn\n" * 3)
    write(tmp_path / "b", "a/at cat/nn\n")
    reader = TextReader()
    *_, last = reader.documents(tmp_path)
    assert (last.sentences, last.tags) == ([["a", "cat"]], [["at", "nn"]])
    assert reader.formats == {"tagged"}


def test_raw_text_that_is_taken_for_lines_of_words_is_told(tmp_path):
    raw = "The cat, which slept, was well. The dog, however, ran; it rained!\n" * 3
    told: list[str] = []
    list(read_documents(write(tmp_path / "raw.txt", raw), report=told.append))
    (warning,) = told
    assert "looks like raw text, whose marks stand at words, such as 'cat,';" in warning
    assert "--format=prose" in warning
    words = "the cat , which slept , was well .\nmr. n said n million n\n" * 9
    list(read_documents(write(tmp_path / "words.txt", words), report=told.append))
    assert len(told) == 1


@pytest.mark.parametrize(
    ("format", "content", "message"),
    [
        ("treebank", b"(\n" * 1_000_001, ":1000001: more than 1,000,000 brackets are open; a ) is"),
        ("lines", b"x" * (2**24 + 1), ":1: the line is longer than 16 MiB; expected lines of te"),
        ("prose", b"a b\n" + b"x " * (2**23 + 1), ":2: the line is longer than 16 MiB"),
        ("prose", b"a\n\n" + b"x" * 1_000_001, "'text:1' holds a word of more than 1,000,000 cha"),
        (
            "csv",
            b'text\n"' + (b"x" * 2**23 + b"\n") * 2,
            ":2: the row that begins here is no CSV: field larg",
        ),
    ],
)
def test_what_no_text_has_is_refused_before_it_fills_the_memory(tmp_path, format, content, message):
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        list(read_documents(path, TextOptions(format)))
    assert str(error.value).startswith(str(path))
