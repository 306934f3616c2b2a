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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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
from dclm_jax.data.numbering import RawText
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, UNKNOWN, Vocabulary
from dclm_jax.errors import InputError, printable, require_at_least, shown

PathLike = str | pathlib.Path
Source = PathLike | Mapping[str, PathLike] | None

DEFAULT_VOCAB_SIZE = 10_000
_DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)
# The name of an input that is divided.
_INPUT = "input"
_OF_OTHER_TEXT = {*TextOptions.__dataclass_fields__, "encoding"} - {"format", "lowercase"}
# How texts spell words that were left out of them.
_UNKNOWN_SPELLINGS = {"<unk>", "<UNK>", "[UNK]", "@unk@"}
_CURLY = re.compile(r"[\u2018\u2019\u201c\u201d\u2013\u2014]")
_SHOWN_SENTENCES, _SHOWN_WORDS, _SHOWN_UNKNOWN = 3, 40, 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareOptions(Filters):
    """How documents become a prepared corpus: into which splits they go, which words are in the
    vocabulary, and which documents are left out (`Filters`).

    Attributes:
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
      document_words: maximum number of words per document; longer documents are cut, see
        `RawText.cut`.
    """

    fractions: Sequence[float] | None = None
    seed: int = 0
    vocab_size: int | None = None
    min_count: int | None = None
    vocabulary: PathLike | None = None
    unknown_token: str | None = None
    encoding: str = UTF8
    document_words: int | None = None

    def __post_init__(self):
        super().__post_init__()
        require_at_least("seed", self.seed, 0)
        require_at_least("vocab_size", self.vocab_size, 1)
        require_at_least("min_count", self.min_count, 1)
        require_at_least("document_words", self.document_words, 1)
        if self.min_count is not None and self.vocabulary is not None:
            raise InputError("min_count belongs to a vocabulary of training words; one is given")
        if self.unknown_token is not None and self.unknown_token.split() != [self.unknown_token]:
            raise InputError(f"unknown_token is {self.unknown_token!r}; expected one word")


DEFAULT_OPTIONS = PrepareOptions()


