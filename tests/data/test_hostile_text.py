"""Text damaged, or made on purpose: every reader takes it, or refuses it in one line."""

import bz2
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dclm_jax.data.alternatives import PairColumns, read_alternatives
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import Document, TextOptions, columns
from dclm_jax.data.prepare import prepare
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.evaluation import parts_of_speech
from tests.data import test_ted as ted
from tests.data.support import read, write
from tests.fuzzing import anything, attack, attack_json, damaged, fuzz, value_or_input_error

TEXTS = {
    "lines": "the cat sat .\nit was content .\n\n= 2 =\na dog barked .\n",
    "tagged": "The/AT cat/NN sat/VBD\nIt/PPS was/BEDZ\n\n= 2 =\nA/AT dog/NN\n",
    "jsonl": '{"id": "x", "sentences": ["a b", ["c"]], "tags": ["X Y", ["Z"]]}\n'
    '{"sentences": ["it was"]}\n',
    "treebank": "( (S\n(NP-1 (-NONE- *) (DT The) (NN cat))\n(VP (VBD sat)) (. .)))\n"
    "((X (SYM \\\\*)))\n",
    "nbest": "2 a_0\n-1.5 -2\n(S1 (NN x) (. .))\n-2 -3\n(S1 (NN x))\n1 b_1\n-1\n(NN y)\n",
    "csv": 'id,text\n1,"He said ""No"". A dog, or\n\ntwo."\nx,It was.\n,\n',
    "raw": '{"id": 1, "text": "He said. A dog.\\n\\nTwo."}\n{"text": "It was."}\n{"text": ""}\n',
    "prose": 'Dr. Smith did not laugh. He left (at 5 p.m.)!\n\n1. "One" 2. two\n= 2 =\nA dog.\n',
}
ENCODINGS = ("cp1252", "latin-1", "utf-16", "utf-16-le", "utf-32", "utf-7", "ascii", "shift_jis")
TAGGER = parts_of_speech.Tagger()
PROSE_BYTES = 3000
"""The time that a long word of prose takes grows with the square of its length."""


def read_whole(path: Path, format: str, encoding: str = "utf-8") -> None:
    for document in read(path, format, encoding):
        assert document.id.splitlines() == [document.id] and document.id.encode()
        assert document.sentences and all(document.sentences)
        words = [word for sentence in document.sentences for word in sentence]
        assert all(word.split() == [word] and word.encode() for word in words)
        if document.tags is not None:
            assert list(map(len, document.tags)) == list(map(len, document.sentences))


def feed(path: Path, content: bytes, format: str, folder: Path | None = None, encoding="utf-8"):
    """Writes a file and reads it, or the folder that it lies in."""
    path.write_bytes(content)
    value_or_input_error(folder or path, lambda: read_whole(folder or path, format, encoding))


@pytest.mark.parametrize(
    ("name", "format", "suffix"),
    [
        *((format, format, "") for format in ("lines", "tagged", "jsonl")),
        *(("nbest", "nant", suffix) for suffix in ("", ".bz2", ".gz")),
    ],
)
def test_text(place, name, format, suffix):
    path, original = place / f"text.{name}{suffix}", TEXTS[name].encode()

    def check(content: bytes) -> None:
        feed(path, content, format)

    attack(check, {"": bytes, ".bz2": bz2.compress, ".gz": gzip.compress}[suffix](original), 100)


def test_json_lines(place):
    def check(content: bytes) -> None:
        feed(place / "text.jsonl", content, "jsonl")

    attack_json(check, json.loads(TEXTS["jsonl"].splitlines()[0]), 100)


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl"])
def test_raw_text_of_records(place, format):
    text = TEXTS[format if format == "csv" else "raw"]
    original = text.replace(",", "\t" if format == "tsv" else ",").encode()

    @fuzz(60)
    @given(anything() | damaged(original))
    def check(content: bytes) -> None:
        feed(place / f"raw.{format}", content[:PROSE_BYTES], format)

    check()


def read_joined(path: Path) -> None:
    """Reads a table whose rows are joined by its ids; every word has a row."""
    for document in read_documents(path, joined_by=["id"]):
        assert all(map(columns(document).get, document.rows[0]))
        if document.row_of_word is not None:
            for words, rows in zip(document.sentences, document.row_of_word, strict=True):
                assert len(words) == len(rows) and max(rows) < len(document.rows)


def read_pairs(path: Path) -> None:
    """Reads pairs of raw text."""
    columns_of_pairs = PairColumns(["good", "bad"])
    for record in read_alternatives(str(path), columns_of_pairs, TextReader(TextOptions("prose"))):
        words = [word for sentence in (*record.alternatives, *record.context) for word in sentence]
        assert len(record.alternatives) == 2
        assert all(word.split() == [word] for word in words)


REGIONS = 'id,region,text\n1,a,"He said ""No""."\n1,b,"A dog, or\n\ntwo."\nx,a,It was.\n'
PAIRS = (
    '{"good": "He said no.", "bad": "He say no.", "context": "A dog. It was.", "n": 1}\n'
    '{"good": "a", "bad": "b", "context": ["c", "d e"], "n": null}\n'
)


