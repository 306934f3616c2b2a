"""The tables of a report, including the tables of Ji et al. (2015); missing results are blank."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dclm_jax.coherence.results import Coherence
from dclm_jax.data.encoding import oov_warning
from dclm_jax.evaluation.target_sums import GROUPINGS, Grouping
from dclm_jax.report.results import RunResults
from dclm_jax.report.rows import (
    Comparison,
    Row,
    change_text,
    coherence_of,
    compared,
    differing,
    option_text,
    symbol,
)
from dclm_jax.scoring.perplexity import COUNTING_RULES
from dclm_jax.tables import Column, Table

_OTHER = "*"
"""The mark of a comparison with a different recipe."""
_ADAPTATIONS = {
    "cache": "neural cache",
    "unigram": "unigram cache",
    "dynamic": "dynamic evaluation",
}
"""Labels of the kinds of test-time adaptation."""
ComparisonsByBaseline = Mapping[str, Sequence[Comparison | None]]
"""The comparisons of all rows with a baseline, by the name of the baseline."""


def tables(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Table]:
    """The tables of rows by name. Perplexity is compared with the first of `baselines`, coherence
    with all; see `rows.compared`."""
    comparisons = {name: [compared(row, all_rows, name) for row in all_rows] for name in baselines}
    named = {"perplexity": _perplexity(all_rows, comparisons)}
    if any(row.values("coherence.mean") for row in all_rows):
        named["coherence"] = _coherence(all_rows, comparisons)
    if any(row.adapted for row in all_rows):
        named["adaptation"] = _adaptation(all_rows, comparisons)
    if any(row.values("contexts.none") for row in all_rows):
        named["context"] = _context(all_rows)
    if any(row.values("test.perplexity") for row in all_rows):
        named |= {grouping.name: _by_group(all_rows, grouping) for grouping in GROUPINGS}
    return named


def _labels(all_rows: Sequence[Row]) -> Column:
    return Column("model", [[row.label] for row in all_rows])


def _perplexity(all_rows: Sequence[Row], by_baseline: ComparisonsByBaseline) -> Table:
    """Validation and test perplexities, compared with the first baseline."""
    configs, baseline = [row.config for row in all_rows], next(iter(by_baseline))
    different, columns = differing(configs), [_labels(all_rows)]
    for key in dict.fromkeys(["model.embedding_dim", "model.hidden_dim", *different]):
        values = [[config[key]] if key in config else None for config in configs]
        form = functools.partial(option_text, key)
        columns.append(Column(symbol(key), values, form))
    validation = [_spread(row, "valid.perplexity") or _in_training(row) for row in all_rows]
    if all_rows[0].facts.has_pieces:
        of_text = _spreads(all_rows, "bits/character", "test.bits_per_character")
    else:
        of_text = _spreads(
            all_rows,
            "test, in-vocabulary",
            "test.known_perplexity",
            "In-vocabulary perplexity omits OOV words.",
        )
    comparisons = by_baseline[baseline]
    columns += [
        Column("parameters", [[row.facts.parameters] for row in all_rows], "{:,}".format),
        Column(
            "seeds",
            [[len(row.runs)] for row in all_rows],
            about="Several seeds are shown as mean ± standard deviation.",
        ),
        Column("validation", validation, _mean_text),
        _spreads(all_rows, "test", "test.perplexity"),
        Column(
            "test, 95% interval",
            [row.perplexity_interval() for row in all_rows],
            "[{:.2f}, {:.2f}]".format,
            "95% intervals are from a bootstrap over test documents, with the same resamples for "
            "all rows.",
        ),
        of_text,
        _spreads(
            all_rows,
            "bits/word",
            "test.bits_per_word",
            "Bits per word are the bits of all targets divided by the number of words.",
        ),
        _changes_from(baseline, f"vs {baseline}", comparisons, "test.perplexity"),
        Column(f"vs {baseline}, 95% interval", [c and c.interval for c in comparisons], _changes),
        _p(
            "p",
            "perplexity",
            comparisons,
            "p is from a one-sided z-test over documents: whether the likelihood is higher than "
            f"the likelihood of {baseline}. Two rows are compared over the seeds that both have, "
            f"or over all seeds if they share none.{_without_baseline(all_rows, baseline)}",
        ),
    ]
    about = " ".join(_about_perplexity(all_rows))
    return Table.of("Perplexity (Ji et al. 2015, Table 2)", about, columns)


def _about_perplexity(all_rows: Sequence[Row]) -> list[str]:
    """Warnings, the counting rule, and the numbers of targets and entries."""
    first, parts = all_rows[0].facts, []
    measured = [
        (run.valid.perplexity, run.test.perplexity)
        for row in all_rows
        for run in row.runs
        if run.valid and run.test
    ]
    if measured and (message := oov_warning(measured[0][1].oov_rate, first.usual_oov_rate)):
        parts.append(f"warning: {message}.")
    once = [row.label for row in all_rows if len(row.runs) == 1 and row.model != "ngram"]
    if once and len(all_rows) > 1:
        has_all = len(once) == len(all_rows)
        parts.append(
            f"{'All rows have one seed' if has_all else 'These rows have one seed: '}"
            f"{'' if has_all else '; '.join(once)}. Another seed may change a perplexity by more "
            "than the difference between rows. Intervals and p do not include this variation."
        )
    parts.append(
        f"Perplexity is exp(sum of -log P / targets). Counting: {COUNTING_RULES[first.objective]}."
    )
    if not measured:
        return parts
    valid, test = measured[0]
    parts.append(f"There are {valid.tokens:,} validation and {test.tokens:,} test targets.")
    if not test.has_pieces:
        return [
            *parts,
            f"The vocabulary has {test.vocabulary_size:,} entries, and {100 * test.oov_rate:.2f}% "
            "of the test words are OOV.",
        ]
    parts.append(
        f"The vocabulary has {test.vocabulary_size:,} subwords; targets are words and END. No test "
        "word is OOV. Perplexity is therefore higher than under a vocabulary of words, where "
        "UNKNOWN replaces rare words."
    )
    if test.unpredicted_words:
        parts.append(
            f"{test.unpredicted_words:,} test words that the text itself marks as OOV are read and "
            "not predicted."
        )
    return parts


def _without_baseline(all_rows: Sequence[Row], baseline: str) -> str:
    """A note on rows that are compared with no row of the baseline."""
    blank = [
        row.label
        for row in all_rows
        if compared(row, all_rows, baseline) is None and baseline not in (row.label, row.model)
    ]
    if not blank:
        return ""
    return (
        f" These rows have no baseline: {'; '.join(blank)}. Add a run of {baseline} with the same "
        "recipe, or choose one of the runs or models as --baseline."
    )


def _in_training(row: Row) -> list[float | None] | None:
    """The best validation perplexity of a single run in training."""
    best = row.facts.validation if len(row.runs) == 1 else None
    return None if best is None else [None, None, best]


def _coherence(all_rows: Sequence[Row], by_baseline: ComparisonsByBaseline) -> Table:
    """Coherence accuracy, which at least one row has, compared with all baselines."""
    first = next(filter(None, (row.results(coherence_of) for row in all_rows)))[0]
    results = next(filter(None, (row.results(lambda run: run.coherence) for row in all_rows)))
    fixed, undrawn = first.fix_first, sum(not outcome.pairs for outcome in results[0].documents)
    pool = f"drawn from {first.pool} per document" if first.pool else "new for each draw"
    about_p = (
        "p is from a one-sided paired z-test over documents: whether the accuracy is higher than "
        "the accuracy of the baseline. p does not depend on the number of test sets."
    )
    if undrawn:
        about_p += f" p omits {counted(undrawn, 'document')} that no test set draws."
    columns = [
        _labels(all_rows),
        _percents(
            all_rows,
            "accuracy, %",
            "coherence.mean",
            "Order-discrimination accuracy: how often a document is more probable than a "
            "permutation of its sentences; 50% is chance, ties count half.",
        ),
        _percents(
            all_rows,
            "standard deviation, %",
            "coherence.sd",
            f"There are {first.replicates:,} test sets of {first.documents:,} documents, drawn "
            f"with replacement; permutations are {pool}.",
        ),
        _accuracy_ends(
            all_rows,
            "95% interval",
            coherence_of,
            "95% intervals span 1.96 standard deviations over test sets on each side, including "
            "the sampling error of the pool of permutations. The intervals apply to new documents.",
        ),
        *(
            _p(f"p, {name}", "coherence", comparisons, about_p)
            for name, comparisons in by_baseline.items()
        ),
    ]
    about = ""
    if fixed:
        about = (
            f"The first {'sentence' if fixed == 1 else f'{fixed:,} sentences'} of each document "
            f"{'is' if fixed == 1 else 'are'} fixed; "
            f"{counted(first.omitted, 'document')} with fewer than two other sentences "
            f"{'is' if first.omitted == 1 else 'are'} omitted."
        )
    else:
        columns.append(
            _percents(
                all_rows,
                "first sentence moved, %",
                "coherence.first_sentence",
                "First sentence moved: the other sentences keep their order; a high accuracy means "
                "that first sentences identify the original order.",
            )
        )
    if any(row.values("first_fixed.mean") for row in all_rows):
        header = "first sentence fixed"
        columns += [
            _percents(
                all_rows,
                f"{header}, %",
                "first_fixed.mean",
                "WARNING: first sentences identify the order. First sentence fixed: only the other "
                "sentences are permuted (--fix_first=1).",
            ),
            _accuracy_ends(all_rows, f"{header}, 95% interval", lambda run: run.first_fixed),
        ]
    return Table.of("Coherence accuracy (Ji et al. 2015, Table 3)", about, columns)


def _adaptation(all_rows: Sequence[Row], by_baseline: ComparisonsByBaseline) -> Table:
    """Perplexities and coherence accuracy with test-time adaptation, compared with the baseline
    with the same adaptation."""
    kinds = dict.fromkeys(kind for row in all_rows for kind in row.adapted)
    baseline = next(iter(by_baseline))
    names = {"": "without adaptation"}
    names |= {f"adapted.{kind}.": _ADAPTATIONS[kind] for kind in kinds}
    columns = [_labels(all_rows)]
    for prefix, name in names.items():
        number = f"{prefix}test.perplexity"
        columns.append(_spreads(all_rows, f"test perplexity, {name}", number))
        header = f"{name} vs {baseline}"
        columns.append(_changes_from(baseline, header, by_baseline[baseline], number))
    has_coherence = any(row.values("coherence.mean") for row in all_rows)
    for prefix, name in names.items() if has_coherence else ():
        header = f"coherence accuracy, {name}, %"
        columns.append(_percents(all_rows, header, f"{prefix}coherence.mean"))
    about = (
        "The table has the test perplexity"
        f"{' and the coherence accuracy' if has_coherence else ''} of runs that adapt to each "
        "document while they read it, by a neural cache, a unigram cache, or gradient steps "
        "(dynamic evaluation). Before every document, caches are emptied and the model returns to "
        "its trained parameters. Settings without a flag were tuned on the validation set for each "
        "run. "
        f"{baseline} is adapted in the same way."
    )
    return Table.of("Test-time adaptation", about, columns)


def _context(all_rows: Sequence[Row]) -> Table:
    """Perplexities with the context replaced or removed."""
    names = {
        "original context": "test.perplexity",
        "shuffled within the document": "contexts.shuffled",
        "context of other documents": "contexts.other",
        "no context": "contexts.none",
    }
    columns = [_labels(all_rows)]
    columns += [
        Column(label, [_mean(row, name) for row in all_rows], "{:.2f}".format)
        for label, name in names.items()
    ]
    about = (
        "The table has the test perplexity of the same sentences with different contexts: the "
        "original context, shuffled sentences of the document, the sentences of another document "
        "of the split, and no context (each sentence is a document)."
    )
    return Table.of("Context ablation", about, columns)


def _by_group(all_rows: Sequence[Row], grouping: Grouping) -> Table:
    """Perplexities by the groups of targets."""
    perplexities = [row.group_perplexities(grouping) for row in all_rows]
    columns = [_labels(all_rows)]
    for name in grouping.groups:
        values = [None if by_group[name] is None else [by_group[name]] for by_group in perplexities]
        columns.append(Column(name, values, "{:.1f}".format))
    return Table.of(grouping.title, grouping.about, columns)


def runs_table(rows: Sequence[Row]) -> Table:
    """All runs: their seeds, steps and training texts."""
    runs = [run.facts for row in rows for run in row.runs]
    columns = [
        Column("configuration", [[row.label] for row in rows for _ in row.runs]),
        Column("seed", [[run.seed] for run in runs]),
        Column("run", [[run.workdir] for run in runs]),
        Column("step", [None if run.step is None else [run.step] for run in runs], "{:,}".format),
        Column(
            "training time, minutes",
            [None if run.seconds is None else [run.seconds / 60] for run in runs],
            "{:.1f}".format,
        ),
        Column("checksum of the training text", [[run.training_text or ""] for run in runs]),
    ]
    about = (
        "The model of a run is from the step of its best validation perplexity. The training text "
        "is identified by the first characters of its checksum."
    )
    return Table.of("Runs", about, columns)


def _spread(row: Row, name: str) -> list[float | None] | None:
    """The mean of a number over runs and, for several runs, the standard deviation."""
    values = row.values(name)
    if values is None:
        return None
    return [float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None]


def _mean(row: Row, name: str) -> list[float] | None:
    mean = row.mean(name)
    return None if mean is None else [mean]


def _spreads(rows: Sequence[Row], header: str, name: str, about: str = "") -> Column:
    return Column(header, [_spread(row, name) for row in rows], _mean_text, about)


def _mean_text(mean: float | None, sd: float | None, in_training: float = math.nan) -> str:
    if mean is None:
        return f"{in_training:.2f}"
    return f"{mean:.2f}" if sd is None else f"{mean:.2f} ± {sd:.2f}"


def _percents(rows: Sequence[Row], header: str, name: str, about: str = "") -> Column:
    """Shares between 0 and 1, shown in percent."""
    values = [_mean(row, name) for row in rows]
    return Column(header, values, _percent_text, about)


def _percent_text(share: float) -> str:
    return f"{100 * share:.2f}"


def _accuracy_ends(
    rows: Sequence[Row],
    header: str,
    get: Callable[[RunResults], Coherence | None],
    about: str = "",
) -> Column:
    values = [row.coherence_interval(get) for row in rows]
    return Column(header, values, "[{:.1%}, {:.1%}]".format, about)


def _p(header: str, test: str, comparisons: Sequence[Comparison | None], about: str) -> Column:
    """The p-value of each comparison with a baseline."""
    tests = [comparison and getattr(comparison, f"{test}_test") for comparison in comparisons]
    return Column(header, [result and [result.p] for result in tests], _p_text, about)


def _changes_from(
    baseline: str, header: str, comparisons: Sequence[Comparison | None], name: str
) -> Column:
    """Changes of a number against a baseline; a mark where the baseline has another recipe."""
    ratios = [
        None
        if comparison is None or (ratio := comparison.ratio(name)) is None
        else [ratio, comparison.same_recipe]
        for comparison in comparisons
    ]
    is_marked = any(ratio and not ratio[1] for ratio in ratios)
    about = f"The mark {_OTHER} means that {baseline} has a different recipe." if is_marked else ""
    return Column(header, ratios, _change, about)


def _p_text(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _change(ratio: float, same_recipe: bool) -> str:
    return f"{change_text(ratio)}{'' if same_recipe else _OTHER}"


def _changes(low: float, high: float) -> str:
    return f"[{change_text(low)}, {change_text(high)}]"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
