"""The tables of the DCLM paper (Ji et al. 2015) from rows of measured runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dclm_jax import tables as layout
from dclm_jax.coherence import results as coherence
from dclm_jax.evaluation import context_ablation
from dclm_jax.evaluation.perplexity import COUNTING_RULES, warning
from dclm_jax.evaluation.significance import ZTest
from dclm_jax.experiments.grouping import (
    BASELINES,
    Comparison,
    Row,
    baseline,
    compare,
    differing,
    paired,
    shown_option,
    symbol,
)

BLOCKS = "Coherence by sentences of a block"
_OTHER = "*"


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
    if any(row.blocks for row in all_rows):
        made.append(block_table(all_rows))
    if any(row.adapted for row in all_rows):
        made.append(adaptation_table(all_rows, baselines[0]))
    places = [place_table(all_rows, place) for place in context_ablation.PLACES]
    return [*made, context_table(all_rows), *places]


def context_table(all_rows: Sequence[Row]) -> Table:
    """Perplexities with the context exchanged or removed."""
    cells = [["model", *context_ablation.ARRANGEMENTS]]
    for row in all_rows:
        values = [row.mean("arrangements", name) for name in context_ablation.ARRANGEMENTS]
        cells.append([row.label, *(f"{value:.2f}" for value in values)])
    about = (
        "Test perplexity of the same sentences: in their own documents; in another order; mixed "
        "with those of all documents; each by itself."
    )
    return Table("What the context is worth", about, cells)


def adaptation_table(all_rows: Sequence[Row], name: str) -> Table:
    """Perplexities of rows that adapt themselves to each document, compared with the baseline of
    that name, adapted alike, and their coherence, if it was measured."""
    kinds = dict.fromkeys(kind for row in all_rows for kind in row.adapted)
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
            is_there = [column not in kinds or column in one.adapted for one in (own, other)]
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
        f"To {name}: which adapts itself in the same way.{_about_other(cells, name)}"
    )
    return Table("Adapted to each document", about, cells)


def _about_other(cells: Sequence[Sequence[str]], baseline: str) -> str:
    """What the mark of a table means, if it has one."""
    is_there = any(_OTHER in cell for row in cells for cell in row)
    return f" {_OTHER} {baseline} has another recipe." if is_there else ""


def place_table(all_rows: Sequence[Row], place: str) -> Table:
    """Perplexities by position, `place` is one of context_ablation.PLACES."""
    cells = [["model", *context_ablation.ranges()]]
    for row in all_rows:
        values = row.sums(place).perplexities
        cells.append([row.label, *("" if math.isnan(v) else f"{v:.1f}" for v in values)])
    about = "Test perplexity of the targets there; 1 is the first."
    return Table(context_ablation.PLACES[place], about, cells)


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
                *(shown_option(row.config, key) for key in options),
                f"{row.results[0]['parameters']:,}",
                str(len(row.results)),
                _number(row, "valid", "perplexity"),
                _number(row, "test", "perplexity"),
                _ends(row.perplexity_interval(), "{:.2f}"),
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
        "over the seeds that both have, or all if there are none."
        f"{_about_other(cells, baseline)}"
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
                _ends(row.coherence_interval("coherence"), "{:.1%}"),
                *(_p(one and one.coherence) for one in comparisons),
                *([] if kept else [_percent(row, "coherence", "first_sentence")]),
            ]
        )
        if has_both:
            ends = _ends(row.coherence_interval("first_kept"), "{:.1%}")
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
        about += f" Sentences kept at the start of each document: {kept:,}"
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


def block_table(all_rows: Sequence[Row]) -> Table:
    """Coherence by the size of blocks, of the rows that have it."""
    chosen = [row for row in all_rows if row.blocks]
    paths = chosen[0].blocks
    cells = [["model", *paths]]
    for row in chosen:
        ends = (_ends(row.coherence_interval(*path), "{:.1%}") for path in paths.values())
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
    return Table(BLOCKS, about, cells)


def first_decides(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the first sentence alone gives documents away to some model."""
    found = [one["coherence"]["first_sentence"] for one in results if one["coherence"] is not None]
    return any(share is not None and share >= coherence.FIRST_DECIDES for share in found)


def markdown(made: Sequence[Table], pictures: Mapping[str, str], notes: Sequence[str]) -> str:
    """The report as text, with links to pictures: their titles by the names of files."""
    parts = ["\n".join([f"## {t.title}", "", t.about, "", *layout.markdown(t.cells)]) for t in made]
    parts += [f"![{title}]({file})" for file, title in pictures.items()]
    return "\n\n".join([*parts, *notes]) + "\n"


def latex(made: Sequence[Table]) -> str:
    """The tables for LaTeX."""
    parts = ["\n".join(layout.latex(t.cells, f"{t.title}. {t.about}")) for t in made]
    return "\n\n".join(["% \\usepackage{booktabs}", *parts]) + "\n"


def text(made: Sequence[Table]) -> str:
    """The tables for a terminal."""
    return "\n\n".join("\n".join([title, *layout.aligned(cells)]) for title, _, cells in made)


def _number(row: Row, *path: str) -> str:
    values = row.values(*path)
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"


def _percent(row: Row, *path: str) -> str:
    return f"{100 * row.mean(*path):.2f}" if row.has(*path) else ""


def _ends(ends: Sequence[float] | None, form: str) -> str:
    return "" if ends is None else f"[{', '.join(map(form.format, ends))}]"


def _p(test: ZTest | None) -> str:
    if test is None:
        return ""
    return "< 0.0001" if test.p < 0.0001 else f"{test.p:.4f}"
