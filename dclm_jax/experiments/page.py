"""A report as one page of HTML: it needs no network, and without its script all of it is shown.

The charts are those of `charts`, the look is page.css, and page.js steps through examples.
"""

import base64
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from dclm_jax.errors import printable
from dclm_jax.evaluation import context
from dclm_jax.evaluation.perplexity import COUNTING_RULES
from dclm_jax.experiments import charts, examples, markup, pictures, report, summary, words
from dclm_jax.experiments.examples import Example, Reading
from dclm_jax.experiments.grouping import Row, shown_value, with_defaults
from dclm_jax.experiments.markup import Child, disclosure, element, elements, table
from dclm_jax.experiments.plots import Intervals, Picture
from dclm_jax.experiments.report import Table
from dclm_jax.experiments.runs import FinishedRun
from dclm_jax.language_model import SentenceAttention

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
    places = [drawn[f"{place}.png"] for place in context.PLACES]
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
            [*places, *(report.place_table(all_rows, place) for place in context.PLACES)],
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
    script = markup.packed("page.js")
    # Nothing but this script runs and nothing is fetched, whatever a text may hold.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    head = markup.head(
        title,
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("link", rel="icon", href="data:,"),
    )
    drawn = (part for one in sections for part in one.parts)
    looks = charts.looks_of(part for part in drawn if isinstance(part, Picture | Intervals))
    links = [
        element("li", element("a", section.title, href=f"#part-{number}"))
        for number, section in enumerate(sections, start=1)
    ]
    body = element(
        "body",
        element("a", "Skip to the results", href="#main", class_="skip"),
        element("header", element("h1", title), element("p", subject, class_="aside")),
        element("nav", element("ul", *links), aria_label="Contents"),
        element(
            "main",
            *(_section(number, one, looks) for number, one in enumerate(sections, start=1)),
            id="main",
        ),
        element("script", script),
    )
    page = element("html", head, body, lang="en")
    return f"<!doctype html>\n{markup.written(page)}\n"


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
            printable(result["workdir"]),
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


def _section(number: int, section: Section, looks: Mapping[str, int]) -> Element:
    name = f"part-{number}"
    made = element(
        "section",
        element("h2", section.title, id=f"{name}-title"),
        element("p", section.about) if section.about else None,
        id=name,
        aria_labelledby=f"{name}-title",
    )

    def is_figure(part: tuple[int, Part]) -> bool:
        return isinstance(part[1], Picture | Intervals)

    for are_figures, parts in itertools.groupby(enumerate(section.parts), is_figure):
        drawn = [one for index, part in parts for one in _part(part, f"{name}-{index}", looks)]
        made.extend([element("div", *drawn, class_="figures")] if are_figures else drawn)
    return made


def _part(part: Part, name: str, looks: Mapping[str, int]) -> Iterator[Element]:
    match part:
        case Table(title, about, cells):
            header, *_ = cells
            yield table(title, [[*map(_marked, header, row)] for row in cells])
            yield from elements("p", filter(None, about.split("\n")), class_="aside")
        case Picture() | Intervals():
            yield charts.figure(part, name, looks)
        case Example():
            yield _example(part, name)
        case Configurations(configs):
            yield from _compared(configs)
        case Missing(told):
            yield element("p", told, class_="missing")
        case Commands(title, lines):
            yield element("h3", title)
            yield element("pre", "\n".join(map(printable, lines)))
        case Facts(title, values):
            cells = [[name, printable(str(one))] for name, one in values.items()]
            yield table(title, [["what", "value"], *cells], class_="facts")


def _marked(column: str, cell: str) -> Child:
    """The cell, with a mark where it is a p that tells something."""
    if cell == column or not cell or not (column == "p" or column.startswith("p, ")):
        return cell
    p = float(cell.removeprefix("< "))
    better = sum(p < level for level in _LEVELS)
    worse = sum(1 - p < level for level in _LEVELS)
    if not better and not worse:
        return cell
    told = f"{'better' if better else 'worse'} than the baseline"
    mark = element("span", "▲" * better or "▼" * worse, aria_hidden="true")
    return element("span", f"{cell} ", mark, element("span", f", {told}", class_="told"))


def _compared(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[Element]:
    first, *others = configs.values()
    keys = dict.fromkeys(key for config in configs.values() for key in config)
    same = [key for key in keys if all(key in one and one[key] == first.get(key) for one in others)]

    def cell(config: Mapping[str, Any], key: str) -> Child:
        shown = shown_value(key, config[key]) if key in config else "–"
        is_as_first = (key in config) == (key in first) and config.get(key) == first.get(key)
        return shown if is_as_first else element("mark", shown)

    def rows(chosen: Sequence[str]) -> list[list[Child]]:
        header: list[Child] = ["option", *configs]
        return [header, *([key, *(cell(one, key) for one in configs.values())] for key in chosen)]

    if differing := [key for key in keys if key not in same]:
        yield table("What differs", rows(differing))
    elif others:
        yield element("p", "Nothing differs but the seed.")
    shared = [["option", "value"], *([key, cell(first, key)] for key in same)]
    yield disclosure(
        f"What all have in common ({len(same)} options)", table("Common options", shared)
    )


def _example(example: Example, name: str) -> Element:
    shown = len(example.readings[0].sentences)
    rest = f" Its first {shown} of {example.num_sentences} sentences are shown."
    controls = element(
        "div",
        element("button", "← Previous", type="button"),
        element("button", "Next →", type="button"),
        element("span", class_="told", aria_live="polite"),
        class_="controls",
        hidden="",
    )
    return element(
        "section",
        element("h3", f"Test document {example.number}", id=name),
        element(
            "p",
            f"Chosen: {example.why}.{rest if shown < example.num_sentences else ''}",
            class_="aside",
        ),
        controls,
        element("ol", *(_step(example, at) for at in range(shown)), class_="steps"),
        class_="example",
        tabindex=0,
        aria_labelledby=name,
    )


def _step(example: Example, at: int) -> Element:
    sentences = example.readings[0].sentences
    before = f"After: {printable(sentences[at - 1].text)}" if at else "The first of its document."
    parts = [one for reading in example.readings for one in _reading(reading, at)]
    return element(
        "li",
        element("h4", f"Sentence {at + 1} of {len(sentences)}: {printable(sentences[at].text)}"),
        element("p", before, class_="aside"),
        *parts,
        class_="step",
    )


def _reading(reading: Reading, at: int) -> Iterator[Element]:
    sentence = reading.sentences[at]
    alone = sentence.log_probs_alone or sentence.log_probs
    saved = sum(sentence.log_probs) - sum(alone)
    told = f", {abs(saved):.1f} {'less' if saved > 0 else 'more'} than by itself" if saved else ""
    nats = f": {-sum(sentence.log_probs):.1f} nats{told}"
    yield element("p", element("strong", reading.label), nats)
    yield element("p", *words.words(sentence, changes=True), class_="words")
    if reading.attention:
        yield _attention(reading.label, reading.attention[at])


def _attention(label: str, attention: SentenceAttention) -> Element:
    targets, positions, _ = attention
    if len(positions) < 2:
        told = f"there is {positions[0]} alone" if positions else "no sentence stands before"
        return element("p", f"Attention of {label}: {printable(told)}.", class_="aside")
    if len(targets) * len(positions) > _MOST_WEIGHTS:
        told = f"{len(targets)} words by {len(positions)} are too many to show here"
        return element("p", f"Attention of {label}: {told}.", class_="aside")
    return words.attention(f"Attention of {label}", attention)
