"""Tables, figures and JSON of the DCLM paper (Ji et al. 2015) from rows of measured runs."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dclm_jax import tables as layout
from dclm_jax.evaluation import coherence, context, intervals
from dclm_jax.evaluation.perplexity import COUNTING_RULES, warning
from dclm_jax.experiments.grouping import (
    BASELINES,
    LENGTH,
    Comparison,
    Row,
    baseline,
    compare,
    differing,
    paired,
    ratios,
    shown_value,
    symbol,
    with_defaults,
    without,
)
from dclm_jax.experiments.plots import Curve, Intervals, Picture, Series
from dclm_jax.experiments.runs import Evaluation, FinishedRun
from dclm_jax.models import MODELS

PLACES = {
    "by_token": "Perplexity by position in the sentence",
    "by_sentence": "Perplexity by position of the sentence in the document",
}
SEGMENT_LENGTH = "segment_length.png"
_BLOCKS = "Coherence by sentences of a block"
_OTHER = "*"
_NORMAL = 1.96
# Of longer segments fewer make a step as long as it was.
_OF_LENGTH = (LENGTH, "data.batch_size")


class Table(NamedTuple):
    """A table: its title, what its numbers are, and its cells, a header first."""

    title: str
    about: str
    cells: list[list[str]]


def tables(all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES) -> list[Table]:
    """All that the rows have numbers for. `baselines` are what they are compared with, see
    `grouping.baseline`: perplexity with the first of them, coherence with all."""
    made = [perplexity_table(all_rows, baselines[0])]
    if any(row.has("coherence") for row in all_rows):
        made.append(coherence_table(all_rows, baselines))
    if any(row.has("blocks") for row in all_rows):
        made.append(block_table(all_rows))
    made += [adaptation_table(all_rows, baselines[0])] if any(map(adapted, all_rows)) else []
    return [*made, context_table(all_rows), *(place_table(all_rows, place) for place in PLACES)]


def context_table(all_rows: Sequence[Row]) -> Table:
    """Perplexities with the context exchanged or removed."""
    cells = [["model", *context.ARRANGEMENTS]]
    for row in all_rows:
        values = [row.mean("arrangements", name) for name in context.ARRANGEMENTS]
        cells.append([row.label, *(f"{value:.2f}" for value in values)])
    about = (
        "Test perplexity of the same sentences: in their own documents; in another order; mixed "
        "with those of all documents; each by itself."
    )
    return Table("What the context is worth", about, cells)


def adaptation_table(all_rows: Sequence[Row], name: str) -> Table:
    """Perplexities of rows that adapt themselves to each document, compared with the baseline of
    that name, adapted alike, and their coherence, if it was measured."""
    kinds = dict.fromkeys(kind for row in all_rows for kind in adapted(row))
    columns: dict[str, tuple[str, ...]] = {"as it is": ("test",)}
    columns |= {kind: ("adapted", kind, "test") for kind in kinds}
    cells = [["model", *(f"{column}{to}" for column in columns for to in ("", f" to {name}"))]]
    has_coherence = any(row.has("coherence") for row in all_rows)
    if has_coherence:
        cells[0] += [f"coherence {column} %" for column in columns]
    for row in all_rows:
        found = baseline(row, all_rows, name)
        own, other, _ = (row, row, None) if found is None else paired(row, found[0])
        cells.append([row.label])
        for column, path in columns.items():
            is_there = [column not in kinds or column in adapted(one) for one in (own, other)]
            cells[-1].append(_number(row, *path, "perplexity") if is_there[0] else "")
            to = ""
            if found is not None and all(is_there):
                ratio = own.mean(*path, "perplexity") / other.mean(*path, "perplexity")
                to = f"{100 * (ratio - 1):+.1f}%{'' if found[1] else _OTHER}"
            cells[-1].append(to)
        if has_coherence:
            places = {column: (*path[:-1], "coherence") for column, path in columns.items()}
            cells[-1] += [_percent(row, *path, "mean") for path in places.values()]
    about = (
        f"Test perplexity{' and coherence' if has_coherence else ''} of runs that adapt themselves "
        "to each document as they read it and forget it at its end: by a neural cache (cache), a "
        "cache of words (unigram) or gradient steps (dynamic). What is open of them was tuned on "
        "the development set, for each run by itself. "
        f"To {name}: which adapts itself in the same way; {_OTHER} it has another recipe."
    )
    return Table("Adapted to each document", about, cells)


def adapted(row: Row) -> dict[str, Any]:
    """What was measured of a row that adapts itself, by how it does that."""
    return row.results[0].get("adapted") or {}


def place_table(all_rows: Sequence[Row], place: str) -> Table:
    """Perplexities by position, `place` is one of PLACES."""
    cells = [["model", *ranges()]]
    for row in all_rows:
        values = row.sums(place).perplexities
        cells.append([row.label, *("" if math.isnan(v) else f"{v:.1f}" for v in values)])
    about = "Test perplexity of the targets there; 1 is the first."
    return Table(PLACES[place], about, cells)


def perplexity_table(all_rows: Sequence[Row], baseline: str) -> Table:
    """Development and test perplexities, compared with `baseline`."""
    test = all_rows[0].results[0]["test"]
    objective = all_rows[0].results[0].get("objective", "words")
    always = ["model.embedding_dim", "model.hidden_dim"]
    configs = [row.config for row in all_rows]
    options = [*always, *(key for key in differing(configs) if key not in always)]
    measured = ["parameters", "seeds", "development", "test", "test, 95%", "test, known"]
    measured.append("bits/word")
    to_baseline = f"to {baseline}"
    header = ["model", *map(symbol, options), *measured]
    cells = [[*header, to_baseline, f"{to_baseline}, 95%", "p"]]
    comparisons = [compare(row, all_rows, baseline) for row in all_rows]
    for row, comparison in zip(all_rows, comparisons, strict=True):
        cells.append(
            [
                row.label,
                *(_option(row.config, key) for key in options),
                f"{row.results[0]['parameters']:,}",
                str(len(row.results)),
                _number(row, "valid", "perplexity"),
                _number(row, "test", "perplexity"),
                _ends(perplexity_interval(row), "{:.2f}"),
                _number(row, "test", "known_perplexity"),
                _number(row, "test", "bits_per_word"),
                *_relative(comparison),
                _p(comparison and comparison.perplexity),
            ]
        )
    about = (
        f"exp(sum NLL / targets), {COUNTING_RULES[objective]}; "
        f"{all_rows[0].results[0]['valid']['tokens']:,} "
        f"development and {test['tokens']:,} test targets, vocabulary "
        f"{test['vocabulary_size']:,}, {100 * test['oov_rate']:.2f}% of the test words unknown; "
        "known: of the other targets. "
        "Means and standard deviations over seeds. 95%: intervals by bootstrap over the test "
        "documents, the same ones for all rows. p: one-sided "
        f"z-test over documents that the likelihood is above that of {baseline}. Rows are compared "
        f"over the seeds that both have, or all if there are none. {_OTHER} {baseline} has another "
        "recipe."
    )
    once = [row.label for row in all_rows if len(row.results) == 1 and row.model != "ngram"]
    if once and len(all_rows) > 1:
        rows = "all rows" if len(once) == len(all_rows) else ", ".join(once)
        about = (
            f"One seed of {rows}: another one may move a perplexity by more than rows differ, and "
            f"intervals and p know nothing of that. {about}"
        )
    if told := warning(test["oov_rate"], test.get("own_oov_rate")):
        about = f"{told}. {about}"
    alone = [
        row.label
        for row, comparison in zip(all_rows, comparisons, strict=True)
        if comparison is None and baseline not in (row.label, row.model)
    ]
    if alone:
        about += (
            f" Blank for want of a comparison: {'; '.join(alone)}. A run of {baseline} that is "
            "trained alike fills that in, or --baseline with one of the runs or models here."
        )
    return Table("Perplexity (Table 2)", about, cells)


def _relative(comparison: Comparison | None) -> tuple[str, str]:
    if comparison is None:
        return "", ""
    other = "" if comparison.same_recipe else _OTHER
    ends = comparison.interval and [100 * (end - 1) for end in comparison.interval]
    return f"{100 * (comparison.ratio - 1):+.1f}%{other}", _ends(ends, "{:+.1f}%")


def coherence_table(all_rows: Sequence[Row], baselines: Sequence[str]) -> Table:
    """Coherence of rows of which one at least has it, compared with all `baselines`."""
    first = next(row for row in all_rows if row.has("coherence")).results[0]["coherence"]
    kept = first["keep_first"]
    has_both = any(row.has("first_kept") for row in all_rows)
    cells = [["model", "accuracy %", "standard deviation %", "95%"]]
    cells[0] += [f"p, {model}" for model in baselines]
    if not kept:
        cells[0].append("first sentence alone %")
    if has_both:
        cells[0] += ["first kept %", "first kept, 95%"]
    for row in all_rows:
        comparisons = [compare(row, all_rows, model) for model in baselines]
        cells.append(
            [
                row.label,
                _percent(row, "coherence", "mean"),
                _percent(row, "coherence", "sd"),
                _ends(coherence_interval(row, "coherence"), "{:.1%}"),
                *(_p(one and one.coherence) for one in comparisons),
                *([] if kept else [_percent(row, "coherence", "first_sentence")]),
            ]
        )
        if has_both:
            ends = _ends(coherence_interval(row, "first_kept"), "{:.1%}")
            cells[-1] += [_percent(row, "first_kept", "mean"), ends]
    afresh = f"drawn from {first['pool']} of each document" if first["pool"] else "made afresh"
    about = (
        f"A document against a permutation of its sentences: {first['replicates']:,} test sets of "
        f"{first['documents']:,} documents, resampled with replacement, permutations {afresh}, "
        "ties count half. 95%: 1.96 standard deviations over test sets to each side, with the "
        "error of the pool of permutations, if there is one. p: one-sided z-test over test sets of "
        "accuracy against each baseline, with the same error: it speaks of these documents and "
        "grows surer with more test sets; the interval speaks of other documents."
    )
    if kept:
        about += f" Sentences kept at the begin of each document: {kept:,}"
        about += f" ({first['left_out']:,} documents left out for fewer than two others)."
    else:
        about += (
            " First sentence alone: it alone moves, the others keep their order; high values say "
            "that the beginnings give documents away."
        )
    if has_both:
        about += (
            " WARNING: they do here. First kept: the first sentence stays where it is and only the "
            "others are permuted (--keep_first=1)."
        )
    return Table("Coherence (Table 3)", about, cells)


def _by_block(row: Row) -> dict[str, tuple[str, ...]]:
    """Where the accuracies of a row are, by the sentences of a block."""
    paths: dict[str, tuple[str, ...]] = {"1": ("coherence",)}
    return paths | {size: ("blocks", size) for size in row.results[0]["blocks"]}


def block_table(all_rows: Sequence[Row]) -> Table:
    """Coherence by the size of blocks, of the rows that have it."""
    chosen = [row for row in all_rows if row.has("blocks")]
    paths = _by_block(chosen[0])
    cells = [["model", *paths]]
    for row in chosen:
        ends = (_ends(coherence_interval(row, *path), "{:.1%}") for path in paths.values())
        values = (100 * row.mean(*path, "mean") for path in paths.values())
        cells.append([row.label, *(f"{v:.2f} {e}" for v, e in zip(values, ends, strict=True))])
    counts = [f"{chosen[0].mean(*path, 'documents'):,.0f}" for path in paths.values()]
    pools = [f"{chosen[0].mean(*path, 'pool'):,.0f}" for path in paths.values()]
    about = (
        "Accuracy in %, with 95% intervals as above, where whole blocks of so many sentences are "
        "permuted and nothing inside of them changes, so that most neighbours stay neighbours. "
        "Only documents of more sentences than a block count, and the longer blocks are, the fewer "
        f"they are: {', '.join(counts)}. Permutations of each that test sets draw from (0: made "
        f"afresh): {', '.join(pools)}."
    )
    return Table(_BLOCKS, about, cells)


def block_accuracies(all_rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """The accuracies of `block_table`, by label and sentences of a block."""
    return {
        row.label: {int(n): row.mean(*path, "mean") for n, path in _by_block(row).items()}
        for row in all_rows
        if row.has("blocks")
    }


def block_curves(accuracies: Mapping[str, Mapping[int, float]]) -> Picture:
    """Coherence by the sentences of a block; accuracies from 0 to 1."""
    sizes = sorted({size for one in accuracies.values() for size in one})
    curves = [
        Curve(label, list(map(sizes.index, one)), [100 * accuracy for accuracy in one.values()])
        for label, one in accuracies.items()
    ]
    ticks = list(map(str, sizes))
    return Picture(_BLOCKS, "sentences of a block", "accuracy %", curves, ticks=ticks)


def first_decides(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the first sentence alone gives documents away to some model."""
    found = [one["coherence"]["first_sentence"] for one in results if one["coherence"] is not None]
    return any(share is not None and share >= coherence.FIRST_DECIDES for share in found)


