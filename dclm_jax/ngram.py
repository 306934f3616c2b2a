"""The count-based baseline: an n-gram model with modified Kneser-Ney smoothing, by KenLM.

KenLM's `lmplz` estimates it from the training split of a prepared corpus, `build_binary` turns it
into a file that is mapped into memory, and the Python package `kenlm` answers queries.

WORKDIR/
  config.json       {"model": {"name": "ngram", "order": 5}, "data": {"directory": ...},
                    "binary": {"sha256": ...}}
  vocabulary.tsv    the vocabulary
  model.arpa        all n-grams with their log-probabilities, as text
  model.binary      the same for queries

KenLM has an unknown word of its own, `<unk>`, which is no word of the text. UNKNOWN is one: it is
counted like any other, so that perplexities compare with those of the other models.

KenLM trusts its binary files: one that is damaged may end the process. So a checksum is compared
first. It finds damage, but not intent: use n-gram runs of people you trust.
"""

import itertools
import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

import numpy as np

from dclm_jax import files, storage
from dclm_jax.data.corpus import Corpus, file_sha256, open_corpus
from dclm_jax.data.vocabulary import END, START, Vocabulary
from dclm_jax.errors import InputError, shown
from dclm_jax.evaluation.scoring import Scored, sentences_to_score
from dclm_jax.training.config import flat
from dclm_jax.training.workdir import CONFIG_FILE, VOCABULARY_FILE, read_config

NAME = "ngram"
ARPA_FILE = "model.arpa"
BINARY_FILE = "model.binary"
KENLM_BIN = "KENLM_BIN"
"""The environment variable that names the folder of KenLM's programs."""

# What KenLM takes for a sentence boundary or for its own unknown word.
_RESERVED = ("<s>", "</s>", "<unk>", "<UNK>")
# Of lmplz, whose default is most of the machine's memory; what does not fit is sorted on disk.
_MEMORY = "1G"
_DISCOUNTS = re.compile(r"^(\d+) \d+ D1=(\S+) D2=(\S+) D3\+=(\S+)$", re.MULTILINE)

Report = Callable[[str], None]


class NGramRun(NamedTuple):
    """What a workdir holds; `counts` are the n-grams stored, of orders 1, 2, ..."""

    scorer: "NGramScorer"
    counts: list[int]
    vocabulary: Vocabulary
    config: dict[str, Any]


class NGramScorer:
    """Negative log-likelihoods of documents, each sentence by itself.

    It has the contract of `dclm_jax.evaluation.scoring.Scorer`.
    """

    def __init__(self, path: str | os.PathLike[str], vocabulary: Vocabulary):
        """Maps a model into memory.

        Args:
          path: made by `build_binary`, or an ARPA file.
          vocabulary: between the ids to score and the words of the model.

        Raises:
          InputError: the package `kenlm` is not installed, or cannot read the file.
        """
        self._model = _load(path)
        self._spellings = spellings(vocabulary)
        self.vocab_size = len(vocabulary)
        self.context_order = 0
        self.objective = "words"

    def score(self, documents: Iterable[Scored]) -> Iterator[tuple[Scored, list[np.ndarray]]]:
        """Scores documents in their order, one at a time; see `Scorer.score`."""
        for document in documents:
            sentences, first_scored = sentences_to_score(document)
            yield document, [self.nll(sentence) for sentence in sentences[first_scored:]]

    def nll(self, sentence: np.ndarray) -> np.ndarray:
        """-log P in nats of the words of a sentence and its END, float32 [M + 1]."""
        text = " ".join([self._spellings[index] for index in np.asarray(sentence).tolist()])
        log10 = [prob for prob, _, _ in self._model.full_scores(text)]
        return (np.array(log10, np.float64) * -math.log(10)).astype(np.float32)

    def begin(self) -> Any:
        """KenLM's state at the start of a sentence."""
        state = _kenlm().State()
        self._model.BeginSentenceWrite(state)
        return state

    def after(self, state: Any, word: int) -> Any:
        """The state after one more word."""
        new_state = _kenlm().State()
        self._model.BaseScore(state, self._spellings[word], new_state)
        return new_state

    def log_probs(self, state: Any) -> np.ndarray:
        """log P in nats of every word of the vocabulary, float32 [V]; that of START is -inf."""
        spare, words = _kenlm().State(), list(self._spellings)
        words[END] = "</s>"
        log10 = np.array([self._model.BaseScore(state, word, spare) for word in words])
        log10[START] = -np.inf
        return (log10 * math.log(10)).astype(np.float32)


