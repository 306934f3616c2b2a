"""The count-based baseline: an n-gram model with modified Kneser-Ney smoothing, by KenLM.

KenLM's `lmplz` estimates the model from the training split of a prepared corpus, `build_binary`
converts it into a file that is mapped into memory, and the Python package `kenlm` answers queries.

WORKDIR/
  config.json       {"model": {"name": "ngram", "order": 5}, "data": {"directory": ...},
                    "binary": {"sha256": ...}}
  vocabulary.tsv    the vocabulary
  text.json         the options of the training text, as in `training.workdir`
  model.arpa        all n-grams with their log-probabilities, as text
  model.binary      the model for queries

KenLM's unknown word `<unk>` does not occur in the training text. UNKNOWN is counted like any other
word of this text, so that perplexities are comparable with other models.

KenLM does not check its binary files: a damaged file may end the process. A checksum is therefore
compared first. A checksum finds damage but not manipulation: use n-gram runs only from sources you
trust.
"""

import dataclasses
import itertools
import math
import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax import files, storage
from dclm_jax.data.corpus import Corpus, file_sha256, open_corpus
from dclm_jax.data.subwords import load_vocabulary
from dclm_jax.data.vocabulary import END, START, UNKNOWN, VOCABULARY_FILE, Vocabulary
from dclm_jax.errors import InputError, importing, require_at_least
from dclm_jax.log import job_logger
from dclm_jax.scoring.scorer import Scored, sentences_to_score
from dclm_jax.training.config import changed_keys, difference_text
from dclm_jax.training.workdir import CONFIG_FILE, TEXT_FILE, read_config

NGRAM = "ngram"
ARPA_FILE = "model.arpa"
BINARY_FILE = "model.binary"
KENLM_BIN = "KENLM_BIN"
"""The environment variable that names the folder of KenLM's programs."""

# KenLM's sentence boundaries and unknown word.
_RESERVED = ("<s>", "</s>", "<unk>", "<UNK>")
# Maximum memory of lmplz, whose default is most of the machine's; it sorts the rest on disk.
_MEMORY = "1G"
_TOO_LONG = re.compile(r"This model has order (\d+) but KenLM was compiled to support up to (\d+)")


class NGramRun(NamedTuple):
    """A restored run; `counts` are the numbers of n-grams of orders 1, 2, ..."""

    scorer: "NGramScorer"
    counts: list[int]
    vocabulary: Vocabulary
    config: dict[str, Any]


class NGramState(NamedTuple):
    """The states of `rows` documents between two sentences, which are all equal."""

    rows: int

    def take(self, rows: Sequence[int]) -> "NGramState":
        """The states of these rows in this order."""
        return NGramState(len(rows))


