"""Draws segment_length.png, one learning curve per segment length, from choices.json:

python configs/ptb/results/draw_figures.py
"""

import json
import math
from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
LENGTHS = {
    "ccdclm": ("L = 5", "#0072B2"),
    "ccdclm-L1": ("L = 1", "#D55E00"),
    "ccdclm-L10": ("L = 10", "#009E73"),
    "ccdclm-whole": ("whole documents", "#CC79A7"),
}
"""Workdirs in runs/choices, their labels and colours."""


def main() -> None:
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
    main()
