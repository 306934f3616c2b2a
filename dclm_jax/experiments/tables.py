"""The tables of a report, those of the DCLM paper (Ji et al. 2015) among them, and all its numbers.

What is not measured is blank in a table and missing in CSV and JSON.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dclm_jax.coherence import results as coherence
from dclm_jax.evaluation import context_ablation, measures
from dclm_jax.evaluation.measures import ByPosition
from dclm_jax.evaluation.perplexity import COUNTING_RULES, warning
from dclm_jax.evaluation.significance import ZTest
from dclm_jax.experiments.comparison import (
    Comparison,
    Row,
    compare,
    differing,
    option_text,
    paired,
    symbol,
    without,
)
from dclm_jax.tables import Table, separated

_OTHER = "*"
"""The mark of a comparison with another recipe."""
_CONTEXTS = {
    "own": "original context",
    "shuffled": "shuffled within the document",
    "mixed": "context from other documents",
    "none": "no context",
}
"""Labels of `context_ablation.ARRANGEMENTS`."""


def tables(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Table]:
    """The tables of rows by name. Perplexity is compared with the first of `baselines`, coherence
    with all; see `comparison.paired`."""
    named = {"perplexity": perplexity_table(all_rows, baselines[0])}
    if any(row.has("coherence") for row in all_rows):
        named["coherence"] = coherence_table(all_rows, baselines)
    if any(row.adapted for row in all_rows):
        named["adaptation"] = adaptation_table(all_rows, baselines[0])
    if any(row.has("arrangements") for row in all_rows):
        named["context"] = context_table(all_rows)
    for kind in measures.by_position():
        if any(row.has(kind.name) for row in all_rows):
            named[kind.name] = place_table(all_rows, kind)
    return named


def perplexity_table(all_rows: Sequence[Row], baseline: str) -> Table:
    """Validation and test perplexities, compared with `baseline`."""
    always = ["model.embedding_dim", "model.hidden_dim"]
    configs = [row.config for row in all_rows]
    options = [*always, *(key for key in differing(configs) if key not in always)]
    header = ["model", *map(symbol, options), "parameters", "seeds", "validation", "test"]
    numbers = measures.of_numbers()
    header += ["test, 95%", "test, in-vocabulary", "bits/word", *(kind.header for kind in numbers)]
    cells = [[*header, f"to {baseline}", f"to {baseline}, 95%", "p"]]
    comparisons = [compare(row, all_rows, baseline) for row in all_rows]
    for row, comparison in zip(all_rows, comparisons, strict=True):
        cells.append(
            [
                row.label,
                *(option_text(row.config, key) for key in options),
                f"{row.results[0]['parameters']:,}",
                str(len(row.results)),
                _number(row, "valid", "perplexity") or _best_of_training(row),
                _number(row, "test", "perplexity"),
                _ends(row.perplexity_interval(), "{:.2f}"),
                _number(row, "test", "known_perplexity"),
                _number(row, "test", "bits_per_word"),
                *(_number(row, kind.name) for kind in numbers),
                *_relative(comparison),
                _p(comparison and comparison.perplexity),
            ]
        )
    return Table("Perplexity (Table 2)", _about_perplexity(all_rows, cells, baseline), cells)


def _about_perplexity(
    all_rows: Sequence[Row], cells: Sequence[Sequence[str]], baseline: str
) -> str:
    """How the numbers of the table of perplexities were made, and what to beware of."""
    first = all_rows[0].results[0]
    parts = []
    once = [row.label for row in all_rows if len(row.results) == 1 and row.model != "ngram"]
    if once and len(all_rows) > 1:
        rows = "all rows" if len(once) == len(all_rows) else ", ".join(once)
        parts.append(
            f"One seed of {rows}: another seed may change a perplexity by more than rows differ, "
            "and intervals and p do not include that."
        )
    about = f"Perplexity is exp(sum NLL / targets), {COUNTING_RULES[first['objective']]}"
    measured = [row.results[0] for row in all_rows if row.has("valid") and row.has("test")]
    if measured:
        valid, test = measured[0]["valid"], measured[0]["test"]
        if message := warning(test["oov_rate"], first["own_oov_rate"]):
            parts.insert(0, f"{message}.")
        about += (
            f"; {valid['tokens']:,} validation and {test['tokens']:,} test targets, vocabulary "
            f"{test['vocabulary_size']:,}, OOV rate {100 * test['oov_rate']:.2f}% of the test words"
        )
    parts.append(
        f"{about}. In-vocabulary perplexity leaves OOV words out. Bits per word are the bits of "
        "all targets, END included, over the number of words. Several seeds have means and "
        "standard deviations. 95% intervals are by bootstrap over the test documents, the same "
        "resamples for all rows. p is of the one-sided z-test over documents that the likelihood "
        f"is above that of {baseline}. Rows are compared over the seeds that both have, or over "
        f"all seeds if they share none.{_about_other(cells, baseline)}"
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


def _best_of_training(row: Row) -> str:
    """The best validation perplexity of a single run as training saw it."""
    curve = row.results[0]["curve"] if len(row.results) == 1 else []
    return f"{min(perplexity for _, perplexity in curve):.2f}" if curve else ""


def coherence_table(all_rows: Sequence[Row], baselines: Sequence[str]) -> Table:
    """Coherence of rows, at least one with a result, compared with all `baselines`."""
    first = next(row for row in all_rows if row.has("coherence")).results[0]["coherence"]
    kept = first["keep_first"]
    has_both = any(row.has("first_kept") for row in all_rows)
    cells = [["model", "accuracy, %", "standard deviation, %", "95%"]]
    cells[0] += [f"p, {model}" for model in baselines]
    if not kept:
        cells[0].append("first sentence moved, %")
    if has_both:
        cells[0] += ["first sentence fixed, %", "first sentence fixed, 95%"]
    for row in all_rows:
        comparisons = [compare(row, all_rows, model) for model in baselines]
        cells.append(
            [
                row.label,
                _percent(row, "coherence", "mean"),
                _percent(row, "coherence", "sd"),
                _ends(row.coherence_interval("coherence"), "{:.1%}"),
                *(_p(comparison and comparison.coherence) for comparison in comparisons),
                *([] if kept else [_percent(row, "coherence", "first_sentence")]),
            ]
        )
        if has_both:
            ends = _ends(row.coherence_interval("first_kept"), "{:.1%}")
            cells[-1] += [_percent(row, "first_kept", "mean"), ends]
    pool = f"drawn from {first['pool']} per document" if first["pool"] else "new for each draw"
    about = (
        "Order-discrimination accuracy: how often a document is likelier than a permutation of its "
        f"sentences; 50% is chance, ties count half. There are {first['replicates']:,} test sets "
        f"of {first['documents']:,} documents, drawn with replacement; permutations are {pool}. "
        "95% intervals are 1.96 standard deviations over test sets to each side, with the error of "
        "the pool of permutations; they are about other documents. p is of the one-sided z-test "
        "over test sets against each baseline, with the same error; it is about these documents, "
        "and more test sets make it smaller."
    )
    if kept:
        about += (
            f" The first {kept:,} sentences of each document are fixed; {first['left_out']:,} "
            "documents with fewer than two others are left out."
        )
    else:
        about += (
            " First sentence moved: the other sentences keep their order; a high accuracy means "
            "that first sentences identify the original order."
        )
    if has_both:
        about += (
            " WARNING: they do here. First sentence fixed: only the other sentences are permuted "
            "(--fix_first=1)."
        )
    return Table("Coherence accuracy (Table 3)", about, cells)


def adaptation_table(all_rows: Sequence[Row], baseline: str) -> Table:
    """Perplexities and coherence with test-time adaptation, compared with the baseline of that
    name, adapted alike."""
    paths: dict[str, tuple[str, ...]] = {"without adaptation": ()}
    paths |= {kind: ("adapted", kind) for row in all_rows for kind in row.adapted}
    header = [f"{name}{to}" for name in paths for to in ("", f" to {baseline}")]
    cells = [["model", *header]]
    has_coherence = any(row.has("coherence") for row in all_rows)
    if has_coherence:
        cells[0] += [f"coherence accuracy, {name}, %" for name in paths]
    for row in all_rows:
        pair = paired(row, all_rows, baseline)
        cells.append([row.label])
        for path in paths.values():
            cells[-1].append(_number(row, *path, "test", "perplexity"))
            ratio = ""
            if pair and pair.row.has(*path, "test") and pair.other.has(*path, "test"):
                means = [each.mean(*path, "test", "perplexity") for each in (pair.row, pair.other)]
                ratio = _change(means[0] / means[1], same_recipe=pair.same_recipe)
            cells[-1].append(ratio)
        if has_coherence:
            cells[-1] += [_percent(row, *path, "coherence", "mean") for path in paths.values()]
    about = (
        f"Test perplexity{' and coherence accuracy' if has_coherence else ''} of runs that adapt "
        "to each document while they read it, and forget it at its end: by a neural cache (cache), "
        "a cache of words (unigram) or gradient steps (dynamic). Settings that are not given were "
        f"tuned on the validation set, per run. {baseline} is adapted in the same way."
        f"{_about_other(cells, baseline)}"
    )
    return Table("Test-time adaptation", about, cells)


def context_table(all_rows: Sequence[Row]) -> Table:
    """Perplexities with the context exchanged or removed."""
    cells = [["model", *_CONTEXTS.values()]]
    for row in all_rows:
        values = (
            f"{row.mean('arrangements', name):.2f}" if row.has("arrangements") else ""
            for name in _CONTEXTS
        )
        cells.append([row.label, *values])
    about = (
        "Test perplexity of the same sentences with other contexts: sentences in another order, "
        "sentences of all documents mixed, each sentence as a document."
    )
    return Table("Context ablation", about, cells)


def place_table(all_rows: Sequence[Row], kind: type[ByPosition]) -> Table:
    """Perplexities by position."""
    cells = [["model", *kind.ranges()]]
    for row in all_rows:
        values = _positions(row, kind).values()
        cells.append([row.label, *("" if value is None else f"{value:.1f}" for value in values)])
    about = "Test perplexity of the targets at these positions, counted from 1."
    return Table(kind.title, about, cells)


def runs_table(rows: Sequence[Row]) -> Table:
    """All runs: their seeds, steps and training texts."""
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
        for row in rows
        for seed, result in zip(row.seeds, row.results, strict=True)
    ]
    about = (
        "The model of a run is from the step of its best validation perplexity. Minutes are those "
        "of training. The training text is named by the first characters of its checksum."
    )
    return Table("Runs", about, [header, *cells])


def first_decides(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the first sentence alone gives documents away to some model."""
    measured = [result["coherence"] for result in results if result["coherence"] is not None]
    shares = [result["first_sentence"] for result in measured]
    return any(share is not None and share >= coherence.FIRST_DECIDES for share in shares)


