"""Measurements of runs, computed once and saved in the run: RUN/results/MEASURE-HASH.json.

A file says what it was measured of: the model, the documents, the options and the version of the
measures. A file that says something else, or is damaged, is measured again.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dclm_jax import files, storage
from dclm_jax.coherence.compare import Bootstrap, FirstSentence, compare
from dclm_jax.errors import InputError
from dclm_jax.evaluation import (
    adaptation,
    context_ablation,
    datasets,
    perplexity,
)
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.perplexity import Perplexity
from dclm_jax.evaluation.scoring import Document, Progress
from dclm_jax.language_model import LanguageModel
from dclm_jax.training.config import flat
from dclm_jax.training.workdir import CORPUS_FILE, METRICS_FILE, RESULT_FILE, Line, read_lines

VERSION = 3
"""Version of the measures: results of another version are measured again."""
FOLDER = "results"


class Split(NamedTuple):
    """The documents of a split, as word ids, and their fingerprint."""

    documents: Sequence[Document]
    fingerprint: str

    @classmethod
    def of(cls, documents: Sequence[Document]) -> "Split":
        """Documents with the fingerprint of their word ids."""
        digest = hashlib.sha256()
        for document in documents:
            for ids in document:
                digest.update(np.asarray(ids, np.int32).tobytes() + b"\n")
            digest.update(b"\n")
        return cls(documents, digest.hexdigest()[:16])


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained run: its work directory, its model, and the corpus and splits it is measured on."""

    workdir: str
    lm: LanguageModel
    data: str
    splits: Mapping[str, Split]

    @functools.cached_property
    def fingerprint(self) -> str:
        """The checksum of the model's configuration and parameters."""
        digest = hashlib.sha256(json.dumps(self.lm.config, sort_keys=True).encode())
        for leaf in jax.tree.leaves(self.lm.params):
            digest.update(np.asarray(leaf).tobytes())
        return digest.hexdigest()[:16]


class Measure(NamedTuple):
    """A measure: its name, and the function that computes its JSON value.

    The function is called with the run, the documents, a function that takes progress, and
    the options by name.
    """

    name: str
    compute: Callable[..., dict[str, Any]]


def silent(label: str) -> contextlib.AbstractContextManager[Progress]:
    """Shows no progress."""
    del label
    return contextlib.nullcontext(lambda done, total: None)


def measured(
    run: Run,
    measure: Measure,
    options: Mapping[str, Any],
    *,
    split: str = "test",
    compute: bool = True,
    say: Callable[[str], None] = print,
    progress: Callable[[str], contextlib.AbstractContextManager[Progress]] = silent,
) -> dict[str, Any] | None:
    """The value of a measure, read from the run's results, or else computed and saved there.

    Args:
      run: the run to measure.
      measure: the measure.
      options: its options, as JSON has them.
      split: the documents.
      compute: whether to compute a value that is not saved; otherwise it is None.
      say: is called with a line for each value that is computed.
      progress: makes what shows the progress of a computation, from its label.
    """
    documents, documents_fingerprint = run.splits[split]
    # As JSON has it.
    identity = files.finite(
        {
            "measure": measure.name,
            "version": VERSION,
            "model": run.fingerprint,
            "vocabulary": run.lm.vocabulary.fingerprint,
            "split": split,
            "documents": documents_fingerprint,
            "options": dict(sorted(options.items())),
        }
    )
    # Results of other documents or options are saved beside this one, those of an earlier model are
    # replaced.
    of_model = ("version", "model")
    others = {key: value for key, value in identity.items() if key not in of_model}
    name = f"{measure.name}-{_checksum(others)[:8]}.json"
    path = storage.locate(run.workdir) / FOLDER / name
    numbers = [f"{key} {value}" for key, value in options.items() if isinstance(value, int)]
    label = f"{run.workdir}: {measure.name} ({', '.join([split, *numbers])})"
    with storage.reaching(path):
        is_there = path.exists()
    try:
        if is_there:
            return _read(path, identity)
    except InputError as error:
        say(f"note: {error}")
    if not compute:
        return None
    start = time.monotonic()
    with progress(label) as on_document:
        value = measure.compute(run, documents, on_document, **options)
    value = files.finite(value)
    try:
        saved = {"identity": identity, "checksum": _checksum(value), "value": value}
        files.write_json(path, saved)
    except InputError as error:
        say(f"note: not saved: {error}")
    say(f"{label}: measured in {time.monotonic() - start:.0f} s")
    return value


@dataclasses.dataclass(frozen=True)
class _Saved:
    identity: dict[str, Any]
    checksum: str
    value: dict[str, Any]


def _read(path: storage.Location, identity: Mapping[str, Any]) -> dict[str, Any]:
    saved = files.read_json(path, _Saved)
    if saved.identity != identity:
        raise InputError(f"{path}: is of another model or version")
    with contextlib.suppress(RecursionError):
        if saved.checksum == _checksum(saved.value):
            return files.finite(saved.value)
    raise InputError(f"{path}: is damaged: its checksum differs")


def _checksum(value: Any) -> str:
    return hashlib.sha256(files.json_text(value).encode()).hexdigest()


def _perplexity(run: Run, documents: Sequence[Document], on_document: Progress) -> dict[str, Any]:
    return perplexity.measure(
        run.lm.scorer, documents, on_document=lambda done: on_document(done, len(documents))
    ).to_json()


