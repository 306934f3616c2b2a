"""Text to a prepared corpus on disk, in one pass over the input.

Words get provisional ids in the order of their first occurrence. Provisional ids are written to
disk while the text is read. After the last word the vocabulary is known, and provisional ids are
rewritten as final ids. Memory has only the distinct words and the lengths of sentences. The input
is read, and raw prose is tokenized, only once.

The steps, in this order:

1. Documents are read, assigned to splits, cut (`split_documents_at`) and filtered: of equal
   documents one may remain (`deduplicate`), then by length. Hashes find equal documents.
2. The vocabulary is counted over the remaining training documents.
3. Documents are filtered by their OOV words, as in Li et al. (2015, 4.1). The vocabulary is not
   counted again.
4. Files are written.

All pieces of a document are therefore in one split, and the split of a document does not depend on
the filters.
"""

import dataclasses
import itertools
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax import files, storage
from dclm_jax.data import corpus, readers, subwords
from dclm_jax.data.corpora import DRAWN
from dclm_jax.data.documents import PLAIN, Document, TextOptions
from dclm_jax.data.encoding import frequent_oov, vocabulary_warning
from dclm_jax.data.numbering import EncodedWords, NumberedText
from dclm_jax.data.prepare_plan import (
    DEFAULT_OPTIONS,
    INPUT,
    LIMITED,
    CorpusPlan,
    PrepareOptions,
    TextPath,
    TextSource,
    complete_plan,
    require_effect,
)
from dclm_jax.data.readers import TextReader
from dclm_jax.data.text_files import STDIN, input_files
from dclm_jax.data.vocabulary import VOCABULARY_FILE, Vocabulary
from dclm_jax.errors import InputError, printable
from dclm_jax.log import job_logger, logger

_FILES_OF_EVERY_CORPUS = (corpus.MANIFEST_FILE, VOCABULARY_FILE)
# Usual spellings of OOV words in texts.
_UNKNOWN_SPELLINGS = {"<unk>", "<UNK>", "[UNK]", "@unk@"}
_SHOWN_SENTENCES, _SHOWN_WORDS = 3, 40


def prepare(
    source: TextSource,
    output: TextPath,
    text: TextOptions = PLAIN,
    options: PrepareOptions = DEFAULT_OPTIONS,
    *,
    collection: str | None = None,
    overwrite: bool = False,
) -> corpus.Manifest:
    """Prepares separate inputs for the splits, one input to divide, or a named corpus.

    Args:
      source: a file or a folder, whose documents are divided at random into train, valid and
        test; or inputs by the names of their splits (any of "train", "valid", "test"); or the
        folder of a `collection` (None for sotu, which is embedded).
      output: the folder to write. It appears complete or not at all.
      text: the format and how text becomes words.
      options: how documents become a corpus.
      collection: name of a corpus of `corpora`, which says how the corpus is read and divided.
      overwrite: whether to replace a prepared corpus with other sources or options.

    Returns:
      The manifest.
    """
    plan = complete_plan(source, text, options, collection)
    target = storage.resolve(output)
    inputs = {name: _open(path, plan) for name, path in plan.inputs.items()}
    sources = {name: text.described for name, text in inputs.items()}
    if existing := _existing(target, plan.recorded, sources, overwrite):
        job_logger.info(f"reusing {target}: it has the same sources and options")
        return existing
    with (
        files.replacing(target, last=corpus.MANIFEST_FILE) as directory,
        tempfile.TemporaryDirectory(dir=directory) as scratch,
    ):
        if plan.collection:
            counts = sources[plan.collection.name]["files"].items()
            parts = "".join(f"; {part}: {count:,}" for part, count in counts if part)
            job_logger.info(f"reading {plan.collection.title}{parts}")
        numbered = NumberedText.read(_documents(inputs, plan), pathlib.Path(scratch))
        like_this = _end(inputs, plan)
        numbered = _divided(numbered, plan)
        selection = _selected(numbered, plan)
        vocabulary = selection.vocabulary
        vocabulary.save(directory / VOCABULARY_FILE)
        encoded = EncodedWords.of(numbered.words, vocabulary)
        splits = {
            split: numbered.write_split(
                directory, split, is_here_D, encoded, selection.dropped[split]
            )
            for split, is_here_D in selection.documents.items()
        }
        numbered.write_tags(directory, selection.documents)
        paths = [path for path in sorted(directory.iterdir()) if path.is_file()]
        manifest = corpus.Manifest(
            format_version=2,
            vocabulary_size=len(vocabulary),
            options=plan.recorded,
            sources=sources,
            splits=splits,
            text=like_this,
            files={path.name: storage.file_sha256(path) for path in paths},
        )
        files.write_json(directory / corpus.MANIFEST_FILE, dataclasses.asdict(manifest))
        _log_summary(numbered, selection, manifest)
    return manifest


