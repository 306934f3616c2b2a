"""Measures order-discrimination accuracy of documents against permutations of their sentences.

    python -m launch.coherence --workdir=runs/ccdclm --permutations=20
    python -m launch.coherence --workdir=runs/ccdclm --bootstrap=1000 --permutation_pool=50
    python -m launch.coherence --workdirs=runs/rnnlm,runs/ccdclm --extra_tests=blocks,swaps

The accuracy is the percentage of permutations that are less probable than their document. Chance
is 50%, and ties count half. Every document of at least two sentences is compared with fixed random
permutations. --bootstrap (Ji et al. 2015, section 4.2) resamples test sets with replacement,
shuffles each of their documents, and prints the mean and standard deviation of accuracy over test
sets. Tables then have a row for each experiment; differences between runs use the fixed
permutations, unless --permutations=0.

--extra_tests adds harder tests. A test omits the documents that are too short for it.

    blocks     permutations of blocks of 2, 4 and 8 sentences
    swaps      two neighbouring sentences swapped
    insertion  each sentence removed and inserted at every position: the share of sentences whose
               original position is the most probable (ties shared), mean reciprocal rank, chance

The first sentence, such as a headline, can reveal the order. The accuracy with only the first
sentence moved is therefore printed too, with a warning from 75%.

Several runs of one vocabulary score the same orders. Tables have the accuracies of all runs, and
the difference between any two runs. A difference has a 95% interval from a bootstrap over
documents, and the p-value of a paired permutation test over documents, also corrected for all pairs
(Holm 1979).

--metrics has the accuracies as JSON, between 0 and 1. With --bootstrap the first values are results
of the bootstrap, and "fixed" has the result of the fixed permutations. "first_sentence", "blocks",
"swaps" and "insertion" are further results. Several runs have {"runs": [...], "pairs": [...]}.
"""

import dataclasses
import functools
from collections.abc import Sequence

from dclm_jax import files
from dclm_jax.coherence import measure
from dclm_jax.coherence.measure import CoherenceOptions
from dclm_jax.data.datasets import Dataset
from dclm_jax.evaluation.results import Results
from dclm_jax.language_model import LanguageModel
from dclm_jax.log import logger
from dclm_jax.runs import run_json

from . import _app
from ._cluster import JobOptions
from ._evaluation import BatchOptions, DataOptions, ProgressBar, RunsOptions, notify_of_saved
from ._options import MetricsOptions, part


@dataclasses.dataclass(frozen=True)
class Options(JobOptions, MetricsOptions, BatchOptions, DataOptions, RunsOptions):
    """Options of `coherence`."""

    tests: CoherenceOptions = part(CoherenceOptions())

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_without("bootstrap", "permutation_pool")


def coherence(options: Options) -> None:
    """Measures coherence accuracies, and prints and writes them."""
    options.join()
    saved = Results(ProgressBar)
    models = options.restore_all(LanguageModel, without_source=True)
    dataset = _documents([*models.values()], options)
    results = {
        label: measure.measure_coherence(
            dataset.sentences, options.tests, functools.partial(saved.measured, lm, dataset)
        )
        for label, lm in models.items()
    }
    notify_of_saved(saved)
    for shuffle in next(iter(results.values())).too_short:
        logger.info(f"no document has {shuffle.minimum}; {shuffle.name} are not measured")
    pairs = measure.run_differences(results)
    if options.metrics != files.STDOUT:
        for label, lm in models.items():
            print(lm.summary, results[label], sep="\n")
        for lines in (
            measure.accuracy_table(results),
            measure.run_difference_table(results, pairs),
        ):
            print(*(["", *lines] if lines else []), sep="\n")
    if options.metrics:
        values = [
            results[label].to_json() | run_json(lm) | dataset.source for label, lm in models.items()
        ]
        files.write_json(options.metrics, measure.joined(results, values, pairs))


def _documents(models: Sequence[LanguageModel], options: Options) -> Dataset:
    """The documents to measure; text is read once."""
    dataset = options.dataset(models)
    documents = list(dataset.documents)
    if dataset.is_text:
        num_sentences = sum(len(document.sentences) for document in documents)
        logger.info(
            f"{dataset.name}: documents: {len(documents):,}, with {num_sentences:,} sentences"
        )
    return dataclasses.replace(dataset, read=lambda: documents)


if __name__ == "__main__":
    _app.run(coherence, Options)
