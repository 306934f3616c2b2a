"""Has an autoencoder make documents anew, and measures how close they are (Li et al. 2015).

    python -m launch.reconstruct --workdir=runs/paragraphs/hierarchical --split=test \\
        --output=outputs.jsonl --metrics=metrics.json
    python -m launch.reconstruct --workdir=runs/paragraphs/hierarchical --input=reviews.txt \\
        --method=beam --output=-
    python -m launch.reconstruct --outputs=outputs.jsonl,others.txt --input=reviews.txt

With --workdir the documents of --split (of the corpus that the model was trained on, or --data), or
of the text --input, are read and made anew: the likeliest word after the other, or as --method says
(see launch.generate); <UNKNOWN> is a word like others, unless --noallow_unknown. A text has at most
--length times the words of what it is made of; the model decides itself after which sentence it
ends. --output has a JSON line for each:
    {"id": "0", "input": ["the hotel is nice ."], "sentences": ["the hotel was nice ."],
        "unit": "nats", "log_prob": -7.1, "has_ended": true}
They are measured against the documents of the split; with --input against --target, or else the
input itself. --nomeasure leaves that out, and what it needs.

With --outputs texts that are there are measured: as many documents as --input has, in the same
order. Several outputs, separated by commas, give a row each. Files named .jsonl or .json are JSON
lines, {"id": ..., "sentences": [...]}, others are what --format says. An output may have no
sentences.

The measures are those of the paper's Table 3. BLEU is sacrebleu's of words as they are, of the
whole corpus, a document being a segment. ROUGE-1, ROUGE-2 and ROUGE-W are percentages of the input
(recall, Eq. 16), with F1 beside them, and means over documents. L is the coherence penalty, Eq. 18,
how many positions apart sentences are moved, and better where it is small: output sentences are
aligned with input sentences by their verbs and nouns, which HanTa finds (pip install
'dclm_jax[metrics,tags]'). An output of one sentence has no L. A sentence without a verb or noun of
the input is aligned with the nearest position, so that L says nothing of it; `unaligned` is the
share of such sentences.
"""

import collections
import math
import sys
from collections.abc import Iterator, Sequence

from absl import flags

from dclm_jax import files
from dclm_jax.data import corpus, readers
from dclm_jax.errors import InputError
from dclm_jax.evaluation import reconstruction
from dclm_jax.language_model import DEFAULT_LENGTH, GeneratedText, LanguageModel
from launch import _app, _decoding, _evaluation

_evaluation.declare_run_flags()
flags.adopt_module_key_flags(_decoding)
# What was read may have unknown words, and each is one in what is made of it.
flags.set_default(_decoding.ALLOW_UNKNOWN, True)
_evaluation.define_data_flags()
_TARGET = flags.DEFINE_string(
    "target", None, "With --workdir and --input: what to measure against, if not the input."
)
_LENGTH = flags.DEFINE_float(
    "length", DEFAULT_LENGTH, "Words of a text, at most: so many times those it is made of."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "With --workdir: JSON lines to write; '-' is standard output."
)
_OUTPUTS = flags.DEFINE_list("outputs", None, "Texts to measure, separated by commas.")
_MEASURE = flags.DEFINE_bool("measure", True, "Measure what was made.")
_METRICS = flags.DEFINE_string(
    "metrics", None, "JSON file for the measures; '-' is standard output."
)
_OF_MODELS = ("data", "split", "target", "length", "output", "measure", "method", "allow_unknown")


def main(argv: Sequence[str]) -> None:
    del argv
    if flags.FLAGS["batch_size"].present:
        raise InputError("--batch_size has no effect; documents of like length go together anyway")
    if flags.FLAGS["workdir"].present:
        _reconstruct()
    else:
        _measure()


