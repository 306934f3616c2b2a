"""HTML files that need no network: a report, and documents whose words are coloured.

The templates are in the folder `templates`. They escape every text. No number is shown only by a
colour: the numbers of a word are in its title and below the word.
"""

import base64
import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dclm_jax.data.datasets import Dataset
from dclm_jax.data.documents import Document
from dclm_jax.data.encoding import Encoded
from dclm_jax.errors import importing, printable
from dclm_jax.evaluation.target_sums import GROUPINGS
from dclm_jax.language_model import LanguageModel
from dclm_jax.report import figures
from dclm_jax.report.figures import Figure
from dclm_jax.report.rows import Row, option_text
from dclm_jax.report.tables import counted, runs_table
from dclm_jax.scoring.distributions import NO_CONTEXT, OTHER_COLUMNS
from dclm_jax.scoring.other_contexts import OtherContexts, has_others
from dclm_jax.scoring.perplexity import COUNTING_RULES
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore, common_columns
from dclm_jax.tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment


DOCUMENTS, SENTENCES, CONFIGURATIONS = 3, 8, 5
"""Maximum numbers of the examples in a report."""


@functools.cache
def environment() -> "Environment":
    """The templates by name. They escape every value, and show a text as one printable line."""
    with importing("HTML", "plots"):
        import jinja2
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__ or ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Markup that a template has made is not text.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


def _source(name: str) -> str:
    """The text of a file in the folder of the templates, such as page.css."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def report(
    rows: Sequence[Row],
    verdicts: Sequence[str],
    tables: Mapping[str, Table],
    plots: Mapping[str, Figure],
    documents: Sequence[Sequence[DocumentScore]],
    provenance: Mapping[str, Any],
) -> str:
    """A report as one file that needs no network and has no script.

    Args:
      rows: the results.
      verdicts: the results in words.
      tables, plots: tables and figures by name, from `tables.tables` and `figures.of_rows`; the
        report names missing tables and figures.
      documents: result of `example_scores`.
      provenance: facts on the origin of the numbers, by name.
    """
    differing, common = _compared({row.label: row.config for row in rows})
    num_runs = sum(len(row.runs) for row in rows)
    labels = [row.label for row in example_rows(rows)]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            subject=f"{counted(len(rows), 'configuration')}, {counted(num_runs, 'run')}",
            verdicts=verdicts,
            tables=tables,
            figures=plots,
            groupings=[grouping.name for grouping in GROUPINGS],
            documents=[document(labels, scores, level=3) for scores in documents],
            differing=differing,
            common=common,
            counting=COUNTING_RULES[rows[0].facts.objective],
            runs=runs_table(rows),
            provenance=provenance,
            style=_source("page.css"),
            limits={
                "documents": DOCUMENTS,
                "sentences": SENTENCES,
                "configurations": CONFIGURATIONS,
            },
            scale=SAVED,
            png=lambda figure: base64.b64encode(figures.content(figure)).decode(),
        )
    )


def example_rows(rows: Sequence[Row]) -> Sequence[Row]:
    """The first CONFIGURATIONS rows of models with context, without which no surprisal is reduced;
    of all models if none has context."""
    return ([row for row in rows if row.facts.has_context] or rows)[:CONFIGURATIONS]


def example_scores(
    rows: Sequence[Row],
    models: Sequence[LanguageModel],
    documents: Sequence[Encoded],
) -> list[list[DocumentScore]]:
    """The first SENTENCES sentences of the first DOCUMENTS documents with two or more sentences,
    scored by the first run of each row of `example_rows`, with their own context, with the contexts
    of other documents, if there are any, and with no context.

    Args:
      rows: the rows of the report.
      models: the models of the runs.
      documents: documents of the test set.
    """
    by_workdir = {lm.facts.workdir: lm for lm in models}
    lms = [by_workdir[row.facts.workdir] for row in example_rows(rows)]
    pool = Dataset(lambda: documents, len(documents), {"input": "test documents"})
    has_pool = has_others([document.sentences for document in documents])
    others = OtherContexts(documents=pool) if has_pool else None
    eligible = (document for document in documents if len(document.sentences) > 1)
    examples = []
    for encoded in itertools.islice(eligible, DOCUMENTS):
        name, sentences = encoded.id, encoded.sentences
        if (count := len(sentences)) > SENTENCES:
            name += f", the first {SENTENCES} of {count} sentences"
        words = [lms[0].vocabulary.decode(ids.tolist()) for ids in sentences[:SENTENCES]]
        document = Document(name, words)
        examples.append(
            [next(lm.score([document], other_contexts=others, no_context_too=True)) for lm in lms]
        )
    return examples


def _compared(
    configs: Mapping[str, Mapping[str, Any]],
) -> tuple[list[list[str]], list[list[str]]]:
    """Tables of configurations by their labels: options that differ, and common options."""
    first, *_ = configs.values()
    keys = dict.fromkeys(key for config in configs.values() for key in config)
    differing, common = [["option", *configs]], [["option", "value"]]
    for key in keys:
        texts = [option_text(key, c[key]) if key in c else "–" for c in configs.values()]
        if all(key in config and config[key] == first.get(key) for config in configs.values()):
            common.append([key, texts[0]])
        else:
            differing.append([key, *texts])
    return differing, common


class Scale(NamedTuple):
    """Classes of numbers by their bounds in nats; page.css has the colours of both themes."""

    name: str
    bounds: Sequence[float]

    def of(self, nats: float) -> str:
        """The CSS class of a number."""
        return f"{self.name}{np.searchsorted(self.bounds, nats, side='right')}"

    def legend(self) -> list[str]:
        """The numbers of every class."""
        ends = [f"{bound:g}".replace("-", "−") for bound in self.bounds]
        middle = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
        return [f"below {ends[0]}", *middle, f"{ends[-1]} or more"]


SURPRISAL = Scale("s", (1, 2, 4, 6, 8, 10))
SAVED = Scale("d", (-2, -1, -0.25, 0.25, 1, 2))


class Reference(NamedTuple):
    """Surprisals with which the surprisals in the document are compared.

    Attributes:
      measure: name of the surprisals.
      name: the context of these surprisals, for titles.
      difference: name of these surprisals minus the surprisals in the document.
      colour: meaning of the colours.
    """

    measure: str
    name: str
    difference: str
    colour: str


REFERENCES = (
    Reference(
        OTHER_COLUMNS[0],
        "contexts of other documents",
        "effect of this context",
        "effect of this context, in nats: the mean surprisal of the word with the contexts of "
        "other documents minus its surprisal in its document",
    ),
    Reference(
        f"surprisal{NO_CONTEXT}",
        "no context",
        "surprisal reduction",
        "surprisal reduction against no context, in nats: the surprisal of the word with no "
        "context minus its surprisal in its document; any context may reduce it",
    ),
)
"""Words are coloured by the first of these references whose surprisals are known."""


def references_in(measures: Collection[str]) -> list[Reference]:
    """The references whose surprisals are among the measures."""
    return [reference for reference in REFERENCES if reference.measure in measures]


class Word(NamedTuple):
    """A target (word or END) with its CSS classes, its title and the numbers below it."""

    text: str
    classes: str
    title: str
    numbers: list[str]


def _words(score: SentenceScore, columns: Mapping[str, Sequence[str | None]]) -> list[Word]:
    """The targets of a sentence, coloured by the first of `references_in`, else by surprisal. The
    surprisal and, if it exists, the difference are below the word.

    Args:
      score: score of the sentence.
      columns: cells of every target by column, for its title.
    """
    references, tokens = references_in(score.measures), []
    rows = zip(score.tokens, score.log_probs, score.known, strict=True)
    for index, (token, log_prob, known) in enumerate(rows):
        if math.isnan(log_prob):
            tokens.append(Word(token, "unknown", "marked as OOV by the text; not predicted", []))
            continue
        classes, numbers = SURPRISAL.of(-log_prob), [f"{-log_prob:.1f}"]
        title = f"{-log_prob:.2f} nats"
        for reference in references:
            title += f", {reference.name} {score.measures[reference.measure][index]:.2f}"
        for reference in references[:1]:
            saved = log_prob + score.measures[reference.measure][index]
            classes = SAVED.of(saved)
            numbers.append(f"{round(saved, 1) + 0.0:+.1f}".replace("-", "−"))
            title += f"; {_difference(reference, saved)} nats"
        for name, values in score.measures.items():
            # END has no entropy reduction.
            if not name.startswith("surprisal") and not math.isnan(values[index]):
                title += f"; {name.replace('_', ' ')} {values[index]:.4g}"
        for name, cells in columns.items():
            title += f"; {name} {cells[index]}" if cells[index] else ""
        if not known:
            classes, title = f"{classes} unknown", f"{title}; not in the vocabulary"
        tokens.append(Word(token, classes, title, numbers))
    return tokens


def _difference(reference: Reference, nats: float) -> str:
    """A difference as text; negative if the document's context increases the surprisal."""
    return f"{reference.difference} {round(nats, 2) + 0.0:.2f}".replace("-", "−")


