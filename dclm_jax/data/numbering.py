"""Text on its way to a prepared corpus: provisional word ids on disk, rewritten as final ones."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np

from dclm_jax import files
from dclm_jax.data import corpus
from dclm_jax.data.documents import Document
from dclm_jax.data.vocabulary import UNKNOWN, Vocabulary
from dclm_jax.errors import InputError

_CHUNK = 1 << 20
_IDS, _LENGTHS, _TAGS = "ids.bin", "lengths.bin", "tags.bin"


@dataclasses.dataclass(frozen=True)
class RawText:
    """Text as provisional word ids on disk, with what is known of each document in memory.

    Attributes:
      directory: where the ids of all words are, the numbers of words of all sentences, and of
        documents with tags those of their words.
      words: in the order of their provisional ids.
      tags: in the order of their ids, which stay as they are.
      names: of the documents.
      parts: int64 [num_documents], what `read` was given of each, as is `dropped`.
      dropped: int64 [num_documents], empty sentences that were left out.
      sentences: int64 [num_documents], their numbers of sentences.
      tokens: int64 [num_documents], their numbers of words.
      tagged: int64 [num_documents], their numbers of words with tags: all or none.
    """

    directory: pathlib.Path
    words: list[str]
    tags: list[str]
    names: list[str]
    parts: np.ndarray
    dropped: np.ndarray
    sentences: np.ndarray
    tokens: np.ndarray
    tagged: np.ndarray

    @classmethod
    def read(
        cls, documents: Iterable[tuple[int, int, Document]], directory: pathlib.Path
    ) -> "RawText":
        """Writes (part, dropped, document), one or more of them, into a directory."""
        ids, tag_ids = _numbering(), _numbering()
        names, rows = [], []
        with (
            files.open_binary(directory / _IDS) as ids_file,
            files.open_binary(directory / _LENGTHS) as lengths_file,
            files.open_binary(directory / _TAGS) as tags_file,
        ):
            for part, dropped, (name, sentences, tags) in documents:
                words = [ids[word] for sentence in sentences for word in sentence]
                ids_file.write(np.asarray(words, corpus.TOKEN_DTYPE).tobytes())
                lengths = np.asarray(list(map(len, sentences)), corpus.OFFSET_DTYPE)
                lengths_file.write(lengths.tobytes())
                of_words = [tag_ids[tag] for sentence in tags or () for tag in sentence]
                tags_file.write(np.asarray(of_words, corpus.TOKEN_DTYPE).tobytes())
                names.append(name)
                rows.append((part, dropped, len(sentences), len(words), len(of_words)))
        return cls(directory, list(ids), list(tag_ids), names, *_columns(rows))

    def cut(self, max_words: int) -> "RawText":
        """The same text, its longer documents cut into documents of at most so many words.

        They are made of whole sentences, as many in each as fit; a longer sentence is a document by
        itself. They are called NAME#1, NAME#2 and so on, and have the part of the whole one; the
        empty sentences are the first one's.
        """
        total = int(self.sentences.sum())
        lengths = corpus.open_array(self.directory / _LENGTHS, corpus.OFFSET_DTYPE, total)
        names, rows = [], []
        of_documents = np.split(lengths, np.cumsum(self.sentences)[:-1])
        for name, part, dropped, own, tagged in zip(
            self.names, self.parts, self.dropped, of_documents, self.tagged, strict=True
        ):
            pieces = _gathered(own.tolist(), max_words)
            names += [name] if len(pieces) == 1 else [f"{name}#{n + 1}" for n in range(len(pieces))]
            rows += [
                (part, 0 if n else dropped, sentences, words, words if tagged else 0)
                for n, (sentences, words) in enumerate(pieces)
            ]
        return RawText(self.directory, self.words, self.tags, names, *_columns(rows))

    def first_sentences(self, chosen: np.ndarray, count: int) -> list[list[str]]:
        """The words of so many sentences, the first ones of the documents of these numbers."""
        lengths = next(self._read(_LENGTHS, corpus.OFFSET_DTYPE, self.sentences, chosen))[:count]
        ids = next(self._read(_IDS, corpus.TOKEN_DTYPE, self.tokens, chosen))[: lengths.sum()]
        return [[self.words[id] for id in own] for own in np.split(ids, lengths.cumsum()[:-1])]

    def count_words(self, chosen: np.ndarray) -> dict[str, int]:
        """Words of the documents of these numbers -> occurrences in them."""
        counts = np.zeros(len(self.words), np.int64)
        for ids in self._read(_IDS, corpus.TOKEN_DTYPE, self.tokens, chosen):
            counts += np.bincount(ids, minlength=len(counts))
        return {
            word: count for word, count in zip(self.words, counts.tolist(), strict=True) if count
        }

    def count_unknown(self, vocabulary: Vocabulary) -> np.ndarray:
        """int64 [num_documents], the words of each that are not in a vocabulary."""
        is_unknown = vocabulary.encode(self.words) == UNKNOWN
        ends, before, at = np.cumsum(self.tokens), 0, 0
        # Entry d: the unknown words up to the end of document d.
        counts = np.zeros(len(ends), np.int64)
        for ids in self._read(_IDS, corpus.TOKEN_DTYPE, self.tokens, np.arange(len(ends))):
            so_far = before + np.cumsum(is_unknown[ids])
            here = slice(*np.searchsorted(ends, [at, at + len(ids)], side="right"))
            counts[here] = so_far[ends[here] - at - 1]
            before, at = so_far[-1], at + len(ids)
        return np.diff(counts, prepend=0)

    def _read(
        self, name: str, dtype: np.dtype, sizes: np.ndarray, chosen: np.ndarray
    ) -> Iterator[np.ndarray]:
        """What a file holds of the documents of these numbers, a part at a time."""
        ends = np.cumsum(sizes)
        values = corpus.open_array(self.directory / name, dtype, ends[-1])
        parts, held = [], 0
        # Neighbours are read together.
        for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
            if run.size:
                end = ends[run[-1]]
                for at in range(ends[run[0]] - sizes[run[0]], end, _CHUNK):
                    parts.append(values[at : min(at + _CHUNK, end)])
                    held += len(parts[-1])
                    # What is done with a part may take as long as the vocabulary is large.
                    if held >= _CHUNK:
                        yield np.concatenate(parts)
                        parts, held = [], 0
        if parts:
            yield np.concatenate(parts)

    def write_split(
        self,
        directory: pathlib.Path,
        split: str,
        chosen: np.ndarray,
        vocabulary: Vocabulary,
        dropped: corpus.Dropped,
    ) -> corpus.SplitEntry:
        """Writes the documents of these numbers with final ids and returns their statistics, to
        which those belong that were left out."""
        if not chosen.size:
            raise InputError(f"split {split!r} would hold no documents")
        names = corpus.split_files(split)
        paths = [directory / name for name in names]
        final = vocabulary.encode(self.words).astype(corpus.TOKEN_DTYPE)
        sizes = np.fromiter((len(word) + 1 for word in self.words), np.int64, len(self.words))
        oov_tokens = characters = 0
        with files.open_binary(paths[0]) as file:
            for provisional in self._read(_IDS, corpus.TOKEN_DTYPE, self.tokens, chosen):
                ids = final[provisional]
                oov_tokens += int((ids == UNKNOWN).sum())
                characters += int(sizes[provisional].sum())
                file.write(ids.tobytes())
        lengths = np.concatenate(
            [*self._read(_LENGTHS, corpus.OFFSET_DTYPE, self.sentences, chosen)]
        )
        sentences = self.sentences[chosen]
        for path, sizes in zip(paths[1:3], (lengths, sentences), strict=True):
            offsets = np.append(0, sizes).cumsum().astype(corpus.OFFSET_DTYPE)
            files.write_bytes(path, offsets.tobytes())
        called = "".join(f"{self.names[index]}\n" for index in chosen)
        files.write_bytes(paths[3], called.encode())
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
            characters=characters,
            empty_sentences=int(self.dropped[chosen].sum()),
            dropped_documents=dropped,
            files=corpus.describe_files(directory, names),
        )

    def write_tags(
        self, directory: pathlib.Path, chosen: dict[str, np.ndarray]
    ) -> dict[str, corpus.FileEntry]:
        """Writes the tags of the splits that are made of documents of these numbers, of each whose
        documents all have some, and returns what the manifest is to say of the files."""
        chosen = {
            split: own
            for split, own in chosen.items()
            if np.array_equal(self.tagged[own], self.tokens[own])
        }
        counts = np.zeros(len(self.tags), np.int64)
        for split, own in chosen.items():
            with files.open_binary(directory / corpus.tags_file(split)) as file:
                for tags in self._read(_TAGS, corpus.TOKEN_DTYPE, self.tagged, own):
                    counts += np.bincount(tags, minlength=len(counts))
                    file.write(tags.tobytes())
        names = [*map(corpus.tags_file, chosen), *([corpus.TAGS_FILE] if chosen else [])]
        if chosen:
            lines = zip(self.tags, counts.tolist(), strict=True)
            text = "".join(f"{tag}\t{count}\n" for tag, count in lines)
            files.write_bytes(directory / corpus.TAGS_FILE, text.encode())
        return corpus.describe_files(directory, names)


def _numbering() -> collections.defaultdict[str, int]:
    """Numbers words in the order they are first asked for."""
    numbers: collections.defaultdict[str, int] = collections.defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


def _columns(rows: list[tuple[int, ...]]) -> list[np.ndarray]:
    """The five columns of the numbers of documents."""
    return list(np.asarray(rows, np.int64).reshape(-1, 5).T)


def _gathered(lengths: list[int], max_words: int) -> list[tuple[int, int]]:
    """Numbers of sentences and words of the documents that sentences of these lengths make."""
    pieces = [(0, 0)]
    for length in lengths:
        sentences, words = pieces[-1]
        if sentences and words + length > max_words:
            pieces.append((1, length))
        else:
            pieces[-1] = (sentences + 1, words + length)
    return pieces
