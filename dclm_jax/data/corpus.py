"""Prepared corpora on disk: memory-mapped word ids, offsets, a vocabulary and a manifest."""

import dataclasses
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from dclm_jax import storage
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.subwords import PIECES_FILE, Subwords, load_vocabulary
from dclm_jax.data.vocabulary import VOCABULARY_FILE, Vocabulary, word_ends
from dclm_jax.errors import InputError, printable
from dclm_jax.files import Count, Finite, Share, read_json, reading
from dclm_jax.storage import file_sha256
from dclm_jax.tables import aligned

SPLITS = ("train", "valid", "test")

_AGAIN = "prepare the corpus again with --overwrite"
MANIFEST_FILE = "manifest.json"
TAGS_FILE = "tags.tsv"
DROP_REASONS = ("deduplicate", "min_words", "max_words", "max_unknown")
"""Options of `prepare` that omit documents."""
# A fixed byte order lets a corpus be copied between machines.
TOKEN_DTYPE = np.dtype("<i4")
OFFSET_DTYPE = np.dtype("<i8")

_KINDS = ("tokens.bin", "sentence_offsets.bin", "document_offsets.bin", "document_ids.txt")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitEntry:
    """A split in the manifest: its numbers of documents, sentences, words (`tokens`), OOV words,
    characters (of each word and one separator), omitted documents by reason, and pieces of words (0
    with a vocabulary of words). With a vocabulary of subwords, OOV words are only the text's own
    spelling of OOV words, whose characters are not counted."""

    documents: Count
    sentences: Count
    tokens: Count
    oov_tokens: Count
    oov_rate: Share
    characters: Count
    dropped_documents: dict[str, Count]
    pieces: Count = 0


