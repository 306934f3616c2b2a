"""Text to a prepared corpus on disk, in one pass over the input.

Words get provisional ids in the order they are first met, and the ids go to disk as the text
streams through. When all is counted the vocabulary is known, and the provisional ids are rewritten
as final ones. So only the distinct words are ever held in memory, and input is read (and raw prose
split) once.

What is done, in this order: documents are read, assigned to splits, cut (`document_words`) and
filtered by their length; the vocabulary is counted; documents are filtered by their unknown words;
files are written. So pieces of a document are in one split, and which split a document is in does
not depend on the filters.
"""

import contextlib
import dataclasses
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax import files, storage
from dclm_jax.data import corpus, readers
from dclm_jax.data.documents import (
    PLAIN,
    UTF8,
    Document,
    TextOptions,
    checked_encoding,
    input_files,
)
from dclm_jax.data.filters import KEPT, Filters, count_dropped, first_reason, require_some
from dclm_jax.data.known_corpora import COLLECTIONS, DRAWN, OPTIONS, Collection
from dclm_jax.data.raw_text import RawText
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN, Vocabulary
from dclm_jax.errors import InputError, printable, require_at_least, shown

PathLike = str | pathlib.Path

DEFAULT_VOCAB_SIZE = 10_000
# How texts spell words that were left out of them.
_UNKNOWN_SPELLINGS = {"<unk>", "<UNK>", "[UNK]", "@unk@"}
_CURLY = re.compile(r"[\u2018\u2019\u201c\u201d\u2013\u2014]")
_SHOWN_SENTENCES, _SHOWN_WORDS, _SHOWN_UNKNOWN = 3, 40, 10