class NGramScorer:
    """Negative log-likelihoods of documents with independent sentences.

    The class has the interface of `dclm_jax.scoring.scorer.Scorer`, and the parts of the
    interface of `dclm_jax.reading.reader.Reader` that an n-gram model without context can have.
    """

    def __init__(self, path: str | os.PathLike[str], vocabulary: Vocabulary):
        """Maps a model into memory.

        Args:
          path: a file from `build_binary`, or an ARPA file.
          vocabulary: the vocabulary of the ids to score.
        """
        self._model = _load(path)
        self._spellings = spellings(vocabulary)
        self.vocab_size, self._has_pieces = len(vocabulary), vocabulary.has_pieces
        self.context_order = 0
        self.objective = "words"

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents in their order, one at a time; see `Scorer.score`."""
        for document in documents:
            sentences, first_scored = sentences_to_score(document)
            yield document, [self._nll(sentence) for sentence in sentences[first_scored:]]

    def open(self, rows: int) -> NGramState:
        """The start of `rows` documents."""
        return NGramState(rows)

    def read(
        self,
        state: NGramState,
        sentences: Sequence[Sequence[np.ndarray]],
        unscored: Sequence[int] | None = None,
    ) -> tuple[NGramState, list[list[np.ndarray]]]:
        """Reads sentences like `Reader.read`, and always scores all targets."""
        del unscored
        return state, [[self._nll(sentence) for sentence in row] for row in sentences]

    def select(self, is_first_B: np.ndarray, first: NGramState, second: NGramState) -> NGramState:
        """Selects states like `Reader.select`; all states between sentences are equal."""
        del is_first_B, second
        return first

    def next(self, state: NGramState, prefixes: Sequence[np.ndarray]) -> np.ndarray:
        """log P [B, V] in nats of the next id, -inf for START, like `Reader.next`."""
        del state
        return np.stack(list(map(self._next, prefixes)))

    def _next(self, prefix: np.ndarray) -> np.ndarray:
        before, after = _kenlm().State(), _kenlm().State()
        self._model.BeginSentenceWrite(before)
        for index in prefix:
            self._model.BaseScore(before, self._spellings[index], after)
            before, after = after, before
        targets = list(self._spellings)
        targets[END] = "</s>"
        log10_V = np.array([self._model.BaseScore(before, target, after) for target in targets])
        log10_V[START] = -np.inf
        if self._has_pieces:
            log10_V[UNKNOWN] = -np.inf
        return (log10_V * math.log(10)).astype(np.float32)

    def vectors(self, state: NGramState) -> None:
        """None: an n-gram model has no vectors."""

    def _nll(self, sentence: np.ndarray) -> np.ndarray:
        """-log P in nats of the words of a sentence and its END, float32 [M + 1]."""
        text = " ".join([self._spellings[index] for index in np.asarray(sentence).tolist()])
        log10 = [prob for prob, _, _ in self._model.full_scores(text)]
        nats = (np.array(log10, np.float64) * -math.log(10)).astype(np.float32)
        if self._has_pieces:
            # The text's own spelling of OOV words is read and not predicted.
            nats[:-1][np.equal(sentence, UNKNOWN)] = 0
        return nats


def train_ngram(
    data_directory: str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    *,
    order: int = 5,
) -> list[int]:
    """Estimates an n-gram model from the training split of a prepared corpus.

    Args:
      data_directory: a corpus prepared by `data.prepare.prepare`.
      workdir: the directory to create, which is complete or absent.
      order: number of words of the longest n-grams, or of pieces with a vocabulary of subwords.

    Returns:
      The numbers of n-grams of orders 1, 2, ...
    """
    require_at_least("order", order, 2)
    if storage.is_remote(workdir):
        raise InputError(f"{workdir}: KenLM needs a local disk; choose a path on this machine")
    data = open_corpus(data_directory, "train")
    target = pathlib.Path(workdir).absolute()
    config = {
        "model": {"name": NGRAM, "order": order},
        "data": {"directory": storage.absolute(data_directory)},
    }
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        _require_same(target, config, data.vocabulary)
        job_logger.info(f"reusing {workdir}: it has a model of the same text and order")
        return _read_counts(target / ARPA_FILE)
    lmplz, build_binary = map(_find_program, ("lmplz", "build_binary"))
    _kenlm()
    job_logger.info(
        f"training text: {data.num_sentences:,} sentences, "
        f"{data.manifest.splits['train'].tokens:,} words "
        f"of {data_directory}"
    )
    start = time.monotonic()
    with files.replacing(target) as directory:
        _estimate(lmplz, data, directory, order)
        sort = f"{directory}/sort"
        _require_success(_run(directory, build_binary, "-T", sort, ARPA_FILE, BINARY_FILE))
        counts = _read_counts(directory / ARPA_FILE)
        # The package may be built for lower orders than the programs.
        _load(directory / BINARY_FILE)
        data.vocabulary.save(directory / VOCABULARY_FILE)
        text = dataclasses.asdict(data.manifest.training_text)
        files.write_json(directory / TEXT_FILE, text)
        config["binary"] = {"sha256": file_sha256(directory / BINARY_FILE)}
        files.write_json(directory / CONFIG_FILE, config)
    for length, count in enumerate(counts, start=1):
        job_logger.info(f"{length}-grams: {count:>13,}")
    job_logger.info(f"estimated a model of order {order} in {time.monotonic() - start:.1f} s")
    return counts


def restore_ngram(workdir: str | os.PathLike[str]) -> NGramRun:
    """The n-gram model of a workdir."""
    workdir = pathlib.Path(workdir)
    config = read_config(workdir)
    vocabulary = load_vocabulary(workdir / VOCABULARY_FILE)
    counts, binary = _read_counts(workdir / ARPA_FILE), workdir / BINARY_FILE
    with files.reading(binary):
        if file_sha256(binary) != config.get("binary", {}).get("sha256"):
            raise InputError(f"{binary}: its checksum differs; train again in a new --workdir")
    return NGramRun(NGramScorer(binary, vocabulary), counts, vocabulary, config)


def spellings(vocabulary: Vocabulary) -> list[str]:
    """KenLM's spellings of the words, in the order of their ids: all different, none reserved.

    A reserved word is preceded by a backslash, and any other backslash is doubled.
    """
    escaped = [word.replace("\\", "\\\\") for word in vocabulary.entries]
    return [f"\\{word}" if word in _RESERVED else word for word in escaped]


def _estimate(lmplz: str, data: Corpus, directory: pathlib.Path, order: int) -> None:
    """Writes the ARPA file."""
    text, words = directory / "train.txt", spellings(data.vocabulary)
    with files.open_output(text) as file:
        for index in range(data.num_documents):
            for sentence in data.document(index):
                file.write(" ".join([words[word] for word in sentence.tolist()]) + "\n")
    arguments = [
        *("-o", str(order), "-S", _MEMORY, "-T", f"{directory}/sort"),
        *("--text", text.name, "--arpa", ARPA_FILE),
        # Words of the vocabulary outside the text have the probability of KenLM's <unk>. The size
        # includes these words; all entries except START are predicted.
        *("--vocab_pad", str(len(data.vocabulary) - 1)),
    ]
    process = _run(directory, lmplz, *arguments)
    if process.returncode and "--discount_fallback" in process.stderr:
        job_logger.info(
            "the text is too small to estimate discounts of all orders; lmplz uses 0.5, 1 and 1.5 "
            "where it cannot"
        )
        process = _run(directory, lmplz, *arguments, "--discount_fallback")
    _require_success(process)
    text.unlink()


def _require_same(workdir: pathlib.Path, config: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Raises an `InputError` if the workdir has no model of this configuration and text."""
    if not (workdir / CONFIG_FILE).is_file():
        raise InputError(f"{workdir}: exists and has no run; choose a new --workdir")
    model = read_config(workdir)["model"]
    saved = {"model": {key: model.get(key) for key in config["model"]}}
    if different := changed_keys(saved, {"model": config["model"]}):
        raise InputError(
            f"{workdir} already contains a different run ({difference_text(different)}). Choose a "
            "new --workdir"
        )
    # The counts of words differ if the text at this path has changed.
    if load_vocabulary(workdir / VOCABULARY_FILE) != vocabulary:
        raise InputError(
            f"{workdir} has a run with a different vocabulary from {config['data']['directory']}; "
            "choose a new --workdir"
        )


