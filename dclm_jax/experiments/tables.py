"""The tables of a report, including the tables of Ji et al. (2015), and all its numbers.

Missing measurements are blank in tables and absent in JSON.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax.coherence import results as coherence
from dclm_jax.evaluation import measures
from dclm_jax.evaluation.measures import ByPosition
from dclm_jax.evaluation.perplexity import COUNTING_RULES, warning
from dclm_jax.evaluation.significance import ZTest
from dclm_jax.experiments.comparison import (
    Comparison,
    Pair,
    Row,
    change_text,
    compare,
    differing,
    option_text,
    paired,
    symbol,
    without,
)
from dclm_jax.tables import Column, Table

_OTHER = "*"
"""The mark of a comparison with a different recipe."""
_CONTEXTS = {
    "own": "original context",
    "shuffled": "shuffled within the document",
    "mixed": "context from other documents",
    "none": "no context",
}
"""Labels of the original context and of `context_ablation.ARRANGEMENTS`."""
_ADAPTATIONS = {
    "cache": "neural cache",
    "unigram": "unigram cache",
    "dynamic": "dynamic evaluation",
}
"""Labels of the kinds of test-time adaptation."""
Compared = Mapping[str, Sequence[Comparison | None]]
"""The comparisons of all rows with a baseline, by the name of the baseline."""


def tables(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Table]:
    """The tables of rows by name. Perplexity is compared with the first of `baselines`, coherence
    with all; see `comparison.paired`."""
    compared = {name: [compare(row, all_rows, name) for row in all_rows] for name in baselines}
    named = {"perplexity": _perplexity(all_rows, compared)}
    if any(row.has("coherence") for row in all_rows):
        named["coherence"] = _coherence(all_rows, compared)
    if any(row.adapted for row in all_rows):
        named["adaptation"] = _adaptation(all_rows, baselines[0])
    if any(row.has("arrangements") for row in all_rows):
        named["context"] = _context(all_rows)
    for kind in measures.by_position():
        if any(row.has(kind.name) for row in all_rows):
            named[kind.name] = _by_position(all_rows, kind)
    return named


def _labels(all_rows: Sequence[Row]) -> Column:
    return Column("model", [[row.label] for row in all_rows])


def _perplexity(all_rows: Sequence[Row], compared: Compared) -> Table:
    """Validation and test perplexities, compared with the first baseline."""
    configs, baseline = [row.config for row in all_rows], next(iter(compared))
    different, columns = differing(configs), [_labels(all_rows)]
    for key in dict.fromkeys(["model.embedding_dim", "model.hidden_dim", *different]):
        values = [[config[key]] if key in config else None for config in configs]
        form = functools.partial(option_text, key)
        columns.append(Column(symbol(key), values, form))
    parameters = [[row.results[0]["parameters"]] for row in all_rows]
    intervals = [row.perplexity_interval() for row in all_rows]
    validation = [_spread(row, "valid", "perplexity") or _in_training(row) for row in all_rows]
    columns += [
        Column("parameters", parameters, "{:,}".format),
        Column("seeds", [[len(row.results)] for row in all_rows]),
        Column("validation", validation, _mean_text),
        _spreads(all_rows, "test", "test", "perplexity"),
        Column("test, 95% interval", intervals, "[{:.2f}, {:.2f}]".format),
        _spreads(all_rows, "test, in-vocabulary", "test", "known_perplexity"),
        _spreads(all_rows, "bits/word", "test", "bits_per_word"),
    ]
    comparisons = compared[baseline]
    ratios = [each and [each.ratio, each.same_recipe] for each in comparisons]
    ends = [each and each.interval for each in comparisons]
    columns += [
        Column(f"vs {baseline}", ratios, _change),
        Column(f"vs {baseline}, 95% interval", ends, _changes),
        _p("p", "perplexity", comparisons),
    ]
    about = _about_perplexity(all_rows, columns, baseline)
    return Table.of("Perplexity (Ji et al. 2015, Table 2)", about, columns)


def _about_perplexity(all_rows: Sequence[Row], columns: Sequence[Column], baseline: str) -> str:
    """The description of the table of perplexities: method, counts and warnings."""
    first = all_rows[0].results[0]
    parts = []
    once = [row.label for row in all_rows if len(row.results) == 1 and row.model != "ngram"]
    if once and len(all_rows) > 1:
        has_all = len(once) == len(all_rows)
        parts.append(
            f"{'All rows have one seed' if has_all else 'These rows have one seed: '}"
            f"{'' if has_all else '; '.join(once)}. Another seed may change a perplexity by more "
            "than the difference between rows. Intervals and p do not include this variation."
        )
    rule = COUNTING_RULES[first["objective"]]
    about = f"Perplexity is exp(sum of -log P / targets). Counting: {rule}."
    measured = [row.results[0] for row in all_rows if row.has("valid") and row.has("test")]
    if measured:
        valid, test = measured[0]["valid"], measured[0]["test"]
        if message := warning(test["oov_rate"], first["own_oov_rate"]):
            parts.insert(0, f"warning: {message}.")
        about += (
            f" There are {valid['tokens']:,} validation and {test['tokens']:,} test targets. The "
            f"vocabulary has {test['vocabulary_size']:,} entries, and "
            f"{100 * test['oov_rate']:.2f}% of the test words are OOV."
        )
    parts.append(
        f"{about} In-vocabulary perplexity omits OOV words. Bits per word are the bits of all "
        "targets, including END, divided by the number of words. Several seeds are shown as mean ± "
        "standard deviation. 95% intervals are from a bootstrap over test documents, with the same "
        "resamples for all rows. p is from a one-sided z-test over documents: whether the "
        f"likelihood is higher than the likelihood of {baseline}. Two rows are compared over the "
        "seeds that both have, or over all seeds if they share none."
        f"{_about_other(columns, baseline)}"
    )
    blank = [
        row.label
        for row in all_rows
        if paired(row, all_rows, baseline) is None and baseline not in (row.label, row.model)
    ]
    if blank:
        parts.append(
            f"These rows have no baseline: {'; '.join(blank)}. Add a run of {baseline} with the "
            "same recipe, or choose one of the runs or models as --baseline."
        )
    return " ".join(parts)


def _in_training(row: Row) -> list[float | None] | None:
    """The best validation perplexity of a single run from its training log, only for the table."""
    curve = row.results[0]["curve"] if len(row.results) == 1 else []
    return [None, None, min(perplexity for _, perplexity in curve)] if curve else None


def _coherence(all_rows: Sequence[Row], compared: Compared) -> Table:
    """Coherence accuracy, which at least one row has, compared with all baselines."""
    first = next(row for row in all_rows if row.has("coherence")).results[0]["coherence"]
    fixed = first["keep_first"]
    has_both = any(row.has("first_kept") for row in all_rows)
    columns = [
        _labels(all_rows),
        _percents(all_rows, "accuracy, %", "coherence", "mean"),
        _percents(all_rows, "standard deviation, %", "coherence", "sd"),
        _accuracy_ends(all_rows, "95% interval", "coherence"),
    ]
    columns += [_p(f"p, {name}", "coherence", each) for name, each in compared.items()]
    if not fixed:
        path = "coherence", "first_sentence"
        columns.append(_percents(all_rows, "first sentence moved, %", *path))
    if has_both:
        header, key = "first sentence fixed", "first_kept"
        columns.append(_percents(all_rows, f"{header}, %", key, "mean"))
        columns.append(_accuracy_ends(all_rows, f"{header}, 95% interval", key))
    pool = f"drawn from {first['pool']} per document" if first["pool"] else "new for each draw"
    about = (
        "Order-discrimination accuracy: how often a document is more probable than a permutation "
        "of its sentences; 50% is chance, ties count half. There are "
        f"{first['replicates']:,} test sets of {first['documents']:,} documents, drawn with "
        f"replacement; permutations are {pool}. 95% intervals span 1.96 standard deviations over "
        "test sets on each side, including the sampling error of the pool of permutations. The "
        "intervals apply to new documents. p is from a one-sided z-test over test sets against "
        "each baseline and includes the sampling error of the pool. p applies only to these "
        "documents, and the p of a better row decreases as the number of test sets grows."
    )
    if fixed:
        about += (
            f" The first {'sentence' if fixed == 1 else f'{fixed:,} sentences'} of each document "
            f"{'is' if fixed == 1 else 'are'} fixed; "
            f"{counted(first['left_out'], 'document')} with fewer than two other sentences "
            f"{'is' if first['left_out'] == 1 else 'are'} omitted."
        )
    else:
        about += (
            " First sentence moved: the other sentences keep their order; a high accuracy means "
            "that first sentences identify the original order."
        )
    if has_both:
        about += (
            " WARNING: first sentences identify the order. First sentence fixed: only the "
            "other sentences are permuted (--fix_first=1)."
        )
    return Table.of("Coherence accuracy (Ji et al. 2015, Table 3)", about, columns)


def _adaptation(all_rows: Sequence[Row], baseline: str) -> Table:
    """Perplexities and coherence accuracy with test-time adaptation, compared with the baseline
    with the same adaptation."""
    kinds = dict.fromkeys(kind for row in all_rows for kind in row.adapted)
    paths: dict[str, list[str]] = {"": []}
    paths |= {kind: ["adapted", kind] for kind in kinds}
    names = {"": "without adaptation", **{kind: _ADAPTATIONS[kind] for kind in kinds}}
    columns = [_labels(all_rows)]
    for kind, path in paths.items():
        ratios = [_ratio(paired(row, all_rows, baseline), path) for row in all_rows]
        header = f"test perplexity, {names[kind]}"
        columns.append(_spreads(all_rows, header, *path, "test", "perplexity"))
        columns.append(Column(f"{names[kind]} vs {baseline}", ratios, _change))
    has_coherence = any(row.has("coherence") for row in all_rows)
    for kind, path in paths.items() if has_coherence else ():
        header = f"coherence accuracy, {names[kind]}, %"
        columns.append(_percents(all_rows, header, *path, "coherence", "mean"))
    about = (
        "The table has the test perplexity"
        f"{' and the coherence accuracy' if has_coherence else ''} of runs that adapt to each "
        "document while they read it, by a neural cache, a unigram cache, or gradient steps "
        "(dynamic evaluation). Before every document, caches are emptied and the model returns to "
        "its trained parameters. Settings without a flag were tuned on the validation set for each "
        "run. "
        f"{baseline} is adapted in the same way."
        f"{_about_other(columns, baseline)}"
    )
    return Table.of("Test-time adaptation", about, columns)


def _ratio(pair: Pair | None, path: Sequence[str]) -> list[Any] | None:
    """The ratio of test perplexities at `path`, and whether both rows have the same recipe."""
    if pair is None or not (pair.row.has(*path, "test") and pair.other.has(*path, "test")):
        return None
    mean, other = (row.mean(*path, "test", "perplexity") for row in (pair.row, pair.other))
    return [mean / other, pair.same_recipe]


def _context(all_rows: Sequence[Row]) -> Table:
    """Perplexities with the context replaced or removed."""
    columns = [_labels(all_rows)]
    for name, label in _CONTEXTS.items():
        values = [_mean(row, "arrangements", name) for row in all_rows]
        columns.append(Column(label, values, "{:.2f}".format))
    about = (
        "The table has the test perplexity of the same sentences with different contexts: the "
        "original context, shuffled sentences of the document, sentences of other documents, and "
        "no context (each sentence is a document)."
    )
    return Table.of("Context ablation", about, columns)


def _by_position(all_rows: Sequence[Row], kind: type[ByPosition]) -> Table:
    """Perplexities by position."""
    columns, perplexities = [_labels(all_rows)], [_positions(row, kind) for row in all_rows]
    for name in kind.ranges():
        values = [
            None if row_values[name] is None else [row_values[name]] for row_values in perplexities
        ]
        columns.append(Column(name, values, "{:.1f}".format))
    about = "The table has the test perplexity of the targets at these positions, counted from 1."
    return Table.of(kind.title, about, columns)


def runs_table(rows: Sequence[Row]) -> Table:
    """All runs: their seeds, steps and training texts."""
    runs = [result for row in rows for result in row.results]
    steps, seconds = ([run[key] for run in runs] for key in ("step", "seconds"))
    columns = [
        Column("configuration", [[row.label] for row in rows for _ in row.results]),
        Column("seed", [[seed] for row in rows for seed in row.seeds]),
        Column("run", [[run["workdir"]] for run in runs]),
        Column("step", [None if step is None else [step] for step in steps], "{:,}".format),
        Column(
            "training time, minutes",
            [None if s is None else [s / 60] for s in seconds],
            "{:.1f}".format,
        ),
        Column("checksum of the training text", [[run["training_text"] or ""] for run in runs]),
    ]
    about = (
        "The model of a run is from the step of its best validation perplexity. The training text "
        "is identified by the first characters of its checksum."
    )
    return Table.of("Runs", about, columns)


def first_decides(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some model identifies the order of documents from the first sentence."""
    measured = [result["coherence"] for result in results if result["coherence"] is not None]
    shares = [result["first_sentence"] for result in measured]
    return any(share is not None and share >= coherence.FIRST_DECIDES for share in shares)


