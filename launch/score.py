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
divergences over the words, and the other measures of the first word. <END> is not counted, and
surprisal_other_context_sd is omitted, because the standard deviation of a sum does not follow from
the standard deviations of words.

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

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from dclm_jax.data.corpus import SPLITS
from dclm_jax.data.joined_rows import noted_rows
from dclm_jax.errors import InputError
from dclm_jax.files import STDOUT, Count, open_output
from dclm_jax.language_model import LanguageModel
from dclm_jax.report import page
from dclm_jax.scoring import score_files
from dclm_jax.scoring.distributions import SURPRISAL, score_columns
from dclm_jax.scoring.other_contexts import OtherContexts
from dclm_jax.scoring.score_types import DocumentScore

from . import _app
from ._cluster import JobOptions
from ._evaluation import BatchOptions, DataOptions, ProgressBar, RunOptions

Format = Literal["jsonl", "tsv", "html"]
_FORMATS = get_args(Format)


@dataclasses.dataclass(frozen=True)
class Options(JobOptions, BatchOptions, DataOptions, RunOptions):
    """Options of `score`.

    Attributes:
      output: JSON lines, TSV or HTML file for the scores; '-' is standard output.
      output_format: format of --output. Default: the extension of --output, otherwise jsonl.
      no_context_too: score every sentence with no context, too.
      other_contexts: number of other documents in whose contexts every sentence is scored, too; 0
        for none.
      contexts_from: text of the documents that give other contexts: a file or a folder, or train,
        valid or test, a split of the prepared corpus. Default: the scored documents.
      item: column of the input table; rows with equal cells in it, such as the conditions of an
        item, give one another no other context.
      seed: random seed for the choice of other documents.
      measures: measures of every target: surprisal, entropy, entropy_reduction, rank, divergence.
      by: columns of the input whose cells define groups.
      unit: unit of log-probabilities and measures, other than ranks, in TSV and jsonl.
      join_rows: columns of the input table; rows with equal cells in them are one document.
    """

    output: str = STDOUT
    output_format: Format | None = None
    no_context_too: bool = False
    other_contexts: Count = 0
    contexts_from: str | None = None
    item: str = ""
    seed: Count = 0
    measures: Sequence[str] = (SURPRISAL,)
    by: Sequence[str] = ()
    unit: Literal["nats", "bits"] = "nats"
    join_rows: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_without("input", "join_rows", "by")
        self.refuse_without("other_contexts", "contexts_from", "item", "seed")
        file_format = self.file_format
        if self.by and file_format != "tsv":
            raise InputError(
                f"--by has no effect on {file_format}; add --output_format=tsv, or remove --by"
            )
        if self.unit != "nats" and file_format == "html":
            raise InputError(
                "--unit has no effect on html; add --output_format=tsv, or remove --unit"
            )

    @property
    def reads_split(self) -> bool:
        return self.contexts_from in SPLITS

    @property
    def file_format(self) -> str:
        """The format of --output: JSON lines for other extensions."""
        if self.output_format:
            return self.output_format
        self.require_ending("output", *(f".{name}" for name in _FORMATS))
        extension = pathlib.PurePath(self.output).suffix.removeprefix(".")
        return extension if extension in _FORMATS else _FORMATS[0]

    def contexts(self, lm: LanguageModel) -> OtherContexts | None:
        """The contexts of other documents, if they are asked for."""
        if not self.other_contexts:
            return None
        source, documents = self.contexts_from, None
        if source in SPLITS:
            documents = self.of_split([lm], source)
        elif source == STDOUT:
            raise InputError(
                "--contexts_from=- is not supported; choose a file, a folder or a split"
            )
        elif source is not None:
            read = self.reader([lm], self.join_rows).documents(source)
            documents = list(noted_rows(read, self.join_rows))
        return OtherContexts(self.other_contexts, documents, self.item, self.seed)


def score(options: Options) -> None:
    """Scores documents, and writes the scores."""
    options.join()
    no_context = options.no_context_too
    has_others = options.other_contexts > 0
    names = score_columns(options.measures, no_context_too=no_context, other_contexts=has_others)
    lm = options.restore(LanguageModel)
    # A document without words has a line, too, so that results can be joined with the text. An
    # autoencoder cannot read such a document.
    documents = options.words(lm, keep_empty=not lm.reads_source, joined_by=options.join_rows)
    documents = noted_rows(documents, options.join_rows)
    contexts = options.contexts(lm)
    layout = score_files.Layout(names, lm.facts.matmul_precision, options.unit)
    scored = lm.score(
        documents,
        other_contexts=contexts,
        no_context_too=no_context,
        measures=options.measures,
    )
    with open_output(options.output) as file, ProgressBar("scoring") as progress:
        scores = score_files.noted_oov(
            progress.counting(scored), options.by, has_pieces=lm.vocabulary.has_pieces
        )
        if options.unit == "bits":
            scores = score_files.in_bits(scores)
        if options.by:
            file.writelines(score_files.group_lines(scores, layout, options.by))
        elif options.file_format == "tsv":
            file.writelines(score_files.tsv_lines(scores, layout))
        elif options.file_format == "jsonl":
            file.writelines(score_files.json_lines(scores, layout))
        else:
            title = f"{lm.facts.name}: {options.input or options.split}"
            file.writelines(_page(scores, layout, title))


def _page(scores: Iterable[DocumentScore], layout: score_files.Layout, title: str) -> Iterator[str]:
    """The text of an HTML file in parts."""
    if layout.matmul_precision:
        title += f" (matmul precision: {layout.matmul_precision})"
    yield page.head(title, layout.measures)
    for score in scores:
        yield page.document([""], [score])
    yield page.foot()


if __name__ == "__main__":
    _app.run(score, Options)
