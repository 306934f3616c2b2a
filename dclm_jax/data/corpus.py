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
from dclm_jax.data.text_files import read_lines
from dclm_jax.data.vocabulary import UNKNOWN, Vocabulary
from dclm_jax.errors import InputError, brief, printable
from dclm_jax.files import Count, Share, read_json, reading
from dclm_jax.storage import file_sha256
from dclm_jax.tables import aligned

SPLITS = ("train", "valid", "test")


def source_split(split: str) -> str:
    """The split with the sources of a split: one source per document, in the same order."""
    return f"{split}_source"


ALL_SPLITS = (*SPLITS, *map(source_split, SPLITS))
_AGAIN = "prepare the corpus again with --overwrite"
MANIFEST_FILE = "manifest.json"
VOCABULARY_FILE = "vocabulary.tsv"
TAGS_FILE = "tags.tsv"
DROP_REASONS = ("min_words", "max_words", "max_unknown")
"""Options of `prepare` that omit documents."""
# A fixed byte order lets a corpus be copied between machines.
TOKEN_DTYPE = np.dtype("<i4")
OFFSET_DTYPE = np.dtype("<i8")

_KINDS = ("tokens.bin", "sentence_offsets.bin", "document_offsets.bin", "document_ids.txt")
# Number of ids checked at once.
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitEntry:
    """A split in the manifest: its numbers of documents, sentences, words (`tokens`), OOV words,
    characters (of each word and one separator), and omitted documents by reason."""

    documents: Count
    sentences: Count
    tokens: Count
    oov_tokens: Count
    oov_rate: Share
    characters: Count
    dropped_documents: dict[str, Count]


@dataclasses.dataclass(frozen=True)
class TrainingText:
    """The properties of a run's training text that the run saves.

    Attributes:
      options: how the text became words; None if unknown.
      unknown_rates: the share of OOV words, by split.
    """

    options: TextOptions | None = None
    unknown_rates: dict[str, Share] = dataclasses.field(default_factory=dict)


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
        return TrainingText(self.text, rates)

    def original_tokens(self, split: str) -> int:
        """The number of tokens that published perplexities count in a split. The number is 0 if it
        is unknown, or if the split differs from the published text: documents were omitted, other
        words are OOV, or the text was converted to lower case."""
        source, entry = (
            self.sources.get(str(self.options.get("collection")), {}),
            self.splits[split],
        )
        tokens, unknown = (
            counts.get(split) if isinstance(counts := source.get(key), dict) else None
            for key in ("original_tokens", "original_unknown")
        )
        is_other = any(entry.dropped_documents.values()) or self.options.get("lowercase")
        is_same = unknown == entry.oov_tokens and not is_other
        return tokens if is_same and isinstance(tokens, int) else 0

    def files_of(self, split: str) -> dict[str, str]:
        """SHA-256 of the files of a split by name. Only names of this format are accepted; other
        names in a manifest could lead out of the folder."""
        tag_files = (TAGS_FILE, tags_file(split)) if tags_file(split) in self.files else ()
        names = (VOCABULARY_FILE, *split_files(split), *tag_files)
        return {name: self.files[name] for name in names}


def split_files(split: str) -> list[str]:
    """File names of a split: tokens, sentence offsets, document offsets, document ids."""
    return [f"{split}.{kind}" for kind in _KINDS]


def tags_file(split: str) -> str:
    """The file with the part of speech of each word, as a line number of TAGS_FILE from 0."""
    return f"{split}.tags.bin"