def perplexity_interval(row: Row) -> list[float] | None:
    """The ends of the 95% interval of a row's test perplexity over documents."""
    ends = intervals.interval(row.resampled()[:, None])[:, 0]
    return None if np.isnan(ends).any() else ends.tolist()


def coherence_interval(row: Row, *path: str) -> list[float] | None:
    """The ends of the 95% interval of a row's accuracy over documents, as a normal distribution has
    them: the standard deviation over resampled test sets is the standard error."""
    if not row.has(path[0]):
        return None
    squares = [np.square(row.values(*path, key)).mean() for key in ("sd", "pool_error")]
    half, mean = _NORMAL * math.sqrt(sum(squares)), row.mean(*path, "mean")
    return [max(0.0, mean - half), min(1.0, mean + half)]


def records(
    all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES
) -> list[dict[str, str | float | int]]:
    """A flat record a row with all its numbers; what it has not is missing."""
    options = differing([row.config for row in all_rows])
    made = []
    for row in all_rows:
        one: dict[str, Any] = {"label": row.label, "model": row.model}
        one |= {key: row.config[key] for key in options if key in row.config}
        one |= {"parameters": row.results[0]["parameters"], "seeds": len(row.results)}
        for name, split in (("development", "valid"), ("test", "test")):
            one |= _spread(f"{name}_perplexity", row.values(split, "perplexity"))
        one |= _pair("test_perplexity", perplexity_interval(row))
        one["test_known_perplexity"] = row.mean("test", "known_perplexity")
        one["test_bits_per_word"] = row.mean("test", "bits_per_word")
        for name in baselines:
            if (found := compare(row, all_rows, name)) is not None:
                one[f"ratio_to_{name}"] = found.ratio
                one |= _pair(f"ratio_to_{name}", found.interval)
                tests = {"perplexity": found.perplexity, "coherence": found.coherence}
                one |= {f"p_{what}_{name}": test.p for what, test in tests.items() if test}
        for name in ("coherence", "first_kept"):
            if row.has(name):
                one[name] = row.mean(name, "mean")
                one |= _pair(name, coherence_interval(row, name))
        if row.has("blocks"):
            sizes = row.results[0]["blocks"]
            one |= {f"coherence_block_{size}": row.mean("blocks", size, "mean") for size in sizes}
        for kind in adapted(row):
            one |= _spread(
                f"test_perplexity_{kind}", row.values("adapted", kind, "test", "perplexity")
            )
            if row.has("adapted", kind, "coherence"):
                one[f"coherence_{kind}"] = row.mean("adapted", kind, "coherence", "mean")
        if row.has("coherence") and not row.results[0]["coherence"]["keep_first"]:
            one["first_sentence"] = row.mean("coherence", "first_sentence")
        one |= {name: row.mean("arrangements", name) for name in context.ARRANGEMENTS}
        for place in PLACES:
            values = zip(ranges(), row.sums(place).perplexities.tolist(), strict=True)
            one |= {f"{place}_{name}": value for name, value in values if not math.isnan(value)}
        made.append(one)
    return made