def _reconstruct() -> None:
    """Makes documents anew, and measures them."""
    if _OUTPUTS.value:
        raise InputError("--outputs are measured as they are; expected --output with --workdir")
    if not _OUTPUT.value:
        raise InputError("--output is missing; expected a file for what is made")
    for flag in (_METRICS, _TARGET):
        if flag.value and not _MEASURE.value:
            raise InputError(f"--{flag.name} has no effect with --nomeasure")
    if _OUTPUT.value == _METRICS.value == files.STDOUT:
        raise InputError("--output and --metrics are both standard output; expected one of them")
    _evaluation.check_data_flags()
    decoding, lm = _decoding.decoding(), _evaluation.restore().lm
    lm.require_reconstructing()
    tagger = reconstruction.require_packages() if _MEASURE.value else None
    measures: list[reconstruction.Measures] = []
    (most_sentences, most_words), longer = _longest_trained(lm), 0
    targets: collections.deque[readers.Document] = collections.deque()

    def sources() -> Iterator[readers.Document]:
        nonlocal longer
        for source, target in _pairs(lm):
            if not any(source.sentences):
                raise InputError(f"document {source.id} has no words; expected some to read")
            if tagger is not None and not any(target.sentences):
                raise InputError(f"target {target.id} has no words; expected some to compare with")
            longest = max(map(len, source.sentences))
            longer += len(source.sentences) > most_sentences or longest > most_words
            targets.append(target)
            yield source

    made = lm.reconstruct(sources(), decoding, length=_LENGTH.value, seed=_decoding.SEED.value)
    with files.open_output(_OUTPUT.value) as file, _evaluation.Progress("reconstruct") as progress:
        for number, (source, (text,)) in enumerate(made, start=1):
            file.write(_record(source, text))
            target = targets.popleft()
            if tagger is not None:
                words = [one.tokens[:-1] for one in text.sentences]
                measures.append(reconstruction.measure(words, target.sentences, tagger))
            progress(number, None)
    if longer:
        print(
            f"{longer:,} documents have more sentences, or a longer one, than any that the model "
            f"was trained on ({most_sentences:,} sentences, {most_words:,} words)",
            file=sys.stderr,
        )
    if measures:
        _tell({_OUTPUT.value: reconstruction.summarize(measures)})


def _pairs(lm: LanguageModel) -> Iterator[tuple[readers.Document, readers.Document]]:
    """What is to be read, each with what ought to become of it."""
    paths = [path for path in (flags.FLAGS.input, _TARGET.value) if path is not None]
    if flags.FLAGS.input is not None:
        texts = [_evaluation.read_text([lm], path, keep_empty=True) for path in paths]
        for found in readers.corresponding(texts, paths):
            yield found[0], found[-1]
        return
    if paths:
        raise InputError("--target belongs to --input, which is missing")
    run = _evaluation.Subject(lm.name, "", lm)
    for encoded in _evaluation.open_split([run], flags.FLAGS.split).documents:
        target = readers.Document(encoded.id, list(map(lm.vocabulary.decode, encoded.sentences)))
        made_of = encoded.source
        words = None if made_of is None else list(map(lm.vocabulary.decode, made_of))
        yield target if words is None else readers.Document(encoded.id, words), target


def _longest_trained(lm: LanguageModel) -> tuple[float, float]:
    """The sentences of the longest document that the model has read in training, and the words of
    the longest sentence; infinity if its corpus is not there any more."""
    unknown = math.inf, math.inf
    try:
        manifest = corpus.read_manifest(lm.config["data"]["directory"])
    except InputError:
        return unknown
    read = manifest.splits.get(corpus.source_split("train"), manifest.splits.get("train"))
    if read is None or manifest.vocabulary.fingerprint != lm.vocabulary.fingerprint:
        return unknown
    return read.longest_document, read.longest_sentence


def _record(source: readers.Document, text: GeneratedText) -> str:
    record = {
        "id": source.id,
        "input": [" ".join(words) for words in source.sentences],
        "sentences": [one.text for one in text.sentences],
        "unit": "nats",
        "log_prob": text.log_prob,
        "has_ended": text.has_ended,
    }
    return files.json_text(record) + "\n"


def _measure() -> None:
    """Measures --outputs against --input."""
    outputs, inputs = _OUTPUTS.value or [], flags.FLAGS.input or ""
    if not outputs:
        raise InputError("--outputs is missing; expected texts to measure, or --workdir")
    if not inputs:
        raise InputError("--input is missing; expected what --outputs were made of")
    for name in _OF_MODELS:
        if flags.FLAGS[name].present:
            raise InputError(
                f"--{name} has no effect on documents that are there; it needs --workdir"
            )
    if readers.STDIN in outputs or (inputs == readers.STDIN and len(outputs) > 1):
        raise InputError("standard input is read once: it can be --input with one of --outputs")
    summaries = {}
    for path in outputs:
        with _evaluation.Progress(path) as progress:
            measures = reconstruction.evaluate_files(
                path,
                inputs,
                _evaluation.text_options(),
                encoding=_evaluation.ENCODING.value,
                on_document=lambda done: progress(done, None),
            )
        summaries[path] = reconstruction.summarize(measures)
    _tell(summaries)


def _tell(summaries: dict[str, reconstruction.Summary]) -> None:
    """Prints the table, and writes --metrics."""
    if files.STDOUT not in (_METRICS.value, _OUTPUT.value):
        print(reconstruction.table(summaries))
    if _METRICS.value:
        rows = {path: summary.to_json() for path, summary in summaries.items()}
        files.write_json(_METRICS.value, {"input": flags.FLAGS.input, "outputs": rows})


if __name__ == "__main__":
    _app.run(main)