def comma_separated(all_rows: Sequence[Row], baselines: Sequence[str]) -> str:
    """All numbers of rows as comma-separated values, a line a row."""
    records = [_record(row, all_rows, baselines) for row in all_rows]
    names = list(dict.fromkeys(key for record in records for key in record))
    lines = [names, *(map(record.get, names) for record in records)]
    return "".join(separated(cells, ",") for cells in lines)


def _record(
    row: Row, all_rows: Sequence[Row], baselines: Sequence[str]
) -> dict[str, str | float | int]:
    options = differing([row.config for row in all_rows])
    record: dict[str, Any] = {"label": row.label, "model": row.model}
    record |= {key: row.config[key] for key in options if key in row.config}
    record |= {"parameters": row.results[0]["parameters"], "seeds": len(row.results)}
    for name, split in (("development", "valid"), ("test", "test")):
        record |= _spread(row, f"{name}_perplexity", split, "perplexity")
    record |= _pair("test_perplexity", row.perplexity_interval())
    record |= _mean(row, "test_known_perplexity", "test", "known_perplexity")
    record |= _mean(row, "test_bits_per_word", "test", "bits_per_word")
    for name in baselines:
        if (comparison := compare(row, all_rows, name)) is not None:
            record[f"ratio_to_{name}"] = comparison.ratio
            record |= _pair(f"ratio_to_{name}", comparison.interval)
            tests = {"perplexity": comparison.perplexity, "coherence": comparison.coherence}
            record |= {f"p_{measure}_{name}": test.p for measure, test in tests.items() if test}
    for name in ("coherence", "first_kept"):
        record |= _mean(row, name, name, "mean")
        record |= _pair(name, row.coherence_interval(name))
    for kind in row.adapted:
        record |= _spread(row, f"test_perplexity_{kind}", "adapted", kind, "test", "perplexity")
        record |= _mean(row, f"coherence_{kind}", "adapted", kind, "coherence", "mean")
    record |= _mean(row, "first_sentence", "coherence", "first_sentence")
    for name in context_ablation.ARRANGEMENTS:
        record |= _mean(row, name, "arrangements", name)
    for kind in measures.of_numbers():
        record |= _spread(row, kind.name, kind.name)
    for kind in measures.by_position():
        values = _positions(row, kind).items()
        record |= {f"{kind.name}_{name}": value for name, value in values if value is not None}
    return record