@dataclasses.dataclass(frozen=True)
class _Input:
    """An input of the plan.

    Attributes:
      path: path of the input.
      described: entry of the input in the manifest.
      reader: reader of the input.
    """

    path: TextPath
    described: dict[str, Any]
    reader: TextReader


def _open(path: TextPath, plan: CorpusPlan) -> _Input:
    reader = TextReader(plan.text, plan.options.encoding)
    if plan.collection:
        return _Input(path, plan.collection.describe(path), reader)
    if str(path) == STDIN or pathlib.Path(path).is_fifo():
        raise InputError(
            f"{path}: a text to prepare is read twice, and a pipe only once; write the text to a "
            "file"
        )
    checksum = corpus.files_sha256(pathlib.Path(path), input_files(path))
    return _Input(path, {"name": str(path), "sha256": checksum}, reader)


def _existing(
    output: storage.Location,
    options: dict[str, Any],
    sources: dict[str, dict[str, Any]],
    overwrite: bool,
) -> corpus.Manifest | None:
    """The manifest of the corpus at `output` if it has the same sources and options."""
    with storage.reaching(output):
        if not output.exists() or (output.is_dir() and not any(output.iterdir())):
            return None
        if not all((output / name).is_file() for name in _FILES_OF_EVERY_CORPUS):
            raise InputError(f"{output}: is not a prepared corpus; choose another output")
        if overwrite:
            if foreign := corpus.foreign_files(output):
                raise InputError(
                    f"{output / foreign[0]}: is not part of the corpus, and --overwrite would "
                    "remove it; move it, or choose another output"
                )
            return None
        manifest = corpus.read_manifest(output)
        differing = [key for key in options if manifest.options.get(key) != options[key]]
        if _compared(manifest.sources) != _compared(sources):
            differing.append("sources")
        if differing:
            raise InputError(
                f"{output}: already has a different corpus ({', '.join(differing)} differ); choose "
                "another output or add --overwrite"
            )
        for split in manifest.splits:
            corpus.checked_files(output, manifest.files_of(split))
    return manifest


def _compared(sources: dict[str, dict[str, Any]]) -> dict[str, tuple[Any, str | None]]:
    """The checksum of each source and the format that its name determines."""
    return {
        split: (source.get("sha256"), readers.format_of_name(str(source.get("name"))))
        for split, source in sources.items()
    }


def _documents(inputs: Mapping[str, _Input], plan: CorpusPlan) -> Iterator[tuple[int, Document]]:
    """The index of the split of each document, or DRAWN, and the document."""
    for name, text in inputs.items():
        part = corpus.SPLITS.index(name) if name in corpus.SPLITS else DRAWN
        if plan.collection:
            documents = text.reader.word_maker.written(plan.collection.read(text.path))
        else:
            limit = plan.options.max_documents if name in LIMITED else None
            documents = text.reader.documents(text.path, limit=limit)
        for document in documents:
            yield part, document
        if plan.collection:
            text.reader.word_maker.finish(text.path)


def _end(inputs: Mapping[str, _Input], plan: CorpusPlan) -> TextOptions:
    """Logs omitted sentences and documents, and returns the options by which a run reads other
    text like its training text."""
    if sentences := sum(text.reader.word_maker.empty_sentences for text in inputs.values()):
        job_logger.info(f"sentences without words omitted: {sentences:,}")
    if documents := sum(text.reader.word_maker.empty_documents for text in inputs.values()):
        job_logger.info(f"documents without words omitted: {documents:,}")
    if plan.collection:
        format = plan.collection.text_format
    else:
        formats = {format for text in inputs.values() for format in text.reader.formats}
        require_effect(plan.text, plan.options, formats)
        is_raw = any(text.reader.word_maker.has_raw_text for text in inputs.values())
        format = "prose" if is_raw else "tagged" if "tagged" in formats else "lines"
    return dataclasses.replace(plan.text, format=format)