class NGramPlace(NamedTuple):
    """A place in each of `rows` documents; within a sentence, KenLM's state in each of them."""

    rows: int
    states: tuple[Any, ...] = ()

    def take(self, rows: Sequence[int]) -> "NGramPlace":
        """The places of these rows, in this order."""
        return NGramPlace(len(rows), tuple(self.states[row] for row in rows if self.states))


class NGramReader:
    """What an n-gram model has of `dclm_jax.reading.reader.Reader`: sentences are read each by
    itself, and what was read before is forgotten."""

    def __init__(self, scorer: NGramScorer):
        self._scorer = scorer

    def open(self, rows: int) -> NGramPlace:
        """The start of so many documents."""
        return NGramPlace(rows)

    def read(
        self, place: NGramPlace, sentences: Sequence[Sequence[np.ndarray]]
    ) -> tuple[NGramPlace, list[list[np.ndarray]]]:
        """As `Reader.read`."""
        return place, [[self._scorer.nll(sentence) for sentence in row] for row in sentences]

    def start(self, place: NGramPlace) -> tuple[NGramPlace, np.ndarray]:
        """As `Reader.start`."""
        state = self._scorer.begin()
        log_probs_BxV = np.tile(self._scorer.log_probs(state), (place.rows, 1))
        return NGramPlace(place.rows, (state,) * place.rows), log_probs_BxV

    def next(self, place: NGramPlace, tokens_B: Sequence[int]) -> tuple[NGramPlace, np.ndarray]:
        """As `Reader.next`."""
        states = tuple(map(self._scorer.after, place.states, tokens_B))
        log_probs_BxV = np.stack([self._scorer.log_probs(state) for state in states])
        return NGramPlace(place.rows, states), log_probs_BxV

    def vectors(self, place: NGramPlace) -> None:
        """There are none."""


def train(
    data_directory: str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    *,
    order: int = 5,
    report: Report = print,
) -> list[int]:
    """Makes an n-gram model of the training split of a prepared corpus.

    Args:
      data_directory: made by `dclm_jax.data.prepare`.
      workdir: the directory to make. It appears complete or not at all.
      order: words of the longest n-gram.
      report: called with a line for everything worth telling.

    Returns:
      How many n-grams of orders 1, 2, ... are stored.

    Raises:
      InputError: bad data, an order that cannot be queried, KenLM is not there or fails, or
        `workdir` holds something else.
    """
    if order < 2:
        raise InputError(f"order is {order}; expected at least 2")
    if storage.is_remote(workdir):
        raise InputError(f"{workdir}: KenLM writes to disks; expected a path of this machine")
    data = open_corpus(data_directory, "train")
    remote = storage.is_remote(data_directory)
    target = pathlib.Path(workdir).absolute()
    config = {
        "model": {"name": NAME, "order": order},
        "data": {"directory": str(data_directory) if remote else os.path.abspath(data_directory)},
    }
    if _holds_same(target, config, data.vocabulary):
        report(f"reusing {workdir}: it holds a model of the same text and order")
        return _read_counts(target / ARPA_FILE)
    lmplz, build_binary = map(_find_program, ("lmplz", "build_binary"))
    if order > (largest := _max_order()):
        raise InputError(
            f"order is {order}; the installed package kenlm answers queries up to order {largest} "
            f"(build it for more: MAX_ORDER={order} pip install --force-reinstall --no-cache-dir "
            "kenlm)"
        )
    report(
        f"training text: {data.num_sentences:,} sentences, {data.num_tokens:,} words "
        f"of {data_directory}"
    )
    start = time.monotonic()
    with files.replacing(target) as directory:
        discounts = _estimate(lmplz, data, directory, order, report)
        _require_success(
            _run(build_binary, "-T", f"{directory}/sort", ARPA_FILE, BINARY_FILE, cwd=directory)
        )
        counts = _read_counts(directory / ARPA_FILE)
        data.vocabulary.save(directory / VOCABULARY_FILE)
        kept = {**config, "binary": {"sha256": file_sha256(directory / BINARY_FILE)}}
        files.write_json(directory / CONFIG_FILE, kept)
    for length, count in enumerate(counts, start=1):
        report(f"{length}-grams: {count:>13,}{discounts.get(length, '')}")
    report(f"made a model of order {order} in {time.monotonic() - start:.1f} s")
    return counts


