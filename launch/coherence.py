"""Measures local coherence: how often a document is likelier than its sentences in another order.

(a) Fixed: seeded permutations of every document of at least two sentences, never the document
itself; (b) bootstrap (Ji et al. 2015, 4.2): R test sets resampled with replacement, each document
shuffled afresh, mean and standard deviation of accuracy over test sets. Ties count half.

    python -m launch.coherence --workdir=runs/ccdclm --permutations=20
    python -m launch.coherence --workdir=runs/ccdclm --bootstrap=1000 --output=ccdclm.json
    python -m launch.coherence --workdir=runs/hrnnlm --bootstrap=1000 --output=hrnnlm.json

All models but rnnlm and codclm must score every permutation, 155,000 documents for the Penn
Treebank: with --pool=50 test sets draw from 50 permutations of each document, twenty times faster.

Baselines of sentence ordering (Lin et al. 2015, 6.1) need no run. Each is trained on a prepared
corpus when it is measured, and meets the same permutations as a model: a maximum-entropy classifier
of neighbours, a recurrent classifier of three sentences after Li and Hovy (2014), and the number of
content words that neighbours share:

    python -m launch.coherence --baseline=maximum_entropy --data=data/ptb
    python -m launch.coherence --baseline=neural --data=data/ptb --training_seed=1
    python -m launch.coherence --baseline=overlap --data=data/ptb --bootstrap=1000 --output=o.json

A headline or an address to the reader at the begin can give documents away. Beside every accuracy
stands the one where the first sentence alone is moved (dclm_jax.evaluation.coherence.first_sentence
says how); where that is 75% or more, a warning follows. With --keep_first=1 the first sentence
stays where it is and only the others are permuted:

    python -m launch.coherence --workdir=runs/ccdclm --keep_first=1

With both (a) and (b), the JSON result is that of (b), and holds that of (a) under "fixed".
"first_sentence" is the accuracy where the first sentence alone is moved, null with --keep_first.
Accuracies are from 0 to 1. The same seed gives every model the same permutations and test sets.
"""

import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from absl import flags

from dclm_jax import files
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.readers import training_text
from dclm_jax.errors import InputError
from dclm_jax.evaluation import coherence, inputs
from dclm_jax.evaluation.ordering_baselines import MaximumEntropy, OrderingBaseline, Overlap
from dclm_jax.evaluation.scoring import Document, SentenceScorer
from dclm_jax.evaluation.window_classifier import WindowClassifier
from launch import _app, _cluster, _evaluation

