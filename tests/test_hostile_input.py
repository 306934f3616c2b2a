"""Files damaged, or made on purpose: every reader takes them, or refuses them in one line."""

import bz2
import gzip
import hashlib
import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dclm_jax
from dclm_jax import ngram
from dclm_jax.data import (
    Corpus,
    Document,
    TrainingBatches,
    Vocabulary,
    open_corpus,
    prepare,
    read_documents,
    statistics_table,
)
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN
from dclm_jax.errors import InputError, printable
from dclm_jax.evaluation import parts_of_speech
from dclm_jax.experiments import pictures, plots, summary
from dclm_jax.experiments.runs import read_runs
from dclm_jax.training.config import default_config
from dclm_jax.training.workdir import read_config
from tests.data import test_ted as ted
from tests.experiments.test_runs import write_run
from tests.fuzzing import anything, attack, attack_json, damaged, fuzz, value_or_input_error
from tests.test_ngram import HAS_KENLM, MODEL, StandIn

TEXTS = {
    "lines": "the cat sat .\nit was content .\n\n= 2 =\na dog barked .\n",
    "tagged": "The/AT cat/NN sat/VBD\nIt/PPS was/BEDZ\n\n= 2 =\nA/AT dog/NN\n",
    "jsonl": '{"id": "x", "sentences": ["a b", ["c"]], "tags": ["X Y", ["Z"]]}\n'
    '{"sentences": ["it was"]}\n',
    "treebank": "( (S\n(NP-1 (-NONE- *) (DT The) (NN cat))\n(VP (VBD sat)) (. .)))\n"
    "((X (SYM \\\\*)))\n",
    "nbest": "2 a_0\n-1.5 -2\n(S1 (NN x) (. .))\n-2 -3\n(S1 (NN x))\n1 b_1\n-1\n(NN y)\n",
    "auto": "The/AT cat/NN sat/VBD\nIt/PPS was/BEDZ\n\n= 2 =\nA/AT dog/NN\n",
    "csv": 'id,text\n1,"He said ""No"". A dog, or\n\ntwo."\nx,It was.\n,\n',
    "raw": '{"id": 1, "text": "He said. A dog.\\n\\nTwo."}\n{"text": "It was."}\n{"text": ""}\n',
    "prose": 'Dr. Smith did not laugh. He left (at 5 p.m.)!\n\n1. "One" 2. two\n= 2 =\nA dog.\n',
}
ENCODINGS = ("cp1252", "latin-1", "utf-16", "utf-16-le", "utf-32", "utf-7", "ascii", "shift_jis")
VOCABULARY = b"<START>\t3\n<END>\t3\n<UNKNOWN>\t1\t<unk>\na\t3\nb\t2\n"
ARRAYS = ("tokens", "sentence_offsets", "document_offsets")
TAGGER = parts_of_speech.Tagger()
EXTREMES = [0, 1, 2, 3, 4, 5, 6, 7, -1, 2**31 - 1, -(2**31)]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory for files that every example writes anew."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("prepared")
    (root / "text").write_text("a b\na\n\nb a c\n\na b c d\n")
    prepare({"train": root / "text"}, root / "corpus", vocab_size=3)
    return root / "corpus"


