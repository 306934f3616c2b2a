"""Vocabularies of subwords: every word is a sequence of pieces, and no word is OOV.

The last piece of a word has the mark U+2581 at its end, so that the probability of the pieces of a
word is the probability of the whole word, its end included (Pimentel and Meister 2024 give the
correction for marks on first pieces). SentencePiece learns the pieces from the counts of the words
of the training text by a unigram model, and divides words into them. Text is not normalized. Rare
characters are spelled in the bytes of UTF-8. Ids are in this order:

    START END UNKNOWN | 256 bytes | pieces inside a word | the mark | other pieces that end a word

so that an id alone says whether it ends a word (`vocabulary.word_ends`). UNKNOWN is only the text's
own spelling of OOV words, such as <unk>: a word that models read and do not predict.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece

from dclm_jax import files
from dclm_jax.data.text_files import decode
from dclm_jax.data.vocabulary import (
    END_TOKEN,
    FIRST_WORD,
    SPECIAL_TOKENS,
    START_TOKEN,
    UNKNOWN,
    UNKNOWN_TOKEN,
    VOCABULARY_FILE,
    Vocabulary,
)
from dclm_jax.errors import InputError, brief
from dclm_jax.storage import Location, PathLike, locate, reaching

PIECES_FILE = "pieces.model"
WORD_COUNTS_FILE = "word_counts.tsv"
_END = "\N{LOWER ONE EIGHTH BLOCK}"
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
FIRST_PIECE = FIRST_WORD + len(_BYTES)
_RARE = 1e-6
"""Characters with a smaller share of the training text are spelled in bytes."""
_LEARNED_FROM = 50_000
"""Maximum number of words, the most frequent first, from which pieces are learned."""
_LONGEST, _SKIPPED = 1000, {_END, "\0", "\N{LOWER FIVE EIGHTHS BLOCK}"}
"""SentencePiece skips longer words, and words with these characters, when it learns."""
_CACHED_WORDS = 2**18
"""Maximum number of words whose pieces are in memory."""
_HIGHEST = re.compile(r"<= (\d+)")
_REPAIR = "restore the folder from a copy, or prepare the corpus again with --overwrite"


@dataclasses.dataclass(frozen=True, repr=False)
class Subwords(Vocabulary):
    """A vocabulary of pieces of words.

    Attributes:
      entries: the special tokens, the bytes, and the pieces; the counts are counts of entries.
      model: SentencePiece's model file.
      word_counts: the number of occurrences of each word of the training text.
    """

    model: bytes = dataclasses.field(kw_only=True)
    word_counts: Mapping[str, int] = dataclasses.field(kw_only=True)

    file_names = (VOCABULARY_FILE, PIECES_FILE, WORD_COUNTS_FILE)

    @functools.cached_property
    def first_word_end(self) -> int:
        """The id of the first piece that ends a word, which is the mark alone."""
        return self.entries.index(_END)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the encoding of words."""
        digest = hashlib.sha256("\n".join(self.entries).encode() + self.model)
        return digest.hexdigest()[:16]

    @property
    def words(self) -> Sequence[str]:
        """The word of each entry; "" for an entry that is a part of words."""
        last_pieces = self.entries[self.first_word_end :]
        parts = [""] * (self.first_word_end - FIRST_WORD)
        return [*SPECIAL_TOKENS, *parts, *(piece.removesuffix(_END) for piece in last_pieces)]

    @property
    def oov_rate(self) -> None:
        """None: no word is OOV."""

    @functools.cached_property
    def num_words(self) -> int:
        """The number of words of the training text."""
        return sum(self.word_counts.values())

    def count_of(self, word: str) -> int:
        """The number of occurrences of a word in the training text."""
        return self.word_counts.get(word, 0)

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """int32 ids of the pieces of `words`."""
        cached, ids = self._ids_of_words, []
        for word in words:
            pieces = cached.get(word)
            if pieces is None:
                if len(cached) == _CACHED_WORDS:
                    cached.clear()
                pieces = cached[word] = self.pieces_of(word)
            ids += pieces
        return np.array(ids, np.int32)

    def pieces_of(self, word: str) -> list[int]:
        """The ids of the pieces of a word."""
        # For a list of words SentencePiece would start threads.
        pieces = self._processor.encode(_utf8(word), out_type=int)
        return self._spelled(word) or self._rank[pieces].tolist()

    def encode_each(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The int32 ids of many different words, and int64 [M], the number of ids of each word."""
        divided = self._processor.encode([*map(_utf8, words)], out_type=int)
        rank = self._rank
        ids = [
            np.array(self._spelled(word) or rank[pieces])
            for word, pieces in zip(words, divided, strict=True)
        ]
        counts = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.concatenate([np.zeros(0, np.int32), *ids], dtype=np.int32), counts

    def _spelled(self, word: str) -> list[int]:
        """The ids of a word that SentencePiece does not divide; empty for all others."""
        if word == self.unknown_token:
            return [UNKNOWN]
        if _END in word or " " in word or not word:
            # SentencePiece would read the end of a word in the middle of it.
            return [*(FIRST_WORD + byte for byte in word.encode()), self.first_word_end]
        return []

    def is_unknown(self, words: Sequence[str]) -> np.ndarray:
        """Whether each word is the text's own spelling of OOV words, bool [M]."""
        return np.array([word == self.unknown_token for word in words], bool)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of the pieces `ids`; UNKNOWN becomes the text's own spelling of OOV words.

        A last word without an end, and bytes that are no UTF-8, are possible if `encode` did not
        make the ids.
        """
        words, word = [], b""
        for index in ids:
            word += self._spellings[index]
            if index >= self.first_word_end or index == UNKNOWN:
                words.append(word.decode("utf-8", "replace"))
                word = b""
        return [*words, word.decode("utf-8", "replace")] if word else words

    def shown(self, words: Sequence[str]) -> list[str]:
        """The words for a reader, with | between the pieces of a word."""
        ids, counts = self.encode_each(words)
        parts = np.split(ids, np.cumsum(counts)[:-1]) if words else []
        return [
            f"[{word}]"
            if UNKNOWN in part
            else "|".join(self.entries[index] for index in part).removesuffix(_END)
            for word, part in zip(words, parts, strict=True)
        ]

    def save(self, path: PathLike) -> None:
        """Writes the entries and, in the same folder, SentencePiece's model and the word counts."""
        super().save(path)
        folder = locate(path).parent
        files.write_bytes(folder / PIECES_FILE, self.model)
        with files.open_output(folder / WORD_COUNTS_FILE) as file:
            file.writelines(f"{word}\t{count}\n" for word, count in self.word_counts.items())

    @functools.cached_property
    def _processor(self) -> Any:
        return _processor(self.model)

    @functools.cached_property
    def _rank(self) -> np.ndarray:
        """The id of each of SentencePiece's ids, int32 [V]."""
        ids = {entry: index for index, entry in enumerate(self.entries)}
        return np.array([ids[piece] for piece in _pieces(self._processor)], np.int32)

    @functools.cached_property
    def _ids_of_words(self) -> dict[str, list[int]]:
        return {}

    @functools.cached_property
    def _spellings(self) -> list[bytes]:
        pieces = (entry.removesuffix(_END).encode() for entry in self.entries[FIRST_PIECE:])
        special = START_TOKEN, END_TOKEN, self.unknown_token or UNKNOWN_TOKEN
        return [
            *(entry.encode() for entry in special),
            *(bytes([byte]) for byte in range(len(_BYTES))),
            *pieces,
        ]


def learn(
    counter: Mapping[str, int], size: int, num_sentences: int, unknown_token: str | None = None
) -> Subwords:
    """Learns pieces from the words of a text.

    Args:
      counter: word -> occurrences in the text.
      size: number of pieces, the 256 bytes included.
      num_sentences: number of sentences of the text, for the counts of START and END.
      unknown_token: the text's own spelling of OOV words, which is not divided.
    """
    words = {word: n for word, n in counter.items() if word != unknown_token}
    usable = [w for w in words if len(w) <= _LONGEST and _SKIPPED.isdisjoint(w)]
    characters = collections.Counter[str]()
    for word in usable:
        for character in word:
            characters[character] += words[word]
    threshold = _RARE * characters.total()
    alphabet = {character for character, count in characters.items() if count >= threshold}
    learned_from = [word for word in usable if alphabet.issuperset(word)]
    if not learned_from:
        raise InputError("there are no words to learn subwords from; choose other training text")
    needed = len(_BYTES) + len(alphabet) + 1
    if size < needed:
        raise InputError(
            f"subwords is {size:,}; the text needs at least {needed:,} pieces, for 256 bytes and "
            f"{needed - len(_BYTES):,} characters; choose at least this number"
        )
    learned_from = sorted(learned_from, key=lambda word: (-words[word], word))[:_LEARNED_FROM]
    model = io.BytesIO()
    start, end, unknown = SPECIAL_TOKENS
    try:
        sentencepiece.SentencePieceTrainer.train(  # pyright: ignore[reportAttributeAccessIssue]
            sentence_iterator=(f"{word}\t{words[word]}" for word in learned_from),
            model_writer=model,
            input_format="tsv",
            model_type="unigram",
            vocab_size=FIRST_WORD + size,
            character_coverage=1.0,
            byte_fallback=True,
            treat_whitespace_as_suffix=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            split_by_unicode_script=False,
            split_by_number=False,
            **{"bos_id": 0, "bos_piece": start, "eos_id": 1, "eos_piece": end},
            **{"unk_id": UNKNOWN, "unk_piece": unknown, "pad_id": -1},
            # The result depends on the number of threads.
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        if highest := _HIGHEST.search(str(error)):
            maximum = int(highest[1]) - FIRST_WORD
            raise InputError(
                f"subwords is {size:,}; the text has at most {maximum:,} pieces; choose at most "
                "this number"
            ) from error
        reason = " ".join(str(error).split())
        raise InputError(f"subwords cannot be learned from the text ({reason})") from error
    pieces = sorted(_pieces(_processor(model.getvalue()))[FIRST_PIECE:], key=_order)
    entries = (*SPECIAL_TOKENS, *_BYTES, *pieces)
    counts = dict(sorted(words.items(), key=lambda entry: (-entry[1], entry[0])))
    subwords = Subwords(
        entries, (0,) * len(entries), unknown_token, model=model.getvalue(), word_counts=counts
    )
    ids, lengths = subwords.encode_each(list(counts))
    occurrences = np.repeat(np.fromiter(counts.values(), np.int64, len(counts)), lengths)
    totals = np.zeros(len(entries), np.int64)
    np.add.at(totals, ids, occurrences)
    totals[:FIRST_WORD] = num_sentences, num_sentences, counter.get(unknown_token or "", 0)
    return dataclasses.replace(subwords, counts=tuple(totals.tolist()))


def load_vocabulary(path: PathLike) -> Vocabulary:
    """The vocabulary in a file `vocabulary.tsv`, or in the folder that contains it: of words, or of
    subwords with `pieces.model` and `word_counts.tsv` beside it."""
    location = locate(path)
    with reaching(location):
        if location.is_dir():
            location = location / VOCABULARY_FILE
    vocabulary = Vocabulary.load(location)
    if vocabulary.entries[FIRST_WORD:FIRST_PIECE] != _BYTES:
        return vocabulary
    model_path = location.parent / PIECES_FILE
    model = files.read_bytes(model_path)
    try:
        pieces = _pieces(_processor(model))
    except (RuntimeError, UnicodeDecodeError) as error:
        raise InputError(f"{model_path}: is no model of SentencePiece; {_REPAIR}") from error
    in_order = [*SPECIAL_TOKENS, *_BYTES, *sorted(vocabulary.entries[FIRST_PIECE:], key=_order)]
    if {*pieces} != {*vocabulary.entries} or in_order != [*vocabulary.entries]:
        raise InputError(f"{model_path}: has other pieces than {location}; {_REPAIR}")
    counts = _read_word_counts(location.parent / WORD_COUNTS_FILE)
    return Subwords(
        vocabulary.entries,
        vocabulary.counts,
        vocabulary.unknown_token,
        model=model,
        word_counts=counts,
    )


def _read_word_counts(path: Location) -> dict[str, int]:
    counts: dict[str, int] = {}
    for number, text in decode(io.BytesIO(files.read_bytes(path)), str(path)):
        word, _, count = text.removesuffix("\n").partition("\t")
        if word.split() != [word] or not count.isdecimal():
            raise InputError(f"{path}:{number}: expected word<TAB>count, got {brief(text)}")
        counts[word] = int(count)
    return counts


def _utf8(word: str) -> bytes:
    try:
        return word.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the word {brief(word)} is no valid Unicode; remove its surrogates"
        ) from error


def _processor(model: bytes) -> Any:
    return sentencepiece.SentencePieceProcessor(  # pyright: ignore[reportCallIssue]
        model_proto=model
    )


def _pieces(processor: Any) -> list[str]:
    return [processor.id_to_piece(index) for index in range(len(processor))]


def _order(piece: str) -> int:
    """The key by which pieces are sorted: inside a word, the mark, at the end of a word."""
    return 1 if piece == _END else 2 if piece.endswith(_END) else 0
