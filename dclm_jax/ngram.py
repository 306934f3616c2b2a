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

KenLM does not check its binary files: a damaged file may end the process. A checksum is therefore
compared first. A checksum finds damage but not manipulation: use n-gram runs only from sources you
trust.
"""

import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from dclm_jax import files, storage
from dclm_jax.data.corpus import Corpus, file_sha256, open_corpus
from dclm_jax.data.subwords import load_vocabulary
from dclm_jax.data.vocabulary import VOCABULARY_FILE, Vocabulary
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.language_model import LanguageModel, ModelFacts
from dclm_jax.log import job_logger
from dclm_jax.scoring.ngrams import NGramScorer, kenlm_package, load_model, spellings
from dclm_jax.scoring.scorer import SummedScorer
from dclm_jax.training.config import changed_keys, difference_text
from dclm_jax.training.workdir import CONFIG_FILE, TEXT_FILE, read_config, read_training_text

NGRAM = "ngram"
ARPA_FILE = "model.arpa"
BINARY_FILE = "model.binary"
KENLM_BIN = "KENLM_BIN"
"""The environment variable that names the folder of KenLM's programs."""

# Maximum memory of lmplz, whose default is most of the machine's; it sorts the rest on disk.
_MEMORY = "1G"


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
    kenlm_package()
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
        load_model(directory / BINARY_FILE)
        data.vocabulary.save(directory / VOCABULARY_FILE)
        text = dataclasses.asdict(data.manifest.training_text)
        files.write_json(directory / TEXT_FILE, text)
        config["binary"] = {"sha256": file_sha256(directory / BINARY_FILE)}
        files.write_json(directory / CONFIG_FILE, config)
    for length, count in enumerate(counts, start=1):
        job_logger.info(f"{length}-grams: {count:>13,}")
    job_logger.info(f"estimated a model of order {order} in {time.monotonic() - start:.1f} s")
    return counts


def restore_ngram(folder: pathlib.Path, workdir: str) -> LanguageModel:
    """The n-gram model in a folder, which is named `workdir` in results."""
    config = read_config(folder)
    vocabulary = load_vocabulary(folder / VOCABULARY_FILE)
    counts, binary = _read_counts(folder / ARPA_FILE), folder / BINARY_FILE
    with files.reading(binary):
        if file_sha256(binary) != config.get("binary", {}).get("sha256"):
            raise InputError(f"{binary}: its checksum differs; train again in a new --workdir")
    facts = ModelFacts(
        name=NGRAM,
        num_parameters=sum(counts),
        config=config,
        text=read_training_text(folder),
        workdir=workdir,
    )
    scorer = SummedScorer(NGramScorer(binary, vocabulary))
    return LanguageModel(facts=facts, vocabulary=vocabulary, scorer=scorer)


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
