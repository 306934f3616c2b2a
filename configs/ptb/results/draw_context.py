"""Draws context.png from report.json: what the context is worth (`python draw_context.py`)."""

import json
from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
SEED = 0
CONTEXTS = {
    "own": ("their own document", "#0072B2", "o"),
    "none": ("nothing", "#E69F00", "s"),
    "mixed": ("sentences of other documents", "#D55E00", "^"),
}


def main() -> None:
    rows = json.loads((FOLDER / "report.json").read_text())["rows"]
    runs = {row["label"]: next(run for run in row["runs"] if run["seed"] == SEED) for row in rows}
    rnnlm = runs.pop("rnnlm")["test"]["perplexity"]
    # The axis grows upwards: the best model is the last, and so on top.
    names = sorted(runs, key=lambda name: -runs[name]["test"]["perplexity"])

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 2.9), width_ratios=(3, 2), sharey=True, layout="constrained"
    )
    left.axvline(rnnlm, color="black", linestyle="--", linewidth=1, label="rnnlm")
    for key, (label, color, marker) in CONTEXTS.items():
        values = [runs[name]["arrangements"][key] for name in names]
        left.scatter(values, names, color=color, marker=marker, label=label, zorder=2)
    left.margins(y=0.12)
    left.set_title("Test perplexity of the same sentences after ...", fontsize=10)
    coherence = [runs[name]["coherence"] for name in names]
    right.errorbar(
        [100 * one["mean"] for one in coherence],
        names,
        xerr=[100 * one["sd"] for one in coherence],
        color="#0072B2",
        fmt="o",
    )
    right.axvline(50, color="black", linestyle="--", linewidth=1)
    right.set_title("Coherence: true order preferred, %", fontsize=10)
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.tick_params(length=0)
    figure.legend(fontsize=8, loc="outside lower left", ncols=4, frameon=False)
    figure.savefig(FOLDER / "context.png", dpi=100)


if __name__ == "__main__":
    main()