def prepare(
    source: Source,
    output: PathLike,
    text: TextOptions = PLAIN,
    options: PrepareOptions = DEFAULT_OPTIONS,
    *,
    paired_source: Source = None,
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
      options: how documents become a corpus.
      paired_source: of paired documents what those of `source` are made of, given as that is: as
        many in the same order, none of them empty. They become the splits `corpus.source_split`,
        and the vocabulary is counted over both. A pair is left out if either of it is.
      overwrite: replace a prepared corpus that came from other sources or options.
      report: called with a line when an existing corpus is reused, before one that has a name is
        read, for what `readers.read_documents` reports, and in the end for some sentences as they
        are encoded, the most frequent unknown words and what was guessed.

    Returns:
      The manifest.
    """
    plan = _plan(source, paired_source, text, options)
    target = storage.resolve(output)
    with contextlib.ExitStack() as stack:
        reading = _Reading.of(plan, report, stack)
        if existing := _existing(target, plan.recorded, reading.sources, overwrite):
            report(f"reusing {target}: it holds the same sources and options")
            return existing
        directory = stack.enter_context(files.replacing(target, last=corpus.MANIFEST_FILE))
        reading.begin()
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=directory))
        raw = plan.arrange(RawText.read(reading.documents(), pathlib.Path(scratch)))
        manifest = _write(directory, raw, plan, reading)
        files.write_json(directory / corpus.MANIFEST_FILE, dataclasses.asdict(manifest))
    return manifest


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What is read and how it becomes a corpus.

    Attributes:
      inputs: what is read, by the name of its split, as "input" if it is divided, or by the name of
        the corpus that it is.
      paired_inputs: what their documents are made of, by the `corpus.source_split` of those names.
      splits: what is written.
      text: how text becomes words.
      options: how documents become a corpus, with the defaults of such inputs.
      collection: of a corpus that has a name.
      vocabulary: the one that the options name.
      recorded: the options as the manifest has them.
    """

    inputs: dict[str, PathLike]
    paired_inputs: dict[str, PathLike]
    splits: list[str]
    text: TextOptions
    options: PrepareOptions
    collection: Collection | None
    vocabulary: Vocabulary | None
    recorded: dict[str, Any]

    @property
    def texts(self) -> dict[str, PathLike]:
        return self.inputs | self.paired_inputs

    @property
    def width(self) -> int:
        """2 where documents are paired, each followed by its source, otherwise 1."""
        return 2 if self.paired_inputs else 1

    def arrange(self, raw: RawText) -> RawText:
        """The documents to write, whose parts are indices of `corpus.ALL_SPLITS`."""
        parts = raw.parts[:: self.width]
        if self.collection:
            parts = np.asarray(self.collection.parts(raw.names))
        drawn = np.flatnonzero(parts == DRAWN)
        if drawn.size:
            whose = self.text.format if self.collection else self.inputs[_INPUT]
            parts[drawn] = divide(
                drawn.size, self.options.fractions or (), self.options.seed, whose
            )
        parts = parts[:, None] + len(corpus.SPLITS) * np.arange(self.width)
        raw = dataclasses.replace(raw, parts=parts.ravel())
        max_words = self.options.document_words
        return raw if max_words is None else raw.cut(max_words)

    def select(self, raw: RawText) -> tuple[Vocabulary, np.ndarray]:
        """The vocabulary, and the reason [D] to leave out each document, or KEPT."""
        options = self.options

        def dropping(*reasons_D: np.ndarray) -> np.ndarray:
            """Why each document is left out, which is why its pair is."""
            reason_D = first_reason(np.stack(reasons_D))
            reason_D = first_reason(reason_D.reshape(-1, self.width).T).repeat(self.width)
            for at, split in enumerate(corpus.SPLITS):
                require_some(reason_D[raw.parts == at], split)
            return reason_D

        reason_D = dropping(options.by_length(raw.tokens))
        is_training_D = raw.parts % len(corpus.SPLITS) == corpus.SPLITS.index("train")
        training = np.flatnonzero(is_training_D & (reason_D == KEPT))
        vocabulary = self.vocabulary or Vocabulary.build(
            raw.count_words(training),
            options.vocab_size,
            options.unknown_token,
            int(raw.sentences[training].sum()),
            options.min_count or 1,
        )
        unknown_D = options.by_unknown(raw.count_unknown(vocabulary), raw.tokens)
        return vocabulary, dropping(reason_D, unknown_D)


def _plan(
    source: Source, paired_source: Source, text: TextOptions, options: PrepareOptions
) -> _Plan:
    is_divided = not isinstance(source, Mapping)
    collection = COLLECTIONS.get(text.format) if is_divided else None
    if collection and paired_source is not None:
        raise InputError(f"{text.format} takes no paired source")
    name = text.format if collection else _INPUT
    inputs = _inputs(source or (name if collection else ""), name)
    paired_inputs = {} if paired_source is None else _paired_inputs(inputs, paired_source)
    if [*map(str, [*inputs.values(), *paired_inputs.values()])].count(readers.STDIN) > 1:
        raise InputError("only one text can be read from standard input")

    refused = _refused(source, collection)
    changed = _changed(text) | _changed(options) | ({"source"} if source is not None else set())
    if refused & changed:
        what = text.format if collection else "a source for each split"
        raise InputError(f"{what} takes no {', '.join(sorted(refused & changed))}")
    if collection and source is None and "source" not in refused:
        raise InputError(f"{text.format} needs a source: the folder of {collection.title}")
    if options.document_words is not None and paired_inputs:
        raise InputError("document_words cuts documents one by one; paired documents stay whole")

    fractions, splits = None, [*inputs]
    if is_divided:
        fractions = collection.fractions if collection else _DEFAULT_FRACTIONS
        if options.fractions is not None:
            fractions = _check_fractions(options.fractions, corpus.SPLITS[: len(fractions)])
        shares = dict(zip(corpus.SPLITS, fractions, strict=False))
        splits = [split for split in corpus.SPLITS if shares.get(split) != 0]
    if "train" not in splits and options.vocabulary is None:
        raise InputError(
            "without a train split a vocabulary is needed: give its file (--vocabulary)"
        )
    # The embedded corpus is in lower case by itself.
    text = dataclasses.replace(text, lowercase=text.lowercase or "lowercase" in refused)
    unknown_token = options.unknown_token or (collection.unknown_token if collection else None)
    if unknown_token and text.lowercase:
        unknown_token = unknown_token.lower()
    vocabulary, vocab_size = None, options.vocab_size
    if options.vocabulary is not None:
        vocabulary, vocab_size = Vocabulary.load(options.vocabulary), None
        unknown_token = unknown_token or vocabulary.unknown_token
        vocabulary = dataclasses.replace(vocabulary, unknown_token=unknown_token)
    elif vocab_size is None and options.min_count is None:
        vocab_size = DEFAULT_VOCAB_SIZE
    options = dataclasses.replace(
        options,
        fractions=fractions,
        vocab_size=vocab_size,
        unknown_token=unknown_token,
        encoding=checked_encoding(options.encoding),
    )
    recorded = {
        **dataclasses.asdict(text),
        **dataclasses.asdict(options),
        "fractions": None if fractions is None else list(fractions),
        "vocabulary": vocabulary.fingerprint if vocabulary else None,
    }
    if "seed" in refused:
        del recorded["seed"]
    if paired_inputs:
        splits += map(corpus.source_split, splits[:])
    return _Plan(inputs, paired_inputs, splits, text, options, collection, vocabulary, recorded)


def _refused(source: Source, collection: Collection | None) -> set[str]:
    """The options without a meaning for such a source."""
    if collection:
        return ({*OPTIONS} - {*collection.options}) | _OF_OTHER_TEXT
    return {"fractions", "seed"} if isinstance(source, Mapping) else set()


def _changed(options: TextOptions | PrepareOptions) -> set[str]:
    """The names of the options that differ from their defaults."""
    fields = dataclasses.fields(options)
    return {field.name for field in fields if getattr(options, field.name) != field.default}


def _inputs(source: PathLike | Mapping[str, PathLike], name: str) -> dict[str, PathLike]:
    """The inputs by their split; a single one has the name."""
    if not isinstance(source, Mapping):
        return {name: source}
    inputs = {split: source[split] for split in corpus.SPLITS if split in source}
    if not inputs or len(inputs) < len(source):
        expected = ", ".join(corpus.SPLITS)
        raise InputError(f"expected a source for any of {expected}: {list(source)}")
    return inputs


def _paired_inputs(
    inputs: Mapping[str, PathLike], paired_source: PathLike | Mapping[str, PathLike]
) -> dict[str, PathLike]:
    """What the documents of inputs are made of, by the `corpus.source_split` of their names."""
    if (_INPUT in inputs) == isinstance(paired_source, Mapping):
        raise InputError("expected one source to divide, or a source for each split, as of targets")
    paired = _inputs(paired_source, _INPUT)
    if paired.keys() != inputs.keys():
        raise InputError(
            f"there are sources of {', '.join(paired)} and targets of {', '.join(inputs)}; "
            "expected both of the same splits"
        )
    return {corpus.source_split(name): path for name, path in paired.items()}


def _write(
    directory: pathlib.Path, raw: RawText, plan: _Plan, reading: "_Reading"
) -> corpus.Manifest:
    """Writes all files but the manifest, which it returns."""
    vocabulary, reason_D = plan.select(raw)
    vocabulary.save(directory / corpus.VOCABULARY_FILE)
    vocabulary_entry = corpus.VocabularyEntry(
        size=len(vocabulary),
        fingerprint=vocabulary.fingerprint,
        unknown_token=vocabulary.unknown_token,
        files=corpus.describe_files(directory, [corpus.VOCABULARY_FILE]),
    )
    entries, documents = {}, {}
    for split in plan.splits:
        is_here_D = raw.parts == corpus.ALL_SPLITS.index(split)
        documents[split] = np.flatnonzero(is_here_D & (reason_D == KEPT))
        entries[split] = raw.write_split(
            directory, split, documents[split], vocabulary, count_dropped(reason_D[is_here_D])
        )
    manifest = corpus.Manifest(
        format_version=1,
        vocabulary=vocabulary_entry,
        options=plan.recorded,
        sources=reading.sources,
        splits=entries,
        text=reading.remembered,
        tags=raw.write_tags(directory, documents),
    )
    for line in _shown(raw, vocabulary, documents, reading.remembered):
        reading.report(line)
    for line in reading.notes(entries):
        reading.report(line)
    return manifest


def _shown(
    raw: RawText,
    vocabulary: Vocabulary,
    documents: Mapping[str, np.ndarray],
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

    split = next(iter(documents))
    yield f"sentences of {split} as they are encoded, [unknown] words in brackets:"
    for words in raw.first_sentences(documents[split], _SHOWN_SENTENCES):
        yield "  " + printable(encoded(words))
    counts = raw.count_words(np.sort(np.concatenate(list(documents.values()))))
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


@dataclasses.dataclass(frozen=True)
class _Reading:
    """The texts of a plan as they are read.

    Attributes:
      plan: what is read.
      report: as `prepare` takes it.
      paths: where each text lies, by its name.
      sources: what the manifest says of them.
      statistics: of what has been read.
    """

    plan: _Plan
    report: Callable[[str], None]
    paths: Mapping[str, PathLike]
    sources: dict[str, dict[str, Any]]
    statistics: readers.ReadStatistics = dataclasses.field(default_factory=readers.ReadStatistics)

    @classmethod
    def of(
        cls, plan: _Plan, report: Callable[[str], None], stack: contextlib.ExitStack
    ) -> "_Reading":
        """Copies texts that are pipes to files, which the stack removes."""
        if plan.collection:
            name = plan.text.format
            return cls(
                plan, report, plan.inputs, {name: plan.collection.describe(plan.inputs[name])}
            )
        paths, sources = {}, {}
        for name, path in plan.texts.items():
            paths[name] = copy = _on_disk(path, stack)
            checksum = corpus.files_sha256(pathlib.Path(copy), input_files(copy))
            sources[name] = {"name": str(path), "sha256": checksum}
        return cls(plan, report, paths, sources)

    def begin(self) -> None:
        """Says what is read, or looks through all texts before the first is read."""
        if self.plan.collection:
            self.report(self.plan.collection.announce(self.sources[self.plan.text.format]))
            return
        for name, path in self.paths.items():
            readers.check_characters(path, self.plan.options.encoding, self._called(name))

    def documents(self) -> Iterator[tuple[int, int, Document]]:
        """The index of a document's split or DRAWN, empty sentences dropped before it, and itself;
        of paired documents each source after its document."""
        for name in self.plan.inputs:
            part = corpus.SPLITS.index(name) if name in corpus.SPLITS else DRAWN
            stream = self._read(name)
            if (source := corpus.source_split(name)) in self.paths:
                names = (self.plan.texts[name], self.plan.texts[source])
                stream = _alternating((stream, self._read(source)), names)
            for empty_sentences, document in stream:
                yield part, empty_sentences, document

    def _called(self, name: str) -> str | None:
        text = self.plan.texts[name]
        return None if self.paths[name] == text else str(text)

    def _read(self, name: str) -> Iterator[tuple[int, Document]]:
        before = self.statistics.empty_sentences
        for document in readers.read_documents(
            self.paths[name],
            self.plan.text,
            encoding=self.plan.options.encoding,
            statistics=self.statistics,
            name=self._called(name),
            keep_empty=bool(self.plan.paired_inputs),
            report=self.report,
        ):
            yield self.statistics.empty_sentences - before, document
            before = self.statistics.empty_sentences

    @property
    def remembered(self) -> TextOptions:
        """How text is read like what has been read."""
        options, formats = self.plan.text, self.statistics.formats
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

    def notes(self, entries: Mapping[str, corpus.SplitEntry]) -> Iterator[str]:
        """What was guessed and left out, and what may be amiss."""
        format = self.plan.text.format
        if format == TextOptions.format:
            yield f"--format={format}: read as {', '.join(sorted(self.statistics.formats))}"
        if (left_out := self.statistics.empty_documents) and not self.plan.paired_inputs:
            yield f"documents without words that were left out: {left_out:,}"
        if "train" in entries and not entries["train"].oov_tokens:
            yield (
                "note: train has no unknown word, so that the probability of words that are new "
                "later on is not learned; --min_count=2 leaves rare words out"
            )


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
