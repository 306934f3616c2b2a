"""Draws figures from the saved results: `python configs/ptb/results/draw_figures.py`.

context.png shows the context ablation and the coherence accuracy of each model, seed 0
(report.json). segment_length.png shows one learning curve per segment length (choices.json).
"""

import json
import math
from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
SEED = 0
CONTEXTS = {
    "own": ("original context", "#0072B2", "o"),
    "none": ("no context", "#E69F00", "s"),
    "mixed": ("context from other documents", "#D55E00", "^"),
}
LENGTHS = {
    "ccdclm": ("L = 5", "#0072B2"),
    "ccdclm-L1": ("L = 1", "#D55E00"),
    "ccdclm-L10": ("L = 10", "#009E73"),
    "ccdclm-whole": ("whole documents", "#CC79A7"),
}
"""Workdirs in runs/choices, their labels and colours."""


def draw_contexts() -> None:
    rows = json.loads((FOLDER / "report.json").read_text())["rows"]
    runs = {row["label"]: next(run for run in row["runs"] if run["seed"] == SEED) for row in rows}
    rnnlm = runs.pop("rnnlm")["test"]["perplexity"]
    # The axis grows upwards: the last model, which is the best, is on top.
    names = sorted(runs, key=lambda name: -runs[name]["test"]["perplexity"])

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 2.9), width_ratios=(3, 2), sharey=True, layout="constrained"
    )
    left.axvline(rnnlm, color="black", linestyle="--", linewidth=1, label="rnnlm")
    for key, (label, color, marker) in CONTEXTS.items():
        values = [runs[name]["arrangements"][key] for name in names]
        left.scatter(values, names, color=color, marker=marker, label=label, zorder=2)
    left.margins(y=0.12)
    left.set_title("Test perplexity by context", fontsize=10)
    accuracies = [runs[name]["coherence"] for name in names]
    right.errorbar(
        [100 * accuracy["mean"] for accuracy in accuracies],
        names,
        xerr=[100 * accuracy["sd"] for accuracy in accuracies],
        color="#0072B2",
        fmt="o",
    )
    right.axvline(50, color="black", linestyle=":", linewidth=1, label="chance")
    right.set_title("Coherence accuracy, % (bars: sd over test sets)", fontsize=10)
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.tick_params(length=0)
    figure.legend(fontsize=8, loc="outside lower left", ncols=5, frameon=False)
    figure.savefig(FOLDER / "context.png", dpi=100)


def draw_segment_lengths() -> None:
    rows = json.loads((FOLDER / "choices.json").read_text())["rows"]
    runs = {run["workdir"].split("/")[-1]: run for row in rows for run in row["runs"]}
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for name, (label, color) in LENGTHS.items():
        steps, perplexities = zip(*runs[name]["curve"], strict=True)
        axes.plot(steps, [-math.log(p) for p in perplexities], ".-", color=color, label=label)
    axes.set_title("ccdclm: validation log-likelihood by segment length", fontsize=10)
    axes.set_xlabel("training steps")
    axes.set_ylabel("nats per target")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(FOLDER / "segment_length.png", dpi=100)


if __name__ == "__main__":
    draw_contexts()
    draw_segment_lengths()
