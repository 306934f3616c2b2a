"""Puts the sentences of each document into the order that a model finds most probable.

    python -m launch.order --workdir=runs/ccdclm --input=docs.txt --output=orders.jsonl
    python -m launch.order --workdir=runs/codclm --split=test --metrics=order.json
    printf 'it slept .\\nthe cat was tired .\\n' |
        python -m launch.order --workdir=runs/ccdclm --input=- --noshuffle

The sentences of each document are shuffled before the model orders them. The command prints
Kendall's tau (1: the original order, 0: chance, -1: the reverse order), the share of sentences at
their original position, the share of documents in their original order, and the same measures of
random orders. Documents of one sentence are not measured. --noshuffle orders the sentences of the
input, prints them and measures nothing.

Orders are found by beam search. Under a model that reads one earlier sentence (codclm), the order
of up to 15 sentences is exactly the most probable order. A model without context (rnnlm) cannot
order sentences.

A line of --output is a document. `order` has the positions of its sentences in the input, from 0:
    {"id": "docs.txt:1", "order": [1, 0], "sentences": ["the cat was tired .", "it slept ."],
     "unit": "nats", "log_prob": -31.4, "is_optimal": false, "tau": 1.0}
"""

import dataclasses
import sys

from dclm_jax import files
from dclm_jax.data.documents import Document
from dclm_jax.decoding.ordering import DEFAULT_BEAM, Ordered, order_sentences
from dclm_jax.evaluation.reordering import measure_orders, measures_table, reorder
from dclm_jax.files import Count, Size
from dclm_jax.neural_language_model import NeuralLanguageModel
from dclm_jax.runs import run_json
from dclm_jax.tables import aligned

from . import _app
from ._evaluation import DataOptions, ProgressBar, RunOptions
from ._options import MetricsOptions


@dataclasses.dataclass(frozen=True)
class Options(MetricsOptions, DataOptions, RunOptions):
    """Options of `order`.

    Attributes:
      beam: beam width, the number of partial hypotheses per document; 1 is greedy search.
      shuffle: shuffle the sentences first, and measure their new order.
      seed: random seed for shuffling and for the random orders of the baseline.
      output: JSON lines file for the orders; '-' is standard output.
    """

    beam: Size = DEFAULT_BEAM
    shuffle: bool = True
    seed: Count = 0
    output: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_ending("output", ".jsonl")
        self.refuse_without("shuffle", "metrics")


def order(options: Options) -> None:
    """Orders the sentences of documents, and prints and writes orders and measures."""
    lm = options.restore(NeuralLanguageModel)
    documents, encoder = list(options.words(lm)), lm.encoder()

    def ordered(document: Document) -> Ordered:
        ids = list(map(encoder.encode, document.sentences))
        return order_sentences(lm.reader, ids, options.beam)

    with ProgressBar("ordering", len(documents)) as progress:
        reordered = reorder(
            ordered,
            documents,
            shuffle_seed=options.seed if options.shuffle else None,
            on_document=progress,
        )
    encoder.log_oov()
    if options.output:
        with files.open_output(options.output) as file:
            file.writelines(files.json_text(document.to_json()) + "\n" for document in reordered)
    elif not options.shuffle:
        for document in reordered:
            print("\n".join(document.sentences) + "\n")
    if not options.shuffle:
        return
    measured, chance = measure_orders(reordered, options.seed)
    num_optimal = sum(document.ordered.is_optimal for document in reordered)
    lines = [
        lm.summary,
        *aligned(measures_table({"model": measured, "chance": chance})),
        f"{measured.documents:,} documents of two or more sentences, "
        f"{len(documents) - measured.documents:,} shorter; {num_optimal:,} optimal orders, "
        f"{len(documents) - num_optimal:,} orders from a beam of {options.beam}",
    ]
    to_stderr = files.STDOUT in (options.output, options.metrics)
    print("\n".join(lines), file=sys.stderr if to_stderr else sys.stdout)
    if options.metrics:
        value = {**measured._asdict(), "chance": chance._asdict(), "exact": num_optimal}
        value |= {"beam": options.beam, "seed": options.seed, **run_json(lm)}
        value |= {name: getattr(options, name) for name in ("input", "data", "split")}
        files.write_json(options.metrics, value)


if __name__ == "__main__":
    _app.run(order, Options)
