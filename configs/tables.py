"""Writes the result tables of the documents from the saved results: `python -m configs.tables`.

In a Markdown file the line `<!-- table: NAME -->` stands before table NAME, whose lines the command
replaces. The name is `headline` or FOLDER/TITLE, where the table is made from the files
`configs/FOLDER/results/*.json`. A JSON file with a header and rows is a table copied from a
document, because the raw results of its runs were not saved.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from dclm_jax.errors import InputError, did_you_mean
from dclm_jax.evaluation.significance import interval_text
from dclm_jax.files import write_bytes
from dclm_jax.tables import markdown

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("*.md", "configs/**/*.md", "dclm_jax/**/*.md", "launch/**/*.md")
_MARKED = re.compile(r"^<!-- table: (\S+) -->\n(?:\|.*\n)*", re.MULTILINE)

_HEADLINE = ("`rnnlm`", "`drnnlm`", "`ccdclm`", "`adclm`", "`pointer_drnnlm`")
"""The models of the table in README.md."""

Cells = list[list[str]]
Run = dict[str, Any]


class Row(NamedTuple):
    """A row of a table: its runs, one per seed, and the runs of its baseline."""

    label: str
    runs: Sequence[Run]
    baseline: Sequence[Run] = ()

    def values(self, *path: str) -> list[Any]:
        return _values(self.runs, path)

    def mean(self, *path: str) -> str:
        """The mean and, if there are several values, the standard deviation."""
        values = self.values(*path)
        deviation = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        return f"{mean(values):.2f}{deviation}" if values else ""

    def change(self, *path: str) -> str:
        """The change of a mean relative to the baseline, over common seeds."""
        seeds = self.values("seed")
        baseline = [run for run in self.baseline if run["seed"] in seeds]
        if not baseline or baseline[0] is self.runs[0]:
            return ""
        change = 100 * (mean(self.values(*path)) / mean(_values(baseline, path)) - 1)
        return f"{round(change, 1) + 0:+.1f}%"


def _values(runs: Iterable[Run], path: Iterable[str]) -> list[Any]:
    """The values at a path of keys, of the runs that have a value."""
    values: list[Any] = list(runs)
    for key in path:
        values = [value[key] for value in values if value.get(key) is not None]
    return values


def _coherence(row: Row) -> str:
    """The accuracy and its standard deviation over test sets, each a mean over runs."""
    means, deviations = row.values("coherence", "mean"), row.values("coherence", "sd")
    return f"{100 * mean(means):.2f} ({100 * mean(deviations):.2f})" if means else ""


def _curve(row: Row) -> str:
    return ", ".join(f"{perplexity:.1f}" for _, perplexity in row.runs[0]["curve"])


def _option(key: str) -> Callable[[Row], str]:
    return lambda row: str(row.runs[0]["config"][key])


def _context(name: str) -> Callable[[Row], str]:
    return lambda row: f"{mean(row.values('contexts', name)):.2f}"


def _effect(row: Row) -> str:
    """The change of the mean perplexity from no context to the original context."""
    original, none = (mean(row.values("contexts", name)) for name in ("original", "none"))
    return f"{round(100 * (original / none - 1), 1) + 0:+.1f}%"


_COLUMNS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "seed": ("seed", lambda row: str(row.runs[0]["seed"])),
    "seeds": ("seeds", lambda row: str(len(row.runs))),
    "parameters": ("parameters", lambda row: f"{row.runs[0]['parameters']:,}"),
    "size": ("K = H", _option("model.hidden_dim")),
    "L": ("L", _option("data.segment_length")),
    "batch": ("segments per step", _option("data.batch_size")),
    "rate": ("learning rate", _option("optimizer.learning_rate")),
    "schedule": ("schedule", _option("optimizer.schedule")),
    "epochs": ("epochs", _option("training.epochs")),
    "frozen": ("frozen", _option("training.frozen")),
    "minutes": ("minutes", lambda row: f"{row.runs[0]['seconds'] / 60:.0f}"),
    "curve": ("validation perplexity, by epoch", _curve),
    "valid": ("validation perplexity", lambda row: row.mean("valid", "perplexity")),
    "test": ("test perplexity", lambda row: row.mean("test", "perplexity")),
    "published": ("per published token", lambda row: row.mean("test", "original_perplexity")),
    "change": ("change vs `rnnlm`", lambda row: row.change("test", "perplexity")),
    "coherence": ("coherence accuracy, % (sd)", _coherence),
    "original": ("original context", _context("original")),
    "shuffled": ("shuffled within the document", _context("shuffled")),
    "mixed": ("sentences mixed between documents", _context("mixed")),
    "none": ("no context", _context("none")),
    "effect": ("original against no context", _effect),
}
_MODEL = "parameters seeds valid test change coherence"


def _table(rows: Iterable[Row], columns: str, first: str = "model") -> Cells:
    names, cells = zip(*map(_COLUMNS.__getitem__, columns.split()), strict=True)
    return [[first, *names], *([row.label, *(cell(row) for cell in cells)] for row in rows)]


def _load(path: str) -> Any:
    return json.loads((ROOT / "configs" / path).read_text("utf-8"))


def _report(path: str) -> list[Row]:
    """The rows of a report, with the first row as baseline and each run's configuration."""
    runs = [[run | {"config": row["config"]} for run in row["runs"]] for row in _load(path)["rows"]]
    return [Row(_model(row[0]), row, runs[0]) for row in runs]


