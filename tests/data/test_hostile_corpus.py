"""Files of a corpus damaged, or made on purpose: they are taken, or refused in one line."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dclm_jax.data.batches import TrainingBatches
from dclm_jax.data.corpus import Corpus, open_corpus, statistics_table
from dclm_jax.data.vocabulary import UNKNOWN, Vocabulary
from dclm_jax.errors import InputError
from tests.data.support import make_corpus, write
from tests.fuzzing import attack, attack_json, fuzz, value_or_input_error

VOCABULARY = b"<START>\t3\n<END>\t3\n<UNKNOWN>\t1\t<unk>\na\t3\nb\t2\n"
ARRAYS = ("tokens", "sentence_offsets", "document_offsets")
EXTREMES = [0, 1, 2, 3, 4, 5, 6, 7, -1, 2**31 - 1, -(2**31)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A corpus of tagged text."""
    root = tmp_path_factory.mktemp("prepared")
    text = write(root / "text", "a/X b/Y\na/X\n\nb/Y a/X c/Z\n\na/X b/Y c/Z d/Y\n")
    make_corpus({"train": text}, root / "corpus", "tagged", vocab_size=3)
    return root / "corpus"


def test_vocabulary(place):
    path = place / "vocabulary.tsv"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        if vocabulary := value_or_input_error(path, lambda: Vocabulary.load(path)):
            vocabulary.save(path)
            assert Vocabulary.load(path) == vocabulary
            ids = vocabulary.encode(vocabulary.words)
            assert UNKNOWN <= ids.min() and ids.max() < len(vocabulary)
            unknown_token = vocabulary.unknown_token
            assert unknown_token is None or unknown_token.split() == [unknown_token]

    attack(check, VOCABULARY, 200)


# A prepared corpus.


@pytest.fixture
def directory(prepared, place) -> Path:
    """A copy of the corpus."""
    shutil.rmtree(place / "copied", ignore_errors=True)
    return Path(shutil.copytree(prepared, place / "copied"))


def manifest_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "manifest.json").read_text())


def save(manifest: dict[str, Any], directory: Path) -> None:
    (directory / "manifest.json").write_text(json.dumps(manifest))


def forge(directory: Path, contents: dict[str, bytes]) -> None:
    """Replaces files of the corpus, and makes the manifest agree with them."""
    manifest = manifest_of(directory)
    entry = manifest["splits"]["train"]
    for name, content in contents.items():
        (directory / name).write_bytes(content)
        manifest["files"][name] = hashlib.sha256(content).hexdigest()
    tokens, sentences, documents = (
        (directory / f"train.{kind}.bin").stat().st_size for kind in ARRAYS
    )
    entry["tokens"] = tokens // 4
    entry["sentences"] = max(0, sentences // 8 - 1)
    entry["documents"] = max(0, documents // 8 - 1)
    save(manifest, directory)


def use(directory: Path) -> Corpus:
    """Reads everything of a corpus, as training and evaluation do."""
    corpus = open_corpus(directory, "train")
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
            assert all(tag.split() == [tag] for of_sentence in tags for tag in of_sentence)
    return corpus


def use_or_refuse(directory: Path, contents: dict[str, bytes]) -> None:
    """Uses a corpus with other files, with and without their checksums in the manifest."""
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    value_or_input_error(directory, lambda: use(directory))
    forge(directory, contents)
    value_or_input_error(directory, lambda: use(directory))


def test_manifest(prepared, directory):
    sources = {"train": prepared.parent / "text"}

    def check(content: bytes) -> None:
        (directory / "manifest.json").write_bytes(content)
        value_or_input_error(directory, lambda: use(directory))
        value_or_input_error(
            directory, lambda: make_corpus(sources, directory, "tagged", vocab_size=3)
        )

    attack_json(check, manifest_of(prepared), 100)


@pytest.mark.parametrize(
    "name",
    [*(f"train.{kind}.bin" for kind in (*ARRAYS, "tags")), "vocabulary.tsv", "tags.tsv"],
)
def test_damaged_files_of_a_corpus(directory, name):
    assert use(directory).document_tags(1) == [["Y", "X", "Z"]]

    def check(content: bytes) -> None:
        use_or_refuse(directory, {name: content})

    attack(check, (directory / name).read_bytes(), 60)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([0, 1, 0, 1, 0, 2, 0, 1, 2, 3], "contains 3; expected tags .*, 0 to 2"),
        ([0, 1, 0, 1, 0, 2, 0, 1, 2, -1], "contains -1; expected tags .*, 0 to 2"),
        ([0, 1, 0], "has 3 values; the manifest says 10"),
    ],
)
def test_tags_that_do_not_fit(directory, tags, message):
    forge(directory, {"train.tags.bin": np.array(tags, "<i4").tobytes()})
    with pytest.raises(InputError, match=f"train.tags.bin: {message}"):
        open_corpus(directory, "train")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"X\t4\nY\t4\n", "train.tags.bin: contains 2; expected tags of tags.tsv, 0 to 1"),
        (b"X\t4\nY Z\t4\nZ\t2\n", "tags.tsv:2: expected tag<TAB>count, got 'Y Z"),
        (b"X\t4\nY\nZ\t2\n", "tags.tsv:2: expected tag<TAB>count, got 'Y"),
        (b"X\t4\nY\t4\n\xff\n", "tags.tsv:3: not valid UTF-8"),
        (b"", "tags.tsv: is empty"),
    ],
)
def test_names_of_tags_that_do_not_fit(directory, content, message):
    forge(directory, {"tags.tsv": content})
    with pytest.raises(InputError, match=message):
        open_corpus(directory, "train")


