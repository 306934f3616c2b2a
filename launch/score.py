"""Writes the surprisal of every word, and the log-probability of every sentence and document.

    python -m launch.score --workdir=runs/ccdclm --input=docs.txt --output=scores.jsonl
    python -m launch.score --workdir=runs/ccdclm --input=stimuli.csv --no_context_too \\
        --output=surprisals.tsv
    python -m launch.score --workdir=runs/ccdclm --input=regions.csv --join_rows=item,condition \\
        --measures=surprisal,entropy --by=region,condition --plot=regions.png --output=means.tsv
    python -m launch.score --workdirs=runs/ccdclm,runs/rnnlm --split=valid --output=scores.tsv
    python -m launch.score --workdir=runs/ccdclm --context=story.txt --input=endings.txt
    python -m launch.score --workdir=runs/adclm --input=docs.txt --attention --output=docs.html
    python -m launch.score --workdir=runs/ccdclm --serve=-

The surprisal of a word is -log P(word | everything before it in its document), in nats. Every
sentence ends with <END>, which is predicted too. An OOV word has the surprisal of UNKNOWN and is
marked as OOV (known is 0).

tsv has one row per target (word or <END>). Columns: document, sentence and position (from 1), word,
surprisal, known (1 or 0), sentence_log_prob, document_log_prob, then columns of the input. A word
such as NA is written \\NA; dclm_jax.tables.cell_text removes the backslash. Cells of the input that
are empty or missing (NA, NaN, null, ...) are left empty. launch/recipes.md shows how to read the
file in R.

jsonl has one line per document, also for a document without words:
    {"id": "docs.txt:1", "unit": "nats", "matmul_precision": "highest", "log_prob": -31.4,
     "sentences": [
        {"log_prob": -20.9, "tokens": ["the", ...], "surprisals": [4.1, ...], "known": [true, ...]},
        ...]}

html is one file that needs no network. Words are coloured by surprisal, or with --no_context_too by
surprisal reduction. Hover over a word to see its values.

--workdirs scores with several runs of one vocabulary. In jsonl {"RUN": value, ...} replaces each
value; tsv has one column surprisal:RUN per run.

--context=FILE scores each line of --input as the next sentence after the text of FILE. The id of a
line is its number, from 1. Input may be larger than memory.

--serve=- answers requests, one JSON line each, as they arrive on standard input:
    {"id": "1a", "text": "The House agreed to it.", "context": "The President sent a message."}
"sentences", a list of tokenized sentences, may replace "text", and "context" is optional. The
answer is one line of jsonl on standard output, with the sentences of the text but not of the
context. The answer to a bad request is {"id": "1a", "error": ...}. The end of the input ends the
process.

--no_context_too adds surprisal_no_context (jsonl: "surprisals_no_context"), the surprisal of a word
given only the earlier words of its sentence. surprisal_no_context - surprisal is the surprisal
reduction due to context. The reduction is 0 in the first sentence of a document, and under a model
without context.

--measures adds measures of the distribution p of the next word, over all entries of the vocabulary:
    entropy            -sum p log p before the word is read (Pimentel et al. 2023)
    entropy_reduction  the entropy at the word minus the entropy at the next word or <END> (Hale
                       2006, for one next word); it may be negative, and <END> has none
    rank               1 + the number of entries more probable than the word; ties share a rank
    divergence         KL(p || q), where q is p without the earlier sentences: the information
                       that these sentences give about the word
In jsonl a sentence has a list of numbers under the NAME of each measure. --no_context_too adds
NAME_no_context of each measure except divergence. --bits writes all values except ranks in bits.
With --oov=blank OOV words have no surprisal, rank or entropy reduction, and sums omit OOV words.
N-gram models and rnnslm, which predicts bags of words, have only the surprisal.

Columns of the input table other than its text and id, and such keys of JSON lines, are repeated in
the result: at every word in tsv; in jsonl under "columns" of the document or, if they differ within
it, of its sentences. --columns chooses columns. --join_rows=item,condition makes one document of
consecutive rows with equal cells in these columns; each row is a region of its text. A word has the
cells of the row in which it begins. <END> has the cells that are equal in all rows of the document.

--by=region,condition writes one record per combination of region and condition (tsv or jsonl) in
place of words. A document's value is the mean over its words in the region, without <END>. The
record has the mean over documents, its 95% interval (bootstrap over documents), and the numbers of
documents and of words that have a surprisal. --plot draws the first of --measures.

--attention (adclm, pointer_drnnlm, rlm_seqbow_att_*) adds attention weights, in jsonl as
    "attention": {"positions": ["<START>", "the", ...], "weights": [[0.02, 0.4, ...], ...]}
with one row of weights per target (word or <END>); a row with positions sums to 1. For adclm, the
positions are <START> and the words of the previous sentence, or of the model.memory_sentences
previous sentences. For rlm_seqbow_att_*, each position is one of the n previous sentences. In the
first sentence of a document, adclm has the single position "c_0", and rlm_seqbow_att_* has no
position, so that its rows are empty. For pointer_drnnlm, the first position is "softmax", with the
share of the softmax, and the others are the last targets of earlier sentences, which can be copied.
Figures and HTML show the 30 positions with the largest weights.
"""

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence

