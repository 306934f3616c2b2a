"""Puts the sentences of documents into the order that a model finds likeliest.

    python -m launch.order --workdir=runs/ccdclm --input=docs.txt --output=orders.jsonl
    python -m launch.order --workdir=runs/codclm --split=test --metrics=order.json
    printf 'it slept .\\nthe cat was tired .\\n' |
        python -m launch.order --workdir=runs/ccdclm --input=- --noshuffle

The sentences of each document are shuffled, and the model, which does not see how they were, puts
them in order. Told are Kendall's tau (1: as they were, 0: by chance, -1: the reverse), the share of
sentences that are where they were, that of documents in which all are, and what chance gives.
Documents of one sentence have no order, and are not among these. With --noshuffle sentences come as
they stand, and nothing is measured.

Under a model that reads one sentence before (codclm), documents of up to 15 sentences are put in
the best of all orders; otherwise --beam beginnings are followed. A model that reads none (rnnlm)
cannot order.

--output has a line for each document:
    {"id": "docs.txt:1", "order": [1, 0], "sentences": ["the cat was tired .", "it slept ."],
     "unit": "nats", "log_prob": -31.4, "is_exact": false, "tau": 1.0}
where `order` are the numbers, from 0, that the sentences have in the input.
"""

import sys
from collections.abc import Sequence

import numpy as np
from absl import flags

from dclm_jax import files
from dclm_jax.coherence import kendall
from dclm_jax.data import readers
from dclm_jax.decoding import ordering
from dclm_jax.errors import InputError
from dclm_jax.tables import aligned
from launch import _app, _evaluation

_evaluation.define_data_flags()
_evaluation.declare_run_flags()
_BEAM = flags.DEFINE_integer("beam", ordering.DEFAULT_BEAM, "Beginnings that are followed.")
_SHUFFLE = flags.DEFINE_bool("shuffle", True, "Shuffle the sentences before, and measure.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the shuffling, and of what chance gives.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON lines to write; '-' is standard output.")
_METRICS = flags.DEFINE_string("metrics", None, "JSON file for the measures.")


def main(argv: Sequence[str]) -> None:
    del argv
    if flags.FLAGS["batch_size"].present:
        raise InputError("--batch_size has no effect; beginnings of a document go together anyway")
    if _METRICS.value and not _SHUFFLE.value:
        raise InputError("--metrics has no effect with --noshuffle")
    if _SEED.value < 0:
        raise InputError(f"--seed is {_SEED.value}; expected 0 or more")
    _evaluation.check_data_flags()
    run = _evaluation.restore()
    lm = run.lm
    _evaluation.require_language_models([lm], "launch.order")
    documents = list(_evaluation.read_words([run], "launch.order"))
    rng = np.random.default_rng(_SEED.value)
    given = [
        rng.permutation(len(one.sentences)) if _SHUFFLE.value else np.arange(len(one.sentences))
        for one in documents
    ]
    encoded = [
        [sentences[i] for i in order]
        for order, sentences in zip(given, map(lm.encode, documents), strict=True)
    ]
    with _evaluation.Progress("ordering") as progress:
        found = ordering.order_documents(
            lm.reader,
            encoded,
            context_order=lm.scorer.context_order,
            beam=_BEAM.value,
            on_document=progress,
        )
    orders = [own[one.order].tolist() for own, one in zip(given, found, strict=True)]
    if _OUTPUT.value:
        with files.open_output(_OUTPUT.value) as file:
            for document, order, one in zip(documents, orders, found, strict=True):
                file.write(_record(document, order, one))
    elif not _SHUFFLE.value:
        for document, order in zip(documents, orders, strict=True):
            print("\n".join(" ".join(document.sentences[i]) for i in order) + "\n")
    if _SHUFFLE.value:
        _tell(run, documents, orders, sum(one.is_exact for one in found))


def _record(document: readers.Document, order: list[int], one: ordering.Ordered) -> str:
    record = {
        "id": document.id,
        "order": order,
        "sentences": [" ".join(document.sentences[i]) for i in order],
        "unit": "nats",
        "log_prob": one.log_prob,
        "is_exact": one.is_exact,
    }
    if _SHUFFLE.value and len(order) > 1:
        text = [tuple(words) for words in document.sentences]
        record["tau"] = kendall.order_measures([order], [text]).tau
    return files.json_text(record) + "\n"


def _tell(
    run: _evaluation.Subject, documents: list[readers.Document], orders: list[list[int]], exact: int
) -> None:
    texts = [[tuple(words) for words in one.sentences] for one in documents]
    measured = kendall.order_measures(orders, texts)
    if not measured.documents:
        raise InputError("no document has two sentences; there is no order to find")
    chance = kendall.by_chance(texts, _SEED.value)
    rows = [("", "Kendall's tau", "places", "perfect")]
    rows += [
        (name, f"{one.tau:.4f}", f"{100 * one.places:.2f}%", f"{100 * one.perfect:.2f}%")
        for name, one in (("model", measured), ("chance", chance))
    ]
    short = len(documents) - measured.documents
    lines = [
        run.lm.summary,
        *aligned(rows),
        f"{measured.documents:,} documents of two sentences and more, {short:,} shorter; "
        f"{exact:,} exact, {len(documents) - exact:,} by a beam of {_BEAM.value}",
    ]
    print("\n".join(lines), file=sys.stderr if _OUTPUT.value == files.STDOUT else sys.stdout)
    if _METRICS.value:
        value = {**measured.to_json(), "chance": chance.to_json(), "exact": exact}
        value |= {"beam": _BEAM.value, "seed": _SEED.value, **run.to_json()}
        value |= {name: flags.FLAGS[name].value for name in ("input", "data", "split")}
        files.write_json(_METRICS.value, value)


if __name__ == "__main__":
    _app.run(main)
