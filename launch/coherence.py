"""Measures local coherence: how often a document is likelier than its sentences in another order.

(a) Fixed: seeded permutations of every document of at least two sentences, never the document
itself; (b) bootstrap (Ji et al. 2015, 4.2): R test sets resampled with replacement, each document
shuffled afresh, mean and standard deviation of accuracy over test sets. Ties count half.

    python -m launch.coherence --workdir=runs/ccdclm --permutations=20
    python -m launch.coherence --workdir=runs/ccdclm --bootstrap=1000 --output=ccdclm.json
    python -m launch.coherence --workdir=runs/hrnnlm --bootstrap=1000 --output=hrnnlm.json

All models but rnnlm and codclm must score every permutation, 155,000 documents for the Penn
Treebank: with --pool=50 test sets draw from 50 permutations of each document, twenty times faster.

With both (a) and (b), the JSON result is that of (b), and holds that of (a) under "fixed".
Accuracies are from 0 to 1. The same seed gives every model the same permutations and test sets.
"""

from collections.abc import Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.errors import InputError
from dclm_jax.evaluation import coherence
from launch import _app, _cluster, _evaluation

_evaluation.define_data_flags()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_cluster)
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
    if not _PERMUTATIONS.value and not _BOOTSTRAP.value:
        raise InputError("--permutations and --bootstrap are both 0: there is nothing to measure")
    lm = _evaluation.restore()
    opened, _, source = _evaluation.open_documents(lm)
    documents = list(opened)
    results = []
    if _BOOTSTRAP.value:
        counts = {"replicates": _BOOTSTRAP.value, "pool": _POOL.value, "seed": _SEED.value}
        with _evaluation.Progress("bootstrap") as progress:
            results.append(
                coherence.bootstrap(lm.scorer, documents, **counts, on_document=progress)
            )
    if _PERMUTATIONS.value:
        counts = {"permutations": _PERMUTATIONS.value, "seed": _SEED.value}
        with _evaluation.Progress("coherence") as progress:
            results.append(coherence.fixed(lm.scorer, documents, **counts, on_document=progress))
    value = {**results[0].to_json(), **_evaluation.describe_run(lm), **source}
    if len(results) > 1:
        value["fixed"] = results[1].to_json()
    if _OUTPUT.value != files.STDOUT:
        print("\n".join([lm.summary, *map(str, results)]))
    if _OUTPUT.value:
        files.write_json(_OUTPUT.value, value)


if __name__ == "__main__":
    _app.run(main)
