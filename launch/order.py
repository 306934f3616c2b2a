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

import sys
from collections.abc import Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.data.documents import Document
from dclm_jax.decoding.ordering import DEFAULT_BEAM, Ordered, order_sentences
from dclm_jax.evaluation.reordering import measure_orders, measures_table, reorder
from dclm_jax.neural_language_model import NeuralLanguageModel
from dclm_jax.runs import run_json
from dclm_jax.tables import aligned

from . import _app, _evaluation
from ._flags import define_beam, define_metrics

_evaluation.define_data_flags()
_evaluation.declare_flags(without=["batch_size"])
_BEAM = define_beam(DEFAULT_BEAM)
_SHUFFLE = flags.DEFINE_bool(
    "shuffle", True, "Shuffle the sentences first, and measure their new order."
)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Random seed for shuffling and for the random orders of the baseline.", lower_bound=0
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "JSON lines file for the orders; '-' is standard output."
)
_METRICS = define_metrics()


def main(argv: Sequence[str]) -> None:
    del argv
    _app.check_ending("output", ".jsonl")
    _app.refuse_without("shuffle", "metrics")
    _evaluation.check_data_flags()
    lm = _evaluation.restore(NeuralLanguageModel)
    documents, encoder = list(_evaluation.read_words(lm)), lm.encoder()

    def order(document: Document) -> Ordered:
        ids = list(map(encoder.encode, document.sentences))
        return order_sentences(lm.reader, ids, _BEAM.value)

    with _evaluation.ProgressBar("ordering", len(documents)) as progress:
        reordered = reorder(
            order,
            documents,
            shuffle_seed=_SEED.value if _SHUFFLE.value else None,
            on_document=progress,
        )
    encoder.log_oov()
    if _OUTPUT.value:
        with files.open_output(_OUTPUT.value) as file:
            file.writelines(files.json_text(document.to_json()) + "\n" for document in reordered)
    elif not _SHUFFLE.value:
        for document in reordered:
            print("\n".join(document.sentences) + "\n")
    if not _SHUFFLE.value:
        return
    measured, chance = measure_orders(reordered, _SEED.value)
    num_optimal = sum(document.ordered.is_optimal for document in reordered)
    lines = [
        lm.summary,
        *aligned(measures_table({"model": measured, "chance": chance})),
        f"{measured.documents:,} documents of two or more sentences, "
        f"{len(documents) - measured.documents:,} shorter; {num_optimal:,} optimal orders, "
        f"{len(documents) - num_optimal:,} orders from a beam of {_BEAM.value}",
    ]
    to_stderr = files.STDOUT in (_OUTPUT.value, _METRICS.value)
    print("\n".join(lines), file=sys.stderr if to_stderr else sys.stdout)
    if _METRICS.value:
        value = {**measured._asdict(), "chance": chance._asdict(), "exact": num_optimal}
        value |= {"beam": _BEAM.value, "seed": _SEED.value, **run_json(lm)}
        value |= {name: flags.FLAGS[name].value for name in ("input", "data", "split")}
        files.write_json(_METRICS.value, value)


if __name__ == "__main__":
    _app.run(main)
