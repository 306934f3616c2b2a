import io
import json
import types

import pytest

from dclm_jax.data import prose, sotu
from dclm_jax.data.readers import Document, ReadStatistics, read_documents
from dclm_jax.errors import InputError


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_lines_end_documents_at_blank_lines_and_equals_signs(tmp_path):
    text = "\n\na b\nc\n \n\n== 2 ==\n\nd\n=\ne f g\n\n"
    statistics = ReadStatistics()
    documents = list(read_documents(write(tmp_path / "t.txt", text), statistics=statistics))
    assert documents == [
        Document("t.txt:3", [["a", "b"], ["c"]]),
        Document("t.txt:9", [["d"]]),
        Document("t.txt:11", [["e", "f", "g"]]),
    ]
    assert statistics == ReadStatistics(documents=3, sentences=4, tokens=7)


def test_crlf_byte_order_mark_and_missing_last_newline(tmp_path):
    path = write(tmp_path / "t", b"\xef\xbb\xbfA b\r\n\r\nC")
    assert [d.sentences for d in read_documents(path, lowercase=True)] == [[["a", "b"]], [["c"]]]


def test_jsonl_strings_lists_ids_and_empty_sentences(tmp_path):
    lines = [
        {"id": "x", "sentences": ["a  b", ["c", "d"], "", []]},
        {"sentences": ["e"]},
        {"id": 7, "sentences": [""]},
        {"id": 8, "sentences": ["f"]},
    ]
    text = "\n".join(map(json.dumps, lines[:2])) + "\n\n" + "\n".join(map(json.dumps, lines[2:]))
    statistics = ReadStatistics()
    documents = list(read_documents(write(tmp_path / "t.jsonl", text), statistics=statistics))
    assert documents == [
        Document("x", [["a", "b"], ["c", "d"]]),
        Document("t.jsonl:2", [["e"]]),
        Document("8", [["f"]]),
    ]
    assert statistics == ReadStatistics(3, 4, 6, empty_sentences=3, empty_documents=1)


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


def test_prose_is_split_into_sentences_and_words(tmp_path):
    text = (
        'Dr. Smith didn\'t\nlaugh. He left!\n\nA new "paragraph" & more\n'
        "= next =\n\nSecond document.\n"
    )
    path = write(tmp_path / "t.txt", text)
    assert list(read_documents(path, "prose", lowercase=True)) == [
        Document(
            "t.txt:1",
            [
                ["dr.", "smith", "didn", "'t", "laugh", "."],
                ["he", "left", "!"],
                ["a", "new", '"', "paragraph", '"', "&", "more"],
            ],
        ),
        Document("t.txt:7", [["second", "document", "."]]),
    ]


def test_prose_in_worker_processes_equals_one_process(monkeypatch):
    documents = [[f"Sentence one of {i}. And another ({i})?", "New paragraph"] for i in range(9)]
    alone = list(prose.split_documents(documents))
    monkeypatch.setattr(prose, "_BATCH_CHARACTERS", 100)
    assert list(prose.split_documents(iter(documents))) == alone
    assert len(alone) == 9 and len(alone[0]) == 3


def test_overlong_paragraph_loses_no_words():
    sentence = "It went on and on without an end . "
    for text in (sentence * 500, "word " * 3000, "x" * 9000):
        [sentences] = prose.split_documents([[text]])
        assert "".join("".join(words) for words in sentences) == "".join(text.split())


def test_very_long_sentence_and_document(tmp_path):
    path = write(tmp_path / "t", "w " * 50_000 + "\n" + "v\n" * 10_000)
    [document] = read_documents(path)
    assert len(document.sentences) == 10_001
    assert len(document.sentences[0]) == 50_000


def test_reading_streams(tmp_path):
    path = write(tmp_path / "t", b"a\n\nb\n\n\xff\n")
    stream = read_documents(path)
    assert next(stream).sentences == [["a"]]
    assert next(stream).sentences == [["b"]]
    with pytest.raises(InputError, match="t:5: not valid UTF-8"):
        next(stream)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", b"", r"t\.txt: is empty"),
        ("t.txt", b" \n\n= x\n", r"t\.txt: holds no documents"),
        ("t.txt", b"good\nb\xc3\x28d\n", r"t\.txt:2: not valid UTF-8"),
        ("t.jsonl", b'{"sentences": ["a"]}\n{"sentences": [\n', r"t\.jsonl:2: not valid JSON"),
        ("t.jsonl", b'["a"]\n', r"t\.jsonl:1: expected an object"),
        ("t.jsonl", b'{"text": "a"}\n', r"t\.jsonl:1: expected an object"),
        ("t.jsonl", b'{"sentences": [3]}\n', r"t\.jsonl:1: expected each sentence"),
        ("t.jsonl", b'{"sentences": [["a b"]]}\n', r"t\.jsonl:1: a word is empty or holds"),
        ("t.jsonl", b'{"id": [], "sentences": ["a"]}\n', r"t\.jsonl:1: expected 'id'"),
        ("t.jsonl", b'{"id": "a\\nb", "sentences": ["a"]}\n', r"expected 'id' to be one line"),
        ("t.jsonl", b'{"sentences": ["\\ud800"]}\n', r"t\.jsonl:1: .*surrogate"),
        ("t.jsonl", b"[" * 200_000, r"t\.jsonl:1: nested too deeply"),
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
        list(read_documents(tmp_path, "xml"))


def test_missing_text_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pysbd", None)
    with pytest.raises(InputError, match=r"pip install 'dclm_jax\[text\]'"):
        list(read_documents(write(tmp_path / "t", "Text."), "prose"))


def test_years_are_never_divided_and_never_go_back():
    years = [1, 1, 2, 3, 3, 3, 4, 5, 6, 6]
    parts = sotu.split_by_year(years, (0.8, 0.1, 0.1))
    # Year 6 begins within the validation share, so nothing is left for the last part.
    assert parts == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert sotu.split_by_year(list(range(10)), (0.8, 0.1, 0.1)) == [0] * 8 + [1, 2]
    assert sotu.split_by_year([3, 1, 2], (0.5, 0.5)) == [1, 0, 0]


def test_embedded_addresses_are_in_order():
    years = [sotu.address_year(name) for name in sotu._files()]
    assert years == sorted(years)
    assert years[0] == 1790
    assert len(years) > 230