def prepare(
    source: PathLike | Mapping[str, PathLike] | None,
    output: PathLike,
    text: TextOptions = PLAIN,
    *,
    paired_source: PathLike | Mapping[str, PathLike] | None = None,
    fractions: Sequence[float] | None = None,
    seed: int = 0,
    vocab_size: int | None = None,
    min_count: int | None = None,
    vocabulary: PathLike | None = None,
    unknown_token: str | None = None,
    encoding: str = UTF8,
    document_words: int | None = None,
    min_words: int | None = None,
    max_words: int | None = None,
    max_unknown: float | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> corpus.Manifest:
    """Prepares separate inputs for the splits, one input to divide, or a corpus that has a name.

    Args:
      source: split name ("train", "valid", "test"; any of them) -> file, folder or "-"; or one
        such input, whose documents are divided at random into train, valid and test; or the folder
        of a corpus of `known_corpora` (None for sotu, which is embedded).
      output: the directory to make. It appears complete or not at all.
      text: the format and how text becomes words; with the name of a corpus as its format, the
        documents are divided as `known_corpora` says.
      paired_source: of paired documents what those of `source` are made of, given as that is: as
        many in the same order, none of them empty. They become the splits `corpus.source_split`,
        and the vocabulary is counted over both.
      fractions: the shares of train, valid and test (imdb, ted: of train and valid), by default
        0.8, 0.1 and 0.1 or those of the corpus; a share of 0 leaves the split out.
      seed: which documents go where.
      vocab_size: how many of the most frequent training words to keep; by default
        `DEFAULT_VOCAB_SIZE`, or with `min_count` all that occur so often.
      min_count: how often a training word occurs that is kept, at least.
      vocabulary: a vocabulary file to use instead of the training words.
      unknown_token: how the text spells an unknown word, if it does; some corpora that have a name
        say it by themselves.
      encoding: see `readers.read_documents`.
      document_words: cut longer documents into documents of at most so many words, see
        `RawText.cut`.
      min_words, max_words, max_unknown: leave out documents of fewer or more words, and those of a
        larger share of unknown words, see `filters`. A pair is left out if either of it is.
      overwrite: replace a prepared corpus that came from other sources or options.
      report: called with a line when an existing corpus is reused, before one that has a name is
        read, for what `readers.read_documents` reports, and in the end for some sentences as they
        are encoded, the most frequent unknown words and what was guessed.

    Returns:
      The manifest.
    """
    format, lowercase = text.format, text.lowercase
    inputs, takes, shares, collection = _way(source, format)
    paired_inputs = _paired_inputs(source, paired_source, format)
    texts = inputs | paired_inputs
    if sum(str(path) == readers.STDIN for path in texts.values()) > 1:
        raise InputError("only one text can be read from standard input")
    given = {
        "source": source is not None,
        "fractions": fractions is not None,
        "seed": seed != 0,
        "lowercase": lowercase,
    }
    refused = [option for option in OPTIONS if option not in takes]
    if any(given[option] for option in refused):
        what = format if collection else "a source for each split"
        raise InputError(f"{what} takes no {', '.join(refused[:-1])} or {refused[-1]}")
    encoding = checked_encoding(encoding)
    of_text = {
        name: value != getattr(PLAIN, name)
        for name, value in dataclasses.asdict(text).items()
        if name not in ("format", "lowercase")
    }
    of_text["encoding"] = encoding != UTF8
    if collection and any(of_text.values()):
        refused = ", ".join(option for option, is_given in of_text.items() if is_given)
        raise InputError(f"{format} takes no {refused}")
    if collection and source is None and "source" in takes:
        raise InputError(f"{format} needs a source: the folder of {collection.title}")
    if fractions is not None:
        shares = _check_fractions(fractions, corpus.SPLITS[: len(shares)])
    if seed < 0:
        raise InputError(f"seed is {seed}; expected 0 or more")
    if vocab_size is None and min_count is None:
        vocab_size = DEFAULT_VOCAB_SIZE
    require_at_least("vocab_size", vocab_size, 1)
    require_at_least("min_count", min_count, 1)
    if min_count is not None and vocabulary is not None:
        raise InputError("min_count belongs to a vocabulary of training words; one is given")
    if unknown_token is not None and unknown_token.split() != [unknown_token]:
        raise InputError(f"unknown_token is {unknown_token!r}; expected one word")
    require_at_least("document_words", document_words, 1)
    if document_words is not None and paired_inputs:
        raise InputError("document_words cuts documents one by one; paired documents stay whole")
    filters = Filters(min_words, max_words, max_unknown)
    # The embedded corpus is in lower case by itself.
    lowercase = lowercase or "lowercase" not in takes
    if collection:
        unknown_token = unknown_token or collection.unknown_token
    spelling = unknown_token.lower() if unknown_token and lowercase else unknown_token

    splits, division = list(inputs), {}
    if not isinstance(source, Mapping):
        without = {split for split, share in zip(corpus.SPLITS, shares, strict=False) if not share}
        splits = [split for split in corpus.SPLITS if split not in without]
        division = {"fractions": list(shares)} | ({"seed": seed} if "seed" in takes else {})
    known = None
    if vocabulary is not None:
        known = Vocabulary.load(vocabulary)
        known = dataclasses.replace(known, unknown_token=spelling or known.unknown_token)
    elif "train" not in splits:
        raise InputError(
            "without a train split a vocabulary is needed: give its file (--vocabulary)"
        )
    text = dataclasses.replace(text, lowercase=lowercase)
    options = {
        **division,
        **dataclasses.asdict(text),
        "encoding": encoding,
        "unknown_token": known.unknown_token if known else spelling,
        "vocab_size": None if known else vocab_size,
        "min_count": min_count,
        "vocabulary": known.fingerprint if known else None,
        "document_words": document_words,
        **dataclasses.asdict(filters),
    }
    width = 1
    if paired_inputs:
        # Each document is followed by its source.
        width = 2
        splits += map(corpus.source_split, splits[:])

    def assign(raw: RawText) -> np.ndarray:
        """The index of each document's split in `corpus.ALL_SPLITS`."""
        parts = np.asarray(collection.parts(raw.names)) if collection else raw.parts[::width]
        drawn = np.flatnonzero(parts == DRAWN)
        if drawn.size:
            whose = format if collection else inputs["input"]
            parts[drawn] = divide(drawn.size, shares, seed, whose)
        return (parts[:, None] + len(corpus.SPLITS) * np.arange(width)).ravel()

    def arrange(raw: RawText) -> RawText:
        raw = dataclasses.replace(raw, parts=assign(raw))
        return raw if document_words is None else raw.cut(document_words)

    def build(counts: Mapping[str, int], num_sentences: int) -> Vocabulary:
        return known or Vocabulary.build(
            counts, vocab_size, spelling, num_sentences, min_count or 1
        )

    def show(raw: RawText, vocabulary: Vocabulary, chosen: Mapping[str, np.ndarray]) -> None:
        for line in _shown(raw, vocabulary, chosen, reading.remembered):
            report(line)

    with contextlib.ExitStack() as stack:
        paths = texts
        if collection:
            sources = {format: collection.describe(inputs[format])}
        else:
            paths = {name: _on_disk(path, stack) for name, path in texts.items()}
            sources = {name: _describe(path, paths[name]) for name, path in texts.items()}
        target = storage.resolve(output)
        if existing := _existing(target, options, sources, overwrite):
            report(f"reusing {target}: it holds the same sources and options")
            return existing
        if collection:
            report(collection.announce(sources[format]))
        with files.replacing(target, last=corpus.MANIFEST_FILE) as directory:
            reading = _Reading(text, encoding, report, texts, paths)
            if not collection:
                reading.check_characters()
            documents = reading.documents(inputs)
            entry, entries, tags = _write(
                directory, documents, arrange, splits, filters, build, width, show
            )
            trained = reading.remembered
            if format == TextOptions.format:
                found = ", ".join(sorted(reading.statistics.formats))
                report(f"--format={format}: read as {found}")
            if left_out := reading.statistics.empty_documents * (not paired_inputs):
                report(f"documents without words that were left out: {left_out:,}")
            if "train" in entries and not entries["train"].oov_tokens:
                report(
                    "note: train has no unknown word, so that the probability of words that are "
                    "new later on is not learned; --min_count=2 leaves rare words out"
                )
            manifest = corpus.Manifest(1, entry, options, sources, entries, trained, tags)
            files.write_json(directory / corpus.MANIFEST_FILE, dataclasses.asdict(manifest))
    return manifest


class _Way(NamedTuple):
    """How a source is prepared.

    Attributes:
      inputs: what is read, by the name of its split, or by another name if it is divided.
      takes: the options that apply.
      shares: of the splits among which documents are divided, unless others are given.
      collection: of a corpus that has a name.
    """

    inputs: dict[str, PathLike]
    takes: tuple[str, ...]
    shares: tuple[float, ...]
    collection: Collection | None = None


def _way(source: PathLike | Mapping[str, PathLike] | None, format: str) -> _Way:
    if isinstance(source, Mapping):
        inputs = {split: source[split] for split in corpus.SPLITS if split in source}
        if not inputs or len(inputs) < len(source):
            expected = ", ".join(corpus.SPLITS)
            raise InputError(f"expected a source for any of {expected}: {list(source)}")
        return _Way(inputs, ("source", "lowercase"), ())
    if collection := COLLECTIONS.get(format):
        own = format if source is None else source
        return _Way({format: own}, collection.options, collection.fractions, collection)
    return _Way({"input": source or ""}, OPTIONS, (0.8, 0.1, 0.1))


def _paired_inputs(
    source: PathLike | Mapping[str, PathLike] | None,
    paired_source: PathLike | Mapping[str, PathLike] | None,
    format: str,
) -> dict[str, PathLike]:
    """The inputs that those of `_way` are paired with, by their `corpus.source_split`."""
    if paired_source is None:
        return {}
    if format in COLLECTIONS:
        raise InputError(f"{format} takes no paired source")
    of_splits = isinstance(source, Mapping)
    if of_splits != isinstance(paired_source, Mapping):
        raise InputError("expected one source to divide, or a source for each split, as of targets")
    paired = paired_source if isinstance(paired_source, Mapping) else {"input": paired_source}
    if isinstance(source, Mapping) and paired.keys() != source.keys():
        raise InputError(
            f"there are sources of {', '.join(paired)} and targets of {', '.join(source)}; "
            "expected both of the same splits"
        )
    return {corpus.source_split(name): path for name, path in paired.items()}


def _write(
    directory: pathlib.Path,
    documents: Iterable[tuple[int, int, Document]],
    arrange: Callable[[RawText], RawText],
    splits: Sequence[str],
    filters: Filters,
    build: Callable[[Mapping[str, int], int], Vocabulary],
    width: int,
    show: Callable[[RawText, Vocabulary, Mapping[str, np.ndarray]], None],
) -> tuple[corpus.VocabularyEntry, dict[str, corpus.SplitEntry], dict[str, corpus.FileEntry]]:
    """Writes all files but the manifest, which is to have what is returned.

    Args:
      directory: where.
      documents: as `RawText.read` takes them.
      arrange: gives a text the documents to write, whose parts are indices of ALL_SPLITS.
      splits: what to write, where documents are paired with their `source_split`.
      filters: which documents to leave out.
      build: how often each word is in train, how many sentences are there -> the vocabulary.
      width: 2 where documents are paired, each followed by its source, otherwise 1.
      show: called with the text, the vocabulary and the documents of each split.
    """
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        raw = arrange(RawText.read(documents, pathlib.Path(scratch)))

        def dropping(*reasons_D: np.ndarray) -> np.ndarray:
            """Why each document is left out, which is why its pair is."""
            reason_D = first_reason(np.stack(reasons_D))
            reason_D = np.repeat(first_reason(reason_D.reshape(-1, width).T), width)
            for at, split in enumerate(corpus.SPLITS):
                require_some(reason_D[raw.parts == at], split)
            return reason_D

        reason_D = dropping(filters.by_length(raw.tokens))
        is_training_D = raw.parts % len(corpus.SPLITS) == corpus.SPLITS.index("train")
        training = np.flatnonzero(is_training_D & (reason_D == KEPT))
        vocabulary = build(raw.count_words(training), int(raw.sentences[training].sum()))
        vocabulary.save(directory / corpus.VOCABULARY_FILE)
        entry = corpus.VocabularyEntry(
            size=len(vocabulary),
            fingerprint=vocabulary.fingerprint,
            unknown_token=vocabulary.unknown_token,
            files=corpus.describe_files(directory, [corpus.VOCABULARY_FILE]),
        )
        unknown_D = filters.by_unknown(raw.count_unknown(vocabulary), raw.tokens)
        reason_D = dropping(reason_D, unknown_D)
        entries, chosen = {}, {}
        for split in splits:
            is_here_D = raw.parts == corpus.ALL_SPLITS.index(split)
            chosen[split] = np.flatnonzero(is_here_D & (reason_D == KEPT))
            entries[split] = raw.write_split(
                directory, split, chosen[split], vocabulary, count_dropped(reason_D[is_here_D])
            )
        show(raw, vocabulary, chosen)
        return entry, entries, raw.write_tags(directory, chosen)


def _shown(
    raw: RawText,
    vocabulary: Vocabulary,
    chosen: Mapping[str, np.ndarray],
    options: TextOptions,
) -> Iterator[str]:
    """Lines that show sentences of the first split and the unknown words of all, and what flags
    would read words otherwise that stand among them."""

    def encoded(words: list[str]) -> str:
        ids = vocabulary.encode(words[:_SHOWN_WORDS])
        spelled = (
            f"[{word}]" if id == UNKNOWN else word for word, id in zip(words, ids, strict=False)
        )
        return " ".join(spelled) + " ..." * (len(words) > _SHOWN_WORDS)

    split = next(iter(chosen))
    yield f"sentences of {split} as they are encoded, [unknown] words in brackets:"
    for words in raw.first_sentences(chosen[split], _SHOWN_SENTENCES):
        yield "  " + printable(encoded(words))
    counts = raw.count_words(np.sort(np.concatenate(list(chosen.values()))))
    named = {*SPECIAL_TOKENS, vocabulary.unknown_token}
    words = [word for word in counts if word not in named]
    unknown = [
        word for word, id in zip(words, vocabulary.encode(words), strict=True) if id == UNKNOWN
    ]
    most = sorted(unknown, key=lambda word: (-counts[word], word))[:_SHOWN_UNKNOWN]
    if most:
        listed = ", ".join(f"{word} {counts[word]:,}" for word in most)
        yield printable(f"most frequent of {len(unknown):,} unknown words: {listed}")
    for word in sorted(_UNKNOWN_SPELLINGS & counts.keys() - {vocabulary.unknown_token}):
        yield (
            f"note: {word} is a word like others, {counts[word]:,} times; --unknown_token='{word}' "
            "makes it the text's sign for unknown words"
        )
    curly = [word for word in words if _CURLY.search(word)]
    if curly and readers.finds_words(options) and not options.normalize:
        found = sum(counts[word] for word in curly)
        yield (
            f"note: {found:,} words hold curly quotes or long dashes, such as "
            f"{shown(max(curly, key=counts.__getitem__))}; --normalize writes them plainly"
        )


def divide(
    num_documents: int, fractions: Sequence[float], seed: int, source: PathLike
) -> np.ndarray:
    """The index of the split of each document, drawn at random."""
    bounds = np.rint(np.cumsum(fractions) * num_documents).astype(np.int64)
    sizes = np.diff(bounds, prepend=0)
    if not sizes[np.asarray(fractions) > 0].all():
        found = "1 document is" if num_documents == 1 else f"{num_documents} documents are"
        raise InputError(
            f"{source}: {found} too few to split as "
            f"{','.join(f'{share:g}' for share in fractions)} (in lines of words and in prose a "
            "line = ends one)"
        )
    parts = np.repeat(np.arange(len(fractions)), sizes)
    return np.random.default_rng(seed).permutation(parts)


def _check_fractions(fractions: Sequence[float], splits: Sequence[str]) -> tuple[float, ...]:
    if (
        len(fractions) != len(splits)
        or not all(0 <= share <= 1 for share in fractions)
        or abs(sum(fractions) - 1) > 1e-6
    ):
        count = {2: "two", 3: "three"}[len(splits)]
        raise InputError(
            f"split is {','.join(f'{share:g}' for share in fractions)}; expected {count} shares of "
            f"{', '.join(splits[:-1])} and {splits[-1]} that add up to 1"
        )
    return tuple(fractions)


def _on_disk(path: PathLike, stack: contextlib.ExitStack) -> PathLike:
    """The path; of a pipe, that of a copy, since a checksum comes before reading.

    Not only standard input is a pipe: a shell's `<(command)` is one too.
    """
    if str(path) != readers.STDIN and not pathlib.Path(path).is_fifo():
        return path
    copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix="dclm_jax-input-"))
    is_stdin = str(path) == readers.STDIN
    opened = sys.stdin.buffer if is_stdin else storage.open_regular(path, or_stream=True)
    with contextlib.nullcontext(opened) if is_stdin else opened as pipe:
        shutil.copyfileobj(pipe, copy)
    copy.flush()
    return copy.name


