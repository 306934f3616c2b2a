"""The requested coherence tests of a model, and tables of the results of several models."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dclm_jax.coherence.compare import (
    FIRST_POSITIONS,
    Bootstrap,
    FirstSentence,
    Fixed,
    Insert,
    OrderTest,
)
from dclm_jax.coherence.results import OrderResult
from dclm_jax.data.datasets import Dataset
from dclm_jax.data.encoding import Documents
from dclm_jax.errors import InputError
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.significance import Difference, Sums, difference_table, differences
from dclm_jax.files import Count, require_valid
from dclm_jax.language_model import LanguageModel
from dclm_jax.reading.blocks import Sentences
from dclm_jax.tables import aligned

BLOCK_SIZES = (2, 4, 8)
"""Numbers of sentences per block in the extra test `blocks`."""
EXTRA_TESTS = {
    "blocks": tuple(Shuffle(block=size) for size in BLOCK_SIZES),
    "swaps": (Shuffle(swap=True),),
    "insertion": (),
}
"""The shuffles of each extra test."""
PERMUTATIONS, INSERTION = Shuffle().name, "insertion"


@dataclasses.dataclass(frozen=True)
class CoherenceOptions:
    """Options of the tests of coherence.

    Attributes:
      permutations: number of fixed permutations per document; 0 skips the test with fixed
        permutations.
      bootstrap: number of resampled test sets (Ji et al. 2015, section 4.2); 0 skips the bootstrap.
      permutation_pool: number of permutations per document from which test sets draw. Each takes
        the time of one test set. 0 shuffles every draw, as in Ji et al. (2015).
      fix_first: number of sentences at the start of each document that stay in place.
      extra_tests: harder tests, separated by commas: blocks, swaps, insertion.
      seed: random seed for permutations and test sets.
    """

    permutations: Count = 20
    bootstrap: Count = 0
    permutation_pool: Count = 0
    fix_first: Count = 0
    extra_tests: Sequence[str] = ()
    seed: Count = 0

    def __post_init__(self) -> None:
        require_valid(self)
        if not self.tests(Shuffle(fix_first=self.fix_first)):
            raise InputError(
                "permutations and bootstrap are both 0; set permutations or bootstrap above 0"
            )
        for name in self.extra_tests:
            if name not in EXTRA_TESTS:
                raise InputError(
                    f"extra_tests is {name}; expected names from {', '.join(EXTRA_TESTS)}"
                )

    def tests(self, shuffle: Shuffle) -> list[OrderTest[Any]]:
        """The tests with this shuffle; the first test is reported first."""
        tests: list[OrderTest[Any]] = []
        if self.bootstrap:
            pool = self.permutation_pool
            tests.append(Bootstrap(shuffle, self.seed, self.bootstrap, pool))
        if self.permutations:
            tests.append(Fixed(shuffle, self.seed, self.permutations))
        return tests


@dataclasses.dataclass(frozen=True)
class CoherenceResults:
    """Results of coherence tests of one model.

    Attributes:
      tests: results by the name of a test: one result, or the results of the bootstrap and of the
        fixed permutations.
      first_sentence: accuracy if only the first sentence is moved; None if it is fixed.
      too_short: requested tests for which every document is too short.
    """

    options: CoherenceOptions
    tests: dict[str, list[OrderResult[Any]]]
    first_sentence: float | None
    too_short: list[Shuffle]

    def results(self, test: str) -> list[Any]:
        """The `Coherence` results of a test, in the order of reports, or its `Insertion`."""
        results = [measured.result for measured in self.tests[test]]
        if test != PERMUTATIONS:
            return results
        first = self.first_sentence
        return [dataclasses.replace(result, first_sentence=first) for result in results]

    @property
    def by_document(self) -> dict[str, OrderResult[Any]]:
        """For each test the result whose documents are compared: of the fixed permutations, if they
        are measured."""
        return {name: results[-1] for name, results in self.tests.items()}

    def to_json(self) -> dict[str, Any]:
        """The result with all sentences permuted, and the results of the extra tests by name."""

        def value_of(test: str) -> dict[str, Any]:
            main, *fixed = map(dataclasses.asdict, self.results(test))
            return {**main, "fixed": fixed[0]} if fixed else main

        value = value_of(PERMUTATIONS)
        for test, shuffles in EXTRA_TESTS.items():
            names = [shuffle.name for shuffle in shuffles] or [test]
            values = [value_of(name) for name in names if name in self.tests]
            if values:
                value[test] = values if test == "blocks" else values[0]
        return value

    def __str__(self) -> str:
        lines = [str(result) for result in self.results(PERMUTATIONS)]
        if self.first_sentence is not None:
            lines.append(
                f"with only the first sentence moved: accuracy {_percent(self.first_sentence)}"
            )
        return "\n".join(filter(None, [*lines, self.results(PERMUTATIONS)[0].warning]))


def coherence(
    lm: LanguageModel, documents: Documents | Dataset, **options: Any
) -> CoherenceResults:
    """Order-discrimination accuracy: how often a document is more probable than its sentences in
    another order.

    Args:
      lm: a language model.
      documents: documents, as `LanguageModel.score` takes them. Documents without words are
        omitted; documents of one sentence are counted, but not tested.
      **options: attributes of `CoherenceOptions`, such as permutations=20 or
        extra_tests=["insertion"].

    Returns:
      The results of all requested tests.
    """
    dataset = lm.dataset(documents)
    return measure_coherence(
        dataset.sentences,
        CoherenceOptions(**options),
        lambda test: test.measure(lm, dataset, lambda done: None),
    )


def measure_coherence(
    documents: Sequence[Sentences],
    options: CoherenceOptions,
    measured: Callable[[OrderTest[Any]], OrderResult[Any]],
) -> CoherenceResults:
    """The tests of coherence of a model.

    Args:
      documents: documents of a split; each test omits documents that are too short for it.
      measured: returns the result of a test on these documents.
    """
    extra_shuffles = [EXTRA_TESTS[name] for name in EXTRA_TESTS if name in options.extra_tests]
    results, too_short = {}, []
    for shuffle in (Shuffle(), *itertools.chain(*extra_shuffles)):
        shuffle = dataclasses.replace(shuffle, fix_first=options.fix_first)
        if shuffle.name == PERMUTATIONS or any(map(shuffle.fits, documents)):
            results[shuffle.name] = list(map(measured, options.tests(shuffle)))
        else:
            too_short.append(shuffle)
    first_sentence = None
    if not options.fix_first:
        # Long documents may be tested with a single permutation.
        positions = min(FIRST_POSITIONS, options.permutations or options.bootstrap)
        test = FirstSentence(positions=positions, seed=options.seed)
        first_sentence = measured(test).result
    if INSERTION in options.extra_tests:
        insert = Insert(Shuffle(fix_first=options.fix_first))
        results[INSERTION] = [measured(insert)]
    return CoherenceResults(options, results, first_sentence, too_short)


ResultsByLabel = dict[str, CoherenceResults]
"""Results of several models by their labels, on the same documents with the same options."""
Pairs = dict[str, list[Difference]]
"""For each test the differences in accuracy between any two models."""


def run_differences(results: ResultsByLabel) -> Pairs:
    """For each test the differences in accuracy between any two models; empty for one model."""
    first, *others = results.values()
    pairs = {}
    for test in first.by_document if others else ():
        documents = [model.by_document[test].documents for model in results.values()]
        correct_XxD = [[outcome.correct for outcome in outcomes] for outcomes in documents]
        pairs_Dx1 = np.array([[outcome.pairs] for outcome in documents[0]])
        pairs[test] = differences(
            Sums(np.stack(correct_XxD, axis=1), pairs_Dx1), seed=first.options.seed
        )
    return pairs


def accuracy_table(results: ResultsByLabel) -> list[str]:
    """The lines of a table of accuracies, with one row per test."""
    first = next(iter(results.values()))
    rows = [["test", "documents", "omitted", *(results if len(results) > 1 else ["accuracy"])]]
    for test in first.tests:
        columns = [model.results(test)[0] for model in results.values()]
        counts = [f"{columns[0].documents:,}", f"{columns[0].omitted:,}"]
        if test == INSERTION:
            chance = _percent(columns[0].chance_accuracy)
            accuracies = [_percent(result.accuracy) for result in columns]
            rows.append([f"{test}, chance {chance}", *counts, *accuracies])
            chance = f"{columns[0].chance_reciprocal_rank:.4f}"
            ranks = [f"{result.reciprocal_rank:.4f}" for result in columns]
            rows.append([f"  mean reciprocal rank, chance {chance}", "", "", *ranks])
            continue
        for by_model in zip(*(model.results(test) for model in results.values()), strict=True):
            accuracies = [_percent(result.mean) for result in by_model]
            rows.append([_row_name(first, test, by_model[0]), *counts, *accuracies])
    return aligned(rows)


def run_difference_table(results: ResultsByLabel, pairs: Pairs) -> list[str]:
    """The lines of a table of `run_differences`; empty for one model."""
    if not pairs:
        return []
    first = next(iter(results.values()))
    by_name = {
        _row_name(first, test, first.by_document[test].result): differences_of_test
        for test, differences_of_test in pairs.items()
    }
    return [
        *difference_table(by_name, list(results), group="test", unit="points", scale=100, digits=2),
        "difference: accuracy of the first run minus accuracy of the second run; 95% interval: "
        "bootstrap over documents; p: paired permutation test",
    ]


def joined(
    results: ResultsByLabel, values: Sequence[dict[str, Any]], pairs: Pairs
) -> dict[str, Any]:
    """The JSON object of several models, from the object of each model in `values`."""
    if len(values) == 1:
        return values[0]
    labels = list(results)
    runs = [{"label": label, **value} for label, value in zip(labels, values, strict=True)]
    differing = [
        {"test": test, **pair.to_json(labels)}
        for test, differences_of_test in pairs.items()
        for pair in differences_of_test
    ]
    return {"runs": runs, "pairs": differing}


def _row_name(model: CoherenceResults, test: str, result: Any) -> str:
    """The name of a test in tables, with the kind of its result if it has results of two kinds."""
    return test if len(model.tests[test]) == 1 else f"{test} ({result.kind})"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
