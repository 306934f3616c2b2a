"""Writes the log-probability of every document, sentence and token of a text.

    python -m launch.score --workdir=runs/ccdclm --input=docs.txt --output=scores.jsonl
    python -m launch.score --workdir=runs/ccdclm --input=docs.jsonl --output=scores.tsv \\
        --output_format=tsv
    printf 'the cat sat .\\nit was content .\\n' |
        python -m launch.score --workdir=runs/ccdclm --input=- --output=-
    python -m launch.score --workdir=runs/ccdclm --context=story.txt --input=endings.txt

All numbers are natural logarithms (nats); the surprisal of a token is -log P(token | everything
before it in its document). Every sentence ends in <END>, which is predicted too. A word outside the
vocabulary has the probability of UNKNOWN, and is marked as not known.

jsonl, a line for each document:
    {"id": "docs.txt:1", "unit": "nats", "log_prob": -31.4, "sentences": [
        {"log_prob": -20.9, "tokens": ["the", ...], "surprisals": [4.1, ...], "known": [true, ...]},
        ...]}
A document without words has a line, too, with no sentences, so that results join with the text.
tsv, a line for each token, under a header: document, sentence and position (both from 1), token,
surprisal, known (1 or 0), log-probabilities of its sentence and document.

With --context every line of the input is one candidate for the sentence after that text, its words
separated by spaces, and a record of its own, named by its number from 1; --format is the context's.

The input is streamed and may be larger than memory. The output file appears once it is complete.
"""

import itertools
import json
from collections.abc import Iterator, Sequence

from absl import flags

from dclm_jax.data import readers
from dclm_jax.errors import InputError
from dclm_jax.files import open_output
from dclm_jax.language_model import DocumentScore, LanguageModel
from launch import _app, _cluster, _evaluation

flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_cluster)
_INPUT = flags.DEFINE_string("input", None, "Text to score; '-' is standard input.")
_CONTEXT = flags.DEFINE_string(
    "context", None, "Text of one document, after which each line of --input is scored."
)
_OUTPUT = flags.DEFINE_string("output", "-", "File to write; '-' is standard output.")
_OUTPUT_FORMAT = flags.DEFINE_enum("output_format", "jsonl", ("jsonl", "tsv"), "What to write.")
_CANDIDATES = 256
_TSV_HEADER = ("document", "sentence", "position", "token", "surprisal_nats", "known")
_TSV_HEADER += ("sentence_log_prob_nats", "document_log_prob_nats")


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    if not _INPUT.value:
        raise InputError("--input is missing; expected a file, a folder or '-'")
    lm = _evaluation.restore()
    # A document without words has a line, too, so that results join with the text. An autoencoder
    # makes nothing of nothing.
    keep_empty = lm.model is None or not lm.model.reads_source
    text = _evaluation.read_text(lm, _INPUT.value, keep_empty=keep_empty)
    scores = _continuations(lm) if _CONTEXT.value else lm.score(text)
    lines = _tsv_lines if _OUTPUT_FORMAT.value == "tsv" else _json_lines
    with open_output(_OUTPUT.value) as file, _evaluation.Progress("scoring") as progress:
        if _OUTPUT_FORMAT.value == "tsv":
            file.write("\t".join(_TSV_HEADER) + "\n")
        for number, score in enumerate(scores, start=1):
            file.writelines(lines(score))
            progress(number, None)


def _continuations(lm: LanguageModel) -> Iterator[DocumentScore]:
    """Each line of --input after the text of --context."""
    context, path = _CONTEXT.value or "", _INPUT.value or ""
    if context == path == readers.STDIN:
        raise InputError("--context and --input are both standard input; expected one of them")
    texts = list(itertools.islice(_evaluation.read_text(lm, context), 2))
    if len(texts) != 1:
        raise InputError(f"{context}: holds several documents; expected one")
    _evaluation.require_language_models([lm], "launch.score --context")
    read, lines = lm.read(texts[0]), readers.read_candidates(path, _evaluation.ENCODING.value)
    if _evaluation.text_options(lm.text.options).lowercase:
        lines = map(str.lower, lines)
    numbers = itertools.count(1)
    while some := list(itertools.islice(lines, _CANDIDATES)):
        for score in read.score(some):
            yield DocumentScore(str(next(numbers)), score.log_prob, [score])


def _json_lines(score: DocumentScore) -> Iterator[str]:
    sentences = [
        {
            "log_prob": sentence.log_prob,
            "tokens": sentence.tokens,
            "surprisals": [-log_prob for log_prob in sentence.log_probs],
            "known": sentence.known,
        }
        for sentence in score.sentences
    ]
    record = {"id": score.id, "unit": "nats", "log_prob": score.log_prob, "sentences": sentences}
    yield json.dumps(record, ensure_ascii=False) + "\n"


def _tsv_lines(score: DocumentScore) -> Iterator[str]:
    # Names may hold tabs; tokens hold no white space.
    name = score.id.replace("\t", " ")
    for number, sentence in enumerate(score.sentences, start=1):
        tokens = zip(sentence.tokens, sentence.log_probs, sentence.known, strict=True)
        for position, (token, log_prob, known) in enumerate(tokens, start=1):
            yield (
                f"{name}\t{number}\t{position}\t{token}\t{-log_prob:.6f}\t{known:d}\t"
                f"{sentence.log_prob:.6f}\t{score.log_prob:.6f}\n"
            )


if __name__ == "__main__":
    _app.run(main)
