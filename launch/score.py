"""Writes the log-probability of every document, sentence and token of a text.

    python -m launch.score --workdir=runs/ccdclm --input=docs.txt --output=scores.jsonl
    python -m launch.score --workdir=runs/ccdclm --split=valid --output=scores.tsv \\
        --output_format=tsv
    printf 'the cat sat .\\nit was content .\\n' |
        python -m launch.score --workdir=runs/ccdclm --input=- --output=-
    python -m launch.score --workdirs=runs/ccdclm,runs/rnnlm --input=docs.txt
    python -m launch.score --workdir=runs/ccdclm --context=story.txt --input=endings.txt

All numbers are natural logarithms (nats); the surprisal of a token is -log P(token | everything
before it in its document). Every sentence ends in <END>, which is predicted too. A word outside the
vocabulary has the probability of UNKNOWN, and is marked as not known; a split has <UNKNOWN> for it.
With --unknown=blank it has no surprisal, and all log-probabilities are those of the other tokens.

jsonl, a line for each document:
    {"id": "docs.txt:1", "unit": "nats", "log_prob": -31.4, "sentences": [
        {"log_prob": -20.9, "tokens": ["the", ...], "surprisals": [4.1, ...], "known": [true, ...]},
        ...]}
A document without words has a line, too, with no sentences, so that results join with the text.
tsv, a line for each token, under a header: document, sentence and position (both from 1), token,
surprisal, known (1 or 0), log-probabilities of its sentence and document.

Of several runs, which have one vocabulary, jsonl has {"RUN": number, ...} or {"RUN": [...], ...}
where it has a number or a list, and tsv has columns such as surprisal_nats:RUN.

With --context every line of the input is one candidate for the sentence after that text, and a
record of its own, named by its number from 1. Its words are found as in the text.

The input is streamed and may be larger than memory. The output file appears once it is complete.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from dclm_jax.data import readers
from dclm_jax.errors import InputError
from dclm_jax.files import open_output
from dclm_jax.language_model import DocumentScore, SentenceScore
from launch import _app, _cluster, _evaluation

_evaluation.define_data_flags()
_evaluation.define_workdirs()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_cluster)
_CONTEXT = flags.DEFINE_string(
    "context", None, "Text of one document, after which each line of --input is scored."
)
_OUTPUT = flags.DEFINE_string("output", "-", "File to write; '-' is standard output.")
_OUTPUT_FORMAT = flags.DEFINE_enum("output_format", "jsonl", ("jsonl", "tsv"), "What to write.")
_UNKNOWN = flags.DEFINE_enum(
    "unknown", "score", ("score", "blank"), "Whether unknown words have the surprisal of UNKNOWN."
)
_CANDIDATES = 256


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    if _CONTEXT.value and not flags.FLAGS.input:
        raise InputError("--input is missing; expected a file, a folder or '-'")
    _evaluation.check_data_flags(other_text=bool(_CONTEXT.value))
    runs = _evaluation.restore_all()
    scores = _continuations(runs) if _CONTEXT.value else _documents(runs)
    if _UNKNOWN.value == "blank":
        scores = ([_blanked(one) for one in of_runs] for of_runs in scores)
    labels = [run.label for run in runs]
    with open_output(_OUTPUT.value) as file, _evaluation.Progress("scoring") as progress:
        if _OUTPUT_FORMAT.value == "tsv":
            file.write("\t".join(_tsv_header(labels)) + "\n")
        for number, of_runs in enumerate(scores, start=1):
            if _OUTPUT_FORMAT.value == "tsv":
                file.writelines(_tsv_lines(of_runs))
            else:
                file.write(_json_line(labels, of_runs))
            progress(number, None)


def _documents(runs: Sequence[_evaluation.Run]) -> Iterator[list[DocumentScore]]:
    """The scores of each document by every run."""
    # A document without words has a line, too, so that results join with the text. An autoencoder
    # makes nothing of nothing.
    keep_empty = all(run.lm.model is None or not run.lm.model.reads_source for run in runs)
    documents = _evaluation.read_words(runs, "launch.score", keep_empty=keep_empty)
    # What one run reads ahead waits for the others.
    ahead = itertools.tee(documents, len(runs))
    scores = (run.lm.score(one) for run, one in zip(runs, ahead, strict=True))
    return map(list, zip(*scores, strict=True))


def _continuations(runs: Sequence[_evaluation.Run]) -> Iterator[list[DocumentScore]]:
    """Each line of --input after the text of --context."""
    context, path, models = _CONTEXT.value or "", flags.FLAGS.input, [run.lm for run in runs]
    if context == path == readers.STDIN:
        raise InputError("--context and --input are both standard input; expected one of them")
    texts = list(itertools.islice(_evaluation.read_text(models, context), 2))
    if len(texts) != 1:
        raise InputError(f"{context}: holds several documents; expected one")
    _evaluation.require_language_models(models, "launch.score --context")
    options = _evaluation.text_options(*(one.text.options for one in models))
    candidates = readers.read_candidates(path, options, _evaluation.ENCODING.value)
    read = [lm.read(texts[0]) for lm in models]
    numbers = itertools.count(1)
    while some := list(itertools.islice(candidates, _CANDIDATES)):
        for of_runs in zip(*(one.score(some) for one in read), strict=True):
            number = str(next(numbers))
            yield [DocumentScore(number, one.log_prob, [one]) for one in of_runs]


def _blanked(score: DocumentScore) -> DocumentScore:
    """The score of the known tokens alone; the others have NaN."""
    sentences = []
    for one in score.sentences:
        log_probs = [
            log_prob if known else math.nan
            for log_prob, known in zip(one.log_probs, one.known, strict=True)
        ]
        log_prob = math.fsum(itertools.compress(log_probs, one.known))
        sentences.append(dataclasses.replace(one, log_prob=log_prob, log_probs=log_probs))
    return DocumentScore(score.id, math.fsum(one.log_prob for one in sentences), sentences)


def _json_line(labels: Sequence[str], scores: Sequence[DocumentScore]) -> str:
    def each(values: Sequence[Any]) -> Any:
        return values[0] if len(labels) == 1 else dict(zip(labels, values, strict=True))

    def sentence(of_runs: tuple[SentenceScore, ...]) -> dict[str, Any]:
        surprisals = [
            [None if math.isnan(log_prob) else -log_prob for log_prob in one.log_probs]
            for one in of_runs
        ]
        return {
            "log_prob": each([one.log_prob for one in of_runs]),
            "tokens": of_runs[0].tokens,
            "surprisals": each(surprisals),
            "known": of_runs[0].known,
        }

    record = {
        "id": scores[0].id,
        "unit": "nats",
        "log_prob": each([one.log_prob for one in scores]),
        "sentences": [sentence(one) for one in _sentences(scores)],
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def _sentences(scores: Sequence[DocumentScore]) -> Iterator[tuple[SentenceScore, ...]]:
    return zip(*(one.sentences for one in scores), strict=True)


def _tsv_header(labels: Sequence[str]) -> list[str]:
    def each(name: str) -> list[str]:
        return [name] if len(labels) == 1 else [f"{name}:{label}" for label in labels]

    first = ["document", "sentence", "position", "token", *each("surprisal_nats"), "known"]
    return [*first, *each("sentence_log_prob_nats"), *each("document_log_prob_nats")]


def _tsv_lines(scores: Sequence[DocumentScore]) -> Iterator[str]:
    def numbers(values: Iterator[float]) -> list[str]:
        return ["" if math.isnan(value) else f"{value:.6f}" for value in values]

    # Names may hold tabs; tokens hold no white space.
    name = scores[0].id.replace("\t", " ")
    of_document = numbers(one.log_prob for one in scores)
    for number, of_runs in enumerate(_sentences(scores), start=1):
        of_sentence = numbers(one.log_prob for one in of_runs)
        tokens = zip(of_runs[0].tokens, of_runs[0].known, strict=True)
        log_probs = zip(*(one.log_probs for one in of_runs), strict=True)
        for position, ((token, known), of_token) in enumerate(
            zip(tokens, log_probs, strict=True), start=1
        ):
            surprisals = numbers(-log_prob for log_prob in of_token)
            cells = [name, str(number), str(position), token, *surprisals, f"{known:d}"]
            yield "\t".join([*cells, *of_sentence, *of_document]) + "\n"


if __name__ == "__main__":
    _app.run(main)
