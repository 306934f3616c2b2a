"""HTML files that need no network: a report, and documents whose words are coloured.

The templates are in the folder `templates`. They escape every text. No number is shown only by a
colour: the numbers of a word are in its title and below the word.
"""

import base64
import functools
import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dclm_jax.errors import importing, printable
from dclm_jax.experiments import examples, figures
from dclm_jax.experiments.comparison import option_text
from dclm_jax.experiments.examples import Example
from dclm_jax.experiments.figures import Figure
from dclm_jax.score_types import (
    NATS,
    SHOWN_POSITIONS,
    DocumentScore,
    SentenceAttention,
    SentenceScore,
    common_columns,
    is_rank,
)
from dclm_jax.tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment

# One-sided p-values below which a row is marked; for a worse row 1 - p is compared.
_LEVELS = (0.05, 0.01, 0.001)


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


class Report(NamedTuple):
    """The content of a report.

    Attributes:
      title, subject: title and subtitle of the report.
      configs: configurations by the labels of rows, with keys such as "a.b".
      tables, figures: tables and figures by name, from `tables.tables` and `figures.of_rows`; the
        report names missing tables and figures.
      examples: result of `examples.read`.
      counting: the counting rule of targets, as a sentence.
      runs: table of all runs.
      provenance: commands, or facts by name, that produced the numbers, by title.
    """

    title: str
    subject: str
    configs: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    examples: Sequence[Example]
    counting: str
    runs: Table
    provenance: Mapping[str, Sequence[str] | Mapping[str, Any]]


def report(content: Report) -> str:
    """A report as one file that needs no network. Without its script it shows all content."""
    script = _source("report.js")
    # Only this script runs and nothing is fetched, whatever a text contains.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    differing, common = _compared(content.configs)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=content,
            differing=differing,
            common=common,
            policy=policy,
            style=_source("page.css"),
            script=script,
            looks=figures.looks_of(content.figures.values()),
            limits=examples,
            nats=_nats,
            significance=significance,
            svg=figures.svg,
            tokens=words,
            attention_name=attention_name,
            unshown=unshown,
            weights=weights,
        )
    )


def significance(column: str, cell: str) -> str:
    """The mark of significance of a cell in a column of p-values; empty without significance."""
    if not cell or not (column == "p" or column.startswith("p, ")):
        return ""
    p = float(cell.removeprefix("< "))
    better, worse = ("▲" * sum(q < level for level in _LEVELS) for q in (p, 1 - p))
    return better or worse.replace("▲", "▼")


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


def _nats(sentence: SentenceScore) -> str:
    """Nats of a sentence, and their change due to earlier sentences."""
    no_context = sentence.log_probs_no_context or sentence.log_probs
    saved = sum(sentence.log_probs) - sum(no_context)
    change = (
        f", {abs(saved):.1f} {'less' if saved > 0 else 'more'} than without context"
        if saved
        else ""
    )
    return f"{-sum(sentence.log_probs):.1f} nats{change}"


def unshown(attention: SentenceAttention) -> str:
    """The reason why weights are not shown as a table; empty if they are shown."""
    positions = attention.positions
    if len(positions) > 1:
        return ""
    return f"{positions[0]} is the only position" if positions else "there is no earlier sentence"


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


class Word(NamedTuple):
    """A target (word or END) with its CSS classes, its title and the numbers below it."""

    text: str
    classes: str
    title: str
    numbers: list[str]


def words(
    score: SentenceScore,
    *,
    changes: bool = False,
    columns: Mapping[str, Sequence[str | None]] = MappingProxyType({}),
    unit: str = NATS,
) -> list[Word]:
    """The targets of a sentence, coloured by surprisal reduction if scores without context exist,
    else by surprisal. The number is below the word.

    Args:
      score: score of the sentence, in `unit`.
      changes: whether to show the surprisal below each word and, if the context changes any
        surprisal of the sentence, the change below the surprisal.
      columns: cells of every target by column, for its title.
      unit: unit of the score.
    """
    no_context = score.log_probs_no_context
    is_changed = no_context is not None and not np.array_equal(
        no_context, score.log_probs, equal_nan=True
    )
    no_context = no_context or [None] * len(score.tokens)
    tokens = []
    rows = zip(score.tokens, score.log_probs, no_context, score.known, strict=True)
    for index, (token, log_prob, log_prob_no_context, known) in enumerate(rows):
        classes, numbers, title = "unscored", ["–"], "not scored"
        if not math.isnan(log_prob):
            classes, numbers = SURPRISAL.of(-log_prob), [f"{-log_prob:.1f}"]
            title = f"{-log_prob:.2f} {unit}"
            if log_prob_no_context is not None:
                saved = log_prob - log_prob_no_context
                classes = SAVED.of(saved)
                title += f", no context {-log_prob_no_context:.2f}; {_reduction(saved)} {unit}"
                if not changes:
                    numbers = [_signed(saved)]
                elif is_changed:
                    numbers.append(_signed(-saved))
        for name, values in score.measures.items():
            if not name.startswith("surprisal"):
                title += f"; {name.replace('_', ' ')} {_measure(name, values[index], unit)}"
        for name, cells in columns.items():
            title += f"; {name} {cells[index]}" if cells[index] else ""
        if not known:
            classes, title = f"{classes} unknown", f"{title}; not in the vocabulary"
        tokens.append(Word(token, classes, title, numbers))
    return tokens


