"""Text to a prepared corpus on disk, in one pass over the input.

Words get provisional ids in the order they are first met, and the ids go to disk as the text
streams through. When all is counted the vocabulary is known, and the provisional ids are rewritten
as final ones. So only the distinct words are ever held in memory, and input is read (and raw prose
split) once.
"""

import collections
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from dclm_jax.data import corpus, readers, sotu
from dclm_jax.data.vocabulary import UNKNOWN, Vocabulary
from dclm_jax.errors import InputError

PathLike = str | pathlib.Path
Report = Callable[[str], None]

SOTU_FRACTIONS = (0.8, 0.1, 0.1)
_CHUNK = 1 << 20


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
) -> dict[str, Any]:
    """Prepares splits that are given as separate inputs.

    Args:
      sources: split name ("train", "valid", "test"; any of them) -> file, folder or "-".
      output: the directory to make. It appears complete or not at all.
      vocab_size: how many of the most frequent training words to keep.
      vocabulary: a vocabulary file to use instead of the training words.
      unknown_token: how the text spells an unknown word, if it does.
      format: one of `readers.FORMATS` but "sotu".
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

        def documents() -> Iterator[tuple[int, readers.Document, int]]:
            for index, split in enumerate(splits):
                for document, empty in inputs.read(split, format, lowercase):
                    yield index, document, empty

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
) -> dict[str, Any]:
    """Prepares one input, its documents divided at random into train, valid and test.

    The vocabulary is made from the training part alone. See `prepare` for the other arguments.

    Args:
      source: file, folder or "-".
      fractions: the shares of train, valid and test; a share of 0 leaves the split out.
      seed: which documents go where.

    Raises:
      InputError: as `prepare`; or the shares are no shares, or there are too few documents.
    """
    fractions = _check_fractions(fractions)
    if seed < 0:
        raise InputError(f"seed is {seed}; expected 0 or more")
    splits = [split for split, share in zip(corpus.SPLITS, fractions, strict=True) if share]
    shares = [share for share in fractions if share]
    words = _WordOptions(vocab_size, vocabulary, unknown_token, lowercase)

    def assign(num_documents: int) -> np.ndarray:
        bounds = np.rint(np.cumsum(shares) * num_documents).astype(np.int64)
        sizes = np.diff(bounds, prepend=0)
        if not sizes.all():
            raise InputError(
                f"{source}: {num_documents} documents are too few to split as "
                + ",".join(f"{share:g}" for share in fractions)
            )
        parts = np.repeat(np.arange(len(shares)), sizes)
        return np.random.default_rng(seed).permutation(parts)

    with _Inputs({"input": source}) as inputs:
        return _prepare(
            ((0, document, empty) for document, empty in inputs.read("input", format, lowercase)),
            splits,
            output,
            words,
            request={
                "sources": inputs.checksums(),
                "format": format,
                "fractions": list(fractions),
                "seed": seed,
            },
            assign=assign,
            overwrite=overwrite,
            report=report,
        )


def prepare_sotu(
    output: PathLike,
    *,
    vocab_size: int = 10_000,
    vocabulary: PathLike | None = None,
    overwrite: bool = False,
    report: Report = lambda line: None,
) -> dict[str, Any]:
    """Prepares the State of the Union addresses, lower-cased and split by year (80/10/10 %).

    Every test address is from a later year than every validation address, and those than every
    training address. See `prepare` for the arguments.

    Raises:
      InputError: a package of the extra `text` is not installed, or as `prepare`.
    """
    words = _WordOptions(vocab_size, vocabulary, None, True)
    years: list[int] = []

    def documents() -> Iterator[tuple[int, readers.Document, int]]:
        report("splitting the State of the Union addresses into sentences (under two minutes)")
        for document in readers.read_documents("sotu", "sotu", lowercase=True):
            years.append(sotu.address_year(document.id))
            yield 0, document, 0

    return _prepare(
        documents(),
        list(corpus.SPLITS),
        output,
        words,
        request={
            "sources": {"sotu": {"name": f"sotu {sotu.version()}", "sha256": sotu.checksum()}},
            "format": "sotu",
            "fractions": list(SOTU_FRACTIONS),
        },
        assign=lambda num_documents: np.asarray(sotu.split_by_year(years, SOTU_FRACTIONS)),
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
            key: {"name": str(path), "sha256": _checksum(self._spooled.get(key, path))}
            for key, path in self._paths.items()
        }

    def read(
        self, key: str, format: str, lowercase: bool
    ) -> Iterator[tuple[readers.Document, int]]:
        """Documents, each with the number of empty sentences dropped since the one before."""
        path = self._paths[key]
        statistics = readers.ReadStatistics()
        before = 0
        for document in readers.read_documents(
            self._spooled.get(key, path),
            format,
            lowercase=lowercase,
            statistics=statistics,
            name=str(path) if key in self._spooled else None,
        ):
            yield document, statistics.empty_sentences - before
            before = statistics.empty_sentences


def _is_pipe(path: PathLike) -> bool:
    return str(path) == readers.STDIN or pathlib.Path(path).is_fifo()


def _checksum(path: PathLike) -> str:
    root = pathlib.Path(path)
    digest = hashlib.sha256()
    for file in readers.input_files(root):
        # A single file may be renamed; in a folder the names decide the order.
        name = file.relative_to(root).as_posix() if root.is_dir() else ""
        try:
            digest.update(f"{name}\n{corpus.file_sha256(file)}\n".encode())
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _check_fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    if (
        len(fractions) != len(corpus.SPLITS)
        or not all(0 <= share <= 1 for share in fractions)
        or abs(sum(fractions) - 1) > 1e-6
    ):
        raise InputError(
            f"split is {','.join(f'{share:g}' for share in fractions)}; expected three shares of "
            "train, valid and test that add up to 1"
        )
    return tuple(fractions)


def _prepare(
    documents: Iterable[tuple[int, readers.Document, int]],
    splits: list[str],
    output: PathLike,
    words: _WordOptions,
    *,
    request: dict[str, Any],
    overwrite: bool,
    report: Report,
    assign: Callable[[int], np.ndarray] | None = None,
) -> dict[str, Any]:
    """Reads (split index, document, empty sentences) and writes a corpus, or reuses it.

    `assign`, if given, maps the number of documents to their split indices once all are read.
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
    output = pathlib.Path(output).resolve()
    existing = _existing(output)
    if existing is not None and not overwrite:
        _require_same(output, existing, options, request["sources"])
        report(f"reusing {output}: it holds the same sources and options")
        return existing

    with _Replacing(output) as directory:
        raw = _RawText(directory)
        with raw:
            for index, document, empty in documents:
                raw.add(index, document, empty)
        parts = raw.parts() if assign is None else assign(raw.num_documents)
        vocabulary = given
        if vocabulary is None:
            counts = raw.count(np.flatnonzero(parts == splits.index("train")))
            num_sentences = raw.num_sentences(parts == splits.index("train"))
            vocabulary = Vocabulary.build(
                {word: int(count) for word, count in zip(raw.words, counts, strict=True) if count},
                words.vocab_size,
                spelling,
                num_sentences,
            )
        vocabulary.save(directory / corpus.VOCABULARY_FILE)
        statistics = {
            split: raw.write_split(directory, split, np.flatnonzero(parts == index), vocabulary)
            for index, split in enumerate(splits)
        }
        raw.remove()
        manifest = {
            "format_version": corpus.FORMAT_VERSION,
            "vocabulary": {
                "size": len(vocabulary),
                "fingerprint": vocabulary.fingerprint,
                "unknown_token": vocabulary.unknown_token,
                "files": corpus.describe_files(directory, (corpus.VOCABULARY_FILE,)),
            },
            "options": options,
            "sources": request["sources"],
            "splits": statistics,
        }
        (directory / corpus.MANIFEST_FILE).write_text(
            json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return manifest


def _existing(output: pathlib.Path) -> dict[str, Any] | None:
    """The manifest of the corpus that lies at `output`; None if there is nothing."""
    if not output.exists():
        return None
    if output.is_dir() and not any(output.iterdir()):
        return None
    if not (output / corpus.MANIFEST_FILE).is_file():
        raise InputError(f"{output}: exists and is no prepared corpus; it is left alone")
    return corpus.read_manifest(output)


def _require_same(
    output: pathlib.Path,
    manifest: dict[str, Any],
    options: dict[str, Any],
    sources: dict[str, dict[str, str]],
) -> None:
    """Raises InputError unless the corpus is whole and came from these sources and options."""
    before = manifest.get("options", {})
    differing = [key for key in options if before.get(key) != options[key]]
    checksums = {key: source["sha256"] for key, source in sources.items()}
    if {key: s["sha256"] for key, s in manifest.get("sources", {}).items()} != checksums:
        differing.append("sources")
    if differing:
        raise InputError(
            f"{output}: already holds a corpus made otherwise ({', '.join(differing)} differ); "
            "choose another output or give --overwrite"
        )
    for entry in (manifest["vocabulary"], *manifest["splits"].values()):
        corpus.check_files(output, entry["files"])


class _Replacing:
    """A temporary directory beside `target` that takes its place when all has gone well."""

    def __init__(self, target: pathlib.Path):
        self._target = target

    def __enter__(self) -> pathlib.Path:
        parent = self._target.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self._directory = pathlib.Path(
                tempfile.mkdtemp(prefix=f".{self._target.name}.", dir=parent)
            )
        except OSError as error:
            raise InputError(f"{self._target}: cannot be written: {error.strerror}") from error
        return self._directory

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            if kind is None:
                self._replace()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _replace(self) -> None:
        umask = os.umask(0)
        os.umask(umask)
        self._directory.chmod(0o777 & ~umask)
        if not self._target.exists():
            self._directory.rename(self._target)
            return
        # A directory in use cannot be replaced in one step: the old one is put aside first.
        aside = self._directory.with_name(self._directory.name + ".old")
        self._target.rename(aside)
        self._directory.rename(self._target)
        shutil.rmtree(aside)


class _RawText:
    """Text as provisional word ids on disk, with what is known of each document in memory."""

    def __init__(self, directory: pathlib.Path):
        self._path = directory / "raw.bin"
        self._lengths_path = directory / "raw.lengths.bin"
        self._ids: collections.defaultdict[str, int] = collections.defaultdict()
        self._ids.default_factory = self._ids.__len__
        self._files: list[BinaryIO] = []
        self._names: list[str] = []
        self._parts: list[int] = []
        self._empty: list[int] = []
        self._sentences: list[int] = []
        self._tokens: list[int] = []

    def __enter__(self) -> "_RawText":
        self._files = [open(self._path, "wb"), open(self._lengths_path, "wb")]
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()

    @property
    def words(self) -> list[str]:
        return list(self._ids)

    @property
    def num_documents(self) -> int:
        return len(self._names)

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
    ) -> dict[str, Any]:
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
        return {
            "documents": num_documents,
            "sentences": len(lengths),
            "tokens": num_tokens,
            "oov_tokens": oov_tokens,
            "oov_rate": oov_tokens / num_tokens,
            "tokens_per_document": num_tokens / num_documents,
            "sentences_per_document": len(lengths) / num_documents,
            "longest_sentence": int(lengths.max()),
            "longest_document": int(sentences.max()),
            "empty_sentences": int(np.asarray(self._empty)[chosen].sum()),
            "files": corpus.describe_files(directory, files),
        }

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
