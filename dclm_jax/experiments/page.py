"""A report as one page of HTML: it needs no network, and without its script all of it is shown.

The templates are page.html.j2 and parts.html.j2, the figures those of `charts`, the look is
page.css, and page.js steps through examples.
"""

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from dclm_jax.evaluation import context_ablation
from dclm_jax.evaluation.perplexity import COUNTING_RULES
from dclm_jax.experiments import (
    charts,
    examples,
    pictures,
    plots,
    report,
    summary,
    templates,
    words,
)
from dclm_jax.experiments.examples import Example
from dclm_jax.experiments.grouping import Row, shown_value, with_defaults
from dclm_jax.experiments.plots import Intervals, Picture
from dclm_jax.experiments.report import Table
from dclm_jax.experiments.runs import FinishedRun
from dclm_jax.language_model import SentenceAttention, SentenceScore

# One-sided p from which a row is marked; 1 - p for one that is worse.
_LEVELS = (0.05, 0.01, 0.001)
# A larger table of weights is not shown.
_MOST_WEIGHTS = 900


class Configurations(NamedTuple):
    """Configurations, keys as "a.b", by their labels."""

    configs: Mapping[str, Mapping[str, Any]]


class Commands(NamedTuple):
    """Lines for a shell."""

    title: str
    lines: Sequence[str]


class Facts(NamedTuple):
    """Values by what they are of."""

    title: str
    values: Mapping[str, Any]


class Missing(NamedTuple):
    """What is not there, and what would fill it."""

    told: str


Part = Table | Picture | Intervals | Example | Configurations | Commands | Facts | Missing


class Section(NamedTuple):
    """What stands below a heading."""

    title: str
    about: str
    parts: Sequence[Part]


def measured(
    all_rows: Sequence[Row],
    baselines: Sequence[str],
    read: Sequence[Example],
    made: Sequence[Part],
) -> list[Section]:
    """The page of rows that were measured.

    Args:
      all_rows: as `report.tables` takes them, with `baselines`.
      read: what `examples.read` gave.
      made: how the numbers were made, beside what the tables say.
    """
    drawn = pictures.of_rows(all_rows, baselines)
    curves = [pictures.development_curves(all_rows)]
    curves += [one for name, one in drawn.items() if name == pictures.SEGMENT_LENGTH]
    places = [drawn[f"{place}.png"] for place in context_ablation.PLACES]
    perplexities = [report.perplexity_table(all_rows, baselines[0])]
    if any(row.adapted for row in all_rows):
        perplexities.append(report.adaptation_table(all_rows, baselines[0]))
    return [
        _configurations({row.label: row.config for row in all_rows}),
        Section("Learning curves", "Of the first seed of each configuration.", curves),
        Section("Perplexity", _MARKS, [*perplexities, report.context_table(all_rows)]),
        Section("Coherence", _MARKS, _coherence(all_rows, baselines)),
        Section(
            "By position",
            "Where in a sentence, and in a document, a model is better. Lines are 95% intervals "
            "over the test documents.",
            [*places, *(report.place_table(all_rows, place) for place in context_ablation.PLACES)],
        ),
        Section("Examples", _EXAMPLES, read or [Missing("No test document has two sentences.")]),
        Section("How these numbers were made", _made(all_rows), [_runs(all_rows), *made]),
    ]


def _coherence(all_rows: Sequence[Row], baselines: Sequence[str]) -> list[Part]:
    if not any(row.has("coherence") for row in all_rows):
        return [Missing("Coherence was left out by --bootstrap=0; --bootstrap=1000 fills this in.")]
    made: list[Part] = [report.coherence_table(all_rows, baselines)]
    if not (accuracies := pictures.block_accuracies(all_rows)):
        told = "--blocks=5 measures coherence by the size of blocks as well, and draws it here."
        return [*made, Missing(told)]
    return [*made, pictures.block_curves(accuracies), report.block_table(all_rows)]


def quick(runs: Sequence[FinishedRun], made: Sequence[Part]) -> list[Section]:
    """The page of what runs left by themselves, with what would fill the rest."""
    blocks = {
        run.label: {one.block: one.mean for one in run.tests.blocks}
        for run in runs
        if run.tests.blocks
    }
    no_blocks = Missing(
        "`launch.coherence --also=blocks --output=RUN/coherence.json` measures coherence by the "
        "size of blocks, and it is drawn here."
    )
    fills = Missing("`launch.report --output=DIR --html=FILE` without --quick measures this.")
    return [
        _configurations({run.label: with_defaults(run.config) for run in runs}),
        Section("Learning curves", "", [pictures.learning_curves(runs)]),
        Section(
            "Perplexity and coherence",
            "",
            [summary.table(runs), pictures.block_curves(blocks) if blocks else no_blocks],
        ),
        *(Section(title, "", [fills]) for title in ("By position", "Examples")),
        Section(
            "How these numbers were made",
            "Nothing was measured for this page: it has what training, evaluation and coherence "
            "have left in each run.",
            made,
        ),
    ]