def _spread(name: str, values: np.ndarray) -> dict[str, float]:
    several = {f"{name}_sd": float(values.std(ddof=1))} if len(values) > 1 else {}
    return {name: float(values.mean()), **several}


def _pair(name: str, ends: list[float] | None) -> dict[str, float]:
    return {} if ends is None else {f"{name}_low": ends[0], f"{name}_high": ends[1]}


def development_curves(all_rows: Sequence[Row]) -> Picture:
    """Development perplexity by updates, of the first seed."""
    curves = []
    for row in all_rows:
        if points := row.results[0]["curve"]:
            steps, perplexities = zip(*points, strict=True)
            curves.append(Curve(row.label, steps, perplexities))
    title = "Development perplexity by updates"
    return Picture(title, "updates", "perplexity (log scale)", curves, log_scale=True)


def length_curves(all_rows: Sequence[Row]) -> list[Curve]:
    """The learning curves of models that were trained with several segment lengths, with any number
    of segments a step (Figure 3): updates, and development log-likelihood in nats a token; of the
    first seed."""
    chosen = []
    for row in all_rows:
        rest = without(row.config, _OF_LENGTH)
        same = [other for other in all_rows if without(other.config, _OF_LENGTH) == rest]
        points = row.results[0]["curve"]
        if len({other.config.get(LENGTH) for other in same}) > 1 and points:
            steps, perplexities = zip(*points, strict=True)
            chosen.append(Curve(row.label, steps, [-math.log(value) for value in perplexities]))
    return chosen