def _divided(numbered: NumberedText, plan: CorpusPlan) -> NumberedText:
    """The documents with indices of `corpus.SPLITS` as their parts; long documents are cut."""
    parts = numbered.parts
    if plan.collection:
        parts = np.asarray(plan.collection.parts(numbered.names))
    drawn = np.flatnonzero(parts == DRAWN)
    if drawn.size:
        whose = plan.collection.name if plan.collection else plan.inputs[INPUT]
        digests_D, options = numbered.digests[drawn], plan.options
        parts[drawn] = divide(digests_D, options.fractions or (), options.seed, whose)
    numbered = dataclasses.replace(numbered, parts=parts)
    max_words = plan.options.split_documents_at
    return numbered if max_words is None else numbered.cut(max_words)


def divide(
    digests_D: np.ndarray, fractions: Sequence[float], seed: int, source: TextPath
) -> np.ndarray:
    """The index of the split of each document, drawn at random; documents with equal digests are in
    one split."""
    num_documents = len(digests_D)
    bounds = np.rint(np.cumsum(fractions) * num_documents).astype(np.int64)
    sizes = np.diff(bounds, prepend=0)
    parts_D = np.repeat(np.arange(len(fractions)), sizes)
    parts_D = _together(np.random.default_rng(seed).permutation(parts_D), digests_D, sizes)
    if not np.bincount(parts_D, minlength=len(fractions))[np.asarray(fractions) > 0].all():
        num_different = len(np.unique(digests_D))
        documents = "1 document is" if num_different == 1 else f"{num_different} documents are"
        raise InputError(
            f"{source}: {documents} too few to split as "
            f"{','.join(f'{share:g}' for share in fractions)}; a line that begins with = ends a "
            "document of lines or prose"
        )
    return parts_D