@pytest.fixture(scope="module")
def with_tags(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("with_tags")
    (root / "text").write_text("a/X b/Y\na/X\n\nb/Y a/X c/Z\n\na/X b/Y c/Z d/Y\n")
    prepare({"train": root / "text"}, root / "corpus", vocab_size=3, format="tagged")
    return root / "corpus"


# Text.


def read_whole(path: Path, format: str, encoding: str = "utf-8") -> None:
    for document in read_documents(path, format, encoding=encoding):
        assert document.id.splitlines() == [document.id] and document.id.encode()
        assert document.sentences and all(document.sentences)
        words = [word for sentence in document.sentences for word in sentence]
        assert all(word.split() == [word] and word.encode() for word in words)
        if document.tags is not None:
            assert list(map(len, document.tags)) == list(map(len, document.sentences))


@pytest.mark.parametrize("format", ["lines", "tagged", "jsonl", "treebank", "auto"])
def test_text(place, format):
    path = place / f"text.{format}"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        value_or_input_error(path, lambda: read_whole(path, format))

    attack(check, TEXTS[format].encode(), 100)
    if format == "jsonl":
        attack_json(check, json.loads(TEXTS[format].splitlines()[0]), 100)


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl"])
def test_raw_text_of_records(place, format):
    path, text = place / f"raw.{format}", TEXTS[format if format == "csv" else "raw"]

    @fuzz(60)
    @given(anything() | damaged(text.replace(",", "\t" if format == "tsv" else ",").encode()))
    def check(content: bytes) -> None:
        # The time that a long word takes grows with the square of its length.
        path.write_bytes(content[:3000])
        value_or_input_error(path, lambda: read_whole(path, format))

    check()


@fuzz(60)
@given(anything() | damaged(TEXTS["lines"].encode()), st.sampled_from(ENCODINGS))
def test_encodings(place, content, encoding):
    path = place / "encoded.txt"
    path.write_bytes(content)
    value_or_input_error(path, lambda: read_whole(path, "lines", encoding))


BRACKETS = st.lists(
    st.sampled_from(
        ["(", "(", ")", ")", " ", "\n", "a", "-NONE-", "\\/", "1", "2 a_0\n", "-1.5\n"]
    ),
    max_size=30,
).map(lambda pieces: "".join(pieces).encode())


def test_nbest_lists(place):
    folder = place / "parses"
    folder.mkdir(exist_ok=True)

    def check(content: bytes) -> None:
        (folder / "x").write_bytes(content)
        value_or_input_error(folder, lambda: read_whole(folder, "nant"))

    attack(check, TEXTS["nbest"].encode(), 100)
    attack(check, TEXTS["treebank"].encode(), 20)
    fuzz(200)(given(BRACKETS)(check))()


@pytest.mark.parametrize("module", [bz2, gzip])
def test_compressed_parses(place, module):
    folder = place / module.__name__
    folder.mkdir(exist_ok=True)

    def check(content: bytes) -> None:
        (folder / f"x.{'gz' if module is gzip else 'bz2'}").write_bytes(content)
        value_or_input_error(folder, lambda: read_whole(folder, "nant"))

    attack(check, module.compress(TEXTS["nbest"].encode()), 100)


@pytest.mark.parametrize("suffix", [".mrg", ""])
def test_sections_of_a_treebank(place, suffix):
    root = place / f"treebank{suffix}"
    original = TEXTS["treebank" if suffix else "prose"].encode()
    for section in range(25):
        (root / f"{section:02}").mkdir(parents=True, exist_ok=True)
        (root / f"{section:02}" / f"wsj_{section:02}01{suffix}").write_bytes(original)

    @fuzz(60)
    @given(anything() | BRACKETS | damaged(original))
    def check(content: bytes) -> None:
        # The time that the words of a long line take grows with the square of its length.
        (root / "13" / f"wsj_1301{suffix}").write_bytes(content if suffix else content[:3000])
        value_or_input_error(root, lambda: read_whole(root, "ptb"))

    check()


@pytest.mark.parametrize("name", [ted.TRAIN, ted.TEST])
def test_talks(place, name):
    root = ted.write_ted(place / f"talks{name}", tst2010=ted.TEST_SET)
    original = (root / name).read_bytes()

    def check(content: bytes) -> None:
        # The time that the words of a long line take grows with the square of its length.
        (root / name).write_bytes(content[:3000])
        value_or_input_error(root, lambda: read_whole(root, "ted"))

    attack(check, original, 60)


# Numbers and names of the lists that pysbd looks for, apart from what they are made of.
LISTS = st.lists(
    st.sampled_from([*"1 9.)(aiA\x1c\x1f\0\"'", "Dr. ", "e.g. ", "p.m. ", "...", "∯", "&ᓰ&"]),
    max_size=60,
).map(lambda pieces: "".join(pieces).encode())


@fuzz(150)
@given(anything() | damaged(TEXTS["prose"].encode()) | LISTS)
def test_prose(place, content):
    path = place / "text.txt"
    # The time that a long word takes grows with the square of its length.
    path.write_bytes(content[:3000])
    value_or_input_error(path, lambda: read_whole(path, "prose"))
    value_or_input_error(path, lambda: read_whole(path, "paragraphs"))


def test_a_number_after_a_separator_of_files_is_split_off(place):
    path = place / "separators.txt"
    path.write_bytes(b"a\x1c 1. b\x1c1. c \x1d2. d\x1e 3. e\x1f4. f\n")
    assert sum(map(len, next(read_documents(path, "prose")).sentences)) >= 9


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
            (root / folder).mkdir(parents=True)
            (root / folder / "x.txt").write_bytes(b"A dog barked.\n")
        with open(bytes(root / folders[0]) + b"/" + name, "wb") as file:
            file.write(content[:3000])
        value_or_input_error(root, lambda: read_whole(root, layout))
        if layout == "lines":
            output = place / "corpus of folders"
            value_or_input_error(root, lambda: prepare({"train": root}, output, overwrite=True))

    check()


def test_names_of_files_may_be_no_utf8(place):
    path = place / os.fsdecode(b"caf\xe9")
    path.write_text("a b\n")
    manifest = prepare({"train": path}, place / "strange")
    assert manifest.sources["train"]["name"] == str(path)
    corpus = open_corpus(place / "strange", "train")
    assert (corpus.manifest, corpus.document_ids) == (manifest, ["caf\\udce9:1"])


@fuzz(60)
@given(anything() | damaged(TEXTS["lines"].encode()) | damaged(TEXTS["jsonl"].encode()))
def test_what_is_read_is_what_a_prepared_corpus_holds(place, content):
    for name in ("text.txt", "text.jsonl"):
        path, output = place / name, place / "round trip"
        path.write_bytes(content)
        if value_or_input_error(path, lambda: prepare({"train": path}, output, overwrite=True)):  # noqa: B023
            corpus = open_corpus(output, "train")
            documents = list(read_documents(path))
            assert corpus.document_ids == [document.id for document in documents]
            for index, document in enumerate(documents):
                ids = [corpus.vocabulary.encode(words) for words in document.sentences]
                for one, other in zip(corpus.document(index), ids, strict=True):
                    np.testing.assert_array_equal(one, other)


@fuzz(60)
@given(st.lists(st.text(min_size=1, max_size=50), min_size=1, max_size=5))
def test_words_to_tag(words):
    pytest.importorskip("HanTa")
    tags = TAGGER(Document("x", [words]))
    assert list(map(len, tags)) == [len(words)]


# The vocabulary.


def test_vocabulary(place):
    path = place / "vocabulary.tsv"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        if vocabulary := value_or_input_error(path, lambda: Vocabulary.load(path)):
            vocabulary.save(path)
            assert Vocabulary.load(path) == vocabulary
            ids = vocabulary.encode(vocabulary.words)
            assert UNKNOWN <= ids.min() and ids.max() < len(vocabulary)
            own = vocabulary.unknown_token
            assert own is None or own.split() == [own]

    attack(check, VOCABULARY, 200)


# A prepared corpus.


def copied(prepared: Path, place: Path) -> Path:
    directory = place / "copied"
    shutil.rmtree(directory, ignore_errors=True)
    return Path(shutil.copytree(prepared, directory))


def forge(directory: Path, **contents: bytes) -> None:
    """Replaces files of the split, and makes the manifest agree with them."""
    manifest = json.loads((directory / "manifest.json").read_text())
    entry = manifest["splits"]["train"]
    for kind, content in contents.items():
        name = f"train.{kind}.{'txt' if kind == 'document_ids' else 'bin'}"
        (directory / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        entry["files"][name] = {"bytes": len(content), "sha256": digest}
    entry["tokens"] = entry["files"]["train.tokens.bin"]["bytes"] // 4
    entry["sentences"] = max(0, entry["files"]["train.sentence_offsets.bin"]["bytes"] // 8 - 1)
    entry["documents"] = max(0, entry["files"]["train.document_offsets.bin"]["bytes"] // 8 - 1)
    (directory / "manifest.json").write_text(json.dumps(manifest))


def use(directory: Path, verify: bool = False) -> Corpus:
    """Reads everything of a corpus, as training and evaluation do."""
    corpus = open_corpus(directory, "train", verify=verify)
    assert statistics_table(corpus.manifest)
    size = len(corpus.vocabulary)
    documents = [corpus.document(index) for index in range(corpus.num_documents)]
    words = [id for document in documents for sentence in document for id in sentence.tolist()]
    assert words == corpus.tokens.tolist() and corpus.vocabulary.decode(words)
    batches = TrainingBatches(corpus, segment_length=2, batch_size=2, seed=0)
    for step in range(batches.steps_per_epoch):
        targets = batches(step).targets_BxSxN
        assert 0 <= targets.min() and targets.max() < size
    assert len(corpus.document_ids) == corpus.num_documents
    for index, document in enumerate(documents):
        if (tags := corpus.document_tags(index)) is not None:
            assert list(map(len, tags)) == list(map(len, document))
            assert all(tag.split() == [tag] for own in tags for tag in own)
    return corpus


def test_manifest(prepared, place):
    directory = copied(prepared, place)
    sources = {"train": prepared.parent / "text"}

    def check(content: bytes) -> None:
        (directory / "manifest.json").write_bytes(content)
        value_or_input_error(directory, lambda: use(directory))
        value_or_input_error(directory, lambda: prepare(sources, directory, vocab_size=3))

    attack_json(check, json.loads((prepared / "manifest.json").read_text()), 100)


@pytest.mark.parametrize("name", [*(f"train.{kind}.bin" for kind in ARRAYS), "vocabulary.tsv"])
def test_damaged_files_of_a_corpus(prepared, place, name):
    directory = copied(prepared, place)

    def check(content: bytes) -> None:
        (directory / name).write_bytes(content)
        for verify in (False, True):
            value_or_input_error(directory, lambda: use(directory, verify))  # noqa: B023

    attack(check, (directory / name).read_bytes(), 60)


@pytest.mark.parametrize("name", ["train.tags.bin", "tags.tsv", "manifest.json"])
def test_damaged_tags_of_a_corpus(with_tags, place, name):
    directory = copied(with_tags, place)
    assert use(directory, verify=True).document_tags(1) == [["Y", "X", "Z"]]
    manifest = json.loads((directory / "manifest.json").read_text())

    def check(content: bytes) -> None:
        (directory / name).write_bytes(content)
        if name != "manifest.json":
            digest = hashlib.sha256(content).hexdigest()
            manifest["tags"][name] = {"bytes": len(content), "sha256": digest}
            (directory / "manifest.json").write_text(json.dumps(manifest))
        for verify in (False, True):
            value_or_input_error(directory, lambda: use(directory, verify))  # noqa: B023

    attack(check, (directory / name).read_bytes(), 60)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.tags.bin", [0, 1, 0, 1, 0, 2, 0, 1, 2, 3], "holds the tag 3; expected .* 0 to 2"),
        ("train.tags.bin", [0, 1, 0, 1, 0, 2, 0, 1, 2, -1], "holds the tag -1; expected .* 0 to 2"),
        ("train.tags.bin", [0, 1, 0], "has 3 values; the manifest says 10"),
        ("tags.tsv", b"X\t4\nY\t4\n", "train.tags.bin: holds the tag 2; expected .* 0 to 1"),
        ("tags.tsv", b"X\t4\nY Z\t4\nZ\t2\n", "tags.tsv:2: expected tag<TAB>count, got 'Y Z"),
        ("tags.tsv", b"X\t4\nY\nZ\t2\n", "tags.tsv:2: expected tag<TAB>count, got 'Y"),
        ("tags.tsv", b"X\t4\nY\t4\n\xff\n", "tags.tsv:3: not valid UTF-8"),
        ("tags.tsv", b"", "tags.tsv: is empty"),
        ("tags.tsv", None, "manifest.json: names the files of tags .*; expected tags.tsv and"),
        (
            "train.tags.bin",
            None,
            "manifest.json: names the files of tags .*; expected tags.tsv and",
        ),
        (
            "../secret",
            b"secret",
            "manifest.json: names the files of tags .*; expected tags.tsv and",
        ),
        ("test.tags.bin", b"", "manifest.json: names the files of tags .*; expected tags.tsv and"),
    ],
)
def test_tags_that_do_not_fit(with_tags, place, name, content, message):
    directory = copied(with_tags, place)
    manifest = json.loads((directory / "manifest.json").read_text())
    if content is None:
        del manifest["tags"][name]
    else:
        content = content if isinstance(content, bytes) else np.array(content, "<i4").tobytes()
        (directory / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        manifest["tags"][name] = {"bytes": len(content), "sha256": digest}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=message):
        open_corpus(directory, "train")
    if "manifest.json" not in message:
        # Opening reads no tags, so that they are checked where they are read.
        with pytest.raises(InputError, match=message):
            open_corpus(directory, "train").document_tags(2)


def test_forged_arrays_of_a_corpus(prepared, place):
    directory = copied(prepared, place)
    values = st.lists(st.sampled_from(EXTREMES), max_size=8)
    rising = values.map(sorted)
    good = [np.fromfile(prepared / f"train.{kind}.bin", "<i8").tolist() for kind in ARRAYS[1:]]

    @fuzz(400)
    @given(values, rising | values | st.just(good[0]), rising | values | st.just(good[1]))
    def check(tokens: list[int], sentences: list[int], documents: list[int]) -> None:
        tokens = (tokens * 10)[: len(np.fromfile(prepared / "train.tokens.bin", "<i4"))]
        forge(
            directory,
            tokens=np.array(tokens, "<i4").tobytes(),
            sentence_offsets=np.array(sentences, "<i8").tobytes(),
            document_offsets=np.array(documents, "<i8").tobytes(),
        )
        for verify in (False, True):
            value_or_input_error(directory, lambda: use(directory, verify))  # noqa: B023

    check()


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("sentence_offsets", [0, 2, 2, 6, 10], "expected offsets that rise from 0 to 10"),
        ("sentence_offsets", [0, 3, 2, 6, 10], "expected offsets that rise from 0 to 10"),
        ("sentence_offsets", [1, 2, 3, 6, 10], "expected offsets that rise from 0 to 10"),
        ("sentence_offsets", [0, 2, 3, 6, 11], "expected offsets that rise from 0 to 10"),
        ("sentence_offsets", [0, -1, 3, 6, 10], "expected offsets that rise from 0 to 10"),
        # Differences of neighbours would overflow, and all be positive.
        ("sentence_offsets", [0, 2**63 - 1, -(2**63), -2, 10], "that rise from 0 to 10"),
        ("document_offsets", [0, 2, 3, 5], "expected offsets that rise from 0 to 4"),
        ("document_offsets", [], "cannot be mapped into memory"),
        ("tokens", [3, 4, 3, 4, 3, 2, 3, 4, 2, 6], "the id 6; expected those of words, 2 to 5"),
        ("tokens", [3, 4, 3, 4, 3, 2, 3, 4, 2, 1], "the id 1; expected those of words, 2 to 5"),
        ("tokens", [3, 4, 3, 4, 3, 2, 3, 4, 2, -1], "the id -1; expected those of words"),
    ],
)
def test_arrays_that_do_not_fit(prepared, place, kind, values, message):
    directory = copied(prepared, place)
    forge(directory, **{kind: np.array(values, "<i4" if kind == "tokens" else "<i8").tobytes()})
    with pytest.raises(InputError, match=rf"train.{kind}.bin: .*{message}"):
        open_corpus(directory, "train")
    if kind != "tokens":
        with pytest.raises(InputError, match=message):
            open_corpus(directory, "train", verify=False)
        return
    # They are checked where they are read as well.
    corpus = open_corpus(directory, "train", verify=False)
    with pytest.raises(InputError, match=message):
        corpus.document(2)
    batches = TrainingBatches(corpus, segment_length=9, batch_size=9, seed=0)
    with pytest.raises(InputError, match=message):
        batches(0)


