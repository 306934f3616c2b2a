"""Rescores n-best lists with language models, document by document.

    # After the quickstart; the first command makes lists to try
    python -m configs.hierarchical_rnn.corrupt runs/quickstart/data valid data/nbest
    python -m launch.rescore --workdir=runs/quickstart/pointer_drnnlm --tune \\
        --nbest=data/nbest/nbest.txt --documents=data/nbest/documents.txt \\
        --references=data/nbest/references.txt --output=best.txt --metrics=tuned.json

    # Another list with the tuned weights and two models
    python -m launch.rescore --workdirs=runs/a,runs/b --nbest=test.nbest --documents=test.docs \\
        --references=test.txt --weights=tuned.json --output=best.txt --metrics=test.json

A list has several hypotheses per segment, such as translations or transcripts. The command chooses
one hypothesis per segment, and scores each hypothesis after the hypotheses that were chosen before
it in its document. launch/text.md describes the formats of --nbest.

The score of a hypothesis is a weighted sum of log P (nats) under each model, the decoder's total
`score`, the features of the list, and `words`, the number of words. By default the weights of
models and `score` are 1, the weight of `oov` is -10, and all other weights are 0. `oov` is a
feature under a vocabulary of words: the number of words outside the vocabulary (OOV), except the
text's own spelling of OOV words, such as <unk>. Without it misspelled hypotheses could win, because
all OOV words share the probability of UNKNOWN. --tune finds weights by minimum error rate training
(Och 2003) on a validation list.

With --references a table compares the 1-best, a random hypothesis, the chosen hypotheses
("rescored") and the oracle (the best hypothesis of each list). BLEU is computed by sacrebleu
without tokenization. p-values are from a paired bootstrap over documents (over segments if the list
is one document): the share of resampled test sets in which a system is not better than the 1-best
or --baseline.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from dclm_jax import files
from dclm_jax.data.documents import PLAIN
from dclm_jax.errors import InputError
from dclm_jax.language_model import LanguageModel
from dclm_jax.rescoring import mert, metrics, nbest
from dclm_jax.rescoring.metrics import METRICS
from dclm_jax.rescoring.search import Rescorer
from dclm_jax.runs import run_json

from . import _app, _evaluation
from ._flags import define_beam, define_metrics

for _name in ("workdir", "matmul_precision"):
    flags.declare_key_flag(_name)
_evaluation.define_workdirs()
_NBEST = flags.DEFINE_string(
    "nbest", None, "N-best list: a Moses file, a Kaldi file or a Kaldi folder."
)
_DOCUMENTS = flags.DEFINE_string(
    "documents", None, "File with one line `ID DOCUMENT` per segment. Default: one document."
)
_REFERENCES = flags.DEFINE_string(
    "references", None, "File with one reference per line, in the order of the list."
)
_BASELINE = flags.DEFINE_string(
    "baseline", None, "File with one sentence per segment, which replaces the 1-best as baseline."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "File for the chosen hypotheses, one per line; '-' is standard output."
)
_METRICS = define_metrics()
_WEIGHTS = flags.DEFINE_string(
    "weights", None, "JSON file of an earlier --metrics, whose weights are used."
)
_TUNE = flags.DEFINE_bool("tune", False, "Tune the weights on --nbest and --references.")
_OBJECTIVE = flags.DEFINE_enum("objective", "bleu", list(METRICS), "Metric that --tune optimizes.")
_BEAM = define_beam(1)
_VITERBI = flags.DEFINE_bool(
    "viterbi", False, "Exact search, for models that read at most one earlier sentence."
)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Random seed for random hypotheses, tuning and resampling.", lower_bound=0
)


def main(argv: Sequence[str]) -> None:
    del argv
    _check_flags()
    path = _app.required("nbest", "FILE, the n-best lists")
    lists = nbest.read_nbest(path)
    division = [range(len(lists.segments))]
    if _DOCUMENTS.value:
        division = nbest.read_division(_DOCUMENTS.value, lists)
    references = nbest.read_references(_REFERENCES.value, lists) if _REFERENCES.value else []
    baseline = nbest.read_outputs(_BASELINE.value, lists) if _BASELINE.value else []
    models = _evaluation.restore_all(LanguageModel, without_source=True)
    first, *_ = models.values()
    text, readers = first.facts.text, {label: lm.reader for label, lm in models.items()}
    rescorer = Rescorer(readers, first.encoder(), lists, division, options=text.options or PLAIN)
    weights = rescorer.default_weights
    if _WEIGHTS.value:
        weights = rescorer.weights(_WEIGHTS.value)
    prints = files.STDOUT not in (_OUTPUT.value, _METRICS.value)
    beam = None if _VITERBI.value else _BEAM.value

    def show(text: str) -> None:
        if prints:
            print(text)

    def decode(weights: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
        with _evaluation.ProgressBar("rescoring", len(division)) as progress:
            return rescorer.decode(weights, beam=beam, on_document=progress)

    for label, lm in models.items():
        show(f"{label}: {lm.summary}")
    documents = "one document; --documents=FILE names the document of each segment"
    documents = f"{len(division):,} documents" if _DOCUMENTS.value else documents
    show(f"{len(lists.segments):,} segments of {documents}")
    statistics = {}
    if references:
        hypotheses = [segment.hypotheses for segment in lists.segments]
        statistics = metrics.list_statistics(hypotheses, references)
    if _TUNE.value:
        metric = METRICS[_OBJECTIVE.value]
        weights = mert.tune_weights(
            decode,
            statistics[_OBJECTIVE.value],
            metric,
            weights,
            seed=_SEED.value,
            on_round=lambda number, tuned: show(f"round {number}: {metric.name} {tuned.value:.2f}"),
        ).weights
    show("weights: " + ", ".join(map("{} {:.4g}".format, rescorer.names, weights)))
    choices, _ = decode(weights)
    rescorer.note_oov(choices)
    value: dict[str, Any] = {
        "nbest": lists.path,
        "segments": len(lists.segments),
        "documents": len(division),
        "search": "viterbi" if _VITERBI.value else f"beam of {_BEAM.value}",
        "weights": dict(zip(rescorer.names, weights.tolist(), strict=True)),
        "runs": list(map(run_json, models.values())),
        "seed": _SEED.value,
    }
    if references:
        single_lists = [[words] for words in baseline]
        others = metrics.list_statistics(single_lists, references) if baseline else {}
        measured = metrics.measure_systems(statistics, choices, others, division, seed=_SEED.value)
        show(metrics.systems_table(measured))
        value |= measured
    if _OUTPUT.value:
        with files.open_output(_OUTPUT.value) as file:
            for segment, choice in zip(lists.segments, choices, strict=True):
                file.write(" ".join(segment.hypotheses[choice]) + "\n")
    if _METRICS.value:
        files.write_json(_METRICS.value, value)


def _check_flags() -> None:
    """Refuses missing flags, flags that have no effect, and a file named like another format."""
    _app.check_ending("output", ".txt")
    if not any(flag.value for flag in (_OUTPUT, _METRICS, _REFERENCES)):
        raise InputError("no result is requested; add --output, --metrics or --references")
    _app.refuse_without("references", "tune", "baseline")
    _app.refuse_without("tune", "objective")
    _app.refuse_together("viterbi", "beam")


if __name__ == "__main__":
    _app.run(main)