def _describe(source: PathLike, path: PathLike) -> dict[str, str]:
    checksum = corpus.files_sha256(pathlib.Path(path), input_files(path))
    return {"name": str(source), "sha256": checksum}


@dataclasses.dataclass(frozen=True)
class _Reading:
    """How the texts of a corpus are read.

    Attributes:
      options, encoding, report: as `readers.read_documents` takes them.
      texts, paths: by its name what a text is called, and where it lies.
      statistics: of what has been read.
    """

    options: TextOptions
    encoding: str
    report: Callable[[str], None]
    texts: Mapping[str, PathLike]
    paths: Mapping[str, PathLike]
    statistics: readers.ReadStatistics = dataclasses.field(default_factory=readers.ReadStatistics)

    def _called(self, name: str) -> str | None:
        return None if self.paths[name] == self.texts[name] else str(self.texts[name])

    def check_characters(self) -> None:
        """Looks through all texts before the first is read."""
        for name, path in self.paths.items():
            readers.check_characters(path, self.encoding, self._called(name))

    def documents(self, inputs: Iterable[str]) -> Iterator[tuple[int, int, Document]]:
        """The index of a document's split or DRAWN, empty sentences dropped before it, and itself;
        of paired documents each source after its document."""
        for name in inputs:
            part = corpus.SPLITS.index(name) if name in corpus.SPLITS else DRAWN
            if (source := corpus.source_split(name)) in self.texts:
                pair = (self._read(name, keep_empty=True), self._read(source, keep_empty=True))
                stream = _alternating(pair, (self.texts[name], self.texts[source]))
            else:
                stream = self._read(name)
            for empty_sentences, document in stream:
                yield part, empty_sentences, document

    def _read(self, name: str, *, keep_empty: bool = False) -> Iterator[tuple[int, Document]]:
        before = self.statistics.empty_sentences
        for document in readers.read_documents(
            self.paths[name],
            self.options,
            encoding=self.encoding,
            statistics=self.statistics,
            name=self._called(name),
            keep_empty=keep_empty,
            report=self.report,
        ):
            yield self.statistics.empty_sentences - before, document
            before = self.statistics.empty_sentences

    @property
    def remembered(self) -> TextOptions:
        """How text is read like what has been read."""
        options, formats = self.options, self.statistics.formats
        remembered = readers.remembered(options, formats)
        for name in ("normalize", "language"):
            if getattr(options, name) != getattr(remembered, name):
                raise InputError(
                    f"{name} has no effect: the input has no raw text; remove --{name}"
                )
        if options.text_key and formats.isdisjoint(readers.KEYED):
            raise InputError(
                "text_key has no effect: the input has no CSV, TSV or JSON lines of raw text; "
                "remove --text_key"
            )
        if options.quoted and "tsv" not in formats:
            raise InputError("quoted has no effect: the input has no TSV file; remove --quoted")
        return remembered


