"""Text during `prepare`: provisional word ids on disk, later rewritten as final ids.

Masks [D] select documents.
"""

import array
import collections
import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax import files
from dclm_jax.data import corpus
from dclm_jax.data.documents import Document
from dclm_jax.data.vocabulary import Vocabulary

_CHUNK = 1 << 20
_IDS, _TAGS = "ids.bin", "tags.bin"
_NO_TAG = -1


class EncodedWords(NamedTuple):
    """The final ids of distinct words.

    Attributes:
      ids: the ids of all words, one word after another.
      first, counts: int64 [W], the index of the first id of each word, and its number of ids.
      is_unknown: bool [W], whether a word is UNKNOWN.
      sizes: int64 [W], number of characters with one separator; 0 for a word that is not predicted.
      has_pieces: whether words have several ids.
    """

    ids: np.ndarray
    first: np.ndarray
    counts: np.ndarray
    is_unknown: np.ndarray
    sizes: np.ndarray
    has_pieces: bool

    @classmethod
    def of(cls, words: Sequence[str], vocabulary: Vocabulary) -> "EncodedWords":
        ids, counts = vocabulary.encode_each(words)
        is_unknown = vocabulary.is_unknown(words)
        sizes = np.fromiter((len(word) + 1 for word in words), np.int64, len(words))
        if vocabulary.has_pieces:
            sizes[is_unknown] = 0
        ids = ids.astype(corpus.TOKEN_DTYPE)
        first = np.cumsum(counts) - counts
        return cls(ids, first, counts, is_unknown, sizes, vocabulary.has_pieces)