from absl import flags

from dclm_jax.data.documents import Document, OnDocument
from dclm_jax.data.text_files import STDIN
from dclm_jax.errors import InputError
from dclm_jax.evaluation.distributions import (
    SURPRISAL,
    WORD_MEASURES,
    column_names,
    surprisal_columns,
)
from dclm_jax.experiments import figures, requests, score_files
from dclm_jax.experiments.region_means import RegionMeans
from dclm_jax.experiments.requests import Request
from dclm_jax.experiments.score_files import Attention
from dclm_jax.experiments.subjects import Subject, matmul_precision
from dclm_jax.files import open_output
from dclm_jax.score_types import BITS, NATS, DocumentScore
from launch import _app, _cluster, _evaluation

_evaluation.define_data_flags()
_evaluation.define_workdirs()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_cluster)
_CONTEXT = flags.DEFINE_string(
    "context", None, "File with one document, read before each line of --input; '-' for stdin."
)
_SERVE = flags.DEFINE_enum(
    "serve", None, [STDIN], "Answer JSON lines that arrive on standard input ('-')."
)
_OUTPUT = flags.DEFINE_string("output", "-", "File for the scores; '-' is standard output.")
_OUTPUT_FORMAT = flags.DEFINE_enum(
    "output_format",
    None,
    score_files.FORMATS,
    "Output format. Default: the ending of --output, otherwise jsonl.",
)
_OOV = flags.DEFINE_enum(
    "oov",
    "score",
    ("score", "blank"),
    "Surprisal of OOV words: the surprisal of UNKNOWN (score), or none (blank).",
)
_NO_CONTEXT = flags.DEFINE_bool(
    "no_context_too", False, "Score every sentence without context, too."
)
_ATTENTION = flags.DEFINE_bool(
    "attention", False, "Write the attention weights of every target, too (jsonl or html)."
)
_PLOT = flags.DEFINE_string(
    "plot",
    None,
    "Figure of the attention weights of one document, or of the means of --by (PNG, PDF or SVG).",
)
_MEASURES = flags.DEFINE_list(
    "measures", [SURPRISAL], f"Measures of every target: {', '.join(WORD_MEASURES)}."
)
_BITS = flags.DEFINE_bool("bits", False, "Write surprisals, measures and log P in bits, not nats.")
_COLUMNS = flags.DEFINE_list(
    "columns", None, "Columns of the input table to repeat. Default: all other columns."
)
_JOIN = flags.DEFINE_list(
    "join_rows", [], "Columns of the input table; rows with equal cells in them are one document."
)
_BY = flags.DEFINE_list(
    "by", [], "Columns whose equal cells make a region; write means of regions."
)
_CANDIDATES = 256


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    _check_flags()
    if _CONTEXT.value:
        _app.required("input", "PATH, a file, a folder or '-'")
    _evaluation.check_data_flags(other_text=bool(_CONTEXT.value or _SERVE.value))
    runs = _evaluation.restore_all()
    _check_runs(runs)
    if _SERVE.value:
        _serve(runs)
        return
    file_format = _OUTPUT_FORMAT.value or score_files.format_of(_OUTPUT.value)
    if _ATTENTION.value and file_format == "tsv":
        raise InputError(
            "--attention cannot be written as tsv; use --output_format=jsonl or html, or remove "
            "--attention"
        )
    if _BY.value and file_format == "html":
        raise InputError(
            "--by cannot be written as html; use --output_format=tsv or jsonl, or remove --by"
        )
    if _CONTEXT.value:
        columns, scores = [], _continuations(runs)
    else:
        # A document without words has a line, too, so that results can be joined with the text. An
        # autoencoder cannot read such a document.
        keep_empty = not any(run.lm.reads_source for run in runs)
        documents = _evaluation.read_words(
            runs, "launch.score", keep_empty=keep_empty, joined_by=_JOIN.value
        )
        columns, documents = score_files.carry(documents, _COLUMNS.value, _evaluation.notify)
        scores = _scores(runs, documents)
    if _PLOT.value and not _BY.value:
        scores = _plotted(runs[0], scores, _PLOT.value)
    labels = [run.label for run in runs]
    title = f"{', '.join(labels)}: {flags.FLAGS.input or flags.FLAGS.split}"
    if precision := matmul_precision(runs):
        title += f" ({precision})"
    layout = _layout(runs)._replace(title=title, columns=columns)
    with open_output(_OUTPUT.value) as file, _evaluation.Progress("scoring") as progress:
        scored = _with_attention(runs, scores, progress)
        if _BY.value:
            file.writelines(_means(scored, layout, file_format))
        else:
            file.writelines(score_files.lines(file_format, scored, layout))