def _alternating(
    pair: Sequence[Iterator[tuple[int, Document]]], paths: Sequence[PathLike]
) -> Iterator[tuple[int, Document]]:
    """Each document of the first text, and after it that of the second."""
    for found in readers.corresponding(pair, paths):
        for (_, document), path in zip(found, paths, strict=True):
            if not document.sentences:
                raise InputError(f"{path}: {document.id} has no words; a pair needs some")
        yield from found


def _existing(
    output: storage.Location,
    options: dict[str, Any],
    sources: dict[str, dict[str, Any]],
    overwrite: bool,
) -> corpus.Manifest | None:
    """The manifest of the corpus at `output`, if it is to be left there."""
    with storage.reaching(output):
        if not output.exists() or (output.is_dir() and storage.is_empty(output)):
            return None
        if not (output / corpus.MANIFEST_FILE).is_file():
            raise InputError(f"{output}: exists and is no prepared corpus; it is left alone")
        manifest = corpus.read_manifest(output)
        if overwrite:
            return None
        differing = [key for key in options if manifest.options.get(key) != options[key]]
        checksums = {key: one["sha256"] for key, one in sources.items()}
        if {key: one.get("sha256") for key, one in manifest.sources.items()} != checksums:
            differing.append("sources")
        if differing:
            raise InputError(
                f"{output}: already holds a corpus made otherwise ({', '.join(differing)} differ); "
                "choose another output or give --overwrite"
            )
        for entry in (manifest.vocabulary, *manifest.splits.values()):
            corpus.check_files(output, entry.files)
        corpus.check_files(output, manifest.tags)
    return manifest
