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

import dataclasses
from typing import Any, Literal

import numpy as np

from dclm_jax import files
from dclm_jax.data.documents import PLAIN
from dclm_jax.errors import InputError
from dclm_jax.files import Count, Size
from dclm_jax.language_model import LanguageModel
from dclm_jax.metrics import systems
from dclm_jax.metrics.systems import METRICS
from dclm_jax.rescoring import mert, nbest
from dclm_jax.rescoring.search import Rescorer
from dclm_jax.runs import run_json

from . import _app
from ._evaluation import ProgressBar, RunsOptions
from ._options import MetricsOptions


@dataclasses.dataclass(frozen=True)
class Options(MetricsOptions, RunsOptions):
    """Options of `rescore`.

    Attributes:
      nbest: n-best list: a Moses file, a Kaldi file or a Kaldi folder.
      documents: file with one line "ID DOCUMENT" per segment. Default: one document.
      references: file with one reference per line, in the order of the list.
      baseline: file with one sentence per segment, which replaces the 1-best as baseline.
      output: file for the chosen hypotheses, one per line; '-' is standard output.
      weights: JSON file of an earlier --metrics, whose weights are used.
      tune: tune the weights on --nbest and --references.
      objective: metric that --tune optimizes.
      beam: beam width, the number of partial hypotheses per document; 1 is greedy search.
      viterbi: exact search, for models that read at most one earlier sentence.
      seed: random seed for random hypotheses, tuning and resampling.
    """

    nbest: str | None = None
    documents: str | None = None
    references: str | None = None
    baseline: str | None = None
    output: str | None = None
    weights: str | None = None
    tune: bool = False
    objective: Literal["bleu", "wer"] = "bleu"
    beam: Size = 1
    viterbi: bool = False
    seed: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_ending("output", ".txt")
        if not (self.output or self.metrics or self.references):
            raise InputError("no result is requested; add --output, --metrics or --references")
        self.refuse_without("references", "tune", "baseline")
        self.refuse_without("tune", "objective")
        self.refuse_together("viterbi", "beam")


def rescore(options: Options) -> None:
    """Chooses hypotheses, and prints and writes them and their measures."""
    path = options.required("nbest", "FILE, the n-best lists")
    lists = nbest.read_nbest(path)
    division = [range(len(lists.segments))]
    if options.documents:
        division = nbest.read_division(options.documents, lists)
    references = nbest.read_references(options.references, lists) if options.references else []
    baseline = nbest.read_outputs(options.baseline, lists) if options.baseline else []
    models = options.restore_all(LanguageModel, without_source=True)
    first, *_ = models.values()
    text, readers = first.facts.text, {label: lm.reader for label, lm in models.items()}
    rescorer = Rescorer(readers, first.encoder(), lists, division, options=text.options or PLAIN)
    weights = rescorer.default_weights
    if options.weights:
        weights = rescorer.weights(options.weights)
    prints = files.STDOUT not in (options.output, options.metrics)
    beam = None if options.viterbi else options.beam

    def show(text: str) -> None:
        if prints:
            print(text)

    def decode(weights: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
        with ProgressBar("rescoring", len(division)) as progress:
            return rescorer.decode(weights, beam=beam, on_document=progress)

    for label, lm in models.items():
        show(f"{label}: {lm.summary}")
    documents = "one document; --documents=FILE names the document of each segment"
    documents = f"{len(division):,} documents" if options.documents else documents
    show(f"{len(lists.segments):,} segments of {documents}")
    statistics = {}
    if references:
        hypotheses = [segment.hypotheses for segment in lists.segments]
        statistics = systems.list_statistics(hypotheses, references)
    if options.tune:
        metric = METRICS[options.objective]
        weights = mert.tune_weights(
            decode,
            statistics[options.objective],
            metric,
            weights,
            seed=options.seed,
            on_round=lambda number, tuned: show(f"round {number}: {metric.name} {tuned.value:.2f}"),
        ).weights
    show("weights: " + ", ".join(map("{} {:.4g}".format, rescorer.names, weights)))
    choices, _ = decode(weights)
    rescorer.note_oov(choices)
    value: dict[str, Any] = {
        "nbest": lists.path,
        "segments": len(lists.segments),
        "documents": len(division),
        "search": "viterbi" if options.viterbi else f"beam of {options.beam}",
        "weights": dict(zip(rescorer.names, weights.tolist(), strict=True)),
        "runs": list(map(run_json, models.values())),
        "seed": options.seed,
    }
    if references:
        single_lists = [[words] for words in baseline]
        others = systems.list_statistics(single_lists, references) if baseline else {}
        measured = systems.measure_systems(statistics, choices, others, division, seed=options.seed)
        show(systems.systems_table(measured))
        value |= measured
    if options.output:
        with files.open_output(options.output) as file:
            for segment, choice in zip(lists.segments, choices, strict=True):
                file.write(" ".join(segment.hypotheses[choice]) + "\n")
    if options.metrics:
        files.write_json(options.metrics, value)


if __name__ == "__main__":
    _app.run(rescore, Options)
