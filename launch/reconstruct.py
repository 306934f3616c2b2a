"""Reconstructs documents with an autoencoder, and measures reconstructions (Li et al. 2015).

    python -m launch.reconstruct --workdir=runs/paragraphs/hierarchical --split=test \\
        --output=outputs.jsonl --metrics=metrics.json
    python -m launch.reconstruct --workdir=runs/paragraphs/hierarchical --input=reviews.txt \\
        --method=beam --output=-
    python -m launch.reconstruct --outputs=outputs.tagged --input=reviews.tagged --format=tagged

--workdir reconstructs the documents of a split or of --input, and measures the reconstructions.
Temperature, top-k and top-p act on the decision to end the document, too. A line of --output is a
document:
    {"id": "0", "input": ["the hotel is nice ."], "sentences": ["the hotel was nice ."],
        "unit": "nats", "log_prob": -7.1, "has_ended": true}

--outputs measures another text against --input. Its documents are aligned one to one with the
documents of --input.

The measures follow Table 3 of Li et al. (2015). They need the extra metrics: pip install
'dclm_jax[metrics]'. L and unaligned also need parts of speech in both texts. They are measured by
--outputs, after configs/larger_context/tag.py has tagged the reconstructions and the input.

    BLEU                 corpus BLEU from sacrebleu; each document is one sacrebleu segment, without
                         further tokenization
    ROUGE-1, -2 and -W   recall in percent (Eq. 16) and F1, means over documents
    L                    coherence penalty (Eq. 18), smaller is better: the difference between the
                         displacements of two output sentences, in positions, as a mean over pairs
                         of sentences. An output sentence is aligned with the input sentence that
                         shares the most verbs and nouns (F1). A document whose output is one
                         sentence has no L.
    unaligned            share of output sentences without a verb or noun of the input; such a
                         sentence is aligned with the nearest position
"""

from collections.abc import Iterator, Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.data.documents import Document
from dclm_jax.data.text_files import STDIN
from dclm_jax.errors import InputError
from dclm_jax.evaluation import reconstruction
from dclm_jax.neural_language_model import DEFAULT_MAX_LENGTH_RATIO, Autoencoder
from dclm_jax.rescoring import metrics

from . import _app, _decoding, _evaluation
from ._flags import define_metrics

_evaluation.declare_flags(without=["batch_size"])
flags.adopt_module_key_flags(_decoding)
# Sources may have OOV words, which are reconstructed as UNKNOWN.
flags.set_default(_decoding.ALLOW_UNKNOWN, True)
_evaluation.define_data_flags()
_MAX_LENGTH_RATIO = flags.DEFINE_float(
    "max_length_ratio",
    DEFAULT_MAX_LENGTH_RATIO,
    "Maximum number of words of a reconstruction per word of its source.",
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "JSON lines file for the reconstructions; '-' is standard output."
)
_OUTPUTS = flags.DEFINE_string("outputs", None, "Text to measure against --input, without a run.")
_METRICS = define_metrics()
_OF_MODELS = ("data", "split", "output", "max_length_ratio", "method", "allow_unknown")


def main(argv: Sequence[str]) -> None:
    del argv
    _app.check_ending("output", ".jsonl")
    output, measures = _reconstruct() if flags.FLAGS["workdir"].present else _measure_outputs()
    summary = reconstruction.summarize(measures)
    if files.STDOUT not in (_METRICS.value, _OUTPUT.value):
        print(reconstruction.reconstruction_table(output, summary))
    if _METRICS.value:
        value = {"input": flags.FLAGS.input, "output": output, **summary}
        files.write_json(_METRICS.value, value)


def _reconstruct() -> tuple[str, list[reconstruction.Measures]]:
    """Reconstructs documents and writes them to --output; returns its name and the measures."""
    _app.refuse_together("workdir", "outputs")
    output = _app.required("output", "FILE for the reconstructed documents")
    _evaluation.check_data_flags()
    decoding, lm = _decoding.decoding(), _evaluation.restore(Autoencoder)
    # Refuse a missing package before the documents are reconstructed.
    metrics.bleu_statistics([], [])
    measures = []
    reconstructed = lm.reconstruct(
        _documents(lm),
        decoding,
        max_length_ratio=_MAX_LENGTH_RATIO.value,
        seed=_decoding.SEED.value,
    )
    with files.open_output(output) as file, _evaluation.ProgressBar("reconstruct") as progress:
        for source, (text,) in progress.counting(reconstructed):
            record = {
                "id": source.id,
                "input": list(map(" ".join, source.sentences)),
                "sentences": [sentence.text for sentence in text.sentences],
                "unit": "nats",
                "log_prob": text.log_prob,
                "has_ended": text.has_ended,
            }
            file.write(files.json_text(record) + "\n")
            words = [sentence.tokens[:-1] for sentence in text.sentences]
            measures.append(reconstruction.measure_output(Document(source.id, words), source))
    return output, measures


def _documents(lm: Autoencoder) -> Iterator[Document]:
    """The documents to reconstruct."""
    for document in _evaluation.read_words(lm, keep_empty=True):
        if not document.sentences:
            raise InputError(
                f"{flags.FLAGS.input}: document {document.id} has no words; remove it or add its "
                "text"
            )
        yield document


def _measure_outputs() -> tuple[str, list[reconstruction.Measures]]:
    """The name of --outputs, and its measures against --input."""
    outputs = _OUTPUTS.value
    if not outputs:
        raise InputError(
            "--workdir and --outputs are missing; add --workdir=RUN to reconstruct documents, or "
            "--outputs=FILE to measure a text"
        )
    inputs = _app.required("input", "FILE, the sources of --outputs")
    _app.refuse_without("workdir", *_OF_MODELS)
    if STDIN == outputs == inputs:
        raise InputError("standard input can be read only once; name a file as --outputs")
    reader = _evaluation.text_reader([])
    with _evaluation.ProgressBar(outputs) as progress:
        measures = reconstruction.evaluate_files(
            outputs, inputs, reader.options, encoding=reader.encoding, on_document=progress
        )
    return outputs, measures


if __name__ == "__main__":
    _app.run(main)
