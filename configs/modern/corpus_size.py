"""Test perplexity by the number of training words, as a table and a figure.

    python -m configs.modern.corpus_size reports/size/*

Each argument is the folder of a report of rnnlm and pointer_drnnlm, trained on text of one size.
The command writes corpus_size.json and corpus_size.png to the current folder. The commands of the
runs are in configs/modern/corpus_size.md.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dclm_jax.data.corpus import read_manifest
from dclm_jax.evaluation.significance import interval_text
from dclm_jax.files import write_json
from dclm_jax.report.figures import Figure, Line, plot
from dclm_jax.training.workdir import read_config

MODEL, BASELINE = "pointer_drnnlm", "rnnlm"

Sizes = dict[int, dict[str, Any]]
"""Rows of reports by number of training words and model."""


def by_size(reports: Iterable[dict[str, Any]], words: Callable[[str], int]) -> Sizes:
    """The rows of reports; `words` returns the number of training words of a run's workdir."""
    sizes: Sizes = {}
    for row in itertools.chain.from_iterable(report["rows"] for report in reports):
        (run,) = row["runs"]
        sizes.setdefault(words(run["workdir"]), {})[row["config"]["model.name"]] = row
    return dict(sorted(sizes.items()))


def table(sizes: Sizes) -> dict[str, Any]:
    """The table of the document, a row per size."""
    header = ["training words", f"`{BASELINE}`", f"`{MODEL}`", f"change vs `{BASELINE}`, %"]
    header += [f"`{MODEL}`, no context", "original against no context, %"]
    cells = []
    for size, rows in sizes.items():
        comparison = rows[MODEL]["compared"][BASELINE]
        ratios = (comparison["ratio"], *comparison["interval"])
        original, none = _perplexity(rows[MODEL]), _no_context(rows[MODEL])
        cells.append(
            [
                f"{size:,}",
                f"{_perplexity(rows[BASELINE]):.2f}",
                f"{original:.2f}",
                interval_text([100 * (ratio - 1) for ratio in ratios], 1),
                f"{none:.2f}",
                f"{100 * (original / none - 1):.1f}",
            ]
        )
    return {"header": header, "rows": cells}


def figure(sizes: Sizes) -> Figure:
    """Test perplexity of both models, and of the model with context without its context."""
    all_rows = sizes.values()
    curves = {
        BASELINE: [_perplexity(rows[BASELINE]) for rows in all_rows],
        f"{MODEL}, no context": [_no_context(rows[MODEL]) for rows in all_rows],
        MODEL: [_perplexity(rows[MODEL]) for rows in all_rows],
    }
    thousands = [size / 1000 for size in sizes]
    lines = [Line(label, thousands, curve) for label, curve in curves.items()]
    title = "Test perplexity on film reviews, by size of the training text"
    return Figure(title, "training words, thousands", "test perplexity", lines)


def _perplexity(row: dict[str, Any]) -> float:
    return row["runs"][0]["test"]["perplexity"]


def _no_context(row: dict[str, Any]) -> float:
    return row["runs"][0]["contexts"]["none"]


def _training_words(workdir: str) -> int:
    directory = read_config(Path(workdir))["data"]["directory"]
    return read_manifest(directory).splits["train"].tokens


def main(folders: Iterable[str]) -> None:
    reports = [json.loads((Path(folder) / "report.json").read_text("utf-8")) for folder in folders]
    sizes = by_size(reports, _training_words)
    write_json("corpus_size.json", table(sizes))
    plot(figure(sizes), "corpus_size.png")


if __name__ == "__main__":
    main(sys.argv[1:])
