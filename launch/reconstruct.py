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

import dataclasses
from collections.abc import Iterator

from dclm_jax import files
from dclm_jax.data.documents import Document
from dclm_jax.data.text_files import STDIN
from dclm_jax.decoding.choices import Decoding
from dclm_jax.errors import InputError
from dclm_jax.metrics import reconstruction, systems
from dclm_jax.neural_language_model import DEFAULT_MAX_LENGTH_RATIO, Autoencoder

from . import _app
from ._decoding import NAMES, GenerationOptions
from ._evaluation import DataOptions, ProgressBar, RunOptions
from ._options import MetricsOptions, part


@dataclasses.dataclass(frozen=True)
class Options(MetricsOptions, GenerationOptions, DataOptions, RunOptions):
    """Options of `reconstruct`.

    Attributes:
      max_length_ratio: maximum number of words of a reconstruction per word of its source.
      output: JSON lines file for the reconstructions; '-' is standard output.
      outputs: text to measure against --input, without a run.
    """

    # Sources may have OOV words, which are reconstructed as UNKNOWN.
    decoding: Decoding = part(Decoding(allow_unknown=True), names=NAMES)
    max_length_ratio: float = DEFAULT_MAX_LENGTH_RATIO
    output: str | None = None
    outputs: str | None = None

    def __post_init__(self) -> None:
        if self.workdir is None:
            self._check_measuring()
        super().__post_init__()
        self.require_ending("output", ".jsonl")
        self.refuse_together("workdir", "outputs")

    def _check_measuring(self) -> None:
        """Refuses options without effect on the measures of a text."""
        if not self.outputs:
            raise InputError(
                "--workdir and --outputs are missing; add --workdir=RUN to reconstruct documents, "
                "or --outputs=FILE to measure a text"
            )
        self.required("input", "FILE, the sources of --outputs")
        self.refuse_without(
            "workdir", "data", "split", "output", "max_length_ratio", "method", "allow_unknown"
        )


def reconstruct(options: Options) -> None:
    """Reconstructs documents, or takes a text for their reconstructions, and measures them."""
    if options.workdir is None:
        output = options.required("outputs", "FILE")
        measures = _measure_outputs(options, output)
    else:
        output = options.required("output", "FILE for the reconstructed documents")
        measures = _reconstruct(options, output)
    summary = reconstruction.summarize(measures)
    if files.STDOUT not in (options.metrics, options.output):
        print(reconstruction.reconstruction_table(output, summary))
    if options.metrics:
        value = {"input": options.input, "output": output, **summary}
        files.write_json(options.metrics, value)


def _reconstruct(options: Options, output: str) -> list[reconstruction.Measures]:
    """Reconstructs documents and writes them; returns their measures."""
    lm = options.restore(Autoencoder)
    # Refuse a missing package before the documents are reconstructed.
    systems.bleu_statistics([], [])
    measures = []
    reconstructed = lm.reconstruct(
        _documents(lm, options),
        options.decoding,
        max_length_ratio=options.max_length_ratio,
        seed=options.seed,
    )
    with files.open_output(output) as file, ProgressBar("reconstruct") as progress:
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
    return measures


def _documents(lm: Autoencoder, options: Options) -> Iterator[Document]:
    """The documents to reconstruct."""
    for document in options.words(lm, keep_empty=True):
        if not document.sentences:
            raise InputError(
                f"{options.input}: document {document.id} has no words; remove it or add its text"
            )
        yield document


def _measure_outputs(options: Options, outputs: str) -> list[reconstruction.Measures]:
    """The measures of a text against --input."""
    inputs = options.required("input", "FILE, the sources of --outputs")
    if STDIN == outputs == inputs:
        raise InputError("standard input can be read only once; name a file as --outputs")
    reader = options.reader([])
    with ProgressBar(outputs) as progress:
        return reconstruction.evaluate_files(
            outputs, inputs, reader.options, encoding=reader.encoding, on_document=progress
        )


if __name__ == "__main__":
    _app.run(reconstruct, Options)