@dataclasses.dataclass(frozen=True)
class NumberedText:
    """Text as provisional word ids on disk, with its distinct words and sizes in memory.

    Attributes:
      directory: the folder with the ids of all words and of their tags.
      words: distinct words in the order of their provisional ids.
      tags: distinct tags in the order of their ids, which are final.
      lengths: int64 [num_sentences], number of words of each sentence.
      names: names of the documents.
      parts: int64 [D], the index of each document's split, or `corpora.DRAWN`.
      sentences: int64 [D], number of sentences of each document.
      is_tagged: bool [D], whether the words of a document have tags.
      digests: int64 [D], a hash of the words of each document.
    """

    directory: pathlib.Path
    words: list[str]
    tags: list[str]
    lengths: np.ndarray
    names: list[str]
    parts: np.ndarray
    sentences: np.ndarray
    is_tagged: np.ndarray
    digests: np.ndarray

    @classmethod
    def read(
        cls, documents: Iterable[tuple[int, Document]], directory: pathlib.Path
    ) -> "NumberedText":
        """Writes documents to a directory and returns their NumberedText.

        Args:
          documents: the index of the split of each document, or DRAWN, and the document; at least
            one document.
          directory: the folder to write to.
        """
        # Words are numbered in the order of their first access.
        ids = collections.defaultdict(itertools.count().__next__)
        tag_ids = collections.defaultdict(itertools.count().__next__)
        lengths, digests, names, rows = array.array("q"), array.array("q"), [], []
        with (
            files.open_binary(directory / _IDS) as ids_file,
            files.open_binary(directory / _TAGS) as tags_file,
        ):
            for part, (name, sentences, tags, *_) in documents:
                words = [ids[word] for sentence in sentences for word in sentence]
                tag_numbers = [tag_ids[tag] for sentence in tags or () for tag in sentence]
                numbers = np.asarray(words, corpus.TOKEN_DTYPE)
                ids_file.write(numbers.tobytes())
                digests.append(_digest(numbers))
                tag_numbers = tag_numbers or [_NO_TAG] * len(words)
                tags_file.write(np.asarray(tag_numbers, corpus.TOKEN_DTYPE).tobytes())
                lengths.extend(map(len, sentences))
                names.append(name)
                rows.append((part, len(sentences), tags is not None))
        columns = np.asarray(rows, np.int64)
        return cls(
            directory=directory,
            words=list(ids),
            tags=list(tag_ids),
            lengths=np.asarray(lengths),
            names=names,
            parts=columns[:, 0],
            sentences=columns[:, 1],
            is_tagged=columns[:, 2].astype(bool),
            digests=np.asarray(digests),
        )

    def is_repeated(self, is_selected_D: np.ndarray) -> np.ndarray:
        """bool [D], whether a selected document has the words of an earlier selected document."""
        is_repeated_D = is_selected_D.copy()
        _, first = np.unique(self.digests[is_selected_D], return_index=True)
        is_repeated_D[np.flatnonzero(is_selected_D)[first]] = False
        return is_repeated_D

    @property
    def tokens(self) -> np.ndarray:
        """int64 [D], the number of words of each document."""
        first = np.cumsum(self.sentences) - self.sentences
        return np.add.reduceat(self.lengths, first)

    def cut(self, max_words: int) -> "NumberedText":
        """The same text with documents of at most `max_words` words, cut between sentences.

        Each piece takes whole sentences while they fit; a longer sentence is a separate piece.
        Pieces are called NAME#1, NAME#2 and so on. Each piece belongs to the split of its document.
        """
        names, sentences, pieces = [], [], []
        for name, lengths in zip(
            self.names, np.split(self.lengths, np.cumsum(self.sentences)[:-1]), strict=True
        ):
            counts = _piece_sizes(lengths.tolist(), max_words)
            pieces.append(len(counts))
            sentences += counts
            is_cut = len(counts) > 1
            names += [f"{name}#{n + 1}" for n in range(len(counts))] if is_cut else [name]
        text = dataclasses.replace(
            self,
            names=names,
            parts=np.repeat(self.parts, pieces),
            sentences=np.asarray(sentences),
            is_tagged=np.repeat(self.is_tagged, pieces),
        )
        words_of_each = np.split(self._values(_IDS), np.cumsum(text.tokens)[:-1])
        return dataclasses.replace(text, digests=np.asarray([*map(_digest, words_of_each)]))

    def first_sentences(self, is_selected_D: np.ndarray, count: int) -> list[list[str]]:
        """The words of the first `count` sentences of the selected documents."""
        (sentences,) = np.nonzero(np.repeat(is_selected_D, self.sentences))
        ends = np.cumsum(self.lengths)
        ids = self._values(_IDS)
        return [
            [self.words[id] for id in ids[ends[at] - self.lengths[at] : ends[at]]]
            for at in sentences[:count]
        ]

    def count_words(self, is_selected_D: np.ndarray) -> dict[str, int]:
        """The number of occurrences of each word in the selected documents."""
        counts = np.zeros(len(self.words), np.int64)
        for ids, _ in self._chunks(_IDS, is_selected_D):
            counts += np.bincount(ids, minlength=len(counts))
        return {
            word: count for word, count in zip(self.words, counts.tolist(), strict=True) if count
        }

    def count_unknown(self, vocabulary: Vocabulary) -> np.ndarray:
        """int64 [D], the number of words of each document that are not in a vocabulary."""
        is_unknown = vocabulary.is_unknown(self.words)
        counts = np.zeros(len(self.names), np.int64)
        for ids, documents in self._chunks(_IDS, np.ones(len(counts), bool)):
            np.add.at(counts, documents[is_unknown[ids]], 1)
        return counts

    def write_split(
        self,
        directory: pathlib.Path,
        split: str,
        is_selected_D: np.ndarray,
        encoded: EncodedWords,
        dropped: Mapping[str, int],
    ) -> corpus.SplitEntry:
        """Writes the selected documents with final ids and returns their statistics, including
        `dropped`, the numbers of omitted documents."""
        paths = [directory / name for name in corpus.split_files(split)]
        ids, first, num_ids, is_unknown, sizes, has_pieces = encoded
        sentences = self.sentences[is_selected_D]
        lengths = self.lengths[np.repeat(is_selected_D, self.sentences)]
        ends, begin, oov_tokens, characters = np.cumsum(lengths), 0, 0, 0
        positions = np.zeros(len(lengths), np.int64) if has_pieces else lengths
        with files.open_binary(paths[0]) as file:
            for provisional, _ in self._chunks(_IDS, is_selected_D):
                oov_tokens += int(is_unknown[provisional].sum())
                characters += int(sizes[provisional].sum())
                counts = num_ids[provisional]
                file.write(ids[_ranges(first[provisional], counts)].tobytes())
                if has_pieces:
                    words = np.arange(begin, begin + len(provisional))
                    np.add.at(positions, np.searchsorted(ends, words, side="right"), counts)
                    begin += len(provisional)
        for path, counts in zip(paths[1:3], (positions, sentences), strict=True):
            offsets = np.append(0, counts).cumsum().astype(corpus.OFFSET_DTYPE)
            files.write_bytes(path, offsets.tobytes())
        names = "".join(f"{self.names[index]}\n" for index in np.flatnonzero(is_selected_D))
        files.write_bytes(paths[3], names.encode())
        num_tokens = int(lengths.sum())
        return corpus.SplitEntry(
            documents=len(sentences),
            sentences=len(lengths),
            tokens=num_tokens,
            oov_tokens=oov_tokens,
            oov_rate=oov_tokens / num_tokens,
            pieces=int(positions.sum()) if has_pieces else 0,
            characters=characters,
            dropped_documents=dict(dropped),
        )

    def write_tags(self, directory: pathlib.Path, splits: Mapping[str, np.ndarray]) -> None:
        """Writes the tags of each split whose documents are all tagged."""
        counts = np.zeros(len(self.tags), np.int64)
        for split, is_selected_D in splits.items():
            if self.is_tagged[is_selected_D].all():
                with files.open_binary(directory / corpus.tags_file(split)) as file:
                    for tags, _ in self._chunks(_TAGS, is_selected_D):
                        counts += np.bincount(tags, minlength=len(counts))
                        file.write(tags.tobytes())
        if counts.any():
            lines = zip(self.tags, counts.tolist(), strict=True)
            text = "".join(f"{tag}\t{count}\n" for tag, count in lines)
            files.write_bytes(directory / corpus.TAGS_FILE, text.encode())

    def _values(self, name: str) -> np.ndarray:
        """The values of a file, one per word, mapped into memory."""
        return np.memmap(self.directory / name, corpus.TOKEN_DTYPE, mode="r")

    def _chunks(
        self, name: str, is_selected_D: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Chunks of a file's values for the words of the selected documents, each value with the
        index of its word's document."""
        values, ends = self._values(name), np.cumsum(self.tokens)
        for begin in range(0, len(values), _CHUNK):
            part = values[begin : begin + _CHUNK]
            documents = np.searchsorted(ends, np.arange(begin, begin + len(part)), side="right")
            is_selected = is_selected_D[documents]
            yield part[is_selected], documents[is_selected]


def _ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The indices of concatenated ranges of `counts` indices from `first` on."""
    begins = np.cumsum(counts) - counts
    return np.repeat(first - begins, counts) + np.arange(counts.sum())


def _digest(numbers: np.ndarray) -> int:
    """A hash of the words of a document, 64 bits."""
    return int.from_bytes(hashlib.blake2b(numbers.tobytes(), digest_size=8).digest(), signed=True)


def _piece_sizes(lengths: list[int], max_words: int) -> list[int]:
    """The number of sentences of each piece that `NumberedText.cut` makes."""
    sizes, words = [0], 0
    for length in lengths:
        if sizes[-1] and words + length > max_words:
            sizes.append(0)
            words = 0
        sizes[-1] += 1
        words += length
    return sizes