def restore_run(workdir: str | os.PathLike[str]) -> NGramRun:
    """The model that `train` made.

    Raises:
      InputError: the workdir holds none, or it cannot be read.
    """
    workdir = pathlib.Path(workdir)
    config = read_config(workdir)
    vocabulary = Vocabulary.load(workdir / VOCABULARY_FILE)
    counts = _read_counts(workdir / ARPA_FILE)
    _check_binary(workdir / BINARY_FILE, config)
    return NGramRun(NGramScorer(workdir / BINARY_FILE, vocabulary), counts, vocabulary, config)


def _check_binary(path: pathlib.Path, config: Mapping[str, Any]) -> None:
    # A workdir of before has no checksum.
    expected = config.get("binary", {}).get("sha256")
    with files.reading(path):
        if expected is not None and file_sha256(path) != expected:
            raise InputError(f"{path}: its checksum differs from that in {CONFIG_FILE}")


def spellings(vocabulary: Vocabulary) -> list[str]:
    """How KenLM knows the words, in the order of their ids: all different, none of them reserved.

    Words are what they are, but a reserved one gets a backslash in front. To keep that apart from
    other words, a backslash is doubled; a NUL, where KenLM ends a word, is a backslash and 0.
    """
    return [_spelling(word) for word in vocabulary.words]


