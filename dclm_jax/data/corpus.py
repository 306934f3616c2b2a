"""Prepared corpora on disk: memory-mapped word ids, offsets, a vocabulary and a manifest."""

import dataclasses
import functools
import hashlib
import json
import pathlib
from typing import Any

import numpy as np

from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError

FORMAT_VERSION = 1
SPLITS = ("train", "valid", "test")
MANIFEST_FILE = "manifest.json"
VOCABULARY_FILE = "vocabulary.tsv"
# The byte order is fixed so that a corpus can be copied between machines.
TOKEN_DTYPE = np.dtype("<i4")
OFFSET_DTYPE = np.dtype("<i8")

_TOKENS = "{}.tokens.bin"
_SENTENCE_OFFSETS = "{}.sentence_offsets.bin"
_DOCUMENT_OFFSETS = "{}.document_offsets.bin"
_DOCUMENT_IDS = "{}.document_ids.txt"


def split_files(split: str) -> tuple[str, str, str, str]:
    """File names of a split: tokens, sentence offsets, document offsets, document ids."""
    return (
        _TOKENS.format(split),
        _SENTENCE_OFFSETS.format(split),
        _DOCUMENT_OFFSETS.format(split),
        _DOCUMENT_IDS.format(split),
    )


@dataclasses.dataclass(frozen=True)
class Corpus:
    """One split of a prepared corpus.

    Attributes:
      directory: where it lies.
      split: its name.
      tokens: int32 [num_tokens], ids of the words; START and END are not stored.
      sentence_offsets: int64 [num_sentences + 1], where each sentence begins in `tokens`.
      document_offsets: int64 [num_documents + 1], where each document begins, in sentences.
      vocabulary: the words behind the ids.
      manifest: the whole directory's manifest; `statistics` is this split's part of it.
    """

    directory: pathlib.Path
    split: str
    tokens: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    vocabulary: Vocabulary
    manifest: dict[str, Any]

    @property
    def num_documents(self) -> int:
        return len(self.document_offsets) - 1

    @property
    def num_sentences(self) -> int:
        return len(self.sentence_offsets) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def statistics(self) -> dict[str, Any]:
        return self.manifest["splits"][self.split]

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of every file of the directory, by its name."""
        parts = [self.manifest["vocabulary"], *self.manifest["splits"].values()]
        return {name: file["sha256"] for part in parts for name, file in part["files"].items()}

    @functools.cached_property
    def document_ids(self) -> list[str]:
        """Names of the documents, read when first asked for."""
        path = self.directory / _DOCUMENT_IDS.format(self.split)
        return path.read_text("utf-8").removesuffix("\n").split("\n")

    def document(self, index: int) -> list[np.ndarray]:
        """The sentences of a document, each int32 [num_words] (views, nothing is copied).

        Raises:
          IndexError: there is no document `index`.
        """
        if not 0 <= index < self.num_documents:
            raise IndexError(f"document {index} of {self.num_documents}")
        first, last = self.document_offsets[index : index + 2]
        offsets = self.sentence_offsets[first : last + 1]
        return [self.tokens[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False)]


def read_manifest(directory: str | pathlib.Path) -> dict[str, Any]:
    """The manifest of a prepared corpus.

    Raises:
      InputError: there is no directory or no readable manifest of this format in it.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; expected one made by launch.prepare")
    path = directory / MANIFEST_FILE
    if not path.is_file():
        raise InputError(f"{directory}: holds no {MANIFEST_FILE}; expected a prepared corpus")
    try:
        manifest = json.loads(path.read_text("utf-8"))
        version, splits = manifest["format_version"], manifest["splits"]
        if not isinstance(splits, dict):
            raise TypeError("'splits' is not an object")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not a manifest of a prepared corpus ({error})") from error
    if version != FORMAT_VERSION:
        raise InputError(f"{path}: has format version {version}; expected {FORMAT_VERSION}")
    return manifest


def open_corpus(directory: str | pathlib.Path, split: str, *, verify: bool = False) -> Corpus:
    """Opens a split without reading its words.

    Args:
      directory: made by `dclm_jax.data.prepare`.
      split: "train", "valid" or "test".
      verify: also compare every file's checksum, which reads them all.

    Raises:
      InputError: the directory, its manifest, the split or a file is absent, or a file differs
        from what the manifest says.
    """
    directory = pathlib.Path(directory)
    manifest = read_manifest(directory)
    if split not in manifest["splits"]:
        present = ", ".join(manifest["splits"]) or "none"
        raise InputError(f"split {split!r} has no data in {directory}; it has: {present}")
    check_files(directory, manifest["splits"][split]["files"], verify=verify)
    check_files(directory, manifest["vocabulary"]["files"], verify=verify)
    vocabulary = Vocabulary.load(directory / VOCABULARY_FILE)
    if vocabulary.fingerprint != manifest["vocabulary"]["fingerprint"]:
        raise InputError(f"{directory / VOCABULARY_FILE}: is not the vocabulary of the manifest")
    tokens, sentences, documents, _ = split_files(split)
    return Corpus(
        directory=directory,
        split=split,
        tokens=np.memmap(directory / tokens, TOKEN_DTYPE, mode="r"),
        sentence_offsets=np.memmap(directory / sentences, OFFSET_DTYPE, mode="r"),
        document_offsets=np.memmap(directory / documents, OFFSET_DTYPE, mode="r"),
        vocabulary=vocabulary,
        manifest=manifest,
    )


def describe_files(directory: pathlib.Path, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Size in bytes and SHA-256 of each file, as the manifest keeps them."""
    return {
        name: {"bytes": (directory / name).stat().st_size, "sha256": file_sha256(directory / name)}
        for name in names
    }


def check_files(
    directory: pathlib.Path, files: dict[str, dict[str, Any]], *, verify: bool = False
) -> None:
    """Compares files with `describe_files`; checksums only with `verify`.

    Raises:
      InputError: a file is absent or differs.
    """
    for name, expected in files.items():
        path = directory / name
        if not path.is_file():
            raise InputError(f"{path}: missing; prepare the corpus again")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise InputError(f"{path}: has {size} bytes; the manifest says {expected['bytes']}")
        if verify and file_sha256(path) != expected["sha256"]:
            raise InputError(f"{path}: its checksum differs from the manifest's")


def file_sha256(path: pathlib.Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def statistics_table(manifest: dict[str, Any]) -> str:
    """Aligned text with one line a split: Table 1 of Ji et al. (2016), and the vocabulary.

    Tokens are words as they stand in the text, without START and END.
    """
    header = ("split", "documents", "sentences", "tokens", "tokens/doc", "sentences/doc", "OOV")
    rows = [
        (
            split,
            f"{entry['documents']:,}",
            f"{entry['sentences']:,}",
            f"{entry['tokens']:,}",
            f"{entry['tokens_per_document']:.1f}",
            f"{entry['sentences_per_document']:.1f}",
            f"{100 * entry['oov_rate']:.2f}%",
        )
        for split, entry in manifest["splits"].items()
    ]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in (header, *rows)
    ]
    vocabulary = manifest["vocabulary"]
    lines.append(f"vocabulary: {vocabulary['size']:,} entries with START, END and UNKNOWN")
    dropped = {s: e["empty_sentences"] for s, e in manifest["splits"].items()}
    if any(dropped.values()):
        listed = ", ".join(f"{split} {count:,}" for split, count in dropped.items())
        lines.append(f"empty sentences dropped: {listed}")
    return "\n".join(lines)
