"""Text on its way to a prepared corpus: provisional word ids on disk, rewritten as final ones."""

import collections
import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from dclm_jax.data import corpus, readers
from dclm_jax.data.vocabulary import UNKNOWN, Vocabulary
from dclm_jax.errors import InputError

_CHUNK = 1 << 20


class RawText:
    """Text as provisional word ids on disk, with what is known of each document in memory."""

    def __init__(self, directory: pathlib.Path):
        self._path = directory / "raw.bin"
        self._lengths_path = directory / "raw.lengths.bin"
        self._ids: collections.defaultdict[str, int] = collections.defaultdict()
        self._ids.default_factory = self._ids.__len__
        self._open_files = contextlib.ExitStack()
        self._files: list[BinaryIO] = []
        self._names: list[str] = []
        self._parts: list[int] = []
        self._empty: list[int] = []
        self._sentences: list[int] = []
        self._tokens: list[int] = []

    def __enter__(self) -> "RawText":
        paths = (self._path, self._lengths_path)
        self._files = [self._open_files.enter_context(open(path, "wb")) for path in paths]
        return self

    def __exit__(self, *exception: object) -> None:
        self._open_files.close()

    @property
    def words(self) -> list[str]:
        return list(self._ids)

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def parts(self) -> np.ndarray:
        return np.asarray(self._parts)

    def num_sentences(self, chosen: np.ndarray) -> int:
        return int(np.asarray(self._sentences)[chosen].sum())

    def add(self, part: int, document: readers.Document, empty: int) -> None:
        lengths = [len(sentence) for sentence in document.sentences]
        lookup = self._ids.__getitem__
        ids = [lookup(word) for sentence in document.sentences for word in sentence]
        self._files[0].write(np.asarray(ids, corpus.TOKEN_DTYPE).tobytes())
        self._files[1].write(np.asarray(lengths, corpus.OFFSET_DTYPE).tobytes())
        self._names.append(document.id)
        self._parts.append(part)
        self._empty.append(empty)
        self._sentences.append(len(lengths))
        self._tokens.append(len(ids))

    def count(self, chosen: np.ndarray) -> np.ndarray:
        """Occurrences of each provisional id in the chosen documents."""
        counts = np.zeros(len(self._ids), np.int64)
        tokens = np.memmap(self._path, corpus.TOKEN_DTYPE, mode="r")
        for begin, end in _runs(chosen, self._tokens):
            for at in range(begin, end, _CHUNK):
                counts += np.bincount(tokens[at : min(at + _CHUNK, end)], minlength=len(counts))
        return counts

    def write_split(
        self, directory: pathlib.Path, split: str, chosen: np.ndarray, vocabulary: Vocabulary
    ) -> corpus.SplitEntry:
        """Writes the chosen documents with final ids and returns their statistics."""
        if not len(chosen):
            raise InputError(f"split {split!r} would hold no documents")
        files = corpus.split_files(split)
        final = vocabulary.encode(self.words).astype(corpus.TOKEN_DTYPE)
        tokens = np.memmap(self._path, corpus.TOKEN_DTYPE, mode="r")
        oov_tokens = 0
        with open(directory / files[0], "wb") as file:
            for begin, end in _runs(chosen, self._tokens):
                for at in range(begin, end, _CHUNK):
                    ids = final[tokens[at : min(at + _CHUNK, end)]]
                    oov_tokens += int((ids == UNKNOWN).sum())
                    file.write(ids.tobytes())
        all_lengths = np.memmap(self._lengths_path, corpus.OFFSET_DTYPE, mode="r")
        lengths = np.concatenate([all_lengths[a:b] for a, b in _runs(chosen, self._sentences)])
        sentences = np.asarray(self._sentences)[chosen]
        _write_offsets(directory / files[1], lengths)
        _write_offsets(directory / files[2], sentences)
        with open(directory / files[3], "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{self._names[index]}\n" for index in chosen)
        num_documents, num_tokens = len(chosen), int(lengths.sum())
        return corpus.SplitEntry(
            documents=num_documents,
            sentences=len(lengths),
            tokens=num_tokens,
            oov_tokens=oov_tokens,
            oov_rate=oov_tokens / num_tokens,
            tokens_per_document=num_tokens / num_documents,
            sentences_per_document=len(lengths) / num_documents,
            longest_sentence=int(lengths.max()),
            longest_document=int(sentences.max()),
            empty_sentences=int(np.asarray(self._empty)[chosen].sum()),
            files=corpus.describe_files(directory, files),
        )

    def remove(self) -> None:
        self._path.unlink()
        self._lengths_path.unlink()


def _runs(chosen: np.ndarray, sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Where the chosen documents lie in a file of all, neighbours taken together."""
    ends = np.cumsum(sizes)
    begins = ends - sizes
    for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
        if len(run):
            yield int(begins[run[0]]), int(ends[run[-1]])


def _write_offsets(path: pathlib.Path, sizes: np.ndarray) -> None:
    offsets = np.zeros(len(sizes) + 1, corpus.OFFSET_DTYPE)
    np.cumsum(sizes, out=offsets[1:])
    offsets.tofile(path)