@pytest.mark.parametrize(
    ("read_records", "name", "original"),
    [
        (read_joined, "joined.csv", REGIONS),
        (read_joined, "joined.jsonl", TEXTS["raw"]),
        (read_pairs, "pairs.jsonl", PAIRS),
        (read_pairs, "pairs.csv", 'good,bad,context\na b,a c,It was.\nx,"y\nz",d\n'),
    ],
)
def test_regions_and_pairs(place, read_records, name, original):
    path = place / name

    @fuzz(60)
    @given(anything() | damaged(original.encode()))
    def check(content: bytes) -> None:
        path.write_bytes(content[:PROSE_BYTES])
        value_or_input_error(path, lambda: read_records(path))

    check()


@fuzz(60)
@given(anything() | damaged(TEXTS["lines"].encode()), st.sampled_from(ENCODINGS))
def test_encodings(place, content, encoding):
    feed(place / "encoded.txt", content, "lines", encoding=encoding)


BRACKETS = st.lists(
    st.sampled_from(
        ["(", "(", ")", ")", " ", "\n", "a", "-NONE-", "\\/", "1", "2 a_0\n", "-1.5\n"]
    ),
    max_size=30,
).map(lambda pieces: "".join(pieces).encode())


def test_trees_without_names(place):
    def check(content: bytes) -> None:
        feed(place / "trees", content, "nant")

    attack(check, TEXTS["treebank"].encode(), 20)
    fuzz(200)(given(BRACKETS)(check))()


def test_sections_of_a_treebank(place):
    root, original = place / "sections", TEXTS["treebank"].encode()
    for section in range(25):
        write(root / f"{section:02}" / f"wsj_{section:02}01.mrg", original)

    @fuzz(60)
    @given(anything() | BRACKETS | damaged(original))
    def check(content: bytes) -> None:
        feed(root / "13" / "wsj_1301.mrg", content, "ptb", root)

    check()


@pytest.mark.parametrize("name", [ted.TRAIN, ted.TEST])
def test_talks(place, name):
    root = ted.write_ted(place / f"talks{name}", tst2010=ted.TEST_SET)

    def check(content: bytes) -> None:
        feed(root / name, content[:PROSE_BYTES], "ted", root)

    attack(check, (root / name).read_bytes(), 60)


# Numbers and names of lists, abbreviations, and signs that splitters of sentences use themselves.
LISTS = st.lists(
    st.sampled_from([*"1 9.)(aiA\x1c\x1f\0\"'", "Dr. ", "e.g. ", "p.m. ", "...", "∯", "&ᓰ&"]),
    max_size=60,
).map(lambda pieces: "".join(pieces).encode())


@fuzz(150)
@given(anything() | damaged(TEXTS["prose"].encode()) | LISTS)
def test_prose(place, content):
    feed(place / "text.txt", content[:PROSE_BYTES], "prose")


@pytest.mark.parametrize("layout", ["lines", "imdb", "bbc"])
def test_folders(place, layout):
    """Names of files are arbitrary bytes, too."""
    folders = {
        "lines": ["a"],
        "imdb": ["train/pos", "train/neg", "test/pos", "test/neg"],
        "bbc": ["business", "entertainment", "politics", "sport", "tech"],
    }[layout]
    names = st.binary(min_size=1, max_size=20).map(
        lambda name: name.replace(b"/", b"\n").replace(b"\0", b"\xff") + b".txt"
    )

    @fuzz(40)
    @given(names, anything())
    def check(name: bytes, content: bytes) -> None:
        root = place / layout
        shutil.rmtree(root, ignore_errors=True)
        for folder in folders:
            write(root / folder / "x.txt", "A dog barked.\n")
        with open(bytes(root / folders[0]) + b"/" + name, "wb") as file:
            file.write(content[:PROSE_BYTES])
        value_or_input_error(root, lambda: read_whole(root, layout))
        if layout == "lines":
            output = place / "corpus of folders"
            value_or_input_error(root, lambda: prepare({"train": root}, output, overwrite=True))

    check()


def test_names_of_files_may_be_no_utf8(place):
    path = write(place / os.fsdecode(b"caf\xe9"), "a b\n")
    manifest = prepare({"train": path}, place / "strange")
    assert manifest.sources["train"]["name"] == str(path)
    corpus = open_corpus(place / "strange", "train")
    assert (corpus.manifest, corpus.document_ids) == (manifest, ["caf\\udce9:1"])


@fuzz(60)
@given(anything() | damaged(TEXTS["lines"].encode()) | damaged(TEXTS["jsonl"].encode()))
def test_what_is_read_is_what_a_prepared_corpus_holds(place, content):
    for name in ("text.txt", "text.jsonl"):
        path, output = write(place / name, content), place / "round trip"
        if value_or_input_error(path, lambda: prepare({"train": path}, output, overwrite=True)):  # noqa: B023
            corpus = open_corpus(output, "train")
            documents = list(read_documents(path))
            assert corpus.document_ids == [document.id for document in documents]
            for index, document in enumerate(documents):
                ids = [corpus.vocabulary.encode(words) for words in document.sentences]
                for sentence, expected in zip(corpus.document(index), ids, strict=True):
                    np.testing.assert_array_equal(sentence, expected)


@fuzz(60)
@given(st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=5))
def test_words_to_tag(words):
    pytest.importorskip("HanTa")
    tags = TAGGER(Document("x", [words]))
    assert list(map(len, tags)) == [len(words)]