@dataclasses.dataclass(frozen=True)
class TrainingText:
    """The properties of a run's training text that the run saves.

    Attributes:
      options: how the text became words; None if unknown.
      oov_rates: the share of OOV words, by split.
      pieces_per_word: the number of pieces per word, by split; empty with a vocabulary of words.
    """

    options: TextOptions | None = None
    oov_rates: dict[str, Share] = dataclasses.field(default_factory=dict)
    pieces_per_word: dict[str, Finite] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The manifest of a prepared corpus.

    Attributes:
      format_version: version of the files' format.
      vocabulary_size: number of entries of the vocabulary.
      options: the options of `prepare`.
      sources: the inputs by name, each with a "name" and a "sha256".
      splits: the splits by name.
      text: options for reading other text like the text of the corpus.
      files: SHA-256 of each file by name. TAGS_FILE, and the `tags_file` of a split, are files only
        if all documents of the split are tagged.
    """

    format_version: Literal[2]
    vocabulary_size: Count
    options: dict[str, Any]
    sources: dict[str, dict[str, Any]]
    splits: dict[str, SplitEntry]
    text: TextOptions
    files: dict[str, str]

    @property
    def training_text(self) -> TrainingText:
        """The properties of the text that a run trained on the corpus saves."""
        rates = {split: entry.oov_rate for split, entry in self.splits.items()}
        pieces = {
            split: entry.pieces / entry.tokens
            for split, entry in self.splits.items()
            if entry.pieces
        }
        return TrainingText(self.text, rates, pieces)

    @property
    def vocabulary_files(self) -> list[str]:
        """The names of the files of the vocabulary."""
        kind = Subwords if PIECES_FILE in self.files else Vocabulary
        return list(kind.file_names)

    def original_tokens(self, split: str) -> int:
        """The number of tokens that published perplexities count in a split. The number is 0 if it
        is unknown, or if the split differs from the published text: documents were omitted, other
        words are OOV or not predicted, or the text was converted to lower case."""
        source = self.sources.get(str(self.options.get("collection")), {})
        entry = self.splits[split]
        is_other = any(entry.dropped_documents.values()) or self.options.get("lowercase")
        is_other = is_other or bool(entry.pieces)
        unknown = source.get("original_unknown", {}).get(split)
        return 0 if is_other or unknown != entry.oov_tokens else source["original_tokens"][split]

    def files_of(self, split: str) -> dict[str, str]:
        """SHA-256 of the files of a split by name."""
        tag_files = (TAGS_FILE, tags_file(split)) if tags_file(split) in self.files else ()
        names = (*self.vocabulary_files, *split_files(split), *tag_files)
        return {name: self.files[name] for name in names}


def split_files(split: str) -> list[str]:
    """File names of a split: tokens, sentence offsets, document offsets, document ids."""
    return [f"{split}.{kind}" for kind in _KINDS]


def tags_file(split: str) -> str:
    """The file with the part of speech of each word, as a line number of TAGS_FILE from 0."""
    return f"{split}.tags.bin"


def foreign_files(directory: storage.Location) -> list[str]:
    """Names of the entries of a directory that are not files of a corpus."""
    names = {MANIFEST_FILE, *Subwords.file_names, TAGS_FILE}
    for split in SPLITS:
        names |= {*split_files(split), tags_file(split)}
    return sorted({path.name for path in directory.iterdir()} - names)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """One split of a prepared corpus.

    Attributes:
      directory: the folder of the corpus, or of its copy on this machine.
      split: name of the split.
      tokens: int32 [num_tokens], ids of words or of their pieces, without START and END.
      sentence_offsets: int64 [num_sentences + 1], the index in `tokens` of each sentence's start.
      document_offsets: int64 [num_documents + 1], the number of each document's first sentence.
      vocabulary: the vocabulary.
      manifest: the manifest of the corpus.
    """

    directory: pathlib.Path
    split: str
    tokens: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    vocabulary: Vocabulary
    manifest: Manifest

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
    def checksums(self) -> dict[str, str]:
        """SHA-256 of every file that training reads, by name."""
        splits = map(split_files, self.manifest.splits)
        names = [*self.manifest.vocabulary_files, *itertools.chain(*splits)]
        return {name: self.manifest.files[name] for name in names}

    @functools.cached_property
    def document_ids(self) -> list[str]:
        """Names of the documents, read at first use."""
        path = self.directory / split_files(self.split)[-1]
        return path.read_text("utf-8").removesuffix("\n").split("\n")

    def document(self, index: int) -> list[np.ndarray]:
        """The ids of the sentences of a document, each int32 [M], without a copy."""
        first, last = self.document_offsets[index : index + 2]
        offsets = self.sentence_offsets[first : last + 1]
        return [self.tokens[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False)]

    def document_lines(self, index: int) -> Iterator[str]:
        """A document in the format "lines": a heading, then one sentence per line."""
        yield f"= {printable(self.document_ids[index])}"
        for sentence in self.document(index):
            line = " ".join(self.vocabulary.decode(sentence))
            # A sentence that begins with "=" would be read as a heading.
            yield " " * line.startswith("=") + line

    @functools.cached_property
    def tags(self) -> np.ndarray | None:
        """int32 [words], the words' parts of speech as indices of `tag_names`; None unless all
        documents of the split are tagged."""
        name = tags_file(self.split)
        if name not in self.manifest.files:
            return None
        return np.memmap(self.directory / name, TOKEN_DTYPE, mode="r")

    @functools.cached_property
    def tag_names(self) -> list[str]:
        """Names of the parts of speech in the text."""
        lines = (self.directory / TAGS_FILE).read_text("utf-8").splitlines()
        return [line.split("\t")[0] for line in lines]

    def document_tags(self, index: int) -> list[list[str]] | None:
        """The part of speech of each word of `document(index)`; None unless all documents of the
        split are tagged."""
        if self.tags is None:
            return None
        first, last = self.document_offsets[index : index + 2]
        offsets = self._word_offsets[first : last + 1]
        tags = self.tags[offsets[0] : offsets[-1]]
        parts = np.split(tags, offsets[1:-1] - offsets[0])
        return [[self.tag_names[tag] for tag in part] for part in parts]

    @functools.cached_property
    def _word_offsets(self) -> np.ndarray:
        """int64 [num_sentences + 1], the number of words before each sentence."""
        ends = np.cumsum(word_ends(self.tokens, self.vocabulary.first_word_end))
        return np.append(0, ends)[self.sentence_offsets]


def read_manifest(directory: storage.PathLike) -> Manifest:
    """The manifest of a prepared corpus."""
    directory = storage.cached(directory, {MANIFEST_FILE: None})
    path = directory / MANIFEST_FILE
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; prepare a corpus by launch.prepare")
    if not path.is_file():
        raise InputError(f"{directory}: has no {MANIFEST_FILE}; expected a prepared corpus")
    try:
        return read_json(path, Manifest)
    except InputError as error:
        raise InputError(f"{error}; {_AGAIN}") from error


def open_corpus(directory: storage.PathLike, split: str) -> Corpus:
    """Opens a split, and compares the checksums of its files. Its words are mapped into memory.

    Args:
      directory: a prepared corpus.
      split: "train", "valid" or "test".
    """
    location = storage.locate(directory)
    manifest = read_manifest(location)
    if split not in manifest.splits:
        present = ", ".join(manifest.splits)
        raise InputError(f"{location}: has no split {split!r}; expected one of: {present}")
    directory = checked_files(location, manifest.files_of(split))
    tokens, sentences, documents, _ = (directory / name for name in split_files(split))
    return Corpus(
        directory=directory,
        split=split,
        tokens=np.memmap(tokens, TOKEN_DTYPE, mode="r"),
        sentence_offsets=np.memmap(sentences, OFFSET_DTYPE, mode="r"),
        document_offsets=np.memmap(documents, OFFSET_DTYPE, mode="r"),
        vocabulary=load_vocabulary(directory / VOCABULARY_FILE),
        manifest=manifest,
    )


def checked_files(directory: storage.PathLike, described: dict[str, str]) -> pathlib.Path:
    """The directory on this machine with the files of a corpus, which have the checksums of the
    manifest."""
    directory = storage.cached(directory, described)
    for name, expected in described.items():
        path = directory / name
        if not path.is_file():
            raise InputError(f"{path}: missing; {_AGAIN}")
        if file_sha256(path) != expected:
            raise InputError(f"{path}: its checksum differs from the manifest; {_AGAIN}")
    return directory


def files_sha256(root: pathlib.Path, paths: Iterable[pathlib.Path]) -> str:
    """SHA-256 of the names of `paths` below `root` and of their contents."""
    digest = hashlib.sha256()
    for file in paths:
        # A single file may be renamed; names in a folder determine the order.
        name = file.relative_to(root).as_posix() if root.is_dir() else ""
        with reading(file):
            line = f"{name}\n{file_sha256(file)}\n"
            # File names are bytes in any encoding.
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def statistics_table(manifest: Manifest) -> str:
    """Statistics of the splits as aligned text, as in Table 1 of Ji et al. (2015), and of the
    vocabulary. Words exclude START and END."""
    has_pieces = any(entry.pieces for entry in manifest.splits.values())
    last = "pieces/word" if has_pieces else "OOV"
    header = ("split", "documents", "sentences", "words", "words/doc", "sentences/doc", last)
    rows: list[Sequence[str]] = [header]
    for split, entry in manifest.splits.items():
        counts = (entry.documents, entry.sentences, entry.tokens)
        means = (entry.tokens / entry.documents, entry.sentences / entry.documents)
        cells = [f"{count:,}" for count in counts] + [f"{mean:.1f}" for mean in means]
        rate = (
            f"{entry.pieces / entry.tokens:.3f}" if has_pieces else f"{100 * entry.oov_rate:.2f}%"
        )
        rows.append((split, *cells, rate))
    lines = aligned(rows, rule=False)
    entries = "subwords" if has_pieces else "entries"
    lines.append(f"vocabulary: {manifest.vocabulary_size:,} {entries} with START, END and UNKNOWN")
    for split, entry in manifest.splits.items():
        if has_pieces and entry.oov_tokens:
            lines.append(
                f"OOV words in the text of {split}, which are read and not predicted: "
                f"{entry.oov_tokens:,}"
            )
    for split, entry in manifest.splits.items():
        dropped = [
            f"{count:,} by {reason}"
            for reason, count in entry.dropped_documents.items()
            # A share of 0 is a filter.
            if (value := manifest.options.get(reason)) is not None and value is not False
        ]
        if dropped:
            lines.append(f"documents dropped from {split}: {', '.join(dropped)}")
    return "\n".join(lines)