def ranges() -> list[str]:
    """The ranges of `context.BOUNDS` as text, counted from 1."""
    ends = [*context.BOUNDS[1:], None]
    return [
        f"{first + 1}+" if end is None else str(end) if end == first + 1 else f"{first + 1}-{end}"
        for first, end in zip(context.BOUNDS, ends, strict=True)
    ]


def quick_table(runs: Sequence[FinishedRun]) -> Table:
    """What runs left, blank where something is missing, and the rules that numbers were counted
    by."""
    configs = [with_defaults(run.config) for run in runs]
    options = differing(configs)
    measured = ["parameters", "development perplexity", "test perplexity", "of known"]
    measured.append("coherence %")
    cells = [["model", *map(symbol, options), *measured, "training minutes"]]
    for run, config in zip(runs, configs, strict=True):
        cells.append(
            [
                run.label,
                *(_option(config, key) for key in options),
                "" if run.evaluation is None else f"{run.evaluation.parameters:,}",
                "" if run.development is None else f"{run.development:.2f}{_of_what(config)}",
                "" if run.evaluation is None else f"{run.evaluation.perplexity:.2f}",
                _known(run.evaluation),
                "" if run.coherence is None else _quick_coherence(run.coherence),
                "" if run.seconds is None else f"{run.seconds / 60:.1f}",
            ]
        )
    about = []
    if first := next((run.evaluation for run in runs if run.evaluation is not None), None):
        about.append(
            f"Perplexity = exp(sum NLL / targets) over {first.tokens:,} targets "
            f"(END counted, START not), vocabulary {first.vocabulary_size:,}, OOV rate "
            f"{100 * first.oov_rate:.2f}%."
        )
    if one := next((run.coherence for run in runs if run.coherence is not None), None):
        about.append(
            "Coherence: log P(document) > log P(permutation), ties count half, "
            f"{one.documents:,} documents."
        )
    if len({config["data.directory"] for config in configs if "data.directory" in config}) > 1:
        about.append("Development perplexities of different corpora do not compare.")
    for run in runs:
        if run.evaluation is not None and (
            told := warning(run.evaluation.oov_rate, run.evaluation.own_oov_rate)
        ):
            about.append(f"{run.label}: {told}")
        if run.coherence is not None and run.coherence.warning:
            about.append(f"{run.label}: {run.coherence.warning}")
        about += [f"{run.label}: {missing}" for missing in run.missing]
    return Table("Results", "\n".join(about), cells)