def test_numbers_that_differ_from_those_of_the_manifest(prepared, place):
    directory = copied(prepared, place)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["splits"]["train"]["documents"] = 2
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="document_offsets.bin: has 4 values; .* says 3"):
        open_corpus(directory, "train")


def test_document_ids(prepared, place):
    directory = copied(prepared, place)

    def check(content: bytes) -> None:
        forge(directory, document_ids=content)
        value_or_input_error(directory, lambda: use(directory))

    attack(check, (prepared / "train.document_ids.txt").read_bytes(), 60)
    forge(directory, document_ids=b"a\rb\n\n\xe2\x80\xa8\n")
    assert open_corpus(directory, "train").document_ids == ["a\rb", "", "\u2028"]


# Paths.


@pytest.mark.parametrize("name", ["../secret", "SECRET", "train.tokens.bin/../../secret", None])
@pytest.mark.parametrize("where", ["vocabulary", "train"])
@pytest.mark.parametrize("instead", [True, False])
def test_a_manifest_names_no_other_files(prepared, place, name, where, instead):
    directory = copied(prepared, place)
    secret = place / "secret"
    secret.write_bytes(b"secret")
    manifest = json.loads((directory / "manifest.json").read_text())
    entry = manifest["vocabulary"] if where == "vocabulary" else manifest["splits"]["train"]
    if instead or name is None:
        del entry["files"]["vocabulary.tsv" if where == "vocabulary" else "train.tokens.bin"]
    if name is not None:
        # Right in every other respect.
        described = {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}
        entry["files"][name.replace("SECRET", str(secret))] = described
    (directory / "manifest.json").write_text(json.dumps(manifest))
    message = r"manifest.json: names the files .*; expected "
    for verify in (False, True):
        with pytest.raises(InputError, match=message):
            open_corpus(directory, "train", verify=verify)


