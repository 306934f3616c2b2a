"""Writes the surprisal of every word, and the log-probability of every sentence and document.

    python -m launch.score --workdir=runs/ccdclm --input=docs.txt --output=scores.jsonl
    python -m launch.score --workdir=runs/ccdclm --input=stimuli.csv --other_contexts=10 \\
        --output=surprisals.tsv
    python -m launch.score --workdir=runs/ccdclm --input=regions.csv --join_rows=item,condition \\
        --measures=surprisal,entropy --output=words.tsv
    python -m launch.score --workdir=runs/ccdclm --split=valid --output=scores.html

The surprisal of a word is -log P(word | everything before it in its document), in nats, or in bits
with --unit=bits. Every sentence ends with <END>, which is predicted too. With a vocabulary of
subwords the surprisal is the sum over the pieces of the word, and no word is OOV; only the text's
own spelling of OOV words, such as <unk>, is read and not predicted: its values are empty, and known
is 0. With a vocabulary of words an OOV word has the surprisal of UNKNOWN and is marked as OOV
(known is 0). Notes list the most frequent OOV words, and count the documents of a table with and
without OOV words. Input may be larger than memory.

tsv has one row per target (word or <END>). Columns: document, sentence and position (from 1), word,
surprisal, known (1 or 0), sentence_log_prob, document_log_prob, then columns of the input. A word
such as NA is written \\NA; dclm_jax.tables.unescaped_cell removes the backslash. Cells of the input
that are empty or missing (NA, NaN, null, ...) are left empty. launch/recipes.md shows how to read
the file in R, and how to join the files of two runs. With --by=region, tsv has one row per document
and region: document, region, words, oov (the number of OOV words), the sums of surprisals and
divergences over the words, and the other measures of the first word; <END> is not counted.

jsonl has one line per document, also for a document without words:
    {"id": "docs.txt:1", "unit": "nats", "matmul_precision": "highest", "log_prob": -31.4,
     "sentences": [
        {"log_prob": -20.9, "tokens": ["the", ...], "surprisals": [4.1, ...], "known": [true, ...]},
        ...]}

html is one file that needs no network. Words are coloured by surprisal, with --other_contexts by
the effect of this context, or with --no_context_too by the surprisal reduction against no context.
Hover over a word to see its values.

--other_contexts=N scores every sentence also with the contexts of N other documents of the input,
or of --contexts_from, each with the number of sentences of its own context. It adds
surprisal_other_context, the mean over these contexts, and surprisal_other_context_sd, their
standard deviation (jsonl: "surprisals_other_context", "surprisals_other_context_sd").
surprisal_other_context - surprisal is the effect of this context on the word. A document with the
same first sentence gives no other context, and with --item=COLUMN a document with the same cell in
this column gives none. Documents that differ only in the first sentence, such as conditions, get
equal contexts, up to these exceptions. The effect is 0 in the first sentence of a document, and
under a model without context. All documents are in memory.

--no_context_too adds surprisal_no_context (jsonl: "surprisals_no_context"), the surprisal of a word
given only the earlier words of its sentence. surprisal_no_context - surprisal is the surprisal
reduction against no context. Any context may reduce surprisal: it shows that the sentence is not
the first of a document, and the kind of text.

--measures adds measures of the distribution p of the next word over all entries of the vocabulary.
With a vocabulary of subwords, p is the distribution of the word's first piece (or END) over all
pieces:
    entropy            -sum p log p before the word is read (Pimentel et al. 2023)
    entropy_reduction  the entropy at the word minus the entropy at the next word or <END> (Hale
                       2006, for one next word); it may be negative, and <END> has none
    rank               1 + the number of entries more probable than the word; ties share a rank
    divergence         KL(p || q), where q is p without the earlier sentences: the information
                       that these sentences give about the word
In jsonl a sentence has a list of numbers under the NAME of each measure. --no_context_too adds
NAME_no_context of each measure except divergence. N-gram models and rnnslm, which predicts bags of
words, have only the surprisal.

Columns of the input table other than its text and id, and such keys of JSON lines, are repeated in
the result: at every word in tsv; in jsonl under "columns" of the document or, if they differ within
it, of its sentences. --join_rows=item,condition makes one document of consecutive rows with equal
cells in these columns; each row is a region of its text. A word has the cells of the row in which
it begins. <END> has the cells that are equal in all rows of the document. A note counts the joined
rows. A warning names a column whose values come back or repeat within a document, as the names of
regions do if the condition is missing from --join_rows.
"""

import pathlib
from collections.abc import Iterable, Iterator, Sequence

from absl import flags

from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.joined_rows import noted_rows
from dclm_jax.errors import InputError
from dclm_jax.files import STDOUT, open_output
from dclm_jax.language_model import LanguageModel
from dclm_jax.report import page
from dclm_jax.scoring import score_files
from dclm_jax.scoring.distributions import (
    SURPRISAL,
    WORD_MEASURES,
    measure_columns,
    surprisal_columns,
)
from dclm_jax.scoring.other_contexts import OtherContexts
from dclm_jax.scoring.score_types import DocumentScore

from . import _app, _cluster, _evaluation