_evaluation.define_data_flags()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_cluster)
_BASELINES: dict[str, type[OrderingBaseline]] = {
    baseline.name: baseline for baseline in (MaximumEntropy, WindowClassifier, Overlap)
}
_BASELINE = flags.DEFINE_enum(
    "baseline",
    None,
    list(_BASELINES),
    "Measure this instead of --workdir, trained on the splits train and valid of --data.",
)
_TRAINING_SEED = flags.DEFINE_integer(
    "training_seed", 0, "With --baseline: seed of what its training draws."
)
_PERMUTATIONS = flags.DEFINE_integer(
    "permutations", 20, "Permutations of each document (a); 0 leaves (a) out."
)
_BOOTSTRAP = flags.DEFINE_integer("bootstrap", 0, "Resampled test sets (b); 0 leaves (b) out.")
_POOL = flags.DEFINE_integer(
    "pool",
    0,
    "With --bootstrap: permutations of each document that the test sets draw from, which costs as "
    "much as so many test sets; 0 shuffles every draw afresh, as the paper does.",
)
_KEEP_FIRST = flags.DEFINE_integer(
    "keep_first",
    0,
    "Sentences at the begin of each document that stay where they are; only the others are "
    "permuted, and documents with fewer than two others are left out.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of permutations and test sets.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result; '-' is standard output.")


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    if min(_PERMUTATIONS.value, _BOOTSTRAP.value) < 0:
        raise InputError("--permutations and --bootstrap: expected 0 or more")
    if _POOL.present and not _BOOTSTRAP.value:
        raise InputError("--pool belongs to --bootstrap, which is missing")
    if _POOL.value < 0 or _POOL.value == 1:
        raise InputError(f"--pool is {_POOL.value}; expected 0, or 2 and more")
    if _KEEP_FIRST.value < 0:
        raise InputError(f"--keep_first is {_KEEP_FIRST.value}; expected 0 or more")
    if not _PERMUTATIONS.value and not _BOOTSTRAP.value:
        raise InputError("--permutations and --bootstrap are both 0: there is nothing to measure")
    subject = _model() if _BASELINE.value is None else _baseline(_BASELINES[_BASELINE.value])
    measured = subject.scorer, subject.documents
    drawn = {"keep_first": _KEEP_FIRST.value, "seed": _SEED.value}
    results = []
    if _BOOTSTRAP.value:
        counts = {"replicates": _BOOTSTRAP.value, "pool": _POOL.value}
        with _evaluation.Progress("bootstrap") as progress:
            results.append(coherence.bootstrap(*measured, **counts, **drawn, on_document=progress))
    if _PERMUTATIONS.value:
        counts = {"permutations": _PERMUTATIONS.value}
        with _evaluation.Progress("coherence") as progress:
            results.append(coherence.fixed(*measured, **counts, **drawn, on_document=progress))
    if not _KEEP_FIRST.value:
        # Of long documents not even a second permutation may be wanted.
        places = min(coherence.FIRST_PLACES, _PERMUTATIONS.value or _BOOTSTRAP.value)
        with _evaluation.Progress("first sentence") as progress:
            first = coherence.first_sentence(
                *measured, places=places, seed=_SEED.value, on_document=progress
            )
        results = [dataclasses.replace(result, first_sentence=first) for result in results]
    value = {**results[0].to_json(), **subject.description}
    if len(results) > 1:
        value["fixed"] = results[1].to_json()
    if _OUTPUT.value != files.STDOUT:
        lines = [subject.summary, *map(str, results)]
        if results[0].first_sentence is not None:
            told = f"{100 * results[0].first_sentence:.2f}%"
            lines.append(f"with the first sentence alone moved: accuracy {told}")
        print("\n".join(filter(None, [*lines, results[0].warning])))
    if _OUTPUT.value:
        files.write_json(_OUTPUT.value, value)


class _Subject(NamedTuple):
    """What is measured, on what, and what is said of both: for people, and in the result."""

    scorer: SentenceScorer
    documents: Sequence[Document]
    summary: str
    description: dict[str, Any]


def _model() -> _Subject:
    if _TRAINING_SEED.present:
        raise InputError("--training_seed belongs to --baseline, which is missing")
    lm = _evaluation.restore()
    _evaluation.require_language_models([lm], "launch.coherence")
    documents, _, source = _evaluation.open_documents(lm)
    description = {**_evaluation.describe_run(lm), **source}
    return _Subject(lm.scorer, list(documents), lm.summary, description)


def _baseline(kind: type[OrderingBaseline]) -> _Subject:
    values = flags.FLAGS
    for flag in ("workdir", "batch_size"):
        if values[flag].present:
            raise InputError(f"--baseline takes no --{flag}; it is trained on --data")
    if not values.data:
        raise InputError("--baseline needs --data: the prepared corpus to train it on")
    if _TRAINING_SEED.value < 0:
        raise InputError(f"--training_seed is {_TRAINING_SEED.value}; expected 0 or more")
    _evaluation.check_data_flags(other_split=True)
    train, valid = (open_corpus(values.data, split) for split in ("train", "valid"))
    found = (
        inputs.open_text(
            train.vocabulary,
            values.input,
            _evaluation.text_options(training_text(train.manifest).options),
            encoding=_evaluation.ENCODING.value,
            report=_evaluation.tell,
        )
        if values.input is not None
        else inputs.open_split(train.vocabulary, values.data, values.split)
    )
    # Bad text is refused before the training.
    documents = [document.sentences for document in found.documents]
    report = partial(print, file=sys.stderr, flush=True)
    baseline = kind.train(train, valid, seed=_TRAINING_SEED.value, report=report)
    summary = f"{kind.name}, {baseline.num_parameters:,} parameters, trained on {values.data}"
    description = {
        "model": kind.name,
        "parameters": baseline.num_parameters,
        "training_seed": _TRAINING_SEED.value,
        **found.source,
    }
    return _Subject(baseline, documents, summary, description)


if __name__ == "__main__":
    _app.run(main)