def _spelling(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("\0", "\\0")
    return f"\\{escaped}" if escaped in _RESERVED else escaped


def _write_text(data: Corpus, file: TextIO) -> None:
    """A sentence a line."""
    words = spellings(data.vocabulary)
    # So that no first word makes KenLM take the text for a compressed file.
    file.write(" ")
    for index in range(data.num_documents):
        for sentence in data.document(index):
            file.write(" ".join([words[one] for one in sentence.tolist()]) + "\n")


def _estimate(
    lmplz: str, data: Corpus, directory: pathlib.Path, order: int, report: Report
) -> dict[int, str]:
    """Writes the ARPA file; returns a text on the discounts of each order."""
    text = directory / "train.txt"
    with open(text, "w", encoding="utf-8", newline="\n") as file:
        _write_text(data, file)
    arguments = [
        *("-o", str(order), "-S", _MEMORY, "-T", f"{directory}/sort"),
        *("--text", text.name, "--arpa", ARPA_FILE),
        # Words of the vocabulary that are not in the text have the probability of KenLM's <unk>
        # each, and are counted in here: START is the only entry that is never predicted.
        *("--vocab_pad", str(len(data.vocabulary) - 1)),
    ]
    done = _run(lmplz, *arguments, cwd=directory)
    if done.returncode and "--discount_fallback" in done.stderr:
        report(
            "discounts cannot be estimated from so little text; lmplz falls back to "
            "0.5, 1 and 1.5 where that is so"
        )
        done = _run(lmplz, *arguments, "--discount_fallback", cwd=directory)
    _require_success(done)
    text.unlink()
    return {
        int(length): f"  discounts {one} {two} {more}"
        for length, one, two, more in _DISCOUNTS.findall(done.stderr)
    }


def _holds_same(workdir: pathlib.Path, config: Mapping[str, Any], vocabulary: Vocabulary) -> bool:
    """Whether the workdir is there already; an empty directory is not.

    Raises:
      InputError: it holds something else.
    """
    if not workdir.exists() or (workdir.is_dir() and not any(workdir.iterdir())):
        return False
    if not (workdir / CONFIG_FILE).is_file():
        raise InputError(f"{workdir}: exists and holds no run; it is left alone")
    old, new = dict(flat(read_config(workdir))), dict(flat(config))
    # The binary file follows from the rest.
    for key in [key for key in new | old if not key.startswith("binary.")]:
        if old.get(key) != new.get(key):
            raise InputError(
                f"{workdir} holds a run with another configuration: "
                f"{key} is {shown(old.get(key))} there and {shown(new.get(key))} here"
            )
    # With the counts of the words: another text under the same path is noticed.
    if Vocabulary.load(workdir / VOCABULARY_FILE) != vocabulary:
        raise InputError(
            f"{workdir} holds a run with another vocabulary than {config['data']['directory']}"
        )
    return True


def _find_program(name: str) -> str:
    folder = os.environ.get(KENLM_BIN)
    found = shutil.which(name, path=folder or None)
    if found is None:
        where = f"in {folder} ({KENLM_BIN})" if folder else "on the PATH"
        raise InputError(
            f"KenLM's program {name} is not {where}; build it with "
            f"`bash launch/build_kenlm.sh FOLDER` and set {KENLM_BIN}=FOLDER"
        )
    return os.path.abspath(found)


def _run(program: str, *arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; in `cwd`, where a core file is removed with the rest."""
    try:
        return subprocess.run(
            [program, *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise InputError(f"{program}: cannot be run: {error.strerror}") from error


def _require_success(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:300]
        raise InputError(f"{done.args[0]} failed with exit code {done.returncode}: {reason}")


def _read_counts(path: pathlib.Path) -> list[int]:
    """How many n-grams of orders 1, 2, ... the header of an ARPA file announces."""
    counts = []
    with files.reading(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in itertools.takewhile(lambda line: not line.startswith("\\1-"), file):
                if match := re.fullmatch(r"ngram \d+=(\d{1,18})\s*", line):
                    counts.append(int(match[1]))
    if not counts:
        raise InputError(f"{path}: not an ARPA file")
    return counts


def _kenlm() -> Any:
    try:
        import kenlm  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            "n-gram models need the package kenlm: pip install 'dclm_jax[ngram]'"
        ) from error
    return kenlm


def _load(path: str | os.PathLike[str]) -> Any:
    kenlm = _kenlm()
    options = kenlm.Config()
    # Otherwise it draws a progress bar, and asks for a binary file, on standard error.
    options.show_progress = False
    options.arpa_complain = kenlm.ARPALoadComplain.NONE
    try:
        return kenlm.Model(os.fspath(path), options)
    # Cython turns errors of the C++ library into these; text of a damaged file may be no UTF-8.
    except (OSError, RuntimeError, UnicodeDecodeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{path}: cannot be read by kenlm ({reason})") from error


def _max_order() -> int:
    """The largest order that the package `kenlm` was built for; it does not say, so it is tried."""
    _kenlm()
    with tempfile.TemporaryDirectory(prefix="dclm_jax-") as directory:
        path = pathlib.Path(directory) / ARPA_FILE
        for order in itertools.count(2):
            path.write_text(_smallest_arpa(order))
            try:
                _load(path)
            except InputError:
                return order - 1
    raise AssertionError("unreachable")


def _smallest_arpa(order: int) -> str:
    """A model with a single n-gram of every length above 1."""
    lines = ["\\data\\", "ngram 1=3", *(f"ngram {length}=1" for length in range(2, order + 1))]
    lines += ["", "\\1-grams:", "-1\t<unk>\t0", "-1\t<s>\t0", "-1\t</s>\t0"]
    for length in range(2, order + 1):
        backoff = "\t0" if length < order else ""
        lines += ["", f"\\{length}-grams:", "-1\t" + " ".join(["</s>"] * length) + backoff]
    return "\n".join([*lines, "", "\\end\\", ""])