_evaluation.define_data_flags()
flags.adopt_module_key_flags(_evaluation)
flags.adopt_module_key_flags(_cluster)
_FORMATS = ("jsonl", "tsv", "html")
_OUTPUT = flags.DEFINE_string(
    "output", "-", "JSON lines, TSV or HTML file for the scores; '-' is standard output."
)
_OUTPUT_FORMAT = flags.DEFINE_enum(
    "output_format",
    None,
    _FORMATS,
    "Format of --output. Default: the extension of --output, otherwise jsonl.",
)
_NO_CONTEXT = flags.DEFINE_bool(
    "no_context_too", False, "Score every sentence with no context, too."
)
_OTHER_CONTEXTS = flags.DEFINE_integer(
    "other_contexts",
    0,
    "Number of other documents in whose contexts every sentence is scored, too; 0 for none.",
    lower_bound=0,
)
_CONTEXTS_FROM = flags.DEFINE_string(
    "contexts_from",
    None,
    "Text of the documents that give other contexts: a file or a folder, or train, valid or test, "
    "a split of the prepared corpus. Default: the scored documents.",
)
_ITEM = flags.DEFINE_string(
    "item",
    "",
    "Column of the input table; rows with equal cells in it, such as the conditions of an item, "
    "give one another no other context.",
)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Random seed for the choice of other documents.", lower_bound=0
)
_MEASURES = flags.DEFINE_list(
    "measures", [SURPRISAL], f"Measures of every target: {', '.join(WORD_MEASURES)}."
)
_BY = flags.DEFINE_list(
    "by",
    [],
    "Columns of the input whose cells define groups.",
)
_UNIT = flags.DEFINE_enum(
    "unit",
    "nats",
    ["nats", "bits"],
    "Unit of log-probabilities and measures, other than ranks, in TSV and jsonl.",
)
_JOIN = flags.DEFINE_list(
    "join_rows", [], "Columns of the input table; rows with equal cells in them are one document."
)


def main(argv: Sequence[str]) -> None:
    del argv
    _cluster.join()
    _app.refuse_without("input", "join_rows", "by")
    if not _OTHER_CONTEXTS.value:
        _app.refuse_without("other_contexts", "contexts_from", "item", "seed")
    _evaluation.check_data_flags(other_split=_CONTEXTS_FROM.value in SPLITS)
    file_format = _OUTPUT_FORMAT.value or _format_of(_OUTPUT.value)
    if _BY.value and file_format != "tsv":
        raise InputError(
            f"--by has no effect on {file_format}; add --output_format=tsv, or remove --by"
        )
    if _UNIT.value != "nats" and file_format == "html":
        raise InputError("--unit has no effect on html; add --output_format=tsv, or remove --unit")
    others = measure_columns(_MEASURES.value, no_context_too=_NO_CONTEXT.value)
    lm = _evaluation.restore(LanguageModel)
    # A document without words has a line, too, so that results can be joined with the text. An
    # autoencoder cannot read such a document.
    documents = _evaluation.read_words(lm, keep_empty=not lm.reads_source, joined_by=_JOIN.value)
    documents = noted_rows(documents, _JOIN.value)
    contexts = _other_contexts(lm)
    surprisals = surprisal_columns(
        no_context_too=_NO_CONTEXT.value, other_contexts=contexts is not None
    )
    layout = score_files.Layout([*surprisals, *others], lm.facts.matmul_precision, _UNIT.value)
    scored = lm.score(
        documents,
        other_contexts=contexts,
        no_context_too=_NO_CONTEXT.value,
        measures=_MEASURES.value,
    )
    with open_output(_OUTPUT.value) as file, _evaluation.ProgressBar("scoring") as progress:
        scores = score_files.noted_oov(
            progress.counting(scored), _BY.value, has_pieces=lm.vocabulary.has_pieces
        )
        if _UNIT.value == "bits":
            scores = score_files.in_bits(scores)
        if _BY.value:
            file.writelines(score_files.group_lines(scores, layout, _BY.value))
        elif file_format == "tsv":
            file.writelines(score_files.tsv_lines(scores, layout))
        elif file_format == "jsonl":
            file.writelines(score_files.json_lines(scores, layout))
        else:
            title = f"{lm.facts.name}: {flags.FLAGS.input or flags.FLAGS.split}"
            file.writelines(_page(scores, layout, title))


def _other_contexts(lm: LanguageModel) -> OtherContexts | None:
    """The contexts of other documents that the flags ask for."""
    if not _OTHER_CONTEXTS.value:
        return None
    source, documents = _CONTEXTS_FROM.value, None
    if source in SPLITS:
        documents = _evaluation.open_split([lm], source)
    elif source == STDOUT:
        raise InputError("--contexts_from=- is not supported; choose a file, a folder or a split")
    elif source is not None:
        reader = _evaluation.text_reader([lm], _JOIN.value)
        documents = list(noted_rows(reader.documents(source), _JOIN.value))
    return OtherContexts(_OTHER_CONTEXTS.value, documents, _ITEM.value, _SEED.value)


def _format_of(path: str) -> str:
    """The format of the extension of a path; JSON lines for other extensions."""
    _app.check_ending("output", *(f".{name}" for name in _FORMATS))
    extension = pathlib.PurePath(path).suffix.removeprefix(".")
    return extension if extension in _FORMATS else _FORMATS[0]


def _page(scores: Iterable[DocumentScore], layout: score_files.Layout, title: str) -> Iterator[str]:
    """The text of an HTML file in parts."""
    if layout.matmul_precision:
        title += f" (matmul precision: {layout.matmul_precision})"
    yield page.head(title, layout.measures)
    for score in scores:
        yield page.document([""], [score])
    yield page.foot()


if __name__ == "__main__":
    _app.run(main)
