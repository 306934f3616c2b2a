"""Measures local coherence: how often a document is likelier than its sentences in another order.

(a) Fixed: seeded permutations of every document of at least two sentences, never the document
itself; (b) bootstrap (Ji et al. 2015, 4.2): R test sets resampled with replacement, each document
shuffled afresh, mean and standard deviation of accuracy over test sets. Ties count half.

    python -m launch.coherence --workdir=runs/ccdclm --permutations=20
    python -m launch.coherence --workdir=runs/ccdclm --bootstrap=1000 --output=ccdclm.json
    python -m launch.coherence --workdir=runs/hrnnlm --bootstrap=1000 --output=hrnnlm.json

All models but rnnlm and codclm must score every permutation, 155,000 documents for the Penn
Treebank: with --pool=50 test sets draw from 50 permutations of each document, twenty times faster.

Harder tests stand beside these with --also, a list of some of them, or all:

    blocks     documents are cut into blocks of 1, 2, 4 and 8 sentences, and blocks are permuted:
               the longer they are, the less neighbours give away
    swaps      two neighbours change places
    windows    three neighbours are permuted
    insertion  each sentence is taken out and put back at every place: how often its own place is
               the likeliest, ties shared, the mean reciprocal rank of that place, and what chance
               gives

    python -m launch.coherence --workdir=runs/ccdclm --also=blocks,insertion --output=ccdclm.json

Documents with too few sentences for a test (two blocks, two or three neighbours) are left out of
it, and counted. --permutations and --bootstrap count for the first three tests as well.

Several runs of one vocabulary meet the same orders. Beside the accuracies stand the differences of
any two runs: 95% intervals by bootstrap over documents, and p of a paired permutation test over
documents, also corrected for all pairs of runs after Holm (1979). A table has the accuracy by the
number of sentences of a document:

    python -m launch.coherence --workdirs=runs/rnnlm,runs/ccdclm,runs/codclm --also=all

Permutations of others come in folders, a text each (Barzilay and Lapata, 2008): one folder in which
NAME.perm-1 is a document and NAME.perm-2, ... are permutations of it, or documents as --input and
NAME.perm-1, NAME-1 or NAME_1, ... as permutations of NAME. Lines that begin with the name or number
of a sentence must lose it before. Accuracy is that over all pairs:

    python -m launch.coherence --workdir=runs/ccdclm --permuted=data1-test --format=lines
    python -m launch.coherence --workdir=runs/ccdclm --input=texts --permuted=permutations

--tsv=FILE has a line for each run, test and document: its name, sentences, words and pairs, the
accuracy, log P of the document in nats and the mean log P of its permutations, and both a token
(words and END). All orders of a document have the same sentences, hence as many tokens: accuracy by
log P a token cannot differ from that by log P, and stands there to be seen. Of insertion pairs are
the sentences that were put back. What a baseline has in place of log P is its score.

Baselines of sentence ordering (Lin et al. 2015, 6.1) need no run. Each is trained on a prepared
corpus when it is measured, and meets the same permutations as a model: a maximum-entropy classifier
of neighbours, a recurrent classifier of three sentences after Li and Hovy (2014), and the number of
content words that neighbours share:

    python -m launch.coherence --baseline=maximum_entropy --data=data/ptb
    python -m launch.coherence --baseline=neural --data=data/ptb --training_seed=1
    python -m launch.coherence --baseline=overlap --data=data/ptb --bootstrap=1000 --output=o.json

With --adapt every run is measured as it is and, in each of the ways, as it adapts itself to each
order of each document, so that the differences say what adapting does. What is adapted and how it
is tuned says launch.evaluate; it is tuned for perplexity. Every order is scored whole, by dynamic
evaluation one after the other:

    python -m launch.coherence --workdirs=runs/rnnlm,runs/ccdclm --adapt=cache

A headline or an address to the reader at the start can give documents away. Beside every accuracy
stands the one where the first sentence alone is moved (dclm_jax.evaluation.coherence.first_sentence
says how); where that is 75% or more, a warning follows. With --keep_first=1 the first sentence
stays where it is and only the others are permuted:

    python -m launch.coherence --workdir=runs/ccdclm --keep_first=1

With both (a) and (b), the JSON result is that of (b), and holds that of (a) under "fixed".
"first_sentence" is the accuracy where the first sentence alone is moved, null with --keep_first.
"blocks" is a list of such results, each with its "block", the sentences of one; "swaps", "windows"
and "insertion" are one each; "by_length" has the accuracies of (a) by the sentences of a document.
Accuracies are from 0 to 1. The same seed gives every model the same permutations and test sets.
Several runs have {"runs": [...], "pairs": [...]}, the pairs with their test and differences.
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from dclm_jax import files
from dclm_jax.data.corpus import TrainingText, open_corpus
from dclm_jax.data.documents import Document as Text
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.readers import read_documents
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.evaluation import coherence, datasets, significance
from dclm_jax.evaluation.coherence import Coherence, Comparisons
from dclm_jax.evaluation.given_orders import read_given
from dclm_jax.evaluation.insertion import Insertions, insert
from dclm_jax.evaluation.ordering_baselines import MaximumEntropy, OrderingBaseline, Overlap
from dclm_jax.evaluation.orders import BLOCK_SIZES, PERMUTATION, SWAP, WINDOW, Arrangement, numbered
from dclm_jax.evaluation.scoring import Document, SentenceScorer
from dclm_jax.evaluation.window_classifier import WindowClassifier
from dclm_jax.reading.reader import Reader
from dclm_jax.tables import aligned, separated
from launch import _adaptation, _app, _cluster, _evaluation

_evaluation.define_data_flags()
_evaluation.define_workdirs()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_adaptation)
flags.adopt_module_key_flags(_cluster)
_BASELINES: dict[str, type[OrderingBaseline]] = {
    baseline.name: baseline for baseline in (MaximumEntropy, WindowClassifier, Overlap)
}
_INSERTION = "insertion"
_ARRANGEMENTS = {
    "blocks": tuple(Arrangement(block=size) for size in BLOCK_SIZES),
    "swaps": (SWAP,),
    "windows": (WINDOW,),
}
_TESTS = (*_ARRANGEMENTS, _INSERTION)
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
    "Sentences at the start of each document that stay where they are; only the others are "
    "permuted, and documents with fewer than two others are left out.",
)
_ALSO = flags.DEFINE_list(
    "also", [], f"Tests beside that of all sentences permuted: {', '.join(_TESTS)}, or all."
)
_PERMUTED = flags.DEFINE_string(
    "permuted", None, "Folder of permutations to compare with, instead of random ones."
)
_TSV = flags.DEFINE_string(
    "tsv",
    None,
    "TSV file for the accuracy of every document, one row per run, test and document. A document "
    "called NA is written \\NA.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of permutations and test sets.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the result; '-' is standard output.")
_PERMUTATION = str(PERMUTATION)


class _Subject(NamedTuple):
    """What is measured, and what is said of it: for people, and in the result."""

    label: str
    scorer: SentenceScorer
    reader: Reader | None
    summary: str
    description: dict[str, Any]


class _Texts(NamedTuple):
    """What it is measured on: names, sentences, orders that are given, and where they are from."""

    names: list[str]
    documents: Sequence[Document]
    orders: list[np.ndarray] | None
    source: dict[str, Any]


class _Measured(NamedTuple):
    """Of a subject, by test: results, those of (a) beside those of (b), and what was compared
    document by document."""

    results: dict[str, Coherence]
    fixed: dict[str, Coherence]
    compared: dict[str, Comparisons]
    insertions: Insertions | None = None

    @property
    def by_document(self) -> dict[str, Comparisons | Insertions]:
        inserted = {} if self.insertions is None else {_INSERTION: self.insertions}
        return {**self.compared, **inserted}


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    tests = _check_flags()
    subjects, texts = (
        _models() if _BASELINE.value is None else _baseline(_BASELINES[_BASELINE.value])
    )
    arrangements = _fitting(texts.documents, tests)
    measured = []
    for subject in subjects:
        label = f"{subject.label}: " if len(subjects) > 1 else ""
        measured.append(_measure(subject, texts, arrangements, _INSERTION in tests, label))
    pairs = _pairs(measured)
    if _OUTPUT.value != files.STDOUT:
        print(_text(subjects, measured, pairs))
    if _TSV.value:
        _write_tsv(_TSV.value, subjects, texts, measured)
    if _OUTPUT.value:
        objects = [
            {**_json(one, tests), **subject.description, **texts.source}
            for subject, one in zip(subjects, measured, strict=True)
        ]
        if len(subjects) == 1:
            files.write_json(_OUTPUT.value, objects[0])
            return
        labels = [subject.label for subject in subjects]
        of_pairs = [
            {"test": test} | one.to_json() | {"a": labels[one.a], "b": labels[one.b]}
            for test, found in pairs.items()
            for one in found
        ]
        of_runs = [{"label": label, **one} for label, one in zip(labels, objects, strict=True)]
        files.write_json(_OUTPUT.value, {"runs": of_runs, "pairs": of_pairs})


def _check_flags() -> tuple[str, ...]:
    """The tests beside that of all sentences permuted."""
    values = flags.FLAGS
    if min(_PERMUTATIONS.value, _BOOTSTRAP.value) < 0:
        raise InputError("--permutations and --bootstrap: expected 0 or more")
    if _POOL.present and not _BOOTSTRAP.value:
        raise InputError("--pool belongs to --bootstrap, which is missing")
    if _POOL.value < 0 or _POOL.value == 1:
        raise InputError(f"--pool is {_POOL.value}; expected 0, or 2 and more")
    if _KEEP_FIRST.value < 0:
        raise InputError(f"--keep_first is {_KEEP_FIRST.value}; expected 0 or more")
    if _SEED.value < 0:
        raise InputError(f"--seed is {_SEED.value}; expected 0 or more")
    if not _PERMUTATIONS.value and not _BOOTSTRAP.value:
        raise InputError("--permutations and --bootstrap are both 0: there is nothing to measure")
    named = [one.strip() for one in _ALSO.value]
    for one in named:
        if one not in (*_TESTS, "all"):
            raise InputError(f"--also is {one}; expected some of {', '.join(_TESTS)}, or all")
    if _PERMUTED.value is not None:
        for name in ("permutations", "bootstrap", "keep_first", "also", "split"):
            if values[name].present:
                raise InputError(f"--{name} has no effect on the permutations of --permuted")
        if values.input == files.STDOUT:
            raise InputError("--input is -; expected a folder of the documents of --permuted")
        if values.data is not None and _BASELINE.value is None and not _adaptation.reads_split():
            raise InputError("--permuted replaces --data; expected one of the two")
    elif _TSV.value and not _PERMUTATIONS.value and _INSERTION not in named:
        raise InputError("--tsv tells of --permutations or insertion, neither of which is measured")
    if _TSV.value == files.STDOUT == _OUTPUT.value:
        raise InputError("--tsv and --output are both standard output; expected one of them")
    is_baseline = _BASELINE.value is not None
    if is_baseline and _adaptation.ADAPT.value:
        raise InputError("--baseline scores orders without a model; expected it without --adapt")
    _adaptation.check_flags()
    _evaluation.check_data_flags(
        other_split=is_baseline or _adaptation.reads_split(),
        other_text=_PERMUTED.value is not None or _adaptation.TUNE_INPUT.value is not None,
    )
    if not is_baseline and _TRAINING_SEED.present:
        raise InputError("--training_seed belongs to --baseline, which is missing")
    return tuple(one for one in _TESTS if one in named or "all" in named)


def _models() -> tuple[list[_Subject], _Texts]:
    runs = _evaluation.restore_all()
    models = [run.lm for run in runs]
    _evaluation.require_language_models(models, "launch.coherence")
    if _PERMUTED.value is None:
        texts = _texts(_evaluation.open_input(runs), models[0].text)
    else:
        options = _evaluation.text_options(*(lm.text.options for lm in models))
        texts = _given(_PERMUTED.value, options, models[0].vocabulary, models[0].text)
    subjects = [
        _Subject(
            run.label,
            run.lm.scorer,
            reader if isinstance(reader := run.lm.reader, Reader) else None,
            run.lm.summary,
            run.to_json(),
        )
        for run in runs
    ]
    if _adaptation.ADAPT.value:
        _adaptation.require_adaptable(runs)
        subjects += [
            _Subject(
                run.label,
                run.lm.scorer,
                None,
                f"{run.label}: {run.lm.adaptation}",
                run.to_json(),
            )
            for run in _adaptation.adapt(runs)
        ]
    return subjects, texts


def _baseline(kind: type[OrderingBaseline]) -> tuple[list[_Subject], _Texts]:
    values = flags.FLAGS
    for flag in ("workdir", "workdirs", "batch_size"):
        if values[flag].present:
            raise InputError(f"--baseline takes no --{flag}; it is trained on --data")
    if not values.data:
        raise InputError("--baseline needs --data: the prepared corpus to train it on")
    if _TRAINING_SEED.value < 0:
        raise InputError(f"--training_seed is {_TRAINING_SEED.value}; expected 0 or more")
    train, valid = (open_corpus(values.data, split) for split in ("train", "valid"))
    trained_on = train.manifest.training_text
    # Bad text is refused before the training.
    if _PERMUTED.value is not None:
        options = _evaluation.text_options(trained_on.options)
        texts = _given(_PERMUTED.value, options, train.vocabulary, trained_on)
    elif values.input is None:
        opened = datasets.open_split(train.vocabulary, values.data, values.split)
        texts = _texts(opened, trained_on)
    else:
        found = datasets.open_text(
            train.vocabulary,
            values.input,
            _evaluation.text_options(trained_on.options),
            encoding=_evaluation.ENCODING.value,
            report=_evaluation.tell,
        )
        texts = _texts(found, trained_on)
    report = partial(print, file=sys.stderr, flush=True)
    baseline = kind.train(train, valid, seed=_TRAINING_SEED.value, report=report)
    summary = f"{kind.name}, {baseline.num_parameters:,} parameters, trained on {values.data}"
    description = {
        "model": kind.name,
        "parameters": baseline.num_parameters,
        "training_seed": _TRAINING_SEED.value,
    }
    return [_Subject(kind.name, baseline, None, summary, description)], texts


def _texts(opened: datasets.Dataset, trained_on: TrainingText) -> _Texts:
    where = opened.source
    name = where.get("input") or f"{where['data']}, {where['split']}"
    documents = list(
        _evaluation.counting_unknown(opened.documents, lambda one: one.sentences, trained_on, name)
    )
    names = [one.id for one in documents]
    return _Texts(names, [one.sentences for one in documents], None, opened.source)


def _given(
    permuted: str, options: TextOptions, vocabulary: Vocabulary, trained_on: TrainingText
) -> _Texts:
    """The documents and permutations of folders."""

    def read(folder: str) -> Iterator[Text]:
        encoding = _evaluation.ENCODING.value
        return read_documents(folder, options, encoding=encoding, report=_evaluation.tell)

    found = read_given(read, permuted, flags.FLAGS.input)
    name = flags.FLAGS.input or permuted
    encoded = (datasets.encode(vocabulary, one.document.sentences).sentences for one in found)
    documents = list(
        _evaluation.counting_unknown(encoded, lambda sentences: sentences, trained_on, name)
    )
    same = 0
    for document, one in zip(documents, found, strict=True):
        own = numbered(document)
        same += int(np.all(own[one.orders] == own, axis=1).sum())
    if same:
        _evaluation.tell(f"note: permutations that are no other text than their document: {same:,}")
    source = {"input": name, "permuted": permuted, "split": None}
    return _Texts(
        [one.document.id for one in found], documents, [one.orders for one in found], source
    )


def _fitting(documents: Sequence[Document], tests: Sequence[str]) -> list[Arrangement]:
    """Those of the tests that fit any document; the first, all sentences permuted, in any case."""
    fitting = [PERMUTATION]
    for one in (one for test in tests for one in _ARRANGEMENTS.get(test, ())):
        if any(one.fits(len(document) - _KEEP_FIRST.value) for document in documents):
            fitting += [one] if one not in fitting else []
        else:
            _evaluation.tell(f"note: no document has {one.least}: {one} are not measured")
    return fitting


def _measure(
    subject: _Subject,
    texts: _Texts,
    arrangements: Sequence[Arrangement],
    insertion: bool,
    label: str,
) -> _Measured:
    """Every test of a subject."""
    measured = _Measured({}, {}, {})
    of_texts = subject.scorer, texts.documents
    drawn = {"keep_first": _KEEP_FIRST.value, "seed": _SEED.value, "reader": subject.reader}

    def keep(test: str, compared: Comparisons) -> None:
        measured.compared[test] = compared
        measured.results.setdefault(test, compared.result)

    if texts.orders is not None:
        with _evaluation.Progress(f"{label}permutations") as progress:
            compared = coherence.compare_given(*of_texts, texts.orders, on_document=progress)
        keep(_PERMUTATION, compared)
    for arrangement in [] if texts.orders is not None else arrangements:
        test = str(arrangement)
        if _BOOTSTRAP.value:
            counts = {"replicates": _BOOTSTRAP.value, "pool": _POOL.value}
            with _evaluation.Progress(f"{label}{test}, bootstrap") as progress:
                measured.results[test] = coherence.bootstrap(
                    *of_texts, arrangement=arrangement, **counts, **drawn, on_document=progress
                )
        if _PERMUTATIONS.value:
            counts = {"permutations": _PERMUTATIONS.value}
            with _evaluation.Progress(f"{label}{test}") as progress:
                compared = coherence.compare(
                    *of_texts, arrangement=arrangement, **counts, **drawn, on_document=progress
                )
            keep(test, compared)
            if _BOOTSTRAP.value:
                measured.fixed[test] = compared.result
    if not _KEEP_FIRST.value:
        # Of long documents not even a second permutation may be wanted.
        places = min(coherence.FIRST_PLACES, _PERMUTATIONS.value or _BOOTSTRAP.value)
        with _evaluation.Progress(f"{label}first sentence") as progress:
            first = coherence.first_sentence(
                *of_texts, places=places, seed=_SEED.value, on_document=progress
            )
        for results in (measured.results, measured.fixed):
            if _PERMUTATION in results:
                results[_PERMUTATION] = dataclasses.replace(
                    results[_PERMUTATION], first_sentence=first
                )
    if insertion:
        with _evaluation.Progress(f"{label}insertion") as progress:
            inserted = insert(
                *of_texts,
                keep_first=_KEEP_FIRST.value,
                reader=subject.reader,
                on_document=progress,
            )
        measured = measured._replace(insertions=inserted)
    return measured


def _pairs(measured: Sequence[_Measured]) -> dict[str, list[significance.Difference]]:
    """By test the differences of any two subjects."""
    if len(measured) == 1:
        return {}
    pairs = {}
    for test in measured[0].by_document:
        sums = [one.by_document[test].sums for one in measured]
        together = significance.Sums(np.hstack([one.nll for one in sums]), sums[0].count)
        pairs[test] = significance.differences(together, seed=_SEED.value)
    return pairs


def _json(measured: _Measured, tests: Sequence[str]) -> dict[str, Any]:
    def of(test: str) -> dict[str, Any]:
        fixed = measured.fixed.get(test)
        return measured.results[test].to_json() | (
            {} if fixed is None else {"fixed": fixed.to_json()}
        )

    value = of(_PERMUTATION)
    if _PERMUTATION in measured.compared:
        by_length = measured.compared[_PERMUTATION].by_length
        value["by_length"] = list(map(dataclasses.asdict, by_length))
    for test in tests:
        found = [
            of(str(one)) for one in _ARRANGEMENTS.get(test, ()) if str(one) in measured.results
        ]
        if test == "blocks":
            value[test] = found
        elif found:
            value[test] = found[0]
    if measured.insertions is not None:
        value[_INSERTION] = measured.insertions.result.to_json()
    return value


def _text(
    subjects: Sequence[_Subject],
    measured: Sequence[_Measured],
    pairs: dict[str, list[significance.Difference]],
) -> str:
    lines = []
    for subject, one in zip(subjects, measured, strict=True):
        result = one.results[_PERMUTATION]
        lines += [subject.summary, str(result)]
        if _PERMUTATION in one.fixed:
            lines.append(str(one.fixed[_PERMUTATION]))
        if result.first_sentence is not None:
            told = f"{100 * result.first_sentence:.2f}%"
            lines.append(f"with the first sentence alone moved: accuracy {told}")
        lines += filter(None, [result.warning])
    lines += ["", *aligned(_table(subjects, measured))]
    if pairs:
        lines += ["", *aligned(_differences([one.label for one in subjects], pairs))]
        lines.append(
            "differences of accuracy, of the first run less the second; 95% by bootstrap over "
            "documents; p of a permutation test of pairs"
        )
    return "\n".join(lines)


def _table(subjects: Sequence[_Subject], measured: Sequence[_Measured]) -> list[list[str]]:
    """The accuracies of all subjects: a row for each test, and for each length of documents."""
    first = measured[0]
    labels = [one.label for one in subjects] if len(subjects) > 1 else ["accuracy"]
    rows = [["test", "documents", "left out", *labels]]
    for test, result in first.results.items():
        shares = [_percent(one.results[test].mean) for one in measured]
        rows.append([test, f"{result.documents:,}", f"{result.left_out or 0:,}", *shares])
        if test == _PERMUTATION and test in first.compared:
            by_length = [one.compared[test].by_length for one in measured]
            for of_range in zip(*by_length, strict=True):
                least, most = of_range[0].least, of_range[0].most
                sentences = f"{least} to {most}" if most else f"{least} and more"
                shares = [_percent(one.accuracy) for one in of_range if one.accuracy is not None]
                if shares:
                    counts = [f"{of_range[0].documents:,}", ""]
                    rows.append([f"  {sentences} sentences", *counts, *shares])
    if first.insertions is not None:
        found = [one.insertions.result for one in measured if one.insertions is not None]
        counts = [f"{found[0].documents:,}", f"{found[0].left_out:,}"]
        chance = f"chance {_percent(found[0].chance_accuracy)}"
        shares = [_percent(one.accuracy) for one in found]
        rows.append([f"{_INSERTION}, {chance}", *counts, *shares])
        chance = f"chance {found[0].chance_reciprocal_rank:.4f}"
        ranks = [f"{one.reciprocal_rank:.4f}" for one in found]
        rows.append([f"  mean reciprocal rank, {chance}", "", "", *ranks])
    return rows


def _differences(
    labels: Sequence[str], pairs: dict[str, list[significance.Difference]]
) -> list[list[str]]:
    rows = [["test", "runs", "difference", "95% interval", "p", "p, all pairs (Holm)"]]
    for test, found in pairs.items():
        for one in found:
            ends = f"{100 * one.low:+.2f} to {100 * one.high:+.2f}"
            runs = f"{labels[one.a]} - {labels[one.b]}"
            numbers = [f"{100 * one.difference:+.2f}", ends, f"{one.p:.4f}", f"{one.p_holm:.4f}"]
            rows.append([test, runs, *numbers])
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _write_tsv(
    path: str, subjects: Sequence[_Subject], texts: _Texts, measured: Sequence[_Measured]
) -> None:
    columns = coherence.OfDocument._fields
    with files.open_output(path) as file:
        file.write(separated(["run", "test", "document", *columns]))
        for subject, one in zip(subjects, measured, strict=True):
            for test, compared in one.by_document.items():
                for index, row in zip(compared.indices, compared.by_document, strict=True):
                    cells = [None if number != number else f"{number:.10g}" for number in row]
                    file.write(separated([subject.label, test, texts.names[index], *cells]))


if __name__ == "__main__":
    _app.run(main)