def _of_what(config: Mapping[str, Any]) -> str:
    """What a model's perplexity is of, where that is not the words of documents."""
    model = MODELS.get(config["model.name"])
    if model is None:
        return ""
    return " (bags)" if model.objective == "bags" else " (given a source)" * model.reads_source


def _known(evaluation: Evaluation | None) -> str:
    known = evaluation and evaluation.known_perplexity
    return "" if known is None else f"{known:.2f}"


def _quick_coherence(result: coherence.Coherence) -> str:
    kept = f" (first {result.keep_first} kept)" if result.keep_first else ""
    return f"{100 * result.mean:.2f}{kept}"


def quick_text(runs: Sequence[FinishedRun]) -> str:
    """`quick_table` for a terminal."""
    _, about, cells = quick_table(runs)
    return "\n".join([*layout.aligned(cells), about])


def learning_curves(runs: Sequence[FinishedRun]) -> Picture:
    """Development perplexity by training tokens, of the runs that were evaluated in training, and
    beside it the perplexity in training."""
    curves = [
        Curve(
            f"{run.label} (best {min(one.perplexity for one in run.curve):.1f})",
            [one.tokens / 1e6 for one in run.curve],
            [one.perplexity for one in run.curve],
            Curve(
                "_in training",
                [tokens / 1e6 for tokens, _ in run.training],
                [perplexity for _, perplexity in run.training],
            ),
        )
        for run in runs
        if run.curve
    ]
    x = "training tokens (millions)"
    y = "perplexity (log scale): development, dashed in training"
    return Picture("Learning curves", x, y, curves, log_scale=True)