def _positions(run: Run, documents: Sequence[Document], on_document: Progress) -> dict[str, Any]:
    positions = context_ablation.by_position(run.lm.scorer, documents, on_document=on_document)
    return {
        "perplexity": positions.perplexity.to_json(),
        "by_token": positions.by_token.to_json(),
        "by_sentence": positions.by_sentence.to_json(),
        "by_document": positions.by_document.round(3).tolist(),
    }


def _context(
    run: Run, documents: Sequence[Document], on_document: Progress, seed: int
) -> dict[str, Any]:
    names = [name for name in context_ablation.ARRANGEMENTS if name != "own"]
    if run.lm.scorer.context_order == 0:
        same = _perplexity(run, documents, on_document)["perplexity"]
        return dict.fromkeys(names, same)
    return {
        name: context_ablation.rearranged(run.lm.scorer, documents, name, seed) for name in names
    }


def _coherence(
    run: Run,
    documents: Sequence[Document],
    on_document: Progress,
    *,
    replicates: int,
    pool: int,
    keep_first: int,
    seed: int,
) -> dict[str, Any]:
    scorer, test = run.lm.scorer, Bootstrap(Shuffle(fix_first=keep_first), seed, replicates, pool)
    result = compare(scorer, documents, test, on_document=on_document).result
    if not keep_first:
        test = FirstSentence(seed=seed)
        first = compare(scorer, documents, test, on_document=on_document).result
        result = dataclasses.replace(result, first_sentence=first)
    return result.to_json()


def _adapted(
    run: Run,
    documents: Sequence[Document],
    on_document: Progress,
    adapt: Mapping[str, Any],
    **options: int,
) -> dict[str, Any]:
    kind, setting = adapt["kind"], adapt["setting"]
    tune_on = None
    if None in adaptation.complete(kind, setting).values():
        tune_on = datasets.open_split(run.lm.vocabulary, run.data, "valid")
    lm = run.lm.adapt(
        kind,
        tune_on=tune_on,
        data=run.data,
        label=run.workdir,
        on_document=lambda done: on_document(done, len(run.splits["valid"].documents)),
        **setting,
    )
    adapted = dataclasses.replace(run, lm=lm)
    return {
        "setting": lm.adaptation and lm.adaptation.setting,
        "test": _perplexity(adapted, documents, on_document),
        "coherence": _coherence(adapted, documents, on_document, **options)
        if options["replicates"]
        else None,
    }


PERPLEXITY = Measure("perplexity", _perplexity)
"""The sums of `evaluation.perplexity`."""
POSITIONS = Measure("positions", _positions)
"""Perplexity, and sums by position and document; see `evaluation.context_ablation`."""
CONTEXT = Measure("context", _context)
"""Perplexities with the context exchanged or removed, drawn by `seed`; without context one."""
COHERENCE = Measure("coherence", _coherence)
"""The bootstrap of `coherence.compare`, and where no sentence is fixed, the accuracy with the first
sentence alone moved."""
ADAPTED = Measure("adapted", _adapted)
"""Perplexity and, with `replicates`, coherence of the run with test-time adaptation: `adapt` has
the kind, the numbers of its setting, None for those that are tuned on the validation set, and the
grid."""


def facts(run: Run) -> dict[str, Any]:
    """What is known of a run without a measurement; an n-gram model was not trained in steps.

    `curve` holds steps and validation perplexities; `learning` holds targets trained on, and
    validation and training perplexities.
    """
    known: dict[str, Any] = {
        "workdir": run.workdir,
        "parameters": run.lm.num_parameters,
        "objective": run.lm.scorer.objective,
        "own_oov_rate": run.lm.text.unknown_rates.get("test"),
        "step": run.lm.step,
        "config": flat(run.lm.config),
        "training_text": None,
        "seconds": None,
        "curve": [],
        "learning": {"validation": [], "training": []},
        "unfinished": False,
    }
    wanted = {METRICS_FILE, CORPUS_FILE, RESULT_FILE}
    with storage.fetched(run.workdir, wanted.intersection) as folder:
        if (folder / CORPUS_FILE).exists():
            with files.reading(folder / CORPUS_FILE):
                known["training_text"] = storage.file_sha256(folder / CORPUS_FILE)[:8]
        if (folder / METRICS_FILE).exists():
            lines = read_lines(folder)
            evaluations = [line for line in lines if line.kind == "valid"]
            if not evaluations:
                raise InputError(
                    f"{folder / METRICS_FILE}: no line of kind 'valid'; the run was never evaluated"
                )
            known["seconds"] = round(lines[-1].seconds)
            known["curve"] = [[line.step, line.perplexity] for line in evaluations]
            known["learning"] = {
                "validation": [[line.tokens, line.perplexity] for line in evaluations],
                "training": training_curve(lines),
            }
            known["unfinished"] = not (folder / RESULT_FILE).exists()
    return known


def training_curve(lines: Sequence[Line]) -> list[list[float]]:
    """Targets trained on until an evaluation, and the training perplexity since the one before.

    The training perplexity is the exponential of the mean in nats, weighted by targets; what is
    infinite is left out, and so are evaluations with nothing before them.
    """
    points, before, nats, targets = [], 0, 0.0, 0
    for line in lines:
        if line.kind == "valid":
            if targets > 0:
                points.append([line.tokens, Perplexity(0, nats, targets).perplexity])
            nats, targets = 0.0, 0
        else:
            if line.perplexity < math.inf:
                nats += (line.tokens - before) * math.log(line.perplexity)
                targets += line.tokens - before
            before = line.tokens
    return points