def foreign_files(directory: storage.Location) -> list[str]:
    """Names of the entries of a directory that are not files of a corpus."""
    names = {MANIFEST_FILE, VOCABULARY_FILE, TAGS_FILE}
    for split in ALL_SPLITS:
        names |= {*split_files(split), tags_file(split)}
    if isinstance(directory, pathlib.Path):
        return sorted({path.name for path in directory.iterdir()} - names)
    return sorted({*storage.list_files(directory)} - names)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """One split of a prepared corpus.

    Attributes:
      directory: the folder of the corpus, or of its copy on this machine.
      split: name of the split.
      tokens: int32 [num_tokens], word ids without START and END.
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
        names = [VOCABULARY_FILE, *itertools.chain(*map(split_files, self.manifest.splits))]
        return {name: self.manifest.files[name] for name in names}

    @functools.cached_property
    def document_ids(self) -> list[str]:
        """Names of the documents, read at first use."""
        path = self.directory / split_files(self.split)[-1]
        try:
            with reading(path), storage.open_regular(path) as file:
                # Text mode would also split names at other line ends.
                names = file.read().decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not valid UTF-8 ({error.reason}); {_AGAIN}") from error
        if len(names) != self.num_documents:
            raise InputError(
                f"{path}: has {len(names)} names for {self.num_documents} documents; {_AGAIN}"
            )
        return names

    def document(self, index: int) -> list[np.ndarray]:
        """The sentences of a document, each int32 [num_words], without a copy."""
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
        """int32 [num_tokens], the words' parts of speech as indices of `tag_names`; None unless all
        documents of the split are tagged."""
        name = tags_file(self.split)
        if name not in self.manifest.files:
            return None
        return open_array(self.directory / name, TOKEN_DTYPE, self.num_tokens)

    @functools.cached_property
    def tag_names(self) -> list[str]:
        """Names of the parts of speech in the text."""
        path, names = self.directory / TAGS_FILE, []
        for number, line in read_lines(path):
            name, _, count = line.removesuffix("\n").partition("\t")
            if name.split() != [name] or not (count.isascii() and count.isdigit()):
                raise InputError(f"{path}:{number}: expected tag<TAB>count, got {brief(line)}")
            names.append(name)
        return names

    def document_tags(self, index: int) -> list[list[str]] | None:
        """The part of speech of each word of `document(index)`; None unless all documents of the
        split are tagged."""
        sentences = self.document(index)
        if self.tags is None:
            return None
        ends = np.cumsum([len(words) for words in sentences])
        begin = self.sentence_offsets[self.document_offsets[index]]
        tags = self.tags[begin : begin + ends[-1]]
        return [[self.tag_names[tag] for tag in part] for part in np.split(tags, ends[:-1])]


def read_manifest(directory: storage.PathLike) -> Manifest:
    """The manifest of a prepared corpus."""
    directory = storage.cached(directory, {MANIFEST_FILE: None})
    path = directory / MANIFEST_FILE
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; prepare a corpus by launch.prepare")
    if not path.is_file():
        raise InputError(f"{directory}: has no {MANIFEST_FILE}; expected a prepared corpus")
    try:
        manifest = read_json(path, Manifest)
    except InputError as error:
        raise InputError(f"{error}; {_AGAIN}") from error
    if others := [split for split in manifest.splits if split not in ALL_SPLITS]:
        expected = ", ".join(ALL_SPLITS)
        raise InputError(f"{path}: has a split {brief(others[0])}; expected {expected}")
    for split in manifest.splits:
        names = {VOCABULARY_FILE, *split_files(split)}
        names |= {TAGS_FILE} if tags_file(split) in manifest.files else set()
        if missing := names - manifest.files.keys():
            raise InputError(f"{path}: has no entry for {', '.join(sorted(missing))}; {_AGAIN}")
    return manifest


def open_corpus(directory: storage.PathLike, split: str) -> Corpus:
    """Opens a split. Its words are mapped into memory; checksums and all ids are checked once.

    Args:
      directory: a prepared corpus.
      split: "train", "valid" or "test", or for paired documents their `source_split`.
    """
    location = storage.locate(directory)
    manifest = read_manifest(location)
    if split not in manifest.splits:
        present = ", ".join(manifest.splits) or "none"
        raise InputError(f"{location}: has no split {split!r}; expected one of: {present}")
    entry = manifest.splits[split]
    described = manifest.files_of(split)
    directory = storage.cached(location, described)
    check_files(directory, described)
    vocabulary = Vocabulary.load(directory / VOCABULARY_FILE)
    tokens, sentences, documents, _ = (directory / name for name in split_files(split))
    corpus = Corpus(
        directory=directory,
        split=split,
        tokens=open_array(tokens, TOKEN_DTYPE, entry.tokens),
        sentence_offsets=open_array(sentences, OFFSET_DTYPE, entry.sentences + 1),
        document_offsets=open_array(documents, OFFSET_DTYPE, entry.documents + 1),
        vocabulary=vocabulary,
        manifest=manifest,
    )
    _check_offsets(sentences, corpus.sentence_offsets, corpus.num_tokens)
    _check_offsets(documents, corpus.document_offsets, corpus.num_sentences)
    _check_ids(tokens, corpus.tokens, range(UNKNOWN, len(vocabulary)), "ids of words")
    if corpus.tags is not None:
        tags = directory / tags_file(split)
        _check_ids(tags, corpus.tags, range(len(corpus.tag_names)), f"tags of {TAGS_FILE}")
    return corpus


def open_source(corpus: Corpus, directory: storage.PathLike) -> Corpus:
    """The sources of a split's documents: its `source_split` if the corpus has it, otherwise the
    documents themselves."""
    name = source_split(corpus.split)
    if name not in corpus.manifest.splits:
        return corpus
    source = open_corpus(directory, name)
    if source.num_documents != corpus.num_documents:
        raise InputError(
            f"{directory}: split {name} has {source.num_documents} documents; expected "
            f"{corpus.num_documents}, one per document of {corpus.split}"
        )
    return source


def open_array(path: pathlib.Path, dtype: np.dtype, length: int) -> np.ndarray:
    """The values of a file, [length], mapped into memory."""
    try:
        with storage.open_regular(path) as file:
            array = np.memmap(file, dtype, mode="r")
    # np.memmap raises a ValueError for an empty file or a fraction of a value.
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be mapped into memory ({error}); {_AGAIN}") from error
    if len(array) != length:
        raise InputError(f"{path}: has {len(array)} values; the manifest says {length}; {_AGAIN}")
    return array


def _check_ids(path: pathlib.Path, ids: np.ndarray, expected: range, kind: str) -> None:
    for begin in range(0, len(ids), _CHUNK):
        chunk = ids[begin : begin + _CHUNK]
        for id in (int(chunk.min()), int(chunk.max())):
            if id not in expected:
                raise InputError(
                    f"{path}: contains {id}; expected {kind}, {expected[0]} to {expected[-1]}"
                )


def _check_offsets(path: pathlib.Path, offsets: np.ndarray, end: int) -> None:
    if not (offsets[0] == 0 and offsets[-1] == end and np.all(offsets[:-1] < offsets[1:])):
        raise InputError(f"{path}: expected offsets that increase from 0 to {end}; {_AGAIN}")


def check_files(directory: storage.Location, described: dict[str, str]) -> None:
    """Compares files with their checksums in the manifest."""
    for name, expected in described.items():
        path = directory / name
        if not path.is_file():
            raise InputError(f"{path}: missing; {_AGAIN}")
        target = storage.resolve(path)
        if not target.is_relative_to(storage.resolve(directory)):
            raise InputError(
                f"{path}: leads out of the corpus, to {target}; copy the file into the corpus"
            )
        if file_sha256(path) != expected:
            raise InputError(f"{path}: its checksum differs from the manifest; {_AGAIN}")


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
    header = ("split", "documents", "sentences", "words", "words/doc", "sentences/doc", "OOV")
    rows: list[Sequence[str]] = [header]
    for split, entry in manifest.splits.items():
        counts = (entry.documents, entry.sentences, entry.tokens)
        documents = max(entry.documents, 1)
        means = (entry.tokens / documents, entry.sentences / documents)
        cells = [f"{count:,}" for count in counts] + [f"{mean:.1f}" for mean in means]
        rows.append((split, *cells, f"{100 * entry.oov_rate:.2f}%"))
    lines = aligned(rows, rule=False)
    lines.append(f"vocabulary: {manifest.vocabulary_size:,} entries with START, END and UNKNOWN")
    applied = [reason for reason in DROP_REASONS if manifest.options.get(reason) is not None]
    for split, entry in manifest.splits.items() if applied else ():
        counts = entry.dropped_documents
        listed = ", ".join(f"{counts.get(reason, 0):,} by {reason}" for reason in applied)
        lines.append(f"documents dropped from {split}: {listed}")
    return "\n".join(lines)