def _model(run: Run) -> str:
    return f"`{run['config']['model.name']}`"


def _by_run(rows: Iterable[Row]) -> list[Row]:
    return [Row(row.label, [run]) for row in rows for run in row.runs]


def _named(rows: Iterable[Row], names: Mapping[str, str]) -> list[Row]:
    """Rows by label, with the runs whose workdirs end in the given names; the first row is the
    baseline."""
    by_name = {run["workdir"].split("/")[-1]: run for row in rows for run in row.runs}
    runs = {label: [by_name[name] for name in text.split()] for label, text in names.items()}
    return [Row(label, row, next(iter(runs.values()))) for label, row in runs.items()]


def _ptb() -> dict[str, Cells]:
    path = "ptb/results/report.json"
    rows = _report(path)
    models = _table(rows, _MODEL)
    models[0] += [
        "p (perplexity)",
        *(f"Ji et al.: {name}" for name in ("validation", "test", "coherence")),
    ]
    published = _load("ptb/results/published.json")["models"]
    for row, cells in zip(_load(path)["rows"], models[1:], strict=True):
        p = row["compared"]["rnnlm"]["perplexity"]["p"] if "rnnlm" in row["compared"] else None
        cells += ["" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"]
        cells += published[row["label"]]
    places = list(rows[0].runs[0]["by_token"])
    positions = [[row.label, *(row.change("by_token", n) for n in places)] for row in rows]
    positions[0][1:] = [f"{mean(rows[0].values('by_token', n)):.1f}" for n in places]
    choices = _by_run(_report("ptb/results/choices.json"))
    return {
        "ptb/models": models,
        "ptb/runs": _table(_by_run(rows), "seed minutes curve test coherence"),
        "ptb/contexts": _table(rows, "original shuffled mixed none effect", "test perplexity"),
        "ptb/positions": [["word of the sentence", *places], *positions],
        "ptb/choices": _table(choices, "size rate L batch valid test none"),
    }


_CARRIED = "`adclm`, context carried"
_AVERAGED = f"{_CARRIED}, factorized, EMA"
_MODERN = {
    "`rnnlm`": "rnnlm1 rnnlm-1",
    "`drnnlm`": "drnnlm drnnlm-1",
    "`hrnnlm`": "hrnnlm-0",
    "`ccdclm`": "ccdclm1",
    "`ccdclm`, two layers": "ccdclm",
    "`ccdclm`, context carried": "ccdclm-carry-0",
    "`codclm`": "codclm1",
    "`adclm`": "adclm",
    _CARRIED: "carried carried-1",
    "`rlm_bow_lf`, n = 8": "rlm_bow_lf-8-0",
    "`pointer_drnnlm`, context carried": "pointer-carried",
}
_AVERAGES = {"`rnnlm`": "rnnlm", _CARRIED: "adclm", _AVERAGED: "factorised"}
_ADAPTED = {
    f"{_CARRIED}, seed 0": "adapted_carried",
    f"{_CARRIED}, seed 1": "adapted_carried_1",
    "`rnnlm`, EMA": "adapted_rnnlm",
    f"{_CARRIED}, EMA": "adapted_adclm",
    _AVERAGED: "adapted_factorised",
}
"""The ends of the workdirs, or the keys of the results, of runs by label."""


def _modern() -> dict[str, Cells]:
    reports = [_report(f"modern/results/{name}.json") for name in ("report", "carried", "pointer")]
    models = _named([row for report in reports for row in report], _MODERN)
    averages = _named(_report("modern/results/averages.json"), _AVERAGES)
    starts = {"segments from c_0": "ccdclm", "context carried": "ccdclm-carry"}
    contexts = _named(_report("modern/results/contexts.json"), starts)
    saved = _load("modern/results/carried.json") | _load("modern/results/averages.json")
    adapted = [
        (label, evaluation)
        for label, key in _ADAPTED.items()
        for evaluation in saved[key]["adapted"]
    ]
    return {
        "modern/models": _table(models, f"{_MODEL} shuffled mixed none"),
        "modern/carried": _table(contexts, "curve test coherence shuffled mixed none", "`ccdclm`"),
        "modern/averages": _table(averages, "parameters minutes curve test coherence none"),
        "modern/adaptation": _adapted(adapted),
    }


def _adapted(evaluations: Iterable[tuple[str, Run]]) -> Cells:
    """Perplexities with test-time adaptation, by label; for WikiText-2 also per published token."""
    cells = []
    for label, evaluation in evaluations:
        values = evaluation["setting"].items()
        setting = ", ".join(f"{key} {round(value, 4):g}" for key, value in values)
        perplexities = [evaluation["perplexity"], evaluation.get("original_perplexity")]
        measured = [f"{value:.2f}" for value in perplexities if value is not None]
        cells.append([label, evaluation["adapt"], setting, *measured])
    header = ["model", "adaptation", "setting", "test perplexity", "per published token"]
    return [header[: len(cells[0])], *cells]


def _headline(header: list[str], *rows: list[str]) -> Cells:
    """The recorded results of the recipe for GPUs beside those of the paper's recipe."""
    (_, *names), *cells = _table(_report("ptb/results/report.json"), "seeds test coherence")
    paper = {label: measured for label, *measured in cells}
    gpu = ["seeds", "test perplexity", "test perplexity, neural cache", "coherence accuracy, %"]
    columns = [header.index(name) for name in gpu]
    recipes = [f"paper's recipe: {name}" for name in names]
    recipes += [f"recipe for GPUs: {name}" for name in gpu]
    measured = [
        [row[0], *paper.get(row[0], [""] * len(names)), *(row[column] for column in columns)]
        for row in rows
        if row[0] in _HEADLINE
    ]
    return [["model", *recipes], *measured]


def _wikitext() -> dict[str, Cells]:
    """The tables of WikiText-2; three of its evaluations were saved to two decimals."""
    saved = _load("modern/results/wikitext.json")
    rows, adapted = [], []
    for run in saved["runs"]:
        label, curve = f"`{run['model']}`", saved["development"][run["model"]]
        rows.append(Row(label, [run | {"curve": curve, "test": run}]))
        rounded = [
            evaluation
            for evaluation in saved["adapted_to_two_decimals"]
            if evaluation["model"] == run["model"]
        ]
        adapted += [(label, evaluation) for evaluation in (*run["adapted"], *rounded)]
    return {
        "modern/wikitext": _table(rows, "parameters curve test published"),
        "modern/wikitext_adaptation": _adapted(adapted),
    }


def _movie_reviews() -> dict[str, Cells]:
    rows = _report("movie_reviews/results/report.json")
    return {"movie_reviews/models": _table(rows, f"{_MODEL} shuffled mixed none effect")}


def _hierarchical_rnn() -> dict[str, Cells]:
    rows: dict[str, list[Row]] = {"ptb": [], "movies": []}
    for run in _load("hierarchical_rnn/results/two_steps.json")["runs"]:
        valid = {"perplexity": run["development_perplexity"]}
        rows[run["run"].split("-")[0]].append(Row(_model(run), [run | {"valid": valid}]))
    columns = "size rate schedule epochs frozen valid test coherence"
    return {f"hierarchical_rnn/{corpus}": _table(rows[corpus], columns) for corpus in rows}


def _gains(path: str) -> Cells:
    """Gains of reading times for 1,000 words: a row per comparison and a column per label."""
    rows: dict[str, dict[str, str]] = {}
    labels: dict[str, str] = {}
    for gain in _load(path)["gains"]:
        values = [1e3 * gain[name] for name in ("mean", "low", "high")]
        rows.setdefault(gain["comparison"], {})[gain["label"]] = interval_text(values, 1)
        labels[gain["label"]] = f"`{gain['label']}`"
    cells = [[name, *(row.get(label, "") for label in labels)] for name, row in rows.items()]
    return [["predictor", *labels.values()], *cells]


def _reading_times() -> dict[str, Cells]:
    names = ("wikitext_10k", "wikitext", "film_reviews")
    return {f"reading_times/{n}": _gains(f"reading_times/results/{n}.json") for n in names}


_SOURCES = {
    "sotu": "State of the Union, 1999 to 2026",
    "wikitext": "WikiText-2",
    "film_reviews": "film reviews",
}


def _pretrained() -> dict[str, Cells]:
    """The pretrained models, by source of the test text, and their other evaluations."""
    header = ["test text", "documents", "targets", "`english_sentences`", "`english`"]
    header += ["change", "95% interval", "context of other documents", "no context"]
    sources = [[*header, "bits per character", "coherence accuracy, %"]]
    for source, name in _SOURCES.items():
        rows = {
            row["config"]["model.name"]: row
            for row in _load(f"pretrained/results/{source}.json")["rows"]
        }
        ((baseline,), (english,)) = (rows[model]["runs"] for model in ("rnnlm", "pointer_drnnlm"))
        compared, test = rows["pointer_drnnlm"]["compared"]["rnnlm"], english["test"]
        changes = [
            f"{100 * (ratio - 1):.1f}%" for ratio in (compared["ratio"], *compared["interval"])
        ]
        sources.append(
            [
                name,
                f"{english['coherence']['documents']}",
                f"{test['tokens']:,}",
                f"{baseline['test']['perplexity']:.1f}",
                f"{test['perplexity']:.1f}",
                changes[0],
                f"[{changes[1]}, {changes[2]}]",
                *(f"{english['contexts'][kind]:.1f}" for kind in ("other", "none")),
                f"{test['bits_per_character']:.3f}",
                f"{100 * english['coherence']['mean']:.1f}",
            ]
        )
    pairs = [["paradigm", "pairs", "`english_sentences`", "`english`"]]
    for group in _load("pretrained/results/blimp.json")["groups"]:
        if group["criterion"] == "log P" and not group["without_oov"]:
            accuracies = [group["accuracy"][name]["mean"] for name in ("rnnlm", "pointer_drnnlm")]
            name = group["by"].get("UID", "all").replace("_", " ")
            pairs.append([name, f"{group['pairs']:,}", *(f"{100 * a:.1f}" for a in accuracies)])
    return {
        "pretrained/sources": sources,
        "pretrained/items": _items(),
        "pretrained/blimp": pairs,
        "pretrained/reading_times": _gains("pretrained/results/reading_times.json"),
    }


def _items() -> Cells:
    """Surprisal reductions due to context in the target sentences of stimuli, in nats: means over
    items, with standard errors."""
    original, other, none = (f"surprisal{kind}" for kind in ("", "_other_context", "_no_context"))
    reductions = {
        "original context against no context": (none, original),
        "contexts of other items against no context": (none, other),
        "effect of this context": (other, original),
    }
    saved = _load("pretrained/results/items.json")
    cells = [["surprisal reduction, nats", *(f"{condition} context" for condition in saved)]]
    for name, (minuend, subtrahend) in reductions.items():
        columns = [
            [target[minuend] - target[subtrahend] for target in targets]
            for targets in saved.values()
        ]
        texts = (
            f"{mean(values):.2f} ({stdev(values) / len(values) ** 0.5:.2f})" for values in columns
        )
        cells.append([name, *texts])
    return cells


def result_tables() -> dict[str, Cells]:
    """The cells of all tables by name, a header first."""
    recorded = {}
    for path in sorted(ROOT.glob("configs/*/results/*.json")):
        # Numbers stay as the file spells them: 120.20 keeps its last digit.
        content = json.loads(path.read_text("utf-8"), parse_float=str, parse_int=str)
        if "header" in content:
            recorded[f"{path.parts[-3]}/{path.stem}"] = [content["header"], *content["rows"]]
    recorded["headline"] = _headline(*recorded["modern/gpu"])
    made = _ptb() | _modern() | _wikitext() | _movie_reviews() | _hierarchical_rnn()
    return recorded | made | _reading_times() | _pretrained()


def filled(text: str, made: Mapping[str, Cells], place: object) -> str:
    """A document with its marked tables rewritten; `place` names the document in messages."""

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name not in made:
            line = text.count("\n", 0, match.start()) + 1
            problem = f"{place}, line {line}: there is no table {name!r}"
            raise InputError(f"{problem}{did_you_mean(name, made)}")
        return "\n".join([f"<!-- table: {name} -->", *markdown(made[name]), ""])

    return _MARKED.sub(table, text)


def outdated() -> dict[Path, str]:
    """The new text of every document whose tables differ from the saved results."""
    made = result_tables()
    paths = sorted({path for pattern in DOCUMENTS for path in ROOT.glob(pattern)})
    texts = {path: path.read_text("utf-8") for path in paths}
    new = {path: filled(text, made, path.relative_to(ROOT)) for path, text in texts.items()}
    return {path: text for path, text in new.items() if text != texts[path]}


def main() -> None:
    try:
        texts = outdated()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    for path, text in texts.items():
        write_bytes(path, text.encode())
        print(f"Wrote the tables of {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
