"""Randomly damaged files: every reader returns a result, or raises an `InputError` that names the
file."""

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dclm_jax import files
from dclm_jax.data import subwords, text_files
from dclm_jax.data.corpora import treebank
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.data.subwords import load_vocabulary
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.evaluation.minimal_pairs import read_alternatives
from dclm_jax.rescoring import nbest
from dclm_jax.training.config import default_config
from dclm_jax.training.workdir import metrics_lines, read_config
from tests.data import test_ted as ted
from tests.data.support import read, write
from tests.exhaustive import some
from tests.test_files import GOOD, Record

pytest.importorskip("sentencex")
pytest.importorskip("sacremoses")


class Reader(NamedTuple):
    """A reader, with the name and the content of a file that it can read."""

    name: str
    content: str | bytes
    read: Callable[[Path], Any]


def joined(path: Path) -> Any:
    return list(read_documents(path, joined_by=["id"]))


def pairs(path: Path) -> Any:
    reader = TextReader(TextOptions("prose"))
    return list(read_alternatives(str(path), ["good", "bad"], reader))


def trees(path: Path) -> Any:
    return list(treebank.read_trees(text_files.read_lines(path), str(path)))


def talks(path: Path) -> Any:
    return read(write(path.with_name(ted.TEST), ted.TEST_SET).parent, "ted")


def talks_to_test(path: Path) -> Any:
    return read(write(path.with_name(ted.TRAIN), ted.TALKS).parent, "ted")


def reviews(path: Path) -> Any:
    for folder in ("train/neg", "test/pos", "test/neg"):
        write(path.parents[2] / folder / "0_1.txt", "A film.\n")
    return read(path.parents[2], "imdb")


def costs(path: Path) -> Any:
    write(path.parent / nbest.KALDI_WORDS, "u-1 a b\nu-2 a\n")
    return nbest.read_nbest(str(path.parent))


def of_list(read: Callable[[str, nbest.NBestList], Any]) -> Callable[[Path], Any]:
    """A reader of a file that belongs to an n-best list of two segments."""

    def of_two_segments(path: Path) -> Any:
        lists = nbest.read_nbest(str(write(path.parent / "two", "0 ||| a\n1 ||| b\n")))
        return read(str(path), lists)

    return of_two_segments


def pieces_folder(folder: Path) -> Path:
    """A saved vocabulary of subwords."""
    subwords.learn({"ab": 3, "ba": 2}, 260, 1).save(folder / "vocabulary.tsv")
    return folder


