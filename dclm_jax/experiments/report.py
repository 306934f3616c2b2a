"""Tables, figures and JSON of the DCLM paper (Ji et al. 2015) from rows of measured runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax.evaluation import coherence, context
from dclm_jax.evaluation.perplexity import COUNTING_RULES
from dclm_jax.experiments.grouping import BASELINES, LENGTH, Comparison, Row, compare, without
from dclm_jax.experiments.plots import Curve, Picture
from dclm_jax.experiments.runs import FinishedRun
from dclm_jax.tables import aligned

BOUNDS = (0, 1, 2, 5, 10, 20)
"""First positions of the ranges that tables and pictures show; 0 is the first."""

PLACES = {
    "by_token": "Perplexity by position in the sentence",
    "by_sentence": "Perplexity by position of the sentence in the document",
}
_OTHER = "*"
# Of longer segments fewer make a step as long as it was.
_OF_LENGTH = (LENGTH, "data.batch_size")


def tables(all_rows: Sequence[Row]) -> list[tuple[str, str, list[list[str]]]]:
    """Title, explanation and cells (header first) of every table that the rows have numbers for."""
    made = [_perplexity_table(all_rows)]
    if all(row.has("coherence") for row in all_rows):
        made.append(_coherence_table(all_rows))
    cells = [["model", *context.ARRANGEMENTS]]
    for row in all_rows:
        values = [row.mean("arrangements", name) for name in context.ARRANGEMENTS]
        cells.append([row.label, *(f"{value:.2f}" for value in values)])
    about = (
        "Test perplexity of the same sentences: in their own documents; in another order; mixed "
        "with those of all documents; each by itself."
    )
    made.append(("What the context is worth", about, cells))
    for place, title in PLACES.items():
        cells = [["model", *ranges()]]
        for row in all_rows:
            values = by_range(row, place)
            cells.append([row.label, *("" if math.isnan(v) else f"{v:.1f}" for v in values)])
        made.append((title, "Test perplexity of the targets there; 1 is the first.", cells))
    return made


def _perplexity_table(all_rows: Sequence[Row]) -> tuple[str, str, list[list[str]]]:
    test = all_rows[0].results[0]["test"]
    objective = all_rows[0].results[0].get("objective", "words")
    header = ["model", "K", "H", "parameters", "seeds", "development", "test", "to rnnlm", "p"]
    cells = [header]
    for row in all_rows:
        to_rnnlm = compare(row, all_rows, "rnnlm")
        relative = ""
        if to_rnnlm is not None:
            relative = f"{100 * (to_rnnlm.ratio - 1):+.1f}%{'' if to_rnnlm.same_recipe else _OTHER}"
        cells.append(
            [
                row.label,
                str(row.config.get("model.embedding_dim", "")),
                str(row.config.get("model.hidden_dim", "")),
                f"{row.results[0]['parameters']:,}",
                str(len(row.results)),
                _number(row, "valid", "perplexity"),
                _number(row, "test", "perplexity"),
                relative,
                _p(to_rnnlm and to_rnnlm.perplexity),
            ]
        )
    about = (
        f"exp(sum NLL / targets), {COUNTING_RULES[objective]}; "
        f"{all_rows[0].results[0]['valid']['tokens']:,} "
        f"development and {test['tokens']:,} test targets, vocabulary "
        f"{test['vocabulary_size']:,}, {100 * test['oov_rate']:.2f}% of the test words unknown. "
        "Means and standard deviations over seeds; p: one-sided z-test over documents that the "
        "likelihood is above that of rnnlm. Rows are compared over the seeds that both have, or "
        f"all if there are none. {_OTHER} rnnlm has another recipe."
    )
    return "Perplexity (Table 2)", about, cells


def _coherence_table(all_rows: Sequence[Row]) -> tuple[str, str, list[list[str]]]:
    first = all_rows[0].results[0]["coherence"]
    cells = [["model", "accuracy %", "standard deviation %", *(f"p, {m}" for m in BASELINES)]]
    for row in all_rows:
        comparisons = [compare(row, all_rows, model) for model in BASELINES]
        cells.append(
            [
                row.label,
                f"{100 * row.mean('coherence', 'mean'):.2f}",
                f"{100 * row.mean('coherence', 'sd'):.2f}",
                *(_p(one and one.coherence) for one in comparisons),
            ]
        )
    afresh = f"drawn from {first['pool']} of each document" if first["pool"] else "made afresh"
    about = (
        f"A document against a permutation of its sentences: {first['replicates']:,} test sets of "
        f"{first['documents']:,} documents, resampled with replacement, permutations {afresh}, "
        "ties count half. p: one-sided z-test over test sets of accuracy against each baseline, "
        "with the error of the pool of permutations, if there is one."
    )
    return "Coherence (Table 3)", about, cells


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
    """The ranges of `BOUNDS` as text, counted from 1."""
    ends = [*BOUNDS[1:], None]
    return [
        f"{first + 1}+" if end is None else str(end) if end == first + 1 else f"{first + 1}-{end}"
        for first, end in zip(BOUNDS, ends, strict=True)
    ]


def by_range(row: Row, place: str) -> list[float]:
    """The perplexity of every range of positions, of all runs of the row together."""
    nll, count = (row.values(place, name).mean(axis=0) for name in ("nll", "count"))
    return context.Sums(nll, count).perplexities(BOUNDS)


def quick_text(runs: Sequence[FinishedRun]) -> str:
    """A table of what runs left, and the rules its numbers were counted by."""
    cells = [["model", "parameters", "test perplexity", "coherence %", "training minutes"]]
    for run in runs:
        cells.append(
            [
                run.label,
                f"{run.evaluation.parameters:,}",
                f"{run.evaluation.perplexity:.2f}",
                f"{100 * run.coherence.mean:.2f}",
                f"{run.seconds / 60:.1f}",
            ]
        )
    first = runs[0].evaluation
    return "\n".join(
        [
            *aligned(cells),
            f"Perplexity = exp(sum NLL / targets) over {first.tokens:,} targets "
            f"(END counted, START not), vocabulary {first.vocabulary_size:,}, OOV rate "
            f"{100 * first.oov_rate:.2f}%.",
            "Coherence: log P(document) > log P(permutation), ties count half, "
            f"{runs[0].coherence.documents:,} documents.",
        ]
    )


def learning_curves(runs: Sequence[FinishedRun]) -> Picture:
    """Development perplexity by training tokens, and beside it the perplexity in training."""
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
    ]
    x = "training tokens (millions)"
    y = "perplexity (log scale): development, dashed in training"
    return Picture("Learning curves", x, y, curves, log_scale=True)


def pictures(all_rows: Sequence[Row]) -> dict[str, Picture]:
    """What there is to draw of the rows, by the names of files."""
    drawn = {}
    for place, title in PLACES.items():
        curves = [Curve(row.label, range(len(BOUNDS)), by_range(row, place)) for row in all_rows]
        drawn[f"{place}.png"] = Picture(
            title, "position", "test perplexity", curves, ticks=ranges()
        )
    if curves := length_curves(all_rows):
        title = "Development log-likelihood by updates (Figure 3)"
        drawn["segment_length.png"] = Picture(title, "updates", "nats a token", curves)
    return drawn


def markdown(all_rows: Sequence[Row], drawn: Mapping[str, Picture]) -> str:
    """The report as text, with links to its `pictures`."""
    parts = []
    for title, about, cells in tables(all_rows):
        header, *body = (f"| {' | '.join(line)} |" for line in cells)
        rule = "|" + "|".join(["---", *["---:"] * (len(cells[0]) - 1)]) + "|"
        parts.append("\n".join([f"## {title}", "", about, "", header, rule, *body]))
    parts += [f"![{picture.title}]({file})" for file, picture in drawn.items()]
    return "\n\n".join(parts) + "\n"


def text(all_rows: Sequence[Row]) -> str:
    """The tables for a terminal."""
    return "\n\n".join("\n".join([title, *aligned(cells)]) for title, _, cells in tables(all_rows))


def to_json(all_rows: Sequence[Row]) -> dict[str, Any]:
    """All numbers of all rows, without those of single documents; positions by `ranges`."""
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "compared": {
                    model: _compared(comparison)
                    for model in BASELINES
                    if (comparison := compare(row, all_rows, model)) is not None
                },
                "runs": [
                    {
                        "seed": seed,
                        **without(result, ("identity", "config", "by_document")),
                        **{place: _positions(row.only([seed]), place) for place in PLACES},
                    }
                    for seed, result in zip(row.seeds, row.results, strict=True)
                ],
            }
            for row in all_rows
        ]
    }


def _positions(row: Row, place: str) -> dict[str, float | None]:
    values = zip(ranges(), by_range(row, place), strict=True)
    return {name: None if math.isnan(value) else value for name, value in values}


def _compared(comparison: Comparison) -> dict[str, Any]:
    return {
        name: value._asdict() if isinstance(value, coherence.ZTest) else value
        for name, value in comparison._asdict().items()
    }


def _number(row: Row, *path: str) -> str:
    values = row.values(*path)
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"


def _p(test: coherence.ZTest | None) -> str:
    if test is None:
        return ""
    return "< 0.0001" if test.p < 0.0001 else f"{test.p:.4f}"