def to_json(all_rows: Sequence[Row], baselines: Sequence[str]) -> dict[str, Any]:
    """All numbers of all rows, without those of single documents; positions by `ranges`."""
    hidden = [kind.name for kind in measures.MEASURES if kind.by_document]
    return {
        "rows": [
            {
                "label": row.label,
                "config": row.config,
                "test_interval": row.perplexity_interval(),
                "compared": {
                    name: _compared(comparison)
                    for name in baselines
                    if (comparison := compare(row, all_rows, name)) is not None
                },
                "runs": [
                    {
                        "seed": seed,
                        **without(result, ["config", "learning", *hidden]),
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


def _compared(comparison: Comparison) -> dict[str, Any]:
    return {
        name: value._asdict() if isinstance(value, ZTest) else value
        for name, value in comparison._asdict().items()
    }


def _positions(row: Row, kind: type[ByPosition]) -> dict[str, float | None]:
    """Perplexities by the ranges of positions; None where there is no target."""
    if not row.has(kind.name):
        return dict.fromkeys(kind.ranges())
    values = zip(kind.ranges(), row.sums(kind.name).perplexities.tolist(), strict=True)
    return {name: None if math.isnan(value) else value for name, value in values}


def _measurement(path: Sequence[str]) -> Sequence[str]:
    """The path of the measurement that has the number at `path`, or is that number."""
    return path[:-1] or path


def _spread(row: Row, name: str, *path: str) -> dict[str, float]:
    """The mean over runs and, of several, the standard deviation."""
    if not row.has(*_measurement(path)):
        return {}
    values = row.values(*path)
    several = {f"{name}_sd": float(values.std(ddof=1))} if len(values) > 1 else {}
    return {name: float(values.mean()), **several}


def _mean(row: Row, name: str, *path: str) -> dict[str, float]:
    return {name: row.mean(*path)} if row.has(*path) else {}


def _pair(name: str, ends: list[float] | None) -> dict[str, float]:
    return {} if ends is None else {f"{name}_low": ends[0], f"{name}_high": ends[1]}


def _number(row: Row, *path: str) -> str:
    if not row.has(*_measurement(path)):
        return ""
    values = row.values(*path)
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"


def _percent(row: Row, *path: str) -> str:
    return f"{100 * row.mean(*path):.2f}" if row.has(*path) else ""


def _relative(comparison: Comparison | None) -> tuple[str, str]:
    if comparison is None:
        return "", ""
    ends = comparison.interval and [100 * (end - 1) for end in comparison.interval]
    change = _change(comparison.ratio, same_recipe=comparison.same_recipe)
    return change, _ends(ends, "{:+.1f}%")


def _change(ratio: float, *, same_recipe: bool) -> str:
    return f"{100 * (ratio - 1):+.1f}%{'' if same_recipe else _OTHER}"


def _about_other(cells: Sequence[Sequence[str]], baseline: str) -> str:
    """The meaning of the mark of a table, if it has one."""
    is_there = any(_OTHER in cell for row in cells for cell in row)
    return f" {_OTHER} {baseline} has another recipe." if is_there else ""


def _ends(ends: Sequence[float] | None, form: str) -> str:
    return "" if ends is None else f"[{', '.join(map(form.format, ends))}]"


def _p(test: ZTest | None) -> str:
    if test is None:
        return ""
    return "< 0.0001" if test.p < 0.0001 else f"{test.p:.4f}"