def _signed(nats: float) -> str:
    return f"{round(nats, 1) + 0.0:+.1f}".replace("-", "−")


def _reduction(nats: float) -> str:
    """The surprisal reduction as text; negative if the context increases the surprisal."""
    return f"surprisal reduction {round(nats, 2) + 0.0:.2f}".replace("-", "−")


def _measure(name: str, value: float, unit: str) -> str:
    """A measure of a target with its unit, which a rank does not have."""
    if math.isnan(value):
        return "–"
    return f"{value:.4g}" if is_rank(name) else f"{value:.4g} {unit}"


class Weight(NamedTuple):
    """An attention weight in percent, and its ratio to the largest weight in the table."""

    percent: str
    share: float


def weights(attended: SentenceAttention) -> list[list[str | Weight]]:
    """The cells of a table with targets as columns, and one row per position (two or more, at most
    SHOWN_POSITIONS)."""
    targets, positions, weights_TxM = attended.largest()
    largest = float(weights_TxM.max())
    rows = zip(positions, weights_TxM.T.tolist(), strict=True)
    return [
        ["", *targets],
        *([name, *(Weight(f"{100 * w:.0f}", w / largest) for w in row)] for name, row in rows),
    ]


def head(title: str, *, compared: bool, unit: str = NATS) -> str:
    """The beginning of a page of coloured documents, before each `document` and `foot`. The arrow
    keys step from word to word.

    Args:
      title: title as plain text.
      compared: whether the scores include scores without context.
      unit: unit of the scores.
    """
    colour = f"surprisal in {unit}, −log P(word | all words before it in the document)"
    if compared:
        colour = (
            f"surprisal reduction due to context, in {unit}: the surprisal of the word without "
            "context minus its surprisal in the document"
        )
    scale = SAVED if compared else SURPRISAL
    return _document_parts().head(title, _source("page.css"), colour, scale)


def document(
    labels: Sequence[str],
    scores: Sequence[DocumentScore],
    attended: Sequence[Sequence[SentenceAttention]] = (),
    *,
    unit: str = NATS,
) -> str:
    """A document as scored by several runs, sentence by sentence.

    Args:
      labels: labels of the runs; a single label is not shown.
      scores: scores of the document by run.
      attended: attention weights by run, if they are shown; sentences with fewer than two positions
        show none.
      unit: unit of the scores.
    """
    common, varying = common_columns(scores[0])
    names = labels if len(labels) > 1 else [""]
    sentences = []
    for number in range(len(scores[0].sentences)):
        cells = {name: scores[0].columns[name][number] for name in varying}
        readings = [
            (label, words(score.sentences[number], columns=cells, unit=unit))
            for label, score in zip(names, scores, strict=True)
        ]
        attention = [
            (attention_name(label, by_sentence[number], number + 1), weights(by_sentence[number]))
            for label, by_sentence in zip(names, attended, strict=False)
            if len(by_sentence[number].positions) > 1
        ]
        sentences.append((readings, attention))
    sums = [(label, _mean(score, unit)) for label, score in zip(names, scores, strict=True)]
    heading = ", ".join([scores[0].id, *(f"{name} {cell}" for name, cell in common.items())])
    return _document_parts().document(heading, sums, sentences)


def attention_name(label: str, attended: SentenceAttention, number: int | None = None) -> str:
    """The caption of the weights of a sentence."""
    name = f"Attention weights of {label}" if label else "Attention weights"
    if number is not None:
        name += f", sentence {number}"
    if (count := len(attended.positions)) > SHOWN_POSITIONS:
        name += f" ({SHOWN_POSITIONS} of {count} positions, with the largest weights)"
    return name


def foot() -> str:
    """The end of a page."""
    return _document_parts().foot()


def _document_parts() -> Any:
    return environment().get_template("surprisal.html.j2").module


def _mean(score: DocumentScore, unit: str) -> str:
    """The mean per scored target."""
    sentences = score.sentences
    log_probs = np.array([p for sentence in sentences for p in sentence.log_probs])
    no_context = np.array(
        [p for sentence in sentences for p in sentence.log_probs_no_context or ()]
    )
    scored = ~np.isnan(log_probs)
    if not scored.any():
        return "no target is scored"
    text = f"{scored.sum():,} targets, {-log_probs[scored].mean():.2f} {unit} per target"
    if no_context.size:
        saved = float((log_probs - no_context)[scored].mean())
        text += (
            f", no context {-no_context[scored].mean():.2f}; {_reduction(saved)} {unit} per target"
        )
    return text