def render(title: str, subject: str, sections: Sequence[Section]) -> str:
    """The page as one file.

    Args:
      title: of the page.
      subject: what it is about, below the title.
      sections: in their order.
    """
    script = templates.source("page.js")
    # Nothing but this script runs and nothing is fetched, whatever a text may hold.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    drawn = (part for one in sections for part in one.parts)
    return (
        templates.environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            subject=subject,
            sections=sections,
            policy=policy,
            style=templates.source("page.css"),
            script=script,
            looks=charts.looks_of(part for part in drawn if isinstance(part, Picture | Intervals)),
            charts=charts,
            compared=compared,
            lines=plots.labels,
            kind_of=lambda part: type(part).__name__,
            nats=_nats,
            significance=significance,
            tokens=words.words,
            undrawn=plots.undrawn,
            unshown=unshown,
            weights=words.weights,
        )
    )


_MARKS = (
    "▲ p < 0.05, ▲▲ p < 0.01, ▲▲▲ p < 0.001: better than the baseline on other documents, not with "
    "other seeds; ▼ as far worse. Each comparison is tested by itself, without a correction for "
    "there being several."
)
_EXAMPLES = (
    "Documents of the test set of two sentences or more, chosen by a rule and not by hand: the "
    "first one, and those in which the configuration of the lowest test perplexity saves most and "
    f"least against its baseline (without one, the first {examples.DOCUMENTS}); at most "
    f"{examples.SENTENCES} sentences of each, by the first run of each of the first "
    f"{examples.CONFIGURATIONS} configurations, attention of the first {examples.ATTENDING} that "
    "have it. Below a word stand its surprisal, -log P in nats, "
    "and how the sentences before change it against the sentence by itself: blue words are made "
    "likelier by them, orange ones less likely. A dotted line is under words that are not in the "
    "vocabulary. Buttons and the left and right arrow keys step through the sentences."
)


def _made(all_rows: Sequence[Row]) -> str:
    objective = all_rows[0].results[0].get("objective", "words")
    return (
        f"Perplexity is exp(sum of -log P in nats / targets): {COUNTING_RULES[objective]}. The "
        "paragraph below each table says how its numbers were made."
    )


def _runs(all_rows: Sequence[Row]) -> Table:
    header = ["configuration", "seed", "run", "step", "minutes", "training text"]
    cells = [
        [
            row.label,
            str(seed),
            result["workdir"],
            "" if result["step"] is None else f"{result['step']:,}",
            "" if result["seconds"] is None else f"{result['seconds'] / 60:.1f}",
            result["training_text"] or "",
        ]
        for row in all_rows
        for seed, result in zip(row.seeds, row.results, strict=True)
    ]
    about = (
        "The model of a run is that of its best development perplexity, from this step. Minutes: "
        "of training. Training text: the beginning of a checksum of what the corpus says of itself."
    )
    return Table("Runs", about, [header, *cells])


def _configurations(configs: Mapping[str, Mapping[str, Any]]) -> Section:
    about = "Marked: what is not as in the first configuration." if len(configs) > 1 else ""
    return Section("Configurations", about, [Configurations(configs)])


def significance(column: str, cell: str) -> str:
    """The mark of a cell in a column of p where it tells something."""
    if not cell or not (column == "p" or column.startswith("p, ")):
        return ""
    p = float(cell.removeprefix("< "))
    better, worse = ("▲" * sum(q < level for level in _LEVELS) for q in (p, 1 - p))
    return better or worse.replace("▲", "▼")


def compared(configs: Mapping[str, Mapping[str, Any]]) -> tuple[list[list[str]], list[list[str]]]:
    """Tables of configurations by their labels: the options that differ, and the common ones."""
    first, *others = configs.values()
    keys = dict.fromkeys(key for config in configs.values() for key in config)
    common = [
        key
        for key in keys
        if all(key in config and config[key] == first.get(key) for config in others)
    ]

    def values(key: str, of: Collection[Mapping[str, Any]]) -> list[str]:
        return [key, *(shown_value(key, config[key]) if key in config else "–" for config in of)]

    differing = [values(key, configs.values()) for key in keys if key not in common]
    return (
        [["option", *configs], *differing],
        [["option", "value"], *(values(key, [first]) for key in common)],
    )


def _nats(sentence: SentenceScore) -> str:
    """Nats of a sentence, and how the sentences before change them."""
    alone = sentence.log_probs_no_context or sentence.log_probs
    saved = sum(sentence.log_probs) - sum(alone)
    told = f", {abs(saved):.1f} {'less' if saved > 0 else 'more'} than by itself" if saved else ""
    return f"{-sum(sentence.log_probs):.1f} nats{told}"


def unshown(attention: SentenceAttention) -> str:
    """Why weights are not shown as a table; empty if they are."""
    targets, positions, _ = attention
    if len(positions) < 2:
        return f"there is {positions[0]} alone" if positions else "no sentence stands before"
    if len(targets) * len(positions) > _MOST_WEIGHTS:
        return f"{len(targets)} words by {len(positions)} are too many to show here"
    return ""