def _find_program(name: str) -> str:
    folder = os.environ.get(KENLM_BIN)
    program = shutil.which(name, path=folder or None)
    if program is None:
        where = f"in {folder} ({KENLM_BIN})" if folder else "on the PATH"
        raise InputError(
            f"KenLM's program {name} is not {where}; build it with "
            f"`bash launch/build_kenlm.sh FOLDER` and set {KENLM_BIN}=FOLDER"
        )
    return os.path.abspath(program)


def _run(cwd: pathlib.Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in `cwd`, a temporary directory, so that core files are removed."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
    try:
        return subprocess.run(command, cwd=cwd, **pipes, encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{command[0]}: cannot be run: {error.strerror}") from error


def _require_success(process: subprocess.CompletedProcess[str]) -> None:
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["it printed no message"])[-1][:300]
        raise InputError(f"{process.args[0]} failed with exit code {process.returncode}: {reason}")


def _read_counts(path: pathlib.Path) -> list[int]:
    """The numbers of n-grams of orders 1, 2, ... in the header of an ARPA file."""
    counts = []
    with files.reading(path), path.open("rb") as file:
        for line in itertools.takewhile(lambda line: not line.startswith(b"\\1-"), file):
            if match := re.fullmatch(rb"ngram \d+=(\d+)\s*", line):
                counts.append(int(match[1]))
    if not counts:
        raise InputError(f"{path}: is not an ARPA file; train again in a new --workdir")
    return counts


def _kenlm() -> Any:
    with importing("an n-gram model", "ngram"):
        import kenlm  # pyright: ignore[reportMissingImports]
    return kenlm


def _load(path: str | os.PathLike[str]) -> Any:
    kenlm = _kenlm()
    options = kenlm.Config()
    # KenLM otherwise prints a progress bar and a request for a binary file to standard error.
    options.show_progress = False
    options.arpa_complain = kenlm.ARPALoadComplain.NONE
    try:
        return kenlm.Model(os.fspath(path), options)
    # Exceptions of the C++ library in Cython; damaged text may not be valid UTF-8.
    except (OSError, RuntimeError, UnicodeDecodeError, MemoryError) as error:
        reason = " ".join(str(error).split())
        if orders := _TOO_LONG.search(reason):
            raise InputError(
                f"order is {orders[1]}; the installed package kenlm answers queries up to order "
                f"{orders[2]}; build it for higher orders: MAX_ORDER={orders[1]} pip install "
                "--force-reinstall --no-cache-dir kenlm"
            ) from error
        raise InputError(f"{path}: kenlm cannot read it ({reason[:300]}); retrain it") from error