def _together(parts_D: np.ndarray, digests_D: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The splits of documents, changed so that equal documents are in one split: the split of the
    first of them, or the split with most room if they are too many for it. Other documents change
    places, so that splits keep their sizes."""
    _, group_D, counts = np.unique(digests_D, return_inverse=True, return_counts=True)
    if len(counts) == len(digests_D):
        return parts_D
    is_single_D = counts[group_D] == 1
    parts_D, room = parts_D.copy(), sizes.copy()
    repeated = np.flatnonzero(~is_single_D)
    repeated = repeated[np.argsort(group_D[repeated], kind="stable")]
    for members in np.split(repeated, np.cumsum(counts[counts > 1])[:-1]):
        part = parts_D[members[0]]
        if len(members) > room[part]:
            part = np.argmax(room)
        parts_D[members] = part
        room[part] -= len(members)
    misplaced = []
    for part in range(len(sizes)):
        singles = np.flatnonzero(is_single_D & (parts_D == part))
        misplaced += singles[max(room[part], 0) :].tolist()
        room[part] -= len(singles)
    # The smallest splits are filled first.
    order = np.argsort(sizes)
    parts_D[misplaced] = np.repeat(order, np.maximum(room[order], 0))[: len(misplaced)]
    return parts_D


class _Selection(NamedTuple):
    """The vocabulary, and by split the mask [D] of documents to write and the numbers of omitted
    documents by reason."""

    vocabulary: Vocabulary
    documents: dict[str, np.ndarray]
    dropped: dict[str, dict[str, int]]


def _selected(numbered: NumberedText, plan: CorpusPlan) -> _Selection:
    options, tokens_D = plan.options, numbered.tokens
    repeated, short, long, unknown, kept = range(len(corpus.DROP_REASONS) + 1)
    is_short_D = tokens_D < (options.min_words or 0)
    is_long_D = tokens_D > (np.inf if options.max_words is None else options.max_words)
    is_repeated_D = numbered.is_repeated(np.full(len(tokens_D), options.deduplicate))
    reason_D = np.select([is_repeated_D, is_short_D, is_long_D], [repeated, short, long], kept)
    is_counted_D = (numbered.parts == corpus.SPLITS.index("train")) & (reason_D == kept)
    vocabulary = plan.vocabulary or Vocabulary(unknown_token=plan.text.unknown_token)
    num_sentences = int(numbered.sentences[is_counted_D].sum())
    if options.subwords:
        counter = numbered.count_words(is_counted_D)
        vocabulary = subwords.learn(
            counter, options.subwords, num_sentences, plan.text.unknown_token
        )
    if plan.counts_words:
        vocabulary = vocabulary.extended(
            numbered.count_words(is_counted_D),
            options.vocab_size,
            num_sentences,
            options.min_count or 1,
        )
        if plan.vocabulary:
            num_added = len(vocabulary) - len(plan.vocabulary)
            job_logger.info(f"words added to {options.vocabulary}: {num_added:,}")
    if options.max_unknown is not None:
        is_unknown_D = numbered.count_unknown(vocabulary) / tokens_D > options.max_unknown
        reason_D = np.where(is_unknown_D & (reason_D == kept), unknown, reason_D)
    selection = _Selection(vocabulary, {}, {})
    for split in plan.splits:
        is_here_D = numbered.parts == corpus.SPLITS.index(split)
        counts = np.bincount(reason_D[is_here_D], minlength=1 + kept).tolist()
        selection.documents[split] = is_here_D & (reason_D == kept)
        selection.dropped[split] = dict(zip(corpus.DROP_REASONS, counts, strict=False))
        if not sum(counts):
            raise InputError(
                f"split {split!r} would have no documents; give it a larger share or more text"
            )
        if not counts[kept]:
            dropped = selection.dropped[split].items()
            listed = ", ".join(f"{count:,} by --{reason}" for reason, count in dropped if count)
            raise InputError(
                f"the filters omit all {sum(counts):,} documents of {split} ({listed}); relax the "
                "filters"
            )
    return selection


def _log_repeated(numbered: NumberedText, documents: Mapping[str, np.ndarray]) -> None:
    """Logs the numbers of written documents with the words of another document, in one split and in
    two splits."""
    digests = {split: numbered.digests[is_here_D] for split, is_here_D in documents.items()}
    within = {split: len(of_split) - len(set(of_split)) for split, of_split in digests.items()}
    if listed := ", ".join(f"{split} {count:,}" for split, count in within.items() if count):
        logger.info(
            f"documents with the words of an earlier document of their split: {listed}; "
            "--deduplicate keeps one of each"
        )
    shared = []
    for earlier, later in itertools.combinations(digests, 2):
        if count := np.isin(digests[later], digests[earlier]).sum():
            shared.append(f"{count:,} of {len(digests[later]):,} of {later} are also in {earlier}")
    if shared:
        logger.warning(
            f"documents word for word in two splits: {', '.join(shared)}; add --deduplicate to "
            "keep one of each"
        )


def _log_summary(numbered: NumberedText, selection: _Selection, manifest: corpus.Manifest) -> None:
    """Logs encoded sentences of the first split, the OOV words of all splits or the pieces of
    words, and advice on flags for OOV words."""
    vocabulary = selection.vocabulary
    for split, entry in manifest.splits.items() if manifest.options["vocabulary"] else ():
        if warning := vocabulary_warning(entry.oov_rate, vocabulary):
            logger.warning(f"{split}: {warning}")
    split, is_here_D = next(iter(selection.documents.items()))
    pieces = ", pieces of words divided by |" * vocabulary.has_pieces
    job_logger.info(f"first sentences of {split}, OOV words in [brackets]{pieces}:")
    for words in numbered.first_sentences(is_here_D, _SHOWN_SENTENCES):
        marked = vocabulary.shown(words[:_SHOWN_WORDS])
        more = " ..." * (len(words) > _SHOWN_WORDS)
        job_logger.info(f"  {printable(' '.join(marked))}{more}")
    _log_repeated(numbered, selection.documents)
    counts = numbered.count_words(np.any(list(selection.documents.values()), axis=0))
    if listed := frequent_oov(counts, vocabulary):
        job_logger.info(listed)
    for word in sorted(_UNKNOWN_SPELLINGS & counts.keys() - {vocabulary.unknown_token}):
        logger.info(
            f"{word} is an ordinary word, {counts[word]:,} times; if it marks OOV words, add "
            f"--unknown_token='{word}'"
        )
    is_closed = "train" in manifest.splits and not vocabulary.has_pieces
    if is_closed and not manifest.splits["train"].oov_tokens:
        remedy = ""
        if not manifest.options["vocabulary"]:
            min_count = 1 + (manifest.options["min_count"] or 1)
            remedy = f"; add --min_count={min_count} to make rare words OOV"
        logger.info(f"train has no OOV words, so that a model cannot learn P(UNKNOWN){remedy}")