@pytest.mark.parametrize("name", ["../secret", "/secret", "..", "a/b"])
def test_a_manifest_names_no_other_splits(prepared, place, name):
    directory = copied(prepared, place)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["splits"][name] = manifest["splits"]["train"]
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="manifest.json: names a split .*expected train, valid"):
        open_corpus(directory, name)


@pytest.mark.parametrize(
    "name",
    [
        *("train.tokens.bin", "train.document_ids.txt", "vocabulary.tsv"),
        *("tags.tsv", "train.tags.bin"),
    ],
)
def test_links_out_of_a_corpus_are_refused(with_tags, place, name):
    directory = copied(with_tags, place)
    (directory / name).rename(place / "outside")
    (directory / name).symlink_to(place / "outside")
    with pytest.raises(InputError, match=rf"{name}: leads out of the corpus, to .*outside"):
        open_corpus(directory, "train")
    # Links of a corpus to itself, and to the whole of it, are no harm.
    (directory / name).unlink()
    (place / "outside").rename(directory / "inside")
    (directory / name).symlink_to("inside")
    link = place / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(directory)
    assert use(link).num_documents == 3


# A workdir.


def test_configuration(place):
    workdir = place / "run"
    workdir.mkdir(exist_ok=True)
    (workdir / "vocabulary.tsv").write_bytes(VOCABULARY)
    config = default_config("ccdclm").to_dict()
    config["data"]["directory"] = "data"

    def check(content: bytes) -> None:
        (workdir / "config.json").write_bytes(content)
        read = value_or_input_error(workdir, lambda: read_config(workdir))
        if read is not None:
            Path(read["data"]["directory"]).resolve()
            # There is no checkpoint.
            with pytest.raises(InputError) as error:
                dclm_jax.restore(workdir)
            assert str(error.value).isprintable()

    attack_json(check, config, 100)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("hidden_dim", "x", "model.hidden_dim is 'x'; expected a value of type int"),
        ("hidden_dim", 3.5, "model.hidden_dim is 3.5; expected a value of type int"),
        ("hidden_dim", True, "model.hidden_dim is True; expected a value of type int"),
        ("hidden_dim", 10**30, "model.hidden_dim is 10+; expected at most 2147483647"),
        ("num_layers", 1001, "model.num_layers is 1001; expected at most 1000"),
        ("dropout", "x", "model.dropout is 'x'; expected a value of type float"),
        ("remat", 1, "model.remat is 1; expected a value of type bool"),
        ("cell", [1], "config.json: expected plain values by name under 'model'"),
        ("vocab_size", 7, "config.json: model.vocab_size is no option"),
    ],
)
def test_options_of_a_saved_model(place, option, value, message):
    workdir = place / "options"
    workdir.mkdir(exist_ok=True)
    (workdir / "vocabulary.tsv").write_bytes(VOCABULARY)
    config: dict[str, Any] = {"model": {"name": "ccdclm", option: value}}
    (workdir / "config.json").write_text(json.dumps(config | {"data": {"directory": "x"}}))
    with pytest.raises(InputError, match=message):
        dclm_jax.restore(workdir)