def pictures(
    all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES
) -> dict[str, Picture | Intervals]:
    """What there may be to draw of the rows, by the names of files; see `plots.undrawn`."""
    drawn: dict[str, Picture | Intervals] = {}
    for place, title in PLACES.items():
        series = []
        for row in all_rows:
            if (found := ratios(row, all_rows, baselines[0], place)) is not None:
                values, (low, high) = found
                series.append(Series(row.label, values, low, high))
        at = "position, 1 is the first"
        drawn[f"{place}.png"] = Intervals(title, at, ranges(), series, baseline=baselines[0])
    if accuracies := block_accuracies(all_rows):
        drawn["blocks.png"] = block_curves(accuracies)
    if curves := length_curves(all_rows):
        title = "Development log-likelihood by updates (Figure 3)"
        drawn[SEGMENT_LENGTH] = Picture(title, "updates", "nats a token", curves)
    return drawn


def markdown(made: Sequence[Table], pictures: Mapping[str, str], notes: Sequence[str]) -> str:
    """The report as text, with links to pictures: their titles by the names of files."""
    parts = ["\n".join([f"## {t.title}", "", t.about, "", *layout.markdown(t.cells)]) for t in made]
    parts += [f"![{title}]({file})" for file, title in pictures.items()]
    return "\n\n".join([*parts, *notes]) + "\n"


def latex(made: Sequence[Table]) -> str:
    """The tables for LaTeX."""
    parts = ["\n".join(layout.latex(t.cells, f"{t.title}. {t.about}")) for t in made]
    return "\n\n".join(["% \\usepackage{booktabs}", *parts]) + "\n"


def comma_separated(all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES) -> str:
    """The `records` as comma-separated values, a line a row."""
    made = records(all_rows, baselines)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(key for one in made for key in one)))
    writer.writeheader()
    writer.writerows(made)
    return file.getvalue()


def text(made: Sequence[Table]) -> str:
    """The tables for a terminal."""
    return "\n\n".join("\n".join([title, *layout.aligned(cells)]) for title, _, cells in made)


def to_json(all_rows: Sequence[Row], baselines: Sequence[str] = BASELINES) -> dict[str, Any]:
    """All numbers of all rows, without those of single documents; positions by `ranges`."""
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "test_interval": perplexity_interval(row),
                "compared": {
                    name: _compared(comparison)
                    for name in baselines
                    if (comparison := compare(row, all_rows, name)) is not None
                },
                "runs": [
                    {
                        "seed": seed,
                        **without(result, ("config", "by_document")),
                        **{place: _positions(row.only([seed]), place) for place in PLACES},
                    }
                    for seed, result in zip(row.seeds, row.results, strict=True)
                ],
            }
            for row in all_rows
        ]
    }


def _positions(row: Row, place: str) -> dict[str, float | None]:
    values = zip(ranges(), row.sums(place).perplexities.tolist(), strict=True)
    return {name: None if math.isnan(value) else value for name, value in values}


def _compared(comparison: Comparison) -> dict[str, Any]:
    return {
        name: value._asdict() if isinstance(value, coherence.ZTest) else value
        for name, value in comparison._asdict().items()
    }


def _option(config: Mapping[str, Any], key: str) -> str:
    return shown_value(key, config[key]) if key in config else ""


def _number(row: Row, *path: str) -> str:
    values = row.values(*path)
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"


def _percent(row: Row, *path: str) -> str:
    return f"{100 * row.mean(*path):.2f}" if row.has(*path) else ""


def _ends(ends: Sequence[float] | None, form: str) -> str:
    return "" if ends is None else f"[{', '.join(map(form.format, ends))}]"


def _p(test: coherence.ZTest | None) -> str:
    if test is None:
        return ""
    return "< 0.0001" if test.p < 0.0001 else f"{test.p:.4f}"