def _layout(runs: Sequence[Subject]) -> score_files.Layout:
    """The layout of the scores of these runs, as the flags ask."""
    return score_files.Layout(
        labels=[run.label for run in runs],
        precisions=[run.lm.matmul_precision for run in runs],
        measures=[
            *surprisal_columns(no_context_too=_NO_CONTEXT.value),
            *column_names(_MEASURES.value, no_context_too=_NO_CONTEXT.value),
        ],
        unit=BITS if _BITS.value else NATS,
    )


def _means(
    scored: Iterable[tuple[list[DocumentScore], list[Attention]]],
    layout: score_files.Layout,
    file_format: str,
) -> list[str]:
    """The text of the means over regions, which --plot draws."""
    means = RegionMeans(_BY.value, layout.labels, layout.measures)
    means.require(layout.columns)
    for scores, _ in scored:
        means.add(scores)
    if _PLOT.value:
        figure = means.figure(_MEASURES.value[0], layout.unit)
        if figure.undrawn:
            raise InputError(
                f"--plot={_PLOT.value}: {figure.undrawn}; choose other columns by --by"
            )
        figures.plot(figure, _PLOT.value)
    return list(means.lines(file_format, layout.unit))


def _check_flags() -> None:
    """Refuses flags that other flags do not allow."""
    _app.refuse_together(
        *("serve", "input", "data", "split", "context", "output", "output_format", "plot"),
        *("by", "join_rows", "columns"),
    )
    _app.refuse_together("context", "measures", "by", "join_rows", "columns", "attention", "plot")
    _app.refuse_together("attention", "by")
    _app.refuse_without("input", "join_rows", "columns")


def _check_runs(runs: Sequence[Subject]) -> None:
    """Refuses flags that the models do not allow."""
    names = column_names(_MEASURES.value, no_context_too=_NO_CONTEXT.value)
    for run in runs if names else ():
        run.lm.require_distribution()
    if _NO_CONTEXT.value:
        command = f"launch.score --{_NO_CONTEXT.name}"
        _evaluation.require_language_models((run.lm for run in runs), command)
    for flag in (_ATTENTION, _PLOT):
        for run in runs if flag.value and not _BY.value else ():
            run.lm.attention([])
    if _PLOT.value:
        if len(runs) > 1 and not _BY.value:
            raise InputError(
                f"--plot draws one run, not {len(runs)}; use --workdir or remove --plot"
            )
        figures.check_target(_PLOT.value)