# Results.


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "perplexity.json", "coherence.json"]
)
def test_results_to_compare(tmp_path_factory, name):
    folder = write_run(tmp_path_factory.mktemp("compared") / "run")
    first, *others = (folder / name).read_bytes().split(b"\n")

    def check(content: bytes) -> None:
        (folder / name).write_bytes(b"\n".join([content, *others]))
        runs = value_or_input_error(folder, lambda: read_runs([folder]))
        if runs:
            summary.text(runs).encode()
            [run] = runs
            one = run.evaluation
            assert one is not None and run.coherence is not None
            counts = [one.parameters, one.tokens, one.vocabulary_size]
            counts += [run.coherence.documents, *(point.tokens for point in run.curve)]
            assert all(type(count) is int and 0 <= count < 2**63 for count in counts)

    attack_json(check, json.loads(first), 100)


@pytest.mark.parametrize("name", ["$\\frac$", "a\nb", "\ud800"])
def test_names_of_runs_in_a_table_and_a_picture(tmp_path, name):
    infinite = {"kind": "valid", "step": 1, "tokens": 1, "seconds": 1, "perplexity": math.inf}
    folder = write_run(tmp_path / "run", name, metrics=[infinite, infinite | {"step": 2}])
    runs = read_runs([folder])
    assert printable(name) in summary.text(runs).splitlines()[2]
    plots.plot_curves(pictures.learning_curves(runs), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


# An n-gram workdir.


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> Path:
    """As `ngram.train` leaves it; KenLM reads a model from text, too."""
    workdir = tmp_path_factory.mktemp("counted") / "kn"
    workdir.mkdir()
    Vocabulary((*SPECIAL_TOKENS, "a", "b"), (0,) * 5).save(workdir / "vocabulary.tsv")
    (workdir / "model.arpa").write_text(MODEL)
    (workdir / "model.binary").write_text(MODEL)
    checksum = hashlib.sha256(MODEL.encode()).hexdigest()
    config = {
        "model": {"name": "ngram", "order": 3},
        "data": {"directory": "data"},
        "binary": {"sha256": checksum},
    }
    (workdir / "config.json").write_text(json.dumps(config))
    return workdir


@pytest.mark.parametrize("name", ["config.json", "vocabulary.tsv", "model.arpa", "model.binary"])
def test_files_of_an_ngram_model(counted, place, monkeypatch, name):
    if not HAS_KENLM:
        monkeypatch.setitem(sys.modules, "kenlm", StandIn)
    workdir = place / "kn"
    shutil.rmtree(workdir, ignore_errors=True)
    shutil.copytree(counted, workdir)
    original = (workdir / name).read_bytes()

    def check(content: bytes) -> None:
        if name == "config.json" and b"sha256" not in content:
            # KenLM reads a model without a checksum, and may end the process.
            content = content.replace(b"ngram", b"rnnlm")
        (workdir / name).write_bytes(content)
        run = value_or_input_error(workdir, lambda: ngram.restore_run(workdir))
        if run is not None:
            ids = np.array([UNKNOWN, len(run.vocabulary) - 1])
            [(_, nll)] = run.scorer.score([[ids]])
            assert nll[0].shape == (3,) and sum(run.counts) < 2**63

    if name == "config.json":
        attack_json(check, json.loads(original), 50)
    elif name == "model.binary":
        fuzz(50)(given(anything() | damaged(original))(check))()
    else:
        # Of the model as text only the numbers at its top are read.
        attack(check, original.split(b"\\1-grams:")[0] + b"\\1-grams:\n", 50)
