"""Puts the sentences of documents into the order that a model finds likeliest.

    python -m launch.order --workdir=runs/ccdclm --input=docs.txt --output=orders.jsonl
    python -m launch.order --workdir=runs/codclm --split=test --metrics=order.json
    printf 'it slept .\\nthe cat was tired .\\n' |
        python -m launch.order --workdir=runs/ccdclm --input=- --noshuffle

The sentences of each document are shuffled, and the model, which does not see their original order,
puts them in order. Printed are Kendall's tau (1: the original order, 0: chance, -1: the reverse),
the share of sentences at their original position, the share of documents that match perfectly, and
the same numbers for random orders. Documents of one sentence have no order, and are left out of
them. With --noshuffle sentences come in the order of the input, and nothing is measured.

Under a model that reads one sentence before (codclm), documents of up to 15 sentences get the best
of all orders; other documents get the best order of a beam search. A model without context (rnnlm)
cannot order.

--output has one line per document:
    {"id": "docs.txt:1", "order": [1, 0], "sentences": ["the cat was tired .", "it slept ."],
     "unit": "nats", "log_prob": -31.4, "is_optimal": false, "tau": 1.0}
where `order` has the positions, from 0, of the sentences in the input.
"""

import sys
from collections.abc import Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.coherence import kendall
from dclm_jax.decoding.ordering import DEFAULT_BEAM
from dclm_jax.errors import InputError
from dclm_jax.experiments import orders
from dclm_jax.tables import aligned
from launch import _app, _evaluation

_evaluation.define_data_flags()
_evaluation.declare_run_flags()
_BEAM = flags.DEFINE_integer("beam", DEFAULT_BEAM, "Beam width.", lower_bound=1)
_SHUFFLE = flags.DEFINE_bool(
    "shuffle", True, "Shuffle the sentences first, and measure their new order."
)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Random seed for shuffling and for the random orders.", lower_bound=0
)
_OUTPUT = flags.DEFINE_string("output", None, "JSON lines to write; '-' is standard output.")
_METRICS = flags.DEFINE_string("metrics", None, "JSON file for the measures.")


def main(argv: Sequence[str]) -> None:
    del argv
    if _METRICS.value and not _SHUFFLE.value:
        raise InputError("--metrics has no effect with --noshuffle")
    _evaluation.check_data_flags()
    run = _evaluation.restore()
    _evaluation.require_language_models([run.lm], "launch.order")
    documents = list(_evaluation.read_words([run], "launch.order"))
    with _evaluation.Progress("ordering", len(documents)) as progress:
        reordered = orders.reorder(
            run.lm,
            documents,
            beam=_BEAM.value,
            shuffle_seed=_SEED.value if _SHUFFLE.value else None,
            on_document=progress,
        )
    if _OUTPUT.value:
        with files.open_output(_OUTPUT.value) as file:
            file.writelines(files.json_text(document.to_json()) + "\n" for document in reordered)
    elif not _SHUFFLE.value:
        for document in reordered:
            print("\n".join(document.sentences) + "\n")
    if not _SHUFFLE.value:
        return
    measured, chance = orders.measure(reordered, _SEED.value)
    num_optimal = sum(document.is_optimal for document in reordered)
    lines = [
        run.lm.summary,
        *aligned(kendall.table({"model": measured, "chance": chance})),
        f"{measured.documents:,} documents of two sentences and more, "
        f"{len(documents) - measured.documents:,} shorter; {num_optimal:,} optimal, "
        f"{len(documents) - num_optimal:,} by a beam of {_BEAM.value}",
    ]
    print("\n".join(lines), file=sys.stderr if _OUTPUT.value == files.STDOUT else sys.stdout)
    if _METRICS.value:
        value = {**measured._asdict(), "chance": chance._asdict(), "exact": num_optimal}
        value |= {"beam": _BEAM.value, "seed": _SEED.value, **run.to_json()}
        value |= {name: flags.FLAGS[name].value for name in ("input", "data", "split")}
        files.write_json(_METRICS.value, value)


if __name__ == "__main__":
    _app.run(main)