def to_json(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Any]:
    """All numbers of all rows, without numbers of single documents; positions by `ranges`."""
    hidden = [kind.name for kind in measures.MEASURES]
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "test_interval": row.perplexity_interval(),
                "compared": {
                    name: _json_of(comparison)
                    for name in baselines
                    if (comparison := compare(row, all_rows, name)) is not None
                },
                "runs": [
                    {
                        "seed": seed,
                        **without(result, ["config", *hidden]),
                        **{
                            kind.name: _positions(row.only([seed]), kind)
                            for kind in measures.by_position()
                        },
                    }
                    for seed, result in zip(row.seeds, row.results, strict=True)
                ],
            }
            for row in all_rows
        ]
    }


def _json_of(comparison: Comparison) -> dict[str, Any]:
    return {
        name: value._asdict() if isinstance(value, ZTest) else value
        for name, value in comparison._asdict().items()
    }


def _positions(row: Row, kind: type[ByPosition]) -> dict[str, float | None]:
    """Perplexities by the ranges of positions; None for a range without targets."""
    if not row.has(kind.name):
        return dict.fromkeys(kind.ranges())
    values = zip(kind.ranges(), row.sums(kind.name).perplexities.tolist(), strict=True)
    return {name: None if math.isnan(value) else value for name, value in values}