def head(title: str, measures: Collection[str]) -> str:
    """The beginning of a page of coloured documents, before each `document` and `foot`.

    Args:
      title: title as plain text.
      measures: names of the measures of every target.
    """
    colour = "surprisal in nats, −log P(word | all words before it in the document)"
    for reference in references_in(measures)[:1]:
        colour = reference.colour
    scale = SAVED if references_in(measures) else SURPRISAL
    return _document_parts().head(title, _source("page.css"), colour, scale)


def document(labels: Sequence[str], scores: Sequence[DocumentScore], *, level: int = 2) -> str:
    """A document as scored by several runs, sentence by sentence.

    Args:
      labels: labels of the runs; a single label is not shown.
      scores: scores of the document by run.
      level: level of the heading.
    """
    common, varying = common_columns(scores[0])
    names = labels if len(labels) > 1 else [""]
    sentences = []
    for number in range(len(scores[0].sentences)):
        cells = {name: scores[0].columns[name][number] for name in varying}
        readings = [
            (label, _words(score.sentences[number], cells))
            for label, score in zip(names, scores, strict=True)
        ]
        sentences.append(readings)
    sums = [(label, _mean(score)) for label, score in zip(names, scores, strict=True)]
    heading = ", ".join([scores[0].id, *(f"{name} {cell}" for name, cell in common.items())])
    return _document_parts().document(heading, sums, sentences, level)


def foot() -> str:
    """The end of a page."""
    return _document_parts().foot()


def _document_parts() -> Any:
    return environment().get_template("parts.html.j2").module


def _mean(score: DocumentScore) -> str:
    """The means per target."""

    def mean(name: str) -> float:
        values = [value for sentence in score.sentences for value in sentence.measures[name]]
        return float(np.nanmean(values))

    surprisals = [value for sentence in score.sentences for value in sentence.log_probs]
    num_targets = np.count_nonzero(~np.isnan(surprisals))
    if not num_targets:
        return "no words"
    text = f"{num_targets:,} targets, {mean('surprisal'):.2f} nats per target"
    references = references_in(next(iter(score.sentences)).measures)
    for reference in references:
        text += f", {reference.name} {mean(reference.measure):.2f}"
    for reference in references[:1]:
        saved = mean(reference.measure) - mean("surprisal")
        text += f"; {_difference(reference, saved)} nats per target"
    return text