def _serve(runs: Sequence[Subject]) -> None:
    """Answers the requests on standard input."""
    options = _evaluation.text_options(*(run.lm.text.options for run in runs))
    answer = functools.partial(_answer, runs)
    with open_output(STDIN) as file:
        for line in requests.answers(sys.stdin.buffer, options, answer):
            print(line, end="", file=file, flush=True)


def _answer(runs: Sequence[Subject], request: Request) -> str:
    """The JSON line of a request's document, without the sentences of its context."""
    if request.num_context:
        models = (run.lm for run in runs)
        _evaluation.require_language_models(models, "launch.score --serve of a context")
    scores = _scores(runs, [request.document])
    ((by_run, attention),) = _with_attention(runs, scores, lambda done: None)
    by_run = [score.after(request.num_context) for score in by_run]
    attention = [weights[request.num_context :] for weights in attention]
    (line,) = score_files.lines("jsonl", [(by_run, attention)], _layout(runs))
    return line


def _with_attention(
    runs: Sequence[Subject], scores: Iterable[list[DocumentScore]], progress: OnDocument
) -> Iterator[tuple[list[DocumentScore], list[Attention]]]:
    """The scores of each document after --oov and --bits are applied, and with --attention its
    attention weights."""
    for number, by_run in enumerate(scores, start=1):
        attention = list(map(_attention, runs, by_run)) if _ATTENTION.value else []
        if _OOV.value == "blank":
            by_run = [score.without_oov() for score in by_run]
        if _BITS.value:
            by_run = [score.in_bits() for score in by_run]
        yield by_run, attention
        progress(number)


def _attention(run: Subject, score: DocumentScore) -> Attention:
    return run.lm.attention([sentence.tokens[:-1] for sentence in score.sentences])


def _plotted(
    run: Subject, scores: Iterator[list[DocumentScore]], path: str
) -> Iterator[list[DocumentScore]]:
    """Draws the attention weights of the only document, before its scores are written."""
    documents = list(itertools.islice(scores, 2))
    if len(documents) != 1:
        count = "several documents" if documents else "no document"
        raise InputError(
            f"--plot draws one document, but the text has {count}; choose another --input"
        )
    figures.plot_attention(_attention(run, documents[0][0]), path)
    return iter(documents)


def _scores(
    runs: Sequence[Subject], documents: Iterable[Document]
) -> Iterator[list[DocumentScore]]:
    """The scores of each document by every run."""
    # Documents that one run has read ahead are buffered for the others.
    ahead = itertools.tee(documents, len(runs))
    scores = (
        run.lm.score(stream, no_context_too=_NO_CONTEXT.value, measures=_MEASURES.value)
        for run, stream in zip(runs, ahead, strict=True)
    )
    return map(list, zip(*scores, strict=True))


def _continuations(runs: Sequence[Subject]) -> Iterator[list[DocumentScore]]:
    """Each line of --input after the text of --context."""
    context, path, models = _CONTEXT.value or "", flags.FLAGS.input, [run.lm for run in runs]
    if context == path == STDIN:
        raise InputError(
            "--context and --input are both standard input; read --context or --input from a file"
        )
    texts = list(itertools.islice(_evaluation.read_text(models, context), 2))
    if len(texts) != 1:
        raise InputError(f"--context={context} has several documents; choose one document")
    _evaluation.require_language_models(models, "launch.score --context")
    candidates = _evaluation.counting_unknown(
        _evaluation.text_reader(models).candidates(path),
        lambda words: [models[0].vocabulary.encode(words)],
        models[0].text,
        path,
    )
    states = [lm.read(texts[0]) for lm in models]
    numbers = map(str, itertools.count(1))
    while window := list(itertools.islice(candidates, _CANDIDATES)):
        scores = [state.score(window, no_context_too=_NO_CONTEXT.value) for state in states]
        for *by_run, number in zip(*scores, numbers, strict=False):
            yield [DocumentScore.of(number, [score]) for score in by_run]


if __name__ == "__main__":
    _app.run(main)