def test_forged_arrays_of_a_corpus(prepared, directory):
    values = st.lists(st.sampled_from(EXTREMES), max_size=8)
    rising = values.map(sorted)
    good = [np.fromfile(prepared / f"train.{kind}.bin", "<i8").tolist() for kind in ARRAYS[1:]]

    @fuzz(400)
    @given(values, rising | values | st.just(good[0]), rising | values | st.just(good[1]))
    def check(tokens: list[int], sentences: list[int], documents: list[int]) -> None:
        contents = {
            "train.tokens.bin": np.array((tokens * 10)[:10], "<i4").tobytes(),
            "train.sentence_offsets.bin": np.array(sentences, "<i8").tobytes(),
            "train.document_offsets.bin": np.array(documents, "<i8").tobytes(),
        }
        forge(directory, contents)
        value_or_input_error(directory, lambda: use(directory))

    check()


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("sentence_offsets", [0, 2, 2, 6, 10], "expected offsets that increase from 0 to 10"),
        ("sentence_offsets", [0, 3, 2, 6, 10], "expected offsets that increase from 0 to 10"),
        ("sentence_offsets", [1, 2, 3, 6, 10], "expected offsets that increase from 0 to 10"),
        ("sentence_offsets", [0, 2, 3, 6, 11], "expected offsets that increase from 0 to 10"),
        ("sentence_offsets", [0, -1, 3, 6, 10], "expected offsets that increase from 0 to 10"),
        # Differences of neighbours would overflow, and all be positive.
        ("sentence_offsets", [0, 2**63 - 1, -(2**63), -2, 10], "that increase from 0 to 10"),
        ("document_offsets", [0, 2, 3, 5], "expected offsets that increase from 0 to 4"),
        ("document_offsets", [], "cannot be mapped into memory"),
        ("tokens", [3, 4, 3, 4, 3, 2, 3, 4, 2, 6], "contains 6; expected ids of words, 2 to 5"),
        ("tokens", [3, 4, 3, 4, 3, 2, 3, 4, 2, 1], "contains 1; expected ids of words, 2 to 5"),
        ("tokens", [3, 4, 3, 4, 3, 2, 3, 4, 2, -1], "contains -1; expected ids of words, 2 to 5"),
    ],
)
def test_arrays_that_do_not_fit(directory, kind, values, message):
    array = np.array(values, "<i4" if kind == "tokens" else "<i8")
    forge(directory, {f"train.{kind}.bin": array.tobytes()})
    with pytest.raises(InputError, match=rf"train.{kind}.bin: .*{message}"):
        open_corpus(directory, "train")


def test_numbers_that_differ_from_those_of_the_manifest(directory):
    manifest = manifest_of(directory)
    manifest["splits"]["train"]["documents"] = 2
    save(manifest, directory)
    with pytest.raises(InputError, match="document_offsets.bin: has 4 values; .* says 3"):
        open_corpus(directory, "train")


def test_document_ids(directory):
    def check(content: bytes) -> None:
        forge(directory, {"train.document_ids.txt": content})
        value_or_input_error(directory, lambda: use(directory))

    attack(check, (directory / "train.document_ids.txt").read_bytes(), 60)
    forge(directory, {"train.document_ids.txt": b"a\rb\n\n\xe2\x80\xa8\n"})
    assert open_corpus(directory, "train").document_ids == ["a\rb", "", "\u2028"]


# Paths.


@pytest.mark.parametrize("name", ["vocabulary.tsv", "train.tokens.bin", "tags.tsv"])
@pytest.mark.parametrize("other", ["../secret", "SECRET", "train.tokens.bin/../../secret", None])
def test_a_manifest_names_no_other_files(directory, place, name, other):
    write(place / "secret", "secret")
    manifest = manifest_of(directory)
    files = manifest["files"]
    if other is not None:
        # Right in every other respect.
        path = other.replace("SECRET", str(place / "secret"))
        files[path] = hashlib.sha256(b"secret").hexdigest()
        save(manifest, directory)
        assert "secret" not in "".join(open_corpus(directory, "train").checksums)
    del files[name]
    save(manifest, directory)
    with pytest.raises(InputError, match=f"manifest.json: has no entry for {name}"):
        open_corpus(directory, "train")


@pytest.mark.parametrize("name", ["../secret", "/secret", "..", "a/b"])
def test_a_manifest_names_no_other_splits(directory, name):
    manifest = manifest_of(directory)
    manifest["splits"][name] = manifest["splits"]["train"]
    save(manifest, directory)
    with pytest.raises(InputError, match="manifest.json: has a split .*expected train, valid"):
        open_corpus(directory, name)


@pytest.mark.parametrize(
    "name",
    [
        *("train.tokens.bin", "train.document_ids.txt", "vocabulary.tsv"),
        *("tags.tsv", "train.tags.bin"),
    ],
)
def test_links_out_of_a_corpus_are_refused(directory, place, name):
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