def saved_pieces(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return (pieces_folder(Path(folder)) / name).read_bytes()


def of_pieces(name: str) -> Callable[[Path], Any]:
    """A reader of one file of a vocabulary of subwords; the others are sound."""

    def read_one(path: Path) -> Any:
        content = path.read_bytes()
        write(pieces_folder(path.parent) / name, content)
        vocabulary = load_vocabulary(path.parent)
        return vocabulary.decode(vocabulary.encode(["abba", "Ω"]).tolist())

    return read_one


READERS = {
    "lines": Reader("t", "the cat sat .\nit was .\n\n= 2 =\na dog barked .\n", read),
    "UTF-16": Reader("t", "cat\n\nsat".encode("utf-16"), lambda p: read(p, encoding="utf-16")),
    "tagged": Reader("t", "The/AT cat/NN\nIt/PPS\n\n= 2 =\nA/AT\n", lambda p: read(p, "tagged")),
    "prose": Reader("t", "Dr. A did. He left!\n\n1. One\n= 2\nA dog.", lambda p: read(p, "prose")),
    "words in JSON": Reader(
        "t.jsonl",
        '{"id": "x", "sentences": ["a b", ["c"]]}\n{"sentences": ["d"]}\n',
        read,
    ),
    "text in JSON": Reader(
        "t.jsonl", '{"id": 1, "text": "No. A dog.\\n\\nTwo."}\n{"text": ""}', read
    ),
    "CSV": Reader("t.csv", 'id,text\n1,"He said ""No"". A dog, or\n\ntwo."\nx,It was.\n,\n', read),
    "TSV": Reader("t.tsv", "id\ttext\n1\tHe said no.\nx\tIt was.\n", read),
    "joined rows": Reader("t.csv", 'id,r,text\n1,a,"He said"\n1,b,"No. A dog,"\nx,a,It.\n', joined),
    "pairs": Reader(
        "t.jsonl",
        '{"good": "He said no.", "bad": "He say no.", "context": "A dog. It was.", "n": 1}\n'
        '{"good": "a", "bad": "b", "n": null}\n',
        pairs,
    ),
    "table of pairs": Reader("t.csv", 'good,bad,context\na b,a c,It was.\nx,"y\nz",d\n', pairs),
    "trees": Reader("t", "( (S\n(NP-1 (-NONE- *)\n(NN cat)) (. .)))\n", trees),
    "parses": Reader("t", "1 a_0\n-1.5 -2\n(S1 (NN x) (. .))\n", lambda p: read(p, "nant")),
    "talks": Reader(ted.TRAIN, ted.TALKS, talks),
    "test set of talks": Reader(ted.TEST, ted.TEST_SET, talks_to_test),
    "reviews": Reader("imdb/train/pos/0_7.txt", "A film.<br /><br />I saw it twice.", reviews),
    "vocabulary": Reader(
        "v.tsv", "<START>\t3\n<END>\t3\n<UNKNOWN>\t1\t<unk>\na\t3\nb\t2\n", Vocabulary.load
    ),
    "word counts": Reader("word_counts.tsv", "ab\t3\nba\t2\n", of_pieces("word_counts.tsv")),
    "entries of pieces": Reader(
        "vocabulary.tsv", saved_pieces("vocabulary.tsv"), of_pieces("vocabulary.tsv")
    ),
    "pieces": Reader("pieces.model", saved_pieces("pieces.model"), of_pieces("pieces.model")),
    "list of Moses": Reader(
        "t",
        "0 ||| a b ||| LM0= -1 TM0= -3 -4 ||| -7\n0 ||| ||| LM0=-2 TM0=1 2 ||| -8\n",
        lambda path: nbest.read_nbest(str(path)),
    ),
    "list of Kaldi": Reader("t", "u-1 a b\nu-2 a\nv-1\n", lambda p: nbest.read_nbest(str(p))),
    "costs of Kaldi": Reader("kaldi/acwt", "u-1 312.5\nu-2 311\n", costs),
    "documents of a list": Reader("t", "0 x\n1 y\n", of_list(nbest.read_division)),
    "references of a list": Reader("t", "a b\nc\n", of_list(nbest.read_references)),
    "metrics": Reader(
        "metrics.jsonl",
        '{"kind": "valid", "step": 1, "tokens": 2, "seconds": 3, "perplexity": 4}\n',
        lambda path: metrics_lines(path.parent),
    ),
    "configuration": Reader(
        "config.json",
        json.dumps({**default_config("ccdclm").to_dict(), "data": {"directory": "corpus"}}),
        lambda path: read_config(path.parent),
    ),
    "record": Reader("t.json", json.dumps(GOOD), lambda path: files.read_json(path, Record)),
}

PIECES = [
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b"\xe2\x80\xa8", b"NaN", b"1e999"),
    *(
        b"-1",
        b"9" * 20,
        b"null",
        b"\\ud800",
        b"<END>",
        b"||| ",
        b"=",
        b'"',
        b"{",
        b"[",
        b"(",
        b"<",
    ),
]


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A file in which a few bytes, words or lines are changed, lost, added or swapped."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["change", "replace", "cut", "insert", "delete", "swap"])):
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "replace" if words := [word.span() for word in re.finditer(rb"[\w.]+", data)]:
                begin, end = draw(st.sampled_from(words))
                data[begin:end] = draw(st.sampled_from(PIECES))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.sampled_from(PIECES))
            case "delete":
                del data[at : at + draw(st.integers(1, 30))]
            case "swap":
                lines = data.split(b"\n")
                first, second = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
                lines[first], lines[second] = lines[second], lines[first]
                data = bytearray(b"\n".join(lines))
    return bytes(data)


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(place, name):
    reader = READERS[name]
    path = place / name / reader.name
    reader.read(write(path, reader.content))

    @settings(
        max_examples=some(60, all=1000),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(damaged(path.read_bytes()))
    def check(content: bytes) -> None:
        try:
            reader.read(write(path, content))
        except InputError as error:
            assert str(path.parent) in str(error) and str(error).isprintable()

    check()