def _spread(row: Row, *path: str) -> list[float | None] | None:
    """The mean over runs and, for several runs, the standard deviation."""
    if not row.has(*(path[:-1] or path)):
        return None
    values = row.values(*path)
    return [float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None]


def _mean(row: Row, *path: str) -> list[float] | None:
    return [row.mean(*path)] if row.has(*path) else None


def _spreads(rows: Sequence[Row], header: str, *path: str) -> Column:
    return Column(header, [_spread(row, *path) for row in rows], _mean_text)


def _mean_text(mean: float | None, sd: float | None, in_training: float = math.nan) -> str:
    if mean is None:
        return f"{in_training:.2f}"
    return f"{mean:.2f}" if sd is None else f"{mean:.2f} ± {sd:.2f}"


def _percents(rows: Sequence[Row], header: str, *path: str) -> Column:
    """Shares between 0 and 1, shown in percent."""
    values = [_mean(row, *path) for row in rows]
    return Column(header, values, lambda share: f"{100 * share:.2f}")


def _accuracy_ends(rows: Sequence[Row], header: str, name: str) -> Column:
    values = [row.coherence_interval(name) for row in rows]
    return Column(header, values, "[{:.1%}, {:.1%}]".format)


def _p(header: str, test: str, comparisons: Sequence[Comparison | None]) -> Column:
    """The p-value of each comparison with a baseline."""
    tests = [each and getattr(each, test) for each in comparisons]
    return Column(header, [each and [each.p] for each in tests], _p_text)


def _p_text(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _change(ratio: float, same_recipe: bool) -> str:
    return f"{change_text(ratio)}{'' if same_recipe else _OTHER}"


def _changes(low: float, high: float) -> str:
    return f"[{change_text(low)}, {change_text(high)}]"


def _about_other(columns: Sequence[Column], baseline: str) -> str:
    """The explanation of the mark `_OTHER`, if the mark occurs in a table."""
    is_there = any(_OTHER in cell for column in columns for cell in column.texts())
    return f" The mark {_OTHER} means that {baseline} has a different recipe." if is_there else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
